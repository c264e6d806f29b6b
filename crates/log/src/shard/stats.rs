//! Figures of a shard's log, for metrics.

use super::ShardLog;
use crate::chunk::cache::ChunkStats;
use crate::wal::recent::RecentStats;

/// Figures of one shard's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of WAL segments, spare ones included.
    pub wal_bytes: u64,
    /// Appends that are read from the WAL.
    pub hot_appends: u64,
    /// Their data bytes.
    pub hot_bytes: u64,
    /// Chunks of the shard's groups.
    pub chunks: u64,
    /// Bytes of data in chunks.
    pub chunk_bytes: u64,
    /// Of these, bytes of deleted or trimmed data.
    pub dead_bytes: u64,
    /// Chunks that are not merged, because a part of them is damaged.
    pub damaged_chunks: u64,
    /// Batches made durable since the open, durable marks included.
    pub batches: u64,
    /// Bytes that their commits wrote: headers, commands, data and padding.
    pub batch_bytes: u64,
    /// Entries made durable since the open.
    pub entries: u64,
    /// Recently committed bytes in memory.
    pub recent: RecentStats,
    /// Open files and pages of chunks, for all shards together: each says the same.
    pub chunk_cache: ChunkStats,
}

impl ShardLog {
    /// Figures for metrics.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let mut stats = LogStats {
            wal_bytes: self.wal.wal_bytes(),
            batches: self.batches,
            batch_bytes: self.batch_bytes,
            entries: self.entries,
            recent: self.slots.recent_stats(),
            chunk_cache: self.store.chunk_cache.stats(),
            ..LogStats::default()
        };
        for wal in &self.drained {
            stats.wal_bytes += wal.segments.iter().map(|segment| segment.capacity).sum::<u64>();
        }
        for group in &self.groups {
            let hot = group.hot_totals();
            let (chunks, chunk_bytes, dead_bytes) = group.chunks.totals();
            stats.hot_appends += hot.appends;
            stats.hot_bytes += hot.bytes;
            stats.chunks += chunks;
            stats.chunk_bytes += chunk_bytes;
            stats.dead_bytes += dead_bytes;
            stats.damaged_chunks += group.chunks.held.count();
        }
        stats
    }

    /// Number of chunks of which more than half is dead, as far as that was counted. A merge gives their room back, so a log that
    /// is idle has none. Looks at each chunk.
    #[must_use]
    pub fn wasteful_chunks(&self) -> usize {
        self.groups.iter().map(|group| group.chunks.wasteful().count()).sum()
    }
}
