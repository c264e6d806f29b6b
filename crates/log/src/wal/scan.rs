//! Finds the batches of a lane again, and tells a torn tail from damage.
//!
//! # How
//! A batch header names the batch before it that was durable. Walking from the newest header down,
//! that chain says of every batch number whether it is live (named), was cut by an earlier recovery
//! (skipped by the chain), or is lost (named, but its header cannot be found). Only the newest batch
//! is named by nobody: if it is not whole, it was being written when the power went, nobody saw it,
//! and it is cut. Everything else that is not whole is damage.
//!
//! # Invariants
//! - A live batch is never dropped, whatever else is damaged.
//! - The answer depends only on the files, so a crash during recovery changes nothing.

use crate::codec::Unsealed;
use crate::damage::{Damage, DamageKind};
use crate::options::{BLOCK_BYTES, COPY_BYTES};
use crate::wal::batch::{
    BATCH_HEADER_BYTES, BatchHeader, BatchPlace, ENTRY_HEADER_BYTES, EntryHeader,
    entry_header_position,
};
use crate::wal::segment::SegmentFile;
use std::io;
use std::sync::Arc;

/// A batch as found in a segment of the lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundBatch {
    /// Index of the segment in the lane's list.
    pub(crate) segment: usize,
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
    is_repaired: bool,
}

impl FoundBatch {
    fn end(&self) -> u64 {
        self.position + self.header.length()
    }
}

/// Writes the last live batch of a lane where it stands, unchanged. Only that one can have been in
/// flight when a process ended.
///
/// # Errors
/// As the disk answers.
pub(crate) fn rewrite_last(lane: &ScannedLane, files: &[Arc<SegmentFile>]) -> io::Result<()> {
    let Some(LiveBatch::Whole(last)) = lane.live.last() else { return Ok(()) };
    let file = &files[last.segment].file;
    let mut at = last.position;
    while at < last.end() {
        let count = (last.end() - at).min(COPY_BYTES as u64);
        let mut bytes = vec![0; usize::try_from(count).expect("bounded by a buffer")];
        file.read_exact_at(&mut bytes, at)?;
        file.write_at(&bytes, at)?;
        at += count;
    }
    file.sync_data()
}

/// A live batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LiveBatch {
    /// Its header is intact.
    Whole(FoundBatch),
    /// Its header is lost: entries are looked for one by one.
    Headless { segment: usize, position: u64, seq: u64, epoch: u64 },
}

impl LiveBatch {
    pub(crate) fn epoch(&self) -> u64 {
        match self {
            Self::Whole(found) => found.header.epoch,
            Self::Headless { epoch, .. } => *epoch,
        }
    }

    pub(crate) fn segment(&self) -> usize {
        match self {
            Self::Whole(found) => found.segment,
            Self::Headless { segment, .. } => *segment,
        }
    }
}

/// All that a lane's files say.
#[derive(Debug, Default)]
pub(crate) struct ScannedLane {
    /// Live batches, oldest first.
    pub(crate) live: Vec<LiveBatch>,
    pub(crate) damages: Vec<Damage>,
    /// Segment (index) and position of a batch that was cut.
    pub(crate) torn: Option<(usize, u64)>,
    /// Highest batch number seen; 0 if there is none.
    pub(crate) seq_max: u64,
    /// The batch that the next one names as durable.
    pub(crate) durable: u64,
    pub(crate) epoch_max: u64,
    /// Number of segments up to the last one with a batch; later ones are spares.
    pub(crate) used_segments: usize,
}

impl ScannedLane {
    fn add_live(&mut self, files: &[Arc<SegmentFile>], batch: &FoundBatch) {
        if batch.is_repaired {
            let file = &files[batch.segment];
            self.damages.push(place_damage(DamageKind::HeaderRepaired, file, batch.position));
        }
        self.live.push(LiveBatch::Whole(*batch));
    }
}

/// Which lane of which store is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneName {
    pub(crate) store: u64,
    pub(crate) lane: u16,
}

/// The batch headers of a lane, oldest first.
#[derive(Debug)]
pub(crate) struct LaneHeaders {
    name: LaneName,
    found: Vec<FoundBatch>,
}

impl LaneHeaders {
    /// Reads the headers of all segments, oldest first.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn read(name: LaneName, files: &[Arc<SegmentFile>]) -> io::Result<Self> {
        let mut found = Vec::new();
        for (segment, file) in files.iter().enumerate() {
            scan_segment(name, segment, file, &mut found)?;
        }
        // Numbers rise along the lane; a header that breaks this is the copy of an older write.
        let mut seq_max = 0;
        found.retain(|batch: &FoundBatch| {
            let rises = batch.header.seq > seq_max;
            seq_max = seq_max.max(batch.header.seq);
            rises
        });
        Ok(Self { name, found })
    }

    /// The last opening that wrote into the lane; 0 if there was none.
    pub(crate) fn epoch_max(&self) -> u64 {
        self.found.iter().map(|batch| batch.header.epoch).max().unwrap_or(0)
    }
}

/// Which entries are known to have been applied, because a chunk or a checkpoint covers them: their batch was durable.
/// An index tells that of the last opening alone: those of a batch that was cut are given out again, into another lane if
/// the number of shards has changed.
pub(crate) struct Applied<'a> {
    /// The last opening that wrote into any lane.
    pub(crate) epoch: u64,
    pub(crate) covers: &'a dyn Fn(&EntryHeader) -> bool,
}

/// Tells which batches of a lane are live.
///
/// # Errors
/// If a file cannot be read; damage is no error.
pub(crate) fn scan_lane(
    headers: &LaneHeaders,
    files: &[Arc<SegmentFile>],
    applied: &Applied<'_>,
) -> io::Result<ScannedLane> {
    let found = &headers.found;
    let mut lane = ScannedLane {
        seq_max: found.last().map_or(0, |batch| batch.header.seq),
        epoch_max: headers.epoch_max(),
        used_segments: found.last().map_or(0, |batch| batch.segment + 1),
        ..ScannedLane::default()
    };
    walk_chain((headers.name, applied), files, found, &mut lane)?;
    lane.live.reverse();
    Ok(lane)
}

/// Finds every valid batch header, trusting lengths of valid headers and nothing else.
fn scan_segment(
    name: LaneName,
    segment: usize,
    file: &SegmentFile,
    found: &mut Vec<FoundBatch>,
) -> io::Result<()> {
    let mut window = Vec::new();
    let mut window_start = 0;
    let mut position = 0;
    while position + BATCH_HEADER_BYTES as u64 <= file.capacity {
        if position < window_start || position >= window_start + window.len() as u64 {
            let length = (file.capacity - position).min(COPY_BYTES as u64);
            window.resize(usize::try_from(length).expect("bounded by COPY_BYTES"), 0);
            file.file.read_exact_at(&mut window, position)?;
            window_start = position;
        }
        let block = &window[usize::try_from(position - window_start).expect("inside the window")..];
        match BatchHeader::decode(block, name.store, name.lane, file.seq) {
            Some(Unsealed { value: header, is_repaired })
                if position + header.length() <= file.capacity =>
            {
                found.push(FoundBatch { segment, position, header, is_repaired });
                position += header.length();
            }
            _ => position += BLOCK_BYTES,
        }
    }
    Ok(())
}

/// Follows the chain of durable claims from the newest batch down.
fn walk_chain(
    (name, applied): (LaneName, &Applied<'_>),
    files: &[Arc<SegmentFile>],
    found: &[FoundBatch],
    lane: &mut ScannedLane,
) -> io::Result<()> {
    let mut claim: Option<u64> = None;
    for (number, batch) in found.iter().enumerate().rev() {
        match claim {
            Some(claimed) if batch.header.seq > claimed => continue,
            Some(claimed) => {
                if batch.header.seq < claimed {
                    lose_header(files, found, number, claimed, lane);
                    // The lost one may have been the first of a later opening, which cut this one: it
                    // leaves out a number.
                    let may_be_cut = found[number + 1].header.epoch > batch.header.epoch
                        && claimed > batch.header.seq + 1;
                    let file = &files[batch.segment];
                    if may_be_cut
                        && !Entries::new(name, file, batch, &read_batch(file, batch)?).are_whole()
                    {
                        claim = Some(batch.header.durable);
                        continue;
                    }
                }
                lane.add_live(files, batch);
            }
            None => {
                let file = &files[batch.segment];
                let bytes = read_batch(file, batch)?;
                let entries = Entries::new(name, file, batch, &bytes);
                if entries.are_whole() || entries.were_applied(applied) {
                    lane.durable = batch.header.seq;
                    lane.add_live(files, batch);
                } else {
                    lane.torn = Some((batch.segment, batch.position));
                    lane.durable = batch.header.durable;
                }
            }
        }
        claim = Some(batch.header.durable);
    }
    // The front of a lane is recycled, so a claim without any batch in front of it is no damage,
    // unless the first batch found does not stand where a segment starts.
    if let (Some(claimed), Some(first)) = (claim, found.first())
        && claimed > 0
        && first.position > 0
    {
        lose_first_headers(files, first, claimed, lane);
    }
    Ok(())
}

/// Records that batch `claimed`, which follows `found[number]`, has no readable header.
fn lose_header(
    files: &[Arc<SegmentFile>],
    found: &[FoundBatch],
    number: usize,
    claimed: u64,
    lane: &mut ScannedLane,
) {
    let (before, after) = (&found[number], &found[number + 1]);
    let (segment, position) = if gap_follows(files, before, after) {
        (before.segment, before.end())
    } else {
        (after.segment.min(before.segment + 1), 0)
    };
    let is_missing =
        files[before.segment..=after.segment].windows(2).any(|pair| pair[0].seq + 1 != pair[1].seq);
    let kind = if is_missing { DamageKind::SegmentMissing } else { DamageKind::BatchHeader };
    lane.damages.push(place_damage(kind, &files[segment], position));
    let epoch = before.header.epoch;
    // Several headers in a row may be lost; the entries say which batch they belong to.
    for seq in (before.header.seq + 1..=claimed).rev().take(4) {
        for (segment, position) in candidates(files, before, after) {
            lane.live.push(LiveBatch::Headless { segment, position, seq, epoch });
        }
    }
}

/// Where a batch between two found ones can start: behind the first, or at a segment's start.
fn candidates(
    files: &[Arc<SegmentFile>],
    before: &FoundBatch,
    after: &FoundBatch,
) -> Vec<(usize, u64)> {
    let mut places = Vec::new();
    if gap_follows(files, before, after) {
        places.push((before.segment, before.end()));
    }
    for segment in before.segment + 1..=after.segment {
        if segment < after.segment || after.position > 0 {
            places.push((segment, 0));
        }
    }
    places.reverse();
    places
}

/// Whether there are blocks between `before` and the end of its segment or `after`.
fn gap_follows(files: &[Arc<SegmentFile>], before: &FoundBatch, after: &FoundBatch) -> bool {
    let limit = if before.segment == after.segment {
        after.position
    } else {
        files[before.segment].capacity
    };
    before.end() < limit
}

/// Records that headers at the start of the oldest segment are lost.
fn lose_first_headers(
    files: &[Arc<SegmentFile>],
    first: &FoundBatch,
    claimed: u64,
    lane: &mut ScannedLane,
) {
    let (segment, epoch) = (first.segment, first.header.epoch);
    lane.damages.push(place_damage(DamageKind::BatchHeader, &files[segment], 0));
    for seq in (1..=claimed).rev().take(4) {
        lane.live.push(LiveBatch::Headless { segment, position: 0, seq, epoch });
    }
}

/// A damage of which only the place in a segment is known.
pub(crate) fn place_damage(kind: DamageKind, file: &SegmentFile, position: u64) -> Damage {
    Damage::at(kind, &file.path, position)
}

/// The entries of a batch, read to judge it.
struct Entries<'a> {
    header: &'a BatchHeader,
    place: BatchPlace,
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    fn new(name: LaneName, file: &SegmentFile, batch: &'a FoundBatch, bytes: &'a [u8]) -> Self {
        let header = &batch.header;
        let place = BatchPlace { store: name.store, segment: file.seq, seq: header.seq };
        Self { header, place, bytes }
    }

    fn headers(&self) -> impl Iterator<Item = Option<EntryHeader>> {
        (0..self.header.entry_count)
            .map(|number| Some(entry_header(self.bytes, self.place, number)?.value))
    }

    /// Whether every entry is what was written, but for single bits of headers: a torn write leaves out
    /// blocks and not bits.
    fn are_whole(&self) -> bool {
        self.headers().all(|header| {
            let payload = header.and_then(|header| header.payload(self.bytes));
            payload.is_some_and(|payload| payload.is_data_intact)
        })
    }

    /// Whether one of them is known to have been applied: what is wrong in the batch is damage, then.
    fn were_applied(&self, applied: &Applied<'_>) -> bool {
        self.header.epoch == applied.epoch
            && self.headers().flatten().any(|header| (applied.covers)(&header))
    }
}

/// The bytes of a batch whose header is intact.
pub(crate) fn read_batch(file: &SegmentFile, batch: &FoundBatch) -> io::Result<Vec<u8>> {
    let length = usize::try_from(batch.header.length()).expect("batches are below 4 GiB");
    let mut bytes = vec![0; length];
    file.file.read_exact_at(&mut bytes, batch.position)?;
    Ok(bytes)
}

/// The entry header `number` of a batch, if it is intact or can be repaired.
pub(crate) fn entry_header(
    bytes: &[u8],
    place: BatchPlace,
    number: u32,
) -> Option<Unsealed<EntryHeader>> {
    let header = bytes.get(entry_header_position(number)..)?.get(..ENTRY_HEADER_BYTES)?;
    let header = EntryHeader::decode_sealed(header, place, number)?;
    let is_possible = !header.is_repaired || header.value.end() <= bytes.len() as u64;
    is_possible.then_some(header)
}

/// Entries of a batch without a header: read on while entry headers are valid, up to the payload,
/// which begins where the first of them says.
///
/// Returns the bytes of the batch as far as its entries reach.
pub(crate) fn read_headless(
    file: &SegmentFile,
    position: u64,
    place: BatchPlace,
) -> io::Result<(Vec<u8>, u32)> {
    let mut bytes = vec![0; BATCH_HEADER_BYTES];
    let mut count = 0;
    let mut end = 0;
    let mut payload_position = u32::MAX as usize;
    while entry_header_position(count) < payload_position {
        let at = position + entry_header_position(count) as u64;
        if at + ENTRY_HEADER_BYTES as u64 > file.capacity {
            break;
        }
        let mut header = [0; ENTRY_HEADER_BYTES];
        file.file.read_exact_at(&mut header, at)?;
        let Some(decoded) = EntryHeader::decode_sealed(&header, place, count) else { break };
        if count == 0 {
            payload_position = decoded.value.position as usize;
        }
        end = end.max(decoded.value.end());
        count += 1;
    }
    let end = end.min(file.capacity - position);
    bytes.resize(usize::try_from(end).expect("bounded by the segment").max(BATCH_HEADER_BYTES), 0);
    if count > 0 {
        file.file.read_exact_at(&mut bytes, position)?;
    }
    Ok((bytes, count))
}
