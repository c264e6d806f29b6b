//! One shard's writer: its open batch, its segments and the group commit over them.
//!
//! # Driving it
//! `append` until it pushes back; `poll_sync`, run the job, `handle_synced`; and its segments as `supply`
//! says. All by one owner.
//!
//! # Invariants
//! - An entry is accepted only if the segments at hand have room for its batch: a full disk is
//!   known before an entry has an index.
//! - Data leaves some room at hand for upkeep. A full disk makes a segment for upkeep of the last room.
//! - Segments leave the WAL oldest first, so that what remains is one unbroken chain of batches.
//! - `retired < active < spares` by segment number, and every batch lies behind the one before.

mod by_index;
mod supply;

use crate::entry::NewEntry;
use crate::options::{BLOCK_BYTES, ENTRY_COMMAND_BYTES_MAX, ENTRY_DATA_BYTES_MAX, LogOptions};
use crate::wal::batch::{ClosedBatch, DurableBatch, OpenBatch, SyncDone, SyncJob};
use crate::wal::group_commit::{GroupCommit, SyncFailed};
use crate::wal::indexed::{IndexedBatches, IndexedPart};
use crate::wal::layout::{BatchHeader, Seeds, WritePlace, batch_bytes};
use crate::wal::room::{Purpose, WalRoom};
use crate::wal::segment::{SegmentTable, WalSegment};
use model::EntryIndex;
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What data leaves at hand while all room at hand is for upkeep: more than any segment has.
const ALL_BYTES: u64 = 1 << 62;

/// Why an entry was not taken. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendError {
    /// The disk has no room. Retry after background work made some.
    DiskFull,
    /// A write or sync failed: the shard takes nothing any more.
    Poisoned,
    /// Run what `poll_sync` and `poll_work` give, hand the results back, then retry.
    Backpressure,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskFull => "the disk is full",
            Self::Poisoned => "a write to the log has failed",
            Self::Backpressure => "the log is busy",
        })
    }
}

impl std::error::Error for AppendError {}

/// What does not change between the opening of a WAL and its end.
#[derive(Debug)]
pub(crate) struct WalIdentity {
    pub(crate) store: u64,
    pub(crate) wal: u16,
    pub(crate) epoch: u64,
    pub(crate) dir: PathBuf,
}

/// What recovery found of a WAL.
#[derive(Debug, Default)]
pub(crate) struct WalStart {
    /// Segments with entries, oldest first.
    pub(crate) retired: VecDeque<WalSegment>,
    /// Filled segments without a batch.
    pub(crate) spares: VecDeque<WalSegment>,
    pub(crate) segment_next: u64,
    pub(crate) batch_next: u64,
    pub(crate) durable: u64,
    /// The last batch, as the next one has to list it.
    pub(crate) list: Vec<u8>,
}

#[derive(Debug)]
struct Active {
    segment: WalSegment,
    position: u64,
}

/// One shard's writer.
#[derive(Debug)]
pub(crate) struct ShardWal {
    identity: WalIdentity,
    options: LogOptions,
    batch: OpenBatch,
    commit: GroupCommit,
    batch_next: u64,
    retired: VecDeque<WalSegment>,
    active: Option<Active>,
    spares: VecDeque<WalSegment>,
    segment_next: u64,
    room: WalRoom,
    /// What data leaves at hand.
    kept_bytes: u64,
    /// Room for data that no segment at hand has, with what data leaves; 0 if none is wanted.
    wanted_bytes: u64,
    /// The same for upkeep.
    wanted_upkeep_bytes: u64,
    disk_is_full: bool,
    /// There is no room even for upkeep.
    has_no_last_room: bool,
    is_filling: bool,
    /// Something waits for the segment that is being filled.
    is_awaited: Arc<AtomicBool>,
    mark_wanted: bool,
    /// Whether the last batch holds no entries, so that all entries are claimed durable.
    is_marked: bool,
    /// Batches with entries of replicated groups, in memory.
    indexed: IndexedBatches,
}

impl ShardWal {
    pub(crate) fn new(
        identity: WalIdentity,
        (options, shard_count): (LogOptions, u16),
        start: WalStart,
    ) -> Self {
        assert!(start.durable < start.batch_next);
        let room = WalRoom::new(&options, shard_count);
        let seeds = Seeds::new(identity.store, identity.wal);
        let marks_empty = options.marks_empty;
        Self {
            kept_bytes: room.kept_at_hand_bytes,
            room,
            identity,
            batch: OpenBatch::new(options.batch_bytes_max, seeds, start.list),
            options,
            commit: GroupCommit::new(start.durable),
            batch_next: start.batch_next,
            retired: start.retired,
            active: None,
            spares: start.spares,
            segment_next: start.segment_next,
            wanted_bytes: 0,
            wanted_upkeep_bytes: 0,
            disk_is_full: false,
            has_no_last_room: false,
            is_filling: false,
            is_awaited: Arc::default(),
            mark_wanted: false,
            is_marked: start.durable == 0 && !marks_empty,
            indexed: IndexedBatches::default(),
        }
    }

    /// Asserts what always holds: the order of segments, what is written of the active one, what the
    /// spares hold, and what is durable.
    pub(crate) fn check(&self, slots: &SegmentTable) {
        self.commit.check(self.batch_next);
        self.batch.check();
        let mut before = 0;
        for segment in self.segments() {
            let file = slots.get(segment.slot);
            assert!(before < file.seq, "segment {} is not behind segment {before}", file.seq);
            assert_eq!(segment.capacity, file.capacity, "the size of segment {}", file.seq);
            before = file.seq;
        }
        assert!(before < self.segment_next, "segment {before} has the number of a later one");
        if let Some(Active { segment, position }) = &self.active {
            assert!(*position <= segment.capacity, "a batch never extends a segment");
            assert!(position.is_multiple_of(BLOCK_BYTES), "batches are whole blocks");
        }
        let is_unused = |spare: &WalSegment| spare.last.iter().all(|last| *last == 0);
        assert!(self.spares.iter().all(is_unused), "a spare segment holds no entry");
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.commit.is_poisoned()
    }

    /// Takes nothing any more.
    pub(crate) fn poison(&mut self) {
        self.commit.poison();
    }

    /// Bytes of all segments, spare ones included.
    pub(crate) fn wal_bytes(&self) -> u64 {
        self.segments().map(|segment| segment.capacity).sum()
    }

    /// Bytes of segments that hold batches.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.wal_bytes() - self.spare_bytes()
    }

    fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|segment| segment.capacity).sum()
    }

    /// Whether less is kept ready for data than one segment of the usual size.
    fn wants_spare(&self) -> bool {
        self.is_on_last_room() || self.spare_bytes() < self.room.segment_bytes
    }

    /// The room that the WAL has on the disk.
    pub(crate) fn room(&self) -> &WalRoom {
        &self.room
    }

    /// Learns what is free on the disk, and the size of the largest checkpoint.
    pub(crate) fn note_room(&mut self, free_bytes: u64, checkpoint_bytes: u64) {
        self.room.note(self.wal_bytes(), free_bytes, checkpoint_bytes);
        if !self.is_on_last_room() {
            self.kept_bytes = self.room.kept_at_hand_bytes;
        }
    }

    fn segments(&self) -> impl Iterator<Item = &WalSegment> {
        let active = self.active.iter().map(|active| &active.segment);
        self.retired.iter().chain(active).chain(&self.spares)
    }

    /// Segments that are not written any more.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// The oldest segment that is not written any more.
    pub(crate) fn oldest(&self) -> Option<&WalSegment> {
        self.retired.front()
    }

    /// Adds an entry to the open batch.
    ///
    /// # Errors
    /// [`AppendError`]; nothing has changed then.
    ///
    /// # Panics
    /// If the entry is larger than the limits: the caller bounds its bodies far below them.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        index: EntryIndex,
        (purpose, entry): (Purpose, &NewEntry<'_>),
    ) -> Result<(), AppendError> {
        assert!(entry.command.len() <= ENTRY_COMMAND_BYTES_MAX, "the command is too large");
        assert!(entry.data.len() <= ENTRY_DATA_BYTES_MAX, "the data is too large");
        self.check_room(purpose, (entry.command.len() + entry.data.len()) as u64)?;
        self.batch.push(index, entry);
        Ok(())
    }

    /// Whether an entry with `payload_bytes` of command and data would be taken now; if not for
    /// want of a segment, one that holds it is asked for.
    pub(crate) fn check_room(
        &mut self,
        purpose: Purpose,
        payload_bytes: u64,
    ) -> Result<(), AppendError> {
        if self.commit.is_poisoned() {
            return Err(AppendError::Poisoned);
        }
        let bytes = self.batch.bytes_with(1, payload_bytes);
        if bytes > self.options.batch_bytes_max && !self.batch.is_empty() {
            return Err(AppendError::Backpressure);
        }
        let kept_bytes = if purpose == Purpose::Data { self.kept_bytes } else { 0 };
        if self.active.as_ref().is_some_and(|active| active.room() >= bytes + kept_bytes) {
            return Ok(());
        }
        self.check_room_behind(purpose, bytes, payload_bytes)
    }

    /// Whether a batch of `bytes` goes into what the active segment has left or into a spare one.
    #[cold]
    fn check_room_behind(
        &mut self,
        purpose: Purpose,
        bytes: u64,
        payload_bytes: u64,
    ) -> Result<(), AppendError> {
        let single_bytes = batch_bytes(1, payload_bytes);
        let (has_room, is_full) = match purpose {
            Purpose::Data => (self.has_data_room(bytes), self.disk_is_full),
            Purpose::Upkeep => (self.has_room(bytes), self.has_no_last_room),
        };
        if has_room {
            return Ok(());
        }
        let (wanted, with) = match purpose {
            Purpose::Data => (&mut self.wanted_bytes, self.room.kept_at_hand_bytes),
            Purpose::Upkeep => (&mut self.wanted_upkeep_bytes, 0),
        };
        *wanted = (*wanted).max(single_bytes + with);
        self.note_awaited();
        Err(if is_full { AppendError::DiskFull } else { AppendError::Backpressure })
    }

    /// Whether a batch of `bytes` that brings data leaves enough for upkeep: behind it, or in a spare segment.
    fn has_data_room(&self, bytes: u64) -> bool {
        let is_active_enough = self.active.as_ref().is_some_and(|active| active.room() >= bytes);
        !self.is_on_last_room()
            && ((is_active_enough && !self.spares.is_empty())
                || self.has_room(bytes + self.kept_bytes))
    }

    /// Whether all room at hand is for upkeep: some of it is the disk's last.
    fn is_on_last_room(&self) -> bool {
        self.kept_bytes == ALL_BYTES
    }

    /// Bytes of the segments at hand that data may still take.
    pub(crate) fn data_room(&self) -> u64 {
        let active = self.active.iter().map(|active| active.room());
        let bytes: u64 = active.chain(self.spares.iter().map(|spare| spare.capacity)).sum();
        bytes.saturating_sub(self.kept_bytes)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.active.as_ref().is_some_and(|active| active.room() >= bytes)
            || self.spares.iter().any(|spare| spare.capacity >= bytes)
    }

    /// Whether an entry was refused that no segment at hand can take.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits_data = self.is_on_last_room() || !self.has_room(self.wanted_bytes);
        let waits_upkeep = !self.has_room(self.wanted_upkeep_bytes);
        (self.wanted_bytes > 0 && waits_data) || (self.wanted_upkeep_bytes > 0 && waits_upkeep)
    }

    /// Whether there was no room for a segment when it was last tried to make one.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_is_full
    }

    /// Whether so little room is left that another segment may be made.
    pub(crate) fn is_short_of_room(&self) -> bool {
        let is_full = |active: &Active| active.room() < BLOCK_BYTES;
        let is_wanted = self.wanted_bytes > 0 || self.wanted_upkeep_bytes > 0;
        is_wanted || self.disk_is_full || self.active.as_ref().is_some_and(is_full)
    }

    /// Asks for an empty batch that claims all entries durable.
    pub(crate) fn mark_durable(&mut self) {
        self.mark_wanted = true;
    }

    /// Whether entries or notes wait for the next batch to be written, and none is in flight.
    pub(crate) fn has_batch(&self) -> bool {
        self.commit.is_idle() && !self.batch.is_empty()
    }

    /// The next batch to write, if none is in flight.
    pub(crate) fn poll_sync(&mut self, slots: &SegmentTable) -> Option<SyncJob> {
        if !self.commit.is_idle() {
            return None;
        }
        if self.batch.is_empty() {
            let is_wanted = self.mark_wanted && !self.is_marked && self.has_room(BLOCK_BYTES);
            if !is_wanted {
                return None;
            }
        }
        self.mark_wanted = false;
        self.is_marked = self.batch.is_empty();
        let mut bytes = self.batch.bytes_with_list();
        if !self.has_room(bytes) {
            self.batch.drop_list();
            bytes = self.batch.bytes_with_list();
        }
        self.make_room(bytes);
        let active = self.active.as_mut().expect("room was checked when entries were accepted");
        let file = slots.get(active.segment.slot);
        let header = BatchHeader {
            wal: self.identity.wal,
            segment: file.seq,
            seq: self.batch_next,
            durable: self.commit.durable(),
            epoch: self.identity.epoch,
            payload_bytes: 0,
            entry_count: 0,
            list_bytes: 0,
            note_count: 0,
        };
        let batch = self.batch.close((header, active.position), &mut active.segment.last);
        let place = WritePlace { slot: active.segment.slot, position: active.position };
        if batch.indexed.is_some() {
            let (headers, payload) = (batch.headers.clone(), batch.payload.clone());
            self.indexed.start(self.batch_next, place, headers, payload);
        }
        active.position += bytes;
        assert!(active.position <= active.segment.capacity, "a batch never extends a segment");
        self.commit.start(self.batch_next);
        self.batch_next += 1;
        Some(SyncJob { file: Arc::clone(&file.file), place, batch })
    }

    /// Moves on to the next segment that takes `bytes` if the active one does not.
    fn make_room(&mut self, bytes: u64) {
        while self.active.as_ref().is_none_or(|active| active.room() < bytes) {
            let next = self.spares.pop_front().expect("room was checked");
            let full = self.active.replace(Active { segment: next, position: 0 });
            self.retired.extend(full.map(|active| active.segment));
        }
    }

    /// Takes the result of a commit.
    ///
    /// # Errors
    /// [`SyncFailed`]: the WAL is poisoned.
    pub(crate) fn handle_synced(
        &mut self,
        done: SyncDone,
    ) -> Result<(DurableBatch, Option<Box<IndexedPart>>), SyncFailed> {
        let durable = self.commit.handle_synced(done.result)?;
        let ClosedBatch { headers, payload, list, data_bytes, indexed } = done.batch;
        let (place, list_bytes) = (done.place, list.len());
        self.batch.reuse(headers.clone(), payload.clone(), list);
        let mut note_count = 0;
        if let Some(indexed) = &indexed {
            note_count = indexed.notes.len();
            self.indexed.finish();
        }
        let batch =
            DurableBatch { durable, place, headers, payload, list_bytes, data_bytes, note_count };
        Ok((batch, indexed))
    }

    /// Which opening of the store writes it.
    pub(crate) fn epoch(&self) -> u64 {
        self.identity.epoch
    }

    /// The directory of the WAL's files.
    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.identity.dir
    }

    /// Whether a filled segment is at hand.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spares.is_empty()
    }

    /// Number that the next segment gets.
    pub(crate) fn segment_next(&self) -> u64 {
        self.segment_next
    }

    /// Records that there is no room: the first segment could not be made, or nothing can leave the WAL.
    pub(crate) fn set_disk_full(&mut self) {
        self.disk_is_full = true;
    }
}

impl Active {
    fn room(&self) -> u64 {
        self.segment.capacity - self.position
    }
}

/// What tests of the check break.
#[cfg(test)]
impl ShardWal {
    pub(crate) fn move_by(&mut self, bytes: u64) {
        self.active.as_mut().expect("a batch was written").position += bytes;
    }

    pub(crate) fn batch_mut(&mut self) -> &mut OpenBatch {
        &mut self.batch
    }

    pub(crate) fn commit_mut(&mut self) -> &mut GroupCommit {
        &mut self.commit
    }
}
