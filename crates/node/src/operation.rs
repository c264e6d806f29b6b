//! The operations of a shard, and those that wait for an answer.

use crate::{
    Reply, ShardAnswer, Ticket,
    expiry::ExpirySteps,
    fork::ForkSteps,
    read::ReadSteps,
    resolve::ResolveSteps,
    step::{Step, View},
    sweep::SweepSteps,
    trim::TrimSteps,
    unpin::UnpinSteps,
};
use std::collections::{HashMap, HashSet};
use stream::Outcome;

/// A request that takes more than one turn, or something that the shard does by itself.
#[derive(Debug)]
pub(crate) enum Operation {
    Read(Box<ReadSteps>),
    /// An answer to a write that changes nothing. It waits until the use of the stream is logged.
    Answer(Ticket, Outcome),
    Expiry(ExpirySteps),
    Fork(Box<ForkSteps>),
    Unpin(UnpinSteps),
    Sweep(SweepSteps),
    Trim(Box<TrimSteps>),
    Resolve(Box<ResolveSteps>),
}

impl Operation {
    /// Continues with the answer to the step before.
    pub(crate) fn step(&mut self, view: &mut View<'_>, answer: ShardAnswer) -> Step {
        match self {
            Self::Read(read) => read.step(view, answer),
            // A use that could not be logged (the disk is full, or has failed) is answered too.
            Self::Answer(ticket, outcome) => Step::Reply(*ticket, Reply::Outcome(outcome.clone())),
            Self::Expiry(expiry) => expiry.step(view, answer),
            Self::Fork(fork) => fork.step(view, answer),
            Self::Unpin(unpin) => unpin.step(view, &answer),
            Self::Sweep(sweep) => sweep.step(&answer),
            Self::Trim(trim) => trim.step(view, answer),
            Self::Resolve(resolve) => resolve.step(view, answer),
        }
    }
}

/// The operations that wait for an answer, by number.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    last: u64,
    waiting: HashMap<u64, Operation>,
}

impl Operations {
    /// The number of an operation that may have to wait.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Keeps an operation until its answer comes.
    pub(crate) fn insert(&mut self, number: u64, operation: Operation) {
        self.waiting.insert(number, operation);
    }

    /// Those that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Operation> {
        self.waiting.values()
    }

    /// Takes the operation whose answer has come.
    pub(crate) fn take(&mut self, number: u64) -> Operation {
        self.waiting.remove(&number).expect("an answer belongs to an operation that waits")
    }

    /// Asserts that each answer on its way in this shard has an operation that waits for it, and for no
    /// other.
    ///
    /// # Panics
    /// If one has not.
    pub(crate) fn check(&self, awaited: impl Iterator<Item = u64>) {
        let mut seen = HashSet::new();
        for number in awaited {
            assert!(self.waiting.contains_key(&number), "nobody waits for answer {number}");
            assert!(seen.insert(number), "operation {number} waits for two answers");
        }
        let is_past = |number: &u64| *number <= self.last;
        assert!(self.waiting.keys().all(is_past), "a number is used before it is given");
    }
}
