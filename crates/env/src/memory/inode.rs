//! The bytes of a file on a disk in memory: what reads see, and what a crash leaves.

use super::evicted::LostWrites;
use super::faults::{covered, input_output_error, touched};
use crate::random::Random;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

pub(super) const SECTOR_BYTES: usize = 512;

/// What a crash does with unsynced sectors.
#[derive(Debug, Clone, Copy)]
pub(super) enum CrashMode {
    DropAll,
    KeepAll,
    Tear,
}

/// A file, whatever its name.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// What reads see.
    pub(super) current: Vec<u8>,
    /// What is on stable storage.
    pub(super) durable: Vec<u8>,
    /// Sectors of `current` written since the last sync.
    pub(super) dirty: BTreeSet<usize>,
    /// Sectors of `current` that a failed sync did not write, and that are taken for clean.
    pub(super) lost_writes: LostWrites,
    /// Blocks that cannot be read.
    pub(super) unreadable: BTreeSet<usize>,
    /// It cannot be opened.
    pub(super) is_unopenable: bool,
}

impl Inode {
    /// A file that has what is on stable storage of this one, and nothing else.
    pub(super) fn durable_copy(&self) -> Self {
        let (current, durable) = (self.durable.clone(), self.durable.clone());
        Self { current, durable, unreadable: self.unreadable.clone(), ..Self::default() }
    }

    /// `None` if a byte of it cannot be read.
    pub(super) fn read(&self, buffer: &mut [u8], position: u64) -> Option<usize> {
        let start = (position as usize).min(self.current.len());
        let count = buffer.len().min(self.current.len() - start);
        if count > 0 && self.unreadable.range(touched(start..start + count)).next().is_some() {
            return None;
        }
        buffer[..count].copy_from_slice(&self.current[start..start + count]);
        Some(count)
    }

    /// Reads what is on stable storage, or will be after the next sync; `None` as in [`Self::read`].
    pub(super) fn read_stored(&self, buffer: &mut [u8], position: u64) -> Option<usize> {
        let count = self.read(buffer, position)?;
        for (at, byte) in (position as usize..).zip(&mut buffer[..count]) {
            if !self.dirty.contains(&(at / SECTOR_BYTES)) {
                *byte = self.durable.get(at).copied().unwrap_or(0);
            }
        }
        Some(count)
    }

    /// To write a part of a block, the rest must be read first; one that is written whole is readable again.
    pub(super) fn begin_write(&mut self, range: Range<usize>) -> io::Result<()> {
        let whole = covered(range.clone());
        let is_lost = |block: &usize| !whole.contains(block);
        if self.unreadable.range(touched(range)).any(is_lost) {
            return Err(input_output_error());
        }
        self.unreadable.retain(|block| is_lost(block));
        Ok(())
    }

    pub(super) fn write(&mut self, bytes: &[u8], start: usize) -> io::Result<()> {
        let end = start + bytes.len();
        self.begin_write(start..end)?;
        self.current[start..end].copy_from_slice(bytes);
        let sectors = start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        self.lost_writes.written(sectors.clone());
        self.dirty.extend(sectors);
        Ok(())
    }

    pub(super) fn resize(&mut self, length: usize) {
        let old = self.current.len();
        self.current.resize(length, 0);
        let changed = old.min(length)..old.max(length);
        self.dirty.extend(changed.start / SECTOR_BYTES..changed.end.div_ceil(SECTOR_BYTES));
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.current.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            let start = (sector * SECTOR_BYTES).min(self.current.len());
            let end = (start + SECTOR_BYTES).min(self.current.len());
            self.durable[start..end].copy_from_slice(&self.current[start..end]);
        }
    }

    pub(super) fn crash(&mut self, mode: CrashMode, shears: bool, random: &mut dyn Random) {
        let keep = |random: &mut dyn Random| match mode {
            CrashMode::DropAll => false,
            CrashMode::KeepAll => true,
            CrashMode::Tear => random.next_u64() & 1 == 0,
        };
        if keep(random) {
            self.durable.resize(self.current.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(self.durable.len()).min(self.current.len());
            if start < end && keep(random) {
                self.durable[start..end].copy_from_slice(&self.current[start..end]);
            } else if start < end && shears && matches!(mode, CrashMode::Tear) && keep(random) {
                self.durable[start..end].fill_with(|| random.next_u64() as u8);
            }
        }
        self.lost_writes = LostWrites::default();
        self.current.clone_from(&self.durable);
    }
}
