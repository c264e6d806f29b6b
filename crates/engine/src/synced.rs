//! How far the log is known to be synced, in a file of its own.
//!
//! # Why
//! When the WAL is synced later than it is written, power loss may leave a hole in it. A hole behind
//! the last sync is what was to be expected, and nothing after it counts; a hole before it is damage,
//! and everything around it is kept. This file distinguishes the two, and remembers what does not
//! count until a checkpoint covers it.
//!
//! It is also where an opening is decided, by one write: which indexes are cut off, and which records
//! of `FRONT` may continue the log from now on. Were these two writes, power loss between them would
//! let records continue a log from which their predecessors were just cut off.
//!
//! # Invariants
//! - The file says of an index that it is synced only after a sync that began when it was written.
//! - The two slots are written in turn, each synced: one of them is always whole.
//! - No file, or none that is intact, means that everything is synced: nothing is thrown away.
//!
//! # Format
//! `SYNCED` is little-endian and has two slots of 512 bytes; the one with the higher number counts. A slot:
//!
//! | bytes | |
//! |---:|---|
//! | 8 | `ThSynced` |
//! | 2 | version, now 1 |
//! | 2 | number of ranges |
//! | 4 | 0 |
//! | 8 | number of the write |
//! | 8 | last synced index, 2^64 - 1 if each append is synced |
//! | 8 | life whose records in `FRONT` count, 0 for none |
//! | 8 | last WAL segment with a hole that is no damage |
//! | 16 each | ranges of indexes that do not count: from, to (exclusive) |
//! | 4 at 508 | CRC-32C of bytes 0..508 |

use crate::command::{u32_at, u64_at};
use crate::front::Life;
use env::{Disk, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "SYNCED";
const SLOT_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"ThSynced";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 48;
/// Ranges that one slot holds. Each is dropped when the next opening finds it behind a checkpoint.
const RANGES_MAX: usize = 24;
/// What the file holds for [`SyncedTo::All`]: no entry of a log gets so high an index.
const ALL_RAW: u64 = u64::MAX;

const _: () = assert!(HEADER_BYTES + RANGES_MAX * 16 <= SLOT_BYTES - 4);

/// How far the log is known to be synced; ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncedTo {
    /// This is the last index that is known to be synced.
    Index(u64),
    /// Everything that is written is synced before it is acknowledged.
    All,
}

impl SyncedTo {
    fn encode(self) -> u64 {
        match self {
            Self::Index(index) => index,
            Self::All => ALL_RAW,
        }
    }

    fn decode(raw: u64) -> Self {
        if raw == ALL_RAW { Self::All } else { Self::Index(raw) }
    }
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) upto: SyncedTo,
    /// The life whose records in `FRONT` count; none after a clean stop and if each append is synced.
    pub(crate) life: Option<Life>,
    /// The last WAL segment with a hole that was found to be no damage: it is not one later either. 0 before the
    /// first: segments are counted from 1.
    pub(crate) holes: u64,
    /// Indexes that power loss has cut off, in order.
    pub(crate) voids: Vec<Range<u64>>,
}

impl Synced {
    /// What holds without a file.
    pub(crate) fn all() -> Self {
        Self { upto: SyncedTo::All, life: None, holes: 0, voids: Vec::new() }
    }

    pub(crate) fn is_void(&self, index: u64) -> bool {
        self.voids.iter().any(|void| void.contains(&index))
    }

    /// The first index of `missing` that was never synced and is not known to be cut off.
    pub(crate) fn first_unsynced(&self, missing: Range<u64>) -> Option<u64> {
        let SyncedTo::Index(synced) = self.upto else { return None };
        let mut index = missing.start.max(synced + 1);
        for void in &self.voids {
            if void.contains(&index) {
                index = void.end;
            }
        }
        (index < missing.end).then_some(index)
    }

    fn encode(&self, number: u64) -> [u8; SLOT_BYTES] {
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(MAGIC);
        slot.extend_from_slice(&(VERSION | ((self.voids.len() as u32) << 16)).to_le_bytes());
        slot.extend_from_slice(&[0; 4]);
        slot.extend_from_slice(&number.to_le_bytes());
        slot.extend_from_slice(&self.upto.encode().to_le_bytes());
        slot.extend_from_slice(&Life::encode(self.life).to_le_bytes());
        slot.extend_from_slice(&self.holes.to_le_bytes());
        for void in &self.voids {
            slot.extend_from_slice(&void.start.to_le_bytes());
            slot.extend_from_slice(&void.end.to_le_bytes());
        }
        slot.resize(SLOT_BYTES - 4, 0);
        slot.extend_from_slice(&crc32c::crc32c(&slot).to_le_bytes());
        slot.try_into().expect("the slot was filled to its size")
    }

    fn decode(slot: &[u8]) -> Option<(u64, Self)> {
        let is_intact = slot.get(..8)? == MAGIC
            && u32_at(slot, SLOT_BYTES - 4)? == crc32c::crc32c(slot.get(..SLOT_BYTES - 4)?);
        let (version, count) = (u32_at(slot, 8)? & 0xffff, (u32_at(slot, 8)? >> 16) as usize);
        if !is_intact || version != VERSION || count > RANGES_MAX {
            return None;
        }
        let void = |range: usize| {
            let at = HEADER_BYTES + range * 16;
            Some(u64_at(slot, at)?..u64_at(slot, at + 8)?)
        };
        let voids = (0..count).map(void).collect::<Option<Vec<_>>>()?;
        let upto = SyncedTo::decode(u64_at(slot, 24)?);
        let (life, holes) = (Life::decode(u64_at(slot, 32)?), u64_at(slot, 40)?);
        Some((u64_at(slot, 16)?, Self { upto, life, holes, voids }))
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    file: Arc<dyn File>,
    number: u64,
    pub(crate) synced: Synced,
}

/// What the file in `dir` says, if there is one.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Synced> {
    match disk.open(&dir.join(NAME)) {
        Ok(file) => Ok(newest(&*file)?.map_or_else(Synced::all, |(_, synced)| synced)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Synced::all()),
        Err(error) => Err(error),
    }
}

fn newest(file: &dyn File) -> io::Result<Option<(u64, Synced)>> {
    let mut found: Option<(u64, Synced)> = None;
    for slot in 0..2 {
        let mut bytes = [0; SLOT_BYTES];
        match file.read_exact_at(&mut bytes, slot * SLOT_BYTES as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            other => other?,
        }
        let slots = Synced::decode(&bytes).into_iter().chain(found);
        found = slots.max_by_key(|(number, _)| *number);
    }
    Ok(found)
}

impl SyncedFile {
    /// Opens or makes the file in `dir` and records `synced`, durably.
    ///
    /// # Errors
    /// Any error of the underlying disk; too many ranges are `InvalidInput`.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, synced: Synced) -> io::Result<Self> {
        let path = dir.join(NAME);
        let file = match disk.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&path)?,
            other => other?,
        };
        let number = newest(&*file)?.map_or(0, |(number, _)| number);
        let mut opened = Self { file, number, synced: Synced::all() };
        opened.record(synced)?;
        disk.sync_dir(dir)?;
        Ok(opened)
    }

    /// Records that everything up to `index` is synced.
    ///
    /// # Errors
    /// Any error of the underlying disk; the file then says what it said before.
    pub(crate) fn advance(&mut self, index: u64) -> io::Result<()> {
        let upto = SyncedTo::Index(index);
        if upto <= self.synced.upto {
            return Ok(());
        }
        self.record(Synced { upto, ..self.synced.clone() })
    }

    /// Records that everything is synced and that no record in `FRONT` counts any more.
    ///
    /// # Errors
    /// Any error of the underlying disk; the file then says what it said before.
    pub(crate) fn end_life(&mut self) -> io::Result<()> {
        if self.synced.life.is_none() {
            return Ok(());
        }
        self.record(Synced { life: None, ..self.synced.clone() })
    }

    fn record(&mut self, synced: Synced) -> io::Result<()> {
        if synced.voids.len() > RANGES_MAX {
            let text = "power was lost too often between two checkpoints";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.number += 1;
        let position = (self.number % 2) * SLOT_BYTES as u64;
        self.file.write_at(&synced.encode(self.number), position)?;
        self.file.sync_all()?;
        self.synced = synced;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;

    fn synced(index: u64) -> Synced {
        Synced {
            upto: SyncedTo::Index(index),
            life: Life::decode(77),
            holes: 3,
            voids: vec![5..9, 12..20],
        }
    }

    #[test]
    fn the_newer_intact_slot_counts() {
        let disk = MemoryDisk::new();
        let dir = Path::new("/e");
        disk.create_dir_all(dir).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), Synced::all());
        let mut file = SyncedFile::open(&disk, dir, synced(30)).unwrap();
        file.advance(40).unwrap();
        file.advance(35).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), synced(40));
        // The second write went to the first slot.
        disk.flip_bit(&dir.join(NAME), 24 * 8);
        assert_eq!(read(&disk, dir).unwrap(), synced(30));
        disk.flip_bit(&dir.join(NAME), (SLOT_BYTES as u64 + 24) * 8);
        assert_eq!(read(&disk, dir).unwrap(), Synced::all());
    }

    #[test]
    fn a_hole_is_unsynced_or_known_or_damage() {
        let synced = synced(30);
        assert_eq!(synced.first_unsynced(3..10), None, "synced: damage");
        assert_eq!(synced.first_unsynced(29..40), Some(31));
        let early = Synced { upto: SyncedTo::Index(2), voids: vec![5..9, 9..12], ..Synced::all() };
        assert_eq!(early.first_unsynced(5..11), None, "known");
        assert_eq!(early.first_unsynced(5..13), Some(12));
        assert_eq!(early.first_unsynced(4..13), Some(4));
        assert_eq!(Synced::all().first_unsynced(1..100), None);
    }
}
