//! Whether what was committed when the node started is applied here.
//!
//! # How
//! The leader is asked as for a read (`elsewhere`), once for each group, and again until there is an answer. What it
//! has said then is applied here some time later. Nothing of the group waits for that: a load balancer does.
//!
//! # What does not count
//! A copy on a node that shall have none of its group. A group that becomes a copy while the node runs: this node was its only
//! voter.

use super::copy::CatchUp;
use super::held::{Held, HeldRequest};
use crate::{ShardCore, Stamp};
use model::GroupId;

impl ShardCore {
    /// From now on [`ShardCore::catching_up`] counts the copies that there are.
    pub fn begin_catching_up(&mut self) {
        for id in self.replicated_groups() {
            self.copy_mut(id).catch_up = CatchUp::Wanted;
        }
    }

    /// Groups whose copy here has not applied all that was committed when it was first asked, or whose leader is not
    /// known yet.
    #[must_use]
    pub fn catching_up(&self) -> usize {
        let Some(replication) = &self.replication else { return 0 };
        let node = replication.forwarding.node;
        let counts = |id: GroupId| {
            replication.meta.as_ref().is_none_or(|meta| meta.target(id).contains(&node))
        };
        let groups = self.groups.iter().filter(|group| {
            let copy = group.role.copy();
            copy.is_some_and(|copy| copy.catch_up != CatchUp::Done) && counts(group.state.group())
        });
        groups.count()
    }

    /// Asks who leads the group, unless that is under way.
    pub(super) fn ask_to_catch_up(&mut self, now: Stamp, id: GroupId) {
        let copy = self.copy_mut(id);
        if copy.catch_up == CatchUp::Wanted && copy.halt.is_none() {
            copy.catch_up = CatchUp::Asked;
            let what = HeldRequest::CatchUp;
            self.hold((id, false), Held { since: now.monotonic, what });
        }
    }
}
