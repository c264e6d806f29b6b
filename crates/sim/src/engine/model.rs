//! What an engine holds, as a model: streams of entries, heads and cursors, changed by acts.

use crate::dice::Dice;
use ::engine::{Engine, ReadError, ReadLimits};
use std::collections::BTreeMap;

pub(super) const STREAMS: [&str; 3] = ["orders", "mails", "logs"];
pub(super) const CURSORS: [&str; 2] = ["billing", "audit"];

/// Entries of one stream that are read back at once.
const READ_ENTRIES_MAX: usize = 50;

/// A change that was tried.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Append { stream: &'static str, entries: Vec<Vec<u8>> },
    Commit { cursor: &'static str, stream: &'static str, next: u64 },
    Trim { stream: &'static str, upto: u64 },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    entries: BTreeMap<&'static str, Vec<Vec<u8>>>,
    heads: BTreeMap<&'static str, u64>,
    cursors: BTreeMap<(&'static str, &'static str), u64>,
}

impl Model {
    pub(super) fn tail(&self, stream: &str) -> u64 {
        self.entries.get(stream).map_or(0, |entries| entries.len() as u64)
    }

    fn head(&self, stream: &str) -> u64 {
        self.heads.get(stream).copied().unwrap_or(0)
    }

    pub(super) fn apply(&mut self, act: &Act) {
        match act {
            Act::Append { stream, entries } => {
                self.entries.entry(stream).or_default().extend_from_slice(entries);
            }
            Act::Commit { cursor, stream, next } => {
                self.cursors.insert((cursor, stream), *next);
            }
            Act::Trim { stream, upto } => {
                let head = self.heads.entry(stream).or_default();
                *head = (*head).max(*upto);
            }
        }
    }

    /// Whether ends and cursors are those of the engine.
    pub(super) fn matches(&self, engine: &Engine) -> bool {
        let ends = STREAMS.iter().all(|stream| {
            let ends = engine.ends(stream);
            (ends.head, ends.tail) == (self.head(stream), self.tail(stream))
        });
        ends && CURSORS.iter().all(|cursor| {
            STREAMS.iter().all(|stream| {
                let expected = self.cursors.get(&(*cursor, *stream)).copied().unwrap_or(0);
                engine.cursor(cursor, stream) == expected
            })
        })
    }

    /// What differs in the contents, if anything does.
    pub(super) fn differs(&self, engine: &Engine) -> Option<String> {
        STREAMS.iter().find_map(|stream| {
            let mut from = self.head(stream);
            while from < self.tail(stream) {
                match self.compare(engine, (stream, from)) {
                    Ok(Some(next)) => from = next,
                    Ok(None) => return None,
                    Err(problem) => return Some(format!("{stream} at {from}: {problem}")),
                }
            }
            None
        })
    }

    /// Reads some entries from an id on and compares them; the id after the last one, if the disk can read them.
    pub(super) fn compare(
        &self,
        engine: &Engine,
        place: (&str, u64),
    ) -> Result<Option<u64>, String> {
        let (stream, from) = place;
        let limits = ReadLimits { entries_max: READ_ENTRIES_MAX, ..ReadLimits::default() };
        let found = match engine.read(stream, from, limits) {
            Ok(found) => found,
            Err(ReadError::Io(_)) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        if found.is_empty() {
            return Err("there is no entry below the tail".to_owned());
        }
        let entries = self.entries.get(stream).map_or(&[][..], Vec::as_slice);
        for (expected_id, (id, entry)) in (from..).zip(found.iter()) {
            let expected = entries.get(usize::try_from(id).expect("an index"));
            if id != expected_id || expected.is_none_or(|expected| expected != entry) {
                return Err(format!("entry {id} where {expected_id} was expected, or other bytes"));
            }
        }
        Ok(Some(found.next_id()))
    }
}

/// The entries of an append: mostly one short entry, sometimes a batch, now and then a large one.
pub(super) fn draw_entries(dice: &mut Dice, number: u64) -> Vec<Vec<u8>> {
    let count = if dice.percent(25) { dice.between(2, 9) } else { 1 };
    let large = dice.percent(2);
    let entry = |part: u64, length: u64| {
        let mut entry = format!("{number} {part} ").into_bytes();
        entry.resize(usize::try_from(length).expect("a length"), b'.');
        entry
    };
    let lengths =
        (0..count).map(|_| if large { dice.between(1_000, 60_000) } else { dice.between(8, 600) });
    let lengths: Vec<u64> = lengths.collect();
    (0..).zip(lengths).map(|(part, length)| entry(part, length)).collect()
}
