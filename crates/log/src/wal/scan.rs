//! Finds the batches of a WAL again, and distinguishes a torn tail from damage.
//!
//! # How
//! A batch header names the batch before it that was durable. That chain, from the newest header down,
//! decides about every batch number. A named one is live. A skipped one was cut by
//! an earlier recovery. A named one without a header is lost. No batch names the newest one. If it is
//! not whole, power failed while it was written. It was never acknowledged, and it is cut. Every other
//! batch that is not whole is damage. A lost header is found in its copy, or in the list that the batch behind has of
//! the one before.
//!
//! # Invariants
//! - A live batch is never dropped, whatever else is damaged.
//! - The answer depends only on the files, so a crash during recovery changes nothing.

use crate::codec::Unsealed;
use crate::damage::{Damage, DamageKind};
use crate::options::{BLOCK_BYTES, COPY_BYTES};
use crate::unreadable::read_around;
use crate::wal::layout::{
    BATCH_HEADER_BYTES, BatchHeader, BatchList, BatchPlace, ENTRY_HEADER_BYTES, EntryHeader,
    entry_header_position,
};
use crate::wal::segment::SegmentFile;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A batch as found in a segment of the WAL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundBatch {
    /// Index of the segment in the WAL's list.
    pub(crate) segment: usize,
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
    is_repaired: bool,
    /// The last one of its opening, of which the first sector is lost: in flight at the end and torn, perhaps. What
    /// its second copy says is no damage then.
    pub(crate) is_torn: bool,
}

impl FoundBatch {
    pub(crate) fn end(&self) -> u64 {
        self.position + self.header.length()
    }
}

/// What the second copy of a batch's headers says, or a list.
#[derive(Debug, Clone, Copy)]
struct FoundCopy {
    segment: usize,
    /// Where the batch starts.
    position: u64,
    header: BatchHeader,
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

/// The segment files of a WAL, oldest first.
#[derive(Debug, Default)]
pub(crate) struct FoundSegments {
    pub(crate) files: Vec<Arc<SegmentFile>>,
    /// Those that the device could not open, at this start or an earlier one.
    pub(crate) lost: Vec<PathBuf>,
    /// Why it could not be written down that one of these is lost.
    pub(crate) unsynced: Option<io::Error>,
    /// The highest number of all; 0 if there is none.
    pub(crate) seq_max: u64,
}

impl FoundSegments {
    /// What may be missing of the log, for nobody knows what was in a lost segment.
    pub(crate) fn damages(&self) -> impl Iterator<Item = Damage> {
        self.lost.iter().map(|path| Damage::at(DamageKind::SegmentMissing, path, 0))
    }
}

/// All that a WAL's files say.
#[derive(Debug, Default)]
pub(crate) struct ScannedWal {
    /// Live batches, oldest first.
    pub(crate) live: Vec<LiveBatch>,
    pub(crate) damages: Vec<Damage>,
    /// A batch that was cut.
    pub(crate) torn: Option<FoundBatch>,
    /// Highest batch number seen; 0 if there is none.
    pub(crate) seq_max: u64,
    /// The batch that the next one names as durable.
    pub(crate) durable: u64,
    pub(crate) epoch_max: u64,
    /// Number of segments up to the last one with a batch; later ones are spares.
    pub(crate) used_segments: usize,
}

impl ScannedWal {
    fn add_live(&mut self, files: &[Arc<SegmentFile>], batch: &FoundBatch) {
        if batch.is_repaired {
            let file = &files[batch.segment];
            self.damages.push(place_damage(DamageKind::HeaderRepaired, file, batch.position));
        }
        self.live.push(LiveBatch::Whole(*batch));
    }

    /// The batch that claims the live one of this number durable, and lists it.
    pub(crate) fn claimer(&self, number: usize) -> Option<&FoundBatch> {
        match self.live.get(number + 1) {
            Some(LiveBatch::Whole(batch)) => Some(batch),
            Some(LiveBatch::Headless { .. }) => None,
            None => self.torn.as_ref(),
        }
    }

    fn is_live(&self, segment: usize, position: u64) -> bool {
        self.live.iter().any(|batch| {
            matches!(batch, LiveBatch::Whole(found)
                if found.segment == segment && (found.position..found.end()).contains(&position))
        })
    }
}

/// The WAL and the store that are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WalName {
    pub(crate) store: u64,
    pub(crate) wal: u16,
}

/// The batch headers of a WAL, oldest first.
#[derive(Debug)]
pub(crate) struct WalHeaders {
    name: WalName,
    found: Vec<FoundBatch>,
    /// Segments and positions of blocks that cannot be read.
    unreadable: Vec<(usize, u64)>,
}

impl WalHeaders {
    /// Reads the headers of all segments, oldest first.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn read(name: WalName, files: &[Arc<SegmentFile>]) -> io::Result<Self> {
        let (mut found, mut copies, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        for (segment, file) in files.iter().enumerate() {
            let blocks = scan_segment(name, (segment, file), &mut found, &mut copies)?;
            unreadable.extend(blocks.into_iter().map(|block| (segment, block)));
        }
        // Numbers rise along the WAL; a header that breaks this is the copy of an older write.
        let mut seq_max = 0;
        found.retain(|batch: &FoundBatch| {
            let rises = batch.header.seq > seq_max;
            seq_max = seq_max.max(batch.header.seq);
            rises
        });
        let mut headers = Self { name, found, unreadable };
        headers.take_newest(&copies);
        Ok(headers)
    }

    /// Takes the newest batch by the second copy of its headers, if the first one is lost.
    fn take_newest(&mut self, copies: &[FoundCopy]) {
        let newest = self.found.last();
        let end = newest.map_or((0, 0), |batch| (batch.segment, batch.end()));
        let seq_max = newest.map_or(0, |batch| batch.header.seq);
        let is_behind =
            |copy: &&FoundCopy| copy.header.seq > seq_max && (copy.segment, copy.position) >= end;
        let behind = copies.iter().filter(is_behind).max_by_key(|copy| copy.header.seq);
        if let Some(&FoundCopy { segment, position, header }) = behind {
            let is_repaired = self.unreadable.contains(&(segment, position));
            let is_torn = !is_repaired;
            self.found.push(FoundBatch { segment, position, header, is_repaired, is_torn });
        }
    }

    /// Blocks that cannot be read where nobody can say whether a batch was: behind the newest one, and in
    /// segments before that of the oldest one.
    fn lost_outside(&self) -> impl Iterator<Item = (usize, u64)> {
        let first = self.found.first().map_or(0, |batch| batch.segment);
        let end = self.found.last().map_or((0, 0), |batch| (batch.segment, batch.end()));
        let is_outside = move |place: &&(usize, u64)| place.0 < first || **place >= end;
        self.unreadable.iter().filter(is_outside).copied()
    }

    /// The last opening that wrote into this WAL; 0 if there was none.
    pub(crate) fn epoch_max(&self) -> u64 {
        self.found.iter().map(|batch| batch.header.epoch).max().unwrap_or(0)
    }
}

/// Which entries are known to have been applied, because a chunk or a checkpoint covers them: their batch was durable.
/// An index proves that for the last opening alone. The indexes of a batch that was cut are given out again, into
/// another WAL if the number of shards has changed.
pub(crate) struct Applied<'a> {
    /// The last opening that wrote into any WAL.
    pub(crate) epoch: u64,
    pub(crate) covers: &'a dyn Fn(&EntryHeader) -> bool,
}

/// Decides which batches of a WAL are live.
///
/// # Errors
/// If a file cannot be read; damage is no error.
pub(crate) fn scan_wal(
    headers: &WalHeaders,
    files: &[Arc<SegmentFile>],
    applied: &Applied<'_>,
) -> io::Result<ScannedWal> {
    let found = &headers.found;
    let mut wal = ScannedWal {
        seq_max: found.last().map_or(0, |batch| batch.header.seq),
        epoch_max: headers.epoch_max(),
        used_segments: found.last().map_or(0, |batch| batch.segment + 1),
        ..ScannedWal::default()
    };
    let mut chain = Chain { name: headers.name, files, wal: &mut wal, claimer: None };
    for (number, batch) in found.iter().enumerate().rev() {
        match chain.claimer {
            None => chain.judge_newest(batch, applied)?,
            // An earlier recovery has cut it: the chain leaves it out.
            Some(claimer) if batch.header.seq > claimer.header.durable => {}
            Some(claimer) => chain.judge_claimed(batch, found[number + 1], claimer)?,
        }
    }
    if let Some(first) = found.first() {
        chain.judge_front(first)?;
    }
    wal.live.reverse();
    let outside = headers.lost_outside().filter(|(segment, at)| !wal.is_live(*segment, *at));
    let lost = |(segment, at): (usize, u64)| {
        place_damage(DamageKind::UnreadableBlock, &files[segment], at)
    };
    let lost: Vec<Damage> = outside.map(lost).collect();
    wal.damages.extend(lost);
    Ok(wal)
}

/// Finds every valid batch header, trusting lengths of valid headers and nothing else. Second copies are found where
/// no batch is known. Returns the blocks that it met and could not read.
fn scan_segment(
    name: WalName,
    (segment, file): (usize, &SegmentFile),
    found: &mut Vec<FoundBatch>,
    copies: &mut Vec<FoundCopy>,
) -> io::Result<Vec<u64>> {
    let mut unreadable = Vec::new();
    let mut window = Vec::new();
    let mut window_start = 0;
    let mut position = 0;
    while position + BATCH_HEADER_BYTES as u64 <= file.capacity {
        if position < window_start || position >= window_start + window.len() as u64 {
            let length = (file.capacity - position).min(COPY_BYTES as u64);
            window.resize(usize::try_from(length).expect("bounded by COPY_BYTES"), 0);
            unreadable.extend(read_around(&*file.file, &mut window, position)?);
            window_start = position;
        }
        let block = &window[usize::try_from(position - window_start).expect("inside the window")..];
        match BatchHeader::decode(block, name.store, name.wal, file.seq) {
            Some(Unsealed { value: header, is_repaired })
                if position + header.length() <= file.capacity =>
            {
                found.push(FoundBatch { segment, position, header, is_repaired, is_torn: false });
                position += header.length();
            }
            _ => {
                if let Some(newer) = BatchHeader::newer_in(block, name.store, file.seq) {
                    return Err(newer.at(&file.path, position).into());
                }
                position += BLOCK_BYTES;
                let block = &block[..block.len().min(BLOCK_BYTES as usize)];
                let copy = copy_in(name, block, file.seq).and_then(|header| {
                    let position = position.checked_sub(header.length())?;
                    Some(FoundCopy { segment, position, header })
                });
                copies.extend(copy);
            }
        }
    }
    Ok(unreadable)
}

/// The chain of durable claims, followed from the newest batch down.
struct Chain<'a> {
    name: WalName,
    files: &'a [Arc<SegmentFile>],
    wal: &'a mut ScannedWal,
    /// The batch that names the last one as durable; `None` before the newest batch.
    claimer: Option<FoundBatch>,
}

impl Chain<'_> {
    /// Judges the newest batch, which no other one names. It is live if it is whole, if something of it is
    /// known to have been applied, or if a block of it cannot be read. Otherwise it was being written at the
    /// end, and is cut.
    fn judge_newest(&mut self, batch: &FoundBatch, applied: &Applied<'_>) -> io::Result<()> {
        let file = &self.files[batch.segment];
        let (bytes, is_read) = read_batch(file, batch)?;
        let entries = Entries::new(self.name, file, batch, &bytes);
        entries.check_version(&file.path, batch.position)?;
        // A torn write leaves bytes that can be read. So these were whole perhaps, unless it was cut before.
        let is_damaged = !is_read && batch.header.epoch == applied.epoch;
        let is_whole = entries.are_whole() && !self.is_torn_mark(batch)?;
        if is_whole || entries.were_applied(applied) || is_damaged {
            self.wal.durable = batch.header.seq;
            self.wal.add_live(self.files, batch);
        } else {
            self.wal.torn = Some(*batch);
            self.wal.durable = batch.header.durable;
        }
        self.claimer = Some(*batch);
        Ok(())
    }

    /// Judges a batch that is not behind the claimed one; `after` is the next one that was found. It is
    /// live if it is the claimed one, or if only headers are lost between the two.
    fn judge_claimed(
        &mut self,
        batch: &FoundBatch,
        after: FoundBatch,
        claimer: FoundBatch,
    ) -> io::Result<()> {
        let mut gap = Gap { name: self.name, before: Some(batch), after, claimer };
        gap.fill(self.files, self.wal)?;
        if batch.header.seq > gap.claimed() {
            // A batch that was found by its copy says that this one was cut.
            self.claimer = Some(gap.claimer);
            return Ok(());
        }
        let mut is_cut = false;
        if batch.header.seq < gap.claimed() {
            gap.lose_header(self.files, batch, self.wal);
            is_cut = gap.may_cut(batch) && !self.is_whole(batch)?;
        }
        if !is_cut {
            self.wal.add_live(self.files, batch);
        }
        self.claimer = Some(*batch);
        Ok(())
    }

    /// Whether a batch without entries lacks its list. There is nothing else in it to lose. If it is cut, the next batch
    /// lists what it has listed.
    fn is_torn_mark(&self, batch: &FoundBatch) -> io::Result<bool> {
        let BatchHeader { entry_count, list_bytes, .. } = batch.header;
        let is_mark = entry_count == 0 && list_bytes > 0;
        Ok(is_mark && read_list(self.name, self.files, batch)?.is_none())
    }

    fn is_whole(&self, batch: &FoundBatch) -> io::Result<bool> {
        let file = &self.files[batch.segment];
        let (bytes, _) = read_batch(file, batch)?;
        Ok(Entries::new(self.name, file, batch, &bytes).are_whole())
    }

    /// Judges what the oldest batch claims. The front of a WAL is recycled. So a claim without any batch in
    /// front of it is no damage, unless the first batch found is not where a segment begins.
    fn judge_front(&mut self, first: &FoundBatch) -> io::Result<()> {
        let Some(claimer) = self.claimer else { return Ok(()) };
        let mut gap = Gap { name: self.name, before: None, after: *first, claimer };
        gap.fill(self.files, self.wal)?;
        if gap.claimed() > 0 && gap.after.position > 0 {
            gap.lose_first_headers(self.files, self.wal);
        }
        Ok(())
    }
}

/// The header of a batch, if `block` is its last one and ends with the copy of its headers.
pub(crate) fn copy_in(name: WalName, block: &[u8], segment: u64) -> Option<BatchHeader> {
    let WalName { store, wal } = name;
    let ends = (1..).map(|count| count * BATCH_HEADER_BYTES as u64);
    let mut units = block.chunks_exact(BATCH_HEADER_BYTES).rev().zip(ends);
    units.find_map(|(unit, bytes_to_end)| {
        let found = BatchHeader::decode(unit, store, wal, segment)?;
        let header = (!found.is_repaired).then_some(found.value)?;
        let is_copy = header.copy_position() == header.length().checked_sub(bytes_to_end);
        is_copy.then_some(header)
    })
}

/// The place of batches whose headers were not found.
struct Gap<'a> {
    name: WalName,
    /// The batch in front of it; `None` at the front of the WAL.
    before: Option<&'a FoundBatch>,
    after: FoundBatch,
    /// The batch that names the last one in it as durable; that in front of the gap if nothing is missing.
    claimer: FoundBatch,
}

impl Gap<'_> {
    fn claimed(&self) -> u64 {
        self.claimer.header.durable
    }

    /// Its blocks: segment, first position, position behind; the last ones first.
    fn blocks(&self, files: &[Arc<SegmentFile>]) -> Vec<(usize, u64, u64)> {
        let (first, start) = self.before.map_or((0, 0), |before| (before.segment, before.end()));
        let last = self.after.segment;
        let range = |segment: usize| {
            let from = if segment == first { start } else { 0 };
            let to = if segment == last { self.after.position } else { files[segment].capacity };
            (segment, from, to)
        };
        (first..=last).rev().map(range).filter(|(_, from, to)| from < to).collect()
    }

    /// Whether the batch with the lost header may have been the first of a later opening that cut
    /// `batch`: it leaves out a number. It is of an opening before that of `after` if `after` is the first one of its
    /// own. So what an opening has taken in spite of the gap, the next ones take, too.
    fn may_cut(&self, batch: &FoundBatch) -> bool {
        let after = &self.after.header;
        let first_epoch = batch.header.epoch + 1 + u64::from(after.begins_opening());
        after.epoch >= first_epoch && self.claimed() > batch.header.seq + 1
    }

    /// Takes the batches, the last one first, that are listed or of which the second copy of the headers is there.
    fn fill(&mut self, files: &[Arc<SegmentFile>], wal: &mut ScannedWal) -> io::Result<()> {
        let before = self.before.map_or(0, |before| before.header.seq);
        while self.claimed() > before
            && let Some(batch) = self.find_claimed(files)?
        {
            wal.add_live(files, &batch);
            (self.after, self.claimer) = (batch, batch);
        }
        Ok(())
    }

    /// The claimed batch, without its headers.
    fn find_claimed(&self, files: &[Arc<SegmentFile>]) -> io::Result<Option<FoundBatch>> {
        let found = match self.find_listed(files)? {
            None => self.find_copy(files)?,
            listed => listed,
        };
        let Some(found) = found else { return Ok(None) };
        let FoundCopy { segment, position, header } = found;
        let mut block = [0; BLOCK_BYTES as usize];
        let is_last = self.after.header.epoch > header.epoch;
        let file = &files[segment].file;
        let is_torn = is_last && read_around(&**file, &mut block, position)?.is_empty();
        Ok(Some(FoundBatch { segment, position, header, is_repaired: !is_torn, is_torn }))
    }

    /// The claimed batch, as the list of the one that claims it has it.
    fn find_listed(&self, files: &[Arc<SegmentFile>]) -> io::Result<Option<FoundCopy>> {
        let Some(list) = read_list(self.name, files, &self.claimer)? else { return Ok(None) };
        let BatchList { header, position, .. } = list;
        let segment = files.iter().position(|file| file.seq == header.segment);
        let fits = |segment: &usize| position + header.length() <= files[*segment].capacity;
        let segment = segment.filter(fits);
        Ok(segment.map(|segment| FoundCopy { segment, position, header }))
    }

    /// The claimed batch, by the copy of its headers.
    fn find_copy(&self, files: &[Arc<SegmentFile>]) -> io::Result<Option<FoundCopy>> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        for (segment, from, to) in self.blocks(files) {
            let file = &files[segment];
            for end in (from + BLOCK_BYTES..=to).rev().step_by(BLOCK_BYTES as usize) {
                read_around(&*file.file, &mut block, end - BLOCK_BYTES)?;
                let header = copy_in(self.name, &block, file.seq);
                let header = header.filter(|header| header.seq == self.claimed());
                if let Some(header) = header.filter(|header| from + header.length() <= end) {
                    let position = end - header.length();
                    return Ok(Some(FoundCopy { segment, position, header }));
                }
            }
        }
        Ok(None)
    }

    /// Records that the last batch in it, behind `before`, has no readable header.
    fn lose_header(&self, files: &[Arc<SegmentFile>], before: &FoundBatch, wal: &mut ScannedWal) {
        let after = &self.after;
        let places = self.blocks(files);
        let first = places.last().map(|(segment, from, _)| (*segment, *from));
        let (segment, position) = first.unwrap_or((after.segment.min(before.segment + 1), 0));
        let between = &files[before.segment..=after.segment];
        let is_missing = between.windows(2).any(|pair| pair[0].seq + 1 != pair[1].seq);
        let kind = if is_missing { DamageKind::SegmentMissing } else { DamageKind::BatchHeader };
        let last_file = Some(files[after.segment].path.clone());
        let damage = place_damage(kind, &files[segment], position);
        wal.damages.push(Damage { last_file, ..damage });
        let epoch = before.header.epoch;
        // Several headers in a row may be lost; the entries say which batch they belong to. A batch starts behind the
        // one before it, or where a segment does.
        for seq in (before.header.seq + 1..=self.claimed()).rev().take(4) {
            for &(segment, position, _) in &places {
                wal.live.push(LiveBatch::Headless { segment, position, seq, epoch });
            }
        }
    }

    /// Records that headers at the start of the oldest segment are lost.
    fn lose_first_headers(&self, files: &[Arc<SegmentFile>], wal: &mut ScannedWal) {
        let (segment, epoch) = (self.after.segment, self.after.header.epoch);
        wal.damages.push(place_damage(DamageKind::BatchHeader, &files[segment], 0));
        for seq in (1..=self.claimed()).rev().take(4) {
            wal.live.push(LiveBatch::Headless { segment, position: 0, seq, epoch });
        }
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
    fn new(name: WalName, file: &SegmentFile, batch: &'a FoundBatch, bytes: &'a [u8]) -> Self {
        let header = &batch.header;
        let place = BatchPlace { store: name.store, segment: file.seq, seq: header.seq };
        Self { header, place, bytes }
    }

    fn headers(&self) -> impl Iterator<Item = Option<EntryHeader>> {
        let copy = self.header.copy_position();
        (0..self.header.entry_count)
            .map(move |number| Some(entry_header((self.bytes, copy), self.place, number)?.value))
    }

    /// # Errors
    /// A [`NewerPlace`](crate::newer::NewerPlace) if a newer version has written one of them.
    fn check_version(&self, file: &Path, position: u64) -> io::Result<()> {
        let newer = (0..self.header.entry_count).find_map(|number| {
            let at = entry_header_position(number);
            let header = self.bytes.get(at..)?.get(..ENTRY_HEADER_BYTES)?;
            Some((at, EntryHeader::newer_in(header, self.place, number)?))
        });
        match newer {
            Some((at, newer)) => Err(newer.at(file, position + at as u64).into()),
            None => Ok(()),
        }
    }

    /// Whether every entry is what was written, but for single bits of headers: a torn write leaves out
    /// blocks and not bits.
    fn are_whole(&self) -> bool {
        self.headers().all(|header| {
            let payload = header.and_then(|header| header.payload(self.bytes));
            payload.is_some_and(|payload| payload.is_data_intact)
        })
    }

    /// Whether one of them is known to have been applied: what is wrong in the batch is damage, then. A note tells of
    /// older entries, and proves nothing.
    fn were_applied(&self, applied: &Applied<'_>) -> bool {
        let mut entries = self.headers().flatten().filter(|header| !header.is_note());
        self.header.epoch == applied.epoch && entries.any(|header| (applied.covers)(&header))
    }
}

/// What `claimer` has of the batch that it claims durable, if it lists that one and can be read.
pub(crate) fn read_list(
    name: WalName,
    files: &[Arc<SegmentFile>],
    claimer: &FoundBatch,
) -> io::Result<Option<BatchList>> {
    let header = &claimer.header;
    let mut bytes = vec![0; header.list_bytes as usize];
    if !bytes.is_empty() {
        let position = claimer.position + header.list_position();
        read_around(&*files[claimer.segment].file, &mut bytes, position)?;
    }
    let list = BatchList::decode(&bytes, name.store, name.wal);
    Ok(list.filter(|list| list.header.seq == header.durable))
}

/// The bytes of a batch whose header is intact, and whether all of them could be read.
pub(crate) fn read_batch(file: &SegmentFile, batch: &FoundBatch) -> io::Result<(Vec<u8>, bool)> {
    let length = usize::try_from(batch.header.length()).expect("batches are below 4 GiB");
    let mut bytes = vec![0; length];
    let unreadable = read_around(&*file.file, &mut bytes, batch.position)?;
    Ok((bytes, unreadable.is_empty()))
}

/// The entry header `number` of a batch, if it is intact, has a second copy (these start at `copy`) or can be repaired.
pub(crate) fn entry_header(
    (bytes, copy): (&[u8], Option<u64>),
    place: BatchPlace,
    number: u32,
) -> Option<Unsealed<EntryHeader>> {
    let position = entry_header_position(number);
    let decode = |position: usize| {
        let header = bytes.get(position..)?.get(..ENTRY_HEADER_BYTES)?;
        EntryHeader::decode_sealed(header, place, number)
    };
    let is_intact = |header: &Unsealed<EntryHeader>| !header.is_repaired;
    let found = decode(position);
    let from_copy = || {
        let copy = usize::try_from(copy?).ok()?;
        let header = decode(copy + position).filter(is_intact)?;
        Some(Unsealed { is_repaired: true, ..header })
    };
    let header = found.filter(is_intact).or_else(from_copy).or(found)?;
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
        read_around(&*file.file, &mut header, at)?;
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
        read_around(&*file.file, &mut bytes, position)?;
    }
    Ok((bytes, count))
}
