//! The write-ahead log: every byte is written here once before it is acknowledged.
//!
//! # Map
//! - `batch`: the bytes. `segment`: the files. `group_commit`: when something is durable.
//! - `shard_wal`: one shard's writer, over `open_batch` and `buffers`. `sync`: the job and its result.
//! - `scan`: finds the batches of a WAL again and distinguishes a torn tail from damage.
//!
//! # Format
//! `docs/format/wal.md`.

pub(crate) mod batch;
mod buffers;
pub(crate) mod fill;
mod group_commit;
mod open_batch;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod shard_wal;
mod sync;

pub use group_commit::{Durable, SyncFailed};
pub use shard_wal::AppendError;
pub use sync::{DurableBatch, DurableEntry, SyncDone, SyncJob};
