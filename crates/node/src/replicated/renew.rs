//! A copy that has lost something comes back under a new id.
//!
//! # How
//! 1. The copy is out, and its log says so durably (`retire`). So no later start takes it for whole.
//! 2. The node asks the cluster for a new id for it, as a request like any other ([`ShardCore::poll_wish`]). The cluster's own state
//!    keeps who has asked: an id that was given to this opening of the node is the answer, wherever it is found.
//! 3. What of its chunks is damaged is set aside ([`log::ShardLog::sift`]).
//! 4. The leader of the group adds the new id, and its library sends entries. The copy answers that it has nothing, and takes a snapshot.
//!    It has no replica in the library's sense: it votes for nobody, and acknowledges nothing.
//! 5. The snapshot is installed. A note that names no loss follows. When that is durable, a replica with the new id begins behind
//!    the snapshot, as after a start.
//!
//! # What a crash leaves
//! Before the note of step 5 is durable the log still says that the copy is out. The next start asks for one more id: nobody has
//! heard anything of the one before. Behind it the configuration in the checkpoint names the new id.
//!
//! # Why not the old id
//! What it had promised may be lost: to whom it gave its vote, and which entries it had acknowledged. Others count on that.
//!
//! # Invariants
//! - Nobody asks for a new id before the loss is written down.
//! - No note of the old copy is one of the new one, but for the term: a term never falls.
//! - The snapshot leads beyond all that the old copy has applied. For it has the entry that added the new id.

use super::copy::{Fetch, GroupCopy};
use super::renewed::{Renewed, Stage};
use super::start::to_copy;
use crate::{Failure, ShardCore};
use cluster::{Barriers, Body, GroupMessage, MetaCommand, ReplicaId};
use log::Note;
use model::GroupId;

impl GroupCopy {
    /// The copy's id: the new one, as soon as it is known.
    pub(super) fn id(&self) -> ReplicaId {
        self.renewed.map_or(self.replica.id(), |renewed| renewed.id)
    }

    /// Whether a snapshot for `id` is one for this copy.
    pub(super) fn takes_snapshots_as(&self, id: ReplicaId) -> bool {
        let is_out = self.halt.is_some() && !self.is_empty_handed();
        !is_out && self.id() == id
    }

    /// Whether it takes nothing but a snapshot.
    pub(super) fn is_empty_handed(&self) -> bool {
        self.renewed.is_some_and(|renewed| renewed.stage == Stage::Empty)
    }

    /// Whether it begins again behind the snapshot of this message.
    pub(super) fn would_begin_with(&self, message: &GroupMessage) -> bool {
        let Body::Snapshot(point) = &message.body else { return false };
        let is_free = self.is_empty_handed() && self.frozen.is_none();
        is_free && message.to == self.id() && point.configuration.contains(message.to)
    }
}

impl ShardCore {
    /// Copies that need a new id. Where members do not change there is nobody to ask.
    fn needing_new_ids(&mut self) -> Vec<GroupId> {
        if self.members().own.is_none() || self.is_retiring() {
            return Vec::new();
        }
        let mut ids = self.replicated_groups();
        ids.retain(|id| self.copy_mut(*id).is_out_and_idle() && !self.is_unwanted(*id));
        ids
    }

    /// Wishes for new ids.
    pub(super) fn wish_to_renew(&mut self) {
        for group in self.needing_new_ids() {
            let replica = self.copy_mut(group).id();
            let epoch = self.members().forwarding.opening;
            self.members().wishes.push_back(MetaCommand::Renew { group, replica, epoch });
        }
    }

    /// Takes ids that were given to this opening, as far as the cluster's own state has come here.
    pub(super) fn tick_renewals(&mut self) {
        let Some(meta) = self.members().meta().cloned() else { return };
        for group in self.needing_new_ids() {
            let (node, epoch) = (self.members().forwarding.node, self.members().forwarding.opening);
            if let Some(id) = meta.renewed(group, node, epoch) {
                self.take_new_id(group, id);
            }
        }
    }

    /// The answer to a wish. The group of the cluster's own state has no other way to learn of its id.
    pub(super) fn note_renewal(&mut self, command: &MetaCommand, id: ReplicaId) {
        let MetaCommand::Renew { group, epoch, .. } = command else { return };
        if *epoch == self.members().forwarding.opening && self.needing_new_ids().contains(group) {
            self.take_new_id(*group, id);
        }
    }

    fn take_new_id(&mut self, group: GroupId, id: ReplicaId) {
        let copy = self.copy_mut(group);
        // The cluster may have given one to this opening before, which was lost, too.
        if id.node() == copy.id().node() && id > copy.id() {
            copy.renewed = Some(Renewed { id, stage: Stage::Sifting });
            self.abort_incoming(group);
            self.log.sift(group);
        }
    }

    /// Damaged chunks of a group are set aside.
    pub(crate) fn note_sifted(&mut self, group: GroupId) {
        if self.note_sifted_to_empty(group) {
            return;
        }
        if let Some(renewed) = &mut self.copy_mut(group).renewed {
            renewed.stage = Stage::Empty;
        }
    }

    /// A message for a copy that is out. One that has a new id says that it has nothing, and no more: it has no log, and no votes.
    pub(super) fn hear_while_out(&mut self, group: GroupId, message: &GroupMessage) {
        let copy = self.copy_mut(group);
        let is_leaders = matches!(message.body, Body::Append { .. } | Body::Heartbeat { .. });
        let is_heard = copy.is_empty_handed() && copy.frozen.is_none() && message.to == copy.id();
        if is_heard && is_leaders {
            let (from, to, term) = (message.to, message.from, message.term);
            self.say(group, GroupMessage { from, to, term, body: Body::Empty });
        }
    }

    /// The snapshot is installed: the log learns that the copy is not out any more.
    pub(super) fn note_installed(&mut self, group: GroupId) {
        let copy = self.copy_mut(group);
        if let Some(renewed) = &mut copy.renewed {
            renewed.stage = Stage::Installed;
        }
    }

    /// A batch is durable: perhaps it has the first note of a copy that begins again.
    pub(super) fn note_persisted_while_out(&mut self, group: GroupId, batch: u64) {
        let renewed = self.copy_mut(group).renewed.as_mut();
        let Some(renewed) =
            renewed.filter(|it| matches!(it.stage, Stage::Noted(of) if of <= batch))
        else {
            return;
        };
        renewed.stage = Stage::Whole;
        self.touch_group(group);
    }

    /// Brings a copy with a new id one step further, once its snapshot is here.
    pub(super) fn renew(&mut self, group: GroupId) {
        match self.copy_mut(group).renewed.map(|renewed| renewed.stage) {
            Some(Stage::Empty) => self.install_if_ready(group),
            Some(Stage::Installed) => self.write_first_note(group),
            Some(Stage::Whole) => self.begin_again(group),
            _ => {}
        }
    }

    fn write_first_note(&mut self, group: GroupId) {
        let commit = self.log.committed_index(group);
        let last_term = self.log.term_of(group, commit).expect("a snapshot has a term");
        let known = self.log.last_note(group).map_or(last_term, |note| note.term);
        let batch = self.log.open_batch();
        // Without room for it, the next tick tries again.
        if self.log.note(group, Note { term: known.max(last_term), vote: 0, commit }).is_ok() {
            let renewed = self.copy_mut(group).renewed.as_mut();
            renewed.expect("it was given an id").stage = Stage::Noted(batch);
        }
    }

    /// A replica with the new id begins behind the snapshot, as it would after a start.
    fn begin_again(&mut self, group: GroupId) {
        let now = self.members().now;
        let lost = self.copy_mut(group).abandon_proposed();
        for proposed in lost {
            self.groups.get_mut(group).finish_in_flight(proposed.subject);
            self.fail(now, proposed.reply_to, Failure::Unknown);
        }
        let membership = self.members().membership.clone();
        let configuration = self.copy_mut(group).configuration.clone();
        let applied = self.log.applied_index(group);
        let copy = to_copy(&self.log, (group, applied), configuration, (&membership, &[]));
        let before = std::mem::replace(self.copy_mut(group), copy);
        let copy = self.copy_mut(group);
        let id = before.id();
        assert!(copy.replica.id() == id && copy.halt.is_none(), "group {group}: {id} begins");
        (copy.has_forwards, copy.catch_up) = (before.has_forwards, before.catch_up);
        // No answer to an earlier question is one to a later one.
        copy.barriers = Barriers::behind(before.barriers.last());
        let fetches = before.fetches.into_keys();
        copy.fetches = fetches.map(|number| (number, Fetch::Nobody)).collect();
        if let Some(message) = before.frozen {
            // Its leader learns by the answer that the snapshot is there.
            let _ = copy.replica.step(message);
        }
        if self.meta_group() == Some(group) {
            self.publish_meta();
        }
        self.touch_group(group);
    }
}
