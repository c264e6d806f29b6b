//! Which followers were heard.
//!
//! # Why
//! The library notes which of them have answered, and forgets all of them in the tick in which it asks whether they are a quorum. Until
//! the next answers come, a healthy group would look like one that has lost everybody. So a leader keeps what was noted before that tick.

use crate::rules::ELECTION_TICKS;
use crate::terms::Terms;
use raft::{Raft, StateRole};

/// The followers that had answered when the library last forgot them.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The term of the leader that they had answered to.
    term: u64,
    followers: Vec<u64>,
}

impl Heard {
    /// Keeps which followers have answered, if the next tick makes the library forget it. Comes before each tick.
    pub(super) fn keep(&mut self, raft: &Raft<Terms>) {
        if raft.state != StateRole::Leader || raft.election_elapsed + 1 < ELECTION_TICKS {
            return;
        }
        let has_answered = raft.prs().iter().filter(|(_, progress)| progress.recent_active);
        self.term = raft.term;
        self.followers.clear();
        self.followers.extend(has_answered.map(|(id, _)| *id));
    }

    /// Whether a follower, by the bits of its id, had answered to the leader of `term`.
    pub(super) fn has(&self, follower: u64, term: u64) -> bool {
        self.term == term && self.followers.contains(&follower)
    }
}
