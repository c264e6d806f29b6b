//! Who was heard.
//!
//! # Why
//! The library notes who has answered, and forgets all of them in the tick in which it asks whether they are a quorum. Until the next
//! answers come, a healthy group would look like one that has lost everybody. So the leader keeps what was noted before that tick.

use super::Replica;
use crate::identity::ReplicaId;
use crate::rules::{ELECTION_TICKS, Rules};

/// The followers that had answered when the library forgot them last.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Of the leader that they had answered to.
    term: u64,
    followers: Vec<u64>,
}

impl<R: Rules> Replica<R> {
    /// Keeps who has answered, if this tick makes the library forget it. Comes before the tick.
    pub(super) fn keep_heard(&mut self) {
        let raft = &self.raw.raft;
        if !self.is_leader() || raft.election_elapsed + 1 < ELECTION_TICKS {
            return;
        }
        let has_answered = raft.prs().iter().filter(|(_, progress)| progress.recent_active);
        self.heard.term = raft.term;
        self.heard.followers.clear();
        self.heard.followers.extend(has_answered.map(|(id, _)| *id));
    }

    /// Whether a follower has answered to this leader since the last tick but one that asked for a quorum.
    pub(super) fn is_heard(&self, follower: ReplicaId) -> bool {
        let raft = &self.raw.raft;
        let bits = follower.bits();
        let is_kept = self.heard.term == raft.term && self.heard.followers.contains(&bits);
        is_kept || raft.prs().get(bits).is_some_and(|progress| progress.recent_active)
    }
}
