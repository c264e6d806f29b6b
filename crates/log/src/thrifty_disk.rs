//! A disk that makes room where the process has no descriptor left.
//!
//! # Why
//! Files of chunks are open because they were read not long ago. So they are closed first when a segment has to be
//! made, or another chunk read. Connections take the same descriptors, and are not ours to close.
//!
//! # Invariants
//! - What fails for want of a descriptor is tried again once, when some have been given back.

use crate::chunk::cache::ChunkCache;
use env::{DirLock, Disk, File, LockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The disk of a store.
#[derive(Debug)]
pub(crate) struct ThriftyDisk {
    below: Arc<dyn Disk>,
    cache: Arc<ChunkCache>,
}

impl ThriftyDisk {
    pub(crate) fn new(below: Arc<dyn Disk>, cache: Arc<ChunkCache>) -> Self {
        Self { below, cache }
    }
}

impl Disk for ThriftyDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.cache.with_descriptors(|disk| disk.open(path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.cache.with_descriptors(|disk| disk.create(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.cache.with_descriptors(|disk| disk.remove_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.cache.with_descriptors(|disk| disk.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.cache.with_descriptors(|disk| disk.sync_dir(dir))
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        self.below.lock_dir(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.below.free_bytes(dir)
    }

    fn copy_on_write(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        self.below.copy_on_write(dir)
    }

    fn memory_file(&self) -> io::Result<Arc<dyn File>> {
        self.below.memory_file()
    }

    fn allows_threads(&self) -> bool {
        self.below.allows_threads()
    }
}
