//! What mutants change on the links: peers that say what is not true.

use super::member::node_number;
use super::plan::ClusterMutant;
use super::world::World;
use cluster::{Body, Confirmation, GroupMessage, LogPosition, MetaCommand, Section, TransferSays};
use model::{EntryIndex, GroupId};
use node::{CopyState, CopyStatus, ToPeer};

/// A question whether a fork holds a reference, an answer to it, and one that says that none does: `docs/format/cluster.md`.
const HOLDER: u8 = 34;
const NO_HOLDER: [u8; 2] = [7, 2];

/// An answer that says that a request was not applied, and never will be: `docs/format/cluster.md`.
const NOT_APPLIED: u8 = 16;

impl World {
    /// What a node says becomes what a defective one would say, and what a defective peer answers comes at once.
    pub(super) fn forge(&mut self, node: usize, said: &mut ToPeer) {
        let Some(mutant) = self.mutant() else { return };
        let peer = usize::from(said.to.get()) - 1;
        if let Section::Barrier { group, number } = said.section
            && self.hear_each_other(node, peer)
            && let Some(at) = self.forged_confirmation(mutant, (peer, group))
        {
            let confirmation = Confirmation::At(at);
            return self
                .post_section((peer, node), Section::Confirmed { group, number, confirmation });
        }
        if let Section::Forward { .. } = said.section {
            return self.forge_forward(mutant, (node, peer), &said.section);
        }
        forge_snapshot(mutant, &mut said.section);
        let Section::Message { group, message } = &mut said.section else { return };
        let group = *group;
        if let Some(commit) = self.forged_commit(mutant, (node, group), message) {
            match &mut message.body {
                Body::Append { commit: told, .. }
                | Body::Heartbeat { commit: told, .. }
                | Body::Committed { commit: told } => *told = commit,
                _ => {}
            }
        }
        let is_out = |copy: CopyStatus| copy.state == CopyState::Halted;
        let forger = match mutant {
            mutant if !mutant.is_of_copies_that_are_out() => Some(mutant),
            _ if !self.members[peer].copy_of(group).is_some_and(is_out) => None,
            mutant => forgery_of(mutant, message.to.incarnation() > 1),
        };
        if let Some(body) = forger.and_then(|forger| forged_answer(forger, &message.body)) {
            let (from, to) = (message.to, message.from);
            let message = GroupMessage { from, to, term: message.term, body };
            self.post_section((peer, node), Section::Message { group, message });
        }
    }

    fn hear_each_other(&self, node: usize, peer: usize) -> bool {
        [(node, peer), (peer, node)].iter().all(|way| !self.wires[way].is_cut)
    }

    fn forged_commit(
        &self,
        mutant: ClusterMutant,
        (node, group): (usize, GroupId),
        message: &GroupMessage,
    ) -> Option<EntryIndex> {
        match (mutant, &message.body) {
            (ClusterMutant::EarlyCommits, Body::Append { entries, .. }) => {
                entries.last().map(|entry| entry.at.index)
            }
            (ClusterMutant::UnclampedCommits, Body::Heartbeat { .. } | Body::Committed { .. }) => {
                self.members[node].copy_of(group).map(|copy| copy.committed)
            }
            _ => None,
        }
    }

    /// A forwarded request is on its way from `node` to `peer`.
    fn forge_forward(
        &mut self,
        mutant: ClusterMutant,
        (node, peer): (usize, usize),
        section: &Section,
    ) {
        let Section::Forward { request, payload, .. } = section else { return };
        match mutant {
            ClusterMutant::DoubledForwards if self.members[peer].is_up() => {
                let mut copy = section.clone();
                if let Section::Forward { request, .. } = &mut copy {
                    *request |= 1 << 63;
                }
                self.post_section((node, peer), copy);
            }
            ClusterMutant::DeniedForwards => {
                let answer = (*request, &payload[8..16], &[NOT_APPLIED][..]);
                self.post_answer((peer, node), answer);
            }
            ClusterMutant::DeniedReferences if payload[16] == HOLDER => {
                self.post_answer((peer, node), (*request, &payload[8..16], &NO_HOLDER));
            }
            _ => {}
        }
    }

    /// Posts an answer for the opening of the node that asked.
    fn post_answer(
        &mut self,
        way: (usize, usize),
        (request, opening, answer): (u64, &[u8], &[u8]),
    ) {
        let payload = [opening, answer].concat().into();
        self.post_section(way, Section::Answer { request, payload });
    }

    fn forged_confirmation(
        &self,
        mutant: ClusterMutant,
        (node, group): (usize, GroupId),
    ) -> Option<EntryIndex> {
        match mutant {
            ClusterMutant::ForgedBarriers => Some(EntryIndex::new(0)),
            ClusterMutant::HastyBarriers => {
                self.members[node].copy_of(group).map(|copy| copy.committed)
            }
            _ => None,
        }
    }

    /// A leader says that its group is where it is to be, and the node that leaves is still one of its own.
    pub(super) fn forge_place(&self, command: &mut MetaCommand) {
        let exchange = self.growth.as_ref().and_then(|growth| growth.exchange);
        let (Some(ClusterMutant::HastyPlaces), Some(exchange)) = (self.mutant(), exchange) else {
            return;
        };
        if let MetaCommand::Placed { nodes, revision, .. } = command {
            nodes.retain(|node| *node != node_number(exchange.out));
            *revision = u64::MAX;
        }
    }

    /// Something that a peer has said, or would have said if it were defective.
    pub(super) fn post_section(&mut self, (from, to): (usize, usize), section: Section) {
        use super::member::Mail;
        let shard_count = self.members[to].shard_count;
        node::to_shards((node_number(from), section), shard_count, |shard, event| {
            self.post(to, usize::from(shard.get()), Mail::Peer(event));
        });
    }
}

/// What of a snapshot is not what its leader has.
fn forge_snapshot(mutant: ClusterMutant, section: &mut Section) {
    match (mutant, section) {
        (ClusterMutant::GarbledSnapshots, Section::Transfer { transfer, .. }) => {
            let TransferSays::Piece { position, first_bytes, bytes } = &mut transfer.says else {
                return;
            };
            if *position >= *first_bytes {
                let mut garbled = bytes.to_vec();
                let middle = garbled.len() / 2;
                garbled[middle] ^= 0xff;
                *bytes = garbled.into();
            }
        }
        (ClusterMutant::StrangeSnapshots, Section::Message { message, .. }) => {
            if let Body::Snapshot(point) = &mut message.body {
                point.configuration.voters.retain(|id| *id != message.to);
            }
        }
        _ => {}
    }
}

/// What a copy forges that is out, and has a new id or not.
fn forgery_of(mutant: ClusterMutant, is_renewed: bool) -> Option<ClusterMutant> {
    (is_renewed == (mutant == ClusterMutant::HastyCopies)).then_some(mutant)
}

/// What a defective peer answers.
fn forged_answer(mutant: ClusterMutant, said: &Body) -> Option<Body> {
    match (mutant, said) {
        (
            ClusterMutant::ForgedAcks | ClusterMutant::OldIds | ClusterMutant::HastyCopies,
            Body::Append { entries, commit, .. },
        ) => {
            let index = entries.last()?.at.index;
            Some(Body::Appended { index, commit: *commit })
        }
        (ClusterMutant::ForgedConfirmations, Body::Heartbeat { read, commit }) => {
            Some(Body::Alive { commit: *commit, read: *read })
        }
        (ClusterMutant::ForgedVotes | ClusterMutant::OldIds, Body::Ask { is_pre, .. }) => {
            let commit = LogPosition::default();
            Some(Body::Vote { is_pre: *is_pre, is_granted: true, commit })
        }
        _ => None,
    }
}
