//! A WAL segment file and what it pins.
//!
//! # Invariants
//! - Every block of a segment was allocated before the file gets its final name, so a batch never extends a file. They were
//!   written once, too, unless a write waited for the segment: so the sync of a batch seldom changes metadata.
//! - A segment's name holds its number; a recycled file gets a new number by rename, and batches of
//!   its former life carry the old one.
//!
//! # Format
//! `docs/format/wal.md`.

use crate::entry::DataPlace;
use crate::paced::Pace;
use crate::paths::{parse_numbered, remove_if_there};
use crate::read::ReadMode;
use crate::wal::batch::DurableBatch;
use crate::wal::read_cache::ReadCache;
use crate::wal::recent::{KeptBlocks, RecentRing, RecentStats, RecentView};
use crate::wal::recent_runs::RecentRuns;
use env::{Disk, File};
use std::cell::{RefCell, RefMut};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Name under which a segment is filled with zeroes.
pub(crate) const FILL_NAME: &str = "fill.tmp";

/// An open segment file. Shards share it; it is recycled when only its custodian holds it.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) seq: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) capacity: u64,
}

impl SegmentFile {
    /// The number of its WAL, if its directory has one.
    pub(crate) fn wal(&self) -> Option<u16> {
        self.path.parent()?.file_name()?.to_str()?.parse().ok()
    }
}

/// A segment of a WAL with the last index of each group in it.
#[derive(Debug, Clone)]
pub(crate) struct WalSegment {
    pub(crate) slot: u16,
    pub(crate) capacity: u64,
    /// By group; 0 where the group has no entry.
    pub(crate) last: Box<[u64]>,
}

impl WalSegment {
    /// The entries of a group from `from` on are dead here: later segments have others in their place.
    pub(crate) fn supersede(&mut self, group: u16, from: u64) {
        let last = &mut self.last[usize::from(group)];
        *last = (*last).min(from - 1);
    }
}

/// The directory of a WAL.
pub(crate) fn wal_dir(root: &Path, wal: u16) -> PathBuf {
    root.join("wal").join(format!("{wal:05}"))
}

/// The file of a segment in its WAL's directory.
pub(crate) fn segment_path(wal_dir: &Path, seq: u64) -> PathBuf {
    wal_dir.join(format!("{seq:016x}.wal"))
}

/// The number in a segment's file name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    parse_numbered(name, ".wal")
}

/// The name that says that a start has gone on without segment `seq`.
pub(crate) fn lost_name(seq: u64) -> String {
    format!("{seq:016x}.lost")
}

/// The number of the segment that a name of [`lost_name`] is about.
pub(crate) fn parse_lost_name(name: &str) -> Option<u64> {
    parse_numbered(name, ".lost").filter(|seq| lost_name(*seq) == name)
}

/// Writes down that the log continues without segment `seq`, which cannot be opened. The indexes of its entries are perhaps given
/// out again. So it may not come back.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn give_up_segment(disk: &dyn Disk, dir: &Path, seq: u64) -> io::Result<()> {
    drop(disk.create(&dir.join(lost_name(seq)))?);
    disk.sync_dir(dir)
}

/// Makes segment `seq` of `capacity` bytes, zero-filled and durable. Where it is awaited, the rest of it is only allocated.
///
/// # Errors
/// Any error of the underlying disk; what was written is removed then.
pub(crate) fn create_segment(
    disk: &dyn Disk,
    dir: &Path,
    seq: u64,
    capacity: u64,
    is_awaited: &AtomicBool,
) -> io::Result<SegmentFile> {
    let filling = dir.join(FILL_NAME);
    remove_if_there(disk, &filling)?;
    let file = disk.create(&filling)?;
    let filled = Pace::uncached().write_zeroes(&*file, capacity, is_awaited);
    let filled = filled.and_then(|()| file.sync_all());
    if let Err(error) = filled {
        // The space of a half-filled file is wanted back; the first error is the one to tell.
        let _ = disk.remove(&filling);
        return Err(error);
    }
    let path = segment_path(dir, seq);
    disk.rename(&filling, &path)?;
    disk.sync_dir(dir)?;
    Ok(SegmentFile { seq, path, file, capacity })
}

/// Gives a segment whose entries nobody needs the new number `seq`. None if the file has no name any more: an earlier
/// try gave it a number that another segment has taken since.
///
/// # Errors
/// Any error of the underlying disk; the file then has the old or the new name.
pub(crate) fn recycle_segment(
    disk: &dyn Disk,
    dir: &Path,
    old: &SegmentFile,
    seq: u64,
) -> io::Result<Option<SegmentFile>> {
    assert!(old.seq < seq, "segment numbers rise");
    let path = segment_path(dir, seq);
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let found = match disk.rename(&old.path, &path) {
        // An earlier try renamed it and could not sync the directory. Or one has removed its name, and what has this one
        // is a segment that was made and could not be named durably: so not `old.file`.
        Err(error) if is_missing(&error) => match disk.open(&path) {
            Err(error) if is_missing(&error) => None,
            opened => {
                let file = opened?;
                let capacity = file.len()?;
                Some((file, capacity))
            }
        },
        renamed => renamed.map(|()| Some((Arc::clone(&old.file), old.capacity)))?,
    };
    disk.sync_dir(dir)?;
    Ok(found.map(|(file, capacity)| SegmentFile { seq, path, file, capacity }))
}

/// A segment file that a shard has open, and what of it is in memory.
#[derive(Debug)]
struct OpenSegment {
    file: Arc<SegmentFile>,
    kept: Arc<KeptBlocks>,
}

/// The segment files that a shard has open, by a small number that index rows can hold, and their recent bytes.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    files: Vec<Option<OpenSegment>>,
    /// Files that have no name any more.
    unlinked: Vec<Arc<SegmentFile>>,
    recent: RecentRing,
    runs: RefCell<RecentRuns>,
    cache: RefCell<ReadCache>,
    /// The slot of the last durable batch: its segment is being written.
    written: Option<u16>,
    /// Shared by all shards of a log: some shard has released its files because it is closed, not
    /// because it needs them no more.
    is_closing: Arc<AtomicBool>,
}

impl Drop for SegmentTable {
    fn drop(&mut self) {
        // Before the files: a thread that sees one unshared then sees this too.
        self.is_closing.store(true, Ordering::Release);
    }
}

impl SegmentTable {
    /// A table without files. It keeps bytes in memory as these three say.
    pub(crate) fn new(
        is_closing: Arc<AtomicBool>,
        (recent, runs, cache): (RecentRing, RecentRuns, ReadCache),
    ) -> Self {
        Self {
            files: Vec::new(),
            unlinked: Vec::new(),
            recent,
            runs: RefCell::new(runs),
            cache: RefCell::new(cache),
            written: None,
            is_closing,
        }
    }

    /// Keeps `file` open under the returned number.
    ///
    /// # Panics
    /// If 65,536 segments are open: the WAL bound keeps them far fewer.
    pub(crate) fn insert(&mut self, file: Arc<SegmentFile>) -> u16 {
        let free = self.files.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.files.len());
        if slot == self.files.len() {
            self.files.push(None);
        }
        self.files[slot] = Some(OpenSegment { file, kept: Arc::default() });
        u16::try_from(slot).expect("a shard has fewer than 65,536 segments")
    }

    /// Keeps a durable batch in memory, if it is worth it. Whether something may be about to leave it now.
    #[inline]
    pub(crate) fn keep(&mut self, batch: &DurableBatch) -> bool {
        if self.written != Some(batch.place.slot) {
            self.written = Some(batch.place.slot);
            self.cache.get_mut().forget(batch.place.slot);
        }
        let slot = self.files[usize::from(batch.place.slot)].as_mut();
        let before = self.recent.newest();
        self.recent.keep(batch, &mut slot.expect("a batch's segment is open").kept);
        self.recent.newest() > before
    }

    /// The `length` bytes of an append, if they are in memory.
    ///
    /// # Panics
    /// If nothing is open under its slot. In debug builds, if they are not what was appended.
    pub(crate) fn recent(&self, place: DataPlace, length: u32) -> Option<&[u8]> {
        let slot = self.files[usize::from(place.slot)].as_ref();
        let kept = &slot.expect("an indexed segment is open").kept;
        let bytes = self.recent.get(kept, place.position, length)?;
        debug_assert_eq!(crc32c::crc32c(bytes), place.crc, "memory holds what was appended");
        Some(bytes)
    }

    /// What is in memory of these segments, for another thread.
    pub(crate) fn recent_view(&self, slots: &[u16]) -> RecentView {
        let kept = |slot: &u16| {
            let open = self.files[usize::from(*slot)].as_ref();
            (*slot, Arc::clone(&open.expect("an indexed segment is open").kept))
        };
        self.recent.view(slots.iter().map(kept).collect())
    }

    /// The number of the piece of memory that recent bytes fill now.
    pub(crate) fn newest_piece(&self) -> u64 {
        self.recent.newest()
    }

    /// Whether recent bytes of the piece with this number are about to leave memory, or have left it a moment ago.
    pub(crate) fn is_leaving(&self, piece: u64) -> bool {
        self.recent.is_leaving(piece)
    }

    /// Runs of recent bytes.
    pub(crate) fn runs(&self) -> RefMut<'_, RecentRuns> {
        self.runs.borrow_mut()
    }

    /// Gives the `length` bytes of an append to `take` if the cache of the log has them; whether it has and `take` says so.
    pub(crate) fn cached(
        &self,
        place: DataPlace,
        length: u32,
        take: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        self.cache.borrow_mut().find(place.slot, place.position, length).is_some_and(take)
    }

    /// Counts a read of the file for an append. If what lies around it is worth it, that is read into the cache: whether it was.
    pub(crate) fn read_around(&self, place: DataPlace, mode: ReadMode) -> bool {
        let mut cache = self.cache.borrow_mut();
        if self.written == Some(place.slot) || !cache.note_read(place.slot, place.position) {
            return false;
        }
        let segment = self.get(place.slot);
        cache.load((place.slot, place.position), (&*segment.file, segment.capacity), mode);
        true
    }

    /// Counts appends that are read from a file.
    pub(crate) fn note_recent_misses(&self, count: usize) {
        self.recent.note_misses(count as u64);
    }

    /// What is in memory, and how often it was found.
    pub(crate) fn recent_stats(&self) -> RecentStats {
        let (mut stats, runs) = (self.recent.stats(), self.runs.borrow());
        let cache = self.cache.borrow();
        stats.held_bytes += runs.held_bytes() + cache.held_bytes();
        stats.hits += cache.hits();
        stats.run_hits = runs.hits();
        stats
    }

    /// Asserts that no segment file is open under two numbers.
    pub(crate) fn check(&self) {
        self.recent.check();
        self.runs.borrow().check();
        self.cache.borrow().check();
        let files = self.files.iter().flatten();
        let mut paths: Vec<&PathBuf> = files.map(|open| &open.file.path).collect();
        let count = paths.len();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), count, "a segment is open under two numbers");
    }

    /// # Panics
    /// If nothing is open under `slot`.
    pub(crate) fn get(&self, slot: u16) -> &Arc<SegmentFile> {
        &self.files[usize::from(slot)].as_ref().expect("an indexed segment is open").file
    }

    pub(crate) fn remove(&mut self, slot: u16) -> Arc<SegmentFile> {
        self.cache.get_mut().forget(slot);
        self.files[usize::from(slot)].take().expect("an indexed segment is open").file
    }

    /// As [`SegmentTable::remove`], for a file that has no name any more. To close it gives back all its blocks, which takes
    /// many milliseconds: another thread does that.
    pub(crate) fn remove_unlinked(&mut self, slot: u16) {
        let file = self.remove(slot);
        self.unlinked.push(file);
    }

    /// Files without a name, to be closed elsewhere.
    pub(crate) fn take_unlinked(&mut self) -> Vec<Arc<SegmentFile>> {
        std::mem::take(&mut self.unlinked)
    }

    /// Whether neither another shard nor a job in flight uses the segment. Once a shard is closed
    /// nobody can tell any more.
    pub(crate) fn is_unshared(&self, slot: u16) -> bool {
        let is_alone = Arc::strong_count(self.get(slot)) == 1;
        fence(Ordering::Acquire);
        is_alone && !self.is_closing.load(Ordering::Acquire)
    }
}

#[cfg(test)]
impl SegmentTable {
    /// A table that keeps no recent bytes.
    pub(crate) fn forgetful(is_closing: Arc<AtomicBool>) -> Self {
        let runs = RecentRuns::new(Arc::new(env::MemoryDisk::new()), (0, 0));
        Self::new(is_closing, (RecentRing::new(0), runs, ReadCache::new(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{DiskOperation, MemoryDisk};

    static NOBODY_WAITS: AtomicBool = AtomicBool::new(false);

    /// A disk with the empty directory of a WAL.
    fn new_wal(number: u16) -> (MemoryDisk, PathBuf) {
        let (disk, dir) = (MemoryDisk::new(), wal_dir(Path::new("/d"), number));
        disk.create_dir_all(&dir).unwrap();
        (disk, dir)
    }

    #[test]
    fn a_segment_is_zero_filled_and_named_last() {
        let (disk, dir) = new_wal(2);
        let segment = create_segment(&disk, &dir, 0x1f, 8192, &NOBODY_WAITS).unwrap();
        assert_eq!(segment.path, Path::new("/d/wal/00002/000000000000001f.wal"));
        assert_eq!(parse_segment_name("000000000000001f.wal"), Some(0x1f));
        assert_eq!(segment.file.len().unwrap(), 8192);
        let recycled = recycle_segment(&disk, &dir, &segment, 0x20).unwrap().unwrap();
        assert_eq!(disk.paths(), [recycled.path]);
        // A try that could not sync the directory is repeated.
        assert!(recycle_segment(&disk, &dir, &segment, 0x20).unwrap().is_some());
        // Before the next try another segment may take the number.
        create_segment(&disk, &dir, 0x20, 4096, &NOBODY_WAITS).unwrap();
        assert!(recycle_segment(&disk, &dir, &segment, 0x21).unwrap().is_none());
    }

    /// A name is neither durably given nor durably taken away, and both files are one segment to the next try.
    #[test]
    fn what_is_written_to_a_recycled_segment_is_in_the_file_of_its_name() {
        let (disk, dir) = new_wal(0);
        let old = create_segment(&disk, &dir, 1, 8192, &NOBODY_WAITS).unwrap();
        disk.fail(DiskOperation::SyncDir, 0, None);
        create_segment(&disk, &dir, 2, 4096, &NOBODY_WAITS).unwrap_err();
        disk.remove(&old.path).unwrap();
        disk.fail_nothing();
        let recycled = recycle_segment(&disk, &dir, &old, 2).unwrap().unwrap();
        recycled.file.write_at(b"acknowledged", 0).unwrap();
        recycled.file.sync_data().unwrap();
        let mut found = [0; 12];
        disk.open(&recycled.path).unwrap().read_exact_at(&mut found, 0).unwrap();
        assert_eq!((&found, recycled.capacity), (b"acknowledged", 4096));
    }

    #[test]
    fn a_full_disk_leaves_no_half_filled_segment() {
        let (disk, dir) = new_wal(0);
        disk.set_capacity(5000);
        for is_awaited in [false, true] {
            assert!(create_segment(&disk, &dir, 1, 8192, &AtomicBool::new(is_awaited)).is_err());
            assert_eq!(disk.used_bytes(), 0);
        }
    }

    #[test]
    fn what_was_read_around_an_append_goes_with_its_segment() {
        let (disk, dir) = new_wal(0);
        let segment = create_segment(&disk, &dir, 1, 8192, &NOBODY_WAITS).unwrap();
        let mut table = SegmentTable::forgetful(Arc::default());
        table.cache = RefCell::new(ReadCache::new(16 << 10));
        let slot = table.insert(Arc::new(segment));
        let place = DataPlace { slot, position: 100, crc: 0 };
        assert!(table.read_around(place, ReadMode::Inline));
        assert!(table.cached(place, 10, |bytes| bytes == [0; 10]));
        assert_eq!(table.recent_stats().held_bytes, 4096);
        table.remove(slot);
        assert_eq!(table.recent_stats().held_bytes, 0);
    }

    #[test]
    fn a_segment_that_a_closed_shard_held_is_not_free() {
        let (disk, dir) = new_wal(0);
        let segment = Arc::new(create_segment(&disk, &dir, 1, 8192, &NOBODY_WAITS).unwrap());
        let is_closing = Arc::default();
        let mut mine = SegmentTable::forgetful(Arc::clone(&is_closing));
        let mut theirs = SegmentTable::forgetful(is_closing);
        let slot = mine.insert(Arc::clone(&segment));
        let their_slot = theirs.insert(segment);
        assert!(!mine.is_unshared(slot));
        drop(theirs.remove(their_slot));
        assert!(mine.is_unshared(slot), "the other shard needs it no more");
        drop(theirs);
        assert!(!mine.is_unshared(slot), "the other shard may have needed others");
    }
}
