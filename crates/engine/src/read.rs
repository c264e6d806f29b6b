//! Reads: entries in the order of their ids.
//!
//! # Invariants
//! - The entries of one answer have contiguous ids, and every one is whole and checked.
//! - The lock is held for one window at a time; bytes of a chunk are read outside of it.

use crate::command::{FRAME_HEADER_BYTES, LENGTH_BYTES, u32_at, u64_at};
use crate::core::Core;
use crate::error::ReadError;
use crate::hints::EntryPlace;
use crate::locate::{GROUP, locate};
use crate::options::READ_BYTES_MAX;
use crate::shared::Shared;
use model::{ByteOffset, StreamKey};
use std::sync::MutexGuard;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 256 << 10;

/// Fewest bytes that are read at once, and what an entry is taken to have.
const WINDOW_BYTES_MIN: usize = 4 << 10;
const ENTRY_BYTES_LIKELY: usize = 1 << 10;

/// How much one read returns: what is reached first ends it, but one entry is always returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most entries; 0 is taken as 1.
    pub entries_max: usize,
    /// Most bytes of entries; at most [`crate::READ_BYTES_MAX`] are returned.
    pub bytes_max: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { entries_max: usize::MAX, bytes_max: WINDOW_BYTES }
    }
}

impl ReadLimits {
    /// What is read at once: a reader of single entries need not read a whole window for each.
    fn window_bytes(&self) -> usize {
        let likely = self.entries_max.saturating_mul(ENTRY_BYTES_LIKELY).max(WINDOW_BYTES_MIN);
        likely.min(self.bytes_max.max(WINDOW_BYTES_MIN)).min(WINDOW_BYTES)
    }
}

/// Entries with contiguous ids.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    first: u64,
    bytes: Vec<u8>,
    /// Start and length of each entry in `bytes`.
    places: Vec<(usize, usize)>,
}

impl Entries {
    /// Number of entries; 0 only at the tail.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the read began at the tail.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The id behind the last entry: where to read on, and what to commit as a cursor.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    /// The entries with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let bytes = |&(start, length): &(usize, usize)| &self.bytes[start..start + length];
        (self.first..).zip(self.places.iter().map(bytes))
    }
}

/// What the next step of a read is.
enum Step {
    Done,
    /// This many more bytes of the stream are needed.
    More(usize),
}

struct Reader {
    limits: ReadLimits,
    /// The id behind the last entry when the read began.
    tail: u64,
    key: StreamKey,
    /// The next entry or frame; its offset is that of `bytes[at]`.
    place: EntryPlace,
    at: usize,
    taken_bytes: usize,
    entries: Entries,
}

impl Shared {
    pub(crate) fn read(
        &self,
        name: &str,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Entries, ReadError> {
        let (number, mut reader) = self.start_read(name, from, limits)?;
        loop {
            match reader.parse() {
                Ok(Step::Done) => break,
                Ok(Step::More(bytes)) => match self.fetch(&mut reader, bytes) {
                    Err(_) if !reader.entries.is_empty() => break,
                    other => other?,
                },
                Err(error) => return Err(error),
            }
        }
        self.lock().streams.get_mut(number).hints.put(from, reader.place);
        Ok(reader.entries)
    }

    /// The lock, when the entry `from` can be read if it was acknowledged.
    fn lock_for(&self, name: &str, from: u64) -> MutexGuard<'_, Core> {
        let core = self.lock();
        let number = core.streams.find(name);
        if number.is_some_and(|number| from < core.streams.get(number).tail.id) {
            return core;
        }
        drop(core);
        self.catch_up();
        self.lock()
    }

    fn start_read(
        &self,
        name: &str,
        from: u64,
        limits: ReadLimits,
    ) -> Result<(usize, Reader), ReadError> {
        let core = self.lock_for(name, from);
        let missing = || ReadError::NoStream { stream: name.to_owned() };
        let number = core.streams.find(name).ok_or_else(missing)?;
        let stream = core.streams.get(number);
        let (head, tail) = (stream.head.id, stream.tail.id);
        if from < head {
            return Err(ReadError::Trimmed { id: from, head });
        }
        if from > tail {
            return Err(ReadError::PastTail { id: from, tail });
        }
        let tail_place = EntryPlace { id: tail, offset: stream.tail.offset, left: 0 };
        let place = match stream.hints.find(from) {
            _ if from == tail => tail_place,
            Some(place) => place,
            None => {
                let frame = locate(&core.shard, stream, from);
                let frame = frame.map_err(|error| ReadError::of(error, from))?;
                EntryPlace { id: frame.id, offset: frame.offset, left: 0 }
            }
        };
        let key = StreamKey { group: GROUP, stream: stream.id };
        let entries = Entries { first: from, ..Entries::default() };
        Ok((number, Reader { limits, tail, key, place, at: 0, taken_bytes: 0, entries }))
    }

    /// Reads on behind the bytes at hand: at least one byte, if possible `bytes` and more.
    fn fetch(&self, reader: &mut Reader, bytes: usize) -> Result<(), ReadError> {
        let behind = reader.entries.bytes.len().saturating_sub(reader.at) as u64;
        let from = ByteOffset::new(reader.place.offset).advance(behind);
        let wanted = bytes.max(reader.limits.window_bytes());
        let id = reader.place.id;
        let slice = self.lock().shard.read(reader.key, from, wanted);
        let piece = slice.and_then(|slice| Ok(slice.to_bytes()?));
        let piece = piece.map_err(|error| ReadError::of(error, id))?;
        if piece.is_empty() {
            return Err(ReadError::of(log::ReadError::NotFound, id));
        }
        reader.entries.bytes.extend_from_slice(&piece);
        Ok(())
    }
}

impl Reader {
    /// Takes entries from the bytes at hand.
    fn parse(&mut self) -> Result<Step, ReadError> {
        while self.place.id < self.tail {
            let rest = self.entries.bytes.get(self.at..).unwrap_or_default();
            if self.place.left == 0 {
                if rest.len() < FRAME_HEADER_BYTES {
                    return Ok(Step::More(FRAME_HEADER_BYTES - rest.len()));
                }
                let (first, count) = (u64_at(rest, 0), u32_at(rest, 8));
                if !self.enter(first.unwrap_or_default(), count.unwrap_or_default())? {
                    break;
                }
                continue;
            }
            let Some(length) = u32_at(rest, 0) else {
                return Ok(Step::More(LENGTH_BYTES - rest.len()));
            };
            let entry_bytes = LENGTH_BYTES + length as usize;
            if self.place.id < self.entries.first {
                self.skip(entry_bytes);
                continue;
            }
            if self.is_full(length as usize) {
                break;
            }
            if rest.len() < entry_bytes {
                return Ok(Step::More(entry_bytes - rest.len()));
            }
            self.entries.places.push((self.at + LENGTH_BYTES, length as usize));
            self.taken_bytes += length as usize;
            self.advance(entry_bytes);
        }
        Ok(Step::Done)
    }

    /// Enters a frame; false if entries before it are lost and there is something to return.
    fn enter(&mut self, first: u64, count: u32) -> Result<bool, ReadError> {
        let next = self.entries.next_id();
        if first > next {
            // Only what was damaged leaves ids out.
            let lost = ReadError::of(log::ReadError::NotFound, next);
            return if self.entries.is_empty() { Err(lost) } else { Ok(false) };
        }
        self.place.id = first;
        self.place.left = count;
        self.place.offset += FRAME_HEADER_BYTES as u64;
        self.at += FRAME_HEADER_BYTES;
        Ok(true)
    }

    fn is_full(&self, length: usize) -> bool {
        let bytes_max = self.limits.bytes_max.min(READ_BYTES_MAX);
        !self.entries.is_empty()
            && (self.entries.len() >= self.limits.entries_max
                || self.taken_bytes + length > bytes_max)
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.place.offset += bytes as u64;
        self.place.id += 1;
        self.place.left -= 1;
    }

    /// Steps over an entry that was not asked for; its bytes need not be read.
    fn skip(&mut self, bytes: usize) {
        self.advance(bytes);
        if self.at >= self.entries.bytes.len() {
            self.entries.bytes.clear();
            self.at = 0;
        }
    }
}
