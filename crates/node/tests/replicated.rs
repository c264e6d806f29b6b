//! Three nodes with copies of the same groups: what one of them acknowledges, a majority has.

use cluster::{Body, NodeNumber, ReplicaId, Section};
use env::{Disk, MemoryDisk, SeededRandom};
use log::{LogOptions, OpenError};
use model::GroupId;
use std::collections::VecDeque;
use stream::{Outcome, Refusal};
use thalweg_node::testing::{Process, append, create, options, path};
use thalweg_node::{
    CopyState, Event, Failure, Membership, PEER_TICK_MS, PeerEvent, Reply, Request, shard_of,
};

const SHARDS: u16 = 1;

struct Trio {
    options: LogOptions,
    disks: Vec<MemoryDisk>,
    nodes: Vec<Option<Process>>,
    under_way: VecDeque<(usize, usize, Section)>,
    /// Nodes that nobody hears, and that hear nobody.
    cut: Vec<usize>,
}

fn membership(node: usize) -> Membership {
    let id = |node| ReplicaId::new(NodeNumber::new(node), 1);
    let number = u16::try_from(node + 1).unwrap();
    Membership { node: NodeNumber::new(number), voters: vec![id(1), id(2), id(3)], seed: 11 }
}

impl Trio {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: LogOptions) -> Self {
        let disks: Vec<_> = (0..3).map(|_| MemoryDisk::new()).collect();
        let nodes = disks.iter().map(|_| None).collect();
        let (under_way, cut) = (VecDeque::new(), Vec::new());
        let mut trio = Self { options, disks, nodes, under_way, cut };
        (0..3).for_each(|node| trio.start(node));
        trio
    }

    fn start(&mut self, node: usize) {
        let with = (self.options.clone(), SHARDS);
        let opened = Process::open_member(&self.disks[node], with, &membership(node));
        self.nodes[node] = Some(opened.expect("the directory opens"));
    }

    fn kill(&mut self, node: usize) {
        drop(self.nodes[node].take());
        self.disks[node].kill_process();
    }

    fn node(&mut self, node: usize) -> &mut Process {
        self.nodes[node].as_mut().expect("it runs")
    }

    /// Does all that the nodes want done, and lets what they say arrive.
    fn settle(&mut self) {
        loop {
            for from in 0..3 {
                let Some(node) = &mut self.nodes[from] else { continue };
                node.settle();
                for said in std::mem::take(&mut node.said) {
                    let to = usize::from(said.to.get()) - 1;
                    self.under_way.push_back((from, to, said.section));
                }
            }
            let Some((from, to, section)) = self.under_way.pop_front() else { return };
            let is_cut = self.cut.contains(&from) || self.cut.contains(&to);
            if let Some(node) = self.nodes[to].as_mut().filter(|_| !is_cut) {
                let shard = shard_of(&section, SHARDS).expect("it is whole");
                let from = NodeNumber::new(u16::try_from(from + 1).unwrap());
                let event = PeerEvent::Section { from, section };
                node.handle(usize::from(shard.get()), Event::Peer(Box::new(event)));
            }
        }
    }

    fn tick(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            node.wait_ms(PEER_TICK_MS);
            node.handle(0, Event::Peer(Box::new(PeerEvent::Tick)));
        }
        self.settle();
    }

    fn serving(&self, group: GroupId) -> Option<usize> {
        let serves = |node: &Option<Process>| {
            let copies = node.iter().flat_map(|node| node.shards[0].copies());
            let state = |copy: &thalweg_node::CopyStatus| copy.state == CopyState::Serves;
            copies.filter(|copy| copy.group == group).any(|copy| state(&copy))
        };
        (0..3).find(|&node| !self.cut.contains(&node) && serves(&self.nodes[node]))
    }

    /// Lets time pass until somebody leads the group.
    fn leader(&mut self, group: GroupId) -> usize {
        for _ in 0..100 {
            if let Some(leader) = self.serving(group) {
                return leader;
            }
            self.tick();
        }
        panic!("nobody leads group {group}");
    }

    fn ask<'a>(&mut self, node: usize, ask: impl Into<thalweg_node::testing::Ask<'a>>) -> Reply {
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

    fn text(&mut self, node: usize, name: &str) -> Vec<u8> {
        let path = path(name);
        let reply = self.ask(
            node,
            Request::Read(thalweg_node::ReadRequest {
                path,
                from: model::ReadFrom::At(model::ByteOffset::ZERO),
                boundary_bytes: 1 << 40,
                first_bytes_max: u64::MAX,
                records: None,
            }),
        );
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

fn group_of(name: &str) -> GroupId {
    path(name).group(thalweg_node::testing::GROUPS)
}

fn is_appended(reply: &Reply) -> bool {
    matches!(reply, Reply::Outcome(Outcome::Appended(_)))
}

/// A stream with one append, and the node that leads its group.
fn with_text(trio: &mut Trio, name: &str) -> usize {
    let leader = trio.leader(group_of(name));
    let made = trio.ask(leader, create(&path(name), Some("text/plain"), None, b""));
    assert!(matches!(made, Reply::Outcome(Outcome::Created(_))), "{made:?}");
    assert!(is_appended(&trio.ask(leader, append(&path(name), b"one,"))));
    leader
}

#[test]
fn what_was_acknowledged_survives_its_leader() {
    let mut trio = Trio::new();
    let first = with_text(&mut trio, "a");
    trio.kill(first);
    let second = trio.leader(group_of("a"));
    assert_ne!(first, second);
    assert_eq!(trio.text(second, "a"), b"one,");
    assert!(is_appended(&trio.ask(second, append(&path("a"), b"two,"))));
    trio.start(first);
    for _ in 0..10 {
        trio.tick();
    }
    let mut states: Vec<_> = (0..3)
        .map(|node| {
            let shard = &mut trio.node(node).shards[0];
            (
                shard.copies()[usize::from(group_of("a").get())].applied,
                shard.checkpoint_bytes(group_of("a")),
            )
        })
        .collect();
    states.dedup();
    assert_eq!(states.len(), 1, "copies at the same index are the same");
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_of_all() {
    let mut trio = Trio::new();
    with_text(&mut trio, "a");
    for node in 0..3 {
        drop(trio.nodes[node].take());
        trio.disks[node].crash(&mut SeededRandom::new(node as u64));
        trio.start(node);
    }
    let leader = trio.leader(group_of("a"));
    assert_eq!(trio.text(leader, "a"), b"one,");
}

#[test]
fn a_leader_that_is_cut_off_acknowledges_nothing_and_answers_nothing() {
    let mut trio = Trio::new();
    let old = with_text(&mut trio, "a");
    trio.cut = vec![old];
    let lost = trio.node(old).offer(append(&path("a"), b"lost,"));
    let stale = trio.node(old).offer(Request::Head { path: path("b") });
    let new = trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(new, append(&path("a"), b"two,"))));
    for _ in 0..20 {
        trio.tick();
    }
    let answers = std::mem::take(&mut trio.node(old).replies);
    let of = |number| answers.iter().find(|(of, _)| *of == number).map(|(_, reply)| reply);
    assert!(matches!(of(stale), Some(Reply::Failed(Failure::NoLeader))), "{:?}", of(stale));
    assert!(of(lost).is_none(), "nobody can tell yet: {:?}", of(lost));
    trio.cut.clear();
    for _ in 0..20 {
        trio.tick();
    }
    let answers = std::mem::take(&mut trio.node(old).replies);
    let lost = answers.iter().find(|(of, _)| *of == lost);
    assert!(matches!(lost, Some((_, Reply::Failed(Failure::NoLeader)))), "{lost:?}");
    assert_eq!(trio.text(new, "a"), b"one,two,");
}

#[test]
fn followers_answer_nothing_from_their_state() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let follower = (leader + 1) % 3;
    for name in ["a", "nothing-here"] {
        let same_group = group_of(name) == group_of("a");
        let reply = trio.ask(follower, Request::Head { path: path(name) });
        let is_refused = matches!(reply, Reply::Failed(Failure::NoLeader));
        assert!(!same_group || is_refused, "{reply:?}");
    }
    let refused = trio.ask(leader, append(&path("a"), b"three,"));
    assert!(is_appended(&refused));
}

#[test]
fn a_missing_stream_is_refused_with_the_word_of_a_majority() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let missing = (0..).map(|number| format!("missing{number}"));
    let missing = missing.into_iter().find(|name| group_of(name) == group_of("a")).unwrap();
    let asked = trio.node(leader).offer(Request::Head { path: path(&missing) });
    trio.node(leader).settle();
    assert!(trio.node(leader).replies.is_empty(), "it waits for the others");
    trio.settle();
    let reply = trio.node(leader).replies.pop();
    let (number, reply) = reply.expect("they have answered");
    assert_eq!(number, asked);
    let is_missing = matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)));
    assert!(is_missing, "{reply:?}");
}

#[test]
fn entries_go_before_the_sync_of_the_leader_and_acknowledgements_after_their_own() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    for node in 0..3 {
        trio.node(node).held.syncs = Some(Vec::new());
    }
    trio.node(leader).offer(append(&path("a"), b"two,"));
    trio.node(leader).settle();
    let carries = |section: &Section| {
        let Section::Message { message, .. } = section else { return false };
        matches!(&message.body, Body::Append { entries, .. } if !entries.is_empty())
    };
    let sent = trio.node(leader).said.iter().filter(|said| carries(&said.section)).count();
    assert_eq!(sent, 2, "both followers get it while the leader's disk works");
    let is_acknowledged = |trio: &mut Trio| {
        trio.settle();
        trio.node(leader).replies.iter().any(|(_, reply)| is_appended(reply))
    };
    assert!(!is_acknowledged(&mut trio), "no disk has it");
    let follower = (leader + 1) % 3;
    trio.node(follower).sync_held();
    assert!(!is_acknowledged(&mut trio), "one of three disks has it");
    trio.node(leader).sync_held();
    assert!(is_acknowledged(&mut trio), "two of three disks have it");
}

#[test]
fn a_node_alone_and_a_member_do_not_take_each_others_directories() {
    let alone = MemoryDisk::new();
    let mut process = Process::open(&alone, SHARDS);
    process.with_text(&path("a"), b"x");
    let alone = process.kill();
    let refused = Process::open_member(&alone, (options(), SHARDS), &membership(0));
    assert!(matches!(refused, Err(OpenError::Replicas { found: false, .. })));
    let mut trio = Trio::new();
    with_text(&mut trio, "a");
    trio.kill(0);
    let refused = Process::try_open(&trio.disks[0], SHARDS, options());
    assert!(matches!(refused, Err(OpenError::Replicas { found: true, .. })));
}

/// The states of a node's copies.
fn states(trio: &mut Trio, node: usize) -> Vec<CopyState> {
    let shards = trio.node(node).shards.iter();
    shards.flat_map(|shard| shard.copies()).map(|copy| copy.state).collect()
}

/// A bit of `text`, where a node's write-ahead log has it.
fn bit_of(disk: &MemoryDisk, text: &[u8]) -> (std::path::PathBuf, u64) {
    let is_wal = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "wal");
    let found = disk.paths().into_iter().filter(is_wal).find_map(|path| {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text)?;
        Some((path, at as u64 * 8))
    });
    found.expect("it is in the log")
}

#[test]
fn a_copy_that_was_damaged_stays_out_though_nothing_shows_it_any_more() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"damaged,"))));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"behind,"))));
    trio.tick();
    let follower = (leader + 1) % 3;
    trio.kill(follower);
    let (file, bit) = bit_of(&trio.disks[follower], b"damaged,");
    trio.disks[follower].flip_bit(&file, bit);
    trio.start(follower);
    trio.settle();
    assert!(states(&mut trio, follower).contains(&CopyState::Halted));
    trio.kill(follower);
    trio.disks[follower].flip_bit(&file, bit);
    trio.start(follower);
    trio.settle();
    assert!(states(&mut trio, follower).contains(&CopyState::Halted), "it may have promised more");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"without it,"))));
}

#[test]
fn a_copy_whose_only_checkpoint_is_lost_stays_out() {
    let mut trio = Trio::with(LogOptions { seal_bytes: 1, checkpoint_bytes: 1, ..options() });
    let leader = with_text(&mut trio, "a");
    let follower = (leader + 1) % 3;
    // More than the write-ahead log keeps.
    for _ in 0..100 {
        assert!(is_appended(&trio.ask(leader, append(&path("a"), &vec![b'x'; 64 << 10]))));
    }
    trio.tick();
    trio.kill(follower);
    let disk = &trio.disks[follower];
    let is_checkpoint = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "ckpt");
    let checkpoints: Vec<_> = disk.paths().into_iter().filter(is_checkpoint).collect();
    assert!(!checkpoints.is_empty());
    checkpoints.iter().for_each(|path| disk.make_unreadable(path, 0));
    trio.start(follower);
    trio.settle();
    assert!(states(&mut trio, follower).contains(&CopyState::Halted));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"without it,"))));
}
