//! Followers that have nothing, and take nothing but a snapshot.
//!
//! # Why
//! A copy that takes the place of a damaged one on its node has no log until a snapshot is installed. The leader's log may
//! have all entries from the first one on, and its library would send those. So the follower says what it is, and nothing else.
//! The library has a wish for a snapshot in its progress of each follower. It would stay there when the snapshot was sent, and the next
//! one would follow: so it is taken back then.

use super::{Replica, StepRefused};
use crate::identity::ReplicaId;
use crate::library;
use crate::message::GroupMessage;
use crate::rules::Rules;
use raft::{INVALID_INDEX, ProgressState};

impl<R: Rules> Replica<R> {
    /// Whether a follower has said to this leader that it has nothing, and has acknowledged nothing since. What it has in chunks is no
    /// part of its log.
    #[must_use]
    pub fn is_empty_handed(&self, follower: ReplicaId) -> bool {
        let progress = self.raw.raft.prs().get(follower.bits());
        self.empty.contains(&follower) && progress.is_some_and(|it| it.matched == 0)
    }

    /// A replica says that it has nothing.
    pub(super) fn hear_empty(&mut self, message: GroupMessage) -> Result<(), StepRefused> {
        let (from, is_leader) = (message.from, self.is_leader() && message.term == self.term());
        let progress = self.raw.raft.mut_prs().get_mut(from.bits()).filter(|_| is_leader);
        if let Some(progress) = progress {
            if progress.matched > 0 {
                let why = "a follower has acknowledged entries, and says that it has nothing";
                return Err(StepRefused::Contradiction(why));
            }
            progress.recent_active = true;
            self.empty.insert(from);
            if progress.state == ProgressState::Snapshot {
                // It has not heard yet that its snapshot may be installed.
                return Ok(());
            }
        }
        // The library refuses answers of replicas that it does not know; they are late.
        let _ = self.raw.step(library::to_library(message));
        Ok(())
    }

    /// A snapshot was sent to this one: it does not wait for another.
    pub(super) fn fulfil_wish(&mut self, to: ReplicaId) {
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(to.bits()) {
            progress.pending_request_snapshot = INVALID_INDEX;
        }
    }
}
