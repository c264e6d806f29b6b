//! What opening a log has found.

use std::path::PathBuf;

/// What recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The data directory was made by this open.
    pub created: bool,
    /// Its random id.
    pub store: u64,
    /// The id of the directory whose history it continues: its own if it continues none.
    pub lineage: u64,
    /// How often it was opened, this time included.
    pub epoch: u64,
    /// Groups restored from a checkpoint.
    pub checkpoints_restored: u32,
    /// Entries replayed from the WAL.
    pub entries_replayed: u64,
    /// Bytes of batches that were read.
    pub wal_bytes_read: u64,
    /// Batches that no later one claims durable and that were not whole: nobody saw them.
    pub torn_tails: Vec<TornTail>,
    /// Places reported through [`crate::Replay::damaged`].
    pub damage_count: u32,
}

/// A batch that was being written when the process or the power went away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub file: PathBuf,
    /// Where the batch starts.
    pub position: u64,
}
