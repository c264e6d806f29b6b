//! The port to a disk: files by path, and what it takes to make them durable.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of zeroes that [`File::write_zeroes`] writes at once.
const ZEROES_BYTES: usize = 256 << 10;

static ZEROES: [u8; ZEROES_BYTES] = [0; ZEROES_BYTES];

/// A disk. Every method may block; none keeps anything in memory that a crash of the process loses.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Makes an empty file. Its name is volatile until [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name in one step, replacing what had that name.
    ///
    /// # Errors
    /// As the file system answers.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; open handles stay readable.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the file system answers.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names of files and directories in `dir`, sorted.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and its parents. Names are volatile until [`Disk::sync_dir`].
    ///
    /// # Errors
    /// As the file system answers.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// Any error means that the names may be lost.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock `path`, a file that names its holder. Freed by drop and by death.
    ///
    /// # Errors
    /// [`LockError::Held`] if another process has it.
    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError>;

    /// Bytes that an unprivileged process may still write to the file system of `dir`.
    ///
    /// # Errors
    /// As the file system answers.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Name of the file system of `dir` if it writes changed blocks to new places. A file filled with zeroes then
    /// reserves no room for what is written over them.
    ///
    /// # Errors
    /// As the file system answers.
    fn copy_on_write(&self, dir: &Path) -> io::Result<Option<&'static str>>;

    /// Makes an empty file in memory. It has no name, never reaches a device, and goes with its last handle.
    ///
    /// # Errors
    /// If the system gives none.
    fn memory_file(&self) -> io::Result<Arc<dyn File>>;

    /// Whether its files may be written on threads that a job begins. By default they may not: a simulation has to repeat from its seed.
    fn allows_threads(&self) -> bool {
        false
    }
}

/// An open file. Positions are bytes from the start; there is no cursor.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes; 0 means the end of the file.
    ///
    /// # Errors
    /// As the file system answers.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Fills `buffer` from `position`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let count = self.read_at(&mut buffer[filled..], position + filled as u64)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
        }
        Ok(())
    }

    /// As [`File::read_exact_at`], but from the medium. Bytes that a sync has made durable, or has failed to, are
    /// read as they are there, whatever the page cache has.
    ///
    /// # Errors
    /// As [`File::read_exact_at`].
    fn read_stored_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;

    /// As [`File::read_at`], but never waits for a device. Bytes that are in memory up to some point
    /// are read up to there.
    ///
    /// # Errors
    /// `WouldBlock` if the first byte is not in memory. Also if nobody can say so: then a thread that
    /// may wait has to read.
    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Fills `buffer` from `position` without waiting for a device.
    ///
    /// # Errors
    /// `WouldBlock` if a byte is not in memory; `UnexpectedEof` if the file ends before.
    fn read_cached_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let count = self.read_cached_at(&mut buffer[filled..], position + filled as u64)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
        }
        Ok(())
    }

    /// Whether the first and the last of `length` bytes from `position` are in memory now. The kernel
    /// reads and drops neighbours together, so what lies between them is there as a rule. To ask for
    /// every page would cost as much as to copy them.
    fn are_ends_cached(&self, position: u64, length: u64) -> bool {
        let mut byte = [0];
        let mut is_there = |at| self.read_cached_at(&mut byte, at).is_ok();
        length == 0 || (is_there(position) && is_there(position + length - 1))
    }

    /// Writes all of `bytes` at `position`. Volatile until [`File::sync_data`].
    ///
    /// # Errors
    /// `StorageFull` on a full disk; part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Writes `pieces` one after the other, in as few system calls as there can be.
    ///
    /// # Errors
    /// As [`File::write_at`].
    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        let mut at = position;
        for piece in pieces {
            self.write_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes all of `bytes` past the system's cache, if the disk can do that and both ends lie between blocks of 4 KiB. Otherwise, and
    /// by default, as [`File::write_at`]. It promises no more than that. Whether it was past the cache: reads then read from the disk,
    /// and [`File::write_out`] has nothing to do.
    ///
    /// # Errors
    /// As [`File::write_at`].
    fn write_uncached_at(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
        self.write_at(bytes, position)?;
        Ok(false)
    }

    /// Brings written bytes to the disk ahead of a sync; how long that took. It promises nothing: only
    /// a sync makes them durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn write_out(&self) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// Makes written bytes, and the length needed to read them, durable.
    ///
    /// # Errors
    /// After an error nothing is known about any byte written since the last success.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`File::sync_data`], and all metadata.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// As the file system answers.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no byte.
    ///
    /// # Errors
    /// As the file system answers.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends the file; new bytes are zeroes and need not be allocated.
    ///
    /// # Errors
    /// As the file system answers.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Extends the file to `length` with room on the disk for each byte; new bytes are zeroes. Quicker than to write them, but
    /// the first write to a block changes metadata.
    ///
    /// # Errors
    /// `Unsupported` if the disk cannot; `StorageFull` if there is no room.
    fn allocate(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Really writes zeroes, so that later writes to the range change no metadata.
    ///
    /// # Errors
    /// As [`File::write_at`].
    fn write_zeroes(&self, position: u64, length: u64) -> io::Result<()> {
        let mut at = position;
        let end = position + length;
        while at < end {
            let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROES_BYTES);
            self.write_at(&ZEROES[..count], at)?;
            at += count as u64;
        }
        Ok(())
    }

    /// The descriptor, for `sendfile`; `None` if the file is not the kernel's.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Whether the process or the system has no descriptor left.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    error.raw_os_error().is_some_and(|number| number == EMFILE || number == ENFILE)
}

/// Whether a read failed because the device has lost the bytes, and not for want of memory or descriptors.
#[must_use]
pub fn is_unreadable(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    /// What Linux makes of a medium error of some devices.
    const ENODATA: i32 = 61;
    /// A checksum of the file system is wrong.
    const EBADMSG: i32 = 74;
    /// A checksum of the device is wrong.
    const EILSEQ: i32 = 84;
    /// The file system is damaged.
    const EUCLEAN: i32 = 117;
    let known = [EIO, ENODATA, EBADMSG, EILSEQ, EUCLEAN];
    error.raw_os_error().is_some_and(|number| known.contains(&number))
}

/// A held directory lock; dropping it frees the lock.
pub struct DirLock {
    _holder: Box<dyn Any + Send + Sync>,
}

impl DirLock {
    /// Wraps whatever frees the lock when dropped.
    pub fn new(holder: impl Any + Send + Sync) -> Self {
        Self { _holder: Box::new(holder) }
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirLock")
    }
}

/// Why a directory could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held {
        /// The lock file.
        path: PathBuf,
        /// The process id in the lock file, if it can be read.
        pid: Option<u32>,
    },
    /// The lock file could not be opened or written.
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { path, pid: Some(pid) } => {
                write!(f, "{} is locked by process {pid}", path.display())
            }
            Self::Held { path, pid: None } => {
                write!(f, "{} is locked by another process", path.display())
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LockError {}
