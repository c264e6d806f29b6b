//! Whether a snapshot takes the place of a log.

use super::Replica;
use crate::message::{Body, GroupMessage};
use crate::rules::Rules;

impl<R: Rules> Replica<R> {
    /// Whether [`Replica::step`] of this message would put its snapshot in the place of the log. If so, its contents are put
    /// in their place first, and nothing else reaches the replica until that is done (rule 5). Any other message may be stepped at
    /// once: it is refused, or says no more than that entries which are here are committed.
    ///
    /// No entry that this replica has acknowledged is lost by it. The log differs from what is committed at the snapshot's
    /// last entry, or ends before it: what lies behind is committed nowhere.
    #[must_use]
    pub fn would_install(&self, message: &GroupMessage) -> bool {
        let Body::Snapshot(point) = &message.body else { return false };
        let log = &self.raw.raft.raft_log;
        let (index, term) = (point.last.index.get(), point.last.term.get());
        let is_heard = R::is_addressed(message, self.id) && message.from != message.to;
        is_heard
            && message.term >= self.term()
            && self.check(message).is_ok()
            && index > log.committed
            && !log.match_term(index, term)
            && point.configuration.contains(self.id)
    }
}
