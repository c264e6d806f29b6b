//! A follower that has nothing asks for a snapshot.

use super::mutants::{self, elect, id, start};
use crate::configuration::{Change, Configuration, Part};
use crate::message::{Body, GroupMessage, SnapshotPoint};
use crate::replica::{Replica, StepRefused};
use crate::rules::Enforced;
use model::EntryIndex;

fn says(leader: &Replica, body: Body) -> GroupMessage {
    mutants::says(4, leader, body)
}

/// A leader of three whose log begins with its first entry, and the learner 4.
fn leader_with_a_learner() -> Replica {
    let mut leader = start::<Enforced>(id(1), Configuration::of(&[id(1), id(2), id(3)]));
    elect(&mut leader);
    let change = Change::Enter { revision: 0, parts: vec![(id(4), Part::Learner)] };
    let at = leader.propose_change(change).expect("a change");
    settle(&mut leader);
    let (index, commit) = (at.index, EntryIndex::new(1));
    let message = GroupMessage { from: id(2), ..says(&leader, Body::Appended { index, commit }) };
    leader.step(message).expect("a follower has it");
    settle(&mut leader);
    assert!(leader.configuration().contains(id(4)));
    leader
}

/// What goes to the learner.
fn settle(leader: &mut Replica) -> Vec<Body> {
    let to_it = mutants::settle(leader).into_iter().filter(|message| message.to == id(4));
    to_it.map(|message| message.body).collect()
}

fn snapshots(bodies: &[Body]) -> usize {
    bodies.iter().filter(|body| matches!(body, Body::Snapshot(_))).count()
}

#[test]
fn a_follower_that_has_nothing_gets_one_snapshot_though_the_log_has_all_entries() {
    let mut leader = leader_with_a_learner();
    leader.step(says(&leader, Body::Empty)).expect("it is one of the group");
    assert!(!settle(&mut leader).iter().any(|body| matches!(body, Body::Append { .. })));
    assert_eq!(leader.wanted_snapshots(), [id(4)]);
    assert!(leader.is_empty_handed(id(4)));
    let last = leader.last_index();
    let place = crate::LogPosition { index: last, term: leader.term() };
    let configuration = leader.configuration().clone();
    assert!(leader.offer_snapshot(id(4), SnapshotPoint { last: place, configuration }));
    leader.step(says(&leader, Body::Empty)).expect("it says it again");
    assert_eq!(snapshots(&settle(&mut leader)), 1);
    leader.step(says(&leader, Body::Empty)).expect("it was on its way");
    let appended = Body::Appended { index: last, commit: last };
    leader.step(says(&leader, appended)).expect("it is installed");
    assert_eq!(snapshots(&settle(&mut leader)), 0, "one is enough");
    assert_eq!(leader.wanted_snapshots(), []);
    assert!(!leader.is_empty_handed(id(4)));
    let late = leader.step(says(&leader, Body::Empty));
    assert!(matches!(late, Err(StepRefused::Contradiction(_))), "{late:?}");
}
