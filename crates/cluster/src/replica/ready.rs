//! What comes out: what to append, sync, send and apply.

use super::held::Held;
use super::{PROPOSED, Replica};
use crate::identity::ReplicaId;
use crate::library;
use crate::message::{Body, GroupMessage, LogPosition, SnapshotPoint};
use crate::role::Commit;
use crate::rules::Rules;
use bytes::Bytes;
use model::{EntryIndex, Term};
use raft::eraftpb::{Entry, EntryType};
use raft::{Ready, StateRole};

/// What a replica must not forget over a restart, beside its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Note {
    /// The last term that it has seen.
    pub term: Term,
    /// To whom it gave its vote in that term.
    pub vote: Option<ReplicaId>,
    /// The last entry that it knows as committed. May be older than true.
    pub commit: EntryIndex,
}

/// An entry to append behind the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToAppend {
    /// Its index and term.
    pub at: LogPosition,
    /// Its bytes as they were sent; `None` for the entry with which a leader begins its term.
    pub bytes: Option<Bytes>,
}

/// What a replica wants of its owner. In this order: truncate, append, note; send; apply.
#[derive(Debug, Default)]
pub struct GroupReady {
    /// The log ends before this entry now.
    pub truncate_from: Option<EntryIndex>,
    /// Entries to append.
    pub append: Vec<ToAppend>,
    /// What to note, if it has changed.
    pub note: Option<Note>,
    /// Whether anything waits for the batch: if not, the note may go with any later one.
    pub is_urgent: bool,
    /// A snapshot takes the place of the log. Its contents are here.
    pub install: Option<SnapshotPoint>,
    /// Messages to send before the sync.
    pub messages: Vec<GroupMessage>,
    /// All entries up to this one are committed and durable here.
    pub committed: Option<Commit>,
    /// Reads that are confirmed, each with the index that must be applied first.
    pub reads: Vec<(u64, EntryIndex)>,
    /// Reads that were not, and will not be.
    pub lost_reads: Vec<u64>,
}

impl<R: Rules> Replica<R> {
    /// Whether [`Replica::take_ready`] may say something, but for commits that followers do not know: those follow a message, and are
    /// asked for then.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.proposals.is_empty() || self.raw.has_ready()
    }

    /// What must happen now; `batch` is the number of the batch that is open. `None`: nothing.
    pub fn take_ready(&mut self, batch: u64) -> Option<GroupReady> {
        assert!(batch > 0, "batches are counted from 1");
        self.flush();
        if !self.raw.has_ready() {
            let messages = self.tell_commits(&[]);
            let has_any = !messages.is_empty();
            return has_any.then(|| GroupReady { messages, ..GroupReady::default() });
        }
        let mut ready = self.raw.ready();
        let mut out = GroupReady { is_urgent: ready.must_sync(), ..GroupReady::default() };
        self.take_snapshot(&ready, &mut out);
        let ends = ready.entries().first().zip(ready.entries().last());
        let span = ends.map(|(first, last)| (first.index, last.index));
        self.take_entries(ready.take_entries(), &mut out);
        out.note = ready.hs().map(|hard| Note {
            term: Term::new(hard.term),
            vote: ReplicaId::from_bits(hard.vote),
            commit: EntryIndex::new(hard.commit),
        });
        let mut messages = ready.take_messages();
        messages.append(&mut ready.take_persisted_messages());
        let committed = ready.take_committed_entries();
        self.take_reads(&mut ready, &mut out);
        self.hold_or_send((&ready, span), batch, messages, &mut out);
        let commits = self.tell_commits(&out.messages);
        out.messages.extend(commits);
        self.raw.advance_append_async(ready);
        self.persist_idle();
        self.take_committed(&committed, &mut out);
        Some(out)
    }

    /// What followers have is committed, and they do not know it yet, nor learn it from what is `sent` now. The library would send each
    /// of them an append without entries, and get an answer: two more messages for each entry and follower.
    fn tell_commits(&mut self, sent: &[GroupMessage]) -> Vec<GroupMessage> {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader {
            self.told.clear();
            return Vec::new();
        }
        for message in sent {
            if let Body::Append { previous, commit, entries } = &message.body {
                let last = entries.last().map_or(previous.index, |entry| entry.at.index);
                let told = self.told.entry(message.to).or_default();
                *told = last.min(*commit).get().max(*told);
            }
        }
        let mut messages = Vec::new();
        for (bits, progress) in raft.prs().iter() {
            let commit = progress.matched.min(raft.raft_log.committed);
            let to = ReplicaId::from_bits(*bits).filter(|id| *id != self.id);
            let Some(to) = to.filter(|to| self.told.get(to).is_none_or(|told| *told < commit))
            else {
                continue;
            };
            let body = Body::Committed { commit: EntryIndex::new(commit) };
            let message = GroupMessage { from: self.id, to, term: Term::new(raft.term), body };
            if R::may_go(&message, self.durable_term) {
                self.told.insert(to, commit);
                messages.push(message);
            }
        }
        messages
    }

    /// Whether something waits for this batch to be durable.
    #[must_use]
    pub fn waits_for(&self, batch: u64) -> bool {
        self.held.front().is_some_and(|held| held.batch.is_some_and(|of| of <= batch))
    }

    /// How much waits for a batch to be durable.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    fn take_snapshot(&mut self, ready: &Ready, out: &mut GroupReady) {
        if ready.snapshot().is_empty() {
            return;
        }
        let point = library::snapshot_point(ready.snapshot());
        let store = self.raw.mut_store();
        *store = crate::terms::Terms::new(point.last);
        self.owner_last = point.last.index.get();
        self.changes.clear();
        self.configuration = point.configuration.clone();
        self.is_installing = true;
        out.install = Some(point);
    }

    /// Sorts entries into those that the owner has and those that it must append.
    fn take_entries(&mut self, entries: Vec<Entry>, out: &mut GroupReady) {
        let last = self.raw.store().last().index.get();
        if let Some(first) = entries.first().filter(|entry| entry.index <= last) {
            self.raw.mut_store().truncate(EntryIndex::new(first.index));
        }
        for entry in entries {
            let at = LogPosition::new(entry.index, entry.term);
            let is_change = entry.get_entry_type() == EntryType::EntryConfChangeV2;
            let bytes = u32::try_from(entry.data.len()).expect("entries are below 4 GiB");
            self.raw.mut_store().push(at, bytes, is_change);
            if entry.context == PROPOSED {
                assert!(entry.index <= self.owner_last, "the owner has what it proposed");
                continue;
            }
            if entry.index <= self.owner_last {
                self.owner_last = entry.index - 1;
                out.truncate_from = Some(EntryIndex::new(entry.index));
            }
            assert!(entry.index == self.owner_last + 1, "entries follow each other");
            self.owner_last = entry.index;
            let bytes = (!entry.data.is_empty()).then_some(entry.data);
            out.append.push(ToAppend { at, bytes });
        }
        if out.truncate_from.is_some() {
            let terms = self.raw.store();
            self.changes.retain(|index, _| terms.is_change(*index));
        }
    }

    fn take_reads(&mut self, ready: &mut Ready, out: &mut GroupReady) {
        for state in ready.take_read_states() {
            let read = library::read(&state.request_ctx);
            if self.reads.remove(&read) {
                out.reads.push((read, EntryIndex::new(state.index)));
            }
        }
        if self.raw.raft.state != StateRole::Leader {
            // The library has forgotten them; nobody answers any more.
            out.lost_reads.extend(std::mem::take(&mut self.reads));
            self.raw.mut_store().withdraw_all();
            self.snapshots.clear();
            self.empty.clear();
        }
    }

    /// Sends what may go, and holds the rest until the batch is durable.
    fn hold_or_send(
        &mut self,
        (ready, entries): (&Ready, Option<(u64, u64)>),
        batch: u64,
        messages: Vec<raft::eraftpb::Message>,
        out: &mut GroupReady,
    ) {
        let messages = messages.into_iter().map(library::from_library);
        let messages = messages.filter(|message| self.can_be_filled(message));
        let waits = ready.must_sync() || !self.held.is_empty();
        let durable_term = self.durable_term;
        let may_go = |message: &GroupMessage| !waits || R::may_go(message, durable_term);
        let (now, later): (Vec<_>, Vec<_>) = messages.partition(may_go);
        self.note_snapshots(&now);
        out.messages = now;
        let snapshot =
            (!ready.snapshot().is_empty()).then(|| ready.snapshot().get_metadata().index);
        let batch = if snapshot.is_some() {
            None
        } else if ready.must_sync() {
            Some(batch)
        } else {
            // Nothing of its own to wait for: it goes with what is before it.
            self.held.back().map_or(Some(0), |held| held.batch)
        };
        let term = self.raw.raft.term;
        self.held.push_back(Held {
            number: ready.number(),
            batch,
            term,
            snapshot,
            messages: later,
            entries,
        });
    }

    /// Whether the entries of a message are in the log. A leader that lost its term may have lost them in the same turn.
    fn can_be_filled(&self, message: &GroupMessage) -> bool {
        !matches!(message.body, Body::Append { .. }) || message.term == self.term()
    }

    /// Remembers which snapshots are under way.
    fn note_snapshots(&mut self, messages: &[GroupMessage]) {
        for message in messages {
            if matches!(message.body, Body::Snapshot(_)) {
                self.raw.mut_store().withdraw(message.to);
                self.fulfil_wish(message.to);
                self.snapshots.insert(message.to, 0);
            }
        }
    }

    /// Tells the library of what had nothing to wait for.
    fn persist_idle(&mut self) {
        if self.held.front().is_some_and(|held| held.batch == Some(0)) {
            let released = self.release(0);
            assert!(released.is_empty(), "what waits for nothing has been sent");
        }
    }

    fn take_committed(&mut self, entries: &[Entry], out: &mut GroupReady) {
        let Some(last) = entries.last() else { return };
        out.committed = Some(Commit::of_replica(EntryIndex::new(last.index)));
        for entry in entries {
            if entry.get_entry_type() == EntryType::EntryConfChangeV2 {
                let change = self.changes.remove(&entry.index);
                self.apply_change(&change.expect("each change in the log is known"));
                self.settles_behind = self.owner_last;
            }
        }
        // Those that are committed are handed out.
        self.handed_out = last.index;
    }

    /// What the last [`Replica::take_ready`] wants is in `batch`, a later one than the owner has said: the log had no room for all of it.
    /// Until the owner knows which one it is, that is [`u64::MAX`]. All that is taken meanwhile comes into the same batch.
    ///
    /// # Panics
    /// If nothing waits for a batch.
    pub fn moved_to(&mut self, batch: u64) {
        let first = self.held.iter().position(|held| held.batch == Some(u64::MAX));
        let first = first.or(self.held.len().checked_sub(1));
        let moved = self.held.iter_mut().skip(first.expect("something waits for its batch"));
        for held in moved {
            assert!(held.batch > Some(0), "what was taken last waits for its batch");
            held.batch = Some(batch);
        }
    }

    /// The batch and all before it are durable here. Returns the messages that may go now; more may be
    /// committed: [`Replica::take_ready`] says.
    #[must_use]
    pub fn persisted(&mut self, batch: u64) -> Vec<GroupMessage> {
        let released = self.release(batch);
        self.note_snapshots(&released);
        released
    }

    fn release(&mut self, batch: u64) -> Vec<GroupMessage> {
        let mut released = Vec::new();
        while self.waits_for(batch) {
            let held = self.held.pop_front().expect("it was there");
            self.tell(&held);
            self.durable_term = self.durable_term.max(held.term);
            if let Some(index) = held.snapshot {
                // Rule 5: else entries that are in the snapshot are looked for in the log.
                self.raw.advance_apply_to(index);
                self.is_installing = false;
            }
            released.extend(held.messages);
        }
        released.retain(|message| self.can_be_filled(message));
        released
    }

    /// Reports what is durable, unless entries of it are replaced by what is on its way (rule 13). Then the later one
    /// reports all before it.
    fn tell(&mut self, held: &Held) {
        let last = held.entries.map(|(_, last)| last).or(self.untold);
        let is_replaced =
            last.is_some_and(|last| self.held.iter().any(|later| later.replaces(last)));
        let may_tell = R::may_tell(is_replaced);
        self.untold = last.filter(|_| !may_tell);
        if may_tell {
            self.raw.on_persist_ready(held.number);
        }
    }

    /// The snapshot of [`GroupReady::install`] is in its place, and the record that says so is in `batch`.
    ///
    /// # Panics
    /// If no snapshot is being installed.
    pub fn installed(&mut self, batch: u64) {
        let snapshot = self.held.iter().find_map(|held| held.snapshot);
        self.handed_out = snapshot.expect("a snapshot is being installed");
        for held in self.held.iter_mut().filter(|held| held.batch.is_none()) {
            held.batch = Some(batch);
        }
    }
}
