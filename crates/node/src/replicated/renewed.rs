//! What is known of a copy that was given a new id: how far its way back is.

use cluster::ReplicaId;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Renewed {
    pub(super) id: ReplicaId,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its chunks are being looked at.
    Sifting,
    /// It takes a snapshot.
    Empty,
    /// The snapshot is there; the log has no room for a note now.
    Installed,
    /// The note is in this batch.
    Noted(u64),
    /// It is durable.
    Whole,
}
