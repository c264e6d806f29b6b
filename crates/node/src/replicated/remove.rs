//! A copy that has no part in its group any more gives back what it has.
//!
//! # Why
//! In a cluster of more than three nodes a group moves. The copy that it leaves behind may never hear that it was removed: it
//! gets no entry any more. So its last entries stay uncommitted there, its log is kept, and its room is never free again. The
//! log of a shard is one for all groups, so in the end nothing is written on that node.
//!
//! # How
//! 1. The cluster's own state says that the group is elsewhere and shall be. What is known of it here may be old, so the
//!    leader is asked which nodes have a part in the group.
//! 2. If this node has none, and its copy has heard nothing since, the copy is out: the log notes it, as after damage (`retire`).
//! 3. The group's log becomes one without streams and entries, as if a snapshot of nothing was installed ([`log::ShardLog::empty`]).
//!
//! A copy that is out already, and is not wanted back, goes the same way from step 3 on.
//!
//! # Coming back
//! As a damaged copy: under a new id, with a snapshot (`renew`). So does a copy whose id is an old one. A copy reads its id in its
//! log, and after a start nothing there says that it had a later one when the group was without it.
//!
//! # Invariants
//! - A copy that a leader may count is not emptied: what it has acknowledged and for whom it has voted is what others
//!   count on.

use super::copy::GroupCopy;
use super::removal::Removal;
use super::{Gate, Halt};
use crate::owner_header::{OwnerHeader, configuration_part};
use crate::{ShardAnswer, ShardCall, ShardCore, proposed::ReplyTo};
use cluster::NodeNumber;
use model::{GroupId, Term};
use stream::GroupState;

impl GroupCopy {
    /// Whether it takes part in its group, does not lead it, and nothing is about to take its place.
    fn may_be_given_up(&self) -> bool {
        self.halt.is_none() && self.frozen.is_none() && !self.leads()
    }

    fn place(&self) -> Removal {
        Removal::Asked(self.replica.last_index(), self.replica.term())
    }
}

impl ShardCore {
    /// Whether a group is elsewhere and shall be, as far as is known here. The cluster's own group is everywhere.
    pub(super) fn is_unwanted(&self, id: GroupId) -> bool {
        let Some(replication) = &self.replication else { return false };
        let Some(meta) = replication.meta() else { return false };
        id.get() < meta.group_count() && meta.is_elsewhere(id, replication.forwarding.node)
    }

    /// Whether the log of a group holds nothing.
    fn is_bare(&self, id: GroupId) -> bool {
        let state = &self.groups.get(id).state;
        state.stream_count() == 0 && self.log.first_index(id).is_none()
    }

    /// Whether the cluster knows a later id of the copy, and no message will ever be for the one that it has.
    fn is_forgotten(&self, id: GroupId) -> bool {
        let Some(replication) = &self.replication else { return false };
        let (Some(meta), Some(copy)) = (replication.meta(), self.groups.get(id).role.copy()) else {
            return false;
        };
        let is_old = meta.replica(id, replication.forwarding.node) > copy.id();
        let is_named = || copy.replica.configuration().contains(copy.id());
        copy.may_be_given_up() && is_old && !is_named()
    }

    /// Asks leaders about copies that seem not to be wanted.
    pub(super) fn tick_removals(&mut self) {
        for id in self.replicated_groups() {
            if self.is_forgotten(id) {
                self.halt(id, Halt::Removed);
                self.touch_group(id);
            }
            if !self.is_unwanted(id) || self.is_bare(id) {
                continue;
            }
            let now = self.members().now.monotonic;
            let copy = self.copy_mut(id);
            if copy.halt.is_some() {
                self.touch_group(id);
            } else if !copy.leads() && copy.removal.is_none() {
                copy.removal = Some(copy.place());
                let call = ShardCall::Replicas(id);
                if let Gate::Closed(_) = self.forward_call((id, now), ReplyTo::Removal(id), call) {
                    self.copy_mut(id).removal = None;
                }
            }
        }
    }

    /// The nodes that have a part in a group that is led here; no answer while that changes.
    pub(crate) fn replicas_of(&self, id: GroupId) -> ShardAnswer {
        let copy = self.groups.get(id).role.copy();
        match copy.and_then(GroupCopy::placed) {
            Some((nodes, _)) => ShardAnswer::Replicas(nodes),
            None => ShardAnswer::Failed(crate::Failure::NoLeader),
        }
    }

    /// The leader has answered.
    pub(crate) fn hear_replicas(&mut self, id: GroupId, answer: &ShardAnswer) {
        let own: NodeNumber = self.members().forwarding.node;
        let is_coming = self.is_snapshot_coming(id);
        let copy = self.copy_mut(id);
        // It may be further already, for another reason.
        let asked = copy.removal.take_if(|removal| matches!(removal, Removal::Asked(..)));
        let is_same = asked == Some(copy.place());
        let is_left = is_same && copy.may_be_given_up() && !is_coming;
        let ShardAnswer::Replicas(nodes) = answer else { return };
        if is_left && !nodes.contains(&own) {
            self.halt(id, Halt::Removed);
            self.touch_group(id);
        }
    }

    /// Brings a copy that is out and not wanted one step further.
    pub(super) fn remove(&mut self, id: GroupId) {
        if !self.is_unwanted(id) {
            // It is wanted back: what it has may be of use.
            self.copy_mut(id).removal.take_if(|removal| *removal == Removal::Sifted);
            return;
        }
        if self.is_retiring() || self.is_bare(id) {
            return;
        }
        let copy = self.copy_mut(id);
        if copy.removal == Some(Removal::Sifted) {
            return self.empty(id);
        }
        if copy.is_empty_handed() && copy.frozen.is_none() {
            // The snapshot for its new id never comes.
            copy.renewed = None;
        }
        if copy.is_out_and_idle() {
            copy.removal = Some(Removal::Sifting);
            self.abort_incoming(id);
            self.log.sift(id);
        }
    }

    fn empty(&mut self, id: GroupId) {
        let streams = GroupState::new(id).encode_header();
        let copy = self.copy_mut(id);
        let cluster = configuration_part(&copy.configuration);
        let term = copy.replica.term().max(Term::new(1));
        let header = OwnerHeader { streams: &streams, cluster: Some(&cluster), meta: None };
        // What is on its way to the disk ends first: the next tick tries again.
        if self.log.empty(id, term, header.encode()).is_ok() {
            self.copy_mut(id).removal = Some(Removal::Emptying);
        }
    }

    /// Damaged chunks of a group that is to be emptied are set aside; `false` if it is not.
    pub(super) fn note_sifted_to_empty(&mut self, id: GroupId) -> bool {
        let copy = self.copy_mut(id);
        let is_it = copy.removal == Some(Removal::Sifting);
        if is_it {
            copy.removal = Some(Removal::Sifted);
            self.touch_group(id);
        }
        is_it
    }

    /// The log of a group is empty now, or could not be emptied; `false` if nobody wanted that.
    pub(super) fn note_emptied(&mut self, id: GroupId) -> bool {
        let copy = self.copy_mut(id);
        copy.removal.take_if(|removal| *removal == Removal::Emptying).is_some()
    }
}
