//! What a node can tell the others of its copies, and whether it has caught up.

use crate::trio::{Trio, group_of, is_appended, number, with_text};
use cluster::{GroupReport, Report};
use model::{EntryIndex, GroupId};
use thalweg_node::testing::{GROUPS, append, path};

/// Ticks after which a leader has noticed that a node is silent.
const SILENCE_TICKS: usize = 30;

fn report(trio: &mut Trio, node: usize) -> Report {
    trio.node(node).shards[0].report().expect("it is a member")
}

fn of(report: &Report, group: GroupId) -> Option<&GroupReport> {
    report.groups.iter().find(|it| it.group == group)
}

#[test]
fn the_leader_alone_speaks_of_its_group_and_knows_who_is_there() {
    let mut trio = Trio::new();
    let (leader, group) = (with_text(&mut trio, "a"), group_of("a"));
    for _ in 0..10 {
        trio.tick();
    }
    let said = report(&mut trio, leader);
    let of_group = of(&said, group).expect("it leads");
    assert!(of_group.is_led);
    assert_eq!((of_group.voters_heard(), said.halted), (3, 0));
    assert_eq!(Report::decode(&said.encode()), Ok(said.clone()));
    for other in [1, 2].map(|more| (leader + more) % 3) {
        let of_other = report(&mut trio, other);
        assert!(of(&of_other, group).is_none(), "it follows, and has nothing to say");
        assert_eq!(of_other.copies, said.copies);
        assert_eq!(said.lags[&number(other)], 0);
    }
}

#[test]
fn a_voter_that_is_away_is_not_there_and_what_it_lacks_is_told() {
    let mut trio = Trio::new();
    let (leader, group) = (with_text(&mut trio, "a"), group_of("a"));
    let away = (leader + 1) % 3;
    trio.kill(away);
    for _ in 0..7 {
        assert!(is_appended(&trio.ask(leader, append(&path("a"), b"more,"))));
    }
    (0..SILENCE_TICKS).for_each(|_| trio.tick());
    let said = report(&mut trio, leader);
    assert_eq!(of(&said, group).map(GroupReport::voters_heard), Some(2));
    assert!(said.lags[&number(away)] >= 7, "{:?}", said.lags);
    trio.start(away);
    for _ in 0..SILENCE_TICKS {
        trio.tick();
    }
    let said = report(&mut trio, leader);
    assert_eq!(of(&said, group).map(GroupReport::voters_heard), Some(3));
    assert_eq!(said.lags[&number(away)], 0);
}

#[test]
fn who_is_alone_of_three_says_that_nobody_leads() {
    let mut trio = Trio::new();
    let (leader, group) = (with_text(&mut trio, "a"), group_of("a"));
    for other in [1, 2].map(|more| (leader + more) % 3) {
        trio.kill(other);
    }
    (0..SILENCE_TICKS).for_each(|_| trio.tick());
    let said = report(&mut trio, leader);
    let of_group = of(&said, group).expect("it knows no leader");
    assert!(!of_group.is_led);
    assert_eq!(of_group.voters_heard(), 1);
}

/// The last entry of the group of `a` that is applied on a node.
fn applied(trio: &mut Trio, node: usize) -> EntryIndex {
    trio.copy(node, group_of("a")).applied
}

fn catching_up(trio: &mut Trio, node: usize) -> usize {
    trio.node(node).shards[0].catching_up()
}

#[test]
fn a_node_catches_up_when_it_has_applied_what_was_committed_at_its_start() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let away = (leader + 1) % 3;
    trio.tick();
    trio.kill(away);
    for _ in 0..7 {
        assert!(is_appended(&trio.ask(leader, append(&path("a"), b"more,"))));
    }
    let committed = applied(&mut trio, leader);
    trio.cut = vec![away];
    trio.start(away);
    assert_eq!(catching_up(&mut trio, away), 0, "nobody has asked");
    trio.node(away).shards[0].begin_catching_up();
    // Longer than a request waits.
    (0..150).for_each(|_| trio.tick());
    assert_eq!(catching_up(&mut trio, away), usize::from(GROUPS), "it has heard of nobody");
    trio.cut.clear();
    for _ in 0..100 {
        if catching_up(&mut trio, away) == 0 {
            break;
        }
        trio.tick();
    }
    assert_eq!(catching_up(&mut trio, away), 0);
    assert!(applied(&mut trio, away) >= committed, "it says so too early");
}

#[test]
fn a_cluster_that_starts_as_a_whole_catches_up_and_so_does_its_leader() {
    let mut trio = Trio::new();
    with_text(&mut trio, "a");
    (0..3).for_each(|node| trio.kill(node));
    for node in 0..3 {
        trio.start(node);
        trio.node(node).shards[0].begin_catching_up();
    }
    assert_eq!(catching_up(&mut trio, 0), usize::from(GROUPS));
    (0..60).for_each(|_| trio.tick());
    for node in 0..3 {
        assert_eq!(catching_up(&mut trio, node), 0, "node {node}");
    }
}
