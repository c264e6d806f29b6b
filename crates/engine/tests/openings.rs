//! An opening that power loss interrupts, at any change of the disk, decides nothing: the next one
//! finds what an opening without trouble would have found.

mod acts;
mod disk;

use acts::{CURSORS, Model, STREAMS, live, pick};
use disk::{copy, read_from, small, try_open};
use env::{MemoryDisk, SeededRandom};
use std::time::Duration;
use thalweg_engine::{Durability, Ends, Engine};

const MODES: [Durability; 3] =
    [Durability::None, Durability::Each, Durability::Periodic(Duration::from_millis(1))];

/// More changes than an opening makes.
const CHANGES_MAX: u64 = 60;

/// What an engine holds of a stream: its ends, its entries and its cursors.
type Held = (Ends, Vec<Vec<u8>>, Vec<u64>);

fn held(engine: &Engine) -> Vec<Held> {
    let of = |stream: &&str| {
        let ends = engine.ends(stream);
        let entries = read_from(engine, stream, ends.head);
        (ends, entries, CURSORS.map(|cursor| engine.cursor(cursor, stream)).to_vec())
    };
    STREAMS.iter().map(of).collect()
}

/// A disk as the power's going in the middle of a life left it.
fn cut_off(random: &mut SeededRandom, acts: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let durability = pick(random, &[MODES[0], MODES[2]]);
    let engine = try_open(&disk, small(durability)).unwrap();
    _ = live(&engine, random, Model::default(), acts, &disk);
    drop(engine);
    disk.crash(random);
    disk
}

#[test]
fn an_interrupted_opening_decides_nothing() {
    for seed in 0..60 {
        let mut random = SeededRandom::new(seed);
        let left = cut_off(&mut random, 10 + seed * 3);
        let expected = held(&try_open(&copy(&left), small(Durability::None)).unwrap());
        for _interrupted in 0..6 {
            let disk = copy(&left);
            // More than once: an opening may also begin where an interrupted one ended.
            for _time in 0..=random.below(3) {
                disk.power_off_after(random.below(CHANGES_MAX));
                drop(try_open(&disk, small(pick(&mut random, &MODES))));
                disk.crash(&mut random);
            }
            let engine = try_open(&disk, small(Durability::None)).unwrap();
            assert!(held(&engine) == expected, "seed {seed}");
            assert_eq!(engine.damages(), [], "seed {seed}");
        }
    }
}
