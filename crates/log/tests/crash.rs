//! Whatever is acknowledged is there after a crash, once and in order; whatever else happens.

use crate::support::{Broken, DELETE, Node, key, small};
use env::{MemoryDisk, Random, SeededRandom};
use model::StreamKey;
use std::collections::BTreeMap;
use thalweg_log::LogOptions;

const ROUNDS: u64 = 8;
const OPERATIONS: u64 = 120;

/// Every byte ever appended to a stream, acknowledged or not.
#[derive(Default)]
struct Expected {
    bytes: BTreeMap<StreamKey, Vec<u8>>,
    /// Length of what was acknowledged.
    durable: BTreeMap<StreamKey, u64>,
}

impl Expected {
    /// Checks a freshly opened node, and forgets what did not survive.
    fn check(&mut self, node: &mut Node, seed: u64) {
        assert_eq!(node.machine.damages, [], "seed {seed}");
        for (key, bytes) in &mut self.bytes {
            let ends = node.machine.streams.get(key).copied().unwrap_or_default();
            let durable = self.durable.get(key).copied().unwrap_or(0);
            assert!(ends.tail >= durable, "seed {seed}: {key} lost acknowledged bytes");
            bytes.truncate(ends.tail as usize);
            self.durable.insert(*key, ends.tail);
            if !ends.is_deleted {
                let found = node
                    .read_all(*key, 3000)
                    .unwrap_or_else(|error| panic!("seed {seed}: {key} cannot be read: {error}"));
                assert!(found == bytes[ends.head as usize..], "seed {seed}: {key} differs");
            }
        }
    }

    fn acknowledge(&mut self, node: &Node) {
        for (key, ends) in &node.machine.streams {
            self.durable.insert(*key, ends.tail);
        }
    }
}

fn one_operation(
    node: &mut Node,
    random: &mut SeededRandom,
    expected: &mut Expected,
) -> Result<(), Broken> {
    let key = key(random.below(3) as u16, 1 + random.below(6));
    let is_deleted = node.machine.streams.get(&key).is_some_and(|ends| ends.is_deleted);
    match random.below(20) {
        0 => node.trim(key, random.below(20_000))?,
        1 if random.below(8) == 0 => node.write(key, DELETE, &[], &[])?,
        2 => node.checkpoint(key.group),
        3..=5 => node.work()?,
        6 => node.commit()?,
        7 => node.hold_jobs(key.group),
        _ if is_deleted => {}
        choice => {
            let length = if choice == 8 { random.below(12_000) } else { random.below(300) };
            let mut data = vec![0; length as usize + 1];
            random.fill(&mut data);
            // A refused append never gets an offset, so the model takes it only if it went in.
            let result = node.append(key, &data);
            result?;
            expected.bytes.entry(key).or_default().extend_from_slice(&data);
        }
    }
    expected.acknowledge(node);
    Ok(())
}

fn open_again(disk: &MemoryDisk, random: &mut SeededRandom, seed: u64) -> Node {
    for _ in 0..2 {
        // A crash in the middle of recovery must not matter.
        disk.power_off_after(random.below(60));
        if let Ok(node) = Node::open(disk, 1 + random.below(4) as u16) {
            drop(node);
        }
        disk.crash(random);
    }
    let shard_count = 1 + random.below(4) as u16;
    Node::open_with(disk, shard_count, options(seed)).expect("a crashed log opens")
}

/// Memory for nothing, for a part of what is read, or for all.
fn options(seed: u64) -> LogOptions {
    let recent_bytes_max = [0, 10_000, 1 << 20][(seed % 3) as usize];
    LogOptions { recent_bytes_max, ..small() }
}

fn run(seed: u64) {
    let mut random = SeededRandom::new(seed);
    let disk = MemoryDisk::new();
    let mut expected = Expected::default();
    let mut node = Node::open_with(&disk, 2, options(seed)).unwrap();
    for _ in 0..ROUNDS {
        disk.power_off_after(random.below(400));
        for _ in 0..OPERATIONS {
            if one_operation(&mut node, &mut random, &mut expected).is_err() {
                break;
            }
        }
        expected.acknowledge(&node);
        drop(node);
        if random.below(4) == 0 {
            disk.kill_process();
        } else {
            disk.crash(&mut random);
        }
        node = open_again(&disk, &mut random, seed);
        expected.check(&mut node, seed);
    }
}

#[test]
fn acknowledged_bytes_survive_every_crash() {
    for seed in 0..60 {
        run(seed);
    }
}
