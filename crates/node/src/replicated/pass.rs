//! What waits here and is for another node by now.

use super::held::{Held, HeldRequest};
use super::{Gate, copy::GroupCopy};
use crate::{Failure, ShardAnswer, ShardCore, Stamp, deferred::Deferred};
use model::GroupId;

/// A read that has waited so long here is for the leader: what it has to see may take long to come.
const BEHIND_MS: u64 = 250;

impl ShardCore {
    /// Passes on the writes that wait here, in the order in which they came. None of them is in the log: the next leader may
    /// have it.
    pub(super) fn pass_on(&mut self, id: GroupId) {
        for held in self.copy_mut(id).take_held(|held| !held.is_read()) {
            self.pass_held_on(id, held);
        }
        if !std::mem::take(&mut self.copy_mut(id).has_deferred) {
            return;
        }
        let total_count = self.groups.total_count();
        let is_of_group = |write: &Deferred| {
            write.request.written_path().is_some_and(|path| path.group(total_count) == id)
        };
        while let Some(write) = self.write_queue.take_first(is_of_group) {
            self.forward(id, write.since, (write.ticket, write.request, write.data));
        }
    }

    /// Passes on the reads that wait for a copy that has no part in its group any more, or is far behind.
    pub(super) fn pass_reads_on(&mut self, now: Stamp, id: GroupId) {
        let is_elsewhere = self.is_elsewhere(id);
        if is_elsewhere {
            self.doubt_silent_nodes(id);
        }
        if !is_elsewhere && self.groups.get(id).role.copy().is_some_and(GroupCopy::leads) {
            return;
        }
        let is_it = |held: &Held| {
            let is_late = || now.monotonic.ms_since(held.since) >= BEHIND_MS;
            let is_own = matches!(held.what, HeldRequest::CatchUp);
            held.is_read() && !is_own && (is_elsewhere || is_late())
        };
        for held in self.copy_mut(id).take_held(is_it) {
            self.pass_held_on(id, held);
        }
    }

    pub(super) fn pass_held_on(&mut self, id: GroupId, held: Held) {
        let now = self.members().now;
        match held.what {
            HeldRequest::Client { ticket, request, data } => {
                self.forward(id, held.since, (ticket, request, data));
            }
            HeldRequest::Call { reply_to, call } => {
                let gate = self.forward_call((id, held.since), reply_to, call);
                if let Gate::Closed(failure) = gate {
                    self.give(now, reply_to, ShardAnswer::Failed(failure));
                }
            }
            HeldRequest::Barrier { .. } | HeldRequest::CatchUp => {
                self.turn_away(now, (id, vec![held]), &Failure::NoLeader);
            }
        }
    }
}
