//! A disk whose write-ahead log is synced when we say so.
//!
//! # Why
//! The log below syncs every commit and takes the answer for proof. With
//! [`crate::Durability::Periodic`] and [`crate::Durability::None`] a commit is to reach the page
//! cache only, so the sync of a WAL file is remembered instead of done, and [`WalDisk::sync_wal`]
//! does what was remembered. The write itself then goes through a mapping (`mapped`).
//!
//! # Invariants
//! - Only `sync_data` of files below `wal/` is postponed, and only after [`WalDisk::postpone`]: not
//!   while the log is opened, nor that of segments that are being filled, chunks and checkpoints.
//! - Nothing that outlives a power cut relies on WAL bytes that were not synced: before any job of
//!   background work runs (it may write a chunk or a checkpoint, or reuse a segment whose entries
//!   they hold) its owner calls `sync_wal` and records how far the log is synced (`synced`).
//! - So a batch may claim another one durable that is not, and power loss may leave a hole with
//!   later entries behind it. Every entry of such a hole has an index above the recorded one, and
//!   recovery (`recovery`) takes nothing from the hole on: what is left is a prefix.
//! - When `sync_wal` returns, everything written before the call is synced, whoever did it.

use crate::mapped::MappedFile;
use env::{DirLock, Disk, File, LockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A disk under an engine.
#[derive(Debug)]
pub(crate) struct WalDisk {
    disk: Arc<dyn Disk>,
    wal: PathBuf,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is_postponing: AtomicBool,
    /// Files with a remembered sync.
    dirty: Mutex<Vec<Arc<WalFile>>>,
    /// Held while remembered syncs are done.
    syncing: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread of the engine panicked")
}

impl WalDisk {
    /// Wraps `disk` for the log in `dir`.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        Self { disk, wal: dir.join("wal"), state: Arc::default() }
    }

    /// From now on syncs of WAL files are remembered and not done.
    pub(crate) fn postpone(&self) {
        self.state.is_postponing.store(true, Ordering::Release);
    }

    /// Does the syncs that were remembered.
    ///
    /// # Errors
    /// Any error means that WAL bytes may be lost: nothing may be acknowledged any more.
    pub(crate) fn sync_wal(&self) -> io::Result<()> {
        let _alone = lock(&self.state.syncing);
        let dirty = std::mem::take(&mut *lock(&self.state.dirty));
        for file in dirty {
            // Before the sync: a write that comes while it runs is remembered anew.
            file.is_dirty.store(false, Ordering::Release);
            file.file.sync_data()?;
        }
        Ok(())
    }

    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        if !path.starts_with(&self.wal) {
            return file;
        }
        let inner = Arc::new(WalFile {
            mapped: MappedFile::new(path, Arc::clone(&file)),
            file,
            is_dirty: AtomicBool::new(false),
        });
        Arc::new(WalHandle { inner, state: Arc::clone(&self.state) })
    }
}

impl Disk for WalDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.disk.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.disk.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        self.disk.lock_dir(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_bytes(dir)
    }
}

#[derive(Debug)]
struct WalFile {
    mapped: MappedFile,
    file: Arc<dyn File>,
    is_dirty: AtomicBool,
}

#[derive(Debug)]
struct WalHandle {
    inner: Arc<WalFile>,
    state: Arc<State>,
}

impl File for WalHandle {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.file.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.inner.file.write_at(bytes, position)
    }

    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        if self.state.is_postponing.load(Ordering::Acquire) {
            self.inner.mapped.write_pieces(pieces, position)
        } else {
            self.inner.file.write_pieces_at(pieces, position)
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.state.is_postponing.load(Ordering::Acquire) {
            return self.inner.file.sync_data();
        }
        if !self.inner.is_dirty.swap(true, Ordering::AcqRel) {
            lock(&self.state.dirty).push(Arc::clone(&self.inner));
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.file.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.file.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.file.set_len(length)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{MemoryDisk, SeededRandom};

    /// What a crash that keeps nothing unsynced leaves of one byte written below `dir`.
    fn survives(dir: &str, act: impl Fn(&WalDisk, &dyn File)) -> bool {
        (0..20).all(|seed| {
            let disk = MemoryDisk::new();
            disk.create_dir_all(Path::new(dir)).unwrap();
            let wal = WalDisk::new(Arc::new(disk.clone()), Path::new("/e"));
            let path = Path::new(dir).join("f");
            let file = wal.create(&path).unwrap();
            wal.postpone();
            file.write_at(b"x", 0).unwrap();
            act(&wal, &*file);
            for parent in path.ancestors().skip(1) {
                disk.sync_dir(parent).unwrap();
            }
            disk.crash(&mut SeededRandom::new(seed));
            disk.open(&path).is_ok_and(|file| file.len().unwrap() == 1)
        })
    }

    #[test]
    fn syncs_of_the_wal_alone_are_postponed_until_they_are_asked_for() {
        let sync = |_: &WalDisk, file: &dyn File| file.sync_data().unwrap();
        assert!(survives("/e/chunks", sync));
        assert!(!survives("/e/wal", sync));
        assert!(survives("/e/wal", |_, file| file.sync_all().unwrap()));
        assert!(survives("/e/wal", |disk, file| {
            file.sync_data().unwrap();
            disk.sync_wal().unwrap();
        }));
    }
}
