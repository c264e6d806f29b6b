//! Disks over another disk, which change only some of what it does.
//!
//! # How
//! A type that implements [`DiskOverlay`] is a [`Disk`], one that implements [`FileOverlay`] is a [`File`].
//! What the type does not say itself is done by the disk or file below.
//!
//! # Invariants
//! - Every write of a file goes through [`FileOverlay::write_pieces_at`], zeroes too. So an overlay that
//!   changes writes has one place to change.

use crate::{DirLock, Disk, File, LockError};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A disk over another one. It may put an overlay over the files that it opens.
pub trait DiskOverlay: Send + Sync + fmt::Debug {
    /// The disk that does the work.
    fn below(&self) -> &dyn Disk;

    /// What takes the place of a file that was opened or made.
    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File>;
}

/// A file over another one. What it does not change is done by the file below.
pub trait FileOverlay: Send + Sync + fmt::Debug {
    /// The file that does the work.
    fn below(&self) -> &dyn File;

    /// See [`File::read_at`]. Reads that must not wait do not come here.
    ///
    /// # Errors
    /// As [`File::read_at`].
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.below().read_at(buffer, position)
    }

    /// See [`File::write_pieces_at`]. All writes come here, but those past the cache of a file that says so.
    ///
    /// # Errors
    /// As [`File::write_at`].
    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        self.below().write_pieces_at(pieces, position)
    }

    /// See [`File::write_uncached_at`]. By default the write goes to [`FileOverlay::write_pieces_at`], and not past the cache.
    ///
    /// # Errors
    /// As [`File::write_at`].
    fn write_uncached_at(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
        self.write_pieces_at(&[bytes], position)?;
        Ok(false)
    }

    /// See [`File::write_out`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn write_out(&self) -> io::Result<Duration> {
        self.below().write_out()
    }

    /// See [`File::sync_data`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn sync_data(&self) -> io::Result<()> {
        self.below().sync_data()
    }
}

impl<D: DiskOverlay> Disk for D {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.below().open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.below().create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below().remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.below().list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below().create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().sync_dir(dir)
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        self.below().lock_dir(path)
    }

    fn copy_on_write(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        self.below().copy_on_write(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.below().free_bytes(dir)
    }

    fn memory_file(&self) -> io::Result<Arc<dyn File>> {
        self.below().memory_file()
    }

    fn allows_threads(&self) -> bool {
        self.below().allows_threads()
    }
}

impl<F: FileOverlay> File for F {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileOverlay::read_at(self, buffer, position)
    }

    fn read_stored_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.below().read_stored_exact_at(buffer, position)
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.below().read_cached_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileOverlay::write_pieces_at(self, &[bytes], position)
    }

    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        FileOverlay::write_pieces_at(self, pieces, position)
    }

    fn write_uncached_at(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
        FileOverlay::write_uncached_at(self, bytes, position)
    }

    fn write_out(&self) -> io::Result<Duration> {
        FileOverlay::write_out(self)
    }

    fn sync_data(&self) -> io::Result<()> {
        FileOverlay::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.below().sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.below().len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.below().set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.below().allocate(length)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.below().as_fd()
    }
}
