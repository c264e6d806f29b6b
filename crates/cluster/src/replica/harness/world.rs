//! The world around the nodes: the network, the faults, the clients and the checks.

use super::disk::Disk;
use super::node::{Node, Turn};
use crate::configuration::{Change, Configuration, Part};
use crate::entry_bytes::entry_of_command;
use crate::identity::{NodeNumber, ReplicaId};
use crate::message::{Body, GroupMessage, LogPosition, SnapshotPoint};
use crate::rules::Rules;
use model::{EntryIndex, Timestamp, split_mix_next};
use std::collections::{BTreeMap, BTreeSet};

const NODES: usize = 5;

/// Kind of the clients' entries.
const KIND_CLIENT: u8 = 2;

/// What owners of replicas do, right or wrong.
#[derive(Clone, Copy)]
pub(super) struct Habits {
    /// A lost disk gets a new replica id (rule 7).
    pub(super) renews_ids: bool,
    /// Disks lose a third of what was synced.
    pub(super) disks_lie: bool,
    /// Somebody leaves a joint configuration (rule 9).
    pub(super) leaves_joint: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self { renews_ids: true, disks_lie: false, leaves_joint: true }
    }
}

/// How much happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) commits: u64,
    pub(super) crashes: u64,
    pub(super) changes: u64,
    pub(super) elections: u64,
    pub(super) installs: u64,
    pub(super) lost_disks: u64,
    pub(super) reads: u64,
}

/// Whether only a leader says such a thing.
fn is_leaders(message: &GroupMessage) -> bool {
    matches!(
        message.body,
        Body::Append { .. }
            | Body::Heartbeat { .. }
            | Body::Committed { .. }
            | Body::Snapshot(_)
            | Body::Campaign
    )
}

pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        split_mix_next(&mut self.0) % bound
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

pub(super) struct World<R: Rules> {
    dice: Dice,
    habits: Habits,
    nodes: Vec<Node<R>>,
    net: Vec<GroupMessage>,
    cuts: BTreeSet<(u16, u16)>,
    /// Term and hash of each committed entry.
    chosen: BTreeMap<u64, (u64, u32)>,
    leaders: BTreeMap<u64, ReplicaId>,
    /// The last entry that a client has an answer for.
    acknowledged: u64,
    proposed: u64,
    pub(super) hash: u64,
    pub(super) counts: Counts,
}

fn first_id(node: usize) -> ReplicaId {
    ReplicaId::new(NodeNumber::new(node as u16 + 1), 1)
}

impl<R: Rules> World<R> {
    pub(super) fn new(seed: u64, habits: Habits) -> Self {
        // A group that had one voter and grows, or one that has three.
        let voters = if seed.is_multiple_of(2) { 1 } else { 3 };
        let ids: Vec<ReplicaId> = (0..voters).map(first_id).collect();
        let last = LogPosition::new(3, 1);
        let first = Disk::at(SnapshotPoint { last, configuration: Configuration::of(&ids) }, 1);
        let node = |node| Node::new(first_id(node), (node < voters).then(|| first.clone()));
        let mut world = Self {
            dice: Dice(seed),
            habits,
            nodes: (0..NODES).map(node).collect(),
            net: Vec::new(),
            cuts: BTreeSet::new(),
            chosen: BTreeMap::new(),
            leaders: BTreeMap::new(),
            acknowledged: 0,
            proposed: 0,
            hash: 0,
            counts: Counts::default(),
        };
        world.nodes.iter_mut().for_each(Node::start);
        world
    }

    pub(super) fn step(&mut self) {
        let node = self.dice.below(NODES as u64) as usize;
        match self.dice.below(1000) {
            0..=249 => self.tick(node),
            250..=609 => self.deliver(),
            610..=749 => {
                let waiting = self.nodes[node].waiting() as u64;
                let count = if waiting > 0 { 1 + self.dice.below(waiting) } else { 0 };
                self.persist(node, count as usize);
            }
            750..=809 => self.propose(),
            810..=824 => self.read(node),
            825..=837 => self.crash(node),
            838..=879 => self.start(node),
            880..=889 => self.cut(),
            890..=899 => self.hand_over(),
            900..=914 => self.checkpoint(node),
            915..=934 => self.snapshot(),
            935..=942 => self.lose_disk(node),
            943..=949 => self.lose_link(node),
            _ => self.change(),
        }
    }

    /// One leader of a term is heard.
    ///
    /// The only voter of a group elects itself without asking. Until that term is durable it sends nothing,
    /// answers nothing and commits nothing (rule 11), and a crash takes its election back. If the group's
    /// other voters are back in the configuration that it restarts with, the term may then get
    /// another leader. So a leader counts once its term is durable, and whatever it says counts in any case.
    fn note_leader(&mut self, term: u64, id: ReplicaId) {
        let known = self.leaders.insert(term, id);
        self.counts.elections += u64::from(known.is_none());
        assert!(known.is_none_or(|known| known == id), "two leaders in a term");
    }

    fn settle(&mut self, node: usize, turn: Turn) {
        let Some(replica) = &self.nodes[node].replica else { return };
        let (id, term) = (replica.id(), replica.term());
        let leads = replica.is_leader();
        let durable_term = self.nodes[node].durable.as_ref().map(|disk| disk.note.term);
        let is_heard = leads && durable_term >= Some(term);
        let answers = turn.applied.iter().any(|(_, of, ..)| *of == term.get());
        assert!(is_heard || !leads || !answers && turn.reads.is_empty(), "too early an answer");
        if is_heard {
            self.note_leader(term.get(), id);
        }
        for message in turn.messages.iter().filter(|message| is_leaders(message)) {
            self.note_leader(message.term.get(), message.from);
        }
        let Some(replica) = &self.nodes[node].replica else { return };
        let is_leader = replica.is_settled_leader();
        let own_term = is_leader.then(|| replica.term().get());
        self.counts.installs += u64::from(turn.installed);
        for (index, term, hash, configuration) in turn.applied {
            self.hash = self.hash.rotate_left(7) ^ index ^ (term << 20) ^ u64::from(hash);
            match self.chosen.insert(index, (term, hash)) {
                Some(known) => assert_eq!(known, (term, hash), "two entries at {index}"),
                None => {
                    self.counts.commits += 1;
                    // Entries of earlier terms may have been committed under another configuration.
                    if own_term == Some(term) {
                        self.check_majority(&configuration, index, term);
                    }
                }
            }
            if is_leader {
                self.acknowledged = self.acknowledged.max(index);
            }
        }
        for (index, floor) in turn.reads {
            self.counts.reads += 1;
            assert!(index >= floor, "a read of {index} misses what was acknowledged: {floor}");
        }
        for message in turn.messages {
            if !self.cuts.contains(&(message.from.node().get(), message.to.node().get())) {
                self.net.push(message);
            }
        }
    }

    /// A majority has the entry on disks whose sync has returned.
    fn check_majority(&self, configuration: &Configuration, index: u64, term: u64) {
        let holds = |id: ReplicaId| {
            let node = &self.nodes[usize::from(id.node().get()) - 1];
            let disk = node.durable.as_ref().filter(|_| node.id == id);
            disk.is_some_and(|disk| disk.base() > index || disk.term(index) == Some(term))
        };
        // A disk may have been lost since.
        let is_sure = self.counts.lost_disks == 0 && !self.habits.disks_lie;
        assert!(!is_sure || configuration.is_quorum(holds), "{index} is committed by too few");
    }

    fn turn(&mut self, node: usize) {
        let turn = self.nodes[node].turn();
        self.settle(node, turn);
    }

    fn tick(&mut self, node: usize) {
        if let Some(replica) = self.nodes[node].replica.as_mut() {
            replica.tick();
            self.net.extend(std::iter::from_fn(|| replica.take_heartbeat()));
            self.turn(node);
        }
    }

    fn persist(&mut self, node: usize, count: usize) {
        let turn = self.nodes[node].persist(count);
        self.settle(node, turn);
    }

    fn deliver(&mut self) {
        if self.net.is_empty() {
            return;
        }
        let is_in_order = self.dice.percent(70);
        let at = if is_in_order { 0 } else { self.dice.below(self.net.len() as u64) as usize };
        let is_doubled = self.dice.percent(3);
        let message = if is_doubled { self.net[at].clone() } else { self.net.remove(at) };
        let is_cut = self.cuts.contains(&(message.from.node().get(), message.to.node().get()));
        if !is_cut && !self.dice.percent(4) {
            self.hand_in(message);
        }
    }

    fn hand_in(&mut self, message: GroupMessage) {
        let number = usize::from(message.to.node().get()) - 1;
        let node = &mut self.nodes[number];
        let Some(replica) = node.replica.as_mut() else { return };
        if let Body::Snapshot(point) = &message.body {
            let is_staged = node.staged.as_ref().is_some_and(|(staged, _)| staged == point);
            if !is_staged || message.to != node.id {
                return;
            }
        }
        if let Some(answer) = replica.answer_heartbeat(&message) {
            self.net.push(answer);
            return;
        }
        let _ = replica.step(message);
        self.turn(number);
    }

    fn leader(&self) -> Option<usize> {
        let leads =
            |node: &usize| self.nodes[*node].replica.as_ref().is_some_and(|r| r.is_leader());
        let term = |node: &usize| self.nodes[*node].replica.as_ref().map(|r| r.term());
        (0..NODES).filter(leads).max_by_key(term)
    }

    fn propose(&mut self) {
        let Some(leader) = self.leader() else { return };
        let node = &mut self.nodes[leader];
        for _ in 0..=self.dice.below(3) {
            self.proposed += 1;
            let command = self.proposed.to_le_bytes();
            let replica = node.replica.as_mut().expect("it leads");
            let Ok(at) = replica.propose(56 + 8) else { continue };
            let bytes = entry_of_command(at, Timestamp::new(1), KIND_CLIENT, &command);
            node.disk.push(at, bytes);
        }
        // Sometimes a message comes before the turn ends.
        if self.dice.percent(70) {
            self.turn(leader);
        }
    }

    fn read(&mut self, node: usize) {
        let floor = self.acknowledged;
        let node_ref = &mut self.nodes[node];
        let Some(replica) = node_ref.replica.as_mut() else { return };
        if let Ok(read) = replica.confirm_read() {
            node_ref.reads.entry(read).or_default().push(floor);
            self.turn(node);
        }
    }

    fn crash(&mut self, node: usize) {
        self.counts.crashes += u64::from(self.nodes[node].replica.is_some());
        self.nodes[node].crash();
        if self.habits.disks_lie
            && let Some(disk) = self.nodes[node].durable.as_mut()
        {
            let kept = disk.entries.len() - disk.entries.len() / 3;
            disk.entries.truncate(kept);
        }
    }

    fn start(&mut self, node: usize) {
        self.nodes[node].start();
        if self.nodes[node].replica.is_some() {
            self.turn(node);
        }
    }

    fn cut(&mut self) {
        if self.dice.percent(40) {
            self.cuts.clear();
            return;
        }
        let mut any = || self.dice.below(NODES as u64) as u16 + 1;
        let (a, b) = (any(), any());
        self.cuts.insert((a, b));
        if self.dice.percent(60) {
            self.cuts.insert((b, a));
        }
    }

    fn hand_over(&mut self) {
        let to = self.nodes[self.dice.below(NODES as u64) as usize].id;
        let Some(leader) = self.leader() else { return };
        self.nodes[leader].replica.as_mut().expect("it leads").hand_over(to);
        self.turn(leader);
    }

    fn lose_link(&mut self, node: usize) {
        let to = NodeNumber::new(self.dice.below(NODES as u64) as u16 + 1);
        if let Some(replica) = self.nodes[node].replica.as_mut() {
            replica.link_lost(to);
            self.turn(node);
        }
    }

    /// Takes a checkpoint and releases the log before it.
    fn checkpoint(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let is_level = node.waiting() == 0 && node.staged.is_none();
        let Some(replica) = node.replica.as_mut() else { return };
        if !is_level || node.applied <= node.disk.base() || replica.is_installing() {
            return;
        }
        let configuration = replica.configuration().clone();
        replica.compact(EntryIndex::new(node.applied));
        node.disk.compact(node.applied, configuration, node.state);
        node.durable = Some(node.disk.clone());
    }

    /// Brings the contents of a snapshot to each replica that needs one.
    fn snapshot(&mut self) {
        let Some(leader) = self.leader() else { return };
        let disk = &self.nodes[leader].disk;
        let old = (disk.checkpoint.clone(), disk.state);
        let (applied, state) = (self.nodes[leader].applied, self.nodes[leader].state);
        let term = disk.term(applied);
        let replica = self.nodes[leader].replica.as_ref().expect("it leads");
        let configuration = replica.configuration().clone();
        let last = LogPosition::new(applied, term.expect("what is applied is in the log"));
        let new = (SnapshotPoint { last, configuration: configuration.clone() }, state);
        for to in replica.wanted_snapshots() {
            let receiver = &self.nodes[usize::from(to.node().get()) - 1];
            let hears = receiver.replica.as_ref().is_some_and(|replica| !replica.is_installing());
            let is_ready = receiver.id == to && hears && !self.dice.percent(20);
            let replica = self.nodes[leader].replica.as_mut().expect("it leads");
            if !is_ready {
                replica.snapshot_failed(to);
                continue;
            }
            let takes_old = replica.offer_snapshot(to, old.0.clone());
            let content = if takes_old { old.clone() } else { new.clone() };
            if !takes_old {
                replica.offer_snapshot(to, new.0.clone());
            }
            self.nodes[usize::from(to.node().get()) - 1].staged = Some(content);
        }
        self.seed(&configuration, &new);
        self.turn(leader);
    }

    /// Starts replicas that are in the configuration and have nothing yet: from a snapshot (rule 2).
    fn seed(&mut self, configuration: &Configuration, content: &(SnapshotPoint, u64)) {
        for node in &mut self.nodes {
            if node.durable.is_none() && configuration.contains(node.id) {
                node.durable = Some(Disk::at(content.0.clone(), content.1));
            }
        }
    }

    fn lose_disk(&mut self, node: usize) {
        // One at a time: two lost disks of three are more than a group survives.
        let Some(leader) = self.leader() else { return };
        let replica = self.nodes[leader].replica.as_ref().expect("it leads");
        let configuration = replica.configuration();
        let all_are_there = configuration.replicas().iter().all(|id| {
            let node = &self.nodes[usize::from(id.node().get()) - 1];
            node.id == *id && node.durable.is_some()
        });
        let is_settled = replica.is_configuration_settled();
        let is_safe = configuration.voters.len() >= 3
            && !configuration.is_joint()
            && is_settled
            && all_are_there;
        if node == leader || self.nodes[node].durable.is_none() || !is_safe {
            return;
        }
        if self.counts.lost_disks > 0 {
            return;
        }
        self.counts.lost_disks += 1;
        let node = &mut self.nodes[node];
        node.crash();
        if self.habits.renews_ids {
            node.durable = None;
            node.id = node.id.successor();
        } else {
            let point = SnapshotPoint {
                last: LogPosition::new(3, 1),
                configuration: node.disk.checkpoint.configuration.clone(),
            };
            node.durable = Some(Disk::at(point, 1));
        }
    }

    fn change(&mut self) {
        let Some(leader) = self.leader() else { return };
        let replica = self.nodes[leader].replica.as_ref().expect("it leads");
        let configuration = replica.configuration().clone();
        let change = if configuration.is_joint() {
            if !self.habits.leaves_joint {
                return;
            }
            Some(Change::Leave)
        } else {
            self.draw_change(&configuration)
        };
        let Some(change) = change else { return };
        let node = &mut self.nodes[leader];
        let replica = node.replica.as_mut().expect("it leads");
        if let Ok(at) = replica.propose_change(change.clone()) {
            self.counts.changes += 1;
            let kind = crate::entry_bytes::KIND_CHANGE;
            node.disk.push(at, entry_of_command(at, Timestamp::new(1), kind, &change.encode()));
            self.turn(leader);
        }
    }

    fn draw_change(&mut self, configuration: &Configuration) -> Option<Change> {
        let mut parts: Vec<(ReplicaId, Part)> = Vec::new();
        let is_current = |id: &ReplicaId| self.nodes[usize::from(id.node().get()) - 1].id == *id;
        for gone in configuration.replicas().into_iter().filter(|id| !is_current(id)) {
            parts.push((gone, Part::Gone));
        }
        for _ in 0..=self.dice.below(2) {
            let node = &self.nodes[self.dice.below(NODES as u64) as usize];
            let id = node.id;
            if parts.iter().any(|(known, _)| *known == id) {
                continue;
            }
            let part = if configuration.voters.contains(&id) {
                if self.dice.percent(50) { Part::Gone } else { Part::Learner }
            } else if configuration.learners.contains(&id) && node.durable.is_some() {
                Part::Voter
            } else {
                Part::Learner
            };
            parts.push((id, part));
        }
        let lost = |(id, part): &(ReplicaId, Part)| {
            *part != Part::Voter && configuration.voters.contains(id)
        };
        let won = parts.iter().filter(|(_, part)| *part == Part::Voter).count();
        let left =
            configuration.voters.len() + won - parts.iter().filter(|part| lost(part)).count();
        let lost_ids = parts.iter().any(|(id, _)| !is_current(id));
        let least = if lost_ids { 2 } else { 3.min(configuration.voters.len()) };
        let keeps = left >= least;
        let revision = configuration.revision + 1;
        (keeps && !parts.is_empty()).then_some(Change::Enter { revision, parts })
    }

    /// Ends all faults. Returns whether the group continues.
    pub(super) fn heal(&mut self) -> bool {
        self.cuts.clear();
        let before = self.counts.commits;
        for round in 0..6_000 {
            for node in 0..NODES {
                self.start(node);
                self.tick(node);
                self.persist(node, usize::MAX);
            }
            for message in std::mem::take(&mut self.net) {
                self.hand_in(message);
            }
            (0..NODES).for_each(|node| self.persist(node, usize::MAX));
            if round % 20 == 19 {
                self.snapshot();
                self.propose();
                if let Some(leader) = self.leader() {
                    self.turn(leader);
                }
                if self.habits.leaves_joint {
                    self.leave();
                }
                if self.counts.commits > before + 3 && self.is_whole() {
                    return true;
                }
            }
        }
        false
    }

    /// Leaves a joint configuration, and lets those go whose disk is lost.
    fn leave(&mut self) {
        let Some(leader) = self.leader() else { return };
        let configuration = self.nodes[leader].replica.as_ref().expect("it leads").configuration();
        let is_lost = |id: &ReplicaId| self.nodes[usize::from(id.node().get()) - 1].id != *id;
        if configuration.is_joint() || configuration.replicas().iter().any(is_lost) {
            self.change();
        }
    }

    /// Everybody has everything, no read waits, and no change is unfinished.
    fn is_whole(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let configuration = self.nodes[leader].replica.as_ref().expect("it leads").configuration();
        let last = self.chosen.keys().last().copied().unwrap_or(0);
        let is_level = |id: ReplicaId| {
            let node = &self.nodes[usize::from(id.node().get()) - 1];
            node.id == id && node.applied + 5 >= last
        };
        let states = configuration.replicas().into_iter();
        let waits = |node: &Node<R>| node.replica.is_some() && !node.reads.is_empty();
        !configuration.is_joint()
            && states.clone().all(is_level)
            && !self.nodes.iter().any(waits)
            && self.states_agree()
    }

    fn states_agree(&self) -> bool {
        let mut states: BTreeMap<u64, u64> = BTreeMap::new();
        self.nodes
            .iter()
            .filter(|node| node.replica.is_some())
            .all(|node| *states.entry(node.applied).or_insert(node.state) == node.state)
    }
}
