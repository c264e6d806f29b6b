//! The places of recent appends' data in the WAL.
//!
//! # Why
//! A hot read takes recent bytes from memory (`wal/recent`), and others from the WAL by `pread`. What is kept here is
//! 32 bytes per append, and nothing for a stream whose data is all in chunks.
//!
//! # Invariants
//! - Appends of a stream are sorted by start and do not overlap.
//! - An append is here or in a chunk, never in both.
//!
//! `hot_index` has the streams.

use crate::aim::{PlacedAppend, TimeAim};
use crate::entry::{AppendBounds, DataPlace, Entry};
use crate::options::COPY_BYTES;
use crate::read::ReadMode;
use crate::wal::segment::SegmentTable;
use env::File;
use model::{ByteOffset, Placement, TimeMarks, Timestamp};
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

const VERIFIED: u16 = 1 << 15;
const REPORTED: u16 = 1 << 14;
const AT_BITS: u32 = 46;

/// One append in the WAL, packed: there are millions of them. A job may read what the shard marks as checked.
#[derive(Debug)]
pub(crate) struct HotAppend {
    start: u64,
    at_low: u32,
    position: u32,
    length: u32,
    records: u32,
    crc: u32,
    slot: u16,
    /// High bits of the time, whether the bytes on disk have been checked, and whether their
    /// damage has been reported.
    at_high: AtomicU16,
}

const _: () = assert!(size_of::<HotAppend>() == 32);

impl Clone for HotAppend {
    fn clone(&self) -> Self {
        Self { at_high: AtomicU16::new(self.at_high.load(Relaxed)), ..*self }
    }
}

/// What a [`HotAppend`] holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HotFields {
    pub(crate) start: u64,
    pub(crate) length: u32,
    pub(crate) records: u32,
    pub(crate) at: Timestamp,
    pub(crate) slot: u16,
    pub(crate) position: u32,
    pub(crate) crc: u32,
    /// Recovery has reported that the bytes are damaged.
    pub(crate) is_reported: bool,
}

impl HotFields {
    /// Of an entry whose data belongs to a stream.
    pub(crate) fn of<B: AsRef<[u8]>>(
        entry: &Entry<B>,
        placement: &Placement,
        is_reported: bool,
    ) -> Self {
        Self {
            start: placement.start.get(),
            length: u32::try_from(entry.data.as_ref().len()).expect("bounded by append"),
            records: placement.record_count,
            at: entry.at,
            slot: entry.place.slot,
            position: entry.place.position,
            crc: entry.place.crc,
            is_reported,
        }
    }
}

impl HotAppend {
    /// Packs the fields. Times beyond the year 4199 are kept as that year.
    pub(crate) fn new(fields: HotFields) -> Self {
        let at = fields.at.get().min((1 << AT_BITS) - 1);
        let reported = if fields.is_reported { REPORTED } else { 0 };
        Self {
            start: fields.start,
            at_low: at as u32,
            position: fields.position,
            length: fields.length,
            records: fields.records,
            crc: fields.crc,
            slot: fields.slot,
            at_high: AtomicU16::new((at >> 32) as u16 | reported),
        }
    }

    pub(crate) fn fields(&self) -> HotFields {
        let at_high = u64::from(self.at_high.load(Relaxed) & !(VERIFIED | REPORTED));
        HotFields {
            start: self.start,
            length: self.length,
            records: self.records,
            at: Timestamp::new(at_high << 32 | u64::from(self.at_low)),
            slot: self.slot,
            position: self.position,
            crc: self.crc,
            is_reported: self.at_high.load(Relaxed) & REPORTED != 0,
        }
    }

    /// Where the bytes are in the WAL.
    pub(crate) fn place(&self) -> DataPlace {
        DataPlace { slot: self.slot, position: self.position, crc: self.crc }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    pub(crate) fn is_verified(&self) -> bool {
        self.at_high.load(Relaxed) & VERIFIED != 0
    }

    pub(crate) fn set_verified(&self) {
        // Only the owner writes: no change of others is lost.
        self.at_high.store(self.at_high.load(Relaxed) | VERIFIED, Relaxed);
    }

    /// Whether `other` is a copy of this one, wherever it was checked.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let place = |append: &Self| (append.start, append.length, append.slot, append.position);
        place(self) == place(other)
    }

    pub(crate) fn bounds(&self) -> AppendBounds {
        let fields = self.fields();
        AppendBounds {
            start: ByteOffset::new(fields.start),
            end: ByteOffset::new(self.end()),
            records: fields.records,
            at: fields.at,
        }
    }
}

/// The appends of one stream that are only in the WAL.
#[derive(Debug)]
pub(crate) struct HotStream {
    /// Number of the first append's first record.
    first_record: u64,
    appends: HotAppends,
    /// What few streams have.
    more: Option<Box<HotMore>>,
}

/// What most streams have not.
#[derive(Debug, Default)]
struct HotMore {
    /// Where appends do not follow each other, because a chunk has those between: start and first record.
    gaps: Vec<(u64, u64)>,
    /// Numbers of the first records of each [`NUMBERED_APPENDS`]th append, from the second on.
    numbers: Vec<u64>,
    /// The mark behind each append, but for `unmarked` in front, which came before the stream had record times.
    marks: Vec<u64>,
    /// The mark in front of the first of these.
    mark_before: u64,
    unmarked: usize,
}

/// Appends of a stream of which there may be twice the room.
const FEW_APPENDS: usize = 8;

/// Appends of which one has its record's number in the index. A lookup by number walks over as many.
const NUMBERED_APPENDS: usize = 1024;

/// Most streams have one append at a time. The map of streams holds it directly, without memory of its own
/// to allocate, to follow and to free.
#[derive(Debug)]
enum HotAppends {
    One(HotAppend),
    /// At least one.
    Many(Vec<HotAppend>),
}

/// An append with what lies in front of it in its stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedHot {
    pub(crate) first_record: u64,
    pub(crate) marks: Option<TimeMarks>,
    pub(crate) fields: HotFields,
}

impl HotStream {
    /// A stream with one append.
    pub(crate) fn new(placement: &Placement, append: HotAppend) -> Self {
        let first_record = placement.first_record;
        let mut hot = Self { first_record, appends: HotAppends::One(append), more: None };
        if let Some(marks) = placement.marks {
            hot.push_mark(0, marks);
        }
        hot
    }

    /// Each append, with its number.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = NumberedHot> {
        let mut next = self.first_record;
        self.appends().iter().enumerate().map(move |(index, append)| {
            let first_record = self.gap_at(append.start).unwrap_or(next);
            next = first_record + u64::from(append.records);
            NumberedHot { first_record, marks: self.marks_of(index), fields: append.fields() }
        })
    }

    fn gap_at(&self, start: u64) -> Option<u64> {
        let gaps = &self.more.as_ref()?.gaps;
        gaps.iter().find(|(gap, _)| *gap == start).map(|(_, record)| *record)
    }

    fn marks_of(&self, index: usize) -> Option<TimeMarks> {
        let more = self.more.as_ref()?;
        let place = index.checked_sub(more.unmarked)?;
        let upto = *more.marks.get(place)?;
        let before = place.checked_sub(1).map_or(more.mark_before, |before| more.marks[before]);
        Some(TimeMarks { before, upto })
    }

    /// Adds an append behind the others.
    ///
    /// # Panics
    /// If it overlaps the last one, or lacks the record time that others have: the state machine that placed it is
    /// broken.
    #[inline]
    pub(crate) fn push(&mut self, placement: &Placement, append: HotAppend) {
        let last = self.appends().last().expect("a hot stream has an append");
        assert!(last.end() <= append.start, "appends of a stream overlap");
        let has_gap = last.end() < append.start;
        let index = self.appends().len();
        if has_gap || index.is_multiple_of(NUMBERED_APPENDS) || self.more.is_some() {
            self.push_more((index, has_gap.then_some(append.start)), placement);
        } else if let Some(marks) = placement.marks {
            self.push_mark(index, marks);
        }
        match &mut self.appends {
            HotAppends::One(first) => {
                self.appends = HotAppends::Many(vec![first.clone(), append]);
            }
            HotAppends::Many(appends) => {
                // Twice as many would be a third of the memory of an index that is full.
                if appends.len() == appends.capacity() && appends.len() >= FEW_APPENDS {
                    appends.reserve_exact(appends.len() / 2);
                }
                appends.push(append);
            }
        }
    }

    #[cold]
    fn push_more(&mut self, (index, gap): (usize, Option<u64>), placement: &Placement) {
        let has_marks = self.more.as_ref().is_some_and(|more| !more.marks.is_empty());
        assert!(!has_marks || placement.marks.is_some(), "a stream keeps its record times");
        if let Some(marks) = placement.marks {
            self.push_mark(index, marks);
        }
        let more = self.more.get_or_insert_default();
        more.gaps.extend(gap.map(|start| (start, placement.first_record)));
        if index.is_multiple_of(NUMBERED_APPENDS) {
            more.numbers.push(placement.first_record);
        }
    }

    #[cold]
    fn push_mark(&mut self, index: usize, marks: TimeMarks) {
        let more = self.more.get_or_insert_default();
        if more.marks.is_empty() {
            (more.unmarked, more.mark_before) = (index, marks.before);
        }
        more.marks.push(marks.upto);
    }

    /// Asserts what always holds; how many appends there are, and their bytes.
    pub(crate) fn check(&self, slots: &SegmentTable) -> (u64, u64) {
        let appends = self.appends();
        assert!(!appends.is_empty(), "a hot stream has an append");
        let is_behind = |pair: &[HotAppend]| pair[0].end() <= pair[1].start;
        assert!(appends.windows(2).all(is_behind), "appends of a stream overlap");
        for append in appends {
            let end = u64::from(append.position) + u64::from(append.length);
            assert!(append.length > 0, "an append without bytes is not indexed");
            assert!(end <= slots.get(append.slot).capacity, "an append ends behind its segment");
        }
        self.check_more();
        let bytes = appends.iter().map(|append| u64::from(append.length)).sum();
        (appends.len() as u64, bytes)
    }

    fn check_more(&self) {
        let Some(more) = &self.more else { return };
        if !more.marks.is_empty() {
            let count = self.appends().len();
            assert_eq!(more.unmarked + more.marks.len(), count, "appends with record times");
            assert!(more.marks.is_sorted(), "the mark of a stream falls");
            assert!(more.mark_before <= more.marks[0], "the mark of a stream falls");
        }
        let each = self.numbered().step_by(NUMBERED_APPENDS).skip(1);
        let numbers: Vec<u64> = each.map(|append| append.first_record).collect();
        assert_eq!(more.numbers, numbers, "numbers of records");
    }

    pub(crate) fn appends(&self) -> &[HotAppend] {
        match &self.appends {
            HotAppends::One(append) => slice::from_ref(append),
            HotAppends::Many(appends) => appends,
        }
    }

    /// Index of the append that contains byte `at`.
    pub(crate) fn find(&self, at: u64) -> Option<usize> {
        let appends = self.appends();
        let after = appends.partition_point(|append| append.start <= at);
        let index = after.checked_sub(1)?;
        (at < appends[index].end()).then_some(index)
    }

    /// The append at `index`, with its number.
    pub(crate) fn numbered_at(&self, index: usize) -> PlacedAppend {
        let (mut at, mut first_record) = self.numbered_before(index / NUMBERED_APPENDS);
        let appends = self.appends();
        while at < index {
            first_record += u64::from(appends[at].records);
            at += 1;
            first_record = self.gap_at(appends[at].start).unwrap_or(first_record);
        }
        let mark = self.marks_of(index).map(|marks| marks.upto);
        PlacedAppend { bounds: appends[index].bounds(), first_record, mark }
    }

    /// The append whose number is kept, and the number of its first record.
    fn numbered_before(&self, block: usize) -> (usize, u64) {
        let number = |block: usize| self.more.as_ref().map(|more| more.numbers[block]);
        let kept = block.checked_sub(1).and_then(number);
        kept.map_or((0, self.first_record), |first| (block * NUMBERED_APPENDS, first))
    }

    /// The append that holds the record with this number.
    pub(crate) fn find_record(&self, number: u64) -> Option<PlacedAppend> {
        let numbers = self.more.as_ref().map_or(&[][..], |more| &more.numbers);
        let block = numbers.partition_point(|first| *first <= number);
        let (start, mut next) = self.numbered_before(block);
        for (index, append) in self.appends().iter().enumerate().skip(start) {
            let first = self.gap_at(append.start).unwrap_or(next);
            next = first + u64::from(append.records);
            if number < first {
                return None;
            }
            if number < next {
                return Some(self.numbered_at(index));
            }
        }
        None
    }

    /// The first append behind `floor` that is at or after a time.
    pub(crate) fn find_time(&self, aim: TimeAim, floor: u64) -> Option<PlacedAppend> {
        let appends = self.appends();
        let (mut low, mut high) = (0, appends.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.is_before(middle, aim) { low = middle + 1 } else { high = middle }
        }
        let live = appends.partition_point(|append| append.end() <= floor);
        let index = low.max(live);
        (index < appends.len()).then(|| self.numbered_at(index))
    }

    /// Whether the append at `index` is before a time.
    fn is_before(&self, index: usize, aim: TimeAim) -> bool {
        let arrival = self.appends()[index].fields().at.get();
        let mark = self.marks_of(index).map(|marks| marks.upto);
        aim.is_behind(arrival, mark)
    }

    /// Whether all of the stream that lies before these appends is before a time, too.
    pub(crate) fn begins_before(&self, aim: TimeAim) -> bool {
        self.is_before(0, aim)
    }

    /// Drops appends that end at `upto` or before.
    pub(crate) fn drop_before(&mut self, upto: u64) -> Dropped {
        let count = self.appends().partition_point(|append| append.end() <= upto);
        let (dropped, kept) = self.appends().split_at(count);
        let bytes = dropped.iter().map(|append| u64::from(append.length)).sum();
        let is_all = kept.is_empty();
        if count > 0 && !is_all {
            self.first_record = self.numbered_at(count).first_record;
        }
        if let (HotAppends::Many(appends), false) = (&mut self.appends, is_all) {
            appends.drain(..count);
            // What grew under load is given back when the stream rests.
            if appends.capacity() > 4 * (appends.len() + 1) {
                appends.shrink_to_fit();
            }
        }
        if count > 0 && !is_all && self.more.is_some() {
            self.drop_more(count);
        }
        Dropped { appends: count as u64, bytes, is_all }
    }

    /// So many appends in front are gone.
    fn drop_more(&mut self, count: usize) {
        let start = self.appends()[0].start;
        let more = self.more.as_mut().expect("the caller has looked");
        // A gap in front of the first one is the number of the first record.
        more.gaps.retain(|(gap, _)| *gap > start);
        let marked = count.saturating_sub(more.unmarked).min(more.marks.len());
        more.unmarked = more.unmarked.saturating_sub(count);
        if let Some(last) = more.marks.drain(..marked).next_back() {
            more.mark_before = last;
        }
        let each = self.numbered().step_by(NUMBERED_APPENDS).skip(1);
        let numbers = each.map(|append| append.first_record).collect();
        self.more.as_mut().expect("it was there").numbers = numbers;
    }
}

/// What a hot stream gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) appends: u64,
    pub(crate) bytes: u64,
    /// Nothing is left: the owner drops the stream, too.
    pub(crate) is_all: bool,
}

/// A read of consecutive WAL bytes that serves one or more appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) slot: u16,
    pub(crate) position: u64,
    pub(crate) length: u64,
    pub(crate) append_count: usize,
}

/// The longest span from the front of `appends` whose bytes are near each other.
pub(crate) fn first_span(appends: &[HotAppend], gap_max: u64, bytes_max: u64) -> Span {
    let first = &appends[0];
    let mut span = Span {
        slot: first.slot,
        position: u64::from(first.position),
        length: u64::from(first.length),
        append_count: 1,
    };
    for append in &appends[1..] {
        let end = span.position + span.length;
        let position = u64::from(append.position);
        let is_near = append.slot == span.slot && position >= end && position - end <= gap_max;
        let length = (position + u64::from(append.length)).saturating_sub(span.position);
        if !is_near || length > bytes_max {
            break;
        }
        span.length = length;
        span.append_count += 1;
    }
    span
}

/// Whether the bytes of `append` on disk are what was written; reads them in bounded pieces.
///
/// # Errors
/// As the file answers.
pub(crate) fn check_on_disk(
    append: &HotAppend,
    file: &dyn File,
    mode: ReadMode,
) -> std::io::Result<bool> {
    mode.check_bytes(u64::from(append.length))?;
    let mut buffer = vec![0; COPY_BYTES.min(append.length as usize)];
    let (mut crc, mut done) = (0, 0);
    while done < append.length as usize {
        let count = buffer.len().min(append.length as usize - done);
        let position = u64::from(append.position) + done as u64;
        mode.fill(file, &mut buffer[..count], position)?;
        crc = crc32c::crc32c_append(crc, &buffer[..count]);
        done += count;
    }
    Ok(crc == append.crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(start: u64, length: u32, position: u32) -> HotAppend {
        HotAppend::new(HotFields {
            start,
            length,
            records: 1,
            at: Timestamp::new(1_800_000_000_000),
            slot: 0,
            position,
            crc: 0,
            is_reported: true,
        })
    }

    #[test]
    fn packed_fields_come_back() {
        let append = append(5, 10, 20);
        append.set_verified();
        assert!(append.is_verified());
        assert!(append.fields().is_reported);
        assert_eq!(append.bounds().at, Timestamp::new(1_800_000_000_000));
        assert_eq!(append.bounds().end, ByteOffset::new(15));
    }

    fn place(first_record: u64, marks: Option<(u64, u64)>) -> Placement {
        let marks = marks.map(|(before, upto)| TimeMarks { before, upto });
        let (stream, start) = (model::StreamId::new(1), ByteOffset::ZERO);
        Placement { stream, start, first_record, record_count: 1, marks }
    }

    #[test]
    fn an_append_is_found_by_each_of_its_bytes() {
        let mut stream = HotStream::new(&place(0, None), append(10, 5, 0));
        stream.push(&place(3, None), append(20, 5, 0));
        assert_eq!(stream.find(9), None);
        assert_eq!(stream.find(10), Some(0));
        assert_eq!(stream.find(14), Some(0));
        assert_eq!(stream.find(15), None);
        assert_eq!(stream.find(24), Some(1));
        assert_eq!(stream.find(25), None);
        let records: Vec<u64> = stream.numbered().map(|append| append.first_record).collect();
        assert_eq!(records, [0, 3]);
        assert_eq!(stream.drop_before(24), Dropped { appends: 1, bytes: 5, is_all: false });
        assert_eq!(stream.appends().len(), 1);
        assert_eq!(stream.first_record, 3, "that of the append behind the gap");
        assert_eq!(stream.drop_before(25), Dropped { appends: 1, bytes: 5, is_all: true });
        let mut one = HotStream::new(&place(0, None), append(10, 5, 0));
        assert_eq!(one.find(12), Some(0));
        assert_eq!(one.drop_before(14), Dropped { appends: 0, bytes: 0, is_all: false });
        assert_eq!(one.drop_before(15), Dropped { appends: 1, bytes: 5, is_all: true });
    }

    /// Appends of five bytes with one to three records, with a gap of bytes and records in front of each 700th.
    /// Record times, if any, begin with append 100.
    fn long_stream(count: u64, has_times: bool) -> (HotStream, Vec<PlacedAppend>) {
        let (mut hot, mut all) = (None, Vec::new());
        let (mut start, mut first_record, mut mark) = (0, 7, 50);
        for number in 0..count {
            if number % 700 == 699 {
                (start, first_record) = (start + 3, first_record + 2);
            }
            let records = 1 + (number % 3) as u32;
            let fields = HotFields {
                start,
                length: 5,
                records,
                at: Timestamp::new(1000 + number / 4 * 3),
                ..append(0, 0, 0).fields()
            };
            let (before, has_time) = (mark, has_times && number >= 100);
            mark += number % 5 / 3 * 20;
            let placement = place(first_record, has_time.then_some((before, mark)));
            let append = HotAppend::new(fields);
            let mark = has_time.then_some(mark);
            all.push(PlacedAppend { bounds: append.bounds(), first_record, mark });
            match &mut hot {
                None => hot = Some(HotStream::new(&placement, append)),
                Some(hot) => hot.push(&placement, append),
            }
            (start, first_record) = (start + 5, first_record + u64::from(records));
        }
        (hot.unwrap(), all)
    }

    #[test]
    fn records_and_times_are_found_as_a_walk_finds_them() {
        for (has_times, dropped) in [(false, 0), (true, 0), (true, 50), (true, 150), (false, 2100)]
        {
            let (mut hot, mut all) = long_stream(3000, has_times);
            if dropped > 0 {
                hot.drop_before(all[dropped - 1].bounds.end.get());
                all.drain(..dropped);
            }
            hot.check_more();
            for number in all[0].first_record - 2..all.last().unwrap().first_record + 5 {
                let holds = |append: &&PlacedAppend| {
                    let end = append.first_record + u64::from(append.bounds.records);
                    (append.first_record..end).contains(&number)
                };
                assert_eq!(hot.find_record(number), all.iter().find(holds).copied());
            }
            for (index, append) in all.iter().enumerate() {
                assert_eq!(hot.numbered_at(index), *append);
            }
            let arrivals = (1000..3300).map(|at| TimeAim::Arrival(Timestamp::new(at)));
            let times = (0..20_000).step_by(7).map(TimeAim::Record);
            for (aim, floor) in arrivals.chain(times).zip([0, 0, 12_000].into_iter().cycle()) {
                let is_it = |append: &&PlacedAppend| {
                    let at = append.bounds.at.get();
                    append.bounds.end.get() > floor && !aim.is_behind(at, append.mark)
                };
                // Before the stream had record times its arrivals were later than its first marks are.
                if !has_times || matches!(aim, TimeAim::Arrival(_)) {
                    assert_eq!(hot.find_time(aim, floor), all.iter().find(is_it).copied());
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "keeps its record times")]
    fn a_stream_that_loses_its_record_times_is_found() {
        let mut hot = HotStream::new(&place(0, Some((0, 9))), append(0, 5, 0));
        hot.push(&place(1, None), append(5, 5, 0));
    }

    #[test]
    fn near_appends_are_read_at_once() {
        let appends = [append(0, 10, 100), append(10, 10, 150), append(20, 10, 9000)];
        let span = first_span(&appends, 1000, 1 << 20);
        assert_eq!((span.position, span.length, span.append_count), (100, 60, 2));
        assert_eq!(first_span(&appends, 1000, 30).append_count, 1);
        assert_eq!(first_span(&appends[2..], 1000, 30).append_count, 1);
    }
}
