//! Where replicas shall be, and the next step towards it. Pure: facts in, steps out.
//!
//! # How
//! [`targets`] says on which nodes each group shall be. The leader of the meta group asks it, and
//! writes what it says as [`crate::MetaCommand::Place`]. [`next_step`] is asked by each group's leader, again and again: it
//! compares what is with what shall be. So a new leader continues where the old one stopped, and
//! nothing remembers a plan.
//!
//! # Invariants
//! - A group has one voter until enough nodes for all of its voters are there: two voters would only add a way to stop.
//! - A group's voters change when those that come have caught up, and in one joint change.
//! - A change is settled before the next one begins, and before anybody counts on its voters (rule 12).
//! - A leader that knows only an older target than its group follows changes nothing ([`Configuration::revision`]).
//! - A leader is never unseated by its own step: it hands over first (rule 1). Where nobody may take over, all else is done, and it stays.
//! - Without a change of members nothing moves: the order is by a hash of group and node.

use crate::configuration::{Change, Configuration, Part};
use crate::identity::{NodeNumber, ReplicaId};
use crate::replica::Follower;
use model::{EntryIndex, GroupId};
use std::collections::BTreeMap;

/// Entries that a learner may lack and become a voter all the same.
pub const CAUGHT_UP_ENTRIES: u64 = 1_000;

/// What a group's leader does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementStep {
    /// Propose this.
    Change(Change),
    /// Hand the leadership over to one of these, best first.
    HandOver(Vec<ReplicaId>),
    /// Propose an entry without effect: the last change is not settled (rule 12).
    Settle,
}

/// What a leader knows of its group.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    /// The leader itself.
    pub leader: ReplicaId,
    /// The first entry that its log has: a replica that lacks an earlier one needs a snapshot.
    pub first: EntryIndex,
    /// Its last entry.
    pub last: EntryIndex,
    /// The configuration.
    pub configuration: &'a Configuration,
    /// [`crate::Replica::is_configuration_settled`].
    pub is_settled: bool,
    /// The other replicas.
    pub followers: &'a [Follower],
    /// Which replicas there shall be.
    pub target: &'a [ReplicaId],
    /// The revision of the target.
    pub revision: u64,
    /// Whether the group shall follow this revision even if it is where it shall be. Each later leader knows the target then.
    pub is_revision_awaited: bool,
    /// Which ones shall only learn beside them.
    pub listeners: &'a [ReplicaId],
    /// Nodes that shall not lead.
    pub drained: &'a [NodeNumber],
}

/// The nodes that each group shall be on, if `nodes` are all that may hold replicas.
///
/// As long as there are fewer nodes than a group shall have voters, it is on all of them, and
/// [`next_step`] lets one of them vote.
#[must_use]
pub fn targets(
    group_count: u16,
    nodes: &[NodeNumber],
    replication: u16,
) -> BTreeMap<GroupId, Vec<NodeNumber>> {
    let of = |group: GroupId| {
        let mut ranked: Vec<(u64, NodeNumber)> =
            nodes.iter().map(|node| (weight(group, *node), *node)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        let mut chosen: Vec<NodeNumber> =
            ranked.into_iter().take(replication.into()).map(|(_, node)| node).collect();
        chosen.sort_unstable();
        chosen
    };
    // The meta group's number is behind the others.
    (0..=group_count).map(GroupId::new).map(|group| (group, of(group))).collect()
}

/// Thaler and Ravishankar's rendezvous hashing: a node's claim to a group.
fn weight(group: GroupId, node: NodeNumber) -> u64 {
    let mut mixed = (u64::from(group.get()) << 16 | u64::from(node.get())).wrapping_add(1);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 31)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 29)
}

/// What the leader of a group does next, if anything. `replication` voters are wanted.
#[must_use]
pub fn next_step(view: &GroupView<'_>, replication: u16) -> Option<PlacementStep> {
    let GroupView { configuration, target, listeners, .. } = view;
    if configuration.is_joint() {
        return Some(PlacementStep::Change(Change::Leave));
    }
    if !view.is_settled {
        return Some(PlacementStep::Settle);
    }
    let is_old = view.revision < configuration.revision;
    if target.is_empty() || is_old {
        return None;
    }
    // An idle node asks this for each of its groups, again and again.
    if configuration.voters == *target && configuration.learners == *listeners {
        return confirm(view);
    }
    let known = configuration.replicas();
    let is_wanted = |id: &ReplicaId| target.contains(id) || listeners.contains(id);
    let missing = target.iter().chain(*listeners).filter(|id| !known.contains(id));
    let mut learners: Vec<_> = missing.map(|id| (*id, Part::Learner)).collect();
    if !learners.is_empty() {
        // A node that gets one new id after the other must not fill the group with those that it never used.
        let stale = configuration.learners.iter().filter(|id| !is_wanted(id));
        learners.extend(stale.map(|id| (*id, Part::Gone)));
        return Some(enter(view, learners));
    }
    let mut voters = voters_wanted(view, replication);
    let is_voter = |id: &ReplicaId| configuration.voters.contains(id);
    if !voters.iter().filter(|id| !is_voter(id)).all(|id| has_caught_up(view, *id)) {
        return confirm(view);
    }
    if !voters.contains(&view.leader) {
        let may_lead = |id: &ReplicaId| is_voter(id) && !view.drained.contains(&id.node());
        let able: Vec<ReplicaId> = voters.iter().copied().filter(may_lead).collect();
        let able = by_progress(view, &able);
        if !able.is_empty() {
            return Some(PlacementStep::HandOver(able));
        }
        // Nobody can take over. Those that come may, once they vote.
        voters.push(view.leader);
    }
    let coming = voters.iter().filter(|id| !is_voter(id));
    let mut parts: Vec<_> = coming.map(|id| (*id, Part::Voter)).collect();
    for id in known.iter().filter(|id| !voters.contains(id)) {
        let part = if is_wanted(id) { Part::Learner } else { Part::Gone };
        let is_so = part == Part::Learner && configuration.learners.contains(id);
        if !is_so {
            parts.push((*id, part));
        }
    }
    if parts.is_empty() { confirm(view) } else { Some(enter(view, parts)) }
}

fn enter(view: &GroupView<'_>, parts: Vec<(ReplicaId, Part)>) -> PlacementStep {
    PlacementStep::Change(Change::Enter { revision: view.revision, parts })
}

/// A change that changes nothing but the revision, if somebody waits for it.
fn confirm(view: &GroupView<'_>) -> Option<PlacementStep> {
    let is_behind = view.configuration.revision < view.revision;
    let parts = || vec![(view.leader, Part::Voter)];
    (view.is_revision_awaited && is_behind).then(|| enter(view, parts()))
}

/// The replicas that shall vote: all of the target, or one as long as these are too few.
fn voters_wanted(view: &GroupView<'_>, replication: u16) -> Vec<ReplicaId> {
    if view.target.len() >= usize::from(replication) {
        return view.target.to_vec();
    }
    let is_target = |id: &ReplicaId| view.target.contains(id);
    let voters = &view.configuration.voters;
    let wanted = if voters.len() > 1 {
        // Nodes were removed: the voters that are left stay, and none is added.
        voters.iter().copied().filter(is_target).collect()
    } else if is_target(&view.leader) {
        vec![view.leader]
    } else {
        best_learner(view)
    };
    // If nobody is left, or heard, that could take over, all stays as it is.
    if wanted.is_empty() { voters.clone() } else { wanted }
}

fn best_learner(view: &GroupView<'_>) -> Vec<ReplicaId> {
    let mut learners = by_progress(view, view.target);
    learners.sort_by_key(|id| view.drained.contains(&id.node()));
    learners.truncate(1);
    learners
}

fn follower<'a>(view: &GroupView<'a>, id: ReplicaId) -> Option<&'a Follower> {
    view.followers.iter().find(|follower| follower.id == id)
}

fn has_caught_up(view: &GroupView<'_>, id: ReplicaId) -> bool {
    let is_near = |follower: &Follower| {
        let lacks = view.last.get().saturating_sub(follower.matched.get());
        // One that has acknowledged nothing may have nothing.
        let has_begun = follower.matched.get() > 0 && follower.matched.next() >= view.first;
        follower.is_heard && !follower.is_installing && has_begun && lacks <= CAUGHT_UP_ENTRIES
    };
    id == view.leader || follower(view, id).is_some_and(is_near)
}

/// Those of `ids` that may lead, the one that lacks least first.
fn by_progress(view: &GroupView<'_>, ids: &[ReplicaId]) -> Vec<ReplicaId> {
    let others = ids.iter().copied().filter(|id| *id != view.leader);
    let mut heard: Vec<&Follower> = others.filter_map(|id| follower(view, id)).collect();
    heard.retain(|follower| follower.is_heard);
    heard.sort_by_key(|follower| std::cmp::Reverse(follower.matched));
    heard.into_iter().map(|follower| follower.id).collect()
}

/// Groups that would have no majority without `node`, if of the others only `alive` are there.
#[must_use]
pub fn groups_lost_without<'a>(
    node: NodeNumber,
    groups: impl Iterator<Item = (GroupId, &'a Configuration)>,
    alive: impl Fn(NodeNumber) -> bool,
) -> Vec<GroupId> {
    let is_lost = |configuration: &Configuration| {
        let is_concerned = configuration.replicas().iter().any(|id| id.node() == node);
        let is_left = |id: ReplicaId| id.node() != node && alive(id.node());
        is_concerned && !configuration.is_quorum(is_left)
    };
    groups.filter(|(_, configuration)| is_lost(configuration)).map(|(group, _)| group).collect()
}

/// Groups that would stop if `node` gave its replicas away, and only `alive` nodes are there: the voters now or those that
/// are left would have no majority. One that is left without voters needs a learner that is there.
#[must_use]
pub fn groups_stopped_by_leaving<'a>(
    node: NodeNumber,
    groups: impl Iterator<Item = (GroupId, &'a Configuration)>,
    alive: impl Fn(NodeNumber) -> bool,
) -> Vec<GroupId> {
    let is_there = |id: &ReplicaId| alive(id.node());
    let stops = |configuration: &Configuration| {
        let voters = configuration.voters.iter().copied().filter(|id| id.node() != node);
        let left = Configuration::of(&voters.collect::<Vec<_>>());
        let mut learners = configuration.learners.iter().filter(|id| id.node() != node);
        let is_left = match left.voters.is_empty() {
            true => learners.any(is_there),
            false => left.is_quorum(|id| is_there(&id)),
        };
        let is_concerned = configuration.replicas().iter().any(|id| id.node() == node);
        is_concerned && !(is_left && configuration.is_quorum(|id| is_there(&id)))
    };
    groups.filter(|(_, configuration)| stops(configuration)).map(|(group, _)| group).collect()
}

/// The node that shall lead each group, if all that may lead do so equally: of a group's nodes the one with the fewest so far. All
/// find the same. So no node gives a leadership back to the one that has just given it away.
#[must_use]
pub fn leaders_wanted<'a>(
    groups: impl Iterator<Item = (GroupId, &'a [NodeNumber])>,
    may_lead: impl Fn(NodeNumber) -> bool,
) -> BTreeMap<GroupId, NodeNumber> {
    let mut counts: BTreeMap<NodeNumber, u32> = BTreeMap::new();
    let mut wanted = BTreeMap::new();
    for (group, nodes) in groups {
        let able = nodes.iter().copied().filter(|node| may_lead(*node));
        let count = |node: &NodeNumber| counts.get(node).copied().unwrap_or(0);
        let Some(least) = able.min_by_key(|node| (count(node), weight(group, *node))) else {
            continue;
        };
        *counts.entry(least).or_default() += 1;
        wanted.insert(group, least);
    }
    wanted
}

#[cfg(test)]
mod tests;
