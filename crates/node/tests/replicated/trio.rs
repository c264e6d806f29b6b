//! Three nodes in one thread, with what is under way between them.

use cluster::{NodeNumber, ReplicaId, Section};
use env::MemoryDisk;
use log::LogOptions;
use model::GroupId;
use std::collections::VecDeque;
use stream::Outcome;
use thalweg_node::testing::{Process, append, create, options, path};
use thalweg_node::{
    CopyState, CopyStatus, Event, Membership, PEER_TICK_MS, PeerEvent, Reply, Request, to_shards,
};

pub(crate) const SHARDS: u16 = 1;

/// Three nodes, and one that may take the place of another.
const NODES: usize = 4;

/// Of the node that says something and the one that it says it to.
type Loses = dyn Fn(usize, usize, &Section) -> bool;

pub(crate) struct Trio {
    pub(crate) options: LogOptions,
    pub(crate) disks: Vec<MemoryDisk>,
    pub(crate) nodes: Vec<Option<Process>>,
    pub(crate) under_way: VecDeque<(usize, usize, Section)>,
    /// Nodes that nobody hears, and that hear nobody.
    pub(crate) cut: Vec<usize>,
    /// Whether what one node says to another one never arrives.
    pub(crate) loses: Option<Box<Loses>>,
    pub(crate) openings: u64,
    pub(crate) opened: [u64; NODES],
    pub(crate) membership: fn(usize) -> Membership,
    pub(crate) seed: u64,
}

pub(crate) fn number(node: usize) -> NodeNumber {
    NodeNumber::new(u16::try_from(node + 1).unwrap())
}

pub(crate) fn membership(node: usize) -> Membership {
    let id = |node| ReplicaId::new(NodeNumber::new(node), 1);
    let number = u16::try_from(node + 1).unwrap();
    let voters = vec![id(1), id(2), id(3)];
    Membership { node: NodeNumber::new(number), voters, opening: 1, seed: 11, meta: None }
}

impl Trio {
    pub(crate) fn new() -> Self {
        Self::with(options())
    }

    pub(crate) fn with(options: LogOptions) -> Self {
        Self::seeded(options, 11)
    }

    /// As [`Trio::new`]; the seed decides who leads.
    pub(crate) fn seeded(options: LogOptions, seed: u64) -> Self {
        let mut trio = Self { seed, ..Self::of(options, membership) };
        (0..3).for_each(|node| trio.start(node));
        trio
    }

    /// Three nodes that do not run.
    pub(crate) fn of(options: LogOptions, membership: fn(usize) -> Membership) -> Self {
        let disks: Vec<_> = (0..NODES).map(|_| MemoryDisk::new()).collect();
        let nodes = disks.iter().map(|_| None).collect();
        let (under_way, cut) = (VecDeque::new(), Vec::new());
        let (openings, opened) = (0, [0; NODES]);
        let loses = None;
        Self {
            options,
            disks,
            nodes,
            under_way,
            cut,
            loses,
            openings,
            opened,
            membership,
            seed: 11,
        }
    }

    pub(crate) fn start(&mut self, node: usize) {
        let with = (self.options.clone(), SHARDS);
        self.openings += 1;
        let (opening, seed) = (self.openings, self.seed);
        let membership = Membership { opening, seed, ..(self.membership)(node) };
        let opened = Process::open_member(&self.disks[node], with, &membership);
        self.nodes[node] = Some(opened.expect("the directory opens"));
        self.opened[node] = self.openings;
        (0..NODES).filter(|other| *other != node).for_each(|other| self.link(node, other));
    }

    /// Two nodes that run have links to each other, new ones.
    pub(crate) fn link(&mut self, one: usize, other: usize) {
        self.unlink(one, other);
        for (at, peer) in [(one, other), (other, one)] {
            let opening = self.opened[peer];
            if self.nodes[peer].is_some() {
                self.tell(at, PeerEvent::Up { node: number(peer), opening });
            }
        }
    }

    /// What was under way between two nodes is lost, and both know it.
    pub(crate) fn unlink(&mut self, one: usize, other: usize) {
        let pairs = [(one, other), (other, one)];
        self.under_way.retain(|(from, to, _)| !pairs.contains(&(*from, *to)));
        for (at, peer) in pairs {
            self.tell(at, PeerEvent::Down { node: number(peer) });
        }
    }

    pub(crate) fn tell(&mut self, at: usize, event: PeerEvent) {
        if let Some(node) = &mut self.nodes[at] {
            node.handle(0, Event::Peer(Box::new(event)));
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        drop(self.nodes[node].take());
        self.disks[node].kill_process();
        (0..NODES).filter(|other| *other != node).for_each(|other| self.unlink(node, other));
    }

    pub(crate) fn node(&mut self, node: usize) -> &mut Process {
        self.nodes[node].as_mut().expect("it runs")
    }

    /// Does all that the nodes want done, and lets what they say arrive.
    pub(crate) fn settle(&mut self) {
        while self.settle_one() {}
    }

    /// As [`Trio::settle`], until one thing has arrived; `false` if nothing is under way.
    pub(crate) fn settle_one(&mut self) -> bool {
        for from in 0..NODES {
            let Some(node) = &mut self.nodes[from] else { continue };
            node.settle();
            for said in std::mem::take(&mut node.said) {
                let to = usize::from(said.to.get()) - 1;
                self.under_way.push_back((from, to, said.section));
            }
        }
        let Some((from, to, section)) = self.under_way.pop_front() else { return false };
        let is_lost = self.loses.as_ref().is_some_and(|loses| loses(from, to, &section));
        let is_cut = is_lost || self.cut.contains(&from) || self.cut.contains(&to);
        if let Some(node) = self.nodes[to].as_mut().filter(|_| !is_cut) {
            to_shards((number(from), section), SHARDS, |shard, event| {
                node.handle(usize::from(shard.get()), Event::Peer(Box::new(event)));
            });
        }
        true
    }

    pub(crate) fn tick(&mut self) {
        self.pass_time();
        self.settle();
    }

    /// As [`Trio::tick`], but nothing arrives yet.
    pub(crate) fn pass_time(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            node.wait_ms(PEER_TICK_MS);
            node.handle(0, Event::Peer(Box::new(PeerEvent::Tick)));
        }
    }

    pub(crate) fn serving(&self, group: GroupId) -> Option<usize> {
        let serves = |node: &Option<Process>| {
            let copies = node.iter().flat_map(|node| node.shards[0].copies());
            let state = |copy: &thalweg_node::CopyStatus| copy.state == CopyState::Serves;
            copies.filter(|copy| copy.group == group).any(|copy| state(&copy))
        };
        (0..NODES).find(|&node| !self.cut.contains(&node) && serves(&self.nodes[node]))
    }

    /// A node's links are down until others lead, and come back.
    pub(crate) fn cut_off_for_a_while(&mut self, node: usize) {
        let others = (0..NODES).filter(|&other| other != node);
        others.clone().for_each(|other| self.unlink(node, other));
        self.cut = vec![node];
        (0..30).for_each(|_| self.tick());
        self.cut.clear();
        others.for_each(|other| self.link(node, other));
        (0..30).for_each(|_| self.tick());
    }

    /// A node's copy of a group.
    pub(crate) fn copy(&mut self, node: usize, group: GroupId) -> CopyStatus {
        let mut copies = self.node(node).shards[0].copies().into_iter();
        copies.find(|copy| copy.group == group).expect("it has a copy")
    }

    /// Lets time pass until somebody leads the group.
    pub(crate) fn leader(&mut self, group: GroupId) -> usize {
        for _ in 0..100 {
            if let Some(leader) = self.serving(group) {
                return leader;
            }
            self.tick();
        }
        panic!("nobody leads group {group}");
    }

    pub(crate) fn ask<'a>(
        &mut self,
        node: usize,
        ask: impl Into<thalweg_node::testing::Ask<'a>>,
    ) -> Reply {
        let number = self.node(node).offer(ask);
        for _ in 0..200 {
            self.settle();
            if let Some(at) = self.node(node).replies.iter().position(|(of, _)| *of == number) {
                return self.node(node).replies.remove(at).1;
            }
            self.tick();
        }
        panic!("node {node} does not answer");
    }

    pub(crate) fn text(&mut self, node: usize, name: &str) -> Vec<u8> {
        let reply = self.ask(node, Request::Read(read_of(name, model::ByteOffset::ZERO)));
        let Reply::Read(read) = reply else { panic!("a read was answered by {reply:?}") };
        let mut bytes = Vec::new();
        let mut at = read.start;
        while at < read.end {
            let (key, to) = read.owner_of(at);
            let Reply::Window(slice) = self.ask(node, Request::Window { key, from: at, to }) else {
                panic!("a window is answered")
            };
            at = at.advance(slice.len());
            bytes.extend(slice.to_bytes().unwrap());
        }
        bytes
    }
}

pub(crate) fn group_of(name: &str) -> GroupId {
    path(name).group(thalweg_node::testing::GROUPS)
}

/// A stream that is not there, of the same group as one that is.
pub(crate) fn missing_beside(name: &str) -> String {
    let mut missing = (0..).map(|number| format!("missing{number}"));
    missing.find(|missing| group_of(missing) == group_of(name)).expect("groups have paths")
}

pub(crate) fn is_appended(reply: &Reply) -> bool {
    matches!(reply, Reply::Outcome(Outcome::Appended(_)))
}

/// A stream with one append, and the node that leads its group.
pub(crate) fn with_text(trio: &mut Trio, name: &str) -> usize {
    let leader = trio.leader(group_of(name));
    let made = trio.ask(leader, create(&path(name), Some("text/plain"), None, b""));
    assert!(matches!(made, Reply::Outcome(Outcome::Created(_))), "{made:?}");
    assert!(is_appended(&trio.ask(leader, append(&path(name), b"one,"))));
    leader
}

/// A read of all from there on.
pub(crate) fn read_of(name: &str, from: model::ByteOffset) -> thalweg_node::ReadRequest {
    thalweg_node::ReadRequest {
        path: path(name),
        from: model::ReadFrom::At(from),
        boundary_bytes: 1 << 40,
        first_bytes_max: u64::MAX,
        records: None,
    }
}

pub(crate) fn head(name: &str) -> Request {
    Request::Head { path: path(name) }
}
