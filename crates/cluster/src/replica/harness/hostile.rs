//! A replica among peers that say anything: numbers near its own, in any order, from any sender.
//!
//! The node around it is the harness's: it appends, syncs late, crashes and starts again from its disk. Nothing is
//! checked but what must hold whatever peers say: the process lives, what is applied is durable here, and
//! what is applied is never truncated. So a panic of the library, of the replica or of the node is a defect.

use super::disk::Disk;
use super::mutants::id;
use super::node::Node;
use super::world::Dice;
use crate::configuration::{Change, Configuration, Part};
use crate::entry_bytes::{KIND_CHANGE, entry_of_command};
use crate::identity::{NodeNumber, ReplicaId};
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
use crate::replica::{Refusals, Replica};
use crate::rules::{Enforced, Rules};
use model::{EntryIndex, Term, Timestamp};

/// Steps of one seed.
const STEPS: u32 = 400;

/// Kind of the entries of clients.
const KIND_CLIENT: u8 = 2;

struct Hostile<R: Rules> {
    dice: Dice,
    node: Node<R>,
    refusals: Refusals,
    led: u64,
    committed: u64,
}

fn configurations() -> [Configuration; 5] {
    let of = |voters: &[u16]| {
        Configuration::of(&voters.iter().map(|node| id(*node)).collect::<Vec<_>>())
    };
    [
        of(&[1]),
        of(&[1, 2, 3]),
        Configuration { learners: vec![id(2), id(3)], ..of(&[1]) },
        Configuration { outgoing: vec![id(1), id(2)], ..of(&[1, 3, 4]) },
        Configuration { learners: vec![id(1)], ..of(&[2, 3]) },
    ]
}

impl<R: Rules> Hostile<R> {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let configuration = configurations()[dice.below(5) as usize].clone();
        let last = LogPosition::new(3, 1);
        let mut disk = Disk::at(SnapshotPoint { last, configuration }, 1);
        for index in 4..4 + dice.below(4) {
            let at = LogPosition::new(index, 1);
            disk.push(at, entry_of_command(at, Timestamp::new(1), KIND_CLIENT, b"x"));
        }
        let mut node = Node::new(id(1), Some(disk));
        node.start();
        Self { dice, node, refusals: Refusals::default(), led: 0, committed: 0 }
    }

    fn replica(&mut self) -> &mut Replica<R> {
        self.node.replica.as_mut().expect("it runs")
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=9 => self.replica().tick(),
            10..=11 => self.replica().campaign(),
            12..=19 => self.propose(),
            20..=22 => self.propose_change(),
            23..=24 => _ = self.replica().confirm_read(),
            25..=26 => self.compact(),
            27..=28 => self.restart(),
            29..=34 => self.local_calls(),
            35..=54 => {
                let count = self.dice.below(3) as usize;
                _ = self.node.persist(count);
            }
            _ => self.receive(),
        }
        // Several may happen in one turn.
        if self.dice.percent(60) {
            let turn = self.node.turn();
            self.committed += turn.applied.len() as u64;
        }
        self.led += u64::from(self.replica().is_leader());
    }

    fn propose(&mut self) {
        let Ok(at) = self.replica().propose(56 + 1) else { return };
        let bytes = entry_of_command(at, Timestamp::new(1), KIND_CLIENT, b"p");
        self.node.disk.push(at, bytes);
    }

    fn propose_change(&mut self) {
        let change = self.change();
        let Ok(at) = self.replica().propose_change(change.clone()) else { return };
        let bytes = entry_of_command(at, Timestamp::new(1), KIND_CHANGE, &change.encode());
        self.node.disk.push(at, bytes);
    }

    fn local_calls(&mut self) {
        let to = self.peer();
        let node = to.node();
        let kind = self.dice.below(4);
        let replica = self.replica();
        match kind {
            0 => replica.hand_over(to),
            1 => replica.link_lost(node),
            2 => replica.snapshot_failed(to),
            _ => {
                let configuration = replica.configuration().clone();
                let index = EntryIndex::new(self.node.applied);
                let replica = self.replica();
                let Some(term) = replica.term_of(index) else { return };
                replica.offer_snapshot(
                    to,
                    SnapshotPoint { last: LogPosition { index, term }, configuration },
                );
            }
        }
    }

    fn compact(&mut self) {
        _ = self.node.turn();
        let (applied, state) = (self.node.applied, self.node.state);
        let is_level = self.node.waiting() == 0 && applied > self.node.disk.base();
        if !is_level || self.replica().is_installing() {
            return;
        }
        let configuration = self.replica().configuration().clone();
        self.replica().compact(EntryIndex::new(applied));
        self.node.disk.compact(applied, configuration, state);
        self.node.durable = Some(self.node.disk.clone());
    }

    fn restart(&mut self) {
        let (sum, new) = (self.refusals, self.replica().refusals());
        self.refusals = Refusals {
            not_addressed: sum.not_addressed + new.not_addressed,
            installing: sum.installing + new.installing,
            malformed: sum.malformed + new.malformed,
            contradictions: sum.contradictions + new.contradictions,
            impossible_changes: sum.impossible_changes + new.impossible_changes,
        };
        self.node.crash();
        self.node.start();
    }

    fn receive(&mut self) {
        let message = self.message();
        let is_installing = self.replica().is_installing();
        if let (Body::Snapshot(point), false) = (&message.body, is_installing) {
            // Its contents lie there before it is sent.
            self.node.staged = Some((point.clone(), 7));
        }
        if self.replica().answer_heartbeat(&message).is_none() {
            let _ = self.replica().step(message);
        }
    }

    fn peer(&mut self) -> ReplicaId {
        let node = 1 + self.dice.below(5) as u16;
        let incarnation = 1 + u64::from(self.dice.percent(3));
        ReplicaId::new(NodeNumber::new(node), incarnation)
    }

    /// A number near this one, rarely far away.
    fn near(&mut self, number: u64) -> u64 {
        match self.dice.below(200) {
            0 => u64::MAX - self.dice.below(3),
            1 => 1 << (40 + self.dice.below(24)),
            2..=9 => self.dice.below(3),
            10..=119 => number,
            _ => (number + self.dice.below(6)).saturating_sub(3),
        }
    }

    fn index(&mut self) -> u64 {
        let (last, committed) = (self.replica().last_index(), self.replica().committed());
        let number = if self.dice.percent(60) { last } else { committed };
        self.near(number.get())
    }

    /// A place of the log, or near one.
    fn place(&mut self) -> LogPosition {
        let index = self.index();
        let known = self.replica().term_of(EntryIndex::new(index));
        match known {
            Some(term) if self.dice.percent(85) => LogPosition::new(index, term.get()),
            _ => {
                let term = self.replica().term().get();
                LogPosition::new(index, self.near(term))
            }
        }
    }

    fn change(&mut self) -> Change {
        let parts = (0..=self.dice.below(2)).map(|_| {
            let part = [Part::Voter, Part::Learner, Part::Gone][self.dice.below(3) as usize];
            (self.peer(), part)
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable_by_key(|(id, _)| *id);
        parts.dedup_by_key(|(id, _)| *id);
        match self.dice.percent(30) {
            true => Change::Leave,
            false => Change::Enter { revision: self.dice.below(4), parts },
        }
    }

    fn configuration(&mut self) -> Configuration {
        let own = self.replica().configuration().clone();
        let any = configurations()[self.dice.below(5) as usize].clone();
        match self.dice.below(10) {
            0 => Configuration::default(),
            1 => Configuration { learners: own.voters.clone(), ..own },
            2 => Configuration { learners_next: vec![id(4)], ..any },
            3..=6 => own,
            _ => any,
        }
    }

    fn entries(&mut self, previous: LogPosition, term: u64) -> Vec<SentEntry> {
        let mut last = previous;
        let mut entries = Vec::new();
        for _ in 0..self.dice.below(4) {
            let of = if self.dice.percent(70) { last.term.get().max(1) } else { term };
            let index = last.index.get().wrapping_add(1 + u64::from(self.dice.percent(2)));
            last = LogPosition::new(index, of);
            let is_change = self.dice.percent(25);
            let (kind, command) = if is_change {
                (KIND_CHANGE, self.change().encode())
            } else {
                (KIND_CLIENT, vec![b'y'; self.dice.below(9) as usize])
            };
            let bytes = entry_of_command(last, Timestamp::new(1), kind, &command);
            entries.push(SentEntry { at: last, is_change, bytes: EntryBytes::Sent(bytes) });
        }
        entries
    }

    fn message(&mut self) -> GroupMessage {
        let own = self.replica().term().get();
        let term = self.near(own);
        let to = if self.dice.percent(99) { id(1) } else { self.peer() };
        let (index, commit) = (EntryIndex::new(self.index()), EntryIndex::new(self.index()));
        let (last, place) = (self.place(), self.place());
        let (is_pre, is_so, read) = (self.dice.percent(50), self.dice.percent(70), self.near(2));
        let body = match self.dice.below(14) {
            0 => Body::Ask { is_pre, is_transfer: is_so, last, commit: place },
            1..=3 => Body::Vote { is_pre, is_granted: is_so, commit: place },
            4..=5 => Body::Append { previous: last, commit, entries: self.entries(last, term) },
            6 => Body::Appended { index, commit },
            7 => Body::Rejected { index, hint: place, commit },
            8 => Body::Heartbeat { commit, read },
            9 => Body::Alive { commit, read },
            10 if is_so => {
                Body::Snapshot(SnapshotPoint { last, configuration: self.configuration() })
            }
            11 => Body::Empty,
            12 => Body::Committed { commit },
            _ => Body::Campaign,
        };
        GroupMessage { from: self.peer(), to, term: Term::new(term), body }
    }
}

/// Runs a seed, and returns the step that a panic ended.
fn run<R: Rules>(seed: u64) -> (Hostile<R>, Option<u32>) {
    let mut hostile = Hostile::new(seed);
    let outlives = |hostile: &mut Hostile<R>| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hostile.step())).is_ok()
    };
    let ended = (0..STEPS).find(|_| !outlives(&mut hostile));
    (hostile, ended)
}

fn outlives(seeds: std::ops::Range<u64>) {
    let (mut led, mut committed, mut refusals) = (0, 0, [0; 4]);
    for seed in seeds {
        let (mut hostile, ended) = run::<Enforced>(seed);
        assert_eq!(ended, None, "seed {seed}");
        hostile.restart();
        led += hostile.led;
        committed += hostile.committed;
        let Refusals { malformed, contradictions, impossible_changes, installing, .. } =
            hostile.refusals;
        let counts = [malformed, contradictions, impossible_changes, installing];
        refusals.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    println!("led {led} steps, committed {committed}, refused {refusals:?}");
    assert!(led > 0 && committed > 0, "the peers are too hostile to show anything");
    assert!(refusals.iter().all(|count| *count > 0), "nothing is refused: {refusals:?}");
}

#[test]
fn a_replica_outlives_whatever_its_peers_say() {
    outlives(0..2_000);
}

#[test]
#[ignore = "some minutes"]
fn a_replica_outlives_whatever_its_peers_say_for_long() {
    outlives(0..100_000);
}

#[test]
fn rule_13_what_was_replaced_on_its_way_is_not_reported_as_durable() {
    struct Hasty;
    impl Rules for Hasty {
        fn may_tell(_is_replaced: bool) -> bool {
            true
        }
    }
    let is_found = (0..4_000).any(|seed| run::<Hasty>(seed).1.is_some());
    assert!(is_found, "no seed finds this mutant");
}
