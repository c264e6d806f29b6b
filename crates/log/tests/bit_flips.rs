//! One flipped bit anywhere: never a panic, never wrong bytes without a word, never another group.

mod support;

use env::{Disk, MemoryDisk, Random, SeededRandom};
use model::{ByteOffset, StreamKey};
use std::collections::BTreeMap;
use support::{Node, key};
use thalweg_log::{Damage, ReadError};

type Contents = BTreeMap<StreamKey, Vec<u8>>;

/// A log with chunks, checkpoints and a WAL tail, and what is in it.
fn written(random: &mut SeededRandom) -> (MemoryDisk, Contents) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 2).unwrap();
    let mut contents = Contents::new();
    for number in 0..150 {
        let key = key(random.below(3) as u16, 1 + random.below(4));
        let mut data = vec![0; 1 + random.below(600) as usize];
        random.fill(&mut data);
        node.append(key, &data).unwrap();
        contents.entry(key).or_default().extend(data);
        match number % 50 {
            10 | 20 | 30 => node.commit().unwrap(),
            40 => {
                node.commit().unwrap();
                node.checkpoint(key.group);
                node.work().unwrap();
            }
            _ => {}
        }
    }
    node.commit().unwrap();
    node.stop();
    (disk, contents)
}

fn flip_somewhere(disk: &MemoryDisk, random: &mut SeededRandom) -> String {
    let mut paths = disk.paths();
    paths.retain(|path| path.extension().is_some());
    let path = &paths[random.below(paths.len() as u64) as usize];
    let length = disk.open(path).unwrap().len().unwrap();
    let bit = random.below(length * 8);
    disk.flip_bit(path, bit);
    format!("{} bit {bit}", path.display())
}

/// Checks what was never reported. `told` collects reports: a checkpoint may settle a loss later.
fn check(node: &mut Node, contents: &Contents, told: &mut Vec<Damage>, place: &str) {
    told.append(&mut node.machine.damages);
    let is_suspect = |key: &StreamKey| {
        told.iter().any(|damage| damage.group.is_none_or(|group| group == key.group))
    };
    for (key, bytes) in contents {
        // After reported damage a stream may be shorter or its tail elsewhere.
        if is_suspect(key) {
            let _ = node.read_all(*key, 700);
            continue;
        }
        let mut at = 0;
        while at < bytes.len() {
            match node.shard(key.group).read(*key, ByteOffset::new(at as u64), 700) {
                Ok(slice) => {
                    let found = slice.to_bytes().unwrap();
                    assert!(!found.is_empty(), "{place}: {key} ends at {at}");
                    assert!(found == bytes[at..at + found.len()], "{place}: {key} at {at}");
                    at += found.len();
                }
                Err(ReadError::Damaged { .. }) => at += 1,
                Err(other) => panic!("{place}: {key} at {at}: {other}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_never_passes_for_data() {
    for seed in 0..12 {
        let mut random = SeededRandom::new(seed);
        let (disk, contents) = written(&mut random);
        let mut told = Vec::new();
        for _ in 0..8 {
            // Flips add up: later rounds have several.
            let place = flip_somewhere(&disk, &mut random);
            let mut node = Node::open(&disk, 1 + random.below(3) as u16).unwrap();
            check(&mut node, &contents, &mut told, &format!("seed {seed}, {place}"));
            node.work().unwrap();
            check(&mut node, &contents, &mut told, &format!("seed {seed} after work, {place}"));
            node.stop();
        }
    }
}
