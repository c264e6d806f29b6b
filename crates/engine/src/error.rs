//! Why a call was refused: what was wrong, with what value, and what to do.

use crate::options::BadOption;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What a caller may do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The call can never succeed as it is; nothing has changed.
    Rejected,
    /// The same call may succeed later; nothing has changed.
    Retry,
    /// The engine takes nothing any more: open it again.
    Fatal,
}

/// Why a directory was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// A setting is out of proportion.
    Options(BadOption),
    /// The log below refused: see its own text.
    Log(log::OpenError),
    /// The record of what is synced could not be read or written.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the disk said.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(bad) => {
                write!(f, "option {} is {}; allowed is {}", bad.name, bad.value, bad.allowed)
            }
            Self::Log(error) => write!(f, "{error}"),
            Self::Io { path, error } => {
                write!(f, "{}: {error}; free or repair the disk and open again", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<log::OpenError> for OpenError {
    fn from(error: log::OpenError) -> Self {
        Self::Log(error)
    }
}

/// Why something was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// A batch without an entry.
    EmptyBatch,
    /// The batch is larger than [`crate::BATCH_BYTES_MAX`].
    TooLarge {
        /// Bytes of the batch, 4 for each entry included.
        bytes: u64,
    },
    /// A name is empty or longer than [`crate::NAME_BYTES_MAX`].
    Name {
        /// Its length.
        length_bytes: usize,
    },
    /// There are [`crate::STREAMS_MAX`] streams, or [`crate::CURSORS_PER_STREAM_MAX`] cursors of
    /// this stream.
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        count_max: usize,
    },
    /// Nothing was ever appended to the stream.
    NoStream {
        /// Its name.
        stream: String,
    },
    /// The id lies behind the last entry.
    PastTail {
        /// The id that was given.
        id: u64,
        /// The id that the next entry will get.
        tail: u64,
    },
    /// The entry at the place of the trim cannot be read.
    Damaged {
        /// The first id that the trim was to keep.
        id: u64,
        /// What the log said.
        cause: String,
    },
    /// The disk failed while the place of the trim was looked for.
    Unreadable {
        /// The first id that the trim was to keep.
        id: u64,
        /// What the disk said.
        cause: String,
    },
    /// The disk has no room.
    DiskFull,
    /// There was no room in the WAL for as long as a caller waits.
    Busy {
        /// Milliseconds waited.
        waited_ms: u64,
        /// What background work last failed with, if it did.
        cause: Option<String>,
    },
    /// A write or sync failed: nothing is acknowledged any more.
    Failed {
        /// What the disk said.
        cause: Arc<str>,
    },
    /// The engine was closed.
    Closed,
}

impl WriteError {
    /// What the caller may do.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::DiskFull | Self::Busy { .. } | Self::Unreadable { .. } => Class::Retry,
            Self::Failed { .. } | Self::Closed => Class::Fatal,
            _ => Class::Rejected,
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyBatch => f.write_str("the batch has no entry; append at least one"),
            Self::TooLarge { bytes } => write!(
                f,
                "the batch has {bytes} bytes, 4 for each entry included, and may have {}; split it",
                crate::BATCH_BYTES_MAX
            ),
            Self::Name { length_bytes } => write!(
                f,
                "the name has {length_bytes} bytes; give it 1 to {}",
                crate::NAME_BYTES_MAX
            ),
            Self::TooMany { what, count_max } => {
                write!(f, "there are {count_max} {what} already; use one of them")
            }
            Self::NoStream { stream } => {
                write!(f, "stream {stream:?} does not exist; append to it first")
            }
            Self::PastTail { id, tail } => {
                write!(f, "id {id} lies behind the tail {tail}; give at most the tail")
            }
            Self::Damaged { id, cause } => {
                write!(f, "entry {id} cannot be read: {cause}; trim up to a later id")
            }
            Self::Unreadable { id, cause } => {
                write!(f, "entry {id} could not be read: {cause}; repeat")
            }
            Self::DiskFull => f.write_str("the disk is full; free space or trim, then repeat"),
            Self::Busy { waited_ms, cause } => {
                write!(f, "no room in the WAL after {waited_ms} ms")?;
                if let Some(cause) = cause {
                    write!(f, " (background work failed: {cause})")?;
                }
                f.write_str("; repeat, or raise wal_bytes_max")
            }
            Self::Failed { cause } => {
                write!(f, "the log could not be written: {cause}; repair the disk and open again")
            }
            Self::Closed => f.write_str("the engine is closed; open it again"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Why there are no entries to return.
#[derive(Debug)]
pub enum ReadError {
    /// Nothing was ever appended to the stream.
    NoStream {
        /// Its name.
        stream: String,
    },
    /// The entries were trimmed.
    Trimmed {
        /// The id that was given.
        id: u64,
        /// The first id that is left.
        head: u64,
    },
    /// The id lies behind the last entry.
    PastTail {
        /// The id that was given.
        id: u64,
        /// The id that the next entry will get.
        tail: u64,
    },
    /// The stored entry is not what was written. Later ids can be read.
    Damaged {
        /// The id.
        id: u64,
        /// What the log said.
        cause: String,
    },
    /// The disk failed; a later read may succeed.
    Io(io::Error),
}

impl ReadError {
    /// What the caller may do.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Io(_) => Class::Retry,
            _ => Class::Rejected,
        }
    }

    pub(crate) fn of(error: log::ReadError, id: u64) -> Self {
        match error {
            log::ReadError::Io(error) => Self::Io(error),
            other => Self::Damaged { id, cause: other.to_string() },
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStream { stream } => {
                write!(f, "stream {stream:?} does not exist; append to it first")
            }
            Self::Trimmed { id, head } => {
                write!(f, "entry {id} was trimmed; read from {head}")
            }
            Self::PastTail { id, tail } => {
                write!(f, "entry {id} lies behind the tail {tail}; read from at most the tail")
            }
            Self::Damaged { id, cause } => {
                write!(f, "entry {id} cannot be read: {cause}; later ids may be intact")
            }
            Self::Io(error) => write!(f, "the disk failed: {error}; repeat the read"),
        }
    }
}

impl std::error::Error for ReadError {}
