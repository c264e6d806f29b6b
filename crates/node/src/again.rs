//! Reads that begin again, since a trim has overtaken them.
//!
//! # Why
//! A read may look for its place in jobs, and the stream may be trimmed meanwhile. A reader who has named the place, by
//! offset or by number, learns that it is gone. Another one wants the first byte, the last records or what came since a
//! time. Nothing that it has named is gone: its read begins again, at the latest head.
//!
//! # Invariants
//! - Between two beginnings the head moves.

use crate::{Failure, ReadRequest, Reply, step::Step};
use model::ByteOffset;

/// What is needed to begin a read again.
#[derive(Debug)]
pub(crate) struct Again {
    read: ReadRequest,
    /// Where the stream began as far as it is known.
    head: ByteOffset,
}

impl Again {
    /// Of a read that may take jobs; `None` if it has named its place itself.
    pub(crate) fn of(read: &ReadRequest) -> Option<Box<Self>> {
        let head = ByteOffset::ZERO;
        read.from.follows_head().then(|| Box::new(Self { read: read.clone(), head }))
    }

    /// The read, to be begun once more instead of this step.
    pub(crate) fn instead_of(&mut self, step: &Step) -> Option<&ReadRequest> {
        let Step::Reply(_, Reply::Failed(Failure::Trimmed { head })) = step else { return None };
        let has_moved = *head > self.head;
        self.head = *head;
        has_moved.then_some(&self.read)
    }
}
