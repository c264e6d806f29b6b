//! Heartbeats that say nothing new, and their answers.
//!
//! # Why
//! They are nearly all that an idle node sends: ten a second for each group and follower, and as many answers. The library makes a message
//! of each, a state that is handed out, and an answer. Here the same fields of it change, and nothing else is made.
//!
//! # Invariants
//! - What says anything else goes through the library: a read, a commit that is not known, another term, entries that are lacking.
//! - Nothing is sent that would be held until a batch is durable.

use super::Replica;
use crate::library;
use crate::message::{Body, GroupMessage};
use crate::rules::Rules;
use model::EntryIndex;
use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_INDEX, ProgressState, StateRole};

impl<R: Rules> Replica<R> {
    /// A heartbeat that the last tick has made; asked again until there is none. Without this, [`Replica::take_ready`] gives them.
    #[must_use]
    pub fn take_heartbeat(&mut self) -> Option<GroupMessage> {
        let is_plain = |message: &mut Message| {
            message.get_msg_type() == MessageType::MsgHeartbeat && message.context.is_empty()
        };
        // Behind what waits for the disk it would wait, too.
        let is_free = self.held.is_empty() && self.durable_term == self.raw.raft.term;
        let message = self.raw.raft.msgs.pop_if(|message| is_free && is_plain(message))?;
        Some(library::from_library(message))
    }

    /// The answer to a heartbeat that says nothing new. `None`: it goes through [`Replica::step`].
    #[must_use]
    pub fn answer_heartbeat(&mut self, message: &GroupMessage) -> Option<GroupMessage> {
        let Body::Heartbeat { commit, read: 0 } = message.body else { return None };
        let raft = &mut self.raw.raft;
        let is_led = raft.state == StateRole::Follower
            && raft.leader_id == message.from.bits()
            && raft.term == message.term.get();
        let is_known = commit.get() <= raft.raft_log.committed
            && raft.pending_request_snapshot == INVALID_INDEX;
        let is_free = !self.is_installing && self.held.is_empty();
        let body = Body::Alive { commit: EntryIndex::new(raft.raft_log.committed), read: 0 };
        let answer = GroupMessage { from: self.id, to: message.from, term: message.term, body };
        let may_go = R::is_addressed(message, self.id) && R::may_go(&answer, self.durable_term);
        if !(is_led && is_known && is_free && may_go) {
            return None;
        }
        raft.election_elapsed = 0;
        Some(answer)
    }

    /// Notes that a follower which has all entries is there. `false`: the library has more to do.
    pub(super) fn note_alive(&mut self, message: &GroupMessage) -> bool {
        let Body::Alive { commit, read: 0 } = message.body else { return false };
        let raft = &mut self.raw.raft;
        let is_own = raft.state == StateRole::Leader && raft.term == message.term.get();
        let (last, committed) = (raft.raft_log.last_index(), raft.raft_log.committed);
        let Some(progress) = raft.mut_prs().get_mut(message.from.bits()) else { return false };
        let has_all = progress.state == ProgressState::Replicate
            && progress.matched >= last
            && progress.pending_request_snapshot == INVALID_INDEX
            && !progress.ins.full();
        if !is_own || !has_all || commit.get() > committed {
            return false;
        }
        progress.update_committed(commit.get());
        progress.recent_active = true;
        progress.resume();
        true
    }
}
