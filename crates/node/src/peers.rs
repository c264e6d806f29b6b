//! Between a shard and its peers, the same node's shards on other machines: the seam of replication and links.
//!
//! # What
//! A shard says [`cluster::Section`]s, and hears them. It knows no socket, no frame and no part of a section: those belong to
//! the owner of the links, a server or a simulator. A group is at one shard of each node, and nodes may have different
//! numbers of shards.
//!
//! # Driving it
//! - For [`crate::Output::Peer`], put the section into the [`cluster::Outbox`] of the link to that node. If there is no link
//!   the section is dropped: replicas repeat what matters.
//! - At the end of a turn, and *before* a [`crate::Output::Sync`] is run in the same thread, make frames of the outboxes
//!   and send what the sockets take. A leader's entries are on their way while its own disk works. Votes and
//!   acknowledgements come out only after the sync that they promise.
//! - Give each section of a frame that arrives to the shard that [`to_shards`] names. Sections of
//!   one link stay in order. Parts go through [`cluster::Parts`] first.
//! - [`PeerEvent::Up`] when frames can be sent to a node, [`PeerEvent::Down`] when all links to it are lost: for each shard.
//! - [`PeerEvent::Tick`] every [`PEER_TICK_MS`], at most once in a turn. What the loop itself has lost is not made up for.
//! - [`crate::Output::Fetch`] like [`crate::Output::Read`]: on a thread that may wait for the disk, and the result
//!   comes back as [`crate::Event::Fetched`].
//! - [`crate::Output::Transfer`] like [`crate::Output::Work`]: any number at once, and the result comes back as
//!   [`crate::Event::Transferred`].
//! - There may be two links to a node: [`Section::class`] says which one carries a section. Without the second one the first
//!   carries all.
//!
//! # Bounds
//! To one follower at most 16 MiB of entries of a group are under way. A link that takes nothing is closed by its owner
//! when its outbox holds more than it may, and that is [`PeerEvent::Down`].
//!
//! # Invariants
//! - What a shard tells a peer is true on this node's disk, or promises nothing.
//! - A section may be lost, repeated or late. None is changed: frames have checksums, and entries have their own.

use cluster::{Configuration, Member, Meta, NodeNumber, ReplicaId, Section};
use model::{EntryIndex, ShardId};
use std::ops::Range;
use std::sync::Arc;

/// Time between two [`PeerEvent::Tick`]s.
pub const PEER_TICK_MS: u64 = 50;

/// Bits of a request's number that name the shard that has sent it.
pub(crate) const SHARD_BITS: u32 = 16;

/// What a shard hears of other nodes.
#[derive(Debug)]
pub enum PeerEvent {
    /// Frames can be sent to a node.
    Up {
        /// The node.
        node: NodeNumber,
        /// Its opening: another number after each start.
        opening: u64,
    },
    /// All links with a node are lost, and what was under way on them may be.
    Down {
        /// The node.
        node: NodeNumber,
    },
    /// A node has said something.
    Section {
        /// The node, as its link has proven.
        from: NodeNumber,
        /// What it has said.
        section: Section,
    },
    /// [`PEER_TICK_MS`] have passed.
    Tick,
    /// The cluster's own state has changed: another shard of this node has applied that ([`crate::ShardCore::poll_meta`]).
    Meta(Arc<Meta>),
}

/// What a shard says to another node.
#[derive(Debug)]
pub struct ToPeer {
    /// The node.
    pub to: NodeNumber,
    /// What it says.
    pub section: Section,
}

/// The nodes that have copies of the groups, and which of them this one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// This node.
    pub node: NodeNumber,
    /// The voters with which each group began.
    pub voters: Vec<ReplicaId>,
    /// How often this node was opened at least; the write-ahead log may have counted more. Peers know by this number what is left
    /// of an earlier opening, so it is the epoch that the node's hello says.
    pub opening: u64,
    /// Decides election timeouts, with the node's number and the term.
    pub seed: u64,
    /// What a cluster needs whose members change. Without it they are those of `voters` for good.
    pub meta: Option<MetaStart>,
}

/// What a member of a cluster needs whose members change: a group for the cluster's own state, behind those of the streams.
///
/// Such a cluster begins as its first node, alone. So the voters with which each group began are that node's first copy, on
/// each node. Copies elsewhere begin empty, and the log or a snapshot tells them who votes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaStart {
    /// The cluster: the lineage of all its directories.
    pub cluster: u64,
    /// This node, as the cluster is to know it.
    pub own: Member,
    /// No other node was ever a member, as the file `CLUSTER` says: nobody else has any of the data, so nothing was promised to
    /// anybody.
    pub is_alone: bool,
    /// A member that was not heard for so long gives its replicas to others, where enough are there; 0 is never.
    pub replace_after_ms: u64,
}

impl Membership {
    /// The voters with which each group began, as a configuration.
    pub(crate) fn first(&self) -> Configuration {
        Configuration::of(&self.voters)
    }

    /// This node's copy of a group whose log has these configurations: the newest that any of them names. If none does it is the
    /// node's first copy.
    ///
    /// A log may end with an entry that gives the copy up. If that is never committed, or the node gets its place back, the copy
    /// is the one that it was. The joint configuration behind that entry may still name an older one, as a voter that goes: its promises are lost.
    #[must_use]
    pub fn replica_in<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a Configuration>,
    ) -> ReplicaId {
        let replicas = configurations.into_iter().flat_map(Configuration::replicas);
        let named = replicas.filter(|id| id.node() == self.node).max();
        named.unwrap_or_else(|| ReplicaId::new(self.node, 1))
    }

    /// The same, where the write-ahead log has counted so many openings.
    pub(crate) fn opened(&self, count: u64) -> Self {
        let mut opened = self.clone();
        opened.opening = self.opening.max(count);
        if let Some(meta) = &mut opened.meta {
            meta.own.epoch = opened.opening;
        }
        opened
    }

    /// Whether a group that has had one voter only, and so many entries, may become a copy here.
    pub(crate) fn may_begin(&self, last: EntryIndex) -> bool {
        last.get() == 0 || self.is_founder()
    }

    /// Whether each group began as the copy of this node, alone.
    pub(crate) fn is_founder(&self) -> bool {
        self.meta.is_some() && self.voters == [ReplicaId::new(self.node, 1)]
    }

    /// Whether nobody else can have any of the data.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_founder() && self.meta.as_ref().is_some_and(|meta| meta.is_alone)
    }
}

/// Gives a section of another node to the shards of this one that are to hear it, of `shard_count`: one, or all. None hears a
/// part: only the whole has a group. None hears a report, either, and none what is for a shard that is not there.
pub fn to_shards(
    (from, section): (NodeNumber, Section),
    shard_count: u16,
    mut give: impl FnMut(ShardId, PeerEvent),
) {
    let hearers = hearers(&section, shard_count);
    for shard in hearers.clone().skip(1) {
        give(ShardId::new(shard), PeerEvent::Section { from, section: section.clone() });
    }
    if let Some(shard) = hearers.into_iter().next().filter(|shard| *shard < shard_count) {
        give(ShardId::new(shard), PeerEvent::Section { from, section });
    }
}

fn hearers(section: &Section, shard_count: u16) -> Range<u16> {
    match section {
        Section::Message { group, .. }
        | Section::Forward { group, .. }
        | Section::Barrier { group, .. }
        | Section::Confirmed { group, .. }
        | Section::Transfer { group, .. } => one(group.shard(shard_count).get()),
        Section::Answer { request, .. } => {
            one(u16::try_from(request & ((1 << SHARD_BITS) - 1)).expect("16 bits"))
        }
        Section::Changed { shard, .. } => one(*shard),
        Section::Leave { .. } | Section::Left { .. } => 0..shard_count,
        Section::Part { .. } | Section::Report { .. } | Section::Removed { .. } => 0..0,
    }
}

fn one(shard: u16) -> Range<u16> {
    shard..shard.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use model::GroupId;

    fn hearers(section: &Section, shard_count: u16) -> Vec<u16> {
        let mut shards = Vec::new();
        let heard = (NodeNumber::new(1), section.clone());
        to_shards(heard, shard_count, |shard, _| shards.push(shard.get()));
        shards.sort_unstable();
        shards
    }

    #[test]
    fn a_section_is_for_the_shard_of_its_group_and_an_answer_for_its_asker() {
        let barrier = Section::Barrier { group: GroupId::new(7), number: 1 };
        assert_eq!(hearers(&barrier, 4), [3]);
        assert_eq!(hearers(&barrier, 1), [0]);
        let answer = Section::Answer { request: 9 << SHARD_BITS | 2, payload: Bytes::new() };
        assert_eq!(hearers(&answer, 4), [2]);
        assert!(hearers(&answer, 2).is_empty(), "an earlier start had more shards");
        let part = Section::Part { number: 1, position: 0, total: 1, bytes: Bytes::new() };
        assert!(hearers(&part, 4).is_empty());
        assert_eq!(hearers(&Section::Leave { opening: 1, is_done: true }, 4), [0, 1, 2, 3]);
    }

    #[test]
    fn a_member_knows_its_own_copies() {
        let id = |node, incarnation| ReplicaId::new(NodeNumber::new(node), incarnation);
        let voters = vec![id(1, 1), id(3, 1)];
        let node = NodeNumber::new(2);
        let membership = Membership { node, voters, opening: 1, seed: 0, meta: None };
        assert_eq!(membership.replica_in([&membership.first()]), id(2, 1));
        let with_two = Configuration::of(&[id(1, 1), id(2, 1), id(2, 4)]);
        assert_eq!(membership.replica_in([&with_two, &membership.first()]), id(2, 4));
        // The entry behind it gives both places up, and the older one is still an outgoing voter.
        let joint = Configuration {
            outgoing: vec![id(1, 1), id(2, 1)],
            ..Configuration::of(&[id(1, 1), id(3, 1)])
        };
        assert_eq!(membership.replica_in([&with_two, &joint]), id(2, 4));
    }
}
