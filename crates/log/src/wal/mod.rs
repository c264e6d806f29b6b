//! The write-ahead log: every byte is written here once before it is acknowledged.
//!
//! # Map
//! - `shard_wal`: one shard's writer. `batch`: from the first entry to the proof, job and result.
//! - `room`: how much of the disk it takes.
//! - `layout`: the bytes. `segment`: the files. `group_commit`: when something is durable.
//! - `recent`: the batches of the last moments, in memory. `read_cache`: what of older ones many reads need.
//! - `indexed`: the batches of replicated groups, by index.
//! - `scan`: finds the batches of a WAL again and distinguishes a torn tail from damage. `last_batch`: makes the last
//!   one durable at a start.
//!
//! # Format
//! `docs/format/wal.md`.

pub(crate) mod batch;
pub(crate) mod fill;
mod group_commit;
pub(crate) mod indexed;
pub(crate) mod last_batch;
pub(crate) mod layout;
pub(crate) mod read_cache;
pub(crate) mod recent;
pub(crate) mod recent_runs;
pub(crate) mod room;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod shard_wal;

pub use batch::{DurableBatch, SyncDone, SyncJob};
pub use group_commit::{Durable, SyncFailed};
pub use recent::RecentStats;
pub use room::{NoRoom, Purpose, is_no_room};
pub use shard_wal::AppendError;
