//! Each rule left out, and what the harness sees of it.

use super::{Ending, Habits, first_bad, run};
use crate::configuration::{Change, Configuration, Part};
use crate::identity::{NodeNumber, ReplicaId};
use crate::message::{Body, GroupMessage, LogPosition, SnapshotPoint};
use crate::replica::{Note, Replica, Start, StepRefused};
use crate::rules::{Enforced, Rules};
use crate::terms::Terms;
use bytes::Bytes;
use model::{EntryIndex, Term};
use raft::RawNode;
use raft::eraftpb::ConfChangeTransition;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds in which a mutant must be found.
const SEEDS: u64 = 1_500;

fn found<R: Rules>(habits: Habits) -> Ending {
    first_bad::<R>(SEEDS, habits).expect("no seed finds this mutant").1
}

fn assert_broken<R: Rules>(habits: Habits) {
    let ending = found::<R>(habits);
    assert!(matches!(ending, Ending::Broken(_)), "it was found as {ending:?}");
}

#[test]
fn rule_1_a_removed_leader_steps_down() {
    struct Stays;
    impl Rules for Stays {
        fn after_change(_raw: &mut RawNode<Terms>) {}
    }
    let _ = found::<Stays>(Habits::default());
}

#[test]
#[should_panic(expected = "starts with a configuration")]
fn rule_2_a_replica_without_a_configuration_does_not_start() {
    let _ = start::<Enforced>(id(1), Configuration::default());
}

#[test]
fn rule_2_left_out_no_change_is_ever_possible() {
    struct Any;
    impl Rules for Any {
        fn check_start(_configuration: &Configuration) {}
    }
    let mut replica = start::<Any>(id(1), Configuration::default());
    replica.apply_change(&Change::Enter { revision: 0, parts: vec![(id(2), Part::Voter)] });
    assert_eq!(replica.refusals().impossible_changes, 1);
    assert_eq!(*replica.configuration(), Configuration::default());
}

#[test]
fn rule_3_a_snapshot_is_for_who_is_in_it() {
    struct Anything;
    impl Rules for Anything {
        fn may_offer(_point: &SnapshotPoint, _to: ReplicaId) -> bool {
            true
        }
    }
    assert_eq!(found::<Anything>(Habits::default()), Ending::Stuck);
}

#[test]
fn rule_4_a_silent_snapshot_has_failed() {
    struct Patient;
    impl Rules for Patient {
        fn is_overdue(_ticks: u32) -> bool {
            false
        }
    }
    assert_eq!(found::<Patient>(Habits::default()), Ending::Stuck);
}

#[test]
fn rule_5_an_installing_replica_hears_nothing() {
    struct Hears;
    impl Rules for Hears {
        fn hears_while_installing() -> bool {
            true
        }
    }
    assert!(installs_in_silence::<Enforced>());
    assert!(!installs_in_silence::<Hears>(), "the library campaigns while it installs");
}

/// Whether a replica gets over many ticks while it installs a snapshot, and continues behind it.
fn installs_in_silence<R: Rules>() -> bool {
    let configuration = Configuration::of(&[id(1), id(2), id(3)]);
    let mut replica = start::<R>(id(1), configuration.clone());
    let point = SnapshotPoint { last: LogPosition::new(9, 1), configuration };
    let body = Body::Snapshot(point.clone());
    let message = GroupMessage { from: id(2), to: id(1), term: Term::new(2), body };
    replica.step(message).expect("a follower takes a snapshot");
    let ready = replica.take_ready(1).expect("the snapshot is to be installed");
    assert_eq!(ready.install, Some(point));
    assert!(replica.is_installing());
    let ticks = catch_unwind(AssertUnwindSafe(|| {
        (0..30).for_each(|_| replica.tick());
        while replica.take_ready(1).is_some() {}
    }));
    if ticks.is_err() {
        return false;
    }
    replica.installed(1);
    let answers = replica.persisted(1);
    let appended = Body::Appended { index: EntryIndex::new(9), commit: EntryIndex::new(0) };
    !replica.is_installing() && answers.iter().any(|message| message.body == appended)
}

#[test]
fn rule_6_timeouts_come_from_the_seed() {
    struct Rolls;
    impl Rules for Rolls {
        fn before_tick(_raw: &mut RawNode<Terms>, _seed: u64) {}
    }
    let endings: BTreeSet<String> =
        (0..5).map(|_| format!("{:?}", run::<Rolls>(1, Habits::default()))).collect();
    assert!(endings.len() > 1, "the library's own dice give one history");
}

#[test]
fn rule_7_a_lost_disk_gets_a_new_id() {
    let habits = Habits { renews_ids: false, ..Habits::default() };
    let _ = found::<Enforced>(habits);
    assert_broken::<Enforced>(Habits { disks_lie: true, ..Habits::default() });
}

#[test]
fn rule_7_a_message_for_the_copy_before_is_refused() {
    let mut replica = start::<Enforced>(id(1).successor(), Configuration::of(&[id(1), id(2)]));
    let body = Body::Heartbeat { commit: EntryIndex::new(0), read: 0 };
    let message = GroupMessage { from: id(2), to: id(1), term: Term::new(4), body };
    assert_eq!(replica.step(message), Err(StepRefused::NotAddressed));
    assert_eq!(replica.term(), Term::new(1));
}

#[test]
fn a_second_leader_of_the_same_term_is_refused_and_not_believed() {
    let mut leader = start::<Enforced>(id(1), Configuration::of(&[id(1), id(2), id(3)]));
    elect(&mut leader);
    let configuration = leader.configuration().clone();
    let point = SnapshotPoint { last: LogPosition::new(9, 1), configuration };
    for body in [
        Body::Append {
            previous: LogPosition::default(),
            commit: EntryIndex::new(0),
            entries: Vec::new(),
        },
        Body::Heartbeat { commit: EntryIndex::new(0), read: 0 },
        Body::Snapshot(point),
    ] {
        let message = GroupMessage { from: id(2), to: id(1), term: leader.term(), body };
        let refused = leader.step(message);
        assert!(matches!(refused, Err(StepRefused::Contradiction(_))), "{refused:?}");
    }
    assert!(leader.is_leader());
}

#[test]
fn a_vote_that_comes_after_the_election_is_no_fault() {
    let mut leader = start::<Enforced>(id(1), Configuration::of(&[id(1), id(2), id(3)]));
    elect(&mut leader);
    leader.propose(100).expect("it leads");
    assert!(leader.take_ready(8).is_some(), "the proposal waits for its batch");
    let vote = Body::Vote { is_pre: false, is_granted: true, commit: LogPosition::default() };
    answer(&mut leader, id(3), vote);
    assert!(leader.is_leader());
}

#[test]
fn rule_8_each_read_has_its_own_number() {
    struct Repeats;
    impl Rules for Repeats {
        fn next_read(_last: u64) -> u64 {
            1
        }
    }
    assert_broken::<Repeats>(Habits::default());
}

#[test]
fn rule_8_a_read_waits_for_the_first_commit_of_the_term() {
    struct Eager;
    impl Rules for Eager {
        fn may_read(_raw: &RawNode<Terms>) -> bool {
            true
        }
    }
    let _ = found::<Eager>(Habits::default());
}

#[test]
fn rule_9_changes_are_joint_and_somebody_leaves() {
    struct Auto;
    impl Rules for Auto {
        fn transition() -> ConfChangeTransition {
            ConfChangeTransition::Auto
        }
    }
    let _ = found::<Auto>(Habits::default());
    let habits = Habits { leaves_joint: false, ..Habits::default() };
    assert_eq!(found::<Enforced>(habits), Ending::Stuck);
}

#[test]
fn rule_10_entries_weigh_what_they_weigh() {
    struct Weightless;
    impl Rules for Weightless {
        fn weight(_bytes: u32) -> Bytes {
            Bytes::new()
        }
    }
    const BOUND: u64 = (16 << 20) + (256 << 10);
    assert!(bytes_in_flight::<Enforced>() <= BOUND);
    assert!(bytes_in_flight::<Weightless>() > BOUND);
}

#[test]
fn rule_11_promises_are_durable_before_they_are_made() {
    struct Hasty;
    impl Rules for Hasty {
        fn may_go(_message: &GroupMessage, _durable_term: u64) -> bool {
            true
        }
    }
    assert_broken::<Hasty>(Habits::default());
}

#[test]
fn rule_11_a_leader_that_elected_itself_waits_for_its_own_term() {
    struct SelfAssured;
    impl Rules for SelfAssured {
        fn may_go(message: &GroupMessage, _durable_term: u64) -> bool {
            Enforced::may_go(message, u64::MAX)
        }
    }
    assert_broken::<SelfAssured>(Habits::default());
}

#[test]
fn rule_12_a_change_is_done_when_an_entry_behind_it_is_committed() {
    struct Forgetful;
    impl Rules for Forgetful {
        fn settles(_committed: u64, _change: u64) -> bool {
            true
        }
    }
    // The disk must be lost between a change and the next entry, and the leader must crash then.
    let stuck = first_bad::<Forgetful>(8 * SEEDS, Habits::default());
    assert_eq!(stuck.expect("no seed finds this mutant").1, Ending::Stuck);
}

pub(super) fn id(node: u16) -> ReplicaId {
    ReplicaId::new(NodeNumber::new(node), 1)
}

pub(super) fn start<R: Rules>(id: ReplicaId, configuration: Configuration) -> Replica<R> {
    Replica::new(Start {
        id,
        seed: 1,
        configuration,
        note: Note { term: Term::new(1), vote: None, commit: EntryIndex::new(0) },
        terms: Terms::new(LogPosition::default()),
        applied: EntryIndex::new(0),
        changes: BTreeMap::new(),
    })
}

/// Bytes that a leader sends to a follower that acknowledges nothing, while another one commits all.
fn bytes_in_flight<R: Rules>() -> u64 {
    const ENTRY_BYTES: u32 = 64 << 10;
    let mut leader = start::<R>(id(1), Configuration::of(&[id(1), id(2), id(3)]));
    elect(&mut leader);
    let mut sent = BTreeMap::new();
    let mut batch = 100;
    for _ in 0..1_000 {
        for _ in 0..8 {
            leader.propose(ENTRY_BYTES).expect("the other follower commits all");
        }
        batch += 1;
        let mut last = leader.last_index();
        while let Some(ready) = leader.take_ready(batch) {
            for message in &ready.messages {
                if let (Body::Append { entries, .. }, true) = (&message.body, message.to == id(3)) {
                    sent.extend(entries.iter().map(|entry| (entry.at.index, ENTRY_BYTES)));
                }
            }
            if let Some(commit) = ready.committed {
                leader.applied(commit.upto());
                last = last.max(commit.upto());
            }
        }
        let _ = leader.persisted(batch);
        answer(&mut leader, id(2), Body::Appended { index: last, commit: EntryIndex::new(0) });
        while let Some(ready) = leader.take_ready(batch + 1) {
            if let Some(commit) = ready.committed {
                leader.applied(commit.upto());
            }
        }
        let _ = leader.persisted(batch + 1);
    }
    sent.values().map(|bytes| u64::from(*bytes)).sum()
}

fn answer<R: Rules>(leader: &mut Replica<R>, from: ReplicaId, body: Body) {
    let message = GroupMessage { from, to: leader.id(), term: leader.term(), body };
    leader.step(message).expect("an answer is taken");
}

/// What a replica says to another one in its term.
pub(super) fn says(from: u16, replica: &Replica, body: Body) -> GroupMessage {
    GroupMessage { from: id(from), to: replica.id(), term: replica.term(), body }
}

/// Takes all that is ready, as after a sync of it.
pub(super) fn settle(replica: &mut Replica) -> Vec<GroupMessage> {
    let mut messages = Vec::new();
    for _ in 0..2 {
        while let Some(ready) = replica.take_ready(9) {
            messages.extend(ready.messages);
            if let Some(commit) = ready.committed {
                replica.applied(commit.upto());
            }
        }
        messages.extend(replica.persisted(9));
    }
    messages
}

/// Makes it the leader of term 2, with two followers that are up to date.
pub(super) fn elect<R: Rules>(replica: &mut Replica<R>) {
    replica.campaign();
    for batch in 1..=6 {
        while replica.take_ready(batch).is_some() {}
        let _ = replica.persisted(batch);
        let term = if batch == 1 { Term::new(2) } else { replica.term() };
        for from in [id(2), id(3)] {
            let body = match batch {
                1 | 2 => Body::Vote {
                    is_pre: batch == 1,
                    is_granted: true,
                    commit: LogPosition::default(),
                },
                _ => Body::Appended { index: replica.last_index(), commit: EntryIndex::new(0) },
            };
            let _ = replica.step(GroupMessage { from, to: replica.id(), term, body });
        }
    }
    while let Some(ready) = replica.take_ready(7) {
        if let Some(commit) = ready.committed {
            replica.applied(commit.upto());
        }
    }
    let _ = replica.persisted(7);
    assert!(replica.is_leader(), "it was elected");
}
