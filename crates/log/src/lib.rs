//! A sharded write-ahead log with group commit, chunks and checkpoints.
mod checkpoint_rows;
mod damage;
mod entry;
mod options;
mod shard;
mod wal;
mod work;
mod read;
mod recovery;

pub use checkpoint_rows::{CheckpointRow, CheckpointRows};
pub use damage::{Damage, DamageKind};
pub use entry::{AppendBounds, Entry, NewEntry, Placement};
pub use options::LogOptions;
pub use read::{ReadError, Slice};
pub use recovery::{OpenError, Opened, RecoveryReport, Replay, TornTail, open};
pub use shard::{LogStats, ShardLog};
pub use wal::{
    AppendError, CommitDone, CommitFailed, CommitJob, CommittedBatch, CommittedEntry, Durable,
};
pub use work::{WorkDone, WorkJob, WorkReport};
