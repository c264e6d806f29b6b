//! Copies compare their states.

use crate::growth::{change, grown, join, make_stream, placed, tick_until};
use crate::trio::{Trio, group_of, is_appended, number};
use cluster::{CheckReport, Meta, MetaCommand, MetaOutcome};
use model::GroupId;
use std::sync::Arc;
use thalweg_node::testing::{GROUPS, append, create, path, path_in};
use thalweg_node::{CopyState, CopyStatus, PeerEvent, SliceLimits};

/// What each node says of a group.
fn said(trio: &mut Trio, group: GroupId) -> Vec<Option<CheckReport>> {
    let of = |node| {
        let report = trio.node(node).shards[0].report().expect("it is a member");
        report.checks.into_iter().find(|check| check.group == group)
    };
    (0..3).map(of).collect()
}

/// Asks for a check, and waits until each node has said the same number for each group.
fn check(trio: &mut Trio, number: u64) {
    assert_eq!(change(trio, 0, MetaCommand::Check), MetaOutcome::Checking(number));
    tick_until(trio, |trio| {
        let mut groups = (0..=GROUPS).map(GroupId::new);
        groups.all(|group| {
            said(trio, group).iter().all(|said| said.is_some_and(|it| it.number == number))
        })
    });
}

fn are_equal(trio: &mut Trio, group: GroupId) -> bool {
    let mut said = said(trio, group);
    said.dedup();
    said.len() == 1
}

#[test]
fn copies_say_the_same_of_their_states_unless_one_differs() {
    let mut trio = grown();
    make_stream(&mut trio, 0, b"one,");
    check(&mut trio, 1);
    for group in (0..=GROUPS).map(GroupId::new) {
        assert!(are_equal(&mut trio, group), "{:?}", said(&mut trio, group));
    }
    let differs = (trio.leader(group_of("a")) + 1) % 3;
    trio.node(differs).spoil(&path("a"));
    check(&mut trio, 2);
    let said: Vec<_> = said(&mut trio, group_of("a")).into_iter().flatten().collect();
    let odd = said.iter().enumerate().filter(|(_, it)| it.digest != said[(differs + 1) % 3].digest);
    assert_eq!(odd.map(|(node, _)| node).collect::<Vec<_>>(), [differs]);
    assert_eq!((said[0].index, said[1].index), (said[1].index, said[2].index));
}

#[test]
fn a_digest_is_of_the_state_at_its_entry_whatever_comes_meanwhile() {
    let mut trio = grown();
    for name in 0..50 {
        let name = path(&format!("{}-{name}", group_of("a")));
        let made = trio.ask(0, create(&name, Some("text/plain"), None, b"x"));
        assert!(matches!(made, thalweg_node::Reply::Outcome(_)), "{made:?}");
    }
    make_stream(&mut trio, 0, b"one,");
    // Nodes take different numbers of rows in a turn, and streams change in between.
    for (node, rows_max) in [1, 2, 1000].into_iter().enumerate() {
        let limits = SliceLimits { rows_max, ..SliceLimits::default() };
        trio.node(node).shards[0].set_slice_limits(limits);
    }
    assert_eq!(change(&mut trio, 0, MetaCommand::Check), MetaOutcome::Checking(1));
    for _ in 0..40 {
        let leader = trio.leader(group_of("a"));
        assert!(is_appended(&trio.ask(leader, append(&path("a"), b"more,"))));
        trio.tick();
    }
    for group in (0..=GROUPS).map(GroupId::new) {
        let said = said(&mut trio, group);
        assert!(said.iter().all(Option::is_some) && are_equal(&mut trio, group), "{said:?}");
    }
}

#[test]
fn a_check_of_before_is_not_made_again_by_a_node_that_starts_or_leads_next() {
    let mut trio = grown();
    make_stream(&mut trio, 0, b"one,");
    check(&mut trio, 1);
    let index = said(&mut trio, group_of("a"))[1].expect("it was checked").index;
    let leader = trio.leader(group_of("a"));
    trio.kill(leader);
    let next = trio.leader(group_of("a"));
    assert_ne!(leader, next);
    trio.start(leader);
    (0..60).for_each(|_| trio.tick());
    let still = said(&mut trio, group_of("a"))[next].map(|it| it.index);
    assert!(still.is_none_or(|still| still == index), "{still:?} and {index:?}");
    check(&mut trio, 2);
    assert!(are_equal(&mut trio, group_of("a")));
}

#[test]
fn a_check_whose_entry_was_superseded_is_appended_again() {
    let mut trio = grown();
    make_stream(&mut trio, 0, b"one,");
    let group = group_of("a");
    let first = trio.leader(group);
    // This node alone knows of the check, and nobody hears of its entry.
    trio.cut = vec![first];
    let mut meta = Meta::clone(trio.node(first).shards[0].known_meta().expect("it has grown"));
    assert_eq!(meta.apply(&MetaCommand::Check), MetaOutcome::Checking(1));
    let meta = Arc::new(meta);
    let before = trio.copy(first, group).last;
    trio.tell(first, PeerEvent::Meta(meta.clone()));
    (0..4).for_each(|_| trio.tick());
    assert!(trio.copy(first, group).last > before, "its entry is in the log");
    let next = trio.leader(group);
    trio.cut = Vec::new();
    // Others have elected the next leader, and this node hears of it.
    tick_until(&mut trio, |trio| trio.copy(first, group).leader == Some(number(next)));
    trio.settle();
    assert_eq!(said(&mut trio, group), [None; 3]);
    // It leads again.
    trio.cut = vec![next];
    tick_until(&mut trio, |trio| trio.serving(group) == Some(first));
    trio.tell(first, PeerEvent::Meta(meta));
    (0..20).for_each(|_| trio.tick());
    let report = trio.node(first).shards[0].report().expect("it is a member");
    assert!(report.checks.iter().any(|check| check.group == group), "{:?}", report.checks);
}

#[test]
fn a_digest_ends_with_the_state_that_it_is_of() {
    let mut trio = grown();
    for stream in 0..120 {
        for group in 0..GROUPS {
            let name = path_in(group, &format!("{stream}"));
            let made = trio.ask(0, create(&name, Some("text/plain"), None, b""));
            assert!(matches!(made, thalweg_node::Reply::Outcome(_)), "{made:?}");
        }
    }
    let hold = |trio: &mut Trio, turns| {
        for node in 0..3 {
            let limits = SliceLimits { rows_max: 1, ..SliceLimits::default() };
            trio.node(node).shards[0].set_slice_limits(limits);
            trio.node(node).held.turns = turns;
        }
    };
    hold(&mut trio, true);
    assert_eq!(change(&mut trio, 1, MetaCommand::Check), MetaOutcome::Checking(1));
    (0..20).for_each(|_| trio.tick());
    assert_eq!(said(&mut trio, GroupId::new(0)), [None; 3], "all are under way");
    // A fourth node gets copies of some groups. Those that go give back what they have.
    join(&mut trio, 0, 3);
    tick_until(&mut trio, |trio| placed(trio, 0).iter().any(|nodes| nodes.contains(&4)));
    let has_gone = |copy: &CopyStatus| copy.state == CopyState::Removed;
    tick_until(&mut trio, |trio| {
        (0..3).any(|node| trio.node(node).shards[0].copies().iter().any(has_gone))
    });
    (0..100).for_each(|_| trio.tick());
    hold(&mut trio, false);
    (0..20).for_each(|_| trio.tick());
    // Of each group two copies have stayed, or three.
    for group in (0..=GROUPS).map(GroupId::new) {
        let digests: Vec<_> = said(&mut trio, group).into_iter().flatten().collect();
        assert!(digests.len() >= 2, "{digests:?}");
        assert!(digests.iter().all(|it| it.digest == digests[0].digest), "{digests:?}");
    }
}
