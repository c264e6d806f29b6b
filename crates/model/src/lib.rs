//! Ids, positions and limits: values without behaviour. And a table of values that several crates keep many of.
//!
//! Every crate of the workspace may import this one; it imports none of them. A quantity that
//! crosses a crate boundary has its own type here. So a byte offset of a stream can never take the
//! place of a log entry's index.

pub mod limits;
mod mix;
mod parted;
mod path;

pub use mix::{split_mix, split_mix_next};
pub use parted::{PartedTable, TablePlace};
pub use path::{PathError, PathHash, StreamPath};

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a plain number.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// Where a read begins. PROTOCOL §8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the first retained byte.
    Begin,
    /// At the tail of that moment.
    Now,
    /// At this byte; inside a JSON message its start is meant.
    At(ByteOffset),
    /// At the record with this number.
    Record(u64),
    /// So many records before the tail of that moment, or at the first retained one.
    TailRecords(u64),
    /// At the first append whose record time, or else arrival, is not before this: milliseconds since 1970.
    Time(u64),
}

impl ReadFrom {
    /// Whether the read begins at the head where its place would lie before it. Else its place is named, and may be gone.
    #[must_use]
    pub fn follows_head(self) -> bool {
        match self {
            Self::Begin | Self::TailRecords(_) | Self::Time(_) => true,
            Self::At(_) | Self::Record(_) | Self::Now => false,
        }
    }
}

/// Bounds of an answer besides its stable boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Records, at least 1.
    pub records_max: Option<u64>,
    /// Bytes, at least 1. A JSON message that is longer comes whole.
    pub bytes_max: Option<u64>,
    /// Before the first append that is at or after this time.
    pub until: Option<u64>,
}

/// What a read wants of records besides its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadRecords {
    /// Where the answer ends.
    pub bounds: Bounds,
    /// A record behind the tail means the tail.
    pub clamp: bool,
}

/// Where a stream is to be trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimBefore {
    /// Before the append that holds this byte.
    Offset(ByteOffset),
    /// Before the append that holds this record.
    Record(u64),
}

number!(
    /// One replicated log and its state machine; `0..G`, `G` fixed when the data directory is made.
    GroupId(u16)
);
number!(
    /// One core's event loop within a process.
    ShardId(u16)
);
number!(
    /// A stream within its group: the index of the log entry that created it, so never used again.
    StreamId(u64)
);
number!(
    /// What an entry is about, as its header has it: the id of a stream, or another number that the owner
    /// of the log chose. The log does not interpret it.
    EntrySubject(u64)
);
number!(
    /// Position of an entry in its group's log; the first entry has index 1, 0 means "none".
    EntryIndex(u64)
);
number!(
    /// Raft term of an entry; a group with one voter stays in term 1 until a second voter joins.
    Term(u64)
);
number!(
    /// Byte position in a stream as it is stored (wire format), counted from 0.
    ByteOffset(u64)
);
number!(
    /// Wall-clock time in milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(u64)
);
number!(
    /// Monotonic time in nanoseconds since an arbitrary start; only differences mean anything.
    Monotonic(u64)
);

impl GroupId {
    /// The shard that owns this group among `shard_count` shards.
    ///
    /// # Panics
    /// If there are no shards.
    #[must_use]
    pub const fn shard(self, shard_count: u16) -> ShardId {
        ShardId(self.0 % shard_count)
    }
}

impl EntryIndex {
    /// The index of the entry that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl ByteOffset {
    /// The first byte of every stream.
    pub const ZERO: Self = Self(0);

    /// This position moved on by `bytes`.
    ///
    /// # Panics
    /// If the position would pass `u64::MAX`: streams are bounded far below it.
    #[must_use]
    pub const fn advance(self, bytes: u64) -> Self {
        match self.0.checked_add(bytes) {
            Some(sum) => Self(sum),
            None => panic!("a stream offset passed u64::MAX"),
        }
    }

    /// Bytes from `start` up to this position.
    ///
    /// # Panics
    /// If `start` lies behind this position.
    #[must_use]
    pub const fn since(self, start: Self) -> u64 {
        match self.0.checked_sub(start.0) {
            Some(bytes) => bytes,
            None => panic!("a range ends before it starts"),
        }
    }
}

impl Timestamp {
    /// This time moved on by `ms` milliseconds; stays at `u64::MAX` instead of wrapping.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

impl Monotonic {
    /// This instant moved on by `ms` milliseconds; stays at the end of time instead of wrapping.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Whole milliseconds from `start` to this instant; 0 if `start` is later.
    #[must_use]
    pub const fn ms_since(self, start: Self) -> u64 {
        self.0.saturating_sub(start.0) / 1_000_000
    }
}

/// A stream anywhere in the process: its group and its id in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The group that owns the stream.
    pub group: GroupId,
    /// The stream within that group.
    pub stream: StreamId,
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.stream)
    }
}

/// Where the data of an accepted entry is in its stream. Its length is that of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The stream in the entry's group.
    pub stream: StreamId,
    /// Offset of the first byte.
    pub start: ByteOffset,
    /// Number of the first record in its stream.
    pub first_record: u64,
    /// Records that the data holds.
    pub record_count: u32,
    /// Record times, if the stream has them.
    pub marks: Option<TimeMarks>,
}

/// What an append does to the *mark* of its stream: the largest record time so far, without a unit. So it
/// never falls and can be searched, in whatever order clients give their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeMarks {
    /// The mark in front of the append.
    pub before: u64,
    /// The mark behind it, at least `before`.
    pub upto: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_future_times_stay_at_the_end_of_time() {
        assert_eq!(Timestamp::new(5).plus_ms(u64::MAX).get(), u64::MAX);
        assert_eq!(Monotonic::new(5).plus_ms(u64::MAX).get(), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "ends before it starts")]
    fn a_range_cannot_run_backwards() {
        let _ = ByteOffset::new(1).since(ByteOffset::new(2));
    }
}
