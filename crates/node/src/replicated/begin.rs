//! A cluster of one gets its second node: its groups become copies while it runs.
//!
//! # How
//! A group that has had one voter continues as the copy of a group with one voter: at its index, and in the term behind its
//! first one. That takes a moment in which none of its commands is on its way. So its writes wait until those before them are
//! durable, and then until the first entry of the new term is: two syncs in all. Reads continue.
//!
//! # What a crash leaves
//! Groups with one voter, and copies. A start makes copies of the rest. Nobody else has any of their data before that: a second node is
//! no member before all are copies.

use super::Replication;
use super::start::to_copy;
use crate::group::Group;
use crate::role::Role;
use crate::{Membership, Request, ShardCore, Stamp, Ticket};
use model::GroupId;

impl ShardCore {
    /// This node is a member of a cluster of more than one from now on. Each of its groups becomes the copy of a group whose only
    /// voter it is, as soon as nothing of it is on its way. Repeated, it changes nothing.
    ///
    /// # Panics
    /// If the node is not the first one of its cluster, or was opened without [`Membership::meta`].
    pub fn begin_membership(&mut self, now: Stamp, membership: Membership) {
        if self.replication.is_some() {
            return;
        }
        assert!(membership.is_founder(), "a cluster begins with its first node");
        self.replication = Some(Box::new(Replication::new(&membership)));
        self.members().note_time(now);
        let own = GroupId::new(self.groups.total_count());
        if self.groups.is_here(own) {
            self.groups.add_own(Group::of_cluster(own, &membership));
        }
        self.members().beginning = Some(membership);
    }

    /// Makes copies of groups of which nothing is on its way.
    pub(super) fn begin_copies(&mut self) {
        if self.log.is_poisoned() {
            // Nobody knows what is in the log. The next start makes copies.
            return;
        }
        let Some(membership) = self.members().beginning.take() else { return };
        let is_idle = |group: &&Group| group.role.copy().is_none() && group.proposed_count() == 0;
        let idle = self.groups.iter().filter(is_idle).map(|group| group.state.group());
        for id in idle.collect::<Vec<_>>() {
            self.begin_copy(id, &membership);
        }
        if self.groups.iter().any(|group| group.role.copy().is_none()) {
            self.members().beginning = Some(membership);
        }
        let now = self.members().now;
        self.execute_deferred(now);
    }

    fn begin_copy(&mut self, id: GroupId, membership: &Membership) {
        let applied = self.log.applied_index(id);
        let with = (membership, &[][..]);
        let mut copy = to_copy(&self.log, (id, applied), membership.first(), with);
        // Nobody else votes.
        copy.replica.campaign();
        copy.has_deferred = !self.write_queue.is_empty();
        self.groups.get_mut(id).role = Role::Replicated(Box::new(copy));
        self.touch_group(id);
    }

    /// Whether a request waits until its group is a copy.
    pub(crate) fn waits_for_copy(&self, request: &Request) -> bool {
        let group = match request {
            Request::Meta(_) => self.meta_group().map(|id| self.groups.get(id)),
            _ => request.path().map(|path| self.groups.of_path(path)),
        };
        let has_one_voter = group.is_some_and(|group| group.role.copy().is_none());
        let may_become_one = self.replication.is_some() && !self.log.is_poisoned();
        may_become_one && has_one_voter && !request.is_read()
    }

    /// Lets a request for a group through that is no copy yet, if it changes nothing.
    pub(super) fn let_in_before(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        (request, data): (Request, &[u8]),
    ) -> Option<Request> {
        if !self.waits_for_copy(&request) {
            return Some(request);
        }
        self.defer(now, ticket, (request, data));
        None
    }
}
