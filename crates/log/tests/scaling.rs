//! What a start, a deletion and a trim cost does not grow with the chunks of the group: looks into chunks are counted.

use crate::support;
use crate::support::{Node, key};
use env::MemoryDisk;
use model::{ByteOffset, GroupId};
use thalweg_log::LogOptions;

/// All streams are in each chunk, so that no look is saved by the streams that a chunk names.
const STREAMS: u64 = 8;

const CHUNKS: u64 = 400;

fn options() -> LogOptions {
    LogOptions {
        group_count: 1,
        segment_bytes: 4 << 20,
        wal_bytes_max: 64 << 20,
        batch_bytes_max: 1 << 20,
        seal_bytes: STREAMS * 100,
        // No merges.
        chunk_bytes_max: 1,
        checkpoint_bytes: 1 << 30,
        chunk_files_max: 10,
        chunk_pages_bytes_max: 64 << 20,
        ..support::small()
    }
}

fn open(disk: &MemoryDisk) -> Node {
    Node::open_with(disk, 1, options()).unwrap()
}

fn append_to_all(node: &mut Node, rounds: u64) {
    for _ in 0..rounds {
        (1..=STREAMS).for_each(|stream| node.append(key(0, stream), &[7; 100]).unwrap());
    }
    node.commit().unwrap();
}

fn with_chunks(chunks: u64) -> (MemoryDisk, Node) {
    let disk = MemoryDisk::new();
    let mut node = open(&disk);
    for _ in 0..chunks {
        append_to_all(&mut node, 1);
        node.work().unwrap();
    }
    assert_eq!(node.shards[0].stats().chunks, chunks);
    (disk, node)
}

/// Pages of chunks that were looked for since the start, in memory and in files.
fn looks(node: &Node) -> u64 {
    let stats = node.shards[0].stats().chunk_cache;
    stats.page_hits + stats.page_misses
}

#[test]
fn what_no_chunk_covers_is_replayed_without_a_look_into_one() {
    let (disk, node) = with_chunks(CHUNKS);
    drop(node);
    let mut node = open(&disk);
    // No checkpoint covers the last entries of chunks: they are applied again, and found in the chunks.
    let (before, covered) = (looks(&node), node.report.entries_replayed);
    assert!(before > 0 && covered > 0);
    append_to_all(&mut node, 500);
    drop(node);
    let node = open(&disk);
    assert_eq!(node.report.entries_replayed, covered + 500 * STREAMS);
    assert_eq!(node.shards[0].stats().hot_appends, 500 * STREAMS);
    assert_eq!(looks(&node), before);
}

#[test]
fn a_start_behind_a_checkpoint_looks_into_no_chunk() {
    let (disk, mut node) = with_chunks(CHUNKS);
    node.checkpoint(GroupId::new(0));
    node.work().unwrap();
    append_to_all(&mut node, 100);
    drop(node);
    let node = open(&disk);
    assert_eq!(node.report.entries_replayed, 100 * STREAMS);
    assert_eq!(looks(&node), 0);
}

#[test]
fn a_deletion_and_a_trim_look_into_no_chunk_and_a_job_counts_what_died() {
    let (_, mut node) = with_chunks(CHUNKS);
    let before = looks(&node);
    node.shards[0].trim(key(0, 1), ByteOffset::new(150));
    node.shards[0].forget(key(0, 2));
    assert_eq!(looks(&node), before);
    assert_eq!(node.shards[0].stats().dead_bytes, 0);
    assert!(node.run_job());
    assert!(looks(&node) >= before + 2 * CHUNKS, "the job looks into all of them");
    assert_eq!(node.shards[0].stats().dead_bytes, 150 + CHUNKS * 100);
}
