//! A node whose process is about to end. It leaves so that nobody has to guess what became of a request that was there.
//!
//! # How
//! 1. It says that it is about to end, so nobody lets it lead. Groups that are led here go to nodes that have caught up and stay.
//! 2. When it leads nothing, and all requests of others have their answers, it asks each node to send nothing more
//!    ([`Section::Leave`]).
//! 3. A node agrees when it has the answer of all that it has sent ([`Section::Left`]). Both are repeated at each tick: one that
//!    is lost with its link costs nothing.
//!
//! # Invariants
//! - A node sends nothing more to an opening that has taken leave, over whatever link.
//! - A shard that has agreed has no request there, and will have none.

use super::GroupCopy;
use crate::ShardCore;
use cluster::{NodeNumber, ReplicaId, Section};
use std::collections::{BTreeMap, BTreeSet};

/// How far a shard is with its end.
#[derive(Debug, Default)]
pub(super) struct Leave {
    pub(super) is_ending: bool,
    /// The shards of each node that have agreed, and how many it has.
    agreed: BTreeMap<NodeNumber, (BTreeSet<u16>, u16)>,
}

impl Leave {
    /// A node may be another opening of it by now, which has agreed to nothing.
    pub(super) fn forget(&mut self, node: NodeNumber) {
        self.agreed.remove(&node);
    }

    fn has_agreed(&self, node: NodeNumber) -> bool {
        self.agreed.get(&node).is_some_and(|(shards, count)| shards.len() == usize::from(*count))
    }
}

impl ShardCore {
    /// The process is about to end: drive the shard on until [`ShardCore::may_end`], or for as long as there is patience.
    pub fn begin_end(&mut self) {
        if self.replication.is_some() {
            self.members().leave.is_ending = true;
            self.place_groups();
            self.take_leave();
        }
    }

    /// Whether the process may end, and no other node loses anything by that. None has to wait for an election, and each knows
    /// what became of all that it has sent here. A node that does not answer is waited for as long as its link is up.
    #[must_use]
    pub fn may_end(&self) -> bool {
        let Some(replication) = &self.replication else { return true };
        let has_agreed = |node| replication.leave.has_agreed(node);
        let has_left = || self.owes_nothing() && replication.forwarding.nodes().all(has_agreed);
        // A log that has failed serves nobody any more.
        self.log.is_poisoned() || has_left()
    }

    /// Whether nothing is led here that another node could lead, and all requests of other nodes have their answers.
    fn owes_nothing(&self) -> bool {
        let Some(replication) = &self.replication else { return true };
        let could_lead = |id: &ReplicaId| replication.forwarding.stays(id.node());
        let is_owed = |copy: &GroupCopy| {
            copy.leads() && copy.replica.configuration().voters.iter().any(could_lead)
        };
        let mut copies = self.groups.iter().filter_map(|it| it.role.copy());
        !replication.serving.is_serving() && !copies.any(is_owed)
    }

    /// Asks each node that has not agreed.
    pub(super) fn take_leave(&mut self) {
        if !self.members().leave.is_ending {
            return;
        }
        let is_done = self.owes_nothing();
        let members = self.members();
        let opening = members.forwarding.opening;
        let nodes = members.forwarding.nodes().filter(|node| !members.leave.has_agreed(*node));
        for node in nodes.collect::<Vec<_>>() {
            self.tell(node, Section::Leave { opening, is_done });
        }
    }

    /// A node is about to end.
    pub(super) fn hear_leave(&mut self, from: NodeNumber, opening: u64, is_done: bool) {
        let shard = self.groups.shard().get();
        let shard_count = self.groups.shard_count();
        if self.members().forwarding.note_leave(from, opening, is_done) {
            self.tell(from, Section::Left { opening, shard, shard_count });
        }
    }

    /// A shard of another node sends nothing more.
    pub(super) fn hear_left(&mut self, from: NodeNumber, opening: u64, shard: (u16, u16)) {
        let members = self.members();
        if opening == members.forwarding.opening {
            let agreed = members.leave.agreed.entry(from).or_default();
            agreed.0.insert(shard.0);
            agreed.1 = shard.1;
        }
    }
}
