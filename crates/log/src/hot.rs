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

use crate::entry::{AppendBounds, DataPlace, Entry};
use crate::options::COPY_BYTES;
use crate::read::ReadMode;
use crate::wal::segment::SegmentTable;
use env::File;
use model::{ByteOffset, Placement, Timestamp};
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
    /// Where appends do not follow each other, because a chunk has those between: start and first record.
    gaps: Option<Box<Gaps>>,
}

#[derive(Debug, Default)]
struct Gaps(Vec<(u64, u64)>);

/// Most streams have one append at a time. The map of streams holds it directly, without memory of its own
/// to allocate, to follow and to free.
#[derive(Debug)]
enum HotAppends {
    One(HotAppend),
    /// At least one.
    Many(Vec<HotAppend>),
}

impl HotStream {
    /// A stream with one append, whose first record has this number.
    pub(crate) fn new(first_record: u64, append: HotAppend) -> Self {
        Self { first_record, appends: HotAppends::One(append), gaps: None }
    }

    /// Each append with the number of its first record.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, HotFields)> {
        let mut next = self.first_record;
        self.appends().iter().map(move |append| {
            let first = self.gap_at(append.start).unwrap_or(next);
            next = first + u64::from(append.records);
            (first, append.fields())
        })
    }

    fn gap_at(&self, start: u64) -> Option<u64> {
        let gaps = &self.gaps.as_ref()?.0;
        gaps.iter().find(|(gap, _)| *gap == start).map(|(_, record)| *record)
    }

    /// Adds an append behind the others; its first record has this number.
    ///
    /// # Panics
    /// If it overlaps the last one: the state machine that placed it is broken.
    pub(crate) fn push(&mut self, first_record: u64, append: HotAppend) {
        let last = self.appends().last().expect("a hot stream has an append");
        assert!(last.end() <= append.start, "appends of a stream overlap");
        if last.end() < append.start {
            self.gaps.get_or_insert_default().0.push((append.start, first_record));
        }
        match &mut self.appends {
            HotAppends::One(first) => {
                self.appends = HotAppends::Many(vec![first.clone(), append]);
            }
            HotAppends::Many(appends) => appends.push(append),
        }
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
        let bytes = appends.iter().map(|append| u64::from(append.length)).sum();
        (appends.len() as u64, bytes)
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

    /// Drops appends that end at `upto` or before.
    pub(crate) fn drop_before(&mut self, upto: u64) -> Dropped {
        let count = self.appends().partition_point(|append| append.end() <= upto);
        let (dropped, kept) = self.appends().split_at(count);
        let bytes = dropped.iter().map(|append| u64::from(append.length)).sum();
        let records: u64 = dropped.iter().map(|append| u64::from(append.records)).sum();
        let is_all = kept.is_empty();
        let gap = kept.first().and_then(|first| self.gap_at(first.start));
        if let (HotAppends::Many(appends), false) = (&mut self.appends, is_all) {
            appends.drain(..count);
            // What grew under load is given back when the stream rests.
            if appends.capacity() > 4 * (appends.len() + 1) {
                appends.shrink_to_fit();
            }
        }
        self.first_record = gap.unwrap_or(self.first_record + records);
        Dropped { appends: count as u64, bytes, is_all }
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

    #[test]
    fn an_append_is_found_by_each_of_its_bytes() {
        let mut stream = HotStream::new(0, append(10, 5, 0));
        stream.push(3, append(20, 5, 0));
        assert_eq!(stream.find(9), None);
        assert_eq!(stream.find(10), Some(0));
        assert_eq!(stream.find(14), Some(0));
        assert_eq!(stream.find(15), None);
        assert_eq!(stream.find(24), Some(1));
        assert_eq!(stream.find(25), None);
        let records: Vec<u64> = stream.numbered().map(|(record, _)| record).collect();
        assert_eq!(records, [0, 3]);
        assert_eq!(stream.drop_before(24), Dropped { appends: 1, bytes: 5, is_all: false });
        assert_eq!(stream.appends().len(), 1);
        assert_eq!(stream.first_record, 3, "that of the append behind the gap");
        assert_eq!(stream.drop_before(25), Dropped { appends: 1, bytes: 5, is_all: true });
        let mut one = HotStream::new(0, append(10, 5, 0));
        assert_eq!(one.find(12), Some(0));
        assert_eq!(one.drop_before(14), Dropped { appends: 0, bytes: 0, is_all: false });
        assert_eq!(one.drop_before(15), Dropped { appends: 1, bytes: 5, is_all: true });
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
