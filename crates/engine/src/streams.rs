//! The state machine: which streams there are, where they start and end, and their cursors.
//!
//! # Invariants
//! - `head <= tail <= written` for each stream: trimmed up to, applied, and copied into a batch.
//! - `apply` is the same in life and in recovery and depends on the entry and the state alone.
//! - A stream's id is the index of the entry that made it, so never used again.

use crate::command::{Command, Position, u32_at, u64_at};
use crate::hints::Hints;
use log::{CheckpointRow, CheckpointRows};
use model::{ByteOffset, EntryIndex, PathHash, Placement, StreamId};
use std::collections::{BTreeMap, HashMap};
use xxhash_rust::xxh3::xxh3_64;

/// One stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) name: Box<str>,
    /// The first entry that is kept; the offset is that of its frame.
    pub(crate) head: Position,
    /// Behind the last applied entry.
    pub(crate) tail: Position,
    /// Behind the last entry that was copied into a batch.
    pub(crate) written: Position,
    /// As applied; what a checkpoint holds.
    pub(crate) cursors: BTreeMap<Box<str>, u64>,
    /// Moves of cursors that were copied into a batch, up to the one at `ahead_index`.
    ahead: BTreeMap<Box<str>, u64>,
    ahead_index: u64,
    pub(crate) hints: Hints,
}

/// What an applied entry asks of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Place(Placement),
    Trim(ByteOffset),
    /// A cursor was moved: see [`Streams::settle_cursors`].
    Cursor,
}

/// All streams of an engine.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    list: Vec<Stream>,
    names: HashMap<Box<str>, usize>,
    ids: HashMap<StreamId, usize>,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|stream| &*stream.name)
    }

    /// The number under which `name` is kept in this process.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub(crate) fn get(&self, number: usize) -> &Stream {
        &self.list[number]
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> &mut Stream {
        &mut self.list[number]
    }

    pub(crate) fn by_id(&self, id: StreamId) -> Option<&Stream> {
        self.ids.get(&id).map(|&number| &self.list[number])
    }

    fn by_id_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let number = *self.ids.get(&id)?;
        Some(&mut self.list[number])
    }

    /// Keeps a stream; the number under which it is found.
    fn insert(&mut self, stream: Stream) -> usize {
        let number = self.list.len();
        self.ids.insert(stream.id, number);
        self.names.insert(stream.name.clone(), number);
        self.list.push(stream);
        number
    }

    /// Makes a stream whose creation is on its way into the log.
    pub(crate) fn create(&mut self, id: StreamId, name: &str) -> usize {
        self.insert(Stream { id, name: name.into(), ..Stream::default() })
    }

    /// Applies one entry of the log.
    pub(crate) fn apply(&mut self, stream: StreamId, kind: u8, bytes: &[u8], data: u64) -> Effect {
        let Some(command) = Command::decode(kind, bytes) else { return Effect::Nothing };
        if let Command::Create { name } = command {
            if self.by_id(stream).is_none() {
                self.create(stream, name);
            }
            return Effect::Nothing;
        }
        if self.by_id(stream).is_none() {
            // The entry that made it is lost, and its name with it: the data need not be.
            self.create(stream, &format!("~lost/{stream}"));
        }
        let state = self.by_id_mut(stream).expect("it was just made");
        match command {
            Command::Append { first, count, .. } => state.apply_append(first, count, data),
            Command::Trim { head } => {
                state.head = head;
                Effect::Trim(ByteOffset::new(head.offset))
            }
            Command::Cursor { name, next } => {
                state.move_cursor(name, next);
                Effect::Cursor
            }
            Command::Create { .. } => Effect::Nothing,
        }
    }

    /// Forgets what was ahead of the applied state if the move at `index` was the last of it.
    pub(crate) fn settle_cursors(&mut self, stream: StreamId, index: EntryIndex) {
        if let Some(state) = self.by_id_mut(stream)
            && state.ahead_index == index.get()
        {
            state.ahead.clear();
        }
    }

    /// A lost append: what follows keeps its place, and its ids are not given to others.
    pub(crate) fn lose(&mut self, stream: StreamId, bytes: u64) {
        if let Some(state) = self.by_id_mut(stream) {
            state.tail.offset += bytes;
            // The number of entries is lost too; each has at least its length.
            state.tail.id += bytes / 4;
            state.written = state.tail;
        }
    }

    /// The rows of a checkpoint at `applied`. A stream whose creation is not applied yet has none. Its id is the index of an entry
    /// that may still be lost, and then another stream gets it.
    pub(crate) fn rows(&self, applied: EntryIndex) -> CheckpointRows {
        let is_applied = |stream: &&Stream| stream.id.get() <= applied.get();
        let mut streams: Vec<&Stream> = self.list.iter().filter(is_applied).collect();
        streams.sort_unstable_by_key(|stream| stream.id);
        let mut rows = CheckpointRows::new();
        let mut row = Vec::new();
        for stream in streams {
            row.clear();
            stream.encode(&mut row);
            rows.push(stream.id, PathHash::new(xxh3_64(stream.name.as_bytes())), &row);
        }
        rows
    }

    /// Takes a row of a checkpoint; `None` if it is none of ours.
    pub(crate) fn restore(&mut self, row: CheckpointRow<'_>) -> Option<()> {
        let stream = Stream::decode(row.stream, row.bytes)?;
        self.insert(stream);
        Some(())
    }
}

impl Stream {
    /// The cursor of the reader `name`: as acknowledged with `is_ahead`, otherwise as applied.
    pub(crate) fn cursor(&self, name: &str, is_ahead: bool) -> Option<u64> {
        let ahead = self.ahead.get(name).filter(|_| is_ahead);
        ahead.or_else(|| self.cursors.get(name)).copied()
    }

    /// Whether one more cursor than `count_max` would be kept with `name`.
    pub(crate) fn is_full_of_cursors(&self, name: &str, count_max: usize) -> bool {
        let is_new = !self.cursors.contains_key(name) && !self.ahead.contains_key(name);
        let made = self.ahead.keys().filter(|name| !self.cursors.contains_key(*name));
        is_new && self.cursors.len() + made.count() >= count_max
    }

    /// Remembers a move that was copied into a batch at `index`.
    pub(crate) fn put_ahead(&mut self, name: &str, next: u64, index: u64) {
        self.ahead_index = index;
        match self.ahead.get_mut(name) {
            Some(place) => *place = next,
            None => _ = self.ahead.insert(name.into(), next),
        }
    }

    fn move_cursor(&mut self, name: &str, next: u64) {
        match self.cursors.get_mut(name) {
            Some(place) => *place = next,
            None => _ = self.cursors.insert(name.into(), next),
        }
    }

    fn apply_append(&mut self, first: Position, count: u32, data: u64) -> Effect {
        // Never over bytes that the stream has: only a forged entry could ask for it.
        if first.offset < self.tail.offset {
            return Effect::Nothing;
        }
        self.tail = Position { id: first.id + u64::from(count), offset: first.offset + data };
        if self.written.offset < self.tail.offset {
            self.written = self.tail;
        }
        let start = ByteOffset::new(first.offset);
        Effect::Place(Placement {
            stream: self.id,
            start,
            first_record: first.id,
            record_count: count,
            marks: None,
        })
    }

    /// head id, head offset, tail id, tail offset (8 each), length of the name (2), the name. Then for
    /// each cursor: next id (8), length of its name (2), its name.
    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.head.id, self.head.offset, self.tail.id, self.tail.offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_name(out, &self.name);
        for (name, next) in &self.cursors {
            out.extend_from_slice(&next.to_le_bytes());
            put_name(out, name);
        }
    }

    fn decode(id: StreamId, bytes: &[u8]) -> Option<Self> {
        let head = Position { id: u64_at(bytes, 0)?, offset: u64_at(bytes, 8)? };
        let tail = Position { id: u64_at(bytes, 16)?, offset: u64_at(bytes, 24)? };
        let (name, mut rest) = name_at(bytes.get(32..)?)?;
        let mut stream =
            Self { id, name: name.into(), head, tail, written: tail, ..Self::default() };
        while !rest.is_empty() {
            let next = u64_at(rest, 0)?;
            let (name, after) = name_at(&rest[8..])?;
            stream.cursors.insert(name.into(), next);
            rest = after;
        }
        Some(stream)
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    // Names are bounded far below 64 KiB.
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
}

fn name_at(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let length = u32_at(&[bytes.get(..2)?, &[0, 0]].concat(), 0)? as usize;
    let name = str::from_utf8(bytes.get(2..2 + length)?).ok()?;
    Some((name, &bytes[2 + length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(streams: &mut Streams, command: Command<'_>, data: u64) -> Effect {
        let mut bytes = Vec::new();
        let kind = command.encode(&mut bytes);
        streams.apply(StreamId::new(7), kind, &bytes, data)
    }

    fn filled() -> Streams {
        let mut streams = Streams::default();
        apply(&mut streams, Command::Create { name: "orders" }, 0);
        let first = Position::default();
        apply(&mut streams, Command::Append { first, count: 3, crc: 0 }, 100);
        apply(&mut streams, Command::Cursor { name: "billing", next: 2 }, 0);
        streams
    }

    #[test]
    fn rows_hold_everything() {
        let streams = filled();
        let rows = streams.rows(EntryIndex::new(7));
        let mut again = Streams::default();
        for row in rows.iter() {
            again.restore(row).unwrap();
        }
        let stream = again.get(again.find("orders").unwrap());
        assert_eq!(stream.tail, Position { id: 3, offset: 100 });
        assert_eq!(stream.cursors["billing"], 2);
        assert_eq!(stream.written, stream.tail);
    }

    #[test]
    fn no_row_holds_a_stream_that_is_being_made() {
        let mut streams = filled();
        streams.create(StreamId::new(10), "mails");
        assert_eq!(streams.rows(EntryIndex::new(9)).len(), 1);
        assert_eq!(streams.rows(EntryIndex::new(10)).len(), 2);
    }

    #[test]
    fn a_cursor_is_ahead_until_its_last_move_is_applied() {
        let mut streams = filled();
        streams.get_mut(0).put_ahead("billing", 1, 50);
        streams.get_mut(0).put_ahead("billing", 3, 51);
        for (index, next) in [(50, 1), (51, 3)] {
            let stream = streams.get(0);
            assert_eq!(stream.cursor("billing", true), Some(3), "what was acknowledged stays so");
            assert_ne!(stream.cursor("billing", false), Some(3));
            let moved = Command::Cursor { name: "billing", next };
            assert_eq!(apply(&mut streams, moved, 0), Effect::Cursor);
            streams.settle_cursors(StreamId::new(7), EntryIndex::new(index));
        }
        assert_eq!(streams.get(0).cursor("billing", false), Some(3));
        assert!(streams.get(0).ahead.is_empty());
    }

    #[test]
    fn an_append_whose_stream_was_lost_keeps_its_data() {
        let mut streams = Streams::default();
        let first = Position { id: 40, offset: 900 };
        let effect = apply(&mut streams, Command::Append { first, count: 1, crc: 0 }, 10);
        assert!(matches!(effect, Effect::Place(_)));
        assert_eq!(streams.get(streams.find("~lost/7").unwrap()).tail.id, 41);
    }

    #[test]
    fn the_ids_of_a_lost_append_are_not_given_again() {
        let mut streams = filled();
        streams.lose(StreamId::new(7), 40);
        let stream = streams.get(0);
        assert_eq!(stream.written, Position { id: 13, offset: 140 });
    }
}
