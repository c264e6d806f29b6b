//! Writes of one path take effect in the order in which they came at a node.

use super::trio::{Trio, group_of, is_appended, missing_beside, with_text};
use log::LogOptions;
use stream::{Append, Outcome, Producer, Refusal};
use thalweg_node::testing::{Ask, append, create, options, path, text};
use thalweg_node::{Failure, Reply, Request};

/// A write of a producer: one that comes too early is refused.
fn numbered(producer: &str, seq: u64, data: &'static [u8]) -> Ask<'static> {
    let producer = Some(Producer { id: producer.into(), epoch: 0, seq });
    let append = Append { producer, ..text() };
    Ask { request: Request::Append { path: path("a"), append }, data }
}

/// The answers to all requests of a node, in the order of the requests.
fn answers(trio: &mut Trio, node: usize) -> Vec<Reply> {
    let mut replies = std::mem::take(&mut trio.node(node).replies);
    replies.sort_by_key(|(of, _)| *of);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

fn are_appended(replies: &[Reply], count: usize) -> bool {
    replies.len() == count && replies.iter().all(is_appended)
}

fn is_missing(reply: &Reply) -> bool {
    matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)))
}

/// Nodes whose logs have room for little at a time, a stream with one append, and the leader of its group.
fn with_small_batches() -> (Trio, usize) {
    let options = LogOptions { batch_bytes_max: 4096, wal_bytes_max: 256 << 20, ..options() };
    let mut trio = Trio::with(options);
    let leader = with_text(&mut trio, "a");
    (trio, leader)
}

#[test]
fn no_write_passes_one_that_waits_for_the_word_of_a_majority() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let node = trio.node(leader);
    node.offer(Request::Delete { path: path("a") });
    node.offer(append(&path("a"), b"late,"));
    node.offer(append(&path("a"), b"later,"));
    trio.settle();
    trio.tick();
    let [deleted, late, later] = &answers(&mut trio, leader)[..] else { panic!("three answers") };
    assert!(matches!(deleted, Reply::Outcome(Outcome::Deleted)), "{deleted:?}");
    assert!(is_missing(late) && is_missing(later), "{late:?} {later:?}");
}

#[test]
fn repeats_of_a_producer_share_a_question_and_its_next_append_comes_behind_them() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    assert!(is_appended(&trio.ask(leader, numbered("p", 0, b"0,"))));
    assert!(is_appended(&trio.ask(leader, numbered("p", 1, b"1,"))));
    for (seq, data) in [(0, b"0,"), (1, b"1,"), (2, b"2,"), (3, b"3,")] {
        trio.node(leader).offer(numbered("p", seq, data));
    }
    trio.settle();
    let replies = answers(&mut trio, leader);
    assert!(are_appended(&replies, 4), "{replies:?}");
    assert_eq!(trio.text(leader, "a"), b"one,0,1,2,3,");
}

/// A stream whose leader is cut off, and the next one. Whichever of the two others is elected has passed on a first write, of which
/// it does not hear.
fn with_a_silent_leader(first: impl Fn(usize) -> Ask<'static>) -> (Trio, usize) {
    let mut trio = Trio::new();
    let old = with_text(&mut trio, "a");
    trio.tick();
    trio.cut = vec![old];
    for node in [(old + 1) % 3, (old + 2) % 3] {
        trio.node(node).offer(first(node));
    }
    let new = trio.leader(group_of("a"));
    (trio, new)
}

#[test]
fn a_new_leader_takes_no_write_before_an_earlier_one_that_went_to_the_last_leader() {
    let first = |node| numbered(&format!("p{node}"), 0, b"first,");
    let (mut trio, new) = with_a_silent_leader(first);
    trio.node(new).offer(numbered(&format!("p{new}"), 1, b"second,"));
    trio.settle();
    trio.tick();
    // A producer's is repeated at once. Nobody waits for the old leader.
    let replies = answers(&mut trio, new);
    assert!(are_appended(&replies, 2), "{replies:?}");
    // The other node's first write comes before the second one or behind it.
    let text = trio.text(new, "a");
    assert!(text.starts_with(b"one,first,") && text.len() == 4 + 6 + 6 + 7, "{text:?}");
    // Nothing is at another node any more: the log takes it at once.
    trio.node(new).offer(numbered(&format!("p{new}"), 2, b"third,"));
    trio.settle();
    assert!(are_appended(&answers(&mut trio, new), 1));
}

#[test]
fn a_write_that_must_not_be_repeated_holds_later_ones_up_for_half_a_second() {
    let (mut trio, new) = with_a_silent_leader(|_| append(&path("a"), b"first,"));
    trio.node(new).offer(append(&path("a"), b"second,"));
    trio.settle();
    trio.tick();
    assert!(trio.node(new).replies.is_empty(), "{:?}", trio.node(new).replies);
    for _ in 0..12 {
        trio.tick();
        trio.settle();
    }
    let replies = answers(&mut trio, new);
    assert!(matches!(replies[0], Reply::Failed(Failure::Unknown)), "{replies:?}");
    assert!(replies.len() == 2 && is_appended(&replies[1]), "{replies:?}");
    assert_eq!(trio.text(new, "a"), b"one,second,");
}

#[test]
fn what_waits_for_room_in_the_log_is_not_overtaken_by_a_refusal() {
    let (mut trio, leader) = with_small_batches();
    let other = path(&missing_beside("a"));
    let made = trio.ask(leader, create(&other, Some("text/plain"), None, b""));
    assert!(matches!(made, Reply::Outcome(Outcome::Created(_))), "{made:?}");
    trio.tick();
    let node = trio.node(leader);
    node.offer(append(&other, b"has the room,"));
    for (seq, data) in [(0, b"0,"), (1, b"1,"), (2, b"2,")] {
        node.offer(numbered("p", seq, data));
    }
    trio.settle();
    let replies = answers(&mut trio, leader);
    assert!(are_appended(&replies, 4), "{replies:?}");
    assert_eq!(trio.text(leader, "a"), b"one,0,1,2,");
}

#[test]
fn what_waits_for_room_goes_to_the_next_leader_in_its_order() {
    let (mut trio, old) = with_small_batches();
    trio.tick();
    trio.cut = vec![old];
    // Its disk is busy: two are in the log, the others are not.
    trio.node(old).held.syncs = Some(Vec::new());
    for data in [b"lost,", b"same,"] {
        trio.node(old).offer(append(&path("a"), data));
        trio.settle();
    }
    for (seq, data) in [(0, b"0,"), (1, b"1,")] {
        trio.node(old).offer(numbered("p", seq, data));
    }
    let new = trio.leader(group_of("a"));
    trio.cut.clear();
    trio.tick();
    trio.node(old).offer(numbered("p", 2, b"2,"));
    (0..20).for_each(|_| trio.tick());
    trio.node(old).sync_held();
    trio.node(old).held.syncs = None;
    (0..20).for_each(|_| trio.tick());
    let replies = answers(&mut trio, old);
    assert!(are_appended(&replies[2..], 3), "{replies:?}");
    assert_eq!(trio.text(new, "a"), b"one,0,1,2,");
}

#[test]
fn what_a_deposed_leader_holds_goes_to_the_next_one_in_its_order() {
    let mut trio = Trio::new();
    let old = with_text(&mut trio, "a");
    trio.tick();
    trio.cut = vec![old];
    // By its state they come too early, and no majority says so.
    for (seq, data) in [(1, b"1,"), (2, b"2,"), (3, b"3,")] {
        trio.node(old).offer(numbered("p", seq, data));
        trio.settle();
    }
    let new = trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(new, numbered("p", 0, b"0,"))));
    assert!(trio.node(old).replies.is_empty(), "{:?}", trio.node(old).replies);
    trio.cut.clear();
    (0..20).for_each(|_| trio.tick());
    let replies = answers(&mut trio, old);
    assert!(are_appended(&replies, 3), "{replies:?}");
    assert_eq!(trio.text(new, "a"), b"one,0,1,2,3,");
}
