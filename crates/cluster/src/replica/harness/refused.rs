//! One row for each message that a correct peer never sends.

use super::mutants::{elect, id, start};
use crate::configuration::{Change, Configuration};
use crate::entry_bytes::{KIND_CHANGE, entry_of_command};
use crate::identity::ReplicaId;
use crate::library;
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
use crate::replica::{Note, Replica, Start, StepRefused};
use crate::rules::Enforced;
use crate::terms::Terms;
use bytes::Bytes;
use model::{EntryIndex, Term, Timestamp};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// In which state the replica is that gets the message.
#[derive(Clone, Copy)]
enum State {
    /// Follower of replica 2 in term 2; entries 2 and 3 of term 1 behind a snapshot, 2 committed.
    Follower,
    /// Leader of term 2, with one entry.
    Leader,
    /// It will ask for votes of term 2 when its own is durable.
    Candidate,
    /// The only voter, and its last entry is not durable.
    Alone,
}

struct Row {
    state: State,
    message: GroupMessage,
    refusal: StepRefused,
    /// Without the check the library ends the process.
    ends: bool,
}

fn three() -> Configuration {
    Configuration::of(&[id(1), id(2), id(3)])
}

fn with_log(configuration: Configuration) -> Replica {
    let mut terms = Terms::new(LogPosition::new(1, 1));
    terms.push(LogPosition::new(2, 1), 60, false);
    terms.push(LogPosition::new(3, 1), 60, false);
    Replica::new(Start {
        id: id(1),
        seed: 1,
        configuration,
        note: Note { term: Term::new(1), vote: None, commit: EntryIndex::new(2) },
        terms,
        applied: EntryIndex::new(2),
        changes: BTreeMap::new(),
    })
}

fn replica(state: State) -> Replica {
    match state {
        State::Follower => {
            let mut replica = with_log(three());
            let hello = Body::Heartbeat { commit: EntryIndex::new(2), read: 0 };
            replica.step(from(2, 2, hello)).expect("a leader is believed");
            settle(&mut replica);
            replica
        }
        State::Leader => {
            let mut replica = start::<Enforced>(id(1), three());
            elect(&mut replica);
            replica
        }
        State::Candidate => {
            let mut replica = with_log(three());
            replica.step(from(2, 1, Body::Campaign)).expect("a transfer is believed");
            assert!(replica.take_ready(1).is_some_and(|ready| ready.messages.is_empty()));
            replica
        }
        State::Alone => {
            let mut replica = with_log(Configuration::of(&[id(1)]));
            let body = append((3, 1), 2, vec![entry((4, 2), 2, b"x")]);
            replica.step(from(2, 2, body)).expect("it follows");
            replica
        }
    }
}

fn settle(replica: &mut Replica) {
    while replica.take_ready(1).is_some() {}
    let _ = replica.persisted(1);
}

fn from(node: u16, term: u64, body: Body) -> GroupMessage {
    GroupMessage { from: id(node), to: id(1), term: Term::new(term), body }
}

fn place(at: (u64, u64)) -> LogPosition {
    LogPosition::new(at.0, at.1)
}

fn append(previous: (u64, u64), commit: u64, entries: Vec<SentEntry>) -> Body {
    Body::Append { previous: place(previous), commit: EntryIndex::new(commit), entries }
}

fn entry(at: (u64, u64), kind: u8, command: &[u8]) -> SentEntry {
    let bytes = entry_of_command(place(at), Timestamp::new(1), kind, command);
    SentEntry { at: place(at), is_change: kind == KIND_CHANGE, bytes: EntryBytes::Sent(bytes) }
}

fn snapshot(last: (u64, u64), configuration: Configuration) -> Body {
    Body::Snapshot(SnapshotPoint { last: place(last), configuration })
}

fn flipped(entry: SentEntry) -> SentEntry {
    let EntryBytes::Sent(bytes) = entry.bytes else { panic!("it has bytes") };
    let mut bytes = bytes.to_vec();
    *bytes.last_mut().expect("a command") ^= 1;
    SentEntry { bytes: EntryBytes::Sent(bytes.into()), ..entry }
}

fn short(at: (u64, u64)) -> SentEntry {
    SentEntry { bytes: EntryBytes::Sent(Bytes::from_static(b"no header")), ..entry(at, 2, b"") }
}

/// Messages that make no sense to anybody.
fn malformed() -> Vec<Row> {
    let row = |term, body, why, ends| Row {
        state: State::Follower,
        message: from(2, term, body),
        refusal: StepRefused::Malformed(why),
        ends,
    };
    let heartbeat = |commit| Body::Heartbeat { commit: EntryIndex::new(commit), read: 0 };
    let of = |entries| append((3, 1), 2, entries);
    let no_place = "entries follow a place that no log has";
    let no_order = "the entries of a message do not follow each other";
    let no_snapshot = "a snapshot is of a place that no log has";
    let impossible = Configuration { learners: vec![id(1)], ..three() };
    let here = SentEntry { bytes: EntryBytes::Here(60), ..entry((4, 2), 2, b"x") };
    let mistaken = SentEntry { is_change: true, ..entry((4, 2), 2, b"x") };
    let leave = Change::Leave.encode();
    let larger = "a number is larger than any log is long";
    vec![
        row(0, heartbeat(2), "a message has no term", false),
        row(u64::MAX, heartbeat(2), larger, false),
        row(
            2,
            Body::Appended { index: EntryIndex::new(u64::MAX), commit: EntryIndex::new(0) },
            larger,
            false,
        ),
        row(2, append((9, 0), 9, Vec::new()), no_place, true),
        row(2, append((3, 9), 2, Vec::new()), no_place, false),
        row(2, of(vec![entry((5, 2), 2, b"x")]), no_order, false),
        row(2, of(vec![entry((4, 9), 2, b"x")]), no_order, false),
        row(2, of(vec![here]), "an entry came without its bytes", true),
        row(2, of(vec![short((4, 2))]), "an entry's header makes no sense", false),
        row(2, of(vec![mistaken]), "an entry is not what its message says", false),
        row(
            2,
            of(vec![flipped(entry((4, 2), KIND_CHANGE, &leave))]),
            "a change was damaged on its way",
            false,
        ),
        row(2, of(vec![entry((4, 2), KIND_CHANGE, b"?")]), "a change makes no sense", false),
        row(2, snapshot((9, 0), three()), no_snapshot, true),
        row(2, snapshot((9, 3), three()), no_snapshot, false),
        row(2, snapshot((9, 2), impossible), "a snapshot has an impossible configuration", true),
    ]
}

/// Messages that contradict what the replica knows.
fn contradictions() -> Vec<Row> {
    let row = |state, message, why, ends| Row {
        state,
        message,
        refusal: StepRefused::Contradiction(why),
        ends,
    };
    let heartbeat = |commit| Body::Heartbeat { commit: EntryIndex::new(commit), read: 0 };
    let vote = Body::Vote { is_pre: false, is_granted: true, commit: LogPosition::default() };
    let two = "two replicas lead the same term";
    let another = "a leader has another entry where one is committed";
    let unsent = Body::Appended { index: EntryIndex::new(9), commit: EntryIndex::new(0) };
    vec![
        row(State::Leader, from(2, 2, heartbeat(0)), two, false),
        row(State::Follower, from(3, 2, heartbeat(2)), two, false),
        row(State::Follower, from(3, 2, append((3, 1), 2, Vec::new())), two, false),
        row(State::Follower, from(2, 3, append((2, 3), 2, Vec::new())), another, false),
        row(State::Follower, from(2, 3, snapshot((2, 3), three())), another, false),
        row(
            State::Follower,
            from(2, 2, heartbeat(9)),
            "the leader knows of entries that this replica had and has not",
            true,
        ),
        row(State::Leader, from(2, 2, unsent), "a follower acknowledges what was not sent", false),
        row(
            State::Candidate,
            from(2, 2, vote),
            "a vote came before the log of the replica that asks is durable",
            false,
        ),
        row(State::Alone, from(2, 2, Body::Campaign), "the only voter was asked to campaign", true),
    ]
}

#[test]
fn what_no_correct_peer_sends_is_refused_in_words_and_counted() {
    for Row { state, message, refusal, ends } in malformed().into_iter().chain(contradictions()) {
        let mut hearing = replica(state);
        let before = (hearing.term(), hearing.committed(), hearing.last_index());
        let (is_leader, counts) = (hearing.is_leader(), hearing.refusals());
        assert_eq!(hearing.step(message.clone()), Err(refusal), "{message:?}");
        let after = (hearing.term(), hearing.committed(), hearing.last_index());
        assert_eq!((before, is_leader), (after, hearing.is_leader()), "{message:?}");
        let counted = hearing.refusals();
        let (malformed, contradictions) =
            (counted.malformed - counts.malformed, counted.contradictions - counts.contradictions);
        let is_malformed = matches!(refusal, StepRefused::Malformed(_));
        assert_eq!((malformed == 1, contradictions == 1), (is_malformed, !is_malformed));
        // The row is needed: without the check the library ends the process, or not.
        let mut bare = replica(state);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _ = bare.raw.step(library::to_library(message.clone()));
        }));
        assert_eq!(outcome.is_err(), ends, "{message:?}");
    }
}

#[test]
fn messages_that_are_only_late_are_no_contradictions() {
    let mut replica = replica(State::Follower);
    let late = [
        append((2, 1), 9, Vec::new()),
        append((3, 1), 9, vec![entry((4, 1), 2, b"x")]),
        Body::Heartbeat { commit: EntryIndex::new(9), read: 0 },
        Body::Campaign,
        Body::Vote { is_pre: false, is_granted: true, commit: LogPosition::default() },
    ];
    for body in late {
        assert_eq!(replica.step(from(3, 1, body)), Ok(()));
    }
    assert_eq!(replica.refusals(), crate::Refusals::default());
    assert_eq!((replica.term(), replica.leader()), (Term::new(2), Some(id(2))));
    assert_eq!(replica.last_index(), EntryIndex::new(3));
}

#[test]
fn a_committed_change_that_is_impossible_changes_nothing_and_is_counted() {
    let mut replica = replica(State::Follower);
    let leave = entry((4, 2), KIND_CHANGE, &Change::Leave.encode());
    replica.step(from(2, 2, append((3, 1), 4, vec![leave]))).expect("it cannot be known yet");
    settle(&mut replica);
    let ready = replica.take_ready(2).expect("it is durable");
    assert_eq!(ready.committed.map(|commit| commit.upto()), Some(EntryIndex::new(4)));
    assert_eq!(replica.configuration(), &three());
    assert_eq!(replica.refusals().impossible_changes, 1);
}

#[test]
fn an_entry_that_comes_again_as_another_change_stays_what_it_was() {
    let mut replica = replica(State::Follower);
    let learner = |node| {
        let change = Change::Enter { revision: 0, parts: vec![(id(node), crate::Part::Learner)] };
        append((3, 1), 2, vec![entry((4, 2), KIND_CHANGE, &change.encode())])
    };
    replica.step(from(2, 2, learner(4))).expect("a change");
    replica.step(from(2, 2, learner(5))).expect("the same entry as far as the library knows");
    settle(&mut replica);
    let committed = Body::Heartbeat { commit: EntryIndex::new(4), read: 0 };
    replica.step(from(2, 2, committed)).expect("it is there");
    settle(&mut replica);
    assert_eq!(replica.configuration().learners, [id(4)]);
}

#[test]
fn a_change_is_refused_when_too_much_is_uncommitted() {
    let mut leader = replica(State::Leader);
    // The first may be of any size.
    leader.propose(16 << 20).expect("nothing is under way");
    let change = Change::Enter { revision: 0, parts: vec![(id(4), crate::Part::Learner)] };
    let too_much = crate::ChangeRefused::NotProposed(crate::NotProposed::TooMuch);
    assert_eq!(leader.propose_change(change), Err(too_much));
}

#[test]
fn a_follower_hands_nothing_over() {
    let mut replica = replica(State::Follower);
    replica.hand_over(id(3));
    assert!(replica.take_ready(2).is_none());
}

#[test]
fn every_possible_configuration_can_be_installed() {
    let ids: Vec<ReplicaId> = (1..=4).map(id).collect();
    let mut tried = 0;
    for choice in 0..6_u32.pow(4) {
        let mut configuration = Configuration::default();
        let mut rest = choice;
        for id in &ids {
            let Configuration { voters, learners, outgoing, learners_next, .. } =
                &mut configuration;
            let lists: &mut [&mut Vec<ReplicaId>] = match rest % 6 {
                0 => &mut [],
                1 => &mut [voters],
                2 => &mut [learners],
                3 => &mut [outgoing],
                4 => &mut [voters, outgoing],
                _ => &mut [outgoing, learners_next],
            };
            lists.iter_mut().for_each(|list| list.push(*id));
            rest /= 6;
        }
        let body = snapshot((9, 2), configuration.clone());
        let mut replica = replica(State::Follower);
        if replica.step(from(2, 2, body)).is_ok() && configuration.contains(id(1)) {
            let ready = replica.take_ready(2).expect("a snapshot");
            assert_eq!(ready.install.expect("to install").configuration, configuration);
            replica.installed(2);
            let _ = replica.persisted(2);
            while replica.take_ready(3).is_some() {}
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried} are possible");
}
