//! The reads that wait for the disk, and their askers.
//!
//! # Invariants
//! - Each asker gets one answer.
//! - At most [`READS_OUT_MAX`] jobs are out; the others wait in the order in which they came.

use crate::{Locate, ReadJob, Search, Ticket, lookup::Question, proposed::ReplyTo};
use log::Extent;
use model::{ByteOffset, StreamKey};
use std::collections::{HashMap, VecDeque};

/// Read jobs that are handed out at once: a thread runs one, the others are its queue.
const READS_OUT_MAX: usize = 8;

/// The reads that wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    next: u64,
    waiting: HashMap<u64, PendingRead>,
    queue: VecDeque<ReadJob>,
    out_count: usize,
}

#[derive(Debug)]
pub(crate) struct PendingRead {
    /// The owner of the bytes.
    pub key: StreamKey,
    pub asker: Asker,
}

#[derive(Debug)]
pub(crate) enum Asker {
    /// A client's window.
    Window(Ticket),
    /// A position.
    Position { lookup: Lookup, reply_to: ReplyTo },
    /// A record.
    Record { search: Search, reply_to: ReplyTo },
}

/// A position that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup {
    pub what: Locate,
    /// Up to here the bytes of a [`Locate::IntactEnd`] are intact.
    pub intact: ByteOffset,
}

impl Lookup {
    pub(crate) fn new(what: Locate) -> Self {
        let intact = match what {
            Locate::IntactEnd { from, .. } => from,
            _ => ByteOffset::ZERO,
        };
        Self { what, intact }
    }
}

impl Reads {
    pub(crate) fn add(&mut self, pending: PendingRead, question: Question, extent: Extent) {
        self.next += 1;
        self.waiting.insert(self.next, pending);
        self.queue.push_back(ReadJob { id: self.next, question, extent });
    }

    /// Puts a job that came back unfinished behind the others.
    pub(crate) fn put_back(&mut self, job: ReadJob) {
        self.out_count -= 1;
        self.queue.push_back(job);
    }

    /// Takes the asker of a job that came back with its answer.
    pub(crate) fn finish(&mut self, id: u64) -> PendingRead {
        self.out_count -= 1;
        self.waiting.remove(&id).expect("a job has an asker")
    }

    pub(crate) fn poll(&mut self) -> Option<ReadJob> {
        if self.out_count >= READS_OUT_MAX {
            return None;
        }
        let job = self.queue.pop_front()?;
        self.out_count += 1;
        Some(job)
    }

    /// The receivers of the positions that are looked for.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = ReplyTo> {
        self.waiting.values().filter_map(|pending| match pending.asker {
            Asker::Position { reply_to, .. } | Asker::Record { reply_to, .. } => Some(reply_to),
            Asker::Window(_) => None,
        })
    }

    /// Asserts that each read that waits has a job.
    ///
    /// # Panics
    /// If one has none.
    pub(crate) fn check(&self) {
        assert!(self.out_count <= READS_OUT_MAX, "too many reads are out");
        let jobs = self.queue.len() + self.out_count;
        assert_eq!(self.waiting.len(), jobs, "a read waits for a job that nobody runs");
        let is_known = |job: &ReadJob| self.waiting.contains_key(&job.id);
        assert!(self.queue.iter().all(is_known), "a queued read has no asker");
    }
}
