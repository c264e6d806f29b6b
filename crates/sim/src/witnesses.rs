//! Where the headers of the batches of a WAL are written, so that no fault destroys the last place.
//!
//! # What
//! The headers of a batch are in its first blocks. A copy is in its last block, if that has room, and a list of its
//! entries is in the batch that claims it durable. One lost block costs at most one of these places, and what is
//! lost must be named. Two lost blocks may cost all, and then nothing says what was there.
//!
//! # Format
//! `docs/format/wal.md`.

use env::{Disk, File, MemoryDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

const BLOCK_BYTES: u64 = 4096;

/// A block of a file.
pub(crate) type Block = (PathBuf, u64);

/// A batch, as its header says.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    path: PathBuf,
    position: u64,
    seq: u64,
    durable: u64,
    pub(crate) entry_count: u64,
    payload_bytes: u64,
    list_bytes: u64,
    /// Whether it has a list of the batch that it claims durable, and the power has not cut that.
    has_list: bool,
    /// Group and index of each entry.
    entries: Vec<(u16, u64)>,
}

/// Group and index of an entry, from its header.
fn entry(file: &dyn File, position: u64) -> Option<(u16, u64)> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, position).ok()?;
    let group = u16::from_le_bytes(header[52..54].try_into().expect("two"));
    Some((group, u64::from_le_bytes(header[..8].try_into().expect("eight"))))
}

/// Whether a list is there. Without a seed its checksum does not matter.
fn has_list(file: &dyn File, position: u64, (list_bytes, seed): (u64, Option<u32>)) -> bool {
    let mut list = vec![0; usize::try_from(list_bytes).expect("a list is short")];
    let is_read = file.read_exact_at(&mut list, position).is_ok();
    let Some((said, checksum)) = list.split_last_chunk() else { return false };
    let is_right = |seed| crc32c::crc32c_append(seed, said) == u32::from_le_bytes(*checksum);
    is_read && seed.is_none_or(is_right)
}

/// What the checksums of the lists of a WAL begin with: the id of the store in `FORMAT`, and the number of the WAL.
fn list_seed(disk: &MemoryDisk, segment: &Path) -> Option<u32> {
    let mut store = [0; 8];
    disk.open(Path::new("/data/FORMAT")).ok()?.read_exact_at(&mut store, 12).ok()?;
    let wal: u64 = segment.parent()?.file_name()?.to_str()?.parse().ok()?;
    Some(crc32c::crc32c_append(crc32c::crc32c(&store), &wal.to_le_bytes()))
}

impl Batch {
    fn read(file: &dyn File, path: &Path, (position, seed): (u64, Option<u32>)) -> Option<Self> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, position).ok()?;
        let short = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let segment = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        // What an earlier life of the segment has left is of another number.
        let is_here = header.starts_with(b"ThBa") && segment == Some(long(8));
        let entry_count = u64::from(short(44));
        let entries = (1..=entry_count).map_while(|number| entry(file, position + 64 * number));
        let (payload_bytes, list_bytes) = (u64::from(short(40)), u64::from(short(48)));
        let list_position = position + 64 * (1 + entry_count) + payload_bytes;
        is_here.then(|| Self {
            path: path.to_owned(),
            position,
            seq: long(16),
            durable: long(24),
            entry_count,
            payload_bytes,
            list_bytes,
            has_list: has_list(file, list_position, (list_bytes, seed)),
            entries: entries.collect(),
        })
    }

    fn headers_bytes(&self) -> u64 {
        64 * (1 + self.entry_count)
    }

    fn used_bytes(&self) -> u64 {
        self.headers_bytes() + self.payload_bytes + self.list_bytes
    }

    fn length(&self) -> u64 {
        self.used_bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// Its blocks.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        self.blocks_of(0..self.length())
    }

    fn blocks_of(&self, bytes: Range<u64>) -> Vec<Block> {
        let first = (self.position + bytes.start) / BLOCK_BYTES;
        let end = (self.position + bytes.end).div_ceil(BLOCK_BYTES);
        (first..end).map(|block| (self.path.clone(), block)).collect()
    }

    fn headers(&self) -> Vec<Block> {
        self.blocks_of(0..self.headers_bytes())
    }

    fn copy(&self) -> Option<Vec<Block>> {
        let has_room = self.length() - self.used_bytes() >= self.headers_bytes();
        has_room.then(|| self.blocks_of(self.length() - self.headers_bytes()..self.length()))
    }

    fn list(&self) -> Option<Vec<Block>> {
        let bytes = self.used_bytes() - self.list_bytes..self.used_bytes();
        self.has_list.then(|| self.blocks_of(bytes))
    }
}

/// The batches of a WAL.
#[derive(Debug)]
pub(crate) struct Witnesses {
    batches: Vec<Batch>,
}

impl Witnesses {
    /// Reads the WAL to which a segment belongs. `lists_count` says whether lists are taken for written as headers say.
    pub(crate) fn read(disk: &MemoryDisk, segment: &Path, lists_count: bool) -> Self {
        let mut batches = Vec::new();
        let seed = if lists_count { None } else { Some(list_seed(disk, segment).unwrap_or(0)) };
        let paths = disk.paths().into_iter().filter(|path| path.parent() == segment.parent());
        for path in paths {
            let Ok(file) = disk.open(&path) else { continue };
            let (mut at, length) = (0, file.len().unwrap_or(0));
            while at < length {
                let batch = Batch::read(&*file, &path, (at, seed));
                at += batch.as_ref().map_or(BLOCK_BYTES, Batch::length);
                batches.extend(batch);
            }
        }
        Self { batches }
    }

    /// The batch that claims another one durable.
    fn claimer(&self, of: &Batch) -> Option<&Batch> {
        self.batches.iter().rev().find(|batch| batch.durable == of.seq)
    }

    /// The last batch with entries that another one claims durable.
    pub(crate) fn last_claimed(&self) -> Option<&Batch> {
        let is_claimed = |batch: &&Batch| batch.entry_count > 0 && self.claimer(batch).is_some();
        self.batches.iter().rev().find(is_claimed)
    }

    /// Whether a block is of a batch that nothing claims durable: its loss looks like a torn write.
    pub(crate) fn is_unclaimed(&self, block: &Block) -> bool {
        let of = self.batches.iter().find(|batch| batch.blocks().contains(block));
        of.is_some_and(|batch| self.claimer(batch).is_none())
    }

    /// Whether each group with entries in a segment has a later entry in another one: so what is lost with the
    /// segment is missed. No segment without entries is.
    pub(crate) fn is_missed(&self, segment: &Path) -> bool {
        let last = |is_here: bool| {
            let batches = self.batches.iter().filter(|batch| (batch.path == segment) == is_here);
            let mut last = BTreeMap::new();
            for (group, index) in batches.flat_map(|batch| &batch.entries) {
                let last: &mut u64 = last.entry(*group).or_default();
                *last = (*last).max(*index);
            }
            last
        };
        let (here, elsewhere) = (last(true), last(false));
        let is_later = |(group, last): (&u16, &u64)| elsewhere.get(group) > Some(last);
        !here.is_empty() && here.iter().all(is_later)
    }

    /// Whether the headers of a batch are nowhere any more if this block is lost, too.
    pub(crate) fn is_last(&self, block: &Block, lost: &BTreeSet<Block>) -> bool {
        let is_known = self.batches.iter().any(|batch| batch.blocks().contains(block));
        if !is_known && lost.iter().any(|(path, _)| *path == block.0) {
            return true;
        }
        let keeps = |place: &Vec<Block>| place.iter().all(|at| at != block && !lost.contains(at));
        let is_hit = |place: &Vec<Block>| place.contains(block);
        self.batches.iter().any(|batch| {
            let list = self.claimer(batch).and_then(Batch::list);
            let places = [Some(batch.headers()), batch.copy(), list];
            let places: Vec<_> = places.into_iter().flatten().collect();
            let is_listed_lost = batch.list().as_ref().is_some_and(is_hit)
                && self.batches.iter().all(|other| other.seq != batch.durable);
            (places.iter().any(is_hit) && !places.iter().any(keeps)) || is_listed_lost
        })
    }
}
