//! Where an append is written when nobody waits for a sync: in front of the WAL.
//!
//! # Why
//! A commit of the log takes whole blocks of 4 KiB. If each small append were one, the WAL would be
//! many times as large as its data, and filling, syncing and sealing it would cost more than the
//! appends. So an append is copied into the log's open batch and into this file, densely, and is
//! acknowledged: the page cache has it. The batch is committed when it is large or someone needs it.
//!
//! # Invariants
//! - Every entry of the open batch that was acknowledged is here. The file has a region for each of
//!   the two batches that may not be in the WAL yet: the one in flight and the open one.
//! - A record counts only if its life does: its checksum is seeded with the life's number, drawn at
//!   random, and `SYNCED` names the life that counts. So the write that cuts indexes off and the one
//!   that turns to a new life are the same one.
//! - At the next opening records are taken only as far as they continue the log without a gap. With
//!   the log's own prefix they are a prefix, whatever power loss has left of this file.
//!
//! # Format
//! `FRONT` is little-endian and has two regions of 1 MiB, each with records from its start. A record:
//!
//! | bytes | |
//! |---:|---|
//! | 8 | index |
//! | 8 | stream |
//! | 4 | kind |
//! | 4 | length of the command |
//! | 4 | length of the data |
//! | 4 | CRC-32C of the life's number, these 28 bytes and the command |
//! | | the command, the data |
//!
//! The command of an append holds the checksum of its data. Others have no data.

use crate::command::{Command, u32_at, u64_at};
use crate::mapped::MappedFile;
use env::{Disk, Random};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "FRONT";
const REGION_BYTES: u64 = 1 << 20;
const LENGTH: u64 = 2 * REGION_BYTES;
const RECORD_HEADER_BYTES: usize = 32;

/// Data of one append that is copied here; a larger one is committed at once.
const DATA_BYTES_MAX: usize = 128 << 10;

/// Bytes of the open batch that are worth a commit.
pub(crate) const COMMIT_BYTES: u64 = 256 << 10;

/// The number of a life: from an opening until power loss, a crash or a clean stop. Files have 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life(NonZeroU64);

impl Life {
    /// The number of a new life.
    pub(crate) fn draw(random: &mut dyn Random) -> Self {
        Self(NonZeroU64::new(random.next_u64()).unwrap_or(NonZeroU64::MIN))
    }

    pub(crate) fn encode(life: Option<Self>) -> u64 {
        life.map_or(0, |life| life.0.get())
    }

    pub(crate) fn decode(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }
}

/// An entry as the log takes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) index: u64,
    pub(crate) stream: u64,
    pub(crate) kind: u8,
    pub(crate) command: &'a [u8],
    pub(crate) data: &'a [u8],
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Front {
    file: MappedFile,
    life: Life,
    batch: u64,
    used: u64,
}

fn record_crc(life: Life, fields: &[u8], command: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&life.0.get().to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, fields), command)
}

impl Front {
    /// Opens or makes the file in `dir`. Nothing in it changes before the first record.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, life: Life) -> io::Result<Self> {
        let path = dir.join(NAME);
        let file = match disk.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&path)?,
            other => other?,
        };
        let length = file.len()?;
        if length < LENGTH {
            file.write_zeroes(length, LENGTH - length)?;
            file.sync_all()?;
        }
        disk.sync_dir(dir)?;
        Ok(Self { file: MappedFile::new(&path, file), life, batch: 0, used: 0 })
    }

    /// Removes the file in `dir`, if there is one: it is not needed when each append is synced.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn remove(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        match disk.remove(&dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.and_then(|()| disk.sync_dir(dir)),
        }
    }

    /// Copies an entry of the open batch `batch`; false if it is too large or the region is full.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn put(&mut self, batch: u64, record: &Record<'_>) -> io::Result<bool> {
        if self.batch != batch {
            (self.batch, self.used) = (batch, 0);
        }
        let Record { index, stream, kind, command, data } = *record;
        let bytes = (RECORD_HEADER_BYTES + command.len() + data.len()) as u64;
        if data.len() > DATA_BYTES_MAX || self.used + bytes > REGION_BYTES {
            return Ok(false);
        }
        let mut fields = [0; RECORD_HEADER_BYTES];
        fields[..8].copy_from_slice(&index.to_le_bytes());
        fields[8..16].copy_from_slice(&stream.to_le_bytes());
        fields[16] = kind;
        fields[20..24].copy_from_slice(&(command.len() as u32).to_le_bytes());
        fields[24..28].copy_from_slice(&(data.len() as u32).to_le_bytes());
        let crc = record_crc(self.life, &fields[..28], command);
        fields[28..].copy_from_slice(&crc.to_le_bytes());
        let position = (batch % 2) * REGION_BYTES + self.used;
        self.file.write_pieces(&[&fields, command, data], position)?;
        self.used += bytes;
        Ok(true)
    }

    /// Bytes that the open batch takes here.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

/// What the last life left in the file.
#[derive(Debug, Default)]
pub(crate) struct Left {
    bytes: Vec<u8>,
    /// Index and place of each intact record, by index.
    records: Vec<(u64, Range<usize>)>,
}

impl Left {
    /// Reads the records of `life` in `dir`, if there are any.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path, life: Option<Life>) -> io::Result<Self> {
        let Some(life) = life else { return Ok(Self::default()) };
        let file: Arc<dyn env::File> = match disk.open(&dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other?,
        };
        let mut bytes = vec![0; LENGTH.min(file.len()?) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut left = Self { bytes, records: Vec::new() };
        left.find(life, 0);
        left.find(life, REGION_BYTES as usize);
        left.records.sort_unstable_by_key(|(index, _)| *index);
        Ok(left)
    }

    fn find(&mut self, life: Life, start: usize) {
        let end = start + REGION_BYTES as usize;
        let mut at = start;
        while let Some(length) = self.intact_bytes(life, at..end) {
            let index = u64_at(&self.bytes, at).expect("the record is whole");
            self.records.push((index, at..at + length));
            at += length;
        }
    }

    fn intact_bytes(&self, life: Life, place: Range<usize>) -> Option<usize> {
        let region = self.bytes.get(place)?;
        let (command, data) = (u32_at(region, 20)? as usize, u32_at(region, 24)? as usize);
        let length = RECORD_HEADER_BYTES.checked_add(command)?.checked_add(data)?;
        let record = record_in(region.get(..length)?);
        let is_sealed = record_crc(life, region.get(..28)?, record.command) == u32_at(region, 28)?;
        let is_whole = is_sealed
            && match Command::decode(record.kind, record.command)? {
                Command::Append { crc, .. } => crc32c::crc32c(record.data) == crc,
                _ => record.data.is_empty(),
            };
        is_whole.then_some(length)
    }

    /// The records that continue a log whose next index is `next`.
    pub(crate) fn following(&self, next: u64) -> impl Iterator<Item = Record<'_>> {
        let later = self.records.iter().skip_while(move |(index, _)| *index < next);
        let unbroken = (next..).zip(later).take_while(|(next, (index, _))| next == index);
        unbroken.map(|(_, (_, place))| record_in(&self.bytes[place.clone()]))
    }
}

/// The fields of a record of which all bytes are there.
fn record_in(bytes: &[u8]) -> Record<'_> {
    let data = RECORD_HEADER_BYTES + u32_at(bytes, 20).unwrap_or_default() as usize;
    Record {
        index: u64_at(bytes, 0).unwrap_or_default(),
        stream: u64_at(bytes, 8).unwrap_or_default(),
        kind: bytes[16],
        command: &bytes[RECORD_HEADER_BYTES..data],
        data: &bytes[data..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;

    fn put(front: &mut Front, batch: u64, index: u64) {
        let mut command = Vec::new();
        let kind = Command::Create { name: "a" }.encode(&mut command);
        let record = Record { index, stream: index, kind, command: &command, data: &[] };
        assert!(front.put(batch, &record).unwrap());
    }

    fn left(disk: &MemoryDisk, life: u64, next: u64) -> Vec<u64> {
        let left = Left::read(disk, Path::new("/e"), Life::decode(life)).unwrap();
        left.following(next).map(|record| record.index).collect()
    }

    #[test]
    fn records_are_taken_as_far_as_they_continue_the_log() {
        let disk = MemoryDisk::new();
        let dir = Path::new("/e");
        disk.create_dir_all(dir).unwrap();
        assert_eq!(left(&disk, 7, 1), []);
        let mut front = Front::open(&disk, dir, Life::decode(7).unwrap()).unwrap();
        (1..4).for_each(|index| put(&mut front, 1, index));
        (4..6).for_each(|index| put(&mut front, 2, index));
        assert_eq!(left(&disk, 7, 1), [1, 2, 3, 4, 5]);
        assert_eq!(left(&disk, 7, 3), [3, 4, 5]);
        assert_eq!(left(&disk, 7, 6), []);
        // The third batch begins where the first one was.
        put(&mut front, 3, 6);
        assert_eq!(left(&disk, 7, 1), [], "1 is gone: nothing continues the log");
        assert_eq!(left(&disk, 7, 4), [4, 5, 6]);
        assert_eq!(left(&disk, 8, 4), [], "another life");
        assert_eq!(left(&disk, 0, 4), [], "no life");
    }

    #[test]
    fn a_damaged_record_ends_what_is_taken() {
        let disk = MemoryDisk::new();
        let dir = Path::new("/e");
        disk.create_dir_all(dir).unwrap();
        let mut front = Front::open(&disk, dir, Life::decode(7).unwrap()).unwrap();
        (1..4).for_each(|index| put(&mut front, 2, index));
        let record_bytes = RECORD_HEADER_BYTES as u64 + 1;
        disk.flip_bit(&dir.join(NAME), record_bytes * 8 + 3);
        assert_eq!(left(&disk, 7, 1), [1]);
    }
}
