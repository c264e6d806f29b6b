//! A follower that answers is heard at every moment, and one that is gone is not for long.

use super::beat::{alive, heartbeat, leader};
use super::mutants::{says, settle};
use crate::message::{Body, GroupMessage, LogPosition};
use crate::replica::Replica;
use crate::rules::{ELECTION_TICKS, HEARTBEAT_TICKS};
use model::Term;

fn heard(replica: &Replica) -> Vec<u16> {
    let heard = replica.followers().into_iter().filter(|follower| follower.is_heard);
    heard.map(|follower| follower.id.node().get()).collect()
}

/// A tick, and answers of `from` to what it sends, if it sends. Returns who is heard between the two.
fn tick(leader: &mut Replica, from: &[u16], passed: usize) -> Vec<u16> {
    leader.tick();
    let heard = heard(leader);
    if passed.is_multiple_of(HEARTBEAT_TICKS as usize) {
        for from in from {
            let message = says(*from, leader, alive(1, 0));
            leader.step(message).expect("it follows");
        }
    }
    settle(leader);
    heard
}

#[test]
fn who_answers_is_heard_in_every_tick() {
    let mut leader = leader();
    for passed in 1..=10 * ELECTION_TICKS {
        assert_eq!(tick(&mut leader, &[2, 3], passed), [2, 3], "in tick {passed}");
        assert_eq!(heard(&leader), [2, 3], "after tick {passed}");
    }
}

#[test]
fn who_answers_no_longer_is_not_heard_after_two_election_timeouts() {
    let mut leader = leader();
    let ticks: Vec<usize> = (1..=3 * ELECTION_TICKS)
        .filter(|passed| tick(&mut leader, &[2], *passed) == [2, 3])
        .collect();
    let last = *ticks.last().expect("it was heard at first");
    assert_eq!(ticks, (1..=last).collect::<Vec<_>>(), "it does not come back");
    assert!((ELECTION_TICKS - 1..=2 * ELECTION_TICKS).contains(&last), "{last}");
    assert_eq!(heard(&leader), [2]);
}

#[test]
fn a_leader_of_a_new_term_has_heard_nobody() {
    let mut leader = leader();
    for passed in 1..=2 * ELECTION_TICKS {
        tick(&mut leader, &[2, 3], passed);
    }
    let later = Term::new(leader.term().get() + 1);
    let hello = says(2, &leader, heartbeat(0, 0));
    leader.step(GroupMessage { term: later, ..hello }).expect("a leader is believed");
    settle(&mut leader);
    assert!(!leader.is_leader() && heard(&leader).is_empty());
    leader.campaign();
    for is_pre in [true, false] {
        settle(&mut leader);
        let commit = LogPosition::default();
        let vote = says(2, &leader, Body::Vote { is_pre, is_granted: true, commit });
        let term = Term::new(later.get() + 1);
        leader.step(GroupMessage { term, ..vote }).expect("it votes");
    }
    settle(&mut leader);
    assert!(leader.is_leader() && heard(&leader).is_empty());
}
