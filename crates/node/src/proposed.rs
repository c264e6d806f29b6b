//! A command on its way through a group's log, and who gets its outcome.

use crate::Ticket;
use model::{EntryIndex, GroupId, ShardId};
use stream::{Command, Subject};

/// A command on its way through the log.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub index: EntryIndex,
    pub subject: Subject,
    pub command: Command,
    pub reply_to: ReplyTo,
}

/// The receiver of a command's outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyTo {
    Client(Ticket),
    Shard {
        shard: ShardId,
        operation: u64,
    },
    /// An operation of this shard that waits.
    Operation(u64),
    /// The watchers of streams that are kept elsewhere.
    Watchers,
    /// The copy of a group that may not be wanted any more.
    Removal(GroupId),
    /// The slices of expiries.
    Expiries,
    Nobody,
}
