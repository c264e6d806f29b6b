//! Settings of an engine and the hard limits behind them.

use log::{LogOptions, WAL_BYTES_MAX, WAL_SEGMENTS_MAX};
use std::time::Duration;

/// Largest batch (and so the largest entry) in bytes, with 4 bytes for each entry. A batch is one entry
/// of the log below and one allocation of a reader. It must fit the WAL beside others.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

/// Longest name of a stream or cursor in bytes: room for a path or a UUID; it is kept in memory.
pub const NAME_BYTES_MAX: usize = 255;

/// Most streams of one engine. Each costs about 200 bytes of memory and a row of every checkpoint.
pub const STREAMS_MAX: usize = 1 << 20;

/// Most cursors of one stream: all of them are in the stream's row of every checkpoint.
pub const CURSORS_PER_STREAM_MAX: usize = 1024;

/// Shortest interval of [`Durability::Periodic`]: below it a sync would follow every append.
pub const SYNC_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Bytes that one read holds at most, but for a single entry that is larger.
pub const READ_BYTES_MAX: usize = 16 << 20;

/// Fewest bytes of the WAL: two segments and one that is being recycled.
const WAL_SEGMENTS_MIN: u64 = 4;

/// When a call that changes something returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync`: what was acknowledged survives power loss. Concurrent callers share syncs.
    Each,
    /// When the page cache has it: it survives the death of the process, also by `kill -9`. A sync
    /// follows at this interval (1 ms or more); power loss, or a crash of the kernel, takes back at
    /// most what was written since the last one.
    Periodic(Duration),
    /// As `Periodic`, but only background work, [`crate::Engine::sync`] and
    /// [`crate::Engine::close`] sync.
    None,
}

impl Durability {
    /// Whether an acknowledgement waits for the disk.
    pub(crate) fn is_each(self) -> bool {
        self == Self::Each
    }
}

/// Settings of an engine. All of them may differ from one opening to the next.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a call returns. Default: [`Durability::Each`].
    pub durability: Durability,
    /// Most bytes of the write-ahead log; default 512 MiB, at least 4 segments, at most 2 GiB. At the bound
    /// appenders wait until background work has freed some.
    pub wal_bytes_max: u64,
    /// Size of one segment of it, a multiple of 4096; default 32 MiB. The log has at most 256.
    pub segment_bytes: u64,
    /// Data in the WAL that is worth a chunk; default 8 MiB.
    pub seal_bytes: u64,
    /// Longest time in milliseconds that a caller waits for room; default 30,000.
    pub wait_ms_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Each,
            wal_bytes_max: 512 << 20,
            segment_bytes: 32 << 20,
            seal_bytes: 8 << 20,
            wait_ms_max: 30_000,
        }
    }
}

/// A setting that no engine can keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    /// Name of the field of [`Options`].
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// What is allowed.
    pub allowed: &'static str,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), BadOption> {
        let bad = |name, value, allowed| Err(BadOption { name, value, allowed });
        let segment = self.segment_bytes;
        let segment_max = WAL_BYTES_MAX / WAL_SEGMENTS_MIN;
        if !segment.is_multiple_of(4096) || !(4096..=segment_max).contains(&segment) {
            return bad("segment_bytes", segment, "a multiple of 4096 up to 512 MiB");
        }
        if !(WAL_SEGMENTS_MIN * segment..=WAL_BYTES_MAX).contains(&self.wal_bytes_max) {
            return bad("wal_bytes_max", self.wal_bytes_max, "4 times segment_bytes to 2 GiB");
        }
        if self.wal_bytes_max / segment > WAL_SEGMENTS_MAX {
            return bad("segment_bytes", segment, "at least wal_bytes_max / 256");
        }
        if self.seal_bytes == 0 || self.seal_bytes > 1 << 30 {
            return bad("seal_bytes", self.seal_bytes, "1 byte to 1 GiB");
        }
        match self.durability {
            Durability::Periodic(interval) if interval < SYNC_INTERVAL_MIN => {
                let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
                bad("durability", nanos, "Periodic of 1 ms (1,000,000 ns) or more")
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn log(&self) -> LogOptions {
        LogOptions {
            segment_bytes: self.segment_bytes,
            wal_bytes_max: self.wal_bytes_max,
            seal_bytes: self.seal_bytes,
            batch_bytes_max: 4 << 20,
            checkpoint_bytes: self.wal_bytes_max / 8,
            // Its owner's memory is not the engine's to fill.
            recent_bytes_max: 0,
            read_cache_bytes_max: 0,
            fills_segments: self.durability.is_each(),
            group_count: 1,
            ..LogOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_proportion_are_named() {
        let name = |options: Options| options.check().map_err(|bad| bad.name);
        assert_eq!(name(Options::default()), Ok(()));
        assert_eq!(
            name(Options { segment_bytes: 5000, ..Options::default() }),
            Err("segment_bytes")
        );
        assert_eq!(
            name(Options { wal_bytes_max: 1 << 20, ..Options::default() }),
            Err("wal_bytes_max")
        );
        assert_eq!(name(Options { seal_bytes: 0, ..Options::default() }), Err("seal_bytes"));
        let long = Options { wal_bytes_max: (1 << 31) + 1, ..Options::default() };
        assert_eq!(name(long.clone()), Err("wal_bytes_max"), "one group may own all of it");
        let large = Options { segment_bytes: 1 << 30, ..long };
        assert_eq!(name(large), Err("segment_bytes"), "no log has four of them");
        let many = Options { segment_bytes: 4096, ..Options::default() };
        assert_eq!(name(many), Err("segment_bytes"), "there would be 131,072 of them");
        let durability = Durability::Periodic(Duration::ZERO);
        assert_eq!(name(Options { durability, ..Options::default() }), Err("durability"));
    }
}
