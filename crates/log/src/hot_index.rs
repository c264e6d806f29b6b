//! The appends of one group that only the WAL holds: those that come, and those that a seal has taken.
//!
//! # Why
//! A seal may move hundreds of thousands of appends. To copy their places for its job, and to take each out when the
//! chunk is there, took the loop 20 ms. So the index is handed over as it is. A job shares it, appends that come
//! meanwhile get a new one, and reads look into both. When the chunk is there, the old one is dropped by another job:
//! to free so many streams takes as long as the rest.
//!
//! # Invariants
//! - Of each stream, what a seal has taken lies before what has come since.
//! - While a job has the taken index it does not change. What is deleted meanwhile is taken off its totals at once, and
//!   out of it if the seal fails.

use crate::aim::{PlacedAppend, TimeAim};
use crate::hot::{HotAppend, HotStream};
use crate::id_map::hash_id;
use crate::options::FROM_MEMORY_MEAN_BYTES_MAX;
use crate::wal::segment::SegmentTable;
use model::{PartedTable, Placement, StreamId};
use std::sync::Arc;

/// How much is in an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HotTotals {
    pub(crate) streams: u64,
    pub(crate) appends: u64,
    pub(crate) bytes: u64,
}

impl HotTotals {
    /// Whether a seal takes them from memory.
    pub(crate) fn are_short(&self) -> bool {
        self.bytes <= self.appends * FROM_MEMORY_MEAN_BYTES_MAX
    }
}

/// Some streams with their appends.
#[derive(Debug, Default)]
pub(crate) struct HotStreams {
    table: PartedTable<(StreamId, HotStream)>,
    pub(crate) totals: HotTotals,
    /// Slots of the segments that have held an append of these.
    slots: Vec<u16>,
    /// A stream of these has record times.
    has_times: bool,
    /// Something may lie before data of its stream in a chunk: a chunk that held it, or the place from which it was to
    /// be sealed, is damaged. The last hot byte need not be the tail.
    has_old: bool,
}

/// All hot appends of a group.
#[derive(Debug, Default)]
pub(crate) struct HotIndex {
    pub(crate) open: HotStreams,
    taken: Option<Taken>,
    /// Sealed, and to be dropped elsewhere.
    spent: Option<Arc<HotStreams>>,
}

/// What a seal has taken.
#[derive(Debug)]
pub(crate) struct Taken {
    streams: Arc<HotStreams>,
    /// All entries up to here that have data are in it, or were sealed before.
    upto: u64,
    /// What is left of it.
    left: HotTotals,
    /// Streams, and the offsets before which they were dropped while a job had the index.
    late: Vec<(StreamId, u64)>,
    is_in_job: bool,
}

/// What a seal is about.
#[derive(Debug)]
pub(crate) struct Sealable {
    pub(crate) streams: Arc<HotStreams>,
    pub(crate) upto: u64,
    pub(crate) left: HotTotals,
}

impl HotTotals {
    fn plus(self, other: Self) -> Self {
        Self {
            streams: self.streams + other.streams,
            appends: self.appends + other.appends,
            bytes: self.bytes + other.bytes,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            streams: self.streams - other.streams,
            appends: self.appends - other.appends,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl HotStreams {
    fn get(&self, stream: StreamId) -> Option<&HotStream> {
        self.table.find(hash_id(stream.get()), |(id, _)| *id == stream).map(|(_, hot)| hot)
    }

    fn place(&mut self, placement: &Placement, append: HotAppend) {
        let stream = placement.stream;
        let slot = append.place().slot;
        if self.slots.last() != Some(&slot) {
            self.note_slot(slot);
        }
        self.totals.appends += 1;
        self.totals.bytes += append.bytes();
        self.has_times |= placement.marks.is_some();
        let hash = hash_id(stream.get());
        if let Some((_, hot)) = self.table.find_mut(hash, |(id, _)| *id == stream) {
            hot.push(placement, append);
            return;
        }
        self.totals.streams += 1;
        let hot = HotStream::new(placement, append);
        self.table.insert_unique(hash, (stream, hot), |(id, _)| hash_id(id.get()));
    }

    #[cold]
    fn note_slot(&mut self, slot: u16) {
        self.slots.retain(|known| *known != slot);
        self.slots.push(slot);
    }

    fn drop_before(&mut self, stream: StreamId, upto: u64) {
        let hash = hash_id(stream.get());
        let Some((_, hot)) = self.table.find_mut(hash, |(id, _)| *id == stream) else { return };
        let dropped = hot.drop_before(upto);
        self.totals.appends -= dropped.appends;
        self.totals.bytes -= dropped.bytes;
        if dropped.is_all {
            self.totals.streams -= 1;
            self.table.remove(hash, |(id, _)| *id == stream);
        }
        if self.totals.appends == 0 {
            // Segments that nothing is in may go.
            (self.has_old, self.has_times) = (false, false);
            self.slots.clear();
        }
    }

    /// What lies between two offsets of a stream.
    fn between(&self, stream: StreamId, from: u64, upto: u64) -> HotTotals {
        let Some(hot) = self.get(stream) else { return HotTotals::default() };
        let appends = hot.appends();
        let ends_by = |offset| appends.partition_point(|append| append.end() <= offset);
        let (first, after) = (ends_by(from), ends_by(upto));
        let within = appends.get(first..after).unwrap_or_default();
        HotTotals {
            streams: u64::from(!within.is_empty() && after == appends.len()),
            appends: within.len() as u64,
            bytes: within.iter().map(HotAppend::bytes).sum(),
        }
    }

    /// Slots of the segments that hold these appends.
    pub(crate) fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// The streams in order.
    pub(crate) fn sorted(&self) -> Vec<(StreamId, &HotStream)> {
        let mut streams: Vec<_> = self.table.iter().map(|(id, hot)| (*id, hot)).collect();
        streams.sort_unstable_by_key(|(id, _)| *id);
        streams
    }

    fn check(&self, slots: &SegmentTable) {
        let mut found = HotTotals { streams: self.table.len() as u64, ..HotTotals::default() };
        for (_, hot) in self.table.iter() {
            let (appends, bytes) = hot.check(slots);
            found = found.plus(HotTotals { streams: 0, appends, bytes });
            let is_known = |append: &HotAppend| self.slots.contains(&append.place().slot);
            assert!(hot.appends().iter().all(is_known), "a segment of hot appends is not known");
        }
        assert_eq!(found, self.totals, "hot totals");
    }
}

impl HotIndex {
    /// What is hot.
    pub(crate) fn totals(&self) -> HotTotals {
        self.open.totals.plus(self.left())
    }

    /// What is left of what a seal has taken.
    pub(crate) fn left(&self) -> HotTotals {
        self.taken.as_ref().map_or_else(HotTotals::default, |taken| taken.left)
    }

    /// Bytes that the next seal moves.
    pub(crate) fn next_bytes(&self) -> u64 {
        self.taken.as_ref().map_or(self.open.totals, |taken| taken.left).bytes
    }

    /// The last entry that may be in what a seal has taken.
    pub(crate) fn taken_upto(&self) -> Option<u64> {
        self.taken.as_ref().map(|taken| taken.upto)
    }

    /// Adds an append, which has a byte at least.
    pub(crate) fn place(&mut self, placement: &Placement, append: HotAppend) {
        self.open.place(placement, append);
    }

    /// Learns that the append that was placed last may lie before data of its stream in a chunk.
    pub(crate) fn set_old(&mut self) {
        self.open.has_old = self.open.totals.appends > 0;
    }

    /// Whether the last hot byte of a stream need not be its tail.
    pub(crate) fn has_old(&self) -> bool {
        self.open.has_old || self.taken.as_ref().is_some_and(|taken| taken.streams.has_old)
    }

    /// Whether a hot stream has record times.
    pub(crate) fn has_times(&self) -> bool {
        self.open.has_times || self.taken.as_ref().is_some_and(|taken| taken.streams.has_times)
    }

    fn taken_of(&self, stream: StreamId) -> Option<&HotStream> {
        self.taken.as_ref()?.streams.get(stream)
    }

    /// Offset after the last byte of a stream that was not dropped when the index was taken.
    pub(crate) fn end_of(&self, stream: StreamId) -> Option<u64> {
        let hot = self.open.get(stream).or_else(|| self.taken_of(stream))?;
        hot.appends().last().map(HotAppend::end)
    }

    /// The append that holds a byte: its stream, and its index there.
    pub(crate) fn find(&self, stream: StreamId, at: u64) -> Option<(&HotStream, usize)> {
        let find = |hot: &HotStream| hot.find(at);
        let open = self.open.get(stream);
        if let Some(found) = open.and_then(|hot| Some((hot, find(hot)?))) {
            return Some(found);
        }
        self.taken_of(stream).and_then(|hot| Some((hot, find(hot)?)))
    }

    /// The first append of a stream that begins behind a byte.
    pub(crate) fn first_after(&self, stream: StreamId, at: u64) -> Option<&HotAppend> {
        let both = [self.taken_of(stream), self.open.get(stream)];
        both.into_iter().flatten().find_map(|hot| {
            let appends = hot.appends();
            appends.get(appends.partition_point(|append| append.fields().start <= at))
        })
    }

    /// What a seal has taken of a stream, and what has come since.
    fn parts(&self, stream: StreamId) -> impl Iterator<Item = &HotStream> {
        [self.taken_of(stream), self.open.get(stream)].into_iter().flatten()
    }

    /// The append that holds a record.
    pub(crate) fn find_record(&self, stream: StreamId, number: u64) -> Option<PlacedAppend> {
        self.parts(stream).find_map(|hot| hot.find_record(number))
    }

    /// The first append behind `floor` that is at or after a time.
    pub(crate) fn find_time(
        &self,
        stream: StreamId,
        aim: TimeAim,
        floor: u64,
    ) -> Option<PlacedAppend> {
        self.parts(stream).find_map(|hot| hot.find_time(aim, floor))
    }

    /// Whether what chunks have of a stream is before a time, because what is hot begins before it.
    pub(crate) fn begins_before(&self, stream: StreamId, aim: TimeAim) -> bool {
        !self.has_old() && self.parts(stream).next().is_some_and(|hot| hot.begins_before(aim))
    }

    /// Drops what lies before `upto`; what lay before `from` was dropped earlier.
    pub(crate) fn drop_before(&mut self, stream: StreamId, (from, upto): (u64, u64)) {
        self.open.drop_before(stream, upto);
        if let Some(taken) = &mut self.taken {
            taken.drop_before(stream, (from, upto));
        }
        self.settle();
    }

    /// Lets go of what a seal had taken if nothing is left of it and no job has it.
    fn settle(&mut self) {
        let is_done = |taken: &mut Taken| !taken.is_in_job && taken.left == HotTotals::default();
        self.taken.take_if(is_done);
    }

    /// Takes everything for the next seal, unless something is taken.
    pub(crate) fn take(&mut self, applied: u64) -> &mut Taken {
        let open = &mut self.open;
        self.taken.get_or_insert_with(|| {
            let streams = Arc::new(std::mem::take(open));
            let left = streams.totals;
            Taken { streams, upto: applied, left, late: Vec::new(), is_in_job: false }
        })
    }

    /// Takes everything for a job that seals it. What was taken before comes first.
    pub(crate) fn begin_seal(&mut self, applied: u64) -> Sealable {
        let taken = self.take(applied);
        assert!(!taken.is_in_job, "one seal at a time");
        taken.is_in_job = true;
        Sealable { streams: Arc::clone(&taken.streams), upto: taken.upto, left: taken.left }
    }

    /// What was taken is in a chunk.
    pub(crate) fn finish_seal(&mut self) {
        let taken = self.taken.take().expect("a seal was begun");
        self.spent = Some(taken.streams);
    }

    /// The job has failed, and has nothing of the index any more.
    pub(crate) fn fail_seal(&mut self) {
        let taken = self.taken.as_mut().expect("a seal was begun");
        taken.is_in_job = false;
        for (stream, upto) in std::mem::take(&mut taken.late) {
            taken.drop_before(stream, (0, upto));
        }
        self.settle();
    }

    /// What is to be dropped where nobody waits for it.
    pub(crate) fn take_spent(&mut self) -> Option<Arc<HotStreams>> {
        self.spent.take()
    }

    /// Asserts that the totals add up, without a look at each append.
    pub(crate) fn check_totals(&self) {
        let is_sound = |totals: HotTotals| {
            (totals.appends == 0) == (totals.streams == 0) && totals.appends <= totals.bytes
        };
        assert!(is_sound(self.open.totals), "hot totals");
        assert_eq!(self.open.totals.streams, self.open.table.len() as u64, "hot streams");
        assert!(self.open.totals.appends > 0 || !self.open.has_old, "nothing is hot");
        if let Some(taken) = &self.taken {
            assert!(is_sound(taken.left), "totals of what a seal has taken");
            assert!(taken.is_in_job || taken.left == taken.streams.totals, "no seal has it");
            assert!(taken.is_in_job || taken.late.is_empty(), "no seal has it");
        }
    }

    /// Asserts that each append is in order and inside its segment, and that they add up.
    pub(crate) fn check(&self, slots: &SegmentTable) {
        self.open.check(slots);
        if let Some(taken) = &self.taken {
            taken.streams.check(slots);
        }
    }
}

impl Taken {
    fn drop_before(&mut self, stream: StreamId, (from, upto): (u64, u64)) {
        if self.is_in_job {
            let gone = self.streams.between(stream, from, upto);
            if gone.appends > 0 {
                self.left = self.left.minus(gone);
                self.late.push((stream, upto));
            }
            return;
        }
        let streams = Arc::get_mut(&mut self.streams).expect("no job has it");
        streams.drop_before(stream, upto);
        self.left = streams.totals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::HotFields;
    use model::{ByteOffset, Timestamp};

    fn append(start: u64) -> HotAppend {
        HotAppend::new(HotFields {
            start,
            length: 10,
            records: 1,
            at: Timestamp::new(1),
            slot: (start / 20) as u16,
            position: 4096,
            crc: 0,
            is_reported: false,
        })
    }

    fn place(index: &mut HotIndex, stream: u64, starts: impl IntoIterator<Item = u64>) {
        for start in starts {
            let placement = Placement {
                stream: StreamId::new(stream),
                start: ByteOffset::new(start),
                first_record: start / 10,
                record_count: 1,
                marks: None,
            };
            index.place(&placement, append(start));
        }
        index.check_totals();
    }

    fn totals(streams: u64, appends: u64) -> HotTotals {
        HotTotals { streams, appends, bytes: 10 * appends }
    }

    fn start_at(index: &HotIndex, stream: u64, at: u64) -> Option<u64> {
        let (hot, place) = index.find(StreamId::new(stream), at)?;
        Some(hot.appends()[place].fields().start)
    }

    #[test]
    fn what_a_seal_has_taken_is_found_with_what_comes_meanwhile() {
        let mut index = HotIndex::default();
        place(&mut index, 1, [0, 10, 20]);
        place(&mut index, 2, [0]);
        let seal = index.begin_seal(7);
        assert_eq!((seal.upto, seal.left, seal.streams.slots()), (7, totals(2, 4), &[1, 0][..]));
        place(&mut index, 1, [30, 40]);
        place(&mut index, 3, [0]);
        assert_eq!(index.totals(), totals(4, 7), "a stream counts in both");
        let starts: Vec<_> = (0..6).map(|number| start_at(&index, 1, number * 10 + 5)).collect();
        assert_eq!(starts, [Some(0), Some(10), Some(20), Some(30), Some(40), None]);
        let ends = [1, 2, 3, 4].map(|stream| index.end_of(StreamId::new(stream)));
        assert_eq!(ends, [Some(50), Some(10), Some(10), None]);
        let after = |at| index.first_after(StreamId::new(1), at).map(|it| it.fields().start);
        assert_eq!([after(5), after(20), after(40)], [Some(10), Some(30), None]);
        drop(seal);
        index.finish_seal();
        assert_eq!((index.totals(), start_at(&index, 1, 25)), (totals(2, 3), None));
        assert_eq!(index.take_spent().unwrap().totals, totals(2, 4));
    }

    #[test]
    fn what_is_dropped_during_a_seal_that_fails_is_not_sealed_by_the_next() {
        let mut index = HotIndex::default();
        (1..=3).for_each(|stream| place(&mut index, stream, [0, 10, 20]));
        let seal = index.begin_seal(7);
        place(&mut index, 1, [30]);
        index.drop_before(StreamId::new(1), (0, 10));
        index.drop_before(StreamId::new(1), (10, 25));
        index.drop_before(StreamId::new(2), (0, u64::MAX));
        index.check_totals();
        assert_eq!((index.left(), index.totals()), (totals(2, 4), totals(3, 5)));
        drop(seal);
        index.fail_seal();
        index.check_totals();
        index.drop_before(StreamId::new(3), (0, 10));
        let seal = index.begin_seal(8);
        let sealed: Vec<_> =
            seal.streams.sorted().iter().map(|(id, hot)| (id.get(), hot.appends().len())).collect();
        assert_eq!((seal.upto, seal.left), (7, totals(2, 3)));
        assert_eq!(sealed, [(1, 1), (3, 2)]);
    }

    #[test]
    fn a_seal_that_failed_and_of_which_nothing_is_left_is_gone() {
        let mut index = HotIndex::default();
        place(&mut index, 1, [0]);
        drop(index.begin_seal(7));
        index.fail_seal();
        index.drop_before(StreamId::new(1), (0, u64::MAX));
        assert_eq!(index.totals(), HotTotals::default());
        place(&mut index, 2, [0]);
        assert_eq!(index.begin_seal(9).upto, 9);
    }

    #[test]
    fn the_last_hot_byte_may_not_be_the_tail_until_what_is_old_is_sealed() {
        let mut index = HotIndex::default();
        place(&mut index, 1, [0]);
        index.set_old();
        drop(index.begin_seal(7));
        place(&mut index, 2, [0]);
        assert!(index.has_old());
        index.finish_seal();
        assert!(!index.has_old());
    }
}
