//! What came of a command.

use crate::{ContentType, StreamInfo};
use model::{ByteOffset, StreamId};

/// The result of a command, final once its entry is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A stream was made.
    Created(Box<StreamInfo>),
    /// The stream was there already, with the same configuration: nothing changed.
    Existed(Box<StreamInfo>),
    /// An append was accepted, now or before.
    Appended(Accepted),
    /// The stream is gone for its clients.
    Deleted,
    /// A reference was taken for a fork.
    Pinned {
        /// First retained byte of the source.
        head: ByteOffset,
        /// Number of the record there.
        first_record: u64,
    },
    /// Where the stream begins now, if it was to be trimmed.
    Trimmed {
        /// First retained byte.
        head: ByteOffset,
        /// Number of the record there.
        first_record: u64,
    },
    /// The settings of a stream are changed.
    Changed(Box<StreamInfo>),
    /// A command that nobody outside waits for was done.
    Done,
    /// Nothing was changed.
    Refused(Refusal),
}

impl Outcome {
    /// Whether a stream may have bounds from now on that had none.
    #[must_use]
    pub fn brings_bounds(&self) -> bool {
        match self {
            Self::Created(info) | Self::Changed(info) => info.retention.is_bounded(),
            _ => false,
        }
    }
}

/// An accepted append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The stream.
    pub stream: StreamId,
    /// Offset after the last byte of this append. For a repetition of an older one than the producer's last it is the
    /// tail: of older ones it is not remembered.
    pub tail: ByteOffset,
    /// Numbers of its first record and of the one behind it; `None` if they are not remembered, or if it has none.
    pub records: Option<(u64, u64)>,
    /// The stream is closed.
    pub closed: bool,
    /// The producer's epoch and the highest sequence accepted from it.
    pub producer: Option<(u64, u64)>,
    /// The bytes had been accepted before; this time nothing was added.
    pub duplicate: bool,
    /// The append carried no data: it only closed.
    pub close_only: bool,
}

/// Why a command was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No stream has this path (or its lifetime has run out).
    NotFound,
    /// The stream is deleted, but forks still read its bytes.
    Gone,
    /// The path belongs to a deleted stream whose bytes forks still read.
    PathBlocked,
    /// The stream is closed at `tail`.
    Closed {
        /// Its final tail.
        tail: ByteOffset,
    },
    /// The append's content type is not the stream's.
    ContentType {
        /// What the stream holds.
        expected: ContentType,
    },
    /// `Stream-Seq` does not exceed the last accepted one.
    StreamSeq {
        /// The last accepted one.
        last: Box<str>,
    },
    /// The next record has another number than the append wants.
    RecordMatch {
        /// Its number.
        next_record: u64,
        /// The stream's tail.
        tail: ByteOffset,
    },
    /// The stream is in none of the states that the append wants.
    Precondition {
        /// The stream's tail.
        tail: ByteOffset,
    },
    /// A newer epoch of this producer is known.
    StaleEpoch {
        /// The newest epoch.
        current: u64,
    },
    /// A new epoch must begin at sequence 0.
    EpochStart {
        /// The sequence that came.
        received: u64,
    },
    /// Sequences are missing in between.
    SeqGap {
        /// The next acceptable sequence.
        expected: u64,
        /// The sequence that came.
        received: u64,
    },
    /// The stream exists with another configuration.
    Config {
        /// The first field that differs.
        differs: ConfigField,
    },
    /// The source of a fork does not exist.
    ForkSourceNotFound,
    /// The source of a fork is deleted and kept only for its present forks.
    ForkSourceGone,
    /// The fork's content type is not its source's.
    ForkContentType {
        /// What the source holds.
        expected: ContentType,
    },
    /// The fork offset lies beyond the source's tail.
    ForkBeyondTail {
        /// The source's tail.
        tail: ByteOffset,
    },
    /// The fork's sub-offset passes the next boundary.
    ForkSubOffset {
        /// The largest sub-offset possible here.
        available: u64,
    },
    /// The fork offset lies before the source's first retained byte.
    ForkTrimmed {
        /// The source's head.
        head: ByteOffset,
    },
    /// The chain of forks would be longer than [`model::limits::FORK_DEPTH_MAX`].
    ForkDepth,
    /// The stream's records on disk are damaged; see the report that recovery logged.
    Damaged,
}

/// A part of a stream's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigField {
    /// `Content-Type`
    ContentType,
    /// `Stream-TTL` or `Stream-Expires-At`
    Lifetime,
    /// `Stream-Closed`
    Closed,
    /// `Stream-Forked-From`, `Stream-Fork-Offset` or `Stream-Fork-Sub-Offset`
    Fork,
}
