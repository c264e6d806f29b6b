//! The line of copies and clients that need room in the log: each gets some in its turn.
//!
//! # Why
//! A log that is short of room always has some for a small entry and seldom any for a large one, which may need a segment of its
//! own. Without an order the small entries would take all that comes free, and the large one would never be written.
//!
//! # Invariants
//! - While the line is not empty, data goes into the log only for the first one in it. Entries without data are never in it, nor are
//!   commands of another shard: a fork's pin is small, and its request has waited there.

use crate::ShardCore;
use model::GroupId;

/// One in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A copy, with entries of its leader.
    Copy(GroupId),
    /// Writes of clients, in the order of their queue: one at a time.
    Clients,
}

impl ShardCore {
    /// Whether `who` may bring data: the line is empty, or it is the first one.
    #[inline]
    pub(crate) fn is_turn_of(&mut self, who: Waiter) -> bool {
        self.replication.as_ref().is_none_or(|it| it.line.is_empty()) || self.is_first(who)
    }

    #[cold]
    fn is_first(&mut self, who: Waiter) -> bool {
        while let Some(first) = self.members().line.front().copied() {
            if first == who {
                return true;
            }
            if self.waits(first) {
                return false;
            }
            self.members().line.pop_front();
        }
        true
    }

    /// Whether one in line still waits for anything.
    fn waits(&self, who: Waiter) -> bool {
        match who {
            Waiter::Copy(id) => {
                let copy = self.groups.get(id).role.copy();
                copy.is_some_and(|copy| copy.halt.is_none() && copy.pending.is_some())
            }
            Waiter::Clients => !self.write_queue.is_empty(),
        }
    }

    /// It found no room, or it is not its turn. A node alone has no line: its writes have their queue.
    #[cold]
    pub(crate) fn join_line(&mut self, who: Waiter) {
        let line = self.replication.as_mut().map(|it| &mut it.line);
        if let Some(line) = line.filter(|line| !line.contains(&who)) {
            line.push_back(who);
        }
    }

    /// It has got its room; the next one tries at once.
    #[inline]
    pub(crate) fn leave_line(&mut self, who: Waiter) {
        if self.replication.as_ref().is_some_and(|it| !it.line.is_empty()) {
            self.members().line.retain(|waiter| *waiter != who);
            self.try_first_in_line();
        }
    }

    /// There may be room now.
    pub(crate) fn try_first_in_line(&mut self) {
        let first = self.replication.as_ref().and_then(|it| it.line.front().copied());
        if let Some(Waiter::Copy(id)) = first {
            self.touch_group(id);
        }
    }
}
