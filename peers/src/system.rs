//! What is measured: one trait, an implementation for each system.
//!
//! # Invariants
//! - `append` and `append_batch` return `Ok` only for what the system has acknowledged.
//! - `durability` says in words what a system's acknowledgement means, beside every figure.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Anything that a system may fail with, as it says it.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Thalweg's embedded engine
    Thalweg,
    /// walrus-rust 0.2
    Walrus,
    /// RocksDB, of which only the WAL matters here
    Rocksdb,
}

/// When a call may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SyncMode {
    /// In the page cache; nobody syncs
    None,
    /// In the page cache; a sync every 100 ms
    Periodic,
    /// Synced
    Each,
}

/// Interval of `SyncMode::Periodic`.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// An engine under measurement; streams are numbered.
pub(crate) trait System: Send + Sync {
    /// What its acknowledgement means with the settings it was opened with.
    fn durability(&self) -> String;
    /// Appends one entry.
    fn append(&self, stream: usize, entry: &[u8]) -> Result<(), Failure>;
    /// Appends all entries or none.
    fn append_batch(&self, stream: usize, entries: &[&[u8]]) -> Result<(), Failure>;
    /// The next entries behind the durable cursor of `stream`, at most about `count_max`, and moves
    /// the cursor durably; none at the end.
    fn consume(&self, stream: usize, count_max: usize) -> Result<Vec<Vec<u8>>, Failure>;
    /// The first `count_max` entries of `stream` in order, without a cursor where the system can.
    fn read_back(
        &self,
        stream: usize,
        count_max: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure>;
}

/// Opens `kind` in the empty directory `dir`; `keeps_cursor` if durable cursors are measured.
pub(crate) fn open(
    kind: Kind,
    dir: &Path,
    sync: SyncMode,
    keeps_cursor: bool,
) -> Result<Box<dyn System>, Failure> {
    match kind {
        Kind::Thalweg => Ok(Box::new(crate::thalweg::Thalweg::open(dir, sync)?)),
        Kind::Walrus => Ok(Box::new(crate::walrus::Wal::open(sync, keeps_cursor)?)),
        #[cfg(feature = "rocksdb")]
        Kind::Rocksdb => Ok(Box::new(crate::rocks::Rocks::open(dir, sync)?)),
        #[cfg(not(feature = "rocksdb"))]
        Kind::Rocksdb => Err("built without RocksDB; see docs/measuring.md".into()),
    }
}
