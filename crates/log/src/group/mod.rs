//! What the log knows of one group: its progress, and the places of its data.
//!
//! # Invariants
//! - `checkpointed <= sealed <= applied < next`.
//! - No append of an entry up to `sealed` is hot.

mod read;
pub(crate) mod replicated;
pub(crate) mod seal;

use crate::checkpoint::CheckpointTask;
use crate::chunk::floors::GONE;
use crate::chunk::leftovers::Leftovers;
use crate::chunk::set::ChunkSet;
use crate::directory::Directory;
use crate::entry::Note;
use crate::group::replicated::{KEEP_NONE, Replicated};
use crate::hot::{HotAppend, HotFields};
use crate::hot_index::{HotIndex, HotTotals};
use crate::options::{LogOptions, READS_PER_SEAL};
use crate::read::ReadMode;
use crate::snapshot::{Installing, Sifting};
use crate::wal::segment::{SegmentTable, WalSegment};
use model::{ByteOffset, EntryIndex, GroupId, Placement, StreamId};
use std::cell::Cell;

/// One group's part of a shard's log.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    /// Index that the next entry gets.
    pub(crate) next: u64,
    applied: u64,
    sealed: u64,
    checkpointed: u64,
    pub(crate) hot: HotIndex,
    /// Bytes that reads have fetched from places that are far from each other, since the last seal.
    far_read_bytes: Cell<u64>,
    /// The piece of memory that recent bytes filled when the first of what is hot was placed, or when the last seal began. 0 if it is
    /// not known to be in memory.
    first_piece: u64,
    pub(crate) chunks: ChunkSet,
    /// Files of replaced chunks that are still to be removed.
    pub(crate) leftovers: Leftovers,
    /// Log bytes since the last checkpoint was asked for.
    pub(crate) bytes_since_checkpoint: u64,
    pub(crate) pending: Option<CheckpointTask>,
    /// Its owner has said that there can be no checkpoint now.
    pub(crate) is_checkpoint_refused: bool,
    /// Size of the newest checkpoint.
    pub(crate) checkpoint_bytes: u64,
    /// Whether chunks changed since a merge was last looked for.
    pub(crate) merge_may_help: bool,
    /// Whether a seal, merge or checkpoint of this group is in flight.
    pub(crate) is_busy: bool,
    /// How many jobs of other groups go first, since the last one of this group failed.
    pub(crate) jobs_to_wait: u8,
    /// What a group with more than one replica has besides.
    pub(crate) replicated: Option<Box<Replicated>>,
    /// How many snapshots were installed: what was written before the last one is dead.
    pub(crate) installs: u16,
    /// A snapshot that is on its way.
    pub(crate) install: Option<Installing>,
    /// Of a damaged replica: up to where its chunks were looked at.
    pub(crate) sifting: Option<Sifting>,
}

impl Group {
    /// A group as its checkpoint and chunks describe it.
    pub(crate) fn new(id: GroupId, checkpointed: EntryIndex, chunks: ChunkSet) -> Self {
        let checkpointed = checkpointed.get();
        Self {
            id,
            next: checkpointed + 1,
            applied: checkpointed,
            sealed: checkpointed,
            checkpointed,
            hot: HotIndex::default(),
            far_read_bytes: Cell::new(0),
            first_piece: 0,
            chunks,
            leftovers: Leftovers::default(),
            bytes_since_checkpoint: 0,
            pending: None,
            is_checkpoint_refused: false,
            checkpoint_bytes: 0,
            merge_may_help: true,
            is_busy: false,
            jobs_to_wait: 0,
            replicated: None,
            installs: 0,
            install: None,
            sifting: None,
        }
    }

    /// Asserts what always holds of the positions: `checkpointed <= sealed <= applied < next`, and of
    /// what depends on them.
    pub(crate) fn check(&self) {
        let (checkpointed, sealed, applied) = (self.checkpointed, self.sealed(), self.applied);
        let next = self.next;
        assert!(
            checkpointed <= sealed && sealed <= applied && applied < next,
            "group {}: checkpointed {checkpointed}, sealed {sealed}, applied {applied}, next {next}",
            self.id
        );
        let pending = self.pending.as_ref().map_or(0, |task| task.index.get());
        assert!(pending <= applied, "group {}: a checkpoint at {pending} of {applied}", self.id);
        self.hot.check_totals();
        self.chunks.check();
        if let Some(replicated) = &self.replicated {
            replicated.check(applied, next);
        }
    }

    /// Asserts that the index of hot appends is in order, inside its segments, and adds up.
    pub(crate) fn check_hot(&self, slots: &SegmentTable) {
        self.hot.check(slots);
    }

    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    pub(crate) fn checkpointed(&self) -> u64 {
        self.checkpointed
    }

    pub(crate) fn hot_totals(&self) -> HotTotals {
        self.hot.totals()
    }

    /// Whether it is time to seal: because there is enough, or because reads have fetched as much, piece by piece, as
    /// there is to seal. What is enough waits where appends are `waiting_mean` bytes long.
    pub(crate) fn wants_seal(&self, options: &LogOptions, waiting_mean: u64) -> bool {
        let HotTotals { appends, bytes, .. } = self.hot_totals();
        let is_read_apart = self.far_read_bytes.get() >= bytes * READS_PER_SEAL;
        let is_large = bytes >= options.seal_bytes || options.are_many(appends);
        let is_enough = is_large && !self.has_long_appends(waiting_mean);
        appends > 0 && (is_enough || is_read_apart && options.is_worth_chunk(bytes))
    }

    /// Whether short appends should be sealed while they are still in memory.
    pub(crate) fn is_leaving(&self, options: &LogOptions, slots: &SegmentTable) -> bool {
        // Asked for each append, and mostly answered by the first of these.
        slots.is_leaving(self.first_piece) && {
            let totals = self.hot_totals();
            options.is_worth_chunk(totals.bytes) && totals.are_short()
        }
    }

    /// Whether what is hot has so few appends for its bytes.
    pub(crate) fn has_long_appends(&self, mean_bytes: u64) -> bool {
        let HotTotals { appends, bytes, .. } = self.hot_totals();
        appends > 0 && bytes / appends >= mean_bytes
    }

    /// Records that the state machine has applied everything up to `index`.
    ///
    /// # Panics
    /// If `index` was never appended.
    pub(crate) fn set_applied(&mut self, index: u64) {
        assert!(index < self.next, "entry {index} was never appended");
        self.applied = self.applied.max(index);
    }

    /// Whether a snapshot is about to take the place of all that is here.
    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self.install, Some(Installing::Ready(_) | Installing::Running))
    }

    fn is_hot(&self) -> bool {
        self.hot_totals().appends > 0
    }

    /// Everything up to here is in chunks (or never was data).
    pub(crate) fn sealed(&self) -> u64 {
        if self.is_hot() { self.sealed } else { self.applied }
    }

    /// Makes a replayed append readable, and returns whether only the WAL holds it. Data that a chunk
    /// holds already is left there. Behind what chunks cover there is no need to look.
    pub(crate) fn place_replayed(
        &mut self,
        index: EntryIndex,
        placement: &Placement,
        fields: HotFields,
    ) -> bool {
        let is_covered = index.get() <= self.chunks.covered();
        let is_only_here = !is_covered || !self.is_in_chunk(placement.stream, fields.start);
        if is_only_here {
            self.place((index, 0), placement, fields);
            if is_covered {
                self.hot.set_old();
            }
        }
        is_only_here
    }

    /// Whether a chunk surely has a byte; not if it cannot be read.
    fn is_in_chunk(&self, stream: StreamId, at: u64) -> bool {
        let found = self.chunks.list().find(stream.get(), at, ReadMode::Blocking);
        found.is_ok_and(|found| found.is_some())
    }

    /// Makes an accepted append readable, which is in a piece of memory up to this one, if recent bytes are kept.
    pub(crate) fn place(
        &mut self,
        (index, piece): (EntryIndex, u64),
        placement: &Placement,
        fields: HotFields,
    ) {
        // Entries are applied in order: all before a placed one have been applied.
        self.set_applied(index.get());
        if fields.length == 0 {
            return;
        }
        if !self.is_hot() {
            // Nothing before this entry is hot: keep that, now that something is.
            self.sealed = self.sealed.max(index.get() - 1);
            self.first_piece = piece;
        }
        self.hot.place(placement, HotAppend::new(fields));
    }

    /// Drops all that is known of a stream.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        let floor = self.chunks.floor(stream.get());
        self.hot.drop_before(stream, (floor, GONE));
        self.chunks.forget(stream.get());
        self.note_drop();
    }

    /// A committed entry has dropped something.
    fn note_drop(&mut self) {
        self.merge_may_help = true;
        if let Some(replicated) = &mut self.replicated {
            replicated.dropped_at = replicated.committed;
        }
    }

    /// Whether a start would know as committed what has dropped something. One that did not would miss what a merge has left out,
    /// and could not give it to others either.
    pub(crate) fn may_merge(&self) -> bool {
        let is_known = |it: &Replicated| it.dropped_at <= it.durable_commit.max(self.checkpointed);
        self.replicated.as_deref().is_none_or(is_known)
    }

    /// Drops what lies before `upto`.
    pub(crate) fn trim(&mut self, stream: StreamId, upto: ByteOffset) {
        let floor = self.chunks.floor(stream.get());
        if upto.get() <= floor {
            return;
        }
        self.hot.drop_before(stream, (floor, upto.get()));
        self.chunks.trim(stream.get(), upto.get());
        self.note_drop();
    }

    /// As [`Group::trim`], at the start: what is dead in chunks is known.
    pub(crate) fn drop_before(&mut self, stream: StreamId, floor: u64) {
        self.hot.drop_before(stream, (0, floor));
        if floor > 0 {
            self.chunks.trim(stream.get(), floor);
        }
    }

    /// Every stream that has data in the WAL, each once and in order.
    pub(crate) fn hot_streams(&self) -> Vec<StreamId> {
        self.hot.open.sorted().into_iter().map(|(stream, _)| stream).collect()
    }

    /// Whether `segment` has entries that no checkpoint covers.
    pub(crate) fn pins(&self, segment: &WalSegment) -> bool {
        segment.last[usize::from(self.id.get())] > self.checkpointed
    }

    /// Whether the newest durable note of the group is in `segment`.
    pub(crate) fn holds_note(&self, segment: &WalSegment) -> bool {
        self.replicated.as_ref().is_some_and(|it| it.note_slot == Some(segment.slot))
    }

    /// Whether `segment` can leave the WAL only when that has taken more. It has entries that are not committed: what commits or
    /// supersedes them may be an entry behind them, such as a new leader's first. Or there can be no checkpoint of them: what
    /// changes that is written, too. Or it has a note, and notes are due that found no room.
    pub(crate) fn waits_for_log(&self, segment: &WalSegment, are_notes_due: bool) -> bool {
        let is_uncommitted = segment.last[usize::from(self.id.get())] > self.applied;
        let is_uncommitted = self.replicated.is_some() && is_uncommitted;
        let is_kept = self.pins(segment) && (is_uncommitted || self.is_checkpoint_refused);
        is_kept || (are_notes_due && self.holds_note(segment))
    }

    /// Whether another replica may need entries.
    pub(crate) fn keeps_entries(&self) -> bool {
        self.replicated.as_ref().is_some_and(|it| it.keep_from != KEEP_NONE)
    }

    /// Whether another replica may need entries of a segment.
    pub(crate) fn keeps(&self, segment: &WalSegment) -> bool {
        let last = segment.last[usize::from(self.id.get())];
        self.replicated.as_ref().is_some_and(|it| last > 0 && it.keep_from <= last)
    }

    /// Forgets entries of a segment that is given up; a checkpoint covers them.
    pub(crate) fn give_up(&mut self, segment: &WalSegment) {
        let last = segment.last[usize::from(self.id.get())];
        if let Some(replicated) = &mut self.replicated {
            replicated.directory.compact(last);
        }
    }

    /// Whether a checkpoint now would unpin `segment`.
    pub(crate) fn could_unpin(&self, segment: &WalSegment) -> bool {
        self.pins(segment) && segment.last[usize::from(self.id.get())] <= self.applied
    }

    /// Whether a checkpoint waits, and for nothing more: all that it covers is sealed.
    pub(crate) fn is_ready(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.index.get() <= self.sealed())
    }

    /// Begins again behind a snapshot of entries up to `index`, which is durable here. Returns what was hot.
    pub(crate) fn begin_behind(&mut self, (index, term): (u64, u64), bytes: u64) -> HotIndex {
        assert!(self.applied < index, "a snapshot leads on");
        (self.next, self.applied) = (index + 1, index);
        (self.sealed, self.checkpointed) = (index, index);
        (self.pending, self.checkpoint_bytes, self.bytes_since_checkpoint) = (None, bytes, 0);
        self.installs += 1;
        self.is_checkpoint_refused = false;
        self.sifting = None;
        self.far_read_bytes.set(0);
        let replicated = self.replicated.as_mut().expect("a group with one voter gets no snapshot");
        replicated.directory = Directory::new(index, Some(term));
        replicated.committed = index;
        let commit = EntryIndex::new(index);
        replicated.note = replicated.note.map(|note| Note { commit, ..note });
        std::mem::take(&mut self.hot)
    }

    /// Records that a checkpoint at `index` is durable.
    pub(crate) fn set_checkpointed(&mut self, index: u64) {
        assert!(index <= self.sealed() && self.sealed() <= self.applied);
        assert!(self.applied < self.next);
        self.checkpointed = self.checkpointed.max(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    /// A group with two appends in the WAL, and the segment that holds them.
    fn group() -> (Group, SegmentTable) {
        let disk = env::MemoryDisk::new();
        let dir = std::path::Path::new("/w");
        env::Disk::create_dir_all(&disk, dir).unwrap();
        let segment =
            crate::wal::segment::create_segment(&disk, dir, 1, 8192, &Default::default()).unwrap();
        let mut slots = SegmentTable::forgetful(Arc::default());
        let slot = slots.insert(Arc::new(segment));
        let mut group = Group::new(GroupId::new(0), EntryIndex::new(5), ChunkSet::default());
        group.next = 9;
        for (index, start) in [(7, 0), (8, 100)] {
            let placement = Placement {
                stream: StreamId::new(1),
                start: ByteOffset::new(start),
                first_record: start / 100,
                record_count: 1,
                marks: None,
            };
            let fields = HotFields {
                start,
                length: 100,
                records: 1,
                at: model::Timestamp::new(1),
                slot,
                position: 4096,
                crc: 0,
                is_reported: false,
            };
            group.place((EntryIndex::new(index), 0), &placement, fields);
        }
        (group, slots)
    }

    fn holds(group: &Group, slots: &SegmentTable) -> bool {
        let check = || {
            group.check();
            group.check_hot(slots);
        };
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    }

    #[test]
    fn each_broken_invariant_is_found() {
        let (whole, slots) = group();
        assert!(holds(&whole, &slots));
        let breaks: [fn(&mut Group); 8] = [
            |group| group.next = group.applied,
            |group| group.applied = 5,
            |group| group.checkpointed = 7,
            |group| group.sealed = 4,
            |group| group.hot.open.totals.appends = 0,
            |group| group.hot.open.totals.appends += 1,
            |group| group.hot.open.totals.bytes -= 1,
            |group| group.hot.open.totals.streams += 1,
        ];
        for (number, damage) in breaks.iter().enumerate() {
            let (mut group, slots) = group();
            damage(&mut group);
            assert!(!holds(&group, &slots), "broken invariant {number} was not found");
        }
    }
}
