//! Forks whose source is led by another node.

use crate::trio::{Trio, group_of, head, is_appended, read_of, with_text};
use cluster::Section;
use model::GroupId;
use stream::{Outcome, Refusal};
use thalweg_node::testing::{GROUPS, append, create, fork_of, options, path};
use thalweg_node::{CopyState, Reply, Request};

/// A path in a group.
fn name_in(group: GroupId, prefix: &str) -> String {
    let mut names = (0..).map(|number| format!("{prefix}{number}"));
    names.find(|name| group_of(name) == group).expect("groups have paths")
}

fn fork(trio: &mut Trio, node: usize, (name, source): (&str, &str)) -> Reply {
    let fork = fork_of(&path(source), None, 0);
    trio.ask(node, create(&path(name), None, Some(fork), b""))
}

fn refusal_of(trio: &mut Trio, node: usize, name: &str) -> Option<Refusal> {
    match trio.ask(node, head(name)) {
        Reply::Outcome(Outcome::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

/// Deletes a stream, and tells whether a fork keeps its bytes.
fn delete(trio: &mut Trio, name: &str) {
    let reply = trio.ask(0, Request::Delete { path: path(name) });
    assert!(matches!(reply, Reply::Outcome(Outcome::Deleted)), "{reply:?}");
}

#[test]
fn a_fork_of_any_group_is_made_read_and_given_up_at_any_node() {
    let mut trio = Trio::new();
    with_text(&mut trio, "source");
    for group in 0..GROUPS {
        for node in 0..3 {
            let name = name_in(GroupId::new(group), &format!("fork-{node}-"));
            let made = fork(&mut trio, node, (&name, "source"));
            assert!(matches!(made, Reply::Outcome(Outcome::Created(_))), "{made:?}");
            for reader in 0..3 {
                assert_eq!(trio.text(reader, &name), b"one,", "{name} at node {reader}");
            }
        }
    }
    delete(&mut trio, "source");
    assert_eq!(refusal_of(&mut trio, 1, "source"), Some(Refusal::Gone), "its forks read it");
    for group in 0..GROUPS {
        for node in 0..3 {
            let name = name_in(GroupId::new(group), &format!("fork-{node}-"));
            assert_eq!(trio.text(1, &name), b"one,");
            delete(&mut trio, &name);
        }
    }
    for _ in 0..10 {
        trio.tick();
    }
    assert_eq!(refusal_of(&mut trio, 1, "source"), Some(Refusal::NotFound), "nobody needs it");
}

#[test]
fn a_fork_is_read_at_a_node_whose_copy_of_the_source_is_behind() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "source");
    trio.tick();
    let behind = (leader + 1) % 3;
    let is_source = |section: &Section| matches!(section, Section::Message { group, .. } if *group == group_of("source"));
    trio.loses = Some(Box::new(move |_, to, section| to == behind && is_source(section)));
    assert!(is_appended(&trio.ask(leader, append(&path("source"), b"two,"))));
    let mut groups = (0..GROUPS).map(GroupId::new);
    let other = groups.find(|group| *group != group_of("source")).expect("there are two");
    let name = name_in(other, "fork");
    let made = fork(&mut trio, leader, (&name, "source"));
    assert!(matches!(made, Reply::Outcome(Outcome::Created(_))), "{made:?}");
    let at = model::ByteOffset::new(4);
    let reply = trio.ask(behind, Request::Read(read_of(&name, at)));
    let Reply::Read(read) = reply else { panic!("a read was answered by {reply:?}") };
    assert_eq!((read.start, read.end.get()), (at, 8));
    // Nothing is damaged: no copy is given up for it.
    let damages = trio.node(behind).shards[0].take_read_damages();
    assert!(damages.is_empty(), "{damages:?}");
    trio.loses = None;
    (0..10).for_each(|_| trio.tick());
    assert_eq!(trio.text(behind, &name), b"one,two,");
    let states: Vec<_> = trio.node(behind).shards[0].copies();
    assert!(states.iter().all(|copy| copy.state != CopyState::Halted), "{states:?}");
}

/// Nodes with a source, and the name of a fork in a group that another one leads, with that node.
fn apart() -> (Trio, String, usize) {
    for seed in 0..100 {
        let mut trio = Trio::seeded(options(), seed);
        let source = with_text(&mut trio, "source");
        for group in (0..GROUPS).map(GroupId::new) {
            let leader = trio.leader(group);
            if leader != source {
                return (trio, name_in(group, "fork"), leader);
            }
        }
    }
    panic!("one node leads all groups");
}

#[test]
fn a_fork_whose_group_gets_another_leader_is_made_there() {
    let mut moved_count = 0;
    for steps in 0.. {
        let (mut trio, name, coordinator) = apart();
        let group = group_of(&name);
        let fork = create(&path(&name), None, Some(fork_of(&path("source"), None, 0)), b"two,");
        let number = trio.node(coordinator).offer(fork);
        (0..steps).for_each(|_| _ = trio.settle_one());
        if trio.node(coordinator).replies.iter().any(|(of, _)| *of == number) {
            break;
        }
        trio.cut_off_for_a_while(coordinator);
        moved_count += usize::from(trio.leader(group) != coordinator);
        let made = trio.node(coordinator).replies.iter().find(|(of, _)| *of == number);
        let is_made = matches!(made, Some((_, Reply::Outcome(Outcome::Created(_)))));
        assert!(is_made, "{made:?} after {steps} steps");
        assert_eq!(trio.text((coordinator + 1) % 3, &name), b"one,two,");
        delete(&mut trio, "source");
        delete(&mut trio, &name);
        (0..10).for_each(|_| trio.tick());
        assert_eq!(refusal_of(&mut trio, 1, "source"), Some(Refusal::NotFound), "{steps} steps");
    }
    assert!(moved_count > 0, "another node led the group");
}

#[test]
fn whenever_a_coordinator_dies_no_reference_stays_that_no_fork_holds() {
    let mut references_count = 0;
    for steps in 0.. {
        let (mut trio, name, coordinator) = apart();
        let witness = (coordinator + 1) % 3;
        let fork = create(&path(&name), None, Some(fork_of(&path("source"), None, 0)), b"");
        let number = trio.node(coordinator).offer(fork);
        (0..steps).for_each(|_| _ = trio.settle_one());
        let replies = &trio.node(coordinator).replies;
        let is_answered = replies.iter().any(|(of, _)| *of == number);
        trio.kill(coordinator);
        for _ in 0..20 {
            trio.tick();
        }
        let is_made = refusal_of(&mut trio, witness, &name).is_none();
        assert!(is_made || !is_answered, "what was acknowledged is there");
        let reply = trio.ask(witness, Request::Delete { path: path("source") });
        assert!(matches!(reply, Reply::Outcome(Outcome::Deleted)), "{reply:?}");
        let is_held = refusal_of(&mut trio, witness, "source") == Some(Refusal::Gone);
        references_count += usize::from(is_held && !is_made);
        if is_made {
            assert!(is_held, "a fork reads the source after {steps} steps");
            let reply = trio.ask(witness, Request::Delete { path: path(&name) });
            assert!(matches!(reply, Reply::Outcome(Outcome::Deleted)), "{reply:?}");
        }
        for _ in 0..300 {
            trio.tick();
        }
        let left = refusal_of(&mut trio, witness, "source");
        assert_eq!(left, Some(Refusal::NotFound), "after {steps} steps");
        if is_answered {
            break;
        }
    }
    assert!(references_count > 0, "some reference was left for the sweep");
}
