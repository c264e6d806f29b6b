//! Groups with more than one replica: entries at a given index and term, notes, and entries by index.
//!
//! # Driving it
//! [`ShardLog::replicate`] once for a group; from then on, and after each start that finds a note of it:
//! 1. [`ShardLog::append_entry`] for each entry, its own or a leader's; [`ShardLog::note`] for what must not be forgotten.
//!    Both go into the open batch, [`ShardLog::open_batch`]. One sync makes them durable, all of them or none.
//! 2. [`ShardLog::commit`] when entries are committed. Only then apply them, in order: those that the owner kept from their
//!    [`crate::DurableBatch`], or what [`ShardLog::entries`] finds. Call `place` and `applied` as for any group.
//!
//! # Invariants
//! - No entry up to the committed index is ever superseded.
//! - The newest durable note of a group is in a segment that stays: each new segment gets it again.

use crate::directory::{Directory, Whereabouts};
use crate::entry::{NewEntry, Note};
use crate::group::Group;
use crate::group::replicated::{KEEP_NONE, Replicated};
use crate::shard::ShardLog;
use crate::stored::{EntryError, EntryOnDisk, EntryRead, StoredEntry, Wanted};
use crate::wal::indexed::IndexedPart;
use crate::wal::layout::{ENTRY_HEADER_BYTES, EntryHeader};
use crate::wal::room::Purpose;
use crate::wal::{AppendError, DurableBatch};
use model::{EntryIndex, GroupId, Term};
use std::fmt;
use std::sync::Arc;

/// Why an entry, a note or a commit was not taken. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaError {
    /// The group has one voter: the log counts its entries.
    NotReplicated,
    /// Entries between the last one and this one are missing.
    Gap {
        /// The last entry of the log.
        last: EntryIndex,
    },
    /// An entry that is committed would be superseded.
    Committed {
        /// The last committed entry.
        committed: EntryIndex,
    },
    /// The term is lower than that of the entry before, or of the note before.
    TermFalls {
        /// That term.
        before: Term,
    },
    /// A snapshot is about to take the place of the group's log: nothing is taken until it has.
    Installing,
    /// Entries are said to be committed that the log does not have.
    CommitBehindTheEnd {
        /// The last entry of the log.
        last: EntryIndex,
    },
    /// The log has no room now, or is poisoned.
    Refused(AppendError),
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReplicated => f.write_str("the group is not replicated"),
            Self::Gap { last } => write!(f, "entries are missing: the log ends at entry {last}"),
            Self::Committed { committed } => {
                write!(f, "what is committed stays: all up to entry {committed} is")
            }
            Self::TermFalls { before } => write!(f, "the term falls: it was {before} before"),
            Self::CommitBehindTheEnd { last } => {
                write!(f, "what is not there is not committed: the log ends at entry {last}")
            }
            Self::Installing => f.write_str("a snapshot is being installed"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplicaError {}

impl From<AppendError> for ReplicaError {
    fn from(error: AppendError) -> Self {
        Self::Refused(error)
    }
}

impl ShardLog {
    /// Makes a group replicated from here on: its entries so far are committed, and the last one has the term `last_term`.
    /// It is so for good when the open batch is durable.
    ///
    /// # Errors
    /// [`ReplicaError::CommitBehindTheEnd`] if `note` commits more than there is; [`ReplicaError::Refused`].
    ///
    /// # Panics
    /// If the group is replicated, or not all of it is applied.
    pub fn replicate(
        &mut self,
        group: GroupId,
        note: Note,
        last_term: Term,
    ) -> Result<(), ReplicaError> {
        let state = self.group_mut(group);
        let last = state.next - 1;
        assert!(state.replicated.is_none(), "group {group} is replicated");
        assert_eq!(state.applied(), last, "all of group {group} is applied");
        if note.commit.get() > last {
            return Err(ReplicaError::CommitBehindTheEnd { last: EntryIndex::new(last) });
        }
        let note = Note { commit: EntryIndex::new(last), ..note };
        self.wal.note(EntryHeader::note(group, &note, last))?;
        self.group_mut(group).replicated = Some(Box::new(Replicated {
            directory: Directory::new(last, Some(last_term.get())),
            committed: last,
            note: Some(note),
            note_slot: None,
            is_noted: true,
            durable_commit: 0,
            dropped_at: 0,
            keep_from: KEEP_NONE,
        }));
        Ok(())
    }

    /// Whether the group is replicated.
    #[must_use]
    pub fn is_replicated(&self, group: GroupId) -> bool {
        self.group(group).replicated.is_some()
    }

    fn replicated(&self, group: GroupId) -> Result<&Replicated, ReplicaError> {
        self.group(group).replicated.as_deref().ok_or(ReplicaError::NotReplicated)
    }

    fn check_thawed(&self, group: GroupId) -> Result<(), ReplicaError> {
        let is_frozen = self.group(group).is_frozen();
        if is_frozen { Err(ReplicaError::Installing) } else { Ok(()) }
    }

    /// Whether the open batch has entries or notes, and no commit is in flight.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.wal.has_batch()
    }

    /// Number of the batch that [`ShardLog::append_entry`] and [`ShardLog::note`] add to:
    /// [`crate::Durable::batch`] of its proof.
    #[must_use]
    pub fn open_batch(&self) -> u64 {
        self.wal.open_batch()
    }

    /// Copies an entry into the open batch at `index`, under its term. If there is one already, that one and all behind it are
    /// superseded: they are gone when the batch is durable, and not before.
    ///
    /// # Errors
    /// [`ReplicaError`]: nothing has changed.
    ///
    /// # Panics
    /// If the group belongs to another shard, or the entry is larger than the hard limits.
    pub fn append_entry(
        &mut self,
        purpose: Purpose,
        index: EntryIndex,
        entry: NewEntry<'_>,
    ) -> Result<(), ReplicaError> {
        self.check_thawed(entry.group)?;
        let supersedes = self.check_append(index, entry.term, entry.group)?;
        let installs = self.group(entry.group).installs;
        self.renew_note(entry.group)?;
        let appended = self.wal.append_indexed(index, supersedes, installs, (purpose, &entry));
        let place = appended.inspect_err(|_| self.is_work_due.set(true))?;
        let group = self.group_mut(entry.group);
        let bytes = entry.command.len() + entry.data.len() + ENTRY_HEADER_BYTES;
        group.bytes_since_checkpoint += bytes as u64;
        group.next = index.get() + 1;
        let replicated = group.replicated.as_mut().expect("it was checked");
        replicated.directory.truncate(index.get(), drop);
        replicated.directory.push(entry.term.get(), place);
        Ok(())
    }

    /// Whether an entry may be appended there; says whether others are superseded.
    fn check_append(
        &self,
        index: EntryIndex,
        term: Term,
        group: GroupId,
    ) -> Result<bool, ReplicaError> {
        let Replicated { directory, committed, .. } = self.replicated(group)?;
        let (index, last) = (index.get(), directory.last());
        if index > last + 1 {
            return Err(ReplicaError::Gap { last: EntryIndex::new(last) });
        }
        if index <= *committed {
            return Err(ReplicaError::Committed { committed: EntryIndex::new(*committed) });
        }
        match directory.term_of(index - 1) {
            Some(before) if before > term.get() => {
                Err(ReplicaError::TermFalls { before: Term::new(before) })
            }
            _ => Ok(index <= last),
        }
    }

    /// Adds a note to the open batch; it takes the place of the one before. Entries up to its commit are committed.
    ///
    /// # Errors
    /// [`ReplicaError`]: nothing has changed.
    pub fn note(&mut self, group: GroupId, note: Note) -> Result<(), ReplicaError> {
        let replicated = self.replicated(group)?;
        let before = replicated.note.map_or(Term::new(0), |note| note.term);
        if note.term < before {
            return Err(ReplicaError::TermFalls { before });
        }
        let commit = self.check_commit(replicated, note.commit)?;
        let note = Note { commit: EntryIndex::new(commit), ..note };
        self.put_note(group, note)?;
        Ok(())
    }

    /// The record of a note, with what its group is now.
    fn note_header(&self, group: GroupId, note: &Note) -> EntryHeader {
        let Group { next, installs, .. } = self.group(group);
        EntryHeader { installs: *installs, ..EntryHeader::note(group, note, next - 1) }
    }

    pub(crate) fn put_note(&mut self, group: GroupId, note: Note) -> Result<(), AppendError> {
        let header = self.note_header(group, &note);
        self.wal.note(header).inspect_err(|_| self.is_work_due.set(true))?;
        let replicated = self.group_mut(group).replicated.as_mut().expect("it was checked");
        replicated.note = Some(note);
        replicated.committed = note.commit.get();
        replicated.is_noted = true;
        Ok(())
    }

    /// Records that all entries of a group up to `index` are committed: they are never superseded. It is not written;
    /// the next note is.
    ///
    /// # Errors
    /// [`ReplicaError::CommitBehindTheEnd`], [`ReplicaError::NotReplicated`].
    pub fn commit(&mut self, group: GroupId, index: EntryIndex) -> Result<(), ReplicaError> {
        self.check_thawed(group)?;
        let commit = self.check_commit(self.replicated(group)?, index)?;
        let replicated = self.group_mut(group).replicated.as_mut().expect("it was checked");
        replicated.committed = commit;
        Ok(())
    }

    /// The last committed entry, if all up to `index` is committed.
    fn check_commit(&self, of: &Replicated, index: EntryIndex) -> Result<u64, ReplicaError> {
        let last = of.directory.last();
        if index.get() > last {
            return Err(ReplicaError::CommitBehindTheEnd { last: EntryIndex::new(last) });
        }
        Ok(of.committed.max(index.get()))
    }

    /// What was noted last, in the open batch or before. `None` if the group is not replicated, or its note is lost.
    #[must_use]
    pub fn last_note(&self, group: GroupId) -> Option<Note> {
        self.replicated(group).ok()?.note
    }

    /// The last entry that is known as committed. For a group with one voter, the last applied one.
    #[must_use]
    pub fn committed_index(&self, group: GroupId) -> EntryIndex {
        let state = self.group(group);
        let committed = state.replicated.as_ref().map(|replicated| replicated.committed);
        EntryIndex::new(committed.unwrap_or(state.applied()))
    }

    /// The first entry that [`ShardLog::entries`] can give back, if there is one: none for a group with one voter.
    #[must_use]
    pub fn first_index(&self, group: GroupId) -> Option<EntryIndex> {
        let directory = &self.replicated(group).ok()?.directory;
        let first = directory.base() + 1;
        (first <= directory.last()).then_some(EntryIndex::new(first))
    }

    /// The last entry of the log, durable or not.
    #[must_use]
    pub fn last_index(&self, group: GroupId) -> EntryIndex {
        EntryIndex::new(self.group(group).next - 1)
    }

    /// The term of an entry that [`ShardLog::entries`] can give back, or of the one before the first of them.
    #[must_use]
    pub fn term_of(&self, group: GroupId, index: EntryIndex) -> Option<Term> {
        self.replicated(group).ok()?.directory.term_of(index.get()).map(Term::new)
    }

    /// Keeps entries from `index` on for another replica, or none: as long as the WAL takes no more than half of its bound and
    /// nothing waits for room. So a follower that was away for a while needs no snapshot.
    ///
    /// # Errors
    /// [`ReplicaError::NotReplicated`].
    pub fn keep_from(
        &mut self,
        group: GroupId,
        index: Option<EntryIndex>,
    ) -> Result<(), ReplicaError> {
        self.replicated(group)?;
        let replicated = self.group_mut(group).replicated.as_mut().expect("it was checked");
        let before = replicated.keep_from;
        replicated.keep_from = index.map_or(KEEP_NONE, EntryIndex::get);
        let is_released = before < replicated.keep_from;
        self.is_work_due.set(self.is_work_due.get() || is_released);
        Ok(())
    }

    /// Entries from `from` on, up to `bytes_max` bytes of commands and data, and one at least. They may be in the open batch.
    /// What a job reads may have been superseded meanwhile: compare terms.
    ///
    /// # Errors
    /// [`EntryError`], but for damage: only a read finds that.
    pub fn entries(
        &self,
        group: GroupId,
        from: EntryIndex,
        bytes_max: u64,
    ) -> Result<EntryRead, EntryError> {
        let replicated = self.replicated(group).map_err(|_| EntryError::NotReplicated)?;
        let directory = &replicated.directory;
        let (first, last) = (directory.base() + 1, directory.last());
        if from.get() > last {
            return Err(EntryError::BehindTheEnd { last: EntryIndex::new(last) });
        }
        if from.get() < first {
            return Err(EntryError::Released { first: EntryIndex::new(first) });
        }
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        for index in (from.get()..=last).map(EntryIndex::new) {
            let (entry, entry_bytes) = self.want(group, index, directory);
            if bytes + entry_bytes > bytes_max && !wanted.is_empty() {
                break;
            }
            bytes += entry_bytes;
            wanted.push(entry);
        }
        Ok(EntryRead { store: self.store.id, wanted, bytes_max })
    }

    /// An entry, or where it is, with the bytes that it takes: of one on the disk those of its header are known.
    fn want(&self, group: GroupId, index: EntryIndex, directory: &Directory) -> (Wanted, u64) {
        let place = directory.place_of(index.get()).expect("the caller has looked");
        let term = directory.term_of(index.get()).expect("each entry has a term");
        let (batch, number) = match place.whereabouts() {
            Whereabouts::Batch { number } => (None, number),
            Whereabouts::Disk { batch, number } => (Some(batch), number),
        };
        if let Some((header, command, data)) = self.wal.entry_in_memory(place) {
            let bytes = (command.len() + data.len()) as u64;
            return (Wanted::Here(StoredEntry::new(&header, (command, data), batch)), bytes);
        }
        let batch = batch.expect("a batch that is not durable is in memory");
        let file = Arc::clone(self.slots.get(batch.slot));
        let term = Term::new(term);
        let entry = EntryOnDisk { group, index, term, file, batch, number };
        (Wanted::OnDisk(entry), ENTRY_HEADER_BYTES as u64)
    }

    /// The term in a checkpoint: of a group that is replicated for good.
    pub(super) fn checkpoint_term(&self, group: GroupId, index: EntryIndex) -> u64 {
        let replicated = self.group(group).replicated.as_ref();
        let durable = replicated.filter(|replicated| replicated.note_slot.is_some());
        durable.and_then(|it| it.directory.term_of(index.get())).unwrap_or(0)
    }

    /// Tells the notes of the open batch which entries are the last ones.
    pub(super) fn finish_notes(&mut self) {
        if self.wal.noted().next().is_none() {
            return;
        }
        let noted: Vec<u16> = self.wal.noted().collect();
        for group in noted.into_iter().map(GroupId::new) {
            if let Some(note) = self.last_note(group) {
                let told = self.wal.note(self.note_header(group, &note));
                assert!(told != Err(AppendError::Backpressure), "it takes its own place");
            }
        }
    }

    /// Learns what replicated groups have in a batch that is durable now.
    pub(super) fn settle_indexed(&mut self, batch: &DurableBatch, part: &IndexedPart) {
        let (seq, place) = (batch.durable().batch(), batch.place);
        for entry in &part.entries {
            if let Some(replicated) = &mut self.group_mut(GroupId::new(entry.group)).replicated {
                replicated.settle(entry, seq, place);
            }
        }
        for note in &part.notes {
            if let Some(replicated) = &mut self.group_mut(GroupId::new(note.group)).replicated {
                let before = replicated.note_slot.replace(place.slot);
                let (noted, _) = note.as_note().expect("it is one");
                let has_waited = replicated.durable_commit < replicated.dropped_at;
                replicated.durable_commit = replicated.durable_commit.max(noted.commit.get());
                // The segment before may be free now, and chunks may be merged.
                let may_do_more = has_waited || before != Some(place.slot);
                self.is_work_due.set(self.is_work_due.get() || may_do_more);
            }
        }
        for (group, from) in &part.superseded {
            self.wal.supersede(place.slot, *group, *from);
            let drained = self.drained.iter_mut().flat_map(|wal| &mut wal.segments);
            drained.chain(&mut self.foreign).for_each(|segment| segment.supersede(*group, *from));
            self.is_work_due.set(true);
        }
    }

    /// Notes again what is noted in segments before the one at `slot`, so that they can be given up.
    pub(super) fn renew_notes(&mut self, slot: u16) {
        self.are_notes_due = false;
        for number in 0..self.groups.len() {
            let group = &self.groups[number];
            let Some(replicated) = group.replicated.as_deref() else { continue };
            let is_in_batch = self.wal.noted().any(|noted| noted == group.id.get());
            let (id, is_old) = (group.id, replicated.note_slot != Some(slot));
            if let Some(note) = replicated.note.filter(|_| is_old && !is_in_batch) {
                let note = Note { commit: EntryIndex::new(replicated.committed), ..note };
                self.are_notes_due |= self.put_note(id, note).is_err();
            }
        }
    }

    /// Notes what is committed of groups whose merges wait for that.
    pub(super) fn note_drops(&mut self) {
        for number in 0..self.groups.len() {
            let group = &self.groups[number];
            let Some(replicated) = group.replicated.as_deref() else { continue };
            let is_unknown = group.merge_may_help && !group.may_merge();
            let (id, committed) = (group.id, EntryIndex::new(replicated.committed));
            let is_old = |note: &Note| note.commit.get() < replicated.dropped_at;
            if let Some(note) = replicated.note.filter(|note| is_unknown && is_old(note)) {
                // One that finds no room is written when the merge is looked for again.
                let _ = self.put_note(id, Note { commit: committed, ..note });
            }
        }
    }

    /// As [`ShardLog::renew_notes`], if some of them found no room before.
    pub(super) fn renew_due_notes(&mut self) {
        if self.are_notes_due {
            self.renew_notes(self.note_slot);
        }
    }

    /// Notes again what an earlier opening has noted: behind it, no entry of this one is without a note.
    fn renew_note(&mut self, group: GroupId) -> Result<(), AppendError> {
        match self.group(group).replicated.as_deref() {
            Some(&Replicated { is_noted: false, note: Some(note), committed, .. }) => {
                self.put_note(group, Note { commit: EntryIndex::new(committed), ..note })
            }
            _ => Ok(()),
        }
    }
}
