//! The queue of writes that wait for the log to have room, within bounds.

use crate::{Request, Ticket};
use log::Purpose;
use model::{Monotonic, StreamPath};
use std::collections::VecDeque;

/// Bytes of data that may wait in one shard.
const DEFERRED_BYTES_MAX: usize = 64 << 20;

/// Writes that may wait in one shard.
const DEFERRED_COUNT_MAX: usize = 16 << 10;

/// Writes that wait, in the order in which they came. Deletes come before the data of other streams.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    writes: VecDeque<Deferred>,
    bytes: usize,
}

/// A write that waits.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub ticket: Ticket,
    pub request: Request,
    pub data: Vec<u8>,
    pub since: Monotonic,
}

impl WriteQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether a write with so many bytes of data is one too many. An empty queue takes any.
    pub(crate) fn is_full(&self, data_bytes: usize) -> bool {
        let is_beyond = self.bytes + data_bytes > DEFERRED_BYTES_MAX;
        !self.is_empty() && (is_beyond || self.writes.len() >= DEFERRED_COUNT_MAX)
    }

    /// Whether a request need not wait for those that do: it brings no data, and none of them is for its stream.
    #[cold]
    pub(crate) fn lets_pass(&self, request: &Request) -> bool {
        let is_same = |write: &Deferred| write.request.path() == request.path();
        request.purpose() == Purpose::Upkeep && !self.writes.iter().any(is_same)
    }

    pub(crate) fn push(&mut self, write: Deferred) {
        self.bytes += write.data.len();
        let is_upkeep = |write: &&Deferred| write.request.purpose() == Purpose::Upkeep;
        let place = match self.lets_pass(&write.request) {
            true => self.writes.iter().take_while(is_upkeep).count(),
            false => self.writes.len(),
        };
        self.writes.insert(place, write);
    }

    /// The first one waits on.
    pub(crate) fn put_back(&mut self, first: Deferred) {
        self.bytes += first.data.len();
        self.writes.push_front(first);
    }

    /// Adds writes to a path that came before all of that path that wait. Those that are too many come back.
    #[cold]
    pub(crate) fn put_before(&mut self, path: &StreamPath, writes: Vec<Deferred>) -> Vec<Deferred> {
        let is_it = |write: &Deferred| write.request.path() == Some(path);
        let mut place = self.writes.iter().position(is_it).unwrap_or(self.writes.len());
        let mut refused = Vec::new();
        for write in writes {
            if self.is_full(write.data.len()) || !refused.is_empty() {
                refused.push(write);
                continue;
            }
            self.bytes += write.data.len();
            self.writes.insert(place, write);
            place += 1;
        }
        refused
    }

    pub(crate) fn pop(&mut self) -> Option<Deferred> {
        self.take_first(|_| true)
    }

    /// Takes the first write of which this is true. Writes before it may be younger: deletes come first.
    pub(crate) fn take_first(&mut self, is_it: impl Fn(&Deferred) -> bool) -> Option<Deferred> {
        let place = self.writes.iter().position(is_it)?;
        let deferred = self.writes.remove(place)?;
        self.bytes -= deferred.data.len();
        Some(deferred)
    }

    /// Asserts that the bytes are those of the writes, and within bounds.
    ///
    /// # Panics
    /// If they are not.
    pub(crate) fn check(&self) {
        let bytes: usize = self.writes.iter().map(|write| write.data.len()).sum();
        assert_eq!(bytes, self.bytes, "the deferred bytes are miscounted");
        assert!(self.writes.len() <= DEFERRED_COUNT_MAX, "too many writes are deferred");
    }
}

/// What tests of the check break.
#[cfg(test)]
impl WriteQueue {
    pub(crate) fn miscount(&mut self) {
        self.bytes += 1;
    }
}
