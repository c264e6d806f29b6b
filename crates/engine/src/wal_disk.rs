//! A disk whose write-ahead log is synced when we say so.
//!
//! # Why
//! The log below syncs every commit and takes the answer for proof. With
//! [`crate::Durability::Periodic`] and [`crate::Durability::None`] a commit needs to reach the page
//! cache only. So this disk remembers the sync of a WAL file, and [`WalDisk::sync_wal`] does it later.
//!
//! # Invariants
//! - Only `sync_data` of files below `wal/` is postponed, and only after [`WalDisk::postpone`]: not
//!   while the log is opened, nor that of segments that are being filled, chunks and checkpoints.
//! - Nothing that outlives a power cut relies on WAL bytes that were not synced. A job of background
//!   work may write a chunk or a checkpoint, or reuse a segment whose entries they hold. Before it
//!   runs, its owner calls `sync_wal` and records how far the log is synced (`synced`).
//! - So a batch may claim another one durable that is not, and power loss may leave a hole with
//!   later entries behind it. Every entry of such a hole has an index above the recorded one, and
//!   recovery (`recovery`) takes nothing from the hole on: what is left is a prefix.
//! - When `sync_wal` returns `Ok`, everything written before the call is synced, by any thread. After a
//!   failed sync it never does: the next sync would prove nothing about what that one lost.

use env::{Disk, DiskOverlay, File, FileOverlay};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Writes every file of the log in `dir` again as it is, and syncs it. What is about to count must be
/// durable first, and a sync alone writes nothing that an earlier one has lost.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn rewrite_wal(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let wals = dir.join("wal");
    let numbers = match disk.list(&wals) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for wal in numbers.iter().map(|number| wals.join(number)) {
        for name in disk.list(&wal)? {
            rewrite(&*disk.open(&wal.join(name))?)?;
        }
    }
    Ok(())
}

fn rewrite(file: &dyn File) -> io::Result<()> {
    let (mut at, length) = (0, file.len()?);
    let mut bytes = vec![0; REWRITE_BYTES];
    while at < length {
        let count = (length - at).min(REWRITE_BYTES as u64) as usize;
        file.read_exact_at(&mut bytes[..count], at)?;
        file.write_at(&bytes[..count], at)?;
        at += count as u64;
    }
    file.sync_data()
}

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
    dirty: Mutex<Vec<Arc<HeldFile>>>,
    /// Whether a remembered sync has failed; held while they are done.
    has_failed: Mutex<bool>,
}

/// Bytes that are written again at once.
const REWRITE_BYTES: usize = 256 << 10;

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
        let mut has_failed = lock(&self.state.has_failed);
        if *has_failed {
            return Err(io::Error::other("an earlier sync of the log failed"));
        }
        let dirty = std::mem::take(&mut *lock(&self.state.dirty));
        for file in dirty {
            // Before the sync: a write during the sync is remembered again.
            file.is_dirty.store(false, Ordering::Release);
            file.file.sync_data().inspect_err(|_| *has_failed = true)?;
        }
        Ok(())
    }
}

impl DiskOverlay for WalDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        let is_wal = path.starts_with(&self.wal);
        let inner = Arc::new(HeldFile { file, is_wal, is_dirty: AtomicBool::new(false) });
        Arc::new(Handle { inner, state: Arc::clone(&self.state) })
    }
}

#[derive(Debug)]
struct HeldFile {
    file: Arc<dyn File>,
    is_wal: bool,
    is_dirty: AtomicBool,
}

#[derive(Debug)]
struct Handle {
    inner: Arc<HeldFile>,
    state: Arc<State>,
}

impl FileOverlay for Handle {
    fn below(&self) -> &dyn File {
        &*self.inner.file
    }

    fn write_uncached_at(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
        self.inner.file.write_uncached_at(bytes, position)
    }

    fn write_out(&self) -> io::Result<Duration> {
        // Nobody waits for a sync while they are postponed.
        if self.state.is_postponing.load(Ordering::Acquire) {
            return Ok(Duration::ZERO);
        }
        self.inner.file.write_out()
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.inner.is_wal || !self.state.is_postponing.load(Ordering::Acquire) {
            return self.inner.file.sync_data();
        }
        if !self.inner.is_dirty.swap(true, Ordering::AcqRel) {
            lock(&self.state.dirty).push(Arc::clone(&self.inner));
        }
        Ok(())
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
    fn after_a_failed_sync_none_succeeds() {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new("/e/wal")).unwrap();
        let wal = WalDisk::new(Arc::new(disk.clone()), Path::new("/e"));
        let file = wal.create(Path::new("/e/wal/f")).unwrap();
        wal.postpone();
        file.sync_data().unwrap();
        disk.fail_next_sync(1);
        assert!(wal.sync_wal().is_err());
        assert!(wal.sync_wal().is_err(), "it would prove nothing about the one before");
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

    /// A file that can be written past the cache.
    #[derive(Debug)]
    struct Direct(Arc<dyn File>);

    impl FileOverlay for Direct {
        fn below(&self) -> &dyn File {
            &*self.0
        }

        fn write_uncached_at(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
            self.0.write_at(bytes, position).map(|()| true)
        }
    }

    #[test]
    fn what_is_to_go_past_the_cache_does() {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new("/e")).unwrap();
        let file = disk.create(Path::new("/e/f")).unwrap();
        let wal = WalDisk::new(Arc::new(disk), Path::new("/e"));
        let held = wal.wrap(Path::new("/e/f"), Arc::new(Direct(file)));
        assert!(held.write_uncached_at(b"x", 0).unwrap());
        assert_eq!(held.len().unwrap(), 1);
    }
}
