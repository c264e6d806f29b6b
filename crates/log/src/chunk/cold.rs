//! Where a byte is that is not in memory's index: in a chunk, at the tail, or lost.
//!
//! # Why
//! The answer may take a look at the disk, so it must be possible on any thread. This is all that it needs.

use crate::chunk::file::ChunkFile;
use crate::chunk::list::ChunkList;
use crate::chunk::row::Row;
use crate::read::{ReadError, ReadMode};
use crate::wal::segment::SegmentFile;
use model::ByteOffset;
use std::sync::Arc;

/// A question about a byte of a stream.
#[derive(Debug, Clone)]
pub(crate) struct ColdLookup {
    pub(crate) chunks: Arc<ChunkList>,
    pub(crate) stream: u64,
    /// What lies before is gone.
    pub(crate) floor: u64,
    /// Offset after the last byte in the WAL, if there is one.
    pub(crate) hot_tail: Option<u64>,
    /// The first append in the WAL behind the byte.
    pub(crate) hot_after: Option<(Arc<SegmentFile>, u32)>,
}

/// Where the byte is.
#[derive(Debug)]
pub(crate) enum ColdPlace {
    Chunk {
        chunk: Arc<ChunkFile>,
        row: Row,
    },
    /// Behind the last byte.
    Tail,
}

impl ColdLookup {
    /// # Errors
    /// `NotFound`, `PastTail` or `Damaged`. [`ReadError::would_block`] if `mode` must not wait.
    pub(crate) fn find(&self, at: u64, mode: ReadMode) -> Result<ColdPlace, ReadError> {
        if let Some((chunk, row)) = self.chunks.find(self.stream, at, mode)? {
            return Ok(ColdPlace::Chunk { chunk: Arc::clone(chunk), row });
        }
        match self.tail(mode)? {
            None if self.floor > 0 && self.floor == at => Ok(ColdPlace::Tail),
            None => Err(ReadError::NotFound),
            Some(tail) if tail == at => Ok(ColdPlace::Tail),
            Some(tail) if tail < at => Err(ReadError::PastTail { tail: ByteOffset::new(tail) }),
            Some(_) => Err(self.hole(at, mode)?),
        }
    }

    /// Offset after the last byte.
    ///
    /// # Errors
    /// As [`ColdLookup::find`].
    pub(crate) fn tail(&self, mode: ReadMode) -> Result<Option<u64>, ReadError> {
        let mut tail = self.hot_tail;
        let live = (self.stream, self.floor);
        self.chunks.for_each(live, mode, |(_, row)| tail = tail.max(Some(row.end())))?;
        Ok(tail)
    }

    /// Bytes are missing between others: they were damaged when they were copied.
    fn hole(&self, at: u64, mode: ReadMode) -> Result<ReadError, ReadError> {
        let mut next: Option<(&Arc<ChunkFile>, Row)> = None;
        self.chunks.for_each((self.stream, self.floor), mode, |(file, row)| {
            if row.start >= at && next.is_none_or(|(_, next)| row.start < next.start) {
                next = Some((file, row));
            }
        })?;
        if let Some((file, row)) = next {
            return Ok(file.damaged(row.position));
        }
        let (file, position) = self.hot_after.as_ref().expect("a hole lies before the tail");
        Ok(ReadError::Damaged { file: file.path.clone(), position: u64::from(*position) })
    }
}
