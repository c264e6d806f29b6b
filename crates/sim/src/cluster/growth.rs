//! Clusters that begin as one node and grow to three or four, under clients and all faults.
//!
//! # What is simulated of a server
//! The file `CLUSTER`: a node knows for good what its shards have reported of the cluster before an answer of the same turn
//! goes out. The exchange of a joiner with a member: the command, and its answer. A joiner that has none asks again.

use super::joined::{Exchange, Growth};
use super::member::{Mail, Member, node_number};
use super::plan::ClusterMutant;
use super::streams::NODES;
use super::world::{Act, World};
use crate::dice::Dice;
use cluster::{MemberState, MetaCommand, MetaOutcome, NodeNumber, ReplicaId};
use model::{GroupId, ShardId};
use node::{CopyState, CopyStatus, Membership, MetaStart, PeerEvent, Reply, Request, Ticket};

/// A joiner waits this long for its answer, and then asks again.
const JOIN_PATIENCE_US: u64 = 1_000_000;

/// So many runs of 100 begin without data in groups with one voter: others send it in snapshots.
const BEGINS_AT_ONCE_PERCENT: u64 = 30;

/// A node that is away for so long is replaced: sooner than some faults end, and later.
const REPLACE_AFTER_MS: [u64; 3] = [2_000, 5_000, 8_000];

/// So many runs of 100 have four nodes, and nobody goes.
const IS_WIDE_PERCENT: u64 = 40;

impl World {
    /// Whether a node may run.
    pub(super) fn is_member(&self, node: usize) -> bool {
        self.growth.as_ref().is_none_or(|growth| {
            let is_gone = growth.exchange.is_some_and(|it| it.is_gone && it.out == node);
            growth.joined[node] && !is_gone
        })
    }

    /// The first node is there, and others will come.
    pub(super) fn begin_growth(&mut self) {
        let mut growth = Growth::default();
        growth.joined[0] = true;
        self.growth = Some(growth);
        if self.fault_dice.percent(BEGINS_AT_ONCE_PERCENT) {
            self.at(0, Act::Begin);
        }
        let is_wide = Dice::new(self.seed() ^ 0x7769_6465).percent(IS_WIDE_PERCENT);
        let replace_after_ms = match self.mutant() {
            Some(ClusterMutant::NobodyReplaced) => 0,
            _ => *Dice::new(self.seed() ^ 0x6177_6179).pick(&REPLACE_AFTER_MS),
        };
        let growth = self.growth.as_mut().expect("it was just made");
        (growth.is_wide, growth.replace_after_ms) = (is_wide, replace_after_ms);
        let mut after_us = 0;
        for node in 1..NODES + usize::from(is_wide) {
            after_us += self.fault_dice.between(1_000, 6_000_000);
            self.at(after_us, Act::Join(node));
        }
    }

    /// What a node of a cluster that grows is opened with.
    pub(super) fn membership_in_growth(&self, node: usize) -> Membership {
        let growth = self.growth.as_ref().expect("it grows");
        let first = match self.mutant() {
            Some(ClusterMutant::SelfMadeMember) if node == 1 => node,
            _ => 0,
        };
        let is_alone = node == 0
            && (!growth.knows_others[0] || self.mutant() == Some(ClusterMutant::ForgottenCluster));
        let replace_after_ms = growth.replace_after_ms;
        let meta = Some(MetaStart { cluster: 1, own: member_of(node), is_alone, replace_after_ms });
        let voters = vec![ReplicaId::new(node_number(first), 1)];
        let (opening, seed) = (1, self.seed());
        Membership { node: node_number(node), voters, opening, seed, meta }
    }

    /// A node asks to be a member.
    pub(super) fn join(&mut self, node: usize) {
        let growth = self.growth.as_ref().expect("it grows");
        let (is_turn, has_joined) = (growth.joined[node - 1], growth.joined[node]);
        if is_turn && !has_joined && (node > 1 || self.members[0].is_up()) {
            if node == 1 {
                // The first node learns that it is not to be alone, if it does not know.
                self.begin_membership();
            }
            self.ask_cluster(MetaCommand::Join(member_of(node)), Some(node));
        }
        if !has_joined {
            self.at(JOIN_PATIENCE_US, Act::Join(node));
        }
    }

    /// The first node is to be one of several.
    pub(super) fn begin_membership(&mut self) {
        for shard in 0..self.members[0].shards.len() {
            let membership =
                Membership { opening: self.members[0].life, ..self.membership_in_growth(0) };
            self.post(0, shard, Mail::Begin(Box::new(membership)));
        }
    }

    /// Whether the first node must be reminded at its start that it is not alone.
    pub(super) fn has_begun(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| growth.knows_others[0])
    }

    /// Asks any member for a change of the cluster.
    fn ask_cluster(&mut self, command: MetaCommand, joiner: Option<usize>) {
        let node = self.any_node();
        self.ask_node(node, command, joiner);
    }

    fn ask_node(&mut self, node: usize, command: MetaCommand, joiner: Option<usize>) {
        let call = self.next_call();
        let growth = self.growth.as_mut().expect("it grows");
        growth.calls.insert(call, joiner);
        let group = GroupId::new(self.options.group_count);
        let shard = usize::from(group.shard(self.members[node].shard_count).get());
        let ticket = Ticket { shard: ShardId::new(0), exchange: [call, 0, 0] };
        let request = Request::Meta(Box::new(command));
        if self.members[node].is_up() {
            self.post(node, shard, Mail::Request { ticket, request, data: Vec::new() });
        }
    }

    /// The answer to a change of the cluster; `false` if the call is a client's.
    pub(super) fn hear_cluster(&mut self, call: u32, reply: &Reply) -> bool {
        let Some(growth) = &mut self.growth else { return false };
        let Some(joiner) = growth.calls.remove(&call) else { return false };
        let (Some(node), Reply::Meta(outcome)) = (joiner, reply) else { return true };
        if *outcome != MetaOutcome::Joined(node_number(node)) {
            self.oracle.broken(format!("node {node} asked to join, and got {outcome:?}"));
        }
        if !std::mem::replace(&mut growth.joined[node], true) {
            growth.knows_others[node] = true;
            self.note(format_args!("node {node} joins"));
            self.start(node);
        }
        true
    }

    /// What the shards of a node have reported of the cluster is known to all of them, and durable.
    pub(super) fn spread_meta(&mut self, node: usize) {
        let Some(growth) = &mut self.growth else { return };
        for shard in 0..self.members[node].shards.len() {
            let Some(meta) = self.members[node].shards[shard].poll_meta() else { continue };
            growth.knows_others[node] |= meta.members().count() > 1;
            let shards = 0..self.members[node].shards.len();
            let others = shards.filter(|other| *other != shard);
            for other in others.collect::<Vec<_>>() {
                let mail = Mail::Peer(PeerEvent::Meta(std::sync::Arc::clone(&meta)));
                self.members[node].inbox.push((other, mail));
            }
        }
        let shards = self.members[node].shards.iter_mut();
        let wishes: Vec<_> =
            shards.flat_map(|shard| std::iter::from_fn(|| shard.poll_wish())).collect();
        for mut command in wishes {
            self.forge_place(&mut command);
            self.ask_node(node, command, None);
        }
    }

    /// A node is not to lead for a while, or is again.
    pub(super) fn drain(&mut self, node: usize) {
        let Some(growth) = &self.growth else { return };
        if !self.is_member(node) || growth.exchange.is_some_and(|it| it.out == node) {
            return;
        }
        let is_drained = !self.is_ending && self.fault_dice.percent(60);
        let state = if is_drained { MemberState::Draining } else { MemberState::Active };
        self.note(format_args!("node {node} becomes {state:?}"));
        self.ask_cluster(MetaCommand::SetState { number: node_number(node), state }, None);
        // Leaderships move while the copies compare their states.
        self.ask_cluster(MetaCommand::Check, None);
    }

    /// A node goes for good, once in a run, and the spare one takes its place. If its disk is lost, no other one is damaged then.
    pub(super) fn exchange(&mut self, out: usize) {
        let may_go = |growth: &Growth| growth.exchange.is_none() && !growth.is_wide;
        let is_grown = self.growth.as_ref().is_some_and(may_go);
        if !is_grown || !self.is_member(out) {
            return;
        }
        let is_lost = self.may_damage_another(out) && self.fault_dice.percent(50);
        self.note(format_args!("node {out} goes for good, and its disk is lost: {is_lost}"));
        if is_lost {
            self.kill(out);
            self.members[out].disk = env::MemoryDisk::new();
            self.damages.note(out, self.now_us);
        }
        let is_told = !is_lost || Dice::new(self.seed() ^ 0x746f_6c64).percent(50);
        let growth = self.growth.as_mut().expect("it grows");
        growth.exchange = Some(Exchange { out, is_lost, is_told, is_gone: is_lost });
        self.at(0, Act::Exchange);
        self.at(0, Act::Join(NODES));
    }

    /// Asks for the next step of an exchange, again and again until it is done.
    pub(super) fn go_on_exchanging(&mut self) {
        let growth = self.growth.as_mut().expect("it grows");
        let exchange = growth.exchange.expect("it has begun");
        let number = node_number(exchange.out);
        if self.members.iter().any(|member| knows_removed(member, number)) {
            growth.exchange = Some(Exchange { is_gone: true, ..exchange });
            self.note(format_args!("node {} is removed", exchange.out));
            return self.kill(exchange.out);
        }
        // A node whose place is not taken yet may stay.
        if exchange.is_told && (exchange.is_lost || growth.joined[NODES]) {
            let state = match exchange.is_lost {
                true => MemberState::Removed,
                false => MemberState::Leaving,
            };
            self.ask_cluster(MetaCommand::SetState { number, state }, None);
        }
        self.at(JOIN_PATIENCE_US, Act::Exchange);
    }

    /// A node that has left is removed when no group counts on it.
    pub(super) fn check_left(&mut self, knows: usize) {
        let exchange = self.growth.as_ref().and_then(|growth| growth.exchange);
        let Some(Exchange { out, is_lost: false, .. }) = exchange else { return };
        if knows_removed(&self.members[knows], node_number(out)) {
            self.oracle.check_left(node_number(out));
        }
    }

    /// Whether nobody is going or coming.
    fn is_exchanged(&self) -> bool {
        let growth = self.growth.as_ref().expect("it grows");
        if growth.is_wide {
            return growth.joined[NODES];
        }
        growth.exchange.is_none_or(|it| it.is_gone && growth.joined[NODES])
    }

    /// Whether a replica is there, and not out.
    fn takes_part(&self, group: GroupId, id: ReplicaId) -> bool {
        let member = &self.members[usize::from(id.node().get()) - 1];
        let mut copies = member.copies();
        let is_it = |copy: &CopyStatus| (copy.group, copy.id) == (group, id);
        let is_out =
            |copy: &CopyStatus| matches!(copy.state, CopyState::Halted | CopyState::Removed);
        copies.any(|copy| is_it(&copy) && !is_out(&copy))
    }

    /// A node that has entries of a group in which it has no part any more.
    pub(super) fn hoarder(&self) -> Option<String> {
        self.growth.as_ref()?;
        let all = || self.members.iter().flat_map(|member| &member.shards);
        let settled: Vec<CopyStatus> =
            all().flat_map(|shard| shard.copies()).filter(|copy| copy.is_settled).collect();
        all().find_map(|shard| {
            let has_none = |copy: &CopyStatus| {
                let mut leaders = settled.iter().filter(|leader| leader.group == copy.group);
                leaders.all(|leader| !leader.configuration.contains(copy.id))
            };
            let has_entries = |copy: &CopyStatus| shard.log().first_index(copy.group).is_some();
            let copy = shard.copies().into_iter().find(|it| has_none(it) && has_entries(it))?;
            Some(format!("a node without a part in its group keeps what it has: {copy:?}"))
        })
    }

    /// Whether each group has three voters, the cluster's own too, all of them take part, and nothing is under way.
    pub(super) fn has_grown(&mut self) -> bool {
        let groups = (0..=self.options.group_count).map(GroupId::new);
        let has_all = |group: GroupId| {
            let shards = self.members.iter().flat_map(|member: &Member| &member.shards);
            let copies = shards.flat_map(|shard| shard.copies());
            copies.filter(|copy| copy.group == group).any(|copy| {
                let configuration = &copy.configuration;
                let has_three = configuration.voters.len() == NODES && !configuration.is_joint();
                let all_live = configuration.voters.iter().all(|id| self.takes_part(group, *id));
                let is_settled = copy.is_settled && all_live;
                copy.state == CopyState::Serves && has_three && is_settled
            })
        };
        let has_grown =
            self.growth.is_some() && self.is_exchanged() && groups.into_iter().all(has_all);
        if let Some(growth) = &mut self.growth {
            growth.is_grown |= has_grown;
        }
        has_grown
    }
}

/// Whether a node has heard that another one was removed.
fn knows_removed(member: &Member, number: NodeNumber) -> bool {
    let mut known = member.shards.iter().filter_map(|shard| shard.known_meta()?.member(number));
    known.any(|it| it.state == MemberState::Removed)
}

fn member_of(node: usize) -> cluster::Member {
    cluster::Member {
        store: node as u64 + 1,
        peer_address: format!("n{node}"),
        client_address: String::new(),
        state: MemberState::Active,
        version: 1,
        epoch: 1,
    }
}
