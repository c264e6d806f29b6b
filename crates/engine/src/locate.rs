//! Finds the frame of an entry by its id.
//!
//! # Why
//! There is no index of ids: every frame says which ids it holds, and the log knows where the frame
//! around a byte begins. So an id is found by guessing its byte from the ids around it, which are
//! mostly even, and halving when they are not. A reader that continues where it stopped needs no
//! search: the stream remembers the places of the last readers.
//!
//! # Invariants
//! - Every step of the search narrows the range of bytes.
//! - A damaged frame is stepped over: it costs its own entries and no others.

use crate::command::{FRAME_HEADER_BYTES, Position, u32_at, u64_at};
use crate::streams::Stream;
use log::{ReadError, ShardLog};
use model::{ByteOffset, GroupId, StreamKey};

pub(crate) const GROUP: GroupId = GroupId::new(0);

/// Damaged frames in a row that a search steps over one by one before it halves what is left.
const STEPS_MAX: u32 = 64;

/// A frame: its bytes and its ids.
#[derive(Debug, Clone, Copy)]
struct Frame {
    start: u64,
    end: u64,
    first: u64,
    count: u64,
}

fn frame_at(log: &ShardLog, key: StreamKey, at: u64) -> Result<Frame, ReadError> {
    let bounds = log.append_at(key, ByteOffset::new(at))?;
    let bounds = bounds.ok_or(ReadError::NotFound)?;
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
    while header.len() < FRAME_HEADER_BYTES {
        let from = bounds.start.advance(header.len() as u64);
        let piece = log.read(key, from, FRAME_HEADER_BYTES - header.len())?.to_bytes()?;
        if piece.is_empty() {
            return Err(ReadError::NotFound);
        }
        header.extend_from_slice(&piece);
    }
    let first = u64_at(&header, 0).expect("the header is whole");
    let count = u32_at(&header, 8).expect("the header is whole");
    let (start, end) = (bounds.start.get(), bounds.end.get());
    Ok(Frame { start, end, first, count: u64::from(count) })
}

/// The first intact frame at `at` or behind it and before `limit`.
fn intact_from(
    log: &ShardLog,
    key: StreamKey,
    at: u64,
    limit: u64,
) -> Result<Option<Frame>, ReadError> {
    let (mut at, mut steps) = (at, 0);
    while at < limit {
        match frame_at(log, key, at) {
            Ok(frame) => return Ok(Some(frame)),
            Err(error @ ReadError::Io(_)) => return Err(error),
            Err(_) => {}
        }
        let end = log.append_at(key, ByteOffset::new(at)).ok().flatten();
        at = match end {
            Some(bounds) if steps < STEPS_MAX => bounds.end.get(),
            _ => at + (limit - at).div_ceil(2),
        };
        steps += 1;
    }
    Ok(None)
}

/// The byte at which the frame of entry `id` starts, and the frame's first id.
///
/// # Errors
/// [`ReadError::NotFound`] if the entry is lost; otherwise any error of the underlying disk.
///
/// # Panics
/// If `id` is not `head <= id < tail`.
pub(crate) fn locate(log: &ShardLog, stream: &Stream, id: u64) -> Result<Position, ReadError> {
    let key = StreamKey { group: GROUP, stream: stream.id };
    let (mut low, mut high) = (stream.head, stream.tail);
    assert!(low.id <= id && id < high.id, "entry {id} is not between head and tail");
    let mut is_halving = false;
    while low.offset < high.offset {
        let bytes = high.offset - low.offset;
        let ids = (high.id - low.id).max(1);
        let guess = u128::from(id.saturating_sub(low.id)) * u128::from(bytes) / u128::from(ids);
        let guess = if is_halving { bytes / 2 } else { guess as u64 };
        is_halving = !is_halving;
        let at = low.offset + guess.min(bytes - 1);
        match intact_from(log, key, at, high.offset)? {
            Some(frame) if frame.first + frame.count <= id => {
                low = Position { id: frame.first + frame.count, offset: frame.end };
            }
            Some(frame) if frame.first <= id => {
                return Ok(Position { id: frame.first, offset: frame.start });
            }
            Some(frame) => high = Position { id: frame.first, offset: at.min(frame.start) },
            None => high.offset = at,
        }
    }
    Err(ReadError::NotFound)
}
