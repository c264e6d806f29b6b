//! Reads of one group: from the WAL by the hot index, or from chunks.

use crate::chunk::file::ChunkFile;
use crate::chunk::format::ChunkRow;
use crate::entry::AppendBounds;
use crate::extent::Extent;
use crate::group::Group;
use crate::hot::{HotAppend, HotStream};
use crate::hot_read::{following, read_hot};
use crate::read::{ReadError, ReadMode, Slice};
use crate::wal::segment::SegmentTable;
use bytes::Bytes;
use env::File;
use model::{ByteOffset, StreamId};
use std::io;
use std::sync::Arc;

/// Appends that one read elsewhere takes along at most: their rows are copied for it.
const EXTENT_APPENDS_MAX: usize = 4096;

/// The place of a byte.
enum Place<'a> {
    Hot {
        stream: &'a HotStream,
        index: usize,
    },
    Chunk {
        chunk: &'a Arc<ChunkFile>,
        row: &'a ChunkRow,
    },
    /// Behind the last byte.
    Tail,
}

impl Group {
    /// Offset after the last byte of a stream.
    pub(crate) fn tail(&self, stream: StreamId) -> Option<u64> {
        let hot = self.streams.get(&stream).and_then(|hot| hot.appends().last());
        hot.map(HotAppend::end).max(self.chunks.tail(stream.get()))
    }

    fn locate(
        &self,
        stream: StreamId,
        at: u64,
        slots: &SegmentTable,
    ) -> Result<Place<'_>, ReadError> {
        if let Some(&head) = self.heads.get(&stream)
            && at < head.get()
        {
            return Err(ReadError::Trimmed { head });
        }
        if let Some(hot) = self.streams.get(&stream) {
            // Live readers are at the tail: they need no look at the chunks.
            let is_end = hot.appends().last().is_some_and(|last| last.end() == at);
            if is_end && !self.has_old_hot {
                return Ok(Place::Tail);
            }
            if let Some(index) = hot.find(at) {
                return Ok(Place::Hot { stream: hot, index });
            }
        }
        if let Some((chunk, row)) = self.chunks.find(stream.get(), at) {
            return Ok(Place::Chunk { chunk, row });
        }
        match self.tail(stream) {
            None if self.heads.get(&stream).is_some_and(|head| head.get() == at) => Ok(Place::Tail),
            None => Err(ReadError::NotFound),
            Some(tail) if tail == at => Ok(Place::Tail),
            Some(tail) if tail < at => Err(ReadError::PastTail { tail: ByteOffset::new(tail) }),
            Some(_) => Err(self.hole(stream, at, slots)),
        }
    }

    /// Bytes are missing between others: they were damaged when they were copied.
    fn hole(&self, stream: StreamId, at: u64, slots: &SegmentTable) -> ReadError {
        if let Some((chunk, row)) = self.chunks.next_row(stream.get(), at) {
            let (file, position) = (chunk.path.clone(), u64::from(row.position));
            return ReadError::Damaged { file, position };
        }
        let hot = self.streams.get(&stream).expect("a stream with a tail has data");
        let after = hot.appends().iter().find(|append| append.fields().start > at);
        after.expect("a hole lies before the tail").damaged(slots)
    }

    /// Bytes from `from`, at most `max_bytes`, at least one unless `from` is the tail.
    pub(crate) fn read(
        &self,
        stream: StreamId,
        from: u64,
        max_bytes: usize,
        (slots, mode): (&SegmentTable, ReadMode),
    ) -> Result<Slice, ReadError> {
        match self.locate(stream, from, slots)? {
            Place::Tail => Ok(Slice::Bytes(Bytes::new())),
            Place::Hot { stream, index } => {
                let appends = &stream.appends()[index..];
                let (bytes, far_bytes) = read_hot(appends, from, max_bytes, (slots, mode))?;
                self.note_far_read(far_bytes);
                Ok(Slice::Bytes(bytes))
            }
            Place::Chunk { chunk, row } => {
                let (position, length) = row.part(from, max_bytes);
                chunk.verify(row, (position, length), mode)?;
                if mode == ReadMode::Inline && !chunk.file.are_ends_cached(position, length) {
                    return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
                }
                let file: Arc<dyn File> = Arc::clone(&chunk.served) as _;
                Ok(Slice::File { file, position, length })
            }
        }
    }

    fn note_far_read(&self, bytes: u64) {
        self.far_read_bytes.set(self.far_read_bytes.get() + bytes);
    }

    /// What a read of at most `max_bytes` from `from` needs, to be read elsewhere; `None` at the tail.
    pub(crate) fn extent(
        &self,
        stream: StreamId,
        from: u64,
        max_bytes: usize,
        slots: &SegmentTable,
    ) -> Result<Option<Extent>, ReadError> {
        match self.locate(stream, from, slots)? {
            Place::Tail => Ok(None),
            Place::Hot { stream, index } => {
                let appends = following(&stream.appends()[index..], max_bytes as u64);
                let appends = &appends[..appends.len().min(EXTENT_APPENDS_MAX)];
                Ok(Some(Extent::hot(appends, slots)))
            }
            Place::Chunk { chunk, row } => Ok(Some(Extent::chunk(chunk, row))),
        }
    }

    /// Learns what a read elsewhere has found out.
    pub(crate) fn note_extent(&self, stream: StreamId, extent: &Extent) {
        self.note_far_read(extent.far_bytes());
        let Some(hot) = self.streams.get(&stream) else { return };
        for read in extent.verified() {
            let known = hot.find(read.fields().start).map(|index| &hot.appends()[index]);
            if let Some(known) = known.filter(|known| known.is_same(read)) {
                known.set_verified();
            }
        }
    }

    /// The append that contains byte `at`.
    pub(crate) fn append_at(
        &self,
        stream: StreamId,
        at: u64,
        (slots, mode): (&SegmentTable, ReadMode),
    ) -> Result<Option<AppendBounds>, ReadError> {
        match self.locate(stream, at, slots)? {
            Place::Tail => Ok(None),
            Place::Hot { stream, index } => Ok(Some(stream.appends()[index].bounds())),
            Place::Chunk { chunk, row } => chunk.append_at(row, at, mode).map(Some),
        }
    }
}
