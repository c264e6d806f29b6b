//! Checkpoint files: the state of one group at an applied index.
//!
//! # Why
//! A row per stream with its own checksum: a flipped bit costs one stream, not a group. The index
//! row repeats stream and path hash, so that a lost stream can still be named.
//!
//! # Invariants
//! - Written aside, synced, renamed, directory synced; only then are older ones removed.
//! - Header and owner's header are at the front and again at the end.
//!
//! # Format
//! `docs/format/checkpoint.md`.

use crate::checkpoint_rows::{CheckpointRow, CheckpointRows};
use crate::codec::{NUMBER_MAX, Unsealed, put, seal_header, u16_at, u32_at, u64_at, unseal};
use crate::damage::{Damage, DamageKind};
use crate::newer::{NewerVersion, is_spare, newer_in};
use crate::paced::Pace;
use crate::paths::{remove_if_there, remove_unneeded};
use crate::unreadable::{open_around, read_around};
use env::{Disk, File};
use model::{EntryIndex, GroupId, PathHash, StreamId, Term};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER_BYTES: usize = 64;
const ROW_BYTES: usize = 40;
const MAGIC: u32 = u32::from_le_bytes(*b"ThCp");
const VERSION: u16 = 1;
/// Bytes of a header that are zero.
const HEADER_SPARE: Range<usize> = 50..60;
/// Bytes of a row that are zero.
const ROW_SPARE: Range<usize> = 32..36;
const WRITING_NAME: &str = "writing.tmp";

/// The place of a row: part of its checksum.
#[derive(Debug, Clone, Copy)]
struct RowSeed {
    store: u64,
    file: u64,
    number: u32,
}

impl RowSeed {
    fn bytes(self) -> [u8; 20] {
        let mut seed = [0; 20];
        put(&mut seed, 0, &self.store.to_le_bytes());
        put(&mut seed, 8, &self.file.to_le_bytes());
        put(&mut seed, 16, &self.number.to_le_bytes());
        seed
    }
}

/// A checkpoint to write.
#[derive(Debug)]
pub(crate) struct CheckpointTask {
    pub(crate) store: u64,
    pub(crate) dir: PathBuf,
    pub(crate) group: GroupId,
    pub(crate) index: EntryIndex,
    /// The term of that entry in a replicated group; else 0.
    pub(crate) term: u64,
    /// How many snapshots were installed in the group.
    pub(crate) installs: u16,
    pub(crate) header: Vec<u8>,
    pub(crate) rows: CheckpointRows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    group: u16,
    index: u64,
    row_count: u64,
    payload_bytes: u64,
    owner_bytes: u32,
    owner_crc: u32,
    term: u64,
    installs: u16,
}

impl Header {
    fn encode(&self, store: u64) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &VERSION.to_le_bytes());
        put(&mut out, 6, &self.group.to_le_bytes());
        put(&mut out, 8, &self.index.to_le_bytes());
        put(&mut out, 16, &self.row_count.to_le_bytes());
        put(&mut out, 24, &self.payload_bytes.to_le_bytes());
        put(&mut out, 32, &self.owner_bytes.to_le_bytes());
        put(&mut out, 36, &self.owner_crc.to_le_bytes());
        put(&mut out, 40, &self.term.to_le_bytes());
        put(&mut out, 48, &self.installs.to_le_bytes());
        seal_header(&mut out, &store.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], store: u64) -> Option<Unsealed<Self>> {
        unseal(bytes, &store.to_le_bytes(), Self::decode_fields)
    }

    fn decode_fields(bytes: &[u8]) -> Option<Self> {
        let is_ours = u32_at(bytes, 0) == MAGIC && u16_at(bytes, 4) == VERSION;
        let is_possible = u64_at(bytes, 8) <= NUMBER_MAX && is_spare(bytes, HEADER_SPARE);
        (is_ours && is_possible).then(|| Self {
            group: u16_at(bytes, 6),
            index: u64_at(bytes, 8),
            row_count: u64_at(bytes, 16),
            payload_bytes: u64_at(bytes, 24),
            owner_bytes: u32_at(bytes, 32),
            owner_crc: u32_at(bytes, 36),
            term: u64_at(bytes, 40),
            installs: u16_at(bytes, 48),
        })
    }

    fn newer_in(bytes: &[u8], store: u64) -> Option<NewerVersion> {
        if u32_at(bytes, 0) != MAGIC {
            return None;
        }
        newer_in(bytes, &store.to_le_bytes(), (Some(VERSION), HEADER_SPARE))
    }

    fn rows_position(&self) -> usize {
        HEADER_BYTES + self.owner_bytes as usize
    }

    /// Length of the whole file, `None` if the numbers make no sense.
    fn file_bytes(&self) -> Option<u64> {
        let rows = self.row_count.checked_mul(ROW_BYTES as u64)?;
        let ends = 2 * self.rows_position() as u64;
        ends.checked_add(rows)?.checked_add(self.payload_bytes)
    }
}

/// The whole file of a checkpoint without rows.
pub(crate) fn empty_checkpoint(
    store: u64,
    (group, index, term): (GroupId, EntryIndex, Term),
    header: Vec<u8>,
) -> Vec<u8> {
    let (term, rows, dir) = (term.get(), CheckpointRows::new(), PathBuf::new());
    encode(&CheckpointTask { store, dir, group, index, term, installs: 0, header, rows })
}

/// The whole file of a checkpoint.
fn encode(task: &CheckpointTask) -> Vec<u8> {
    let rows = task.rows.sorted();
    let header = Header {
        group: task.group.get(),
        index: task.index.get(),
        row_count: rows.len() as u64,
        payload_bytes: task.rows.bytes(),
        owner_bytes: u32::try_from(task.header.len()).expect("an owner's header is small"),
        owner_crc: crc32c::crc32c(&task.header),
        term: task.term,
        installs: task.installs,
    };
    let encoded = header.encode(task.store);
    let mut out = Vec::with_capacity(usize::try_from(task.bytes()).expect("it fits memory"));
    out.extend_from_slice(&encoded);
    out.extend_from_slice(&task.header);
    let mut position = 0;
    for (number, row) in (0..).zip(&rows) {
        let seed = RowSeed { store: task.store, file: task.index.get(), number };
        out.extend_from_slice(&encode_row(row, position, seed));
        position += row.bytes.len() as u64;
    }
    rows.iter().for_each(|row| out.extend_from_slice(row.bytes));
    out.extend_from_slice(&task.header);
    out.extend_from_slice(&encoded);
    out
}

fn encode_row(row: &CheckpointRow<'_>, position: u64, seed: RowSeed) -> [u8; ROW_BYTES] {
    let mut out = [0; ROW_BYTES];
    put(&mut out, 0, &row.stream.get().to_le_bytes());
    put(&mut out, 8, &row.path_hash.get().to_le_bytes());
    put(&mut out, 16, &position.to_le_bytes());
    let length = u32::try_from(row.bytes.len()).expect("a stream's row is below 4 GiB");
    put(&mut out, 24, &length.to_le_bytes());
    put(&mut out, 28, &crc32c::crc32c(row.bytes).to_le_bytes());
    seal_header(&mut out, &seed.bytes());
    out
}

impl CheckpointTask {
    /// Length of the file that it writes.
    pub(crate) fn bytes(&self) -> u64 {
        let ends = 2 * (HEADER_BYTES + self.header.len());
        (ends + self.rows.len() * ROW_BYTES) as u64 + self.rows.bytes()
    }

    /// Makes the checkpoint durable, then removes older ones.
    ///
    /// # Errors
    /// Any error of the underlying disk; the newest durable checkpoint is still there then. What was written is gone if
    /// it is not durable: a full disk has no room for it beside the next try.
    pub(crate) fn run(&self, disk: &dyn Disk) -> io::Result<()> {
        let named = checkpoint_path(&self.dir, self.index.get());
        // An earlier try may have made it durable, and older ones may be gone.
        let before = list_checkpoints(disk, &self.dir)?;
        let is_there = before.iter().any(|(index, _)| *index == self.index.get());
        if let Err(error) = self.publish(disk, &named) {
            // Its own error is the one to report.
            let _ = remove_if_there(disk, &self.dir.join(WRITING_NAME));
            if !is_there {
                let _ = remove_if_there(disk, &named);
            }
            return Err(error);
        }
        self.remove_older(disk)
    }

    /// Removes the checkpoints that this one stands for, now that it is durable.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn remove_older(&self, disk: &dyn Disk) -> io::Result<()> {
        for (index, path) in list_checkpoints(disk, &self.dir)? {
            if index < self.index.get() {
                disk.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Makes the checkpoint durable under its name.
    ///
    /// # Errors
    /// Any error of the underlying disk. It may have its name then.
    pub(crate) fn publish(&self, disk: &dyn Disk, named: &Path) -> io::Result<()> {
        let writing = self.dir.join(WRITING_NAME);
        remove_if_there(disk, &writing)?;
        let file = disk.create(&writing)?;
        Pace::default().write(&*file, &encode(self), 0)?;
        file.sync_all()?;
        disk.rename(&writing, named)?;
        disk.sync_dir(&self.dir)
    }
}

/// The file of a checkpoint in its group's directory.
pub(crate) fn checkpoint_path(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("{index:016x}.ckpt"))
}

fn list_checkpoints(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let names = disk.list(dir)?;
    let parsed = names.iter().filter_map(|name| {
        let digits = name.strip_suffix(".ckpt")?;
        let index = u64::from_str_radix(digits, 16).ok().filter(|index| *index <= NUMBER_MAX)?;
        Some((index, dir.join(name)))
    });
    Ok(parsed.collect())
}

/// A checkpoint read back.
#[derive(Debug, Default)]
pub(crate) struct LoadedCheckpoint {
    pub(crate) path: PathBuf,
    pub(crate) index: EntryIndex,
    /// The term of that entry, if the group was replicated; else 0.
    pub(crate) term: u64,
    pub(crate) group: u16,
    /// How many snapshots were installed in the group.
    pub(crate) installs: u16,
    pub(crate) header: Vec<u8>,
    bytes: Vec<u8>,
    rows: Vec<(StreamId, PathHash, std::ops::Range<usize>)>,
}

impl LoadedCheckpoint {
    /// Length of its file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = CheckpointRow<'_>> {
        self.rows.iter().map(|(stream, path_hash, range)| CheckpointRow {
            stream: *stream,
            path_hash: *path_hash,
            bytes: &self.bytes[range.clone()],
        })
    }
}

/// A checkpoint file that somebody else made, or that goes to somebody else.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// The directory that its checksums are seeded with.
    store: u64,
}

impl CheckpointFile {
    /// `None` if there is none.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn open(disk: &dyn Disk, path: PathBuf, store: u64) -> io::Result<Option<Self>> {
        match disk.open(&path) {
            Ok(file) => Ok(Some(Self { path, file, store })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All that is in it; `None` if something is lost.
    ///
    /// # Errors
    /// Any error of the underlying disk. A `NewerPlace` if a newer version wrote it.
    pub(crate) fn load(&self) -> io::Result<Option<LoadedCheckpoint>> {
        let length = usize::try_from(self.file.len()?).expect("a checkpoint fits memory");
        let mut bytes = vec![0; length];
        read_around(&*self.file, &mut bytes, 0)?;
        let damage = |kind, position: usize| Damage::at(kind, &self.path, position as u64);
        let mut damages = Vec::new();
        let loaded = decode((&self.path, bytes), self.store, &damage, &mut damages)?;
        let is_whole = damages.iter().all(|damage| damage.kind == DamageKind::HeaderRepaired);
        Ok(loaded.filter(|_| is_whole))
    }
}

/// What is in a group's checkpoint directory.
#[derive(Debug, Default)]
pub(crate) struct FoundCheckpoint {
    pub(crate) loaded: Option<LoadedCheckpoint>,
    /// The last entry that a checkpoint covers of which nothing can be read.
    pub(crate) unreadable: Option<u64>,
    pub(crate) damages: Vec<Damage>,
}

/// Reads the newest checkpoint whose header is intact.
///
/// # Errors
/// Any error of the underlying disk; damage is no error.
pub(crate) fn load_checkpoint(
    disk: &dyn Disk,
    dir: &Path,
    store: u64,
    group: GroupId,
) -> io::Result<FoundCheckpoint> {
    remove_unneeded(disk, &dir.join(WRITING_NAME))?;
    let mut found = FoundCheckpoint::default();
    let mut checkpoints = list_checkpoints(disk, dir)?;
    checkpoints.sort_unstable();
    for (index, path) in checkpoints.into_iter().rev() {
        let mut bytes = Vec::new();
        if let Some(file) = open_around(disk, &path)? {
            bytes.resize(usize::try_from(file.len()?).expect("a checkpoint fits memory"), 0);
            read_around(&*file, &mut bytes, 0)?;
        }
        let damage = |kind, position: usize| Damage {
            group: Some(group),
            ..Damage::at(kind, &path, position as u64)
        };
        match decode((&path, bytes), store, &damage, &mut found.damages)? {
            Some(loaded) => {
                found.loaded = Some(loaded);
                break;
            }
            None => {
                found.unreadable = found.unreadable.max(Some(index));
                found.damages.push(damage(DamageKind::CheckpointHeader, 0));
            }
        }
    }
    Ok(found)
}

/// # Errors
/// A `NewerPlace` if a newer version wrote it.
fn decode(
    (path, bytes): (&Path, Vec<u8>),
    store: u64,
    damage: &dyn Fn(DamageKind, usize) -> Damage,
    damages: &mut Vec<Damage>,
) -> io::Result<Option<LoadedCheckpoint>> {
    refuse_newer(path, &bytes, store)?;
    let Some((header, repaired_at, owner)) = decode_ends(&bytes, store) else { return Ok(None) };
    damages.extend(repaired_at.map(|at| damage(DamageKind::HeaderRepaired, at)));
    let rows_position = header.rows_position();
    let row_count = usize::try_from(header.row_count).expect("a checkpoint fits memory");
    let payload = rows_position + row_count * ROW_BYTES;
    let mut rows = Vec::new();
    for (number, row) in (0..).zip(bytes[rows_position..payload].chunks_exact(ROW_BYTES)) {
        let position = rows_position + number as usize * ROW_BYTES;
        let seed = RowSeed { store, file: header.index, number };
        let Some(row) = unseal(row, &seed.bytes(), Row::decode) else {
            if let Some(newer) = newer_in(row, &seed.bytes(), (None, ROW_SPARE)) {
                return Err(newer.at(path, position as u64).into());
            }
            damages.push(damage(DamageKind::CheckpointRow, position));
            continue;
        };
        if row.is_repaired {
            damages.push(damage(DamageKind::HeaderRepaired, position));
        }
        let row = row.value;
        let start = payload.saturating_add(row.position);
        let range = start..start.saturating_add(row.bytes);
        let row_bytes = bytes.get(range.clone());
        if row_bytes.is_some_and(|row_bytes| crc32c::crc32c(row_bytes) == row.crc) {
            rows.push((row.stream, row.path_hash, range));
        } else {
            let found = damage(DamageKind::CheckpointPayload, start);
            let (stream, path_hash) = (Some(row.stream), Some(row.path_hash));
            damages.push(Damage { stream, path_hash, ..found });
        }
    }
    let (path, index) = (path.to_owned(), EntryIndex::new(header.index));
    let Header { term, group, installs, .. } = header;
    let owner = LoadedCheckpoint { term, group, installs, header: owner, ..Default::default() };
    Ok(Some(LoadedCheckpoint { path, index, bytes, rows, ..owner }))
}

/// One row of the table, read back.
struct Row {
    stream: StreamId,
    path_hash: PathHash,
    /// Of the payload, from the first payload.
    position: usize,
    bytes: usize,
    crc: u32,
}

impl Row {
    fn decode(bytes: &[u8]) -> Option<Self> {
        if !is_spare(bytes, ROW_SPARE) {
            return None;
        }
        Some(Self {
            stream: StreamId::new(u64_at(bytes, 0)),
            path_hash: PathHash::new(u64_at(bytes, 8)),
            position: usize::try_from(u64_at(bytes, 16)).ok()?,
            bytes: u32_at(bytes, 24) as usize,
            crc: u32_at(bytes, 28),
        })
    }
}

/// # Errors
/// A `NewerPlace` if a newer version wrote one of the headers.
fn refuse_newer(path: &Path, bytes: &[u8], store: u64) -> io::Result<()> {
    let last = bytes.len().saturating_sub(HEADER_BYTES);
    for position in [0, last] {
        let header = bytes.get(position..position + HEADER_BYTES);
        if let Some(newer) = header.and_then(|header| Header::newer_in(header, store)) {
            return Err(newer.at(path, position as u64).into());
        }
    }
    Ok(())
}

/// The header and the owner's header, from the front or from the end of the file, and where the
/// header was repaired if neither copy is intact.
fn decode_ends(bytes: &[u8], store: u64) -> Option<(Header, Option<usize>, Vec<u8>)> {
    let back = bytes.len().checked_sub(HEADER_BYTES)?;
    let read = |position| {
        let header = Header::decode(&bytes[position..position + HEADER_BYTES], store)?;
        let fits = header.value.file_bytes() == Some(bytes.len() as u64);
        fits.then_some((header.value, header.is_repaired.then_some(position)))
    };
    let copies = [read(0), read(back)];
    let intact = copies.iter().flatten().find(|(_, repaired_at)| repaired_at.is_none());
    let &(header, repaired_at) = intact.or_else(|| copies.iter().flatten().next())?;
    let owner_bytes = header.owner_bytes as usize;
    let front = &bytes[HEADER_BYTES..HEADER_BYTES + owner_bytes];
    let copies = [front, &bytes[back - owner_bytes..back]];
    let owner = copies.into_iter().find(|owner| crc32c::crc32c(owner) == header.owner_crc)?;
    Some((header, repaired_at, owner.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{DiskOperation, MemoryDisk};

    fn task() -> CheckpointTask {
        let mut rows = CheckpointRows::new();
        rows.push(StreamId::new(3), PathHash::new(33), b"three");
        rows.push(StreamId::new(9), PathHash::new(99), b"nine");
        CheckpointTask {
            store: 77,
            dir: PathBuf::from("/c"),
            group: GroupId::new(2),
            index: EntryIndex::new(12),
            term: 0,
            installs: 0,
            header: b"owner".to_vec(),
            rows,
        }
    }

    fn written() -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new("/c")).unwrap();
        task().run(&disk).unwrap();
        disk
    }

    fn load(disk: &MemoryDisk) -> FoundCheckpoint {
        load_checkpoint(disk, Path::new("/c"), 77, GroupId::new(2)).unwrap()
    }

    #[test]
    fn the_bytes_of_a_checkpoint_never_change() {
        assert_eq!(encode(&task()), include_bytes!("../testdata/checkpoint.golden"));
    }

    #[test]
    fn the_bytes_of_a_replicated_groups_checkpoint_never_change() {
        let task = CheckpointTask { term: 0x0102_0304_0506_0708, ..task() };
        assert_eq!(encode(&task), include_bytes!("../testdata/checkpoint-term.golden"));
        let disk = written();
        CheckpointTask { index: EntryIndex::new(13), ..task }.run(&disk).unwrap();
        assert_eq!(load(&disk).loaded.unwrap().term, 0x0102_0304_0506_0708);
    }

    #[test]
    fn a_checkpoint_comes_back_and_replaces_older_ones() {
        let disk = written();
        let newer = CheckpointTask { index: EntryIndex::new(13), ..task() };
        newer.run(&disk).unwrap();
        assert_eq!(disk.paths().len(), 1);
        let loaded = load(&disk).loaded.unwrap();
        assert_eq!(loaded.index, EntryIndex::new(13));
        assert_eq!(loaded.header, b"owner");
        let rows: Vec<_> = loaded.rows().map(|row| (row.stream.get(), row.bytes)).collect();
        assert_eq!(rows, [(3, &b"three"[..]), (9, b"nine")]);
    }

    #[test]
    fn a_checkpoint_that_fails_leaves_nothing_and_the_older_one() {
        let fail: [fn(&MemoryDisk); 3] = [
            |disk| disk.fail_next_sync(1),
            |disk| disk.fail(DiskOperation::Rename, 0, Some(1)),
            |disk| disk.fail(DiskOperation::SyncDir, 0, Some(1)),
        ];
        for fail in fail {
            let disk = written();
            let before = (disk.paths(), disk.used_bytes());
            fail(&disk);
            let newer = CheckpointTask { index: EntryIndex::new(13), ..task() };
            assert!(newer.run(&disk).is_err());
            assert_eq!((disk.paths(), disk.used_bytes()), before);
            newer.run(&disk).unwrap();
            assert_eq!(load(&disk).loaded.unwrap().index, EntryIndex::new(13));
        }
    }

    /// A checkpoint that is durable stays, whatever happens to older ones and to later tries.
    #[test]
    fn an_older_checkpoint_that_cannot_be_removed_costs_nothing() {
        let disk = written();
        let newer = CheckpointTask { index: EntryIndex::new(13), ..task() };
        disk.fail(DiskOperation::Remove, 0, Some(1));
        assert!(newer.run(&disk).is_err());
        disk.fail(DiskOperation::SyncDir, 0, Some(1));
        assert!(newer.run(&disk).is_err());
        disk.remove(&task().dir.join("000000000000000c.ckpt")).unwrap();
        assert_eq!(load(&disk).loaded.unwrap().index, EntryIndex::new(13));
    }

    #[test]
    fn a_flipped_bit_costs_at_most_one_stream() {
        let length = encode(&task()).len() as u64;
        for bit in 0..length * 8 {
            let disk = written();
            disk.flip_bit(&disk.paths()[0], bit);
            let found = load(&disk);
            let loaded = found.loaded.expect("one header is intact");
            assert_eq!(loaded.header, b"owner");
            assert!(found.damages.len() <= 1);
            let lost = found.damages.iter().filter(|damage| damage.kind.may_hide_entries()).count();
            assert_eq!(loaded.rows().count(), 2 - lost, "bit {bit}");
        }
    }

    #[test]
    fn a_flipped_bit_of_a_row_or_of_both_headers_costs_nothing() {
        let length = encode(&task()).len() as u64;
        let rows_position = 64 + 5;
        for bits in [vec![rows_position * 8 + 3], vec![100, (length - 64) * 8 + 200]] {
            let disk = written();
            bits.iter().for_each(|&bit| disk.flip_bit(&disk.paths()[0], bit));
            let found = load(&disk);
            assert_eq!(found.loaded.unwrap().rows().count(), 2);
            let kinds: Vec<DamageKind> = found.damages.iter().map(|damage| damage.kind).collect();
            assert_eq!(kinds, [DamageKind::HeaderRepaired]);
        }
    }

    #[test]
    fn damage_of_a_row_is_reported_with_its_place() {
        let second = 64 + 5 + ROW_BYTES as u64;
        let disk = written();
        disk.flip_bit(&disk.paths()[0], second * 8);
        let damages = load(&disk).damages;
        let places: Vec<_> = damages.iter().map(|damage| (damage.group, damage.position)).collect();
        assert_eq!(places, [(Some(GroupId::new(2)), second)]);
    }

    /// Sets a byte that is zero, under a right checksum; what the start says.
    fn refused(part: Range<usize>, seed: &[u8], at: usize) -> String {
        let disk = written();
        let mut bytes = encode(&task())[part.clone()].to_vec();
        bytes[at] = 1;
        crate::codec::seal_bytes(&mut bytes, seed);
        let path = disk.paths()[0].clone();
        disk.open(&path).unwrap().write_at(&bytes, part.start as u64).unwrap();
        let loaded = load_checkpoint(&disk, Path::new("/c"), 77, GroupId::new(2));
        loaded.unwrap_err().to_string()
    }

    #[test]
    fn spare_bytes_that_a_newer_version_has_written_refuse_the_start() {
        let length = encode(&task()).len();
        let first_row = 64 + 5;
        let store = 77_u64.to_le_bytes();
        for at in HEADER_SPARE {
            for part in [0..HEADER_BYTES, length - HEADER_BYTES..length] {
                let said = refused(part.clone(), &store, at);
                assert!(said.contains(&format!("spare byte {at} of a header")), "{said}");
                assert!(said.contains(&format!("at byte {}", part.start)), "{said}");
            }
        }
        let seed = RowSeed { store: 77, file: 12, number: 0 };
        for at in ROW_SPARE {
            let said = refused(first_row..first_row + ROW_BYTES, &seed.bytes(), at);
            assert!(said.contains(&format!("at byte {first_row}")), "{said}");
        }
    }

    #[test]
    fn an_intact_header_of_another_kind_or_version_or_with_an_impossible_number_is_refused() {
        let intact = encode(&task());
        assert!(Header::decode(&intact[..HEADER_BYTES], 77).is_some());
        for (at, value) in [(0, b'x'), (4, 2), (15, 0xff)] {
            let mut bytes = *intact.first_chunk::<HEADER_BYTES>().unwrap();
            bytes[at] = value;
            seal_header(&mut bytes, &77_u64.to_le_bytes());
            assert_eq!(Header::decode(&bytes, 77), None, "changed at {at}");
        }
    }
}
