//! Reads of appends in the WAL, by the shard or on another thread.

use crate::hot::{HotAppend, Span, check_on_disk, first_span};
use crate::options::{COPY_BYTES, READ_GAP_BYTES_MAX};
use crate::read::{ReadError, ReadMode, Slice};
use crate::wal::recent_runs::{COPIES_MIN, RUN_BYTES_MAX};
use crate::wal::segment::{SegmentFile, SegmentTable};
use bytes::{Bytes, BytesMut};
use model::StreamKey;
use model::limits::READ_WINDOW_BYTES_MAX;
use std::cell::Cell;
use std::io;

/// What a read of the file counts at least: a short one costs as much as copying so many bytes.
const SPAN_BYTES_MIN: u64 = 4 << 10;

thread_local! {
    /// What this thread reads files into, kept so that not every read fills it with zeroes first.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Copies bytes of neighbouring appends: from memory, or from the WAL, near ones with one read, each checked once. Returns
/// them, and what was read for them if it took more than one read.
pub(crate) fn read_hot<S: Segments>(
    appends: &[HotAppend],
    from: u64,
    max_bytes: usize,
    (segments, mode): (&S, ReadMode),
) -> Result<(Bytes, u64), ReadError> {
    let first = &appends[0];
    let first_length = first.end() - from;
    if first.end() - first.fields().start > max_bytes as u64 || first_length >= max_bytes as u64 {
        let bytes = read_part(first, from, max_bytes, (segments, mode))?;
        return Ok((bytes, 0));
    }
    let mut scratch = SCRATCH.take();
    let mut copied = Copied {
        bytes: BytesMut::with_capacity(max_bytes.min(COPY_BYTES)),
        from,
        max_bytes,
        is_ended: false,
    };
    let mut rest = following(appends, max_bytes as u64);
    // Every byte of other streams that is taken along costs a copy: four times is enough. Short appends that are far
    // from each other fill no window; what is found for the price of one is returned, and the caller asks again.
    let span_bytes_max = 4 * max_bytes as u64;
    let bytes_max = span_bytes_max.max(4 * READ_WINDOW_BYTES_MAX as u64);
    let (mut left_bytes, mut reads, mut may_load) = (bytes_max, 0, true);
    while !rest.is_empty() && !copied.is_full() && left_bytes > 0 {
        let count = copied.copy_from_memory(rest, segments);
        rest = &rest[count..];
        if count > 0 {
            continue;
        }
        // One piece at most: to load it takes the loop's time.
        if may_load && segments.read_around(&rest[0], mode) {
            may_load = false;
            continue;
        }
        let span = first_span(rest, READ_GAP_BYTES_MAX, span_bytes_max.min(left_bytes));
        left_bytes = left_bytes.saturating_sub(span.length.max(SPAN_BYTES_MIN));
        reads += 1;
        segments.note_misses(span.append_count);
        copied.copy_span(rest, &span, (segments, mode), &mut scratch)?;
        rest = &rest[span.append_count..];
    }
    if scratch.len() <= COPY_BYTES {
        SCRATCH.set(scratch);
    }
    let far_bytes = if reads > 1 { bytes_max - left_bytes } else { 0 };
    Ok((copied.bytes.freeze(), far_bytes))
}

/// What a read has found so far.
struct Copied {
    bytes: BytesMut,
    from: u64,
    max_bytes: usize,
    /// What comes next is damaged, or not at hand: what was found before is the answer.
    is_ended: bool,
}

impl Copied {
    fn is_full(&self) -> bool {
        self.is_ended || self.bytes.len() >= self.max_bytes
    }

    /// Copies the appends at the front that are in memory, and returns how many.
    fn copy_from_memory(&mut self, appends: &[HotAppend], segments: &impl Segments) -> usize {
        for (index, append) in appends.iter().enumerate() {
            if self.is_full() {
                return index;
            }
            if let Some(bytes) = segments.recent(append) {
                self.put(bytes, append.fields().start);
            } else if !segments.cached(append, |bytes| self.put_checked(append, bytes, true)) {
                return index;
            }
        }
        appends.len()
    }

    /// Adds the bytes of an append if they are what was acknowledged; whether they are. What could not be read whole is compared again.
    fn put_checked(&mut self, append: &HotAppend, bytes: &[u8], is_whole: bool) -> bool {
        if !append.is_verified() || !is_whole {
            if crc32c::crc32c(bytes) != append.fields().crc {
                return false;
            }
            append.set_verified();
        }
        self.put(bytes, append.fields().start);
        true
    }

    /// Reads a span of the WAL and copies its appends. Where there is something already, nothing fails: it ends there.
    fn copy_span(
        &mut self,
        appends: &[HotAppend],
        span: &Span,
        (segments, mode): (&impl Segments, ReadMode),
        scratch: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let file = &segments.segment(span.slot).file;
        let length = usize::try_from(span.length).expect("a span is bounded");
        if scratch.len() < length {
            scratch.resize(length, 0);
        }
        let read = mode.fill(&**file, &mut scratch[..length], span.position);
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if read.as_ref().is_err_and(is_late) && !self.bytes.is_empty() {
            self.is_ended = true;
            return Ok(());
        }
        let is_whole = read?;
        for append in &appends[..span.append_count] {
            let fields = append.fields();
            let start = (u64::from(fields.position) - span.position) as usize;
            let bytes = &scratch[start..start + fields.length as usize];
            if !self.put_checked(append, bytes, is_whole) {
                self.is_ended = true;
                let is_first = self.bytes.is_empty();
                return if is_first { Err(append.damaged(segments)) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// Adds the bytes of an append behind `from`, as far as they fit.
    fn put(&mut self, bytes: &[u8], start: u64) {
        let skip = self.from.saturating_sub(start) as usize;
        let take = (bytes.len() - skip).min(self.max_bytes - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[skip..skip + take]);
    }
}

/// At most so many bytes of a long read from `from` in one piece. A run has them, or one is made of what is in memory.
/// `appends` begin with the one that holds byte `from`.
pub(crate) fn read_run(
    appends: &[HotAppend],
    (stream, from, bytes_max): (StreamKey, u64, usize),
    slots: &SegmentTable,
) -> Option<Slice> {
    let mut runs = slots.runs();
    let end = appends.last()?.end();
    let asked_bytes = (end - from).min(bytes_max as u64);
    if !runs.is_long(asked_bytes) {
        return None;
    }
    if let Some(slice) = runs.find(stream, from, bytes_max) {
        return Some(slice);
    }
    let asked_before = runs.asked_before((stream, from), asked_bytes);
    if asked_before < COPIES_MIN {
        return None;
    }
    let (mut pieces, mut bytes, mut next) = (Vec::new(), 0, from);
    let wanted = bytes_max.min(RUN_BYTES_MAX);
    for append in appends {
        // A hole is where a chunk has the bytes.
        let is_next = append.fields().start <= next;
        let recent = if is_next && bytes < wanted { Segments::recent(slots, append) } else { None };
        let Some(piece) = recent else { break };
        let skipped = usize::try_from(next - append.fields().start).expect("inside an append");
        let piece = &piece[skipped..];
        let piece = &piece[..piece.len().min(wanted - bytes)];
        bytes += piece.len();
        next += piece.len() as u64;
        pieces.push(piece);
    }
    if runs.is_long(bytes as u64) { runs.put((stream, from), asked_before, &pieces) } else { None }
}

/// The appends at the front that follow each other without a hole, up to about `max_bytes`.
pub(crate) fn following(appends: &[HotAppend], max_bytes: u64) -> &[HotAppend] {
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
    (segments, mode): (&impl Segments, ReadMode),
) -> Result<Bytes, ReadError> {
    let (fields, skip) = (append.fields(), (from - append.fields().start) as usize);
    let length = usize::try_from(append.end() - from).unwrap_or(usize::MAX).min(max_bytes);
    if let Some(bytes) = segments.recent(append) {
        return Ok(Bytes::copy_from_slice(&bytes[skip..skip + length]));
    }
    segments.note_misses(1);
    let file = &segments.segment(fields.slot).file;
    if !append.is_verified() {
        if !check_on_disk(append, &**file, mode)? {
            return Err(append.damaged(segments));
        }
        append.set_verified();
    }
    let mut out = BytesMut::zeroed(length);
    let position = u64::from(fields.position) + skip as u64;
    let is_whole = mode.fill(&**file, &mut out, position)?;
    if is_whole { Ok(out.freeze()) } else { Err(append.damaged(segments)) }
}

/// Segment files by their slot, and what of them is in memory.
pub(crate) trait Segments {
    /// # Panics
    /// If nothing is open under `slot`.
    fn segment(&self, slot: u16) -> &SegmentFile;

    /// The bytes of an append, if they are in memory.
    fn recent(&self, append: &HotAppend) -> Option<&[u8]>;

    /// Gives the bytes of an append to `take` if the cache of the log has them; whether it has and `take` says so.
    fn cached(&self, append: &HotAppend, take: impl FnOnce(&[u8]) -> bool) -> bool;

    /// Counts a read of the file for an append. If what lies around it is worth it, that is read into the cache: whether it was.
    fn read_around(&self, append: &HotAppend, mode: ReadMode) -> bool;

    /// Counts appends that were not in memory.
    fn note_misses(&self, count: usize);
}

impl Segments for SegmentTable {
    fn segment(&self, slot: u16) -> &SegmentFile {
        self.get(slot)
    }

    fn recent(&self, append: &HotAppend) -> Option<&[u8]> {
        self.recent(append.place(), append.fields().length)
    }

    fn cached(&self, append: &HotAppend, take: impl FnOnce(&[u8]) -> bool) -> bool {
        self.cached(append.place(), append.fields().length, take)
    }

    fn read_around(&self, append: &HotAppend, mode: ReadMode) -> bool {
        self.read_around(append.place(), mode)
    }

    fn note_misses(&self, count: usize) {
        self.note_recent_misses(count);
    }
}

impl HotAppend {
    pub(crate) fn damaged(&self, segments: &impl Segments) -> ReadError {
        let fields = self.fields();
        let file = segments.segment(fields.slot).path.clone();
        ReadError::Damaged { file, position: u64::from(fields.position) }
    }
}
