//! What an append of a stream is looked for by, and what is found.

use crate::entry::AppendBounds;
use model::{ByteOffset, Timestamp};

/// A question for one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The one that holds this byte.
    Byte(ByteOffset),
    /// The one that holds the record with this number.
    Record(u64),
    /// The first one that is still there and is not before this time.
    Time(TimeAim),
}

/// A time that appends are compared with. Both kinds never fall along a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeAim {
    /// The arrival of the append.
    Arrival(Timestamp),
    /// Its record time, or its arrival if the stream had no record times then.
    Record(u64),
}

/// An append and its place in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedAppend {
    /// Its bytes.
    pub bounds: AppendBounds,
    /// Number of its first record.
    pub first_record: u64,
    /// The largest record time up to its end, if the stream has record times.
    pub mark: Option<u64>,
}

impl TimeAim {
    /// Whether an append with these times lies before it.
    pub(crate) fn is_behind(self, arrival: u64, mark: Option<u64>) -> bool {
        match self {
            Self::Arrival(at) => arrival < at.get(),
            Self::Record(time) => mark.unwrap_or(arrival) < time,
        }
    }
}

impl PlacedAppend {
    /// Whether it lies before a time.
    #[must_use]
    pub fn is_before(&self, time: TimeAim) -> bool {
        time.is_behind(self.bounds.at.get(), self.mark)
    }
}
