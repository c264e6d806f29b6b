//! What an engine holds, as a model: streams of entries, heads and cursors, changed by acts.

use crate::dice::Dice;
use ::engine::{Engine, ReadError, ReadLimits};
use std::collections::BTreeMap;

pub(super) const STREAMS: [&str; 63] = [
    "orders", "mails", "logs", "s00", "s01", "s02", "s03", "s04", "s05", "s06", "s07", "s08",
    "s09", "s10", "s11", "s12", "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21",
    "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29", "s30", "s31", "s32", "s33", "s34",
    "s35", "s36", "s37", "s38", "s39", "s40", "s41", "s42", "s43", "s44", "s45", "s46", "s47",
    "s48", "s49", "s50", "s51", "s52", "s53", "s54", "s55", "s56", "s57", "s58", "s59",
];

/// The first streams, which get most of what is done.
const BUSY: usize = 3;

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

impl Act {
    pub(super) fn stream(&self) -> &'static str {
        match self {
            Self::Append { stream, .. }
            | Self::Commit { stream, .. }
            | Self::Trim { stream, .. } => stream,
        }
    }
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

    /// Compares which streams there are with those of the engine. The creation of one of `begun` may be there without the append that it was
    /// for; the model has it from then on, empty.
    pub(super) fn check_streams(
        &mut self,
        found: &[String],
        begun: &[&'static str],
    ) -> Option<String> {
        for stream in begun.iter().filter(|stream| found.iter().any(|name| name == *stream)) {
            self.entries.entry(stream).or_default();
        }
        let unknown = found.iter().find(|name| !self.entries.contains_key(name.as_str()));
        let missing =
            || self.entries.keys().find(|stream| found.iter().all(|name| name != *stream));
        let unknown = unknown.map(|name| format!("{name} is there, which nothing has made"));
        unknown.or_else(|| missing().map(|stream| format!("{stream} is not there")))
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

/// A stream for the next act: mostly a busy one, otherwise any. The others are made late, or never.
pub(super) fn draw_stream(dice: &mut Dice) -> &'static str {
    let streams = if dice.percent(75) { &STREAMS[..BUSY] } else { &STREAMS[..] };
    dice.pick::<&'static str>(streams)
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
