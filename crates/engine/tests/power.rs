//! Power loss at any change of the disk: what is left is what was done up to some moment, and with a
//! sync per append everything that was acknowledged.

mod acts;
mod disk;

use acts::{Model, STREAMS, live, pick};
use disk::{files, open_driven, read_from, small, try_open};
use env::{MemoryDisk, Random, SeededRandom};
use std::time::Duration;
use thalweg_engine::{Durability, Engine};

const PERIODIC: Durability = Durability::Periodic(Duration::from_millis(1));

fn reopen(disk: &MemoryDisk, random: &mut SeededRandom, durability: Durability) -> Engine {
    loop {
        // Sometimes the power goes again while the engine is opened.
        if random.next_u64().is_multiple_of(3) {
            disk.power_off_after(random.next_u64() % 60);
        }
        let opened = try_open(disk, small(durability));
        disk.power_off_after(None);
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

/// Makes a stream, has a checkpoint written before that is applied, and cuts the power. Whether the stream is lost.
fn loses_a_stream_beside_a_checkpoint(seed: u64) -> bool {
    let disk = MemoryDisk::new();
    let open = || open_driven(&disk, small(Durability::None));
    let checkpoints = || files(&disk, "ckpt");
    let (engine, mut driver) = open();
    let before = checkpoints();
    for _ in 0..600 {
        engine.append("orders", &[b'.'; 600]).unwrap();
        driver.sync().unwrap();
    }
    // The next opening writes one entry: the index after it is the stream's number.
    engine.append("orders", b"last").unwrap();
    engine.append("mails", b"before").unwrap();
    while driver.begin_work() && driver.end_work().unwrap() {}
    assert_ne!(checkpoints(), before, "one was written beside the new stream");
    disk.power_off_after(0);
    drop((engine, driver));
    disk.crash(&mut SeededRandom::new(seed));
    disk.power_off_after(None);
    let (engine, driver) = open();
    let is_lost = engine.tail("mails") == 0;
    assert!(engine.tail("orders") >= 600);
    engine.append("logs", b"first").unwrap();
    engine.append("mails", b"after").unwrap();
    driver.sync().unwrap();
    assert_eq!(read_from(&engine, "logs", 0), [b"first"]);
    assert_eq!(read_from(&engine, "mails", u64::from(!is_lost)), [b"after"]);
    is_lost
}

#[test]
fn the_number_of_a_stream_that_was_lost_with_the_power_is_in_no_checkpoint() {
    assert!((0..8).filter(|&seed| loses_a_stream_beside_a_checkpoint(seed)).count() > 0);
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
    (0..60).for_each(|seed| run(seed, PERIODIC));
}

/// Each life with a durability of its own.
fn run_changing(seed: u64) {
    let modes = [Durability::None, Durability::Each, Durability::Periodic(Duration::from_secs(9))];
    let mut random = SeededRandom::new(seed);
    let disk = MemoryDisk::new();
    let mut model = Model::default();
    for _life in 0..4 {
        let durability = pick(&mut random, &modes);
        let engine = reopen(&disk, &mut random, durability);
        assert!(model.matches(&engine), "seed {seed}: an opening changed something");
        assert_eq!(engine.damages(), [], "seed {seed}: nor was it damage");
        let states = live(&engine, &mut random, model, 40, &disk);
        drop(engine);
        disk.crash(&mut random);
        let durability = pick(&mut random, &modes);
        let engine = reopen(&disk, &mut random, durability);
        let found = states.iter().rev().find(|state| state.matches(&engine));
        model = found.unwrap_or_else(|| panic!("seed {seed}: no such moment")).clone();
        model.check_contents(&engine, seed);
        assert_eq!(engine.damages(), [], "seed {seed}: power loss is no damage");
    }
}

#[test]
fn the_durability_may_change_with_every_opening() {
    (0..60).for_each(run_changing);
}

#[test]
#[ignore = "minutes: a long run by hand"]
fn many_seeds() {
    for seed in 1_000..1_500 {
        for durability in [Durability::None, Durability::Each, PERIODIC] {
            run(seed, durability);
        }
        run_changing(seed);
    }
}
