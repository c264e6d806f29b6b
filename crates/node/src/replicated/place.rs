//! The leader of a group brings it where it shall be, one step after the other, and leaderships spread.
//!
//! # How
//! [`cluster::next_step`] compares the group's configuration with its target, some ticks apart again. A leader that has just begun
//! continues where the last one has stopped. One group changes one thing at a time.
//!
//! # Leaders
//! [`cluster::leaders_wanted`] says who shall lead each group, on all nodes the same. Some ticks apart a shard gives one leadership
//! to who shall have it and has caught up. A node that is not to lead gives all of its away at once.
//!
//! # Invariants
//! - A leader does not propose what would unseat it: it hands over first.
//! - What it proposes follows a target that is as new as any that a leader of the group has followed (docs/adr/0126).

use crate::ShardCore;
use cluster::{
    CAUGHT_UP_ENTRIES, Change, Follower, GroupView, KIND_CHANGE, KIND_NOOP, MemberState, Meta,
    NodeNumber, PlacementStep, Replica, ReplicaId, leaders_wanted, next_step,
};
use log::Purpose;
use model::GroupId;
use std::sync::Arc;

/// Ticks between two leaderships that a shard gives away so that they spread: 250 ms.
const SPREAD_TICKS: u32 = 5;

/// Room that a change wants in the log, at most.
const CHANGE_BYTES_MAX: u64 = 1 << 10;

impl ShardCore {
    /// The groups that are led here take their next step to where they shall be.
    pub(super) fn place_groups(&mut self) {
        let Some(meta) = self.members().meta().cloned() else { return };
        let is_ending = self.members().leave.is_ending;
        for id in self.replicated_groups() {
            let is_due = is_ending || self.members().is_due(id);
            let copy = self.copy_mut(id);
            if is_due && copy.is_serving() && copy.is_running() {
                self.place_group(id, &meta);
            }
        }
        let members = self.members();
        members.spread_ticks += 1;
        if members.spread_ticks >= SPREAD_TICKS && !is_ending {
            members.spread_ticks = 0;
            self.spread_leaders(&meta);
        }
    }

    fn place_group(&mut self, id: GroupId, meta: &Meta) {
        let first = self.log.first_index(id).unwrap_or(self.log.last_index(id).next());
        let is_ending = self.members().leave.is_ending;
        let replica = &self.copy_mut(id).replica;
        let target: Vec<ReplicaId> =
            meta.target(id).iter().map(|node| meta.replica(id, *node)).collect();
        let is_own = id.get() == meta.group_count();
        let listening = if is_own { meta.listeners() } else { Vec::new() };
        let listeners: Vec<ReplicaId> =
            listening.iter().map(|node| meta.replica(id, *node)).collect();
        let numbers = meta.members().map(|(number, _)| number);
        let drained: Vec<NodeNumber> = numbers.filter(|node| !may_lead(meta, *node)).collect();
        let view = GroupView {
            leader: replica.id(),
            first,
            last: replica.last_index(),
            configuration: replica.configuration(),
            is_settled: replica.is_configuration_settled(),
            followers: &replica.followers(),
            target: &target,
            revision: meta.revision(id),
            is_revision_awaited: meta.awaits_revisions(),
            listeners: &listeners,
            drained: &drained,
        };
        match next_step(&view, meta.replication()) {
            Some(PlacementStep::Change(change)) => self.propose_change(id, change),
            Some(PlacementStep::HandOver(ids)) => self.hand_over(id, meta, &ids),
            // One that finds no room is proposed again by a later tick.
            Some(PlacementStep::Settle) => _ = self.append_own(id, KIND_NOOP, &[]),
            None if is_ending || !may_lead(meta, view.leader.node()) => {
                let ids = successors(&self.copy_mut(id).replica);
                self.hand_over(id, meta, &ids);
            }
            None => {}
        }
    }

    /// One that finds no room, or comes while another one is under way, is proposed again by a later tick.
    fn propose_change(&mut self, id: GroupId, change: Change) {
        if self.log.check_room(Purpose::Upkeep, CHANGE_BYTES_MAX).is_err() {
            return;
        }
        let command = change.encode();
        if let Ok(at) = self.copy_mut(id).replica.propose_change(change) {
            self.append_at(id, at, (KIND_CHANGE, &command));
        }
    }

    /// Hands the leadership of a group to the first of these that may lead.
    fn hand_over(&mut self, id: GroupId, meta: &Meta, to: &[ReplicaId]) {
        let forwarding = &self.members().forwarding;
        let is_fit = |to: &&ReplicaId| may_lead(meta, to.node()) && forwarding.stays(to.node());
        if let Some(to) = to.iter().find(is_fit) {
            self.copy_mut(id).replica.hand_over(*to);
            self.touch_group(id);
        }
    }

    /// Gives one leadership of this shard to who shall have it.
    fn spread_leaders(&mut self, meta: &Arc<Meta>) {
        let known = &mut self.members().leaders_wanted;
        let wanted = Arc::clone(known.get_or_insert_with(|| {
            let groups = (0..=meta.group_count()).map(GroupId::new);
            let targets = groups.map(|group| (group, meta.target(group)));
            Arc::new(leaders_wanted(targets, |node| may_lead(meta, node)))
        }));
        for id in self.replicated_groups() {
            let copy = self.copy_mut(id);
            let own = copy.replica.id().node();
            let Some(node) = wanted.get(&id).filter(|node| **node != own) else { continue };
            if !copy.is_serving() || !copy.is_running() {
                continue;
            }
            let to = successors(&copy.replica).into_iter().find(|id| id.node() == *node);
            if let Some(to) = to {
                return self.hand_over(id, meta, &[to]);
            }
        }
    }
}

/// Voters that the leader has heard and that lack little, the one that lacks least first.
fn successors(replica: &Replica) -> Vec<ReplicaId> {
    let votes = |follower: &Follower| replica.configuration().voters.contains(&follower.id);
    let mut heard: Vec<Follower> = replica.followers();
    let last = replica.last_index().get();
    let is_near = |follower: &Follower| {
        let lacks = last.saturating_sub(follower.matched.get());
        !follower.is_installing && lacks <= CAUGHT_UP_ENTRIES
    };
    heard.retain(|follower| follower.is_heard && is_near(follower) && votes(follower));
    heard.sort_by_key(|follower| std::cmp::Reverse(follower.matched));
    heard.into_iter().map(|follower| follower.id).collect()
}

fn may_lead(meta: &Meta, node: NodeNumber) -> bool {
    meta.member(node).is_some_and(|member| member.state == MemberState::Active)
}
