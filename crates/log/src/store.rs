//! What all shards of one data directory share.

use crate::chunk::cache::ChunkCache;
use crate::data_dir::DataDir;
use crate::format::FORMAT_NAME;
use crate::options::LogOptions;
use crate::thrifty_disk::ThriftyDisk;
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
    pub(crate) lineage: u64,
    pub(crate) chunk_cache: Arc<ChunkCache>,
    pub(crate) options: LogOptions,
    pub(crate) shard_count: u16,
    pub(crate) is_closing: Arc<AtomicBool>,
    /// Whether all names were made durable. Otherwise nothing is written or removed.
    pub(crate) has_synced_names: bool,
    _lock: Arc<DirLock>,
}

impl Store {
    pub(crate) fn new(data_dir: DataDir, shard_count: u16) -> Self {
        let DataDir { disk, root, options, format, lock, .. } = data_dir;
        let format_path = root.join(FORMAT_NAME);
        let chunk_cache = Arc::new(ChunkCache::new(Arc::clone(&disk), format_path, &options));
        let disk = Arc::new(ThriftyDisk::new(disk, Arc::clone(&chunk_cache)));
        Self {
            disk,
            root,
            id: format.store,
            lineage: format.lineage,
            chunk_cache,
            options,
            shard_count,
            is_closing: Arc::default(),
            has_synced_names: true,
            _lock: Arc::new(lock),
        }
    }
}
