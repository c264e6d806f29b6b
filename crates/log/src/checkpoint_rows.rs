//! The rows of a checkpoint on their way to and from its file.

use model::{PathHash, StreamId};

/// One stream's state as the owner encoded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRow<'a> {
    /// The stream.
    pub stream: StreamId,
    /// Hash of its path: tells which stream is lost if the row is damaged.
    pub path_hash: PathHash,
    /// The owner's encoding.
    pub bytes: &'a [u8],
}

/// The length of a block's rows from which on the next row begins another block. To let one buffer grow to the size of
/// all rows would copy tens of megabytes at once.
const BLOCK_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy)]
struct RowBounds {
    stream: StreamId,
    path_hash: PathHash,
    start: usize,
    end: usize,
}

/// Some rows, in the order in which they came.
#[derive(Debug, Clone, Default)]
struct Block {
    rows: Vec<RowBounds>,
    bytes: Vec<u8>,
}

/// The rows of one checkpoint, in any order.
#[derive(Debug, Clone, Default)]
pub struct CheckpointRows {
    blocks: Vec<Block>,
    row_count: usize,
    bytes: u64,
}

impl CheckpointRows {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one stream's row. Each stream has one row at most.
    pub fn push(&mut self, stream: StreamId, path_hash: PathHash, bytes: &[u8]) {
        if self.blocks.last().is_none_or(|last| last.bytes.len() >= BLOCK_BYTES) {
            self.blocks.push(Block::default());
        }
        let block = self.blocks.last_mut().expect("a block was just added");
        let start = block.bytes.len();
        block.bytes.extend_from_slice(bytes);
        block.rows.push(RowBounds { stream, path_hash, start, end: block.bytes.len() });
        self.row_count += 1;
        self.bytes += bytes.len() as u64;
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.row_count
    }

    /// Bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// The rows in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = CheckpointRow<'_>> {
        self.blocks.iter().flat_map(Block::iter)
    }

    /// The rows in stream order.
    ///
    /// # Panics
    /// If a stream has two.
    pub(crate) fn sorted(&self) -> Vec<CheckpointRow<'_>> {
        let mut rows: Vec<CheckpointRow<'_>> = self.iter().collect();
        rows.sort_unstable_by_key(|row| row.stream);
        let is_above = |pair: &[CheckpointRow<'_>]| pair[0].stream < pair[1].stream;
        assert!(rows.windows(2).all(is_above), "each stream has one row");
        rows
    }
}

impl Block {
    fn iter(&self) -> impl Iterator<Item = CheckpointRow<'_>> {
        self.rows.iter().map(|row| CheckpointRow {
            stream: row.stream,
            path_hash: row.path_hash,
            bytes: &self.bytes[row.start..row.end],
        })
    }
}
