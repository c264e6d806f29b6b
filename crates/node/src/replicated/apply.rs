//! Committed entries are applied, on leaders and followers alike, and own proposals learn their fate.

use super::copy::{OwnProposal, settled_proposal};
use super::{Halt, WAIT_MS_MAX};
use crate::{
    Failure, ShardCore, Stamp,
    proposed::{Proposed, ReplyTo},
    shard::Proposal,
};
use cluster::{
    Committed, ENTRY_HEAD_BYTES, KIND_CHANGE, KIND_CHECK, KIND_META, KIND_NOOP, LogPosition,
    NotProposed, Settled,
};
use log::{DurableEntry, NewEntry, Purpose};
use model::GroupId;
use stream::{Command, Subject};

impl ShardCore {
    /// Applies what is committed and at hand.
    pub(super) fn apply_committed(&mut self, id: GroupId) {
        while let Some(committed) = self.next_committed(id) {
            self.apply_replicated(id, &committed);
        }
    }

    /// The next entry to apply, if it is committed and at hand; reads it if it is not. That of a check waits for the rows of the
    /// group, if they are being copied.
    fn next_committed(&mut self, id: GroupId) -> Option<Committed<DurableEntry>> {
        let copies_rows = self.copies_rows(id);
        let group = self.groups.get_mut(id);
        let next = group.state.applied().next();
        let copy =
            group.role.copy_mut().filter(|copy| copy.halt.is_none() && copy.frozen.is_none())?;
        let commit = copy.commit.as_ref().filter(|commit| next <= commit.upto())?;
        let is_waiting = |entry: &DurableEntry| entry.kind == KIND_CHECK && copies_rows;
        if copy.durable.get(&next).is_some_and(is_waiting) {
            self.hurry_check(id);
            return None;
        }
        let Some(entry) = copy.durable.remove(&next) else {
            self.fetch_to_apply(id, next);
            return None;
        };
        Some(commit.entry(entry))
    }

    fn apply_replicated(&mut self, id: GroupId, committed: &Committed<DurableEntry>) {
        let now = self.members().now;
        let entry = committed.get();
        let is_it = self.log.term_of(id, entry.index) == Some(entry.term);
        assert!(is_it, "entry {} of group {id} is not the one of the log", entry.index);
        self.log.commit(id, entry.index).expect("what is committed is in the log");
        self.time.follow(entry.at);
        let at = LogPosition { index: entry.index, term: entry.term };
        let mut settled = self.settle(id, at);
        let own = settled.extract_if(.., |it| matches!(it, Settled::Applied(_))).next();
        if matches!(entry.kind, KIND_NOOP | KIND_CHANGE | KIND_CHECK) {
            if entry.kind == KIND_CHANGE {
                self.copy_mut(id).apply_change(&entry.command);
            }
            self.groups.get_mut(id).state.skip_to(entry.index);
            self.log.applied(id, entry.index);
            if entry.kind == KIND_CHECK {
                self.begin_check(id, entry);
            }
        } else if entry.kind == KIND_META {
            self.apply_meta(id, entry, own);
        } else if let Some(proposed) = command_of(own, entry) {
            self.note_pin(id, &proposed);
            self.apply_entry(now, committed, proposed);
        } else {
            return self.halt(id, Halt::Newer);
        }
        for lost in settled {
            let reply_to = settled_proposal(lost).proposed.reply_to;
            self.fail(now, reply_to, Failure::NoLeader);
        }
        let copy = self.copy_mut(id);
        copy.replica.applied(at.index);
        let held = copy.barriers.applied(at.index);
        copy.note_released(&held);
        self.release(id, held);
    }

    /// Proposals at the index of an entry that is applied now.
    fn settle(&mut self, id: GroupId, at: LogPosition) -> Vec<Settled<OwnProposal>> {
        let group = self.groups.get_mut(id);
        let copy = group.role.copy_mut().expect("the group is replicated");
        let settled = copy.proposals.applied(at);
        for one in &settled {
            let (Settled::Applied(own) | Settled::NotApplied(own) | Settled::Unknown(own)) = one;
            group.finish_in_flight(own.proposed.subject);
        }
        settled
    }

    /// Takes a command as the next entry of a group that is led here.
    pub(crate) fn propose_replicated(
        &mut self,
        Proposal { to, command, data }: Proposal<'_>,
        (subject, reply_to): (Subject, ReplyTo),
    ) -> Result<(), Failure> {
        let (id, since) = (to.group, self.members().now.monotonic);
        let purpose = if command.is_upkeep() { Purpose::Upkeep } else { Purpose::Data };
        let payload_bytes = self.encoded.len() + data.len();
        let group = self.groups.get_mut(id);
        let copy = group.role.copy_mut().expect("the group is replicated");
        if !copy.is_serving() || !copy.is_running() {
            return Err(Failure::NoLeader);
        }
        // A note, too, if this is the first one of the batch.
        self.log.check_room(purpose, payload_bytes as u64)?;
        let bytes = u32::try_from(ENTRY_HEAD_BYTES + payload_bytes).expect("below 4 GiB");
        let at = copy.replica.propose(bytes)?;
        let entry = NewEntry {
            group: id,
            term: at.term,
            subject: subject.number(),
            at: self.time.now(),
            kind: command.kind() as u8,
            command: &self.encoded,
            data,
        };
        let appended = self.log.append_entry(purpose, at.index, entry);
        appended.expect("the log has said that it has room");
        let proposed = Proposed { index: at.index, subject, command, reply_to };
        copy.proposals.add(at, OwnProposal { proposed, since });
        group.begin_in_flight(subject);
        self.touch_group(id);
        Ok(())
    }

    /// Proposals that wait too long get the answer that nobody can tell.
    pub(super) fn give_up_proposals(&mut self, now: Stamp, id: GroupId) {
        let mut given_up = Vec::new();
        for own in self.copy_mut(id).proposals.iter_mut() {
            if now.monotonic.ms_since(own.since) >= WAIT_MS_MAX {
                given_up.push(std::mem::replace(&mut own.proposed.reply_to, ReplyTo::Nobody));
            }
        }
        for reply_to in given_up {
            self.fail(now, reply_to, Failure::Unknown);
        }
    }
}

/// The command of an entry: as it was proposed here, or decoded. `None` if a newer version wrote it.
fn command_of(own: Option<Settled<OwnProposal>>, entry: &DurableEntry) -> Option<Proposed> {
    if let Some(own) = own {
        return Some(settled_proposal(own).proposed);
    }
    let subject = Subject::of_entry(entry.kind, entry.subject);
    let command = Command::decode(entry.kind, &entry.command).ok()?;
    Some(Proposed { index: entry.index, subject, command, reply_to: ReplyTo::Nobody })
}

impl From<NotProposed> for Failure {
    fn from(why: NotProposed) -> Self {
        match why {
            NotProposed::NotLeader | NotProposed::HandingOver | NotProposed::TooEarly => {
                Self::NoLeader
            }
            NotProposed::TooMuch => Self::Overloaded,
        }
    }
}
