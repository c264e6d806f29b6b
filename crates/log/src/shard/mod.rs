//! One shard's log: the WAL it writes and the groups it owns.
//!
//! # Driving it
//! No thread, no clock and no IO on the write path in here. The owner calls, in a loop:
//! 1. [`ShardLog::append`] for what arrived; on [`AppendError::Backpressure`] it waits for a job;
//! 2. [`ShardLog::poll_sync`], runs the job, [`ShardLog::handle_synced`]; then applies each entry,
//!    calls [`ShardLog::place`] if its data was accepted, and [`ShardLog::applied`];
//! 3. [`ShardLog::wants_checkpoint`], and answers with [`ShardLog::checkpoint`];
//! 4. [`ShardLog::poll_work`] until it is `None`, runs the jobs elsewhere, hands each result to
//!    [`ShardLog::handle_work`].
//!
//! About every 100 ms: [`ShardLog::tick`]. When idle for a while, and before it stops: [`ShardLog::mark_durable`], then step 2 once more.
//!
//! # When background work is looked for
//! Most turns of a loop change nothing that a job waits for. `is_work_due` remembers that something did. A job ended, a segment
//! became full, an entry was refused, there is enough to seal, or data was dropped. A checkpoint was taken, other seals wait, or
//! recent bytes began a new piece. Debug builds look each time and assert that nothing is found without it.
//!
//! # Invariants
//! - One commit, one change of the WAL's files and one seal, merge or checkpoint in flight.
//! - A segment is reused only when a checkpoint of each group covers all its entries. A checkpoint is
//!   written only when chunks hold the data of all entries that it covers.

mod background;
#[cfg(test)]
mod check_tests;
mod drain;
mod installs;
mod quiet;
mod replicas;
mod sifts;
mod stats;

pub(crate) use self::drain::DrainedWal;
pub use self::{replicas::ReplicaError, stats::LogStats};

use crate::aim::{Aim, PlacedAppend};
use crate::checkpoint::CheckpointTask;
use crate::checkpoint_rows::CheckpointRows;
use crate::entry::{AppendBounds, DurableEntry, NewEntry};
use crate::extent::{Extent, Read};
use crate::group::Group;
use crate::hot::HotFields;
use crate::load::Load;
use crate::paths::checkpoint_dir;
use crate::read::{ReadError, ReadLimit, ReadMode, Slice};
use crate::store::Store;
use crate::wal::room::Purpose;
use crate::wal::segment::{SegmentTable, WalSegment};
use crate::wal::shard_wal::ShardWal;
use crate::wal::{AppendError, DurableBatch, SyncDone, SyncFailed, SyncJob};
use crate::work::{Spent, WorkJob};
use model::{ByteOffset, EntryIndex, GroupId, Placement, ShardId, StreamKey};
use std::cell::Cell;

/// One shard's log. Dropping all shards of a log closes it.
#[derive(Debug)]
pub struct ShardLog {
    pub(crate) store: Store,
    pub(crate) shard: ShardId,
    pub(crate) wal: ShardWal,
    pub(crate) slots: SegmentTable,
    /// Group `g` is at `g / shard_count`.
    pub(crate) groups: Vec<Group>,
    pub(crate) drained: Vec<DrainedWal>,
    /// Segments of other WALs that hold entries of our groups.
    pub(crate) foreign: Vec<WalSegment>,
    pub(crate) is_draining: bool,
    pub(crate) is_busy: bool,
    /// Something has changed that background work may have waited for.
    pub(crate) is_work_due: Cell<bool>,
    /// The last seal or checkpoint found no room.
    pub(crate) is_out_of_room: bool,
    /// The last job counted what is dead in chunks.
    pub(crate) has_just_counted: bool,
    /// The last look for work of a group gave out one chunk to sift: others come first.
    pub(crate) has_just_sifted: bool,
    /// Something may have died in chunks that was not counted.
    pub(crate) is_count_due: bool,
    /// Chunks sealed since a merge was last looked for.
    pub(crate) seals_since_merge: usize,
    pub(crate) load: Load,
    /// Mean size of a group's appends from which on its seal, and a checkpoint for which it is sealed, wait now.
    pub(crate) waiting_mean: u64,
    /// Where the search for a group that needs work continues.
    pub(crate) turn: usize,
    pub(crate) batches: u64,
    pub(crate) batch_bytes: u64,
    pub(crate) entries: u64,
    /// The segment of the last batch: notes of replicated groups that are in older ones are written again.
    pub(crate) note_slot: u16,
    /// Some of them could not be.
    pub(crate) are_notes_due: bool,
    /// Indexes that snapshots have taken the place of, to be dropped elsewhere.
    pub(crate) spent: Vec<Spent>,
}

// A shard's log moves to the thread of its loop once.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<ShardLog>();
};

impl ShardLog {
    /// The shard that owns this log.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Whether `group` belongs to this shard.
    #[must_use]
    pub fn owns(&self, group: GroupId) -> bool {
        group.get() < self.store.options.group_total()
            && group.shard(self.store.shard_count) == self.shard
    }

    fn group_index(&self, group: GroupId) -> usize {
        assert!(self.owns(group), "group {group} belongs to another shard than {}", self.shard);
        usize::from(group.get() / self.store.shard_count)
    }

    pub(crate) fn group(&self, group: GroupId) -> &Group {
        &self.groups[self.group_index(group)]
    }

    pub(crate) fn group_mut(&mut self, group: GroupId) -> &mut Group {
        let index = self.group_index(group);
        &mut self.groups[index]
    }

    /// Index that the next entry of `group` will get.
    #[must_use]
    pub fn next_index(&self, group: GroupId) -> EntryIndex {
        EntryIndex::new(self.group(group).next)
    }

    /// The last applied entry of `group`; a lost one at the end of the log counts as applied.
    ///
    /// Take checkpoints at this index, not at that of the last entry seen: a lost last entry would
    /// pin its WAL segment until the group gets another one.
    #[must_use]
    pub fn applied_index(&self, group: GroupId) -> EntryIndex {
        EntryIndex::new(self.group(group).applied())
    }

    /// As [`ShardLog::append_for`] does for data.
    ///
    /// # Errors
    /// As [`ShardLog::append_for`].
    ///
    /// # Panics
    /// As [`ShardLog::append_for`].
    pub fn append(&mut self, entry: NewEntry<'_>) -> Result<EntryIndex, AppendError> {
        self.append_for(Purpose::Data, entry)
    }

    /// Copies an entry into the open batch and gives it its index. Nothing is durable yet.
    ///
    /// # Errors
    /// [`AppendError`]: each says when to retry; nothing has changed.
    ///
    /// # Panics
    /// If the group belongs to another shard, or the entry is larger than the hard limits.
    pub fn append_for(
        &mut self,
        purpose: Purpose,
        entry: NewEntry<'_>,
    ) -> Result<EntryIndex, AppendError> {
        let index = self.next_index(entry.group);
        self.wal.append(index, (purpose, &entry)).inspect_err(|_| self.is_work_due.set(true))?;
        let group = self.group_mut(entry.group);
        group.next += 1;
        group.bytes_since_checkpoint += (entry.command.len() + entry.data.len() + 64) as u64;
        Ok(index)
    }

    /// Whether an entry with `payload_bytes` of command and data would be taken now.
    ///
    /// # Errors
    /// What [`ShardLog::append_for`] would answer.
    pub fn check_room(&mut self, purpose: Purpose, payload_bytes: u64) -> Result<(), AppendError> {
        self.wal.check_room(purpose, payload_bytes).inspect_err(|_| self.is_work_due.set(true))
    }

    /// Asks for an empty batch that claims everything before it durable.
    ///
    /// Until one is written, damage to the very last batch looks like a torn tail. Call it after
    /// idling for a while and before a clean stop, then drive the commit once more. Without new
    /// entries it does nothing.
    pub fn mark_durable(&mut self) {
        self.wal.mark_durable();
    }

    /// The next write and sync, if there is something to write and none is in flight.
    pub fn poll_sync(&mut self) -> Option<SyncJob> {
        self.finish_notes();
        let job = self.wal.poll_sync(&self.slots)?;
        // The first batch of a segment has retired the one before.
        self.note_work(job.place.position == 0 || self.wal.is_short_of_room());
        Some(job)
    }

    /// The next piece of background work; `None` if there is none that can start now.
    pub fn poll_work(&mut self) -> Option<WorkJob> {
        if self.is_poisoned() {
            return None;
        }
        self.look_what_waits();
        if !self.is_work_due.get() {
            #[cfg(debug_assertions)]
            assert!(self.next_task().is_none(), "work can start that nobody has noted");
            return None;
        }
        let task = self.next_task();
        self.is_work_due.set(task.is_some() || self.waits_for_others());
        task.map(|task| WorkJob { store: self.store.clone(), task: Box::new(task) })
    }

    /// Remembers that background work may be able to start, if it is so.
    fn note_work(&self, is_due: bool) {
        self.is_work_due.set(self.is_work_due.get() || is_due);
    }

    /// Takes the result of a commit.
    ///
    /// # Errors
    /// [`SyncFailed`]: the shard is poisoned, nothing is acknowledged any more.
    pub fn handle_synced(&mut self, done: SyncDone) -> Result<DurableBatch, SyncFailed> {
        let (batch, indexed) = self.wal.handle_synced(done)?;
        self.batches += 1;
        self.batch_bytes += batch.disk_bytes();
        self.entries += batch.len() as u64;
        let is_due = self.slots.keep(&batch);
        self.note_work(is_due);
        if let Some(indexed) = indexed {
            self.settle_indexed(&batch, &indexed);
        }
        if batch.place.position == 0 || self.are_notes_due {
            self.note_slot = batch.place.slot;
            self.renew_notes(self.note_slot);
        }
        Ok(batch)
    }

    /// Makes the data of an accepted entry readable. Entries come in order of their indexes.
    ///
    /// # Panics
    /// If the placement overlaps data that the stream has already.
    pub fn place(&mut self, entry: &DurableEntry, placement: Placement) {
        let fields = HotFields::of(entry, &placement, false);
        let at = (entry.index, self.slots.newest_piece());
        self.group_mut(entry.group).place(at, &placement, fields);
        self.note_seal(entry.group);
    }

    /// Records that the state machine has applied every entry of `group` up to `index`.
    pub fn applied(&mut self, group: GroupId, index: EntryIndex) {
        self.group_mut(group).set_applied(index.get());
    }

    /// Bytes of a stream from `from`: at most `max_bytes`, and at least one unless `from` is the
    /// tail. The slice may end early; ask again from its end.
    ///
    /// The log's tail may lie before the owner's if the last appends of a stream were reported as damaged.
    /// An empty slice before the owner's tail means that the bytes there are lost.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(
        &self,
        key: StreamKey,
        from: ByteOffset,
        max_bytes: usize,
    ) -> Result<Slice, ReadError> {
        self.read_in_mode(key, from, ReadLimit::anywhere(max_bytes), ReadMode::Blocking)
    }

    fn read_in_mode(
        &self,
        key: StreamKey,
        from: ByteOffset,
        limit: ReadLimit,
        mode: ReadMode,
    ) -> Result<Slice, ReadError> {
        let slots = (&self.slots, mode);
        let slice = self.group(key.group).read(key.stream, from.get(), limit, slots)?;
        self.note_seal(key.group);
        Ok(slice)
    }

    /// As [`ShardLog::read`], without waiting for a disk and within some 100 µs.
    ///
    /// # Errors
    /// As [`ShardLog::read`].
    pub fn try_read(
        &self,
        key: StreamKey,
        from: ByteOffset,
        limit: ReadLimit,
    ) -> Result<Read<Slice>, ReadError> {
        match self.read_in_mode(key, from, limit, ReadMode::Inline) {
            Err(error) if error.would_block() => {
                let extent = self.extent(key, from, limit.bytes)?;
                Ok(Read::Job(extent.expect("a read at the tail does not wait")))
            }
            result => result.map(Read::Ready),
        }
    }

    /// As [`ShardLog::append_at`], without waiting for a disk; the extent holds byte `at`.
    ///
    /// # Errors
    /// As [`ShardLog::read`].
    pub fn try_append_at(
        &self,
        key: StreamKey,
        at: ByteOffset,
    ) -> Result<Read<Option<AppendBounds>>, ReadError> {
        let slots = (&self.slots, ReadMode::Inline);
        match self.group(key.group).append_at(key.stream, at.get(), slots) {
            Err(error) if error.would_block() => {
                let extent = self.extent(key, at, 1)?;
                Ok(Read::Job(extent.expect("a read at the tail does not wait")))
            }
            result => result.map(Read::Ready),
        }
    }

    /// The stored bytes from `from` on that a read of `max_bytes` needs, and at least the rest of the
    /// append that holds `from`; `None` at the tail.
    ///
    /// # Errors
    /// As [`ShardLog::read`], except for damage that only a read of the bytes finds.
    pub fn extent(
        &self,
        key: StreamKey,
        from: ByteOffset,
        max_bytes: usize,
    ) -> Result<Option<Extent>, ReadError> {
        self.group(key.group).extent(key.stream, from.get(), max_bytes, &self.slots)
    }

    /// Learns what was found out about an extent where it was read.
    pub fn note_extent(&self, key: StreamKey, extent: &Extent) {
        self.group(key.group).note_extent(key.stream, extent);
        self.note_seal(key.group);
    }

    /// The append that contains byte `at`; `None` if `at` is the tail.
    ///
    /// # Errors
    /// As [`ShardLog::read`].
    pub fn append_at(
        &self,
        key: StreamKey,
        at: ByteOffset,
    ) -> Result<Option<AppendBounds>, ReadError> {
        let slots = (&self.slots, ReadMode::Blocking);
        self.group(key.group).append_at(key.stream, at.get(), slots)
    }

    /// The append of a stream that is looked for, with its number; `None` if there is none like that. Without waiting
    /// for a disk, as [`ShardLog::try_read`]; a job asks [`Extent::found`].
    ///
    /// # Errors
    /// As [`ShardLog::read`].
    pub fn try_find(
        &self,
        key: StreamKey,
        aim: Aim,
    ) -> Result<Read<Option<PlacedAppend>>, ReadError> {
        self.group(key.group).find_append(key.stream, aim, (&self.slots, ReadMode::Inline))
    }

    /// As [`ShardLog::try_find`], and waits.
    ///
    /// # Errors
    /// As [`ShardLog::read`].
    pub fn find(&self, key: StreamKey, aim: Aim) -> Result<Option<PlacedAppend>, ReadError> {
        let slots = (&self.slots, ReadMode::Blocking);
        match self.group(key.group).find_append(key.stream, aim, slots)? {
            Read::Ready(found) => Ok(found),
            Read::Job(extent) => extent.found(ReadMode::Blocking),
        }
    }

    /// End of the first append whose end is at or after `at`; `None` if the stream ends before.
    ///
    /// # Errors
    /// As [`ShardLog::read`].
    pub fn first_end_at_or_after(
        &self,
        key: StreamKey,
        at: ByteOffset,
    ) -> Result<Option<ByteOffset>, ReadError> {
        // The first append that ends at or after `at` is the one that contains the byte before it.
        let before = ByteOffset::new(at.get().saturating_sub(1));
        let found = match self.append_at(key, before) {
            Err(ReadError::Trimmed { head }) => self.append_at(key, head.max(before)),
            Err(ReadError::PastTail { .. }) => Ok(None),
            other => other,
        };
        Ok(found?.map(|append| append.end))
    }

    /// Offset after the last byte that the log holds of a stream; `None` if it holds none.
    #[must_use]
    pub fn tail(&self, key: StreamKey) -> Option<ByteOffset> {
        self.group(key.group).tail(key.stream, &self.slots).map(ByteOffset::new)
    }

    /// Drops all that the log holds of a deleted stream; its space returns in the background.
    pub fn forget(&mut self, key: StreamKey) {
        self.group_mut(key.group).forget(key.stream);
        self.is_count_due = true;
        self.is_work_due.set(true);
    }

    /// Drops what lies before `upto`. The owner's own entries record the trim and repeat it.
    pub fn trim(&mut self, key: StreamKey, upto: ByteOffset) {
        self.group_mut(key.group).trim(key.stream, upto);
        self.is_count_due = true;
        self.is_work_due.set(true);
    }

    /// Takes the state of `group` at `index`; it is written in the background when chunks hold
    /// everything up to there. A newer one replaces one that still waits.
    ///
    /// # Panics
    /// If `index` has not been applied.
    pub fn checkpoint(
        &mut self,
        group: GroupId,
        index: EntryIndex,
        header: Vec<u8>,
        rows: CheckpointRows,
    ) {
        let dir = checkpoint_dir(&self.store.root, group.get());
        let store = self.store.id;
        let term = self.checkpoint_term(group, index);
        let state = self.group_mut(group);
        assert!(index.get() <= state.applied(), "a checkpoint shows applied entries only");
        if index.get() <= state.checkpointed() {
            return;
        }
        (state.bytes_since_checkpoint, state.is_checkpoint_refused) = (0, false);
        let installs = state.installs;
        let task = CheckpointTask { store, dir, group, index, term, installs, header, rows };
        state.checkpoint_bytes = task.bytes();
        state.pending = Some(task);
        self.is_work_due.set(true);
    }

    /// The other answer to [`ShardLog::wants_checkpoint`]: no state of the group may stand for what is applied, until
    /// a snapshot is installed. Meanwhile its entries stay, and the log passes its bound rather than to wait for them.
    ///
    /// # Panics
    /// If the group belongs to another shard.
    pub fn refuse_checkpoint(&mut self, group: GroupId) {
        let refused = &mut self.group_mut(group).is_checkpoint_refused;
        if !std::mem::replace(refused, true) {
            self.is_work_due.set(true);
        }
    }

    /// Asserts what holds whenever no call is under way. Its cost grows with groups and segments, not
    /// with data: owners call it at the end of each turn in debug builds.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        self.slots.check();
        self.wal.check(&self.slots);
        for (number, group) in (0..).zip(&self.groups) {
            assert_eq!(self.group_index(group.id), number, "group {} is at its place", group.id);
            group.check();
        }
        let drained = self.drained.iter().flat_map(|wal| &wal.segments);
        for segment in drained.chain(&self.foreign) {
            let file = self.slots.get(segment.slot);
            assert_eq!(segment.capacity, file.capacity, "the size of segment {}", file.seq);
        }
    }

    /// Does what [`ShardLog::check`] does, and looks at each append in the WAL's index.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_all(&self) {
        self.check();
        self.groups.iter().for_each(|group| group.check_hot(&self.slots));
    }

    /// Whether a write or sync has failed: nothing is taken or acknowledged any more.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.wal.is_poisoned()
    }
}
