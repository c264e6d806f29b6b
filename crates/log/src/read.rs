//! Reads: what they answer.

use crate::options::READ_INLINE_BYTES_MAX;
use crate::unreadable::read_around;
use bytes::Bytes;
use env::{File, is_unreadable};
use model::ByteOffset;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Consecutive bytes of a stream.
#[derive(Debug, Clone)]
pub enum Slice {
    /// Bytes in memory, checked.
    Bytes(Bytes),
    /// A range of an immutable file, checked: it may go out by `sendfile`.
    File {
        /// The chunk; the handle stays readable when the chunk is replaced.
        file: Arc<dyn File>,
        /// Position of the first byte in the file.
        position: u64,
        /// Number of bytes.
        length: u64,
    },
}

impl Slice {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// Whether there is no byte: the range starts at the stream's tail.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, read from the file if need be.
    ///
    /// # Errors
    /// As the file answers.
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::File { file, position, length } => {
                let mut buffer = vec![0; usize::try_from(*length).expect("a slice fits memory")];
                file.read_exact_at(&mut buffer, *position)?;
                Ok(buffer.into())
            }
        }
    }
}

/// How much a read takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// If they are copied into memory.
    pub bytes: usize,
    /// If they are a range of a file.
    pub file_bytes: usize,
}

impl ReadLimit {
    /// As many, wherever they are.
    #[must_use]
    pub fn anywhere(bytes: usize) -> Self {
        Self { bytes, file_bytes: bytes }
    }
}

/// How a read gets at bytes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// On a thread that serves others: only what is in memory and takes little time.
    Inline,
    /// On a thread that may wait for the disk.
    Blocking,
}

impl ReadMode {
    /// Fills `buffer`; returns whether all of it could be read. What could not matches no checksum.
    ///
    /// # Errors
    /// `WouldBlock` if this thread must not wait; otherwise as the file answers.
    pub(crate) fn fill(
        self,
        file: &dyn File,
        buffer: &mut [u8],
        position: u64,
    ) -> io::Result<bool> {
        match self {
            Self::Blocking => Ok(read_around(file, buffer, position)?.is_empty()),
            Self::Inline => match file.read_cached_exact_at(buffer, position) {
                // To find out what is left of it takes its time.
                Err(error) if is_unreadable(&error) => Err(io::ErrorKind::WouldBlock.into()),
                read => read.map(|()| true),
            },
        }
    }

    /// Leaves what takes long to a thread that has the time.
    ///
    /// # Errors
    /// `WouldBlock` if this one does not.
    pub(crate) fn check_bytes(self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Inline if bytes > READ_INLINE_BYTES_MAX => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}

/// Why a read has no bytes.
#[derive(Debug)]
pub enum ReadError {
    /// The log holds no byte of the stream.
    NotFound,
    /// The range starts before the first retained byte.
    Trimmed {
        /// The first retained byte.
        head: ByteOffset,
    },
    /// The range starts behind the stream's tail.
    PastTail {
        /// The offset after the last byte.
        tail: ByteOffset,
    },
    /// Stored bytes of the range are not what was written.
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// Byte position of the damage in the file.
        position: u64,
    },
    /// The disk failed; a later read may succeed.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no byte of the stream is stored"),
            Self::Trimmed { head } => write!(f, "bytes before {head} were trimmed"),
            Self::PastTail { tail } => write!(f, "the stream ends at {tail}"),
            Self::Damaged { file, position } => {
                write!(f, "{} is damaged at {position}", file.display())
            }
            Self::Io(error) => write!(f, "read failed: {error}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl ReadError {
    /// Whether the bytes are there, but not without waiting: see [`ReadMode::Inline`].
    #[must_use]
    pub fn would_block(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
