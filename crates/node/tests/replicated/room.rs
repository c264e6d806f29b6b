//! A log that has no room for what a leader sends.

use super::trio::{Trio, group_of, is_appended, with_text};
use cluster::GroupReport;
use log::LogOptions;
use thalweg_node::testing::{append, options, path};

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
    let mut names = (0..).map(|number| format!("b{number}"));
    let is_it = |name: &String| {
        let group = group_of(name);
        group != group_of("a") && trio.leader(group) != busy
    };
    let small = names.find(is_it).expect("there are more groups");
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
