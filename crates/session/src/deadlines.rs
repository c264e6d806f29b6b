//! When connections must be looked at.

use crate::slab::ConnId;
use model::Monotonic;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Moments at which a connection must be looked at; it may be gone or busy with something else by
/// then.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    due: BinaryHeap<Reverse<(Monotonic, ConnId)>>,
    pub next_sweep: Monotonic,
    /// The connection that the sweep under way looks at next.
    pub sweep_slot: Option<usize>,
    /// The connection that is looked at next because the server stops.
    pub stop_slot: Option<usize>,
    /// The connection that new rules judge next.
    pub judge_slot: Option<usize>,
    /// A turn had no room for all that was due.
    pub is_behind: bool,
}

impl Deadlines {
    pub(crate) fn add(&mut self, due: Monotonic, id: ConnId) {
        self.due.push(Reverse((due, id)));
    }

    pub(crate) fn next(&self) -> Monotonic {
        let due = self.due.peek().map(|Reverse((due, _))| *due);
        due.map_or(self.next_sweep, |due| due.min(self.next_sweep))
    }

    pub(crate) fn pop(&mut self, now: Monotonic) -> Option<ConnId> {
        let Reverse((due, id)) = *self.due.peek()?;
        (due <= now).then(|| {
            self.due.pop();
            id
        })
    }
}
