//! Losses that nothing behind them reveals.
//!
//! They are the end of a group, a whole checkpoint, the header of the batch that cut another one, and bytes
//! that were intact when they were read last.

use crate::support::{APPEND, DELETE, Node, file, key, small, spoil, wal};
use env::{Disk, MemoryDisk};
use model::{ByteOffset, GroupId};
use std::path::{Path, PathBuf};
use thalweg_log::{DamageKind, LogOptions};

fn missing(node: &Node) -> Vec<(u64, u64)> {
    let missing = node.machine.damages.iter().filter(|d| d.kind == DamageKind::EntriesMissing);
    missing.filter_map(|d| d.entries).map(|(first, last)| (first.get(), last.get())).collect()
}

const GROUP: GroupId = GroupId::new(0);

/// Nine appends, sealed and covered by a checkpoint; the log's segments hold something else by now.
fn with_checkpoint() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..9 {
        node.append(key(0, 1), &[number; 1000]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
    node.checkpoint(GROUP);
    node.work().unwrap();
    for number in 0..200 {
        node.append(key(1, 1), &[number; 1000]).unwrap();
        node.commit().unwrap();
        node.work().unwrap();
    }
    node.stop();
    disk
}

#[test]
fn an_unreadable_checkpoint_keeps_the_indexes_that_it_covers() {
    let disk = with_checkpoint();
    let paths = disk.paths();
    let is_ours = |path: &&PathBuf| path.starts_with("/data/checkpoints/00000");
    let checkpoint = paths.iter().find(is_ours).unwrap();
    let length = disk.open(checkpoint).unwrap().len().unwrap();
    spoil(&disk, checkpoint, 10);
    spoil(&disk, checkpoint, length - 20);
    for _ in 0..2 {
        let node = Node::open(&disk, 1).unwrap();
        assert_eq!(missing(&node), [(1, 9)]);
        assert_eq!(node.shards[0].next_index(GROUP).get(), 10);
    }
}

#[test]
fn without_a_checkpoint_the_indexes_that_a_chunk_covers_are_kept() {
    let disk = with_checkpoint();
    for path in disk.paths() {
        if path.starts_with("/data/checkpoints/00000") {
            disk.remove(&path).unwrap();
        }
    }
    for _ in 0..2 {
        let node = Node::open(&disk, 1).unwrap();
        assert_eq!(missing(&node), [(1, 9)]);
        assert_eq!(node.shards[0].next_index(GROUP).get(), 10);
        let bytes = node.shards[0].read(key(0, 1), ByteOffset::new(8500), 100).unwrap();
        assert_eq!(bytes.to_bytes().unwrap(), [8; 100][..]);
    }
}

#[test]
fn a_torn_batch_of_a_wal_that_is_written_no_more_stays_cut_when_its_index_is_sealed() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 2).unwrap();
    node.append(key(1, 1), b"first").unwrap();
    node.commit().unwrap();
    node.append(key(1, 1), b"never acknowledged").unwrap();
    node.commit().unwrap();
    drop(node);
    let wal = disk.paths().into_iter().find(|path| path.starts_with("/data/wal/00001"));
    disk.flip_bit(&wal.unwrap(), (wal::batch(1) + wal::payload(1) + 3) * 8);
    // The group is in the other WAL now; what is sealed has the index of the entry that was cut.
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(1, 1), &[7; 9000]).unwrap();
    node.commit().unwrap();
    while let Some(job) = node.shards[0].poll_work() {
        let _ = node.shards[0].handle_work(job.run());
    }
    assert_eq!(node.shards[0].stats().hot_appends, 0, "sealed, but not yet in a checkpoint");
    drop(node);
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.machine.kinds(), []);
    assert_eq!(node.read_all(key(1, 1), 1000).unwrap(), [&b"first"[..], &[7; 9000]].concat());
}

#[test]
fn a_checkpoint_with_an_impossible_name_is_passed_over() {
    let disk = with_checkpoint();
    disk.create(Path::new("/data/checkpoints/00000/ffffffffffffffff.ckpt")).unwrap();
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.machine.kinds(), []);
    assert_eq!(node.read_all(key(0, 1), 1000).unwrap().len(), 9000);
}

#[test]
fn a_merge_copies_nothing_that_has_changed_since_it_was_read() {
    let disk = MemoryDisk::new();
    let options = LogOptions { segment_bytes: 1 << 20, wal_bytes_max: 8 << 20, ..small() };
    let mut node =
        Node::open_with(&disk, 1, LogOptions { seal_bytes: 100 << 10, ..options }).unwrap();
    for number in 0..100 {
        node.append(key(0, 1), &[number; 1024]).unwrap();
        node.append(key(0, 2), &[number; 1024]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
    assert_eq!(node.read_all(key(0, 1), 5000).unwrap().len(), 100 * 1024);
    let chunk = file(&disk, "chunk");
    disk.flip_bit(&chunk, (4096 + 70_000) * 8);
    node.write(key(0, 2), DELETE, &[], &[]).unwrap();
    node.trim(key(0, 1), 10_000).unwrap();
    node.commit().unwrap();
    node.work().unwrap();
    assert_eq!(node.machine.kinds(), [DamageKind::StreamData]);
    assert!(disk.paths().contains(&chunk));
}

/// A group is in one WAL, in the other, and in the first one again: 2 appends each time, the fifth of `bytes`. The
/// segments of the first WAL. The later ones begin with a mark, and the batches of the last two appends follow.
fn with_changes_of_shards(bytes: usize) -> (MemoryDisk, Vec<PathBuf>) {
    let disk = MemoryDisk::new();
    for (opening, shards) in [(1, 2), (2, 1), (3, 2)] {
        let mut node = open(&disk, shards);
        for number in 0..2 {
            // Segments are made, and nothing is sealed.
            while let Some(job) = node.shard(key(1, 1).group).poll_work() {
                assert_eq!(job.group(), None);
                let _ = node.shard(key(1, 1).group).handle_work(job.run());
            }
            let length = if (opening, number) == (3, 0) { bytes } else { 50 };
            let data = vec![10 * opening + number; length];
            node.offer(key(1, 1), APPEND, &[], &data).unwrap();
            node.commit().unwrap();
        }
    }
    let segments = disk.paths().into_iter().filter(|path| path.starts_with("/data/wal/00001"));
    (disk, segments.collect())
}

fn open(disk: &MemoryDisk, shards: u16) -> Node {
    let options = LogOptions {
        batch_bytes_max: 32 << 10,
        wal_bytes_max: 1 << 20,
        seal_bytes: 1 << 20,
        ..small()
    };
    Node::open_with(disk, shards, options).unwrap()
}

/// The first byte of each append that is there, and the entries that are reported as missing; the same at each start.
fn found(disk: &MemoryDisk) -> (Vec<u8>, Vec<(u64, u64)>) {
    let [first, second] = [(), ()].map(|()| {
        let mut node = open(disk, 2);
        let mut bytes = node.read_all(key(1, 1), 50).unwrap();
        bytes.dedup();
        (bytes, missing(&node))
    });
    assert_eq!(first, second);
    first
}

#[test]
fn headers_lost_in_a_row_behind_a_change_of_shards_cost_one_entry_in_the_same_segment() {
    let appends = vec![10, 11, 20, 21, 30, 31];
    for lost in [&[][..], &[0], &[1], &[0, 1]] {
        let (disk, segments) = with_changes_of_shards(50);
        for batch in lost {
            spoil(&disk, &segments[1], wal::batch(*batch) + wal::BATCH_NUMBER);
        }
        // Behind two lost headers nothing says where the second batch begins: its only entry is lost.
        let wanted = match lost.len() {
            2 => (vec![10, 11, 20, 21, 31], vec![(5, 5)]),
            _ => (appends.clone(), Vec::new()),
        };
        assert_eq!(found(&disk), wanted, "headers of {lost:?} are lost");
    }
}

/// A known gap: the second batch is found, for it begins a segment, but is taken for one of the opening before. So the
/// entries that another WAL has between are passed over. They are reported.
#[test]
fn headers_lost_in_a_row_behind_a_change_of_shards_cost_the_entries_between_which_is_told() {
    let appends = vec![10, 11, 20, 21, 30, 31];
    for lost in [&[][..], &[2], &[3], &[2, 3]] {
        let (disk, segments) = with_changes_of_shards(30_000);
        for segment in lost {
            // The mark has a segment without room for the large append, which is in the next one.
            spoil(&disk, &segments[segment - 1], wal::BATCH_NUMBER);
        }
        let wanted = match lost.len() {
            2 => (vec![10, 11, 30, 31], vec![(3, 4)]),
            _ => (appends.clone(), Vec::new()),
        };
        assert_eq!(found(&disk), wanted, "the first headers of segments {lost:?} are lost");
    }
}
