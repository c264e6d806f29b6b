//! Deliberate defects below an engine: disks that betray one of the files that only an engine has.

use env::{Disk, DiskOverlay, File, FileOverlay};
use std::{io, path::Path, sync::Arc};

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

impl DiskOverlay for BetrayedDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

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

#[derive(Debug)]
struct BetrayedFile {
    file: Arc<dyn File>,
    mutant: EngineMutant,
}

impl FileOverlay for BetrayedFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        let forgets = match self.mutant {
            EngineMutant::StaleSynced => self.file.len()? > position,
            EngineMutant::EmptyFront => pieces.iter().any(|bytes| bytes.iter().any(|b| *b != 0)),
            _ => false,
        };
        if forgets { Ok(()) } else { self.file.write_pieces_at(pieces, position) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.mutant == EngineMutant::LyingBarrier { Ok(()) } else { self.file.sync_data() }
    }
}
