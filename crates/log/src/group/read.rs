//! Reads of one group: from the WAL by the hot index, or from chunks.

use crate::chunk::file::ChunkFile;
use crate::chunk::format::ChunkRow;
use crate::entry::AppendBounds;
use crate::group::Group;
use crate::hot::{HotAppend, HotStream, check_on_disk, first_span};
use crate::options::{COPY_BYTES, READ_GAP_BYTES_MAX};
use crate::read::{ReadError, Slice};
use crate::wal::segment::Slots;
use bytes::{Bytes, BytesMut};
use model::limits::READ_WINDOW_BYTES_MAX;
use model::{ByteOffset, StreamId};
use std::cell::Cell;
use std::sync::Arc;

/// What a read of the file counts at least: a short one costs as much as copying so many bytes.
const SPAN_BYTES_MIN: u64 = 4 << 10;

thread_local! {
    /// What this thread reads files into, kept so that not every read fills it with zeroes first.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Where a byte stands.
enum Place<'a> {
    Hot {
        stream: &'a HotStream,
        index: usize,
    },
    Chunk {
        chunk: &'a ChunkFile,
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

    fn locate(&self, stream: StreamId, at: u64, slots: &Slots) -> Result<Place<'_>, ReadError> {
        if let Some(&head) = self.heads.get(&stream)
            && at < head.get()
        {
            return Err(ReadError::Trimmed { head });
        }
        if let Some(hot) = self.streams.get(&stream) {
            // Live readers stand at the tail: they need no look at the chunks.
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
    fn hole(&self, stream: StreamId, at: u64, slots: &Slots) -> ReadError {
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
        slots: &Slots,
    ) -> Result<Slice, ReadError> {
        match self.locate(stream, from, slots)? {
            Place::Tail => Ok(Slice::Bytes(Bytes::new())),
            Place::Hot { stream, index } => {
                let appends = &stream.appends()[index..];
                let (bytes, far_bytes) = read_hot(appends, from, max_bytes, slots)?;
                self.far_read_bytes.set(self.far_read_bytes.get() + far_bytes);
                Ok(Slice::Bytes(bytes))
            }
            Place::Chunk { chunk, row } => {
                let position = u64::from(row.position) + (from - row.start);
                let length = (row.end() - from).min(max_bytes as u64);
                chunk.verify(row, (position, length))?;
                Ok(Slice::File { file: Arc::clone(&chunk.file), position, length })
            }
        }
    }

    /// The append that contains byte `at`.
    pub(crate) fn append_at(
        &self,
        stream: StreamId,
        at: u64,
        slots: &Slots,
    ) -> Result<Option<AppendBounds>, ReadError> {
        match self.locate(stream, at, slots)? {
            Place::Tail => Ok(None),
            Place::Hot { stream, index } => Ok(Some(stream.appends()[index].bounds())),
            Place::Chunk { chunk, row } => chunk.append_at(row, at).map(Some),
        }
    }
}

/// Copies bytes of neighbouring appends, near ones with one read, each checked once. Returns them, and what was read
/// for them if it took more than one read.
fn read_hot(
    appends: &[HotAppend],
    from: u64,
    max_bytes: usize,
    slots: &Slots,
) -> Result<(Bytes, u64), ReadError> {
    let first = &appends[0];
    let first_length = first.end() - from;
    if first.end() - first.fields().start > max_bytes as u64 || first_length >= max_bytes as u64 {
        return read_part(first, from, max_bytes, slots).map(|bytes| (bytes, 0));
    }
    let mut out = BytesMut::with_capacity(max_bytes.min(COPY_BYTES));
    let mut scratch = SCRATCH.take();
    let mut rest = following(appends, max_bytes as u64);
    // Every byte of other streams that is taken along costs a copy: four times is enough. Short appends that are far
    // from each other fill no window; what is found for the price of one is returned, and the caller asks again.
    let span_bytes_max = 4 * max_bytes as u64;
    let bytes_max = span_bytes_max.max(4 * READ_WINDOW_BYTES_MAX as u64);
    let (mut left_bytes, mut reads) = (bytes_max, 0);
    while !rest.is_empty() && out.len() < max_bytes && left_bytes > 0 {
        let span = first_span(rest, READ_GAP_BYTES_MAX, span_bytes_max.min(left_bytes));
        left_bytes = left_bytes.saturating_sub(span.length.max(SPAN_BYTES_MIN));
        reads += 1;
        let file = &slots.get(span.slot).file;
        let length = usize::try_from(span.length).expect("a span is bounded");
        if scratch.len() < length {
            scratch.resize(length, 0);
        }
        file.read_exact_at(&mut scratch[..length], span.position)?;
        for append in &rest[..span.append_count] {
            let fields = append.fields();
            let start = (u64::from(fields.position) - span.position) as usize;
            let bytes = &scratch[start..start + fields.length as usize];
            if !append.is_verified() {
                if crc32c::crc32c(bytes) != fields.crc {
                    return if out.is_empty() {
                        Err(append.damaged(slots))
                    } else {
                        Ok((out.freeze(), 0))
                    };
                }
                append.set_verified();
            }
            let skip = from.saturating_sub(fields.start) as usize;
            let take = (bytes.len() - skip).min(max_bytes - out.len());
            out.extend_from_slice(&bytes[skip..skip + take]);
        }
        rest = &rest[span.append_count..];
    }
    if scratch.len() <= COPY_BYTES {
        SCRATCH.set(scratch);
    }
    let far_bytes = if reads > 1 { bytes_max - left_bytes } else { 0 };
    Ok((out.freeze(), far_bytes))
}

/// The appends at the front that follow each other without a hole, up to about `max_bytes`.
fn following(appends: &[HotAppend], max_bytes: u64) -> &[HotAppend] {
    let (mut count, mut bytes) = (1, appends[0].end() - appends[0].fields().start);
    while let Some(next) = appends.get(count)
        && next.fields().start == appends[count - 1].end()
        && bytes < max_bytes
    {
        // A large append is left to a read of its own.
        if next.end() - next.fields().start > max_bytes {
            break;
        }
        bytes += next.end() - next.fields().start;
        count += 1;
    }
    &appends[..count]
}

/// Reads inside one append that is larger than the window.
fn read_part(
    append: &HotAppend,
    from: u64,
    max_bytes: usize,
    slots: &Slots,
) -> Result<Bytes, ReadError> {
    if !append.is_verified() {
        if !check_on_disk(append, slots, COPY_BYTES)? {
            return Err(append.damaged(slots));
        }
        append.set_verified();
    }
    let length = usize::try_from(append.end() - from).unwrap_or(usize::MAX).min(max_bytes);
    let mut out = BytesMut::zeroed(length);
    let fields = append.fields();
    let position = u64::from(fields.position) + (from - fields.start);
    slots.get(fields.slot).file.read_exact_at(&mut out, position)?;
    Ok(out.freeze())
}

impl HotAppend {
    fn damaged(&self, slots: &Slots) -> ReadError {
        let fields = self.fields();
        let file = slots.get(fields.slot).path.clone();
        ReadError::Damaged { file, position: u64::from(fields.position) }
    }
}
