//! The chunks of one group: what in them is dead, and which to merge.
//!
//! # Invariants
//! - `dead_bytes <= data bytes` of each chunk.
//! - A damaged chunk is not merged, and no merge goes across it: it might be repaired, and would be replaced.

use crate::chunk::count::{CountDone, CountTask};
use crate::chunk::file::{ChunkFile, PageDamage};
use crate::chunk::floors::{Floors, FloorsThen, GONE};
use crate::chunk::held::HeldChunks;
use crate::chunk::list::ChunkList;
use crate::chunk::merge_plan::{Neighbours, is_small};
use crate::damage::{Damage, DamageKind};
use crate::id_map::IdMap;
use crate::options::LogOptions;
use model::GroupId;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The chunks of one group.
#[derive(Debug, Default)]
pub(crate) struct ChunkSet {
    /// Shared with lookups on other threads.
    list: Arc<ChunkList>,
    /// By chunk number; none where nothing is dead.
    dead: IdMap<u64, u64>,
    /// Bytes of data in all chunks, and how many of them are dead.
    data_bytes: u64,
    all_dead_bytes: u64,
    floors: Floors,
    seq_next: u64,
    /// The last entry that a chunk covers.
    covered: u64,
    pub(crate) held: HeldChunks,
    /// Small chunks whose merge waits for a quiet log.
    waiting: usize,
}

/// Chunks to copy into one.
#[derive(Debug)]
pub(crate) struct MergePlan {
    pub(crate) sources: Vec<Arc<ChunkFile>>,
    pub(crate) floors: FloorsThen,
    /// Bytes of the sources that are alive.
    pub(crate) live_bytes: u64,
    /// Whether it gives back more space than it takes.
    pub(crate) saves: bool,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl ChunkSet {
    /// A set whose next chunk gets the number `seq_next`.
    pub(crate) fn new(seq_next: u64) -> Self {
        Self { seq_next, ..Self::default() }
    }

    /// Asserts what always holds: the order of chunks, their numbers, and how much of them is dead.
    pub(crate) fn check(&self) {
        let files = self.list.files();
        let order = |file: &Arc<ChunkFile>| (file.header.from, file.seq);
        assert!(files.is_sorted_by_key(order), "chunks are sorted by what they cover");
        for file in files {
            let (seq, header) = (file.seq, &file.header);
            assert!(seq < self.seq_next, "chunk {seq} has the number of a later one");
            assert!(header.from <= header.to, "chunk {seq} covers no range");
            let is_less = self.dead_bytes(file) <= header.data_bytes;
            assert!(is_less, "chunk {seq}: more dead than data");
        }
        let data_bytes: u64 = files.iter().map(|file| file.header.data_bytes).sum();
        let dead_bytes = self.dead.values().sum::<u64>();
        let kept = (self.data_bytes, self.all_dead_bytes);
        assert_eq!(kept, (data_bytes, dead_bytes), "bytes of all chunks, and dead ones");
    }

    /// A number that no chunk has had.
    pub(crate) fn take_seq(&mut self) -> u64 {
        self.seq_next += 1;
        self.seq_next - 1
    }

    /// The first of `count` numbers that no chunk has had.
    pub(crate) fn take_seqs(&mut self, count: u64) -> u64 {
        self.seq_next += count;
        self.seq_next - count
    }

    /// The chunks as they are now, and what is dead in them, for another thread.
    pub(crate) fn now(&mut self) -> (Arc<ChunkList>, FloorsThen) {
        (Arc::clone(&self.list), self.floors.now())
    }

    pub(crate) fn list(&self) -> &Arc<ChunkList> {
        &self.list
    }

    /// Adds a chunk of which so much is dead.
    pub(crate) fn add(&mut self, file: Arc<ChunkFile>, dead_bytes: u64) {
        self.note_dead(&file, dead_bytes);
        self.data_bytes += file.header.data_bytes;
        self.covered = self.covered.max(file.header.to);
        Arc::make_mut(&mut self.list).add(file);
    }

    /// Leaves chunks as they are from now on in which a merge has met damage.
    pub(crate) fn hold(&mut self, damages: &[Damage]) {
        for damage in damages {
            let files = self.list.files().iter();
            for file in files.filter(|file| file.path == damage.file) {
                match damage.kind {
                    DamageKind::ChunkRow => self.held.hold_rows(file.seq),
                    _ => self.held.hold_run(file.seq, self.live_bytes(file)),
                }
            }
        }
    }

    /// Drops chunks that a merge has replaced, and learns which rows of streams that are gone it left out.
    pub(crate) fn replace(&mut self, seqs: &[u64], left_out: &[(u64, u32)]) {
        let gone = Arc::make_mut(&mut self.list).remove(seqs);
        for file in gone {
            self.data_bytes -= file.header.data_bytes;
            self.all_dead_bytes -= self.dead.remove(&file.seq).unwrap_or(0);
            self.held.forget(file.seq);
        }
        for &(stream, rows) in left_out {
            self.floors.note_left_out(stream, rows);
        }
    }

    /// The last entry that a chunk covers.
    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    /// Where what is kept of a stream begins; [`GONE`] if nothing is.
    pub(crate) fn floor(&self, stream: u64) -> u64 {
        self.floors.of(stream)
    }

    /// Marks everything of a stream before `floor` as dead.
    pub(crate) fn trim(&mut self, stream: u64, floor: u64) {
        self.floors.raise(stream, floor);
    }

    /// Marks everything of a stream as dead.
    pub(crate) fn forget(&mut self, stream: u64) {
        self.floors.raise(stream, GONE);
    }

    /// Begins again with these floors, behind a snapshot. A stream that was gone may be there again. So what is dead is counted
    /// once more.
    pub(crate) fn begin_behind(&mut self, floors: impl IntoIterator<Item = (u64, u64)>) {
        (self.dead, self.all_dead_bytes) = Default::default();
        self.floors = Floors::default();
        floors.into_iter().for_each(|(stream, floor)| self.floors.raise(stream, floor));
    }

    /// Learns at the start what is dead, by a look at all rows: `floor_of` says where a stream begins. Returns what
    /// is damaged in pages of rows.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn restore_floors(
        &mut self,
        mut floor_of: impl FnMut(u64) -> u64,
    ) -> io::Result<Vec<(Arc<ChunkFile>, PageDamage)>> {
        let mut known: IdMap<u64, u64> = IdMap::default();
        let (mut damages, mut dead) = (Vec::new(), Vec::new());
        for file in self.list.files() {
            let mut dead_bytes = 0;
            let found = file.check_rows(|row| {
                let floor = *known.entry(row.stream).or_insert_with(|| floor_of(row.stream));
                if floor > 0 {
                    self.floors.restore(row.stream, floor, 1);
                    dead_bytes += row.dead_bytes(floor);
                }
            })?;
            dead.push((Arc::clone(file), dead_bytes));
            damages.extend(found.into_iter().map(|damage| (Arc::clone(file), damage)));
        }
        dead.iter().for_each(|(file, bytes)| self.note_dead(file, *bytes));
        Ok(damages)
    }

    /// What is to be counted, if anything.
    pub(crate) fn start_count(&mut self, group: GroupId) -> Option<CountTask> {
        if !self.floors.has_rises() {
            return None;
        }
        let (chunks, rises) = (Arc::clone(&self.list), self.floors.take_rises());
        if chunks.files().is_empty() {
            // Nothing to look at, on any thread.
            let gone = rises.iter().filter(|rise| rise.to == GONE);
            gone.for_each(|rise| self.floors.note_gone_rows(rise.stream, 0));
            return None;
        }
        Some(CountTask { group, chunks, rises })
    }

    /// Takes what was counted; `None` if it could not be. True if a chunk is now mostly dead.
    pub(crate) fn finish_count(&mut self, task: CountTask, done: Option<CountDone>) -> bool {
        let Some(done) = done else {
            self.floors.give_back(task.rises);
            return false;
        };
        let mut is_wasteful = false;
        // No chunk has come or gone since: both are in the same order.
        let mut counted = done.dead.into_iter().peekable();
        for file in Arc::clone(&self.list).files() {
            if let Some((_, bytes)) = counted.next_if(|(seq, _)| *seq == file.seq) {
                // A merge that came before the count has seen the floor, too.
                self.note_dead(file, bytes.min(self.live_bytes(file)));
                is_wasteful |= self.is_wasteful(file);
            }
        }
        for (stream, rows) in done.gone_rows {
            self.floors.note_gone_rows(stream, rows);
        }
        is_wasteful
    }

    /// No merge has the floors any more.
    pub(crate) fn settle(&mut self) {
        self.floors.settle();
    }

    /// More bytes of a chunk have died.
    fn note_dead(&mut self, file: &ChunkFile, bytes: u64) {
        if bytes > 0 {
            *self.dead.entry(file.seq).or_default() += bytes;
            self.all_dead_bytes += bytes;
        }
    }

    fn dead_bytes(&self, file: &ChunkFile) -> u64 {
        self.dead.get(&file.seq).copied().unwrap_or(0)
    }

    fn live_bytes(&self, file: &ChunkFile) -> u64 {
        file.header.data_bytes - self.dead_bytes(file)
    }

    /// More than half of it is dead.
    fn is_wasteful(&self, file: &ChunkFile) -> bool {
        self.dead_bytes(file) * 2 > file.header.data_bytes
    }

    /// The chunks that are mostly dead and may be copied, with their places.
    pub(crate) fn wasteful(&self) -> impl Iterator<Item = (usize, &Arc<ChunkFile>)> {
        let may_copy = |file: &ChunkFile| self.held.may_copy(file.seq, self.live_bytes(file));
        let files = self.list.files().iter().enumerate();
        files.filter(move |(_, file)| self.is_wasteful(file) && may_copy(file))
    }

    /// Chunks that are better copied: one that is mostly dead, or small neighbours. These wait while there are fewer than
    /// `small_min` small chunks.
    pub(crate) fn plan_merge(
        &mut self,
        options: &LogOptions,
        small_min: usize,
    ) -> Option<MergePlan> {
        self.waiting = 0;
        // The cheapest first: on a full disk it makes room for the next.
        let wasteful = self.wasteful().min_by_key(|(_, file)| self.live_bytes(file));
        if let Some((index, _)) = wasteful {
            return Some(self.plan(index..index + 1));
        }
        let range = self.neighbours(options)?;
        let small = self.list.files().iter().filter(|file| is_small(file, options));
        let small = small.take(small_min).count();
        if small < small_min {
            self.waiting = small;
            return None;
        }
        Some(self.plan(range))
    }

    /// Small chunks whose merge waits.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Neighbours that are better one chunk.
    fn neighbours(&self, options: &LogOptions) -> Option<Range<usize>> {
        let files = self.list.files();
        self.held.neighbourhoods(files).into_iter().find_map(|of| {
            let merge = Neighbours { files: &files[of.clone()], options }.merge()?;
            Some(of.start + merge.start..of.start + merge.end)
        })
    }

    /// The copy of one chunk, whatever is dead or damaged in it.
    pub(crate) fn plan_copy(&mut self, file: &Path) -> Option<MergePlan> {
        let place = self.list.files().iter().position(|chunk| chunk.path == file)?;
        Some(self.plan(place..place + 1))
    }

    fn plan(&mut self, range: Range<usize>) -> MergePlan {
        let floors = self.floors.now();
        let (from, to) = self.range_of_merge(&range);
        let files = &self.list.files()[range];
        MergePlan {
            sources: files.to_vec(),
            floors,
            live_bytes: files.iter().map(|file| self.live_bytes(file)).sum(),
            saves: files.iter().any(|file| self.is_wasteful(file)),
            from,
            to,
        }
    }

    /// The entries that the copy of these chunks names. A start drops each older chunk that lies within them. Where one
    /// does that is not copied, the copy names none: a snapshot has come beside what was sealed meanwhile.
    fn range_of_merge(&self, range: &Range<usize>) -> (u64, u64) {
        let files = self.list.files();
        let headers = || files[range.clone()].iter().map(|file| file.header);
        let from = headers().map(|header| header.from).min().expect("a plan has a chunk");
        let to = headers().map(|header| header.to).max().expect("a plan has a chunk");
        let mut others = files[..range.start].iter().chain(&files[range.end..]);
        let is_hidden = others.any(|file| {
            let other = &file.header;
            other.from < other.to && from <= other.from && other.to <= to
        });
        if is_hidden { (to, to) } else { (from, to) }
    }

    /// Number of chunks, bytes of data, and how many of these are dead.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        (self.list.files().len() as u64, self.data_bytes, self.all_dead_bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chunk::file::tests::{one_append, write};
    use env::MemoryDisk;

    /// A chunk of the entries from `from` on, with one append of `length` bytes of stream 1.
    pub(crate) fn chunk(from: u64, length: u64) -> Arc<ChunkFile> {
        write(&MemoryDisk::new(), from, &[one_append(1, from, length)])
    }

    #[test]
    fn chunks_stand_in_the_order_of_their_entries_however_they_come() {
        let mut set = ChunkSet::new(100);
        for from in [20, 0, 30, 10] {
            set.add(chunk(from, 10), 0);
        }
        let froms: Vec<u64> = set.list.files().iter().map(|file| file.header.from).collect();
        assert_eq!(froms, [0, 10, 20, 30]);
    }

    fn count(set: &mut ChunkSet) {
        let task = set.start_count(GroupId::new(3)).unwrap();
        let done = task.run().unwrap();
        set.finish_count(task, Some(done));
    }

    #[test]
    fn the_wasteful_chunk_with_the_least_live_data_is_copied_first() {
        let mut set = ChunkSet::new(10_000);
        set.add(chunk(0, 300), 0);
        set.add(chunk(1_000, 1_000), 0);
        set.trim(1, 180);
        set.trim(1, 1_900);
        count(&mut set);
        assert_eq!(set.totals(), (2, 1_300, 300 + 900));
        set.check();
        let plan = set.plan_merge(&LogOptions::default(), 0).unwrap();
        assert_eq!((plan.from, plan.to, plan.saves, plan.live_bytes), (0, 10, true, 0));
    }

    #[test]
    fn what_could_not_be_counted_is_counted_later() {
        let mut set = ChunkSet::new(100);
        set.add(chunk(0, 300), 0);
        set.trim(1, 100);
        let task = set.start_count(GroupId::new(3)).unwrap();
        assert!(set.start_count(GroupId::new(3)).is_none());
        set.trim(1, 150);
        set.finish_count(task, None);
        count(&mut set);
        assert_eq!(set.totals(), (1, 300, 150));
        assert!(set.start_count(GroupId::new(3)).is_none());
    }

    #[test]
    fn a_copy_names_no_entries_of_a_chunk_that_is_not_copied() {
        let range = |froms: &[u64], copied: Range<usize>| {
            let mut set = ChunkSet::new(100);
            froms.iter().for_each(|from| set.add(chunk(*from, 10), 0));
            set.range_of_merge(&copied)
        };
        assert_eq!(range(&[0, 10, 20], 0..2), (0, 20));
        assert_eq!(range(&[0, 10, 10, 20], 0..2), (20, 20), "the other one has the same range");
        assert_eq!(range(&[0, 10, 10, 20], 0..3), (0, 20));
    }

    #[test]
    fn without_chunks_there_is_nothing_to_count() {
        let mut set = ChunkSet::new(100);
        set.forget(1);
        set.trim(2, 30);
        assert!(set.start_count(GroupId::new(3)).is_none());
        assert_eq!((set.floor(1), set.floor(2)), (0, 30));
    }

    #[test]
    fn a_stream_that_is_gone_is_dead_everywhere_and_forgotten_with_its_last_row() {
        let mut set = ChunkSet::new(100);
        set.add(chunk(0, 10), 0);
        set.add(chunk(20, 10), 0);
        set.forget(1);
        set.forget(2);
        count(&mut set);
        assert_eq!((set.floor(1), set.floor(2)), (GONE, 0), "no chunk has a row of 2");
        assert_eq!(set.totals(), (2, 20, 20));
        set.replace(&[0], &[(1, 1)]);
        assert_eq!(set.floor(1), GONE);
        set.replace(&[20], &[(1, 1)]);
        assert_eq!((set.floor(1), set.totals()), (0, (0, 0, 0)));
    }
}
