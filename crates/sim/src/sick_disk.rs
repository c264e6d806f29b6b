//! A disk under a defect, which changes or hides its errors.

use crate::mutant::Mutant;
use env::{DirLock, Disk, File, FileOverlay, LockError, MemoryDisk, is_unreadable};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const BLOCK_BYTES: u64 = 4096;

/// Blocks that failed once, by the path that the file had when it was opened.
type Failed = Arc<Mutex<BTreeSet<(PathBuf, u64)>>>;

/// A disk in memory with a [`Mutant`] between it and the log.
#[derive(Debug)]
pub(crate) struct SickDisk {
    below: MemoryDisk,
    mutant: Mutant,
    failed: Failed,
}

#[derive(Debug)]
struct SickFile {
    below: Arc<dyn File>,
    path: PathBuf,
    mutant: Mutant,
    failed: Failed,
}

impl SickDisk {
    pub(crate) fn new(below: MemoryDisk, mutant: Mutant) -> Self {
        Self { below, mutant, failed: Failed::default() }
    }

    fn wrap(&self, path: &Path, below: Arc<dyn File>) -> Arc<dyn File> {
        let (path, failed) = (path.to_owned(), Arc::clone(&self.failed));
        Arc::new(SickFile { below, path, mutant: self.mutant, failed })
    }

    /// What the log hears of a change of names.
    fn answer(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::SwallowedErrors => Ok(()),
            result => result,
        }
    }
}

impl FileOverlay for SickFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let first = position / BLOCK_BYTES;
        let last = (position + buffer.len() as u64).div_ceil(BLOCK_BYTES);
        let block = |number: u64| (self.path.clone(), number);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.range(block(first)..block(last)).next().is_some() {
            const EIO: i32 = 5;
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let read = self.below.read_at(buffer, position);
        match read {
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::BrittleReads => {
                Err(io::Error::other("any error"))
            }
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::StickyReads => {
                failed.extend((first..last).map(block));
                Err(error)
            }
            read => read,
        }
    }
}

impl Disk for SickDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.below.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.below.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.answer(self.below.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.answer(self.below.remove(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.below.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.below.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.answer(self.below.sync_dir(dir))
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        self.below.lock_dir(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.below.free_bytes(dir)
    }
}
