//! The last batch of a WAL, which nothing behind it vouches for.

use crate::support::{Node, file, files, key, wal};
use env::{Disk, MemoryDisk, SeededRandom};
use model::StreamId;
use std::path::{Path, PathBuf};
use thalweg_log::DamageKind;

/// Entries of the last batch: their headers take more than one sector.
const ENTRIES: u64 = 8;

/// What the last batch holds of each stream.
const DATA: &[u8] = b"of the last batch";

const SECTOR_BYTES: usize = 512;

/// One batch, and behind it one of eight entries whose first sector holds headers alone. Both are acknowledged.
fn with_last_batch() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), b"first").unwrap();
    node.commit().unwrap();
    for stream in 1..=ENTRIES {
        node.append(key(0, stream), DATA).unwrap();
    }
    node.commit().unwrap();
    drop(node);
    disk
}

/// Where the last batch starts: behind the first one.
fn last_batch(disk: &MemoryDisk) -> (PathBuf, u64) {
    let path = file(disk, "wal");
    let mut magic = [0; 4];
    disk.open(&path).unwrap().read_exact_at(&mut magic, wal::batch(1)).unwrap();
    assert_eq!(&magic, b"ThBa");
    (path, wal::batch(1))
}

fn lose_sector(disk: &MemoryDisk, path: &Path, position: u64) {
    let file = disk.open(path).unwrap();
    file.write_at(&[0; SECTOR_BYTES], position).unwrap();
    file.sync_data().unwrap();
}

fn check_all(node: &mut Node) {
    assert_eq!(node.machine.kinds(), []);
    assert_eq!(node.read_all(key(0, 1), 100).unwrap(), [b"first", DATA].concat());
    for stream in 2..=ENTRIES {
        assert_eq!(node.read_all(key(0, stream), 100).unwrap(), DATA, "stream {stream}");
    }
}

#[test]
fn a_last_batch_that_lost_its_first_sector_counts_if_the_copy_says_that_it_is_whole() {
    let disk = with_last_batch();
    let (path, position) = last_batch(&disk);
    lose_sector(&disk, &path, position);
    let mut node = Node::open(&disk, 1).unwrap();
    check_all(&mut node);
    assert!(node.report.torn_tails.is_empty());
    drop(node);
    // With another number of shards, and with batches behind it that claim it.
    let mut node = Node::open(&disk, 2).unwrap();
    check_all(&mut node);
    node.append(key(0, 9), b"later").unwrap();
    node.commit().unwrap();
    drop(node);
    for shards in [2, 1] {
        let mut node = Node::open(&disk, shards).unwrap();
        check_all(&mut node);
        assert_eq!(node.read_all(key(0, 9), 100).unwrap(), b"later");
    }
}

#[test]
fn the_only_batch_of_a_segment_counts_as_well() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), &vec![7; 26 << 10]).unwrap();
    node.commit().unwrap();
    node.work().unwrap();
    for stream in 2..=ENTRIES + 1 {
        node.append(key(0, stream), &[stream as u8; 700]).unwrap();
    }
    node.commit().unwrap();
    drop(node);
    let newest = files(&disk, "wal").into_iter().rev().find(|path| {
        let mut magic = [0; 4];
        disk.open(path).unwrap().read_exact_at(&mut magic, 0).unwrap();
        &magic == b"ThBa"
    });
    let newest = newest.unwrap();
    assert_ne!(newest, file(&disk, "wal"), "it has gone to the next segment");
    lose_sector(&disk, &newest, 0);
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.machine.kinds(), []);
    for stream in 2..=ENTRIES + 1 {
        let read = node.read_all(key(0, stream), 4096).unwrap();
        assert!(read == [stream as u8; 700], "stream {stream}");
    }
}

#[test]
fn a_last_batch_that_lost_more_than_its_copy_has_is_a_torn_tail() {
    let disk = with_last_batch();
    let (path, position) = last_batch(&disk);
    lose_sector(&disk, &path, position);
    lose_sector(&disk, &path, position + SECTOR_BYTES as u64);
    for _ in 0..2 {
        let mut node = Node::open(&disk, 1).unwrap();
        assert_eq!(node.machine.kinds(), []);
        assert_eq!(node.read_all(key(0, 1), 100).unwrap(), b"first");
        assert!(!node.machine.streams.contains_key(&key(0, 2)));
    }
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 2), b"instead").unwrap();
    node.commit().unwrap();
    drop(node);
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.machine.kinds(), []);
    assert_eq!(node.read_all(key(0, 2), 100).unwrap(), b"instead");
}

/// A device may leave garbage in a sector that it was writing when the power went, whatever was there before.
#[test]
fn a_power_cut_during_a_start_destroys_nothing_that_was_acknowledged() {
    let changes = {
        let disk = with_last_batch();
        let before = disk.change_count();
        drop(Node::open(&disk, 1).unwrap());
        disk.change_count() - before
    };
    for (cut_after, seed) in (0..=changes).flat_map(|cut| (0..20).map(move |seed| (cut, seed))) {
        let disk = with_last_batch();
        disk.shear_sectors();
        disk.power_off_after(cut_after);
        let _ = Node::open(&disk, 1);
        disk.crash(&mut SeededRandom::new(seed));
        let mut node = Node::open(&disk, 1).unwrap();
        check_all(&mut node);
    }
}

#[test]
fn a_batch_that_only_the_page_cache_has_is_durable_after_a_start() {
    for seed in 0..20 {
        let disk = MemoryDisk::new();
        let mut node = Node::open(&disk, 1).unwrap();
        node.append(key(0, 1), b"first").unwrap();
        node.commit().unwrap();
        node.append(key(0, 1), b"second").unwrap();
        disk.fail_next_sync(1);
        assert!(node.commit().is_err());
        drop(node);
        disk.kill_process();
        let mut node = Node::open(&disk, 1).unwrap();
        assert_eq!(node.read_all(key(0, 1), 100).unwrap(), b"firstsecond");
        drop(node);
        disk.crash(&mut SeededRandom::new(seed));
        let mut node = Node::open(&disk, 1).unwrap();
        assert_eq!(node.read_all(key(0, 1), 100).unwrap(), b"firstsecond", "seed {seed}");
    }
}

/// What is reported of a lost batch that a mark has listed, if the power went while the mark was written or not.
fn losses(is_torn: bool) -> Vec<(DamageKind, Option<StreamId>)> {
    const BLOCK: usize = 4096;
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for data in [b"first", b"other"] {
        node.append(key(0, 1), data).unwrap();
        node.commit().unwrap();
    }
    node.stop();
    let path = file(&disk, "wal");
    let write = |bytes: &[u8], position: u64| {
        disk.open(&path).unwrap().write_at(bytes, position).unwrap();
        disk.open(&path).unwrap().sync_data().unwrap();
    };
    if is_torn {
        // The header of the mark is there, and nothing behind it.
        write(&[0; BLOCK - 64], wal::batch(2) + 64);
    }
    drop(Node::open(&disk, 1).unwrap());
    write(&[0; BLOCK], wal::batch(1));
    let node = Node::open(&disk, 1).unwrap();
    node.machine.damages.iter().map(|damage| (damage.kind, damage.stream)).collect()
}

#[test]
fn what_a_torn_mark_lists_is_listed_again() {
    let losses = losses(true);
    assert!(losses.iter().any(|(_, stream)| *stream == Some(StreamId::new(1))), "{losses:?}");
    assert_eq!(losses, self::losses(false));
}
