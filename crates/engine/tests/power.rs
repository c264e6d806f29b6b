//! Power loss at any change of the disk: what is left is what was done up to some moment, and with a
//! sync per append everything that was acknowledged.

mod disk;

use disk::{read_from, small, try_open};
use env::{MemoryDisk, Random, SeededRandom};
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_engine::{Class, Durability, Engine, WriteError};

const STREAMS: [&str; 3] = ["orders", "mails", "logs"];
const CURSORS: [&str; 2] = ["billing", "audit"];

/// Something that was tried.
#[derive(Debug, Clone)]
enum Act {
    Append(&'static str, Vec<Vec<u8>>),
    Commit(&'static str, &'static str, u64),
    Trim(&'static str, u64),
}

/// What an engine holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
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

    /// Ends and cursors as the engine tells them.
    fn matches(&self, engine: &Engine) -> bool {
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

    fn check_contents(&self, engine: &Engine, seed: u64) {
        for (stream, entries) in &self.entries {
            let head = self.heads.get(stream).copied().unwrap_or(0);
            let found = read_from(engine, stream, head);
            assert!(found == entries[head as usize..], "seed {seed}: contents of {stream}");
        }
    }
}

fn pick<T: Copy>(random: &mut SeededRandom, from: &[T]) -> T {
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
fn live(
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
            // Acknowledged for ever: no earlier state may come back.
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

fn reopen(disk: &MemoryDisk, random: &mut SeededRandom, durability: Durability) -> Engine {
    loop {
        // Sometimes the power goes again while the engine is opened.
        if random.next_u64().is_multiple_of(3) {
            disk.power_off_after(random.next_u64() % 30);
        }
        let opened = try_open(disk, small(durability));
        disk.power_off_after(u64::MAX);
        match opened {
            Ok(engine) => return engine,
            Err(_) => disk.crash(random),
        }
    }
}

fn run(seed: u64, durability: Durability) {
    let mut random = SeededRandom::new(seed);
    let disk = MemoryDisk::new();
    let mut model = Model::default();
    for _life in 0..3 {
        let engine = reopen(&disk, &mut random, durability);
        assert!(model.matches(&engine), "seed {seed}: an opening changed something");
        let acts = random.next_u64() % 150;
        let states = live(&engine, &mut random, model, acts, &disk);
        drop(engine);
        disk.crash(&mut random);
        let engine = reopen(&disk, &mut random, durability);
        let found = states.iter().rev().find(|state| state.matches(&engine));
        let ends: Vec<_> = STREAMS.iter().map(|stream| engine.ends(stream)).collect();
        let found = found.unwrap_or_else(|| panic!("seed {seed}: no moment has {ends:?}"));
        found.check_contents(&engine, seed);
        assert_eq!(engine.damages(), [], "seed {seed}: power loss is no damage");
        model = found.clone();
        drop(engine);
    }
}

#[test]
fn with_each_append_synced_every_acknowledgement_survives() {
    (0..60).for_each(|seed| run(seed, Durability::Each));
}

#[test]
fn without_syncs_what_is_left_is_a_prefix_over_all_streams() {
    (0..150).for_each(|seed| run(seed, Durability::None));
}

#[test]
fn with_periodic_syncs_what_is_left_is_a_prefix_over_all_streams() {
    (0..60).for_each(|seed| run(seed, Durability::Periodic(Duration::from_millis(1))));
}

#[test]
fn the_durability_may_change_with_every_opening() {
    let modes = [Durability::None, Durability::Each, Durability::Periodic(Duration::from_secs(9))];
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let disk = MemoryDisk::new();
        let mut model = Model::default();
        for _life in 0..4 {
            let durability = pick(&mut random, &modes);
            let engine = reopen(&disk, &mut random, durability);
            let states = live(&engine, &mut random, model, 40, &disk);
            drop(engine);
            disk.crash(&mut random);
            let durability = pick(&mut random, &modes);
            let engine = reopen(&disk, &mut random, durability);
            let found = states.iter().rev().find(|state| state.matches(&engine));
            model = found.unwrap_or_else(|| panic!("seed {seed}: no such moment")).clone();
            model.check_contents(&engine, seed);
        }
    }
}
