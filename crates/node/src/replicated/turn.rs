//! One step of the library for each group that something happened to: what it wants goes into the log and to the peers.

use super::copy::{GroupCopy, Halt, Pending};
use super::line::Waiter;
use crate::ShardCore;
use cluster::{EntryHead, GroupReady, KIND_NOOP, LogPosition, Note, ToAppend};
use log::{AppendError, NewEntry, Purpose, ReplicaError};
use model::{EntrySubject, GroupId, Term};
use std::collections::BTreeSet;

impl ShardCore {
    /// This node's copy of a group.
    ///
    /// # Panics
    /// If the group has one voter.
    pub(super) fn copy_mut(&mut self, id: GroupId) -> &mut GroupCopy {
        self.groups.get_mut(id).role.copy_mut().expect("the group is replicated")
    }

    /// Whether a number that another node names is that of a copy here.
    pub(super) fn has_copy(&self, id: GroupId) -> bool {
        self.groups.holds(id) && self.groups.get(id).role.copy().is_some()
    }

    /// Groups of this shard that are replicated.
    pub(super) fn replicated_groups(&self) -> Vec<GroupId> {
        let groups = self.groups.iter();
        let mut ids = Vec::with_capacity(groups.size_hint().0);
        let replicated = groups.filter(|group| group.role.copy().is_some());
        ids.extend(replicated.map(|group| group.state.group()));
        ids
    }

    /// Has the group driven at the end of the turn.
    pub(crate) fn touch_group(&mut self, id: GroupId) {
        if !std::mem::replace(&mut self.copy_mut(id).is_touched, true) {
            self.members().touched.push_back(id);
        }
    }

    pub(super) fn members(&mut self) -> &mut super::Replication {
        self.replication.as_mut().expect("a replicated group has members")
    }

    /// Drives the groups that something happened to.
    pub(crate) fn drive_groups(&mut self) {
        self.begin_copies();
        // What a log cannot read whose sync has failed, the next start may find.
        let hurt =
            if self.log.is_poisoned() { BTreeSet::new() } else { self.damage.take_hurt_groups() };
        for id in hurt {
            // What the only voter has lost nobody else has.
            let has_others = |copy: &GroupCopy| !copy.is_only_voter();
            if self.groups.holds(id) && self.groups.get(id).role.copy().is_some_and(has_others) {
                self.halt(id, Halt::Damage);
                self.touch_group(id);
            }
        }
        while let Some(id) = self.replication.as_mut().and_then(|it| it.touched.pop_front()) {
            self.copy_mut(id).is_touched = false;
            if !self.log.is_poisoned() {
                self.drive_group(id);
            }
        }
    }

    fn drive_group(&mut self, id: GroupId) {
        if self.copy_mut(id).halt.is_some() {
            self.retire(id);
            self.renew(id);
            self.remove(id);
        }
        if self.copy_mut(id).halt.is_some() {
            return self.send_forwards_from_outside(id);
        }
        self.write_pending(id);
        while self.copy_mut(id).is_driven() {
            let batch = self.log.open_batch();
            let Some(ready) = self.copy_mut(id).replica.take_ready(batch) else { break };
            self.take_ready(id, ready);
            self.apply_committed(id);
        }
        self.apply_committed(id);
        self.install_if_ready(id);
        if self.is_elsewhere(id) {
            self.settle_leadership(id);
            return self.send_forwards_from_outside(id);
        }
        if self.copy_mut(id).follow_leader() {
            self.doubt_former_leaders(id);
        }
        self.settle_leadership(id);
        self.send_forwards(id);
        self.ask_for_reads(id);
    }

    fn take_ready(&mut self, id: GroupId, ready: GroupReady) {
        let GroupReady { append, note, is_urgent, messages, committed, .. } = ready;
        if let Some(point) = ready.install {
            let applied = self.groups.get(id).state.applied();
            assert_eq!(point.last.index, applied, "group {id}: a snapshot that is not there");
            let batch = self.log.open_batch();
            self.copy_mut(id).replica.installed(batch);
        }
        let copy = self.copy_mut(id);
        copy.commit = committed.or(copy.commit.take());
        copy.unwritten = note.or(copy.unwritten.take());
        for read in ready.lost_reads {
            let question = copy.questions.remove(&read).expect("each read was asked for");
            copy.barriers.lost(question);
        }
        // A commit alone is worth no sync: it goes with the next entry.
        let note = if is_urgent { copy.unwritten.take() } else { None };
        let now = copy.await_room((append, note), messages);
        now.into_iter().for_each(|message| self.say(id, message));
        self.write_pending(id);
        for (read, index) in ready.reads {
            self.confirm_read(id, read, index);
        }
    }

    /// Writes what the replica wants, as far as the log has room for it.
    fn write_pending(&mut self, id: GroupId) {
        let Some(mut pending) = self.copy_mut(id).pending.take() else { return };
        if let Err(error) = self.write(id, &mut pending) {
            let ReplicaError::Refused(refused) = error else {
                panic!("group {id} and its log differ: {error}");
            };
            let copy = self.copy_mut(id);
            if pending.is_taken && !std::mem::replace(&mut pending.is_awaited, true) {
                copy.replica.moved_to(u64::MAX);
            }
            copy.pending = Some(pending);
            // A poisoned log takes nothing any more, and the failed sync says so.
            assert!(refused != AppendError::Poisoned || self.log.is_poisoned());
            return;
        }
        if pending.is_awaited {
            let batch = self.log.open_batch();
            self.copy_mut(id).replica.moved_to(batch);
        }
        for message in pending.messages {
            self.say(id, message);
        }
        self.leave_line(Waiter::Copy(id));
    }

    fn write(&mut self, id: GroupId, pending: &mut Pending) -> Result<(), ReplicaError> {
        if let Some(note) = pending.note.filter(|_| pending.is_new) {
            // All entries of a group that has had one voter are of the first term.
            let last_term = u64::from(self.log.last_index(id).get() > 0);
            self.log.replicate(id, log_note(note), Term::new(last_term))?;
            (pending.is_new, pending.note) = (false, None);
        }
        if let Some(note) = pending.note.filter(|_| !pending.append.is_empty()) {
            self.note_term(id, note)?;
        }
        while let Some(entry) = pending.append.front() {
            self.append_entry(id, entry)?;
            pending.append.pop_front();
        }
        if let Some(note) = pending.note {
            self.log.note(id, log_note(note))?;
            pending.note = None;
        }
        Ok(())
    }

    /// Notes a higher term before the first entry that may be of it. The log may have no room for the others, nor for the whole note
    /// behind them: a start finds no entry of a term that was never noted.
    fn note_term(&mut self, id: GroupId, note: Note) -> Result<(), ReplicaError> {
        let is_known = self.log.last_note(id).is_some_and(|known| known.term >= note.term);
        if is_known {
            return Ok(());
        }
        // Entries up to that of the note may be about to be superseded.
        let commit = self.log.committed_index(id);
        self.log.note(id, log_note(Note { commit, ..note }))
    }

    fn append_entry(&mut self, id: GroupId, entry: &ToAppend) -> Result<(), ReplicaError> {
        let LogPosition { index, term } = entry.at;
        let Some(bytes) = &entry.bytes else {
            let (subject, at) = (EntrySubject::new(0), self.time.now());
            let (command, data, kind) = (&[][..], &[][..], KIND_NOOP);
            let noop = NewEntry { group: id, term, subject, at, kind, command, data };
            return self.log.append_entry(Purpose::Upkeep, index, noop);
        };
        let head = EntryHead::decode(bytes).expect("what was heard was looked at");
        let (command, data) = (head.command(bytes), head.data(bytes));
        let purpose = if data.is_empty() { Purpose::Upkeep } else { Purpose::Data };
        let EntryHead { subject, time: at, kind, .. } = head;
        let is_data = purpose == Purpose::Data;
        let appended = if is_data && !self.is_turn_of(Waiter::Copy(id)) {
            Err(AppendError::Backpressure.into())
        } else {
            let entry = NewEntry { group: id, term, subject, at, kind, command, data };
            self.log.append_entry(purpose, index, entry)
        };
        if is_data && matches!(appended, Err(ReplicaError::Refused(_))) {
            self.join_line(Waiter::Copy(id));
        }
        appended
    }

    /// A batch is durable: what waited for it may go, and more may be committed.
    pub(crate) fn note_persisted(&mut self, batch: u64) {
        if let Some(replication) = &mut self.replication {
            replication.retiring = replication.retiring.filter(|retiring| *retiring > batch);
        }
        for id in self.replicated_groups() {
            let copy = self.copy_mut(id);
            if copy.halt.is_some() {
                self.note_persisted_while_out(id, batch);
                continue;
            }
            if !copy.replica.waits_for(batch) && copy.pending.is_none() {
                continue;
            }
            for message in copy.replica.persisted(batch) {
                self.say(id, message);
            }
            self.touch_group(id);
        }
    }
}

/// A note as the log has it.
fn log_note(note: Note) -> log::Note {
    let vote = note.vote.map_or(0, cluster::ReplicaId::bits);
    log::Note { term: note.term, vote, commit: note.commit }
}
