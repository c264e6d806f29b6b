//! What all shards of one data directory share.

use crate::data_dir::DataDir;
use crate::options::LogOptions;
use env::{DirLock, Disk};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An open data directory. It is locked as long as one of its shards lives.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) root: PathBuf,
    pub(crate) id: u64,
    pub(crate) options: LogOptions,
    pub(crate) shard_count: u16,
    pub(crate) is_closing: Arc<AtomicBool>,
    _lock: Arc<DirLock>,
}

impl Store {
    pub(crate) fn new(data_dir: DataDir, shard_count: u16) -> Self {
        let DataDir { disk, root, options, format, lock, .. } = data_dir;
        Self {
            disk,
            root,
            id: format.store,
            options,
            shard_count,
            is_closing: Arc::default(),
            _lock: Arc::new(lock),
        }
    }
}
