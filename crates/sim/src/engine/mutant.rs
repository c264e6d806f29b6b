//! Deliberate defects below an engine: disks that betray one of the files that only an engine has.

use env::{DirLock, Disk, File, LockError};
use std::{io, os::fd::BorrowedFd, path::Path, sync::Arc};

/// A defect under or in the simulated engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineMutant {
    /// `SYNCED` keeps what its first write said.
    StaleSynced,
    /// `FRONT` takes records and forgets them.
    EmptyFront,
    /// Syncs of the write-ahead log that were put off are never done.
    LyingBarrier,
    /// A begun append is taken for acknowledged at once.
    EarlyAck,
}

impl EngineMutant {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::StaleSynced, Self::EmptyFront, Self::LyingBarrier, Self::EarlyAck];

    /// The disk as the defect has it.
    pub(super) fn disk(self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        Arc::new(BetrayedDisk { disk, mutant: self })
    }
}

#[derive(Debug)]
struct BetrayedDisk {
    disk: Arc<dyn Disk>,
    mutant: EngineMutant,
}

impl BetrayedDisk {
    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        let is_hit = match self.mutant {
            EngineMutant::StaleSynced => path.ends_with("SYNCED"),
            EngineMutant::EmptyFront => path.ends_with("FRONT"),
            EngineMutant::LyingBarrier => path.extension().is_some_and(|end| end == "wal"),
            EngineMutant::EarlyAck => false,
        };
        if is_hit { Arc::new(BetrayedFile { file, mutant: self.mutant }) } else { file }
    }
}

impl Disk for BetrayedDisk {
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
struct BetrayedFile {
    file: Arc<dyn File>,
    mutant: EngineMutant,
}

impl File for BetrayedFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_cached_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let forgets = match self.mutant {
            EngineMutant::StaleSynced => self.file.len()? > position,
            EngineMutant::EmptyFront => bytes.iter().any(|byte| *byte != 0),
            _ => false,
        };
        if forgets { Ok(()) } else { self.file.write_at(bytes, position) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.mutant == EngineMutant::LyingBarrier { Ok(()) } else { self.file.sync_data() }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
