//! A damaged chunk keeps its own room, and no more: all others of its group are merged and removed as ever.

use crate::support::{DELETE, Node, files, flip_two, key, small, spoil_rows};
use env::{Disk, MemoryDisk};
use std::path::{Path, PathBuf};
use thalweg_log::{DamageKind, LogOptions};

const STREAMS: u64 = 40;

/// Where the content of a chunk begins.
const CONTENT: u64 = 4096;

fn options() -> LogOptions {
    LogOptions { group_count: 1, wal_bytes_max: 4 << 20, checkpoint_bytes: 1 << 20, ..small() }
}

fn open(disk: &MemoryDisk) -> Node {
    Node::open_with(disk, 1, options()).unwrap()
}

fn write(node: &mut Node, streams: std::ops::RangeInclusive<u64>, rounds: u64) {
    for _ in 0..rounds {
        for stream in streams.clone() {
            node.append(key(0, stream), &[stream as u8; 300]).unwrap();
        }
        node.commit().unwrap();
        node.work().unwrap();
    }
}

fn delete(node: &mut Node, streams: std::ops::RangeInclusive<u64>) {
    for stream in streams {
        node.write(key(0, stream), DELETE, &[], &[]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
}

/// A directory in which a checkpoint covers everything, and all is in few chunks.
fn sealed(rounds: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut node = open(&disk);
    write(&mut node, 1..=STREAMS, rounds);
    node.checkpoint(key(0, 1).group);
    node.work().unwrap();
    assert_eq!(node.shards[0].stats().hot_appends, 0);
    disk
}

fn chunks(disk: &MemoryDisk) -> Vec<PathBuf> {
    files(disk, "chunk")
}

/// Damages bytes of the first run of a chunk.
fn spoil_run(disk: &MemoryDisk, chunk: &Path) {
    flip_two(disk, chunk, CONTENT + 10);
}

fn spoil_headers(disk: &MemoryDisk, chunk: &Path) {
    let length = disk.open(chunk).unwrap().len().unwrap();
    [20, length - 128 + 20].into_iter().for_each(|at| flip_two(disk, chunk, at));
}

/// All streams are deleted, in this life or before the next one; what chunks are left.
fn left_after_deletes(disk: &MemoryDisk) -> Vec<PathBuf> {
    let mut node = open(disk);
    delete(&mut node, 1..=STREAMS / 2);
    drop(node);
    let mut node = open(disk);
    delete(&mut node, STREAMS / 2 + 1..=STREAMS);
    let left = chunks(disk);
    drop(node);
    let mut node = open(disk);
    node.work().unwrap();
    assert_eq!(chunks(disk), left, "a start frees no more");
    left
}

#[test]
fn a_damaged_run_keeps_no_room_once_its_stream_is_deleted() {
    let disk = sealed(12);
    assert!(chunks(&disk).len() >= 3);
    for chunk in chunks(&disk) {
        spoil_run(&disk, &chunk);
    }
    assert_eq!(left_after_deletes(&disk), Vec::<PathBuf>::new());
}

#[test]
fn lost_rows_keep_their_chunk_and_no_other() {
    let disk = sealed(12);
    let lost = chunks(&disk).swap_remove(1);
    spoil_rows(&disk, &lost);
    assert_eq!(left_after_deletes(&disk), [lost]);
}

#[test]
fn a_chunk_without_headers_keeps_its_file_and_no_other() {
    let disk = sealed(12);
    let lost = chunks(&disk).swap_remove(1);
    spoil_headers(&disk, &lost);
    assert_eq!(left_after_deletes(&disk), [lost]);
}

/// Damages the second of three chunks, and writes many more; the chunks in the end.
fn merged_beside(spoil: fn(&MemoryDisk, &Path), kinds: &[DamageKind]) -> (PathBuf, MemoryDisk) {
    let disk = sealed(4);
    assert!(chunks(&disk).len() >= 3, "{} chunks", chunks(&disk).len());
    let lost = chunks(&disk).swap_remove(1);
    spoil(&disk, &lost);
    let mut node = open(&disk);
    write(&mut node, 1..=STREAMS, 40);
    assert!(node.machine.kinds().starts_with(kinds), "{:?}", node.machine.kinds());
    assert!(chunks(&disk).contains(&lost));
    assert!(chunks(&disk).len() <= 14, "{} chunks of some fifty", chunks(&disk).len());
    (lost, disk)
}

#[test]
fn others_are_merged_beside_a_damaged_chunk_and_none_across_it() {
    for (spoil, kinds) in [
        (spoil_rows as fn(&MemoryDisk, &Path), &[DamageKind::ChunkRow]),
        (spoil_headers, &[DamageKind::ChunkHeader]),
    ] {
        let (lost, disk) = merged_beside(spoil, kinds);
        // Whole again, it is a chunk as it was: none has replaced it.
        spoil(&disk, &lost);
        let mut node = open(&disk);
        assert_eq!(node.machine.kinds(), []);
        for stream in 1..=STREAMS {
            let bytes = node.read_all(key(0, stream), 4096).unwrap();
            assert_eq!(bytes, vec![stream as u8; 44 * 300], "stream {stream}");
        }
    }
}
