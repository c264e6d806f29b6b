//! A log that has no room for what a leader sends.

use super::bit_of;
use super::trio::{Trio, group_of, head, is_appended, with_text};
use cluster::{Body, GroupReport, Section};
use log::LogOptions;
use model::ByteOffset;
use thalweg_node::testing::{append, options, path};
use thalweg_node::{CopyState, Reply, Request};

/// Bytes of one batch.
const BATCH_BYTES: usize = 4096;

/// Ticks after which a leader knows who is silent.
const SILENCE_TICKS: usize = 40;

/// Nodes with room for one small batch at a time and a stream with one append; its leader, and a follower whose disk is busy.
fn with_a_busy_disk() -> (Trio, usize, usize) {
    let batch_bytes_max = BATCH_BYTES as u64;
    let mut trio = Trio::with(LogOptions { batch_bytes_max, ..options() });
    let leader = with_text(&mut trio, "a");
    trio.tick();
    let busy = (leader + 1) % 3;
    trio.node(busy).held.syncs = Some(Vec::new());
    (trio, leader, busy)
}

/// Fills the batch that is under way at a follower, and the one behind it.
fn fill(trio: &mut Trio, leader: usize) {
    for data in [[b'x'; BATCH_BYTES / 2], [b'y'; BATCH_BYTES / 2], [b'z'; BATCH_BYTES / 2]] {
        assert!(is_appended(&trio.ask(leader, append(&path("a"), &data))));
    }
}

/// The disk is done with the batch that is under way.
fn sync_one(trio: &mut Trio, node: usize) {
    trio.node(node).sync_one();
    trio.settle();
}

/// A name in another group than that of `a`, which `node` does not lead.
fn beside(trio: &mut Trio, node: usize) -> String {
    let mut names = (0..).map(|number| format!("b{number}"));
    let is_it = |name: &String| {
        let group = group_of(name);
        group != group_of("a") && trio.leader(group) != node
    };
    names.find(is_it).expect("there are more groups")
}

#[test]
fn a_copy_that_waits_for_room_is_heard_and_learns_what_is_committed() {
    let (mut trio, leader, busy) = with_a_busy_disk();
    fill(&mut trio, leader);
    (0..SILENCE_TICKS).for_each(|_| trio.tick());
    let said = trio.node(leader).shards[0].report().expect("it is a member");
    let of_group = said.groups.iter().find(|it| it.group == group_of("a"));
    assert_eq!(of_group.map(GroupReport::voters_heard), Some(3));
    // What is durable is applied at once, though more waits.
    let before = trio.copy(busy, group_of("a")).applied;
    sync_one(&mut trio, busy);
    assert!(trio.copy(busy, group_of("a")).applied > before, "entry {before} was the last one");
}

#[test]
fn small_entries_do_not_take_the_room_for_which_a_large_one_waits() {
    let (mut trio, leader, busy) = with_a_busy_disk();
    let small = beside(&mut trio, busy);
    with_text(&mut trio, &small);
    let last = trio.copy(leader, group_of("a")).applied;
    for round in 0..40 {
        if round == 2 {
            let large = [b'l'; BATCH_BYTES - 512];
            assert!(is_appended(&trio.ask(leader, append(&path("a"), &large))));
        }
        // There is always a small one when a batch is durable.
        for _ in 0..2 {
            assert!(is_appended(&trio.ask(leader, append(&path(&small), &[b's'; 300]))));
        }
        sync_one(&mut trio, busy);
        assert!(is_appended(&trio.ask(leader, append(&path(&small), &[b's'; 300]))));
        trio.tick();
    }
    assert!(trio.copy(busy, group_of("a")).applied > last, "the large one is not there");
}

#[test]
fn a_log_that_a_damaged_copy_fills_takes_more_for_other_groups() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let (node, bytes_max) = ((leader + 1) % 3, trio.options.wal_bytes_max);
    // All is applied, and nothing is in a checkpoint.
    let Reply::Head(key, _) = trio.ask(node, head("a")) else { panic!("it is there") };
    let (file, bit) = bit_of(&trio.disks[node], b"one,");
    trio.disks[node].flip_bit(&file, bit);
    let (from, to) = (ByteOffset::ZERO, ByteOffset::new(4));
    let refused = trio.ask(node, Request::Window { key, from, to });
    assert!(matches!(refused, Reply::Failed(_)), "{refused:?}");
    trio.tick();
    let state = trio.copy(node, group_of("a")).state;
    assert_eq!(state, CopyState::Halted);
    let other = beside(&mut trio, node);
    let led = with_text(&mut trio, &other);
    let piece = vec![b'x'; 256 << 10];
    for _ in 0..3 * bytes_max / piece.len() as u64 {
        assert!(is_appended(&trio.ask(led, append(&path(&other), &piece))));
        trio.tick();
    }
    (0..SILENCE_TICKS).for_each(|_| trio.tick());
    let all = [led, node].map(|node| trio.copy(node, group_of(&other)).applied);
    assert_eq!(all[0], all[1], "the log of the node with the damaged copy is full");
}

/// A follower hears of a new term by its first entry. Another group's entry takes so many bytes of its open batch. When that is durable,
/// it starts again.
fn start_behind_a_new_term(taken_bytes: usize) {
    let (mut trio, leader, busy) = with_a_busy_disk();
    let other = beside(&mut trio, busy);
    trio.node(busy).sync_held();
    let led = with_text(&mut trio, &other);
    trio.tick();
    for data in [&[b'x'; 16][..], &vec![b'y'; taken_bytes]] {
        assert!(is_appended(&trio.ask(led, append(&path(&other), data))));
    }
    let brings_entries = |section: &Section| {
        let Section::Message { group, message } = section else { return false };
        let body = &message.body;
        let has_any = matches!(body, Body::Append { entries, .. } if !entries.is_empty());
        *group == group_of("a") && has_any
    };
    let is_lost = move |to: usize, section: &Section| to == busy && !brings_entries(section);
    trio.loses = Some(Box::new(move |from, to, section| from == busy || is_lost(to, section)));
    trio.kill(leader);
    trio.start(leader);
    (0..SILENCE_TICKS).for_each(|_| trio.tick());
    let next = trio.leader(group_of("a"));
    (0..2).for_each(|_| sync_one(&mut trio, busy));
    trio.kill(busy);
    trio.loses = None;
    trio.start(busy);
    assert!(is_appended(&trio.ask(next, append(&path("a"), b"z"))));
    (0..SILENCE_TICKS).for_each(|_| trio.tick());
    assert_eq!(trio.text(busy, "a").len(), 5);
}

#[test]
fn a_start_finds_no_entry_of_a_term_that_was_not_noted() {
    for taken_bytes in (BATCH_BYTES / 2..BATCH_BYTES).step_by(16) {
        start_behind_a_new_term(taken_bytes);
    }
}
