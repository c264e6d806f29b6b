//! What the cluster knows of itself: its members and where each group shall be.
//!
//! # What
//! The state machine of the meta group, a group of its own beside those of the streams. Commands in, outcomes
//! out, as everywhere: no clock, no IO. A node's liveness is not in here: it changes without anybody's
//! command, and each leader sees it for itself.
//!
//! # Invariants
//! - A number is given once. A removed member keeps its entry, so that a refusal can say why.
//! - A store id has one number.
//! - `epoch` of a member never falls: a lower one is an old copy of its disk.
//! - The incarnation of a replica never falls, so no replica id comes twice.
//!
//! # Format
//! `docs/format/cluster.md`.

mod codec;
mod command;
mod membership;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use codec::{
    read_member, read_members, read_number, read_refusal, write_member, write_members,
    write_refusal,
};
pub use command::{MetaCommand, MetaOutcome, MetaRefusal};
pub use membership::{MEMBERSHIP_BYTES_MAX, Membership, MembershipError};

use crate::configuration::REPLICAS_MAX;
use crate::identity::{NodeNumber, ReplicaId};
use crate::link::{Hello, Refusal};
use model::GroupId;
use std::collections::BTreeMap;

/// Most members, removed ones included: the tables of the cluster are small.
pub const MEMBERS_MAX: u16 = 1024;

/// Members that a cluster has at a time: each of them has a copy of the cluster's own group.
pub(crate) const PRESENT_MAX: usize = REPLICAS_MAX - REPLICATION_DEFAULT as usize;

/// Longest address of a member: a host name and a port.
pub const ADDRESS_BYTES_MAX: usize = 300;

/// Voters of a group once enough nodes are there.
pub const REPLICATION_DEFAULT: u16 = 3;

/// What a member is to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// It may hold replicas and lead groups.
    Active,
    /// It keeps its replicas and leads nothing, for maintenance.
    Draining,
    /// Its replicas move away; then it is removed.
    Leaving,
    /// It is none any more.
    Removed,
}

/// One node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its data directory's id.
    pub store: u64,
    /// Where its peers reach it.
    pub peer_address: String,
    /// Where clients reach it; empty if it does not say.
    pub client_address: String,
    /// What it is to the cluster.
    pub state: MemberState,
    /// The newest version of commands that its program knows.
    pub version: u16,
    /// How often its data directory was opened, as far as the cluster has seen.
    pub epoch: u64,
}

/// What the cluster knows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    cluster: u64,
    group_count: u16,
    replication: u16,
    checks: u64,
    members: BTreeMap<NodeNumber, Member>,
    /// Where each group shall be; a group that is not here stays where it began.
    targets: BTreeMap<GroupId, Place>,
    /// Where each group is, as its leaders have said last.
    placed: BTreeMap<GroupId, Place>,
    /// The present incarnation of each replica that was ever given one.
    incarnations: BTreeMap<(GroupId, NodeNumber), Given>,
}

/// Where a group is, or shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Place {
    nodes: Vec<NodeNumber>,
    /// Of a target, how often there was one, from 1. Of where the group is, that of the target that it follows.
    revision: u64,
}

/// An incarnation, and the opening of its node that has asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Given {
    incarnation: u64,
    epoch: u64,
}

impl Meta {
    /// A cluster without members.
    #[must_use]
    pub fn new(cluster: u64, group_count: u16) -> Self {
        Self {
            cluster,
            group_count,
            replication: REPLICATION_DEFAULT,
            checks: 0,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            placed: BTreeMap::new(),
            incarnations: BTreeMap::new(),
        }
    }

    /// Its id.
    #[must_use]
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Its number of groups, the meta group not counted. The meta group has this number.
    #[must_use]
    pub fn group_count(&self) -> u16 {
        self.group_count
    }

    /// Voters that each group shall have.
    #[must_use]
    pub fn replication(&self) -> u16 {
        self.replication
    }

    /// How often the copies of all groups were to compare their states; the number of the last check.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// All members, removed ones too, by number.
    pub fn members(&self) -> impl Iterator<Item = (NodeNumber, &Member)> {
        self.members.iter().map(|(number, member)| (*number, member))
    }

    /// One of them.
    #[must_use]
    pub fn member(&self, number: NodeNumber) -> Option<&Member> {
        self.members.get(&number)
    }

    /// Where a group shall be.
    #[must_use]
    pub fn target(&self, group: GroupId) -> &[NodeNumber] {
        self.targets.get(&group).map_or(&[], |place| &place.nodes)
    }

    /// How often it was said where a group shall be; 0 if it never was.
    #[must_use]
    pub fn revision(&self, group: GroupId) -> u64 {
        self.targets.get(&group).map_or(0, |place| place.revision)
    }

    /// Where a group is, as its leaders have said last.
    #[must_use]
    pub fn placed(&self, group: GroupId) -> &[NodeNumber] {
        self.placed.get(&group).map_or(&[], |place| &place.nodes)
    }

    /// The revision of the target that the group follows there.
    #[must_use]
    pub fn placed_revision(&self, group: GroupId) -> u64 {
        self.placed.get(&group).map_or(0, |place| place.revision)
    }

    /// Whether a node may join. The second one may when each group has said where it is: then each is a copy, and its first note is
    /// durable.
    #[must_use]
    pub fn is_joinable(&self) -> bool {
        let has_said = |group| !self.placed(group).is_empty();
        self.members.len() > 1 || (0..=self.group_count).map(GroupId::new).all(has_said)
    }

    /// Whether no group is on this node, none shall be, and no leader of one can take the node for a part of it. A leader that
    /// knows only an older target than its group follows changes nothing ([`crate::next_step`]).
    #[must_use]
    pub fn is_free(&self, node: NodeNumber) -> bool {
        let own = GroupId::new(self.group_count);
        self.is_free_of_streams(node) && self.is_settled_elsewhere(own, node)
    }

    /// The same of all groups but the cluster's own.
    fn is_free_of_streams(&self, node: NodeNumber) -> bool {
        (0..self.group_count).map(GroupId::new).all(|group| self.is_settled_elsewhere(group, node))
    }

    /// Whether a group is elsewhere for as long as its target does not change.
    fn is_settled_elsewhere(&self, group: GroupId, node: NodeNumber) -> bool {
        self.is_elsewhere(group, node) && self.placed_revision(group) >= self.revision(group)
    }

    /// Whether a node leaves. It is free when each group has said that it follows its newest target.
    #[must_use]
    pub fn awaits_revisions(&self) -> bool {
        self.members.values().any(|member| member.state == MemberState::Leaving)
    }

    /// Whether a group has said where it is, and it is not on this node, nor shall be.
    #[must_use]
    pub fn is_elsewhere(&self, group: GroupId, node: NodeNumber) -> bool {
        let is_elsewhere = |nodes: &[NodeNumber]| !nodes.is_empty() && !nodes.contains(&node);
        is_elsewhere(self.placed(group)) && is_elsewhere(self.target(group))
    }

    /// Nodes that learn what happens in the cluster's own group without a vote in it. They may lead other groups, and a leader
    /// brings its group where it shall be. A node that leaves is one of them until nothing else is on it. There are no more than a group has room for.
    #[must_use]
    pub fn listeners(&self) -> Vec<NodeNumber> {
        let target = self.target(GroupId::new(self.group_count));
        let listens = |(number, member): &(NodeNumber, &Member)| match member.state {
            MemberState::Active | MemberState::Draining => !target.contains(number),
            MemberState::Leaving => !self.is_free_of_streams(*number),
            MemberState::Removed => false,
        };
        let listeners = self.members().filter(listens).map(|(number, _)| number);
        // The voters before and after a change fit in, too.
        let room = REPLICAS_MAX.saturating_sub(2 * usize::from(self.replication));
        listeners.filter(|number| !target.contains(number)).take(room).collect()
    }

    /// The id of a group's replica on a node.
    #[must_use]
    pub fn replica(&self, group: GroupId, node: NodeNumber) -> ReplicaId {
        let incarnation = self.incarnations.get(&(group, node)).map_or(1, |it| it.incarnation);
        ReplicaId::new(node, incarnation)
    }

    /// The id that a group's replica on a node was given last, if it was an opening of the node with this number that has asked.
    #[must_use]
    pub fn renewed(&self, group: GroupId, node: NodeNumber, epoch: u64) -> Option<ReplicaId> {
        let given = self.incarnations.get(&(group, node)).filter(|given| given.epoch == epoch)?;
        Some(ReplicaId::new(node, given.incarnation))
    }

    /// The newest version of commands that every member knows.
    #[must_use]
    pub fn version(&self) -> u16 {
        let present = self.members.values().filter(|member| member.state != MemberState::Removed);
        present.map(|member| member.version).min().unwrap_or(0)
    }

    /// Whether a node that has proved that it knows the secret may talk to this cluster.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check_hello(&self, hello: &Hello) -> Result<(), Refusal> {
        check_hello(&self.members, hello)
    }

    fn number_of(&self, store: u64) -> Option<NodeNumber> {
        self.members().find(|(_, member)| member.store == store).map(|(number, _)| number)
    }

    fn is_removed(&self, number: NodeNumber) -> bool {
        self.members.get(&number).is_none_or(|member| member.state == MemberState::Removed)
    }
}

/// Whether a cluster with these members talks to a node that has proved that it knows the secret.
fn check_hello(members: &BTreeMap<NodeNumber, Member>, hello: &Hello) -> Result<(), Refusal> {
    let Some(number) = hello.number else {
        let mut known = members.iter().filter(|(_, member)| member.store == hello.store);
        return match known.next() {
            Some((number, member)) if member.state == MemberState::Removed => {
                Err(Refusal::Removed { number: *number })
            }
            _ => Ok(()),
        };
    };
    let Some(member) = members.get(&number) else {
        return Err(Refusal::Unknown { number });
    };
    if member.store != hello.store {
        return Err(Refusal::OtherStore { number });
    }
    if member.state == MemberState::Removed {
        return Err(Refusal::Removed { number });
    }
    if hello.epoch < member.epoch {
        return Err(Refusal::OldDisk { theirs: hello.epoch, known: member.epoch });
    }
    Ok(())
}
