//! Writes at any node: what becomes of them when links and leaders are lost on the way.

use super::trio::{Trio, group_of, head, is_appended, number, with_text};
use cluster::Section;
use stream::{Append, Lifetime, Outcome, Producer, Refusal};
use thalweg_node::testing::{Ask, append, create, create_for, path, text};
use thalweg_node::{Failure, PeerEvent, ReadRequest, Reply, Request};

/// A write of a producer, which is known again.
fn numbered(seq: u64, data: &[u8]) -> Ask<'_> {
    let producer = Some(Producer { id: "p".into(), epoch: 0, seq });
    let append = Append { producer, ..text() };
    Ask { request: Request::Append { path: path("a"), append }, data }
}

fn read_of(name: &str) -> Request {
    let (path, from) = (path(name), model::ReadFrom::At(model::ByteOffset::ZERO));
    let (boundary_bytes, first_bytes_max) = (1 << 40, u64::MAX);
    Request::Read(ReadRequest { path, from, boundary_bytes, first_bytes_max, records: None })
}

fn is_answer(section: &Section) -> bool {
    matches!(section, Section::Answer { .. })
}

fn is_forward(section: &Section) -> bool {
    matches!(section, Section::Forward { .. })
}

/// A stream with one append; the leader of its group, and a node that follows.
fn with_follower(trio: &mut Trio) -> (usize, usize) {
    let leader = with_text(trio, "a");
    trio.tick();
    (leader, (leader + 1) % 3)
}

/// Lets all arrive that is under way, but what is of this kind and from this node.
fn settle_without(trio: &mut Trio, (from, is_it): (usize, fn(&Section) -> bool)) -> usize {
    let mut lost = 0;
    loop {
        let is_lost = |said: &thalweg_node::ToPeer| is_it(&said.section);
        trio.node(from).settle();
        let before = trio.node(from).said.len();
        trio.node(from).said.retain(|said| !is_lost(said));
        lost += before - trio.node(from).said.len();
        if !trio.settle_one() {
            return lost;
        }
    }
}

/// The answer to a request, if there is one.
fn answer(trio: &mut Trio, node: usize, asked: u32) -> Option<Reply> {
    let replies = &mut trio.node(node).replies;
    let at = replies.iter().position(|(of, _)| *of == asked)?;
    Some(replies.remove(at).1)
}

fn ticks(trio: &mut Trio, count: usize) {
    (0..count).for_each(|_| trio.tick());
}

#[test]
fn any_node_takes_any_write() {
    let mut trio = Trio::new();
    let leader = trio.leader(group_of("a"));
    for (number, node) in [(leader + 1) % 3, (leader + 2) % 3, leader].into_iter().enumerate() {
        let made = trio.ask(node, create(&path("a"), Some("text/plain"), None, b""));
        let is_first = matches!(made, Reply::Outcome(Outcome::Created(_)));
        let is_later = matches!(made, Reply::Outcome(Outcome::Existed(_)));
        assert!(if number == 0 { is_first } else { is_later }, "{made:?}");
        assert!(is_appended(&trio.ask(node, append(&path("a"), b"x,"))));
    }
    for node in 0..3 {
        assert_eq!(trio.text(node, "a"), b"x,x,x,");
    }
    let follower = (leader + 1) % 3;
    let deleted = trio.ask(follower, Request::Delete { path: path("a") });
    assert!(matches!(deleted, Reply::Outcome(Outcome::Deleted)), "{deleted:?}");
    let refused = trio.ask(follower, append(&path("a"), b"late"));
    assert!(matches!(refused, Reply::Outcome(Outcome::Refused(Refusal::NotFound))), "{refused:?}");
}

#[test]
fn a_write_waits_for_the_next_leader() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    trio.kill(leader);
    let asked = trio.node(follower).offer(append(&path("a"), b"two,"));
    trio.settle();
    assert!(answer(&mut trio, follower, asked).is_none(), "nobody leads");
    trio.leader(group_of("a"));
    ticks(&mut trio, 3);
    let appended = answer(&mut trio, follower, asked).expect("somebody leads");
    assert!(is_appended(&appended), "{appended:?}");
    assert_eq!(trio.text(follower, "a"), b"one,two,");
}

#[test]
fn without_a_leader_a_write_was_not_applied_for_certain() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    let third = 3 - leader - follower;
    trio.kill(leader);
    trio.kill(third);
    let asked = trio.node(follower).offer(append(&path("a"), b"lost,"));
    ticks(&mut trio, 99);
    assert!(answer(&mut trio, follower, asked).is_none(), "there is time left");
    ticks(&mut trio, 2);
    let refused = answer(&mut trio, follower, asked);
    assert!(matches!(refused, Some(Reply::Failed(Failure::NoLeader))), "{refused:?}");
    trio.start(leader);
    trio.leader(group_of("a"));
    ticks(&mut trio, 3);
    assert_eq!(trio.text(follower, "a"), b"one,");
}

#[test]
fn an_answer_that_is_lost_with_its_link_comes_again() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    let asked = trio.node(follower).offer(append(&path("a"), b"two,"));
    assert_eq!(settle_without(&mut trio, (leader, is_answer)), 1);
    assert!(answer(&mut trio, follower, asked).is_none());
    trio.link(leader, follower);
    trio.settle();
    let appended = answer(&mut trio, follower, asked).expect("it is asked again");
    assert!(is_appended(&appended), "{appended:?}");
    // The way back alone was lost: its end has heard of no loss.
    let asked = trio.node(follower).offer(append(&path("a"), b"three,"));
    assert_eq!(settle_without(&mut trio, (leader, is_answer)), 1);
    let opening = trio.opened[follower];
    trio.tell(leader, PeerEvent::Up { node: number(follower), opening });
    trio.settle();
    let appended = answer(&mut trio, follower, asked).expect("it is said again");
    assert!(is_appended(&appended), "{appended:?}");
    assert_eq!(trio.text(follower, "a"), b"one,two,three,");
}

#[test]
fn nobody_can_tell_what_a_node_did_that_was_started_anew() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    let asked = trio.node(follower).offer(append(&path("a"), b"two,"));
    assert_eq!(settle_without(&mut trio, (leader, is_answer)), 1);
    trio.kill(leader);
    trio.leader(group_of("a"));
    ticks(&mut trio, 3);
    assert!(answer(&mut trio, follower, asked).is_none(), "it may come back");
    trio.start(leader);
    trio.settle();
    let unknown = answer(&mut trio, follower, asked);
    assert!(matches!(unknown, Some(Reply::Failed(Failure::Unknown))), "{unknown:?}");
    assert_eq!(trio.text(follower, "a"), b"one,two,");
}

#[test]
fn a_write_of_a_producer_is_repeated_at_the_next_leader_and_is_there_once() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    let asked = trio.node(follower).offer(numbered(0, b"two,"));
    assert_eq!(settle_without(&mut trio, (leader, is_answer)), 1);
    trio.kill(leader);
    trio.leader(group_of("a"));
    ticks(&mut trio, 3);
    let appended = answer(&mut trio, follower, asked).expect("it is known again");
    let is_known = matches!(&appended, Reply::Outcome(Outcome::Appended(it)) if it.duplicate);
    assert!(is_known, "{appended:?}");
    assert_eq!(trio.text(follower, "a"), b"one,two,");
}

#[test]
fn what_a_deposed_leader_could_not_commit_goes_to_the_next_one() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    let third = 3 - leader - follower;
    // The leader takes the write, and nobody hears of its entry.
    let asked = trio.node(follower).offer(append(&path("a"), b"two,"));
    trio.node(follower).settle();
    let said = std::mem::take(&mut trio.node(follower).said);
    let forwarded = said.into_iter().find(|said| is_forward(&said.section)).expect("it is sent");
    let (from, section) = (number(follower), forwarded.section);
    trio.tell(leader, PeerEvent::Section { from, section });
    trio.node(leader).settle();
    trio.node(leader).said.clear();
    trio.cut = vec![leader];
    trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(third, append(&path("a"), b"other,"))));
    assert!(answer(&mut trio, follower, asked).is_none(), "its node has it still");
    trio.cut.clear();
    ticks(&mut trio, 20);
    let appended = answer(&mut trio, follower, asked).expect("it was not applied, for certain");
    assert!(is_appended(&appended), "{appended:?}");
    assert_eq!(trio.text(third, "a"), b"one,other,two,");
}

#[test]
fn a_copy_of_a_request_that_comes_late_is_not_served_again() {
    let mut trio = Trio::new();
    let (leader, follower) = with_follower(&mut trio);
    let asked = trio.node(follower).offer(append(&path("a"), b"two,"));
    trio.node(follower).settle();
    let said = trio.node(follower).said.iter().find(|said| is_forward(&said.section));
    let section = said.expect("it is sent").section.clone();
    trio.settle();
    assert!(answer(&mut trio, follower, asked).is_some_and(|reply| is_appended(&reply)));
    let from = number(follower);
    trio.tell(leader, PeerEvent::Section { from, section: section.clone() });
    trio.settle();
    // Nor is it by the node's next opening, which knows nothing of it.
    trio.kill(leader);
    trio.start(leader);
    for _ in 0..40 {
        let other = trio.leader(group_of("a"));
        if other == leader {
            break;
        }
        trio.kill(other);
        trio.leader(group_of("a"));
        trio.start(other);
    }
    assert_eq!(trio.serving(group_of("a")), Some(leader));
    trio.tell(leader, PeerEvent::Section { from, section });
    trio.settle();
    assert_eq!(trio.text(leader, "a"), b"one,two,");
}

#[test]
fn uses_and_ends_of_lifetimes_are_told_by_the_leader() {
    let mut trio = Trio::new();
    let leader = trio.leader(group_of("a"));
    let made = trio.ask(leader, create_for(&path("a"), Lifetime::Ttl { seconds: 100 }));
    assert!(matches!(made, Reply::Outcome(Outcome::Created(_))), "{made:?}");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"one,"))));
    let follower = (leader + 1) % 3;
    assert!(matches!(trio.ask(follower, head("a")), Reply::Head(..)), "to ask is no use");
    ticks(&mut trio, 20 * 80);
    assert_eq!(trio.text(follower, "a"), b"one,");
    ticks(&mut trio, 20 * 80);
    assert!(matches!(trio.ask(leader, read_of("a")), Reply::Read(_)), "it was used meanwhile");
    // By its own clock the stream has expired; the leader does not say so.
    trio.node(follower).now.wall = trio.node(follower).now.wall.plus_ms(200_000);
    assert!(matches!(trio.ask(follower, head("a")), Reply::Head(..)));
    for node in 0..3 {
        trio.node(node).now.wall = trio.node(node).now.wall.plus_ms(300_000);
    }
    let gone = trio.ask(follower, head("a"));
    assert!(matches!(gone, Reply::Outcome(Outcome::Refused(Refusal::NotFound))), "{gone:?}");
}

#[test]
fn a_trim_that_another_leader_supersedes_is_made_there() {
    let mut moved_count = 0;
    for steps in 0.. {
        let mut trio = Trio::new();
        let leader = with_text(&mut trio, "a");
        assert!(is_appended(&trio.ask(leader, append(&path("a"), b"two,"))));
        let before = model::TrimBefore::Offset(model::ByteOffset::new(4));
        let number = trio.node(leader).offer(Request::Trim { path: path("a"), before });
        (0..steps).for_each(|_| _ = trio.settle_one());
        if trio.node(leader).replies.iter().any(|(of, _)| *of == number) {
            break;
        }
        trio.cut_off_for_a_while(leader);
        moved_count += usize::from(trio.leader(group_of("a")) != leader);
        let replies = trio.node(leader).replies.iter();
        let reply = replies.filter(|(of, _)| *of == number).map(|(_, reply)| reply).next();
        let is_trimmed = matches!(reply, Some(Reply::Outcome(Outcome::Trimmed { .. })));
        assert!(is_trimmed, "after {steps} steps: {reply:?}");
    }
    assert!(moved_count > 0, "another node led the group");
}
