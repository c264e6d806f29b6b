//! The state machine: which streams there are, where they start and end, and their cursors.
//!
//! # Invariants
//! - `head <= tail <= written` for each stream: trimmed up to, applied, and copied into a batch.
//! - `apply` is the same in life and in recovery and depends on the entry and the state alone.
//! - A stream's id is the index of the entry that made it, so never used again.

use crate::command::{Command, Position, u32_at, u64_at};
use crate::locate::Hints;
use log::{CheckpointRow, CheckpointRows, Placement};
use model::{ByteOffset, StreamId};
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
    pub(crate) cursors: BTreeMap<Box<str>, u64>,
    pub(crate) hints: Hints,
}

/// What an applied entry asks of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Place(Placement),
    Trim(ByteOffset),
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
                state.cursors.insert(name.into(), next);
                Effect::Nothing
            }
            Command::Create { .. } => Effect::Nothing,
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

    /// The rows of a checkpoint.
    pub(crate) fn rows(&self) -> CheckpointRows {
        let mut streams: Vec<&Stream> = self.list.iter().collect();
        streams.sort_unstable_by_key(|stream| stream.id);
        let mut rows = CheckpointRows::new();
        let mut row = Vec::new();
        for stream in streams {
            row.clear();
            stream.encode(&mut row);
            rows.push(stream.id, xxh3_64(stream.name.as_bytes()), &row);
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
        Effect::Place(Placement { stream: self.id, start, records: count })
    }

    /// head id, head offset, tail id, tail offset (8 each), length of the name (2), the name, then
    /// for each cursor: next id (8), length of its name (2), its name.
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
        let rows = streams.rows();
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
