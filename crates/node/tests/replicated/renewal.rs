//! A copy that has lost something comes back under a new id, with what the others have.

use crate::bit_of;
use crate::growth::{alone, grow, grown, make_stream, tick_until};
use crate::trio::{Trio, group_of, head, is_appended, number, with_text};
use cluster::{Body, GroupMessage, ReplicaId, Section};
use env::{Disk, MemoryDisk};
use model::{ByteOffset, GroupId};
use thalweg_node::testing::{GROUPS, append, path};
use thalweg_node::{
    CopyState, CopyStatus, Event, Failure, PEER_TICK_MS, PeerEvent, Reply, Request,
};

/// Bytes of a large append.
const LARGE_BYTES: usize = 20_000;

fn copies(trio: &Trio, node: usize) -> Vec<CopyStatus> {
    trio.nodes[node].iter().flat_map(|node| node.shards[0].copies()).collect()
}

/// Whether each group has three voters, each of which is a copy that takes part.
fn is_whole(trio: &Trio) -> bool {
    (0..=GROUPS).map(GroupId::new).all(|group| {
        let of = (0..3).flat_map(|node| copies(trio, node)).filter(|copy| copy.group == group);
        let of: Vec<CopyStatus> = of.collect();
        let leads = |copy: &&CopyStatus| copy.state == CopyState::Serves;
        of.iter().find(leads).is_some_and(|leader| {
            let configuration = &leader.configuration;
            let takes_part = |id: &ReplicaId| {
                let is_it = |copy: &CopyStatus| copy.id == *id && copy.state != CopyState::Halted;
                of.iter().any(is_it)
            };
            let is_settled = !configuration.is_joint() && configuration.replicas().len() == 3;
            is_settled && configuration.voters.iter().all(takes_part)
        })
    })
}

/// Copies of a group at the same index are the same.
fn check_equal(trio: &mut Trio) {
    for _ in 0..20 {
        trio.tick();
    }
    for group in (0..=GROUPS).map(GroupId::new) {
        let mut states: Vec<_> = (0..3)
            .map(|node| {
                let applied =
                    copies(trio, node).iter().find(|copy| copy.group == group).unwrap().applied;
                (applied, trio.node(node).shards[0].checkpoint_bytes(group))
            })
            .collect();
        states.dedup();
        assert_eq!(states.len(), 1, "group {group}");
    }
}

/// A cluster of three with a stream, and a node that does not lead its group and has a damaged entry of it.
fn damaged() -> (Trio, usize) {
    let mut trio = grown();
    let leader = with_text(&mut trio, "a");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"damaged,"))));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"behind,"))));
    trio.tick();
    let node = (leader + 1) % 3;
    trio.kill(node);
    let (file, bit) = bit_of(&trio.disks[node], b"damaged,");
    trio.disks[node].flip_bit(&file, bit);
    (trio, node)
}

fn copy_of_a(trio: &Trio, node: usize) -> CopyStatus {
    let mut copies = copies(trio, node).into_iter();
    copies.find(|copy| copy.group == group_of("a")).expect("each node has one")
}

#[test]
fn a_damaged_copy_comes_back_under_a_new_id_with_all_that_was_acknowledged() {
    let (mut trio, node) = damaged();
    trio.start(node);
    trio.settle();
    let old = copy_of_a(&trio, node);
    assert_eq!((old.state, old.id), (CopyState::Halted, ReplicaId::new(number(node), 1)));
    tick_until(&mut trio, |trio| is_whole(trio));
    assert_eq!(copy_of_a(&trio, node).id, old.id.successor());
    assert_eq!(trio.text(node, "a"), b"one,damaged,behind,");
    let leader = trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"later,"))));
    check_equal(&mut trio);
    // The others' loss is none any more.
    let other = (0..3).find(|other| *other != node && *other != leader).unwrap();
    trio.kill(other);
    assert!(is_appended(&trio.ask(node, append(&path("a"), b"with two,"))));
    assert_eq!(trio.text(node, "a"), b"one,damaged,behind,later,with two,");
}

#[test]
fn groups_of_the_first_node_that_are_no_copies_any_more_come_back_under_new_ids() {
    let mut trio = alone();
    make_stream(&mut trio, 0, b"one,");
    // Nothing in these files says that any group has other copies.
    let old = trio.disks[0].durable_image();
    grow(&mut trio);
    let leader = trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"behind,"))));
    trio.kill(0);
    trio.disks[0] = old;
    for _ in 0..2 {
        // They are out, whatever a later start finds.
        trio.start(0);
        trio.settle();
        let states = copies(&trio, 0).into_iter().map(|copy| copy.state);
        assert!(states.clone().all(|state| state == CopyState::Halted), "{states:?}");
        trio.kill(0);
    }
    trio.start(0);
    tick_until(&mut trio, |trio| is_whole(trio));
    assert_eq!(trio.text(0, "a"), b"one,behind,");
    check_equal(&mut trio);
}

#[test]
fn a_later_start_knows_the_new_id() {
    let (mut trio, node) = damaged();
    trio.start(node);
    tick_until(&mut trio, |trio| is_whole(trio));
    let id = copy_of_a(&trio, node).id;
    for _ in 0..2 {
        trio.kill(node);
        trio.start(node);
        trio.settle();
        assert_eq!(copy_of_a(&trio, node).id, id);
        tick_until(&mut trio, |trio| is_whole(trio));
    }
    check_equal(&mut trio);
}

/// What a node's copy of the group of `a` says to others.
fn says(trio: &mut Trio, node: usize) -> Vec<GroupMessage> {
    trio.node(node).settle();
    let said = trio.nodes[node].iter().flat_map(|node| &node.said).map(|said| &said.section);
    let under_way = trio.under_way.iter().filter(|(from, ..)| *from == node);
    let message = |section: &Section| match section {
        Section::Message { group, message } if *group == group_of("a") => Some(message.clone()),
        _ => None,
    };
    said.chain(under_way.map(|(.., section)| section)).filter_map(message).collect()
}

#[test]
fn before_its_snapshot_a_copy_says_only_that_it_has_nothing() {
    let (mut trio, node) = damaged();
    trio.start(node);
    let mut said = 0;
    loop {
        let messages = says(&mut trio, node);
        if trio.node(node).shards[0].transfer_counts().installs > 0 {
            break;
        }
        for message in messages {
            assert_eq!(message.body, Body::Empty, "{message:?}");
            assert_eq!(message.from, ReplicaId::new(number(node), 2));
            said += 1;
        }
        assert_eq!(copy_of_a(&trio, node).state, CopyState::Halted);
        if !trio.settle_one() {
            for node in trio.nodes.iter_mut().flatten() {
                node.wait_ms(PEER_TICK_MS);
                node.handle(0, Event::Peer(Box::new(PeerEvent::Tick)));
            }
        }
    }
    assert!(said > 0);
}

#[test]
fn nobody_votes_under_a_new_id_without_a_snapshot() {
    let (mut trio, node) = damaged();
    let leader = trio.leader(group_of("a"));
    trio.start(node);
    trio.cut = vec![leader];
    let is_renewed = |trio: &mut Trio| copy_of_a(trio, node).id.incarnation() > 1;
    for _ in 0..200 {
        trio.tick();
        // The cluster's own group may be led by the node that is cut off: then nobody gives an id.
        if is_renewed(&mut trio) {
            break;
        }
    }
    trio.node(node).said.clear();
    let id = copy_of_a(&trio, node).id;
    for (to, term) in [(id, 99), (ReplicaId::new(number(node), 1), 99)] {
        let last = cluster::LogPosition::new(1_000, 98);
        let body = Body::Ask { is_pre: false, is_transfer: true, last, commit: last };
        let other = (0..3).find(|other| *other != node && *other != leader).unwrap();
        let from = ReplicaId::new(number(other), 1);
        let message = GroupMessage { from, to, term: model::Term::new(term), body };
        let section = Section::Message { group: group_of("a"), message };
        let event = PeerEvent::Section { from: number(other), section };
        trio.node(node).handle(0, Event::Peer(Box::new(event)));
        assert_eq!(says(&mut trio, node), []);
    }
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_copy_out_or_the_new_one_in() {
    for steps in (0..600).step_by(7) {
        let (mut trio, node) = damaged();
        trio.start(node);
        let mut left = steps;
        while left > 0 && !is_whole(&trio) {
            left -= 1;
            if !trio.settle_one() {
                trio.tick();
            }
        }
        let has_lost_power = steps % 2 == 0;
        trio.kill(node);
        if has_lost_power {
            trio.disks[node].crash(&mut env::SeededRandom::new(steps));
        }
        trio.start(node);
        tick_until(&mut trio, |trio| is_whole(trio));
        assert_eq!(trio.text(node, "a"), b"one,damaged,behind,", "after {steps} steps");
        check_equal(&mut trio);
    }
}

/// A chunk of a node that has these bytes, and the first bit of them.
fn chunk_with(disk: &MemoryDisk, text: &[u8]) -> Option<(std::path::PathBuf, u64)> {
    let is_chunk = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "chunk");
    disk.paths().into_iter().filter(is_chunk).find_map(|path| {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text)?;
        Some((path, at as u64 * 8))
    })
}

/// Appends so much that it is sealed.
fn fill(trio: &mut Trio, leader: usize, name: &str) {
    for _ in 0..40 {
        assert!(is_appended(&trio.ask(leader, append(&path(name), &[b'x'; LARGE_BYTES]))));
    }
    (0..10).for_each(|_| trio.tick());
}

fn sent_bytes(trio: &Trio) -> u64 {
    let nodes = trio.nodes.iter().flatten();
    nodes.map(|node| node.shards[0].transfer_counts().sent_bytes).sum()
}

#[test]
fn a_copy_that_meets_damage_in_a_read_is_renewed_and_whole_chunks_are_not_sent_again() {
    let mut trio = grown();
    (trio.options.seal_bytes, trio.options.checkpoint_bytes) = (1, 1);
    for node in 0..3 {
        trio.kill(node);
        trio.start(node);
    }
    let beside = (0..).map(|number| format!("beside{number}"));
    let beside = beside.into_iter().find(|name| group_of(name) == group_of("a")).unwrap();
    let leader = with_text(&mut trio, &beside);
    fill(&mut trio, leader, &beside);
    with_text(&mut trio, "a");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"damaged,"))));
    fill(&mut trio, leader, "a");
    let node = (leader + 1) % 3;
    let (file, bit) = chunk_with(&trio.disks[node], b"damaged,").expect("it is sealed");
    // What was read once is not compared again before the next start.
    trio.kill(node);
    trio.disks[node].flip_bit(&file, bit);
    trio.start(node);
    tick_until(&mut trio, |trio| is_whole(trio));
    assert_eq!(copy_of_a(&trio, node).id.incarnation(), 1, "nobody has read it");
    let Reply::Head(key, _) = trio.ask(node, head("a")) else { panic!("it is there") };
    let at = ByteOffset::new;
    let refused = trio.ask(node, Request::Window { key, from: at(4), to: at(12) });
    assert!(matches!(refused, Reply::Failed(Failure::NoLeader)), "{refused:?}");
    let before = sent_bytes(&trio);
    tick_until(&mut trio, |trio| is_whole(trio) && copy_of_a(trio, node).id.incarnation() == 2);
    let sent = sent_bytes(&trio) - before;
    let one = 40 * LARGE_BYTES as u64;
    assert!(sent < one * 3 / 2, "{sent} of {} were sent", 2 * one);
    assert_eq!(trio.text(node, "a").len(), 4 + 8 + 40 * LARGE_BYTES);
    assert_eq!(trio.text(node, &beside).len(), 4 + 40 * LARGE_BYTES);
    let is_damaged = |path: &std::path::PathBuf| path.to_string_lossy().contains(".damaged.");
    assert!(!trio.disks[node].paths().iter().any(is_damaged), "what nobody needs is removed");
    check_equal(&mut trio);
}
