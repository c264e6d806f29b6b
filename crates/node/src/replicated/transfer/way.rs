//! Names of transfers, and of what works for them.

use cluster::ReplicaId;
use model::GroupId;

/// One transfer, as one of its ends knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) group: GroupId,
    /// The other end.
    pub(super) peer: ReplicaId,
    /// The leader's number.
    pub(super) number: u64,
}

/// For which end a job works.
#[derive(Debug, Clone, Copy)]
pub(super) enum JobOf {
    Outgoing(GroupId, ReplicaId, u64),
    Incoming(GroupId),
    Nobody,
}
