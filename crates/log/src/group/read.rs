//! Reads of one group: from the WAL by the hot index, or from chunks.

use crate::aim::{Aim, PlacedAppend};
use crate::chunk::cold::{ColdLookup, ColdPlace};
use crate::chunk::file::ChunkFile;
use crate::chunk::floors::GONE;
use crate::chunk::row::Row;
use crate::chunk::search::ColdSearch;
use crate::entry::AppendBounds;
use crate::extent::{Extent, Read};
use crate::group::Group;
use crate::hot::HotStream;
use crate::hot_read::{following, read_hot, read_run};
use crate::options::READS_PER_SEAL;
use crate::read::{ReadError, ReadLimit, ReadMode, Slice};
use crate::wal::segment::SegmentTable;
use bytes::Bytes;
use model::{ByteOffset, StreamId, StreamKey};
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
        chunk: Arc<ChunkFile>,
        row: Row,
    },
    /// Behind the last byte.
    Tail,
    /// In a chunk, or nowhere: another thread has to look.
    Elsewhere(ColdLookup),
}

impl Group {
    /// Offset after the last byte of a stream.
    pub(crate) fn tail(&self, stream: StreamId, slots: &SegmentTable) -> Option<u64> {
        let floor = self.chunks.floor(stream.get());
        self.cold_lookup((stream, floor), 0, slots).tail(ReadMode::Blocking).ok().flatten()
    }

    fn locate(
        &self,
        stream: StreamId,
        at: u64,
        (slots, mode): (&SegmentTable, ReadMode),
    ) -> Result<Place<'_>, ReadError> {
        let floor = self.chunks.floor(stream.get());
        match floor {
            GONE => return Err(ReadError::NotFound),
            head if at < head => return Err(ReadError::Trimmed { head: ByteOffset::new(head) }),
            _ => {}
        }
        // Live readers are at the tail: they need no look at the chunks.
        if self.hot.end_of(stream) == Some(at) && !self.hot.has_old() {
            return Ok(Place::Tail);
        }
        if let Some((stream, index)) = self.hot.find(stream, at) {
            return Ok(Place::Hot { stream, index });
        }
        let lookup = self.cold_lookup((stream, floor), at, slots);
        match lookup.find(at, mode) {
            Ok(ColdPlace::Chunk { chunk, row }) => Ok(Place::Chunk { chunk, row }),
            Ok(ColdPlace::Tail) => Ok(Place::Tail),
            Err(error) if error.would_block() => Ok(Place::Elsewhere(lookup)),
            Err(error) => Err(error),
        }
    }

    fn cold_lookup(
        &self,
        (stream, floor): (StreamId, u64),
        at: u64,
        slots: &SegmentTable,
    ) -> ColdLookup {
        let hot_after = self.hot.first_after(stream, at).map(|append| {
            let fields = append.fields();
            (Arc::clone(slots.get(fields.slot)), fields.position)
        });
        ColdLookup {
            chunks: Arc::clone(self.chunks.list()),
            stream: stream.get(),
            floor,
            // What was dropped may still be on its way into a chunk.
            hot_tail: self.hot.end_of(stream).filter(|end| *end > floor),
            hot_after,
        }
    }

    /// Bytes from `from`, at most `limit`, at least one unless `from` is the tail.
    pub(crate) fn read(
        &self,
        stream: StreamId,
        from: u64,
        limit: ReadLimit,
        (slots, mode): (&SegmentTable, ReadMode),
    ) -> Result<Slice, ReadError> {
        match self.locate(stream, from, (slots, mode))? {
            Place::Tail => Ok(Slice::Bytes(Bytes::new())),
            Place::Hot { stream: hot, index } => {
                let appends = &hot.appends()[index..];
                let key = StreamKey { group: self.id, stream };
                if let Some(slice) = read_run(appends, (key, from, limit.file_bytes), slots) {
                    return Ok(slice);
                }
                let (bytes, far_bytes) = read_hot(appends, from, limit.bytes, (slots, mode))?;
                self.note_far_read(far_bytes);
                Ok(Slice::Bytes(bytes))
            }
            Place::Chunk { chunk, row } => {
                let (position, length) = row.part(from, limit.file_bytes);
                chunk.verify(&row, (position, length), mode)?;
                let file = chunk.file(mode)?;
                if mode == ReadMode::Inline && !file.are_ends_cached(position, length) {
                    return Err(would_block());
                }
                Ok(Slice::File { file, position, length })
            }
            Place::Elsewhere(_) => Err(would_block()),
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
        match self.locate(stream, from, (slots, ReadMode::Inline))? {
            Place::Tail => Ok(None),
            Place::Hot { stream, index } => {
                let appends = following(&stream.appends()[index..], max_bytes as u64);
                let appends = &appends[..appends.len().min(EXTENT_APPENDS_MAX)];
                Ok(Some(Extent::hot(appends, slots)))
            }
            Place::Chunk { chunk, row } => Ok(Some(Extent::chunk(chunk, row))),
            Place::Elsewhere(lookup) => Ok(Some(Extent::cold(lookup))),
        }
    }

    /// Learns what a read elsewhere has found out.
    pub(crate) fn note_extent(&self, stream: StreamId, extent: &Extent) {
        // It may have waited for the disk each time.
        self.note_far_read(extent.far_bytes() * READS_PER_SEAL);
        for read in extent.verified() {
            let known = self.hot.find(stream, read.fields().start);
            let known = known.map(|(hot, index)| &hot.appends()[index]);
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
        match self.locate(stream, at, (slots, mode))? {
            Place::Tail => Ok(None),
            Place::Hot { stream, index } => Ok(Some(stream.appends()[index].bounds())),
            Place::Chunk { chunk, row } => Ok(Some(chunk.append_at(&row, at, mode)?.bounds)),
            Place::Elsewhere(_) => Err(would_block()),
        }
    }

    /// The append that is looked for, or the search for another thread; no append if the stream has none like that.
    pub(crate) fn find_append(
        &self,
        stream: StreamId,
        aim: Aim,
        (slots, mode): (&SegmentTable, ReadMode),
    ) -> Result<Read<Option<PlacedAppend>>, ReadError> {
        let floor = self.chunks.floor(stream.get());
        if floor == GONE {
            return Err(ReadError::NotFound);
        }
        let hot = match aim {
            Aim::Byte(at) => self.hot.find(stream, at.get()).map(|(hot, at)| hot.numbered_at(at)),
            Aim::Record(number) => self.hot.find_record(stream, number),
            Aim::Time(aim) => self.hot.find_time(stream, aim, floor),
        };
        let is_answer = match aim {
            Aim::Byte(at) if at.get() < floor => {
                return Err(ReadError::Trimmed { head: ByteOffset::new(floor) });
            }
            // What was dropped may still be on its way into a chunk.
            Aim::Byte(_) | Aim::Record(_) => {
                hot.is_some_and(|append| append.bounds.end.get() > floor)
            }
            Aim::Time(aim) => self.hot.begins_before(stream, aim),
        };
        if is_answer {
            return Ok(Read::Ready(hot));
        }
        let at = match aim {
            // As in `locate`.
            Aim::Byte(at) if self.hot.end_of(stream) == Some(at.get()) && !self.hot.has_old() => {
                return Ok(Read::Ready(None));
            }
            Aim::Byte(at) => at.get(),
            Aim::Record(_) | Aim::Time(_) => 0,
        };
        let search = ColdSearch { lookup: self.cold_lookup((stream, floor), at, slots), aim, hot };
        match search.find(mode) {
            Err(error) if error.would_block() => Ok(Read::Job(Extent::search(search))),
            found => found.map(Read::Ready),
        }
    }
}

fn would_block() -> ReadError {
    io::Error::from(io::ErrorKind::WouldBlock).into()
}
