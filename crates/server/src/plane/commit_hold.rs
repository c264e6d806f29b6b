//! How long a commit waits for company.
//!
//! # Why
//! Of many clients some write while the loop takes in what others have written ([`super::batch_delay`]).
//!
//! In a cluster each append becomes an entry in the logs of three nodes. Those of one moment come from two leaders and from this node's own
//! clients, one after another. A loop that commits what the first of them has brought writes and flushes its disk three
//! times. So it sends what need not wait, lets others run ([`super::yields`]), and looks again. As long as
//! that finds events, it commits later.
//!
//! The wait is short: it ends when a look finds nothing, after four of them, and after a millisecond. A node whose peers are on
//! other machines looks once in vain, which is one system call beside a sync.

use model::Monotonic;

/// Looks for which one commit waits.
const LOOKS_MAX: u32 = 4;

/// No look begins later than this after the first one.
const HOLD_NS_MAX: u64 = 1_000_000;

/// What is held at the moment.
#[derive(Debug, Default)]
pub(super) struct CommitHold {
    /// Looks for which the commit has waited; 0 if none is held.
    looks: u32,
    /// When it was first held.
    since: Monotonic,
}

impl CommitHold {
    /// Whether a commit waits for another look. This one has found events, or not.
    pub(super) fn waits(&mut self, now: Monotonic, has_events: bool) -> bool {
        if self.looks == 0 {
            self.since = now;
        }
        let has_time = now.get() - self.since.get() < HOLD_NS_MAX;
        let waits = has_events && self.looks < LOOKS_MAX && has_time;
        self.looks = if waits { self.looks + 1 } else { 0 };
        waits
    }

    /// Nothing is to be committed, or nothing is waited for.
    pub(super) fn end(&mut self) {
        self.looks = 0;
    }

    /// Whether a commit is held.
    pub(super) fn is_on(&self) -> bool {
        self.looks > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_waits_while_looks_find_something() {
        let mut hold = CommitHold::default();
        let now = Monotonic::default();
        for _ in 1..LOOKS_MAX {
            assert!(hold.waits(now, true));
            assert!(hold.is_on());
        }
        assert!(!hold.waits(now, false));
        assert!(!hold.is_on());
    }

    #[test]
    fn it_waits_for_four_looks_at_most() {
        let mut hold = CommitHold::default();
        let waits = |_| hold.waits(Monotonic::default(), true);
        assert_eq!((0..6).map(waits).collect::<Vec<_>>(), [true, true, true, true, false, true]);
    }

    #[test]
    fn it_waits_for_a_millisecond_at_most() {
        let mut hold = CommitHold::default();
        assert!(hold.waits(Monotonic::default(), true));
        assert!(hold.waits(Monotonic::new(HOLD_NS_MAX - 1), true));
        assert!(!hold.waits(Monotonic::new(HOLD_NS_MAX), true));
        assert!(hold.waits(Monotonic::new(HOLD_NS_MAX), true), "the next one has its own time");
    }

    #[test]
    fn one_that_was_ended_waits_again() {
        let mut hold = CommitHold::default();
        assert!(hold.waits(Monotonic::default(), true));
        hold.end();
        assert!(!hold.is_on());
        assert!(hold.waits(Monotonic::new(HOLD_NS_MAX), true));
    }
}
