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

#[derive(Debug, Clone, Copy)]
struct RowBounds {
    stream: StreamId,
    path_hash: PathHash,
    end: usize,
}

/// The rows of one checkpoint, in stream order.
#[derive(Debug, Clone, Default)]
pub struct CheckpointRows {
    rows: Vec<RowBounds>,
    bytes: Vec<u8>,
}

impl CheckpointRows {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one stream's row.
    ///
    /// # Panics
    /// If `stream` does not follow the last row's stream.
    pub fn push(&mut self, stream: StreamId, path_hash: PathHash, bytes: &[u8]) {
        if let Some(last) = self.rows.last() {
            assert!(last.stream < stream, "checkpoint rows come in stream order");
        }
        self.bytes.extend_from_slice(bytes);
        self.rows.push(RowBounds { stream, path_hash, end: self.bytes.len() });
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows in stream order.
    pub fn iter(&self) -> impl Iterator<Item = CheckpointRow<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let bytes = &self.bytes[start..row.end];
            start = row.end;
            CheckpointRow { stream: row.stream, path_hash: row.path_hash, bytes }
        })
    }
}
