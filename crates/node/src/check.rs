//! What must be true of a shard between two turns.
//!
//! Each part asserts what is its own; here is what two of them must agree on. [`ShardCore::poll_output`]
//! checks at the end of each turn in a debug build, and so does the simulator.

use crate::{ShardCore, group::Group, proposed::ReplyTo};

impl ShardCore {
    /// Asserts what holds between two turns. Call it when [`Self::poll_output`] has answered `None`.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        self.groups.check();
        self.reads.check();
        self.log.check();
        self.releases.check();
        self.retention.check();
        self.watchers.check();
        self.write_queue.check();
        self.damage.check();
        self.operations.check(self.awaited());
        self.check_log();
        self.check_expiries();
        self.replication.iter().for_each(|replication| replication.check());
    }

    /// The operations that an answer of this shard is on its way to: from its log, or from its disk.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = u64> {
        let proposed = self.groups.iter().flat_map(Group::receivers);
        proposed.chain(self.reads.receivers()).filter_map(|reply_to| match reply_to {
            ReplyTo::Operation(number) => Some(number),
            _ => None,
        })
    }

    /// Each expiry on its way through the log is counted.
    fn check_expiries(&self) {
        let receivers = self.groups.iter().flat_map(Group::receivers);
        let count = receivers.filter(|to| matches!(to, ReplyTo::Expiries)).count();
        assert_eq!(count, self.expiries.in_flight_count, "expiries in flight are miscounted");
    }

    /// The log and the state machines have come equally far, and a log that has failed carries nothing.
    fn check_log(&self) {
        for group in self.groups.iter() {
            let id = group.state.group();
            let (applied, logged) = (group.state.applied(), self.log.applied_index(id));
            assert_eq!(applied, logged, "group {id} and its log differ in what is applied");
            let is_cut = self.poison.is_some() && group.proposed_count() > 0;
            assert!(!is_cut, "group {id} waits for a log that has failed");
        }
    }
}
