//! A heartbeat that says nothing new does what the library does with it, and its answer as well.

use super::mutants::{elect, id, says, settle, start};
use crate::configuration::Configuration;
use crate::library;
use crate::message::{Body, GroupMessage, LogPosition};
use crate::replica::Replica;
use crate::rules::{ELECTION_TICKS, Enforced, HEARTBEAT_TICKS};
use model::{EntryIndex, Term};
use raft::ProgressState;

/// Replica 1 of three.
fn replica() -> Replica {
    start::<Enforced>(id(1), Configuration::of(&[id(1), id(2), id(3)]))
}

/// A follower of 2 in term 5 that knows everything.
fn follower() -> Replica {
    let mut replica = replica();
    let previous = LogPosition::new(0, 0);
    let hello = Body::Append { previous, commit: EntryIndex::new(0), entries: Vec::new() };
    let hello = GroupMessage { term: Term::new(5), ..says(2, &replica, hello) };
    replica.step(hello).expect("a leader is believed");
    settle(&mut replica);
    replica
}

/// A leader whose followers have all that it has.
pub(super) fn leader() -> Replica {
    let mut leader = replica();
    elect(&mut leader);
    for from in [2, 3] {
        let (index, commit) = (leader.last_index(), EntryIndex::new(0));
        leader.step(says(from, &leader, Body::Appended { index, commit })).expect("it has it");
    }
    settle(&mut leader);
    assert_eq!(leader.committed(), leader.last_index());
    leader
}

pub(super) fn heartbeat(commit: u64, read: u64) -> Body {
    Body::Heartbeat { commit: EntryIndex::new(commit), read }
}

pub(super) fn alive(commit: u64, read: u64) -> Body {
    Body::Alive { commit: EntryIndex::new(commit), read }
}

#[test]
fn a_follower_answers_a_heartbeat_as_the_library_does() {
    let (mut short, mut long) = (follower(), follower());
    let message = says(2, &short, heartbeat(0, 0));
    for replica in [&mut short, &mut long] {
        replica.raw.raft.election_elapsed = ELECTION_TICKS - 1;
    }
    let answer = short.answer_heartbeat(&message).expect("it says nothing new");
    long.step(message).expect("a leader is believed");
    assert_eq!(settle(&mut long), [answer]);
    assert_eq!(settle(&mut short), []);
    let elapsed = |replica: &Replica| replica.raw.raft.election_elapsed;
    assert_eq!((elapsed(&short), elapsed(&long)), (0, 0));
}

#[test]
fn a_heartbeat_that_says_more_goes_through_the_library() {
    let mut replica = follower();
    let answer = |replica: &mut Replica, message: GroupMessage| replica.answer_heartbeat(&message);
    let known = says(2, &replica, heartbeat(0, 0));
    let others = [
        says(2, &replica, heartbeat(0, 7)),
        says(2, &replica, heartbeat(1, 0)),
        says(3, &replica, heartbeat(0, 0)),
        says(2, &replica, alive(0, 0)),
        GroupMessage { term: Term::new(6), ..known.clone() },
        GroupMessage { term: Term::new(4), ..known.clone() },
        GroupMessage { to: id(1).successor(), ..known.clone() },
    ];
    for other in others {
        assert_eq!(answer(&mut replica, other.clone()), None, "{other:?}");
    }
    assert!(answer(&mut replica, known.clone()).is_some());
    // Its term is not durable yet.
    let later = GroupMessage { term: Term::new(6), ..known };
    replica.step(later.clone()).expect("a leader is believed");
    let _ = replica.take_ready(10);
    assert_eq!(answer(&mut replica, later.clone()), None);
    settle(&mut replica);
    let _ = replica.persisted(10);
    assert!(answer(&mut replica, later).is_some());
}

#[test]
fn a_leader_notes_an_answer_as_the_library_does() {
    let (mut short, mut long) = (leader(), leader());
    let progress = |replica: &Replica| {
        let progress = replica.raw.raft.prs().get(id(2).bits()).expect("it follows");
        assert_eq!(progress.state, ProgressState::Replicate);
        (progress.recent_active, progress.matched, progress.next_idx, progress.paused)
    };
    for replica in [&mut short, &mut long] {
        let progress = replica.raw.raft.mut_prs().get_mut(id(2).bits()).expect("it follows");
        progress.recent_active = false;
    }
    let message = says(2, &short, alive(1, 0));
    assert!(short.note_alive(&message));
    long.raw.step(library::to_library(message)).expect("it follows");
    assert_eq!(progress(&short), progress(&long));
    assert!(progress(&short).0);
    assert_eq!(settle(&mut short), settle(&mut long));
}

#[test]
fn an_answer_that_asks_for_more_goes_through_the_library() {
    let mut replica = leader();
    let known = says(2, &replica, alive(1, 0));
    let others = [
        says(2, &replica, alive(1, 7)),
        says(2, &replica, alive(2, 0)),
        says(4, &replica, alive(1, 0)),
        GroupMessage { term: Term::new(replica.term().get() + 1), ..known.clone() },
    ];
    for other in others {
        assert!(!replica.note_alive(&other), "{other:?}");
    }
    assert!(replica.note_alive(&known));
    replica.propose(64).expect("it leads");
    settle(&mut replica);
    assert!(!replica.note_alive(&known), "it lacks an entry");
    assert!(!follower().note_alive(&says(2, &follower(), alive(0, 0))), "it does not lead");
}

#[test]
fn heartbeats_are_taken_as_the_library_makes_them_but_for_those_with_a_read() {
    let (mut short, mut long) = (leader(), leader());
    for replica in [&mut short, &mut long] {
        (0..HEARTBEAT_TICKS).for_each(|_| replica.tick());
    }
    let mut taken: Vec<_> = std::iter::from_fn(|| short.take_heartbeat()).collect();
    taken.reverse();
    assert_eq!(taken.len(), 2);
    assert_eq!(taken, settle(&mut long));
    assert_eq!(settle(&mut short), []);
    short.confirm_read().expect("it leads");
    assert_eq!(short.take_heartbeat(), None);
    assert_eq!(settle(&mut short).len(), 2);
    // What waits for the disk goes first.
    let mut leader = leader();
    leader.propose(64).expect("it leads");
    let _ = leader.take_ready(10);
    (0..HEARTBEAT_TICKS).for_each(|_| leader.tick());
    assert_eq!(leader.take_heartbeat(), None);
    let _ = leader.persisted(10);
    assert!(leader.take_heartbeat().is_some());
}
