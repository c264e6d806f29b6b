//! One flipped bit anywhere: never a panic, never silently wrong bytes, never another group.
//! One flipped bit in the WAL: at most one append cannot be read, and nothing moves.

use crate::support;
use crate::support::{APPEND, Node, files, key, wal};
use env::{Disk, MemoryDisk, Random, SeededRandom};
use model::{ByteOffset, StreamKey};
use std::collections::BTreeMap;
use std::path::Path;
use thalweg_log::{Damage, DamageKind, LogOptions, ReadError, ShardLog};

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

/// Appends of a stream: where each starts, and its bytes.
type Appends = BTreeMap<StreamKey, Vec<(u64, Vec<u8>)>>;

/// A log whose data is all in the WAL, cleanly stopped. Every third entry has a command.
fn in_wal(random: &mut SeededRandom, batches: u64, data_bytes_max: u64) -> (MemoryDisk, Appends) {
    let disk = MemoryDisk::new();
    let options = LogOptions { seal_bytes: 1 << 20, checkpoint_bytes: 1 << 20, ..support::small() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    let mut appends = Appends::new();
    for number in 0..batches * 3 {
        let key = key(random.below(2) as u16, 1 + random.below(2));
        let mut data = vec![0; 1 + random.below(data_bytes_max) as usize];
        random.fill(&mut data);
        let command: &[u8] = if number % 3 == 0 { b"command" } else { &[] };
        node.write(key, APPEND, command, &data).unwrap();
        let appends = appends.entry(key).or_default();
        let start = appends.last().map_or(0, |(start, data)| start + data.len() as u64);
        appends.push((start, data));
        if number % 3 == 2 {
            node.commit().unwrap();
        }
    }
    node.stop();
    (disk, appends)
}

/// The bytes of an append, `None` if one of them cannot be read.
fn read_append(shard: &ShardLog, key: StreamKey, start: u64, length: usize) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    while found.len() < length {
        let at = ByteOffset::new(start + found.len() as u64);
        match shard.read(key, at, length - found.len()) {
            // The log does not know of lost bytes behind its last ones: it gives none.
            Ok(slice) if slice.is_empty() => return None,
            Ok(slice) => found.extend_from_slice(&slice.to_bytes().unwrap()),
            Err(ReadError::Io(error)) => panic!("{key} at {at}: {error}"),
            Err(_) => return None,
        }
    }
    Some(found)
}

/// The appends that cannot be read. Every byte of the others is where it was.
fn unreadable(node: &mut Node, appends: &Appends, place: &str) -> Vec<(StreamKey, u64)> {
    let mut lost = Vec::new();
    for (key, appends) in appends {
        let shard = node.shard(key.group);
        for (start, data) in appends {
            match read_append(shard, *key, *start, data.len()) {
                Some(found) => assert!(found == *data, "{place}: {key} at {start}"),
                None => lost.push((*key, *start)),
            }
        }
        let tail = appends.last().map_or(0, |(start, data)| start + data.len() as u64);
        assert_eq!(node.machine.streams[key].tail, tail, "{place}: {key} has shifted");
    }
    lost
}

/// What one flipped bit may cost, and what must have been said about it.
fn check_promise(node: &mut Node, appends: &Appends, place: &str) {
    let damages = node.machine.damages.clone();
    let lost = unreadable(node, appends, place);
    match (&damages[..], &lost[..]) {
        // Padding, or a block that holds nothing.
        ([], []) => {}
        ([damage], []) => assert_eq!(damage.kind, DamageKind::HeaderRepaired, "{place}"),
        ([damage], [(key, start)]) => {
            let is_known = matches!(damage.kind, DamageKind::EntryData | DamageKind::EntryPayload);
            assert!(is_known, "{place}: {damage}");
            assert_eq!((damage.group, damage.stream), (Some(key.group), Some(key.stream)));
            let append = appends[key].iter().find(|(at, _)| at == start).unwrap();
            assert_eq!(damage.lost_bytes, append.1.len() as u64, "{place}");
        }
        other => panic!("{place}: {other:?}"),
    }
}

/// Another disk with the same files: an open leaves its mark on the one it works on.
fn copy(disk: &MemoryDisk) -> MemoryDisk {
    let twin = MemoryDisk::new();
    for path in disk.paths() {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        twin.create_dir_all(path.parent().unwrap()).unwrap();
        twin.create(&path).unwrap().write_at(&bytes, 0).unwrap();
    }
    twin
}

fn check_flip(disk: &MemoryDisk, appends: &Appends, path: &Path, bit: u64) {
    let disk = copy(disk);
    disk.flip_bit(path, bit);
    let mut node = Node::open(&disk, 1).unwrap();
    check_promise(&mut node, appends, &format!("{} bit {bit}", path.display()));
}

#[test]
fn every_bit_of_a_small_wal_costs_at_most_one_append() {
    let (disk, appends) = in_wal(&mut SeededRandom::new(1), 2, 12);
    let path = &files(&disk, "wal")[0];
    // The second of two batches, and the mark of the clean stop.
    for (block, bytes) in [(1, wal::payload(3) + 50), (2, wal::HEADER_BYTES)] {
        for bit in 0..bytes * 8 {
            check_flip(&disk, &appends, path, wal::batch(block) * 8 + bit);
        }
    }
}

#[test]
fn any_bit_of_a_wal_of_several_segments_costs_at_most_one_append() {
    for seed in 0..8 {
        let mut random = SeededRandom::new(seed);
        let (disk, appends) = in_wal(&mut random, 12, 900);
        let paths = files(&disk, "wal");
        assert!(paths.len() > 1);
        for _ in 0..60 {
            let path = &paths[random.below(paths.len() as u64) as usize];
            let length = disk.open(path).unwrap().len().unwrap();
            check_flip(&disk, &appends, path, random.below(length * 8));
        }
    }
}

#[test]
fn one_flipped_bit_costs_no_more_when_its_data_is_sealed() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let (disk, appends) = in_wal(&mut random, 12, 900);
        let path = &files(&disk, "wal")[0];
        let bit = random.below(disk.open(path).unwrap().len().unwrap() * 8);
        disk.flip_bit(path, bit);
        let mut node = Node::open(&disk, 1).unwrap();
        node.work().unwrap();
        check_promise(&mut node, &appends, &format!("seed {seed}, sealed, bit {bit}"));
        node.stop();
        let mut node = Node::open(&disk, 1).unwrap();
        let lost = unreadable(&mut node, &appends, &format!("seed {seed}, again, bit {bit}"));
        assert!(lost.len() <= 1);
    }
}
