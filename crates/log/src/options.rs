//! Settings of a log and the hard limits behind them.

use model::limits;

/// Every batch starts at a multiple of this many bytes: recovery looks for headers only there.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Bytes under one checksum in a chunk: what the first touch of a range reads at least.
pub(crate) const CHUNK_BLOCK_BYTES: u64 = 64 << 10;

/// Largest first segment of a process: a start must not wait for 64 MiB of zeroes.
pub(crate) const FIRST_SEGMENT_BYTES_MAX: u64 = 1 << 20;

/// Bytes that background work reads or writes at once.
pub(crate) const COPY_BYTES: usize = 1 << 20;

/// Bytes that a read on the thread of a loop checks or looks through: some 50 µs of it.
pub(crate) const READ_INLINE_BYTES_MAX: u64 = 256 << 10;

/// The part of `seal_bytes` from which on a group is worth a chunk if it is read in many pieces or leaves memory.
const SMALL_SEAL_PART: u64 = 32;

/// How many times what is hot reads must have fetched in pieces, on the thread of the loop, until a chunk would have cost less. A
/// read of a piece counts 4 KiB at least.
pub(crate) const READS_PER_SEAL: u64 = 8;

/// The part of a batch that must be data for it to be kept in memory: creates and commands alone are not.
pub(crate) const RECENT_DATA_PART: u64 = 8;

/// Mean size of entries up to which a batch is kept in memory. To read a longer one from the WAL costs few reads of
/// the file for what is copied, and a copy of it would take the loop's time.
pub(crate) const RECENT_MEAN_BYTES_MAX: u64 = 16 << 10;

/// Mean size of appends up to which a seal takes them from memory. A read of the file costs as much as to copy so many bytes, and the
/// memory is not used again before the seal has ended.
pub(crate) const FROM_MEMORY_MEAN_BYTES_MAX: u64 = 4 << 10;

/// The part of the memory for recent bytes that long reads may take to put them together.
pub(crate) const RECENT_RUNS_PART: usize = 4;

/// Bytes between two appends that one read takes along instead of reading twice.
pub(crate) const READ_GAP_BYTES_MAX: u64 = 16 << 10;

/// Batch buffers kept for reuse: one filling, one in flight, two still shared with readers.
pub(crate) const POOLED_BUFFERS_MAX: usize = 4;

/// Most chunks that one merge reads.
pub(crate) const MERGE_CHUNKS_MAX: usize = 16;

/// Fewest neighbours of like size that are worth a merge.
pub(crate) const MERGE_CHUNKS_MIN: usize = 8;

/// Small chunks of one group, and of all groups of a shard, whose merges may wait for a quiet log. A lookup asks each of its
/// group's.
pub(crate) const WAITING_CHUNKS_MAX: usize = 64;
pub(crate) const ALL_WAITING_CHUNKS_MAX: usize = 512;

/// Largest WAL of a shard. One group may own all that is in it, and all of that becomes one chunk, in
/// which positions have 32 bits. Half of these are left for the chunk's tables and for appends under way.
pub const WAL_BYTES_MAX: u64 = 1 << 31;

/// Most segments of a WAL by its settings: each of them is an open file.
pub const WAL_SEGMENTS_MAX: u64 = 256;

/// Segments of a WAL from which on it counts as long. Starts that a crash follows at once leave small ones.
pub(crate) const MANY_SEGMENTS: usize = 64;

/// Most segments of all WALs of a directory. A shard may have to open each of them, also those of starts with
/// more shards, and counts them in 16 bits. Half of these are left for what other starts wrote.
pub const ALL_SEGMENTS_MAX: u64 = 1 << 15;

/// Most rows of the chunks that one merge reads: their pages are in memory until they are written.
pub(crate) const MERGE_ROWS_MAX: u64 = 1 << 20;

/// Largest data of one entry.
pub(crate) const ENTRY_DATA_BYTES_MAX: usize = limits::APPEND_BYTES_MAX;

/// Largest command of one entry.
pub(crate) const ENTRY_COMMAND_BYTES_MAX: usize = 1 << 26;

const _: () = assert!(CHUNK_BLOCK_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(FIRST_SEGMENT_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
// Positions inside a batch are 32 bits.
const _: () = assert!((ENTRY_DATA_BYTES_MAX + ENTRY_COMMAND_BYTES_MAX) < (1 << 31));

/// Settings of a log. Sizes may differ from one start to the next; the group count may not.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Size of a WAL segment, a multiple of 4096. An append that is larger gets its own.
    pub segment_bytes: u64,
    /// Most WAL bytes of one shard, up to [`WAL_BYTES_MAX`] and [`WAL_SEGMENTS_MAX`] segments; at the
    /// bound appends wait for recycling.
    pub wal_bytes_max: u64,
    /// Unsealed data of one group that is worth a chunk.
    pub seal_bytes: u64,
    /// Unsealed appends of all groups together: a group that has its part of them is sealed, however short they are. Each takes 32
    /// bytes of memory, and up to half of it beside them.
    pub hot_appends: u64,
    /// Mean size of a group's appends from which on their seal may wait while much is written. There are few of them then in all
    /// that the log holds, so a chunk of them takes little memory.
    pub long_append_bytes: u64,
    /// Whether a new segment is filled with zeroes, so that commits change no metadata. Otherwise its room is only allocated: for
    /// owners who sync seldom.
    pub fills_segments: bool,
    /// Appends join an open batch up to this size; a single larger one is its own batch.
    pub batch_bytes_max: u64,
    /// Log bytes of one group after which it wants a checkpoint.
    pub checkpoint_bytes: u64,
    /// Merges make no chunk larger than this.
    pub chunk_bytes_max: u64,
    /// Recently committed bytes that stay in memory, for all shards together; 0 keeps none.
    pub recent_bytes_max: u64,
    /// Older bytes of the log in memory that many reads need, for all shards together; 0 keeps none.
    pub read_cache_bytes_max: u64,
    /// Shortest read of recent bytes that puts them together, in one piece, for readers after it.
    pub recent_run_bytes_min: usize,
    /// Chunk files that are open at once, for all shards together.
    pub chunk_files_max: u64,
    /// Memory for pages of chunks (rows and index), for all shards together.
    pub chunk_pages_bytes_max: u64,
    /// Groups of a new data directory; must equal that of an existing one.
    pub group_count: u16,
    /// Groups of the owner's own, numbered behind those of the directory, which does not count them. They have no streams.
    pub own_group_count: u16,
    /// The history that a new data directory continues, one of its own if `None`; else it must equal that of an existing one.
    pub lineage: Option<u64>,
    /// The id that a new data directory gets, a random one if `None`.
    pub store: Option<u64>,
    /// An empty log gets a batch, too, when it is opened. So it is known how often it was opened even if nothing was written.
    pub marks_empty: bool,
}

/// What a shard's bounds of bytes in memory are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecentBytes {
    /// Batches, as they were committed.
    pub(crate) ring: usize,
    /// What of them long reads have put together.
    pub(crate) runs: usize,
    /// Older pieces of the log that many reads need.
    pub(crate) cache: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            wal_bytes_max: 1 << 30,
            seal_bytes: 8 << 20,
            hot_appends: 384 << 10,
            long_append_bytes: 16 << 10,
            fills_segments: true,
            batch_bytes_max: 4 << 20,
            checkpoint_bytes: 32 << 20,
            chunk_bytes_max: 256 << 20,
            recent_bytes_max: 128 << 20,
            read_cache_bytes_max: 8 << 20,
            recent_run_bytes_min: 32 << 10,
            chunk_files_max: 512,
            chunk_pages_bytes_max: 32 << 20,
            group_count: 64,
            own_group_count: 0,
            lineage: None,
            store: None,
            marks_empty: false,
        }
    }
}

impl LogOptions {
    /// All groups, those of the owner's own too.
    pub(crate) fn group_total(&self) -> u16 {
        self.group_count + self.own_group_count
    }

    /// Whether a group has its part of the appends that may be unsealed.
    pub(crate) fn are_many(&self, appends: u64) -> bool {
        appends * u64::from(self.group_count) >= self.hot_appends
    }

    /// Whether so much of a group is worth a chunk, if there is a reason for one.
    pub(crate) fn is_worth_chunk(&self, bytes: u64) -> bool {
        bytes * SMALL_SEAL_PART >= self.seal_bytes
    }

    /// Bytes that one of `shard_count` shards keeps in memory.
    pub(crate) fn recent_bytes_of_shard(&self, shard_count: u16) -> RecentBytes {
        let bytes = self.recent_bytes_max / u64::from(shard_count);
        let bytes = usize::try_from(bytes).expect("the bound of memory fits memory");
        let runs = bytes / RECENT_RUNS_PART;
        let cache = self.read_cache_bytes_max / u64::from(shard_count);
        RecentBytes { ring: bytes - runs, runs, cache }
    }

    /// Refuses settings that no log can keep.
    ///
    /// # Panics
    /// If a size is 0 or out of proportion: settings come from the program, not from the network.
    pub(crate) fn check(&self) {
        assert!(self.segment_bytes >= BLOCK_BYTES, "a segment holds at least one block");
        assert!(self.segment_bytes.is_multiple_of(BLOCK_BYTES), "segments are whole blocks");
        assert!(self.segment_bytes <= 1 << 31, "positions in a segment are 32 bits");
        assert!(self.wal_bytes_max >= 2 * self.segment_bytes, "the WAL holds two segments");
        assert!(self.wal_bytes_max <= WAL_BYTES_MAX, "what a WAL holds fits into a chunk");
        assert!(
            self.wal_bytes_max / self.segment_bytes <= WAL_SEGMENTS_MAX,
            "a WAL has no more segments than can be counted"
        );
        assert!(self.seal_bytes > 0 && self.hot_appends > 0);
        assert!(self.batch_bytes_max > 0 && self.checkpoint_bytes > 0);
        assert!(self.chunk_bytes_max <= 1 << 31, "positions in a chunk are 32 bits");
        assert!(0 < self.group_count && self.group_count <= limits::GROUPS_MAX);
        assert!(self.own_group_count <= limits::GROUPS_MAX, "numbers of groups have 16 bits");
    }
}
