//! The embedded log as its tests open it.

use env::MemoryDisk;
use model::Timestamp;
use std::path::Path;
use std::sync::Arc;
use thalweg_log::{EmbeddedLog, LogOptions};

pub(crate) const AT: Timestamp = Timestamp::new(1_700_000_000_000);

/// Sizes that make a few hundred appends fill segments, chunks and checkpoints.
pub(crate) fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        wal_bytes_max: 512 << 10,
        seal_bytes: 16 << 10,
        batch_bytes_max: 16 << 10,
        checkpoint_bytes: 32 << 10,
        ..LogOptions::default()
    }
}

pub(crate) fn open(disk: &MemoryDisk, options: LogOptions) -> EmbeddedLog {
    EmbeddedLog::open(Arc::new(disk.clone()), Path::new("/data"), options).unwrap()
}
