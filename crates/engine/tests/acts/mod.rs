//! A model of an engine and random acts on both, until the power goes.

#![allow(dead_code, reason = "each test program uses a part of this")]

use crate::disk::read_from;
use env::{MemoryDisk, Random, SeededRandom};
use std::collections::BTreeMap;
use thalweg_engine::{Class, Durability, Engine, WriteError};

pub(crate) const STREAMS: [&str; 3] = ["orders", "mails", "logs"];
pub(crate) const CURSORS: [&str; 2] = ["billing", "audit"];

/// Something that was tried.
#[derive(Debug, Clone)]
enum Act {
    Append(&'static str, Vec<Vec<u8>>),
    Commit(&'static str, &'static str, u64),
    Trim(&'static str, u64),
}

/// What an engine holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    entries: BTreeMap<&'static str, Vec<Vec<u8>>>,
    heads: BTreeMap<&'static str, u64>,
    cursors: BTreeMap<(&'static str, &'static str), u64>,
}

impl Model {
    fn tail(&self, stream: &str) -> u64 {
        self.entries.get(stream).map_or(0, |entries| entries.len() as u64)
    }

    fn apply(&mut self, act: &Act) {
        match act {
            Act::Append(stream, entries) => {
                self.entries.entry(stream).or_default().extend_from_slice(entries);
            }
            Act::Commit(cursor, stream, next) => {
                self.cursors.insert((cursor, stream), *next);
            }
            Act::Trim(stream, upto) => {
                let head = self.heads.entry(stream).or_default();
                *head = (*head).max(*upto);
            }
        }
    }

    /// Ends and cursors as the engine reports them.
    pub(crate) fn matches(&self, engine: &Engine) -> bool {
        let ends = STREAMS.iter().all(|stream| {
            let ends = engine.ends(stream);
            let head = self.heads.get(stream).copied().unwrap_or(0);
            (ends.head, ends.tail) == (head, self.tail(stream))
        });
        let mut cursors = CURSORS.iter().flat_map(|c| STREAMS.iter().map(move |s| (*c, *s)));
        ends && cursors.all(|(cursor, stream)| {
            engine.cursor(cursor, stream)
                == self.cursors.get(&(cursor, stream)).copied().unwrap_or(0)
        })
    }

    pub(crate) fn check_contents(&self, engine: &Engine, seed: u64) {
        for (stream, entries) in &self.entries {
            let head = self.heads.get(stream).copied().unwrap_or(0);
            let found = read_from(engine, stream, head);
            assert!(found == entries[head as usize..], "seed {seed}: contents of {stream}");
        }
    }
}

pub(crate) fn pick<T: Copy>(random: &mut SeededRandom, from: &[T]) -> T {
    from[random.next_u64() as usize % from.len()]
}

fn draw(random: &mut SeededRandom, model: &Model, number: u64) -> Act {
    let stream = pick(random, &STREAMS);
    let tail = model.tail(stream);
    match random.next_u64() % 20 {
        0..3 if tail > 0 => {
            Act::Commit(pick(random, &CURSORS), stream, random.next_u64() % (tail + 1))
        }
        3 if tail > 0 => Act::Trim(stream, random.next_u64() % (tail + 1)),
        _ => {
            let count = if random.next_u64().is_multiple_of(4) { random.next_u64() % 9 } else { 0 };
            let entry = |part: u64| {
                let mut entry = format!("{stream} {number} {part} ").into_bytes();
                entry.resize(10 + (number * 97 + part * 31) as usize % 600, b'.');
                entry
            };
            Act::Append(stream, (0..=count).map(entry).collect())
        }
    }
}

fn perform(engine: &Engine, act: &Act) -> Result<(), WriteError> {
    match act {
        Act::Append(stream, entries) => {
            let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
            engine.append_batch(stream, &entries).map(|_| ())
        }
        Act::Commit(cursor, stream, next) => engine.commit_cursor(cursor, stream, *next),
        Act::Trim(stream, upto) => engine.trim(stream, *upto),
    }
}

/// One life: acts until the power goes; the states after each act from the last certain one on.
pub(crate) fn live(
    engine: &Engine,
    random: &mut SeededRandom,
    model: Model,
    acts_before_off: u64,
    disk: &MemoryDisk,
) -> Vec<Model> {
    let is_each = engine.durability() == Durability::Each;
    let mut states = vec![model];
    for number in 0..100_000 {
        if number == acts_before_off {
            disk.power_off_after(random.next_u64() % 40);
        }
        let mut state = states.last().expect("there is a first one").clone();
        let act = draw(random, &state, number);
        state.apply(&act);
        states.push(state);
        match perform(engine, &act) {
            // Acknowledged forever: no earlier state may come back.
            Ok(()) if is_each => states = states.split_off(states.len() - 1),
            Ok(()) if random.next_u64().is_multiple_of(50) && engine.sync().is_ok() => {
                states = states.split_off(states.len() - 1);
            }
            Ok(()) => {}
            // Without power there is failure, or waiting for room that never comes.
            Err(error) if error.class() != Class::Rejected => return states,
            Err(other) => panic!("nothing that was tried is refused: {other}"),
        }
    }
    panic!("the power never went");
}
