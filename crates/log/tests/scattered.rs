//! Reads of a stream whose appends are far apart in the WAL: bounded in what they cost.

use crate::support::{Node, key, never_full};
use env::MemoryDisk;
use model::ByteOffset;
use thalweg_log::LogOptions;

#[test]
fn short_appends_that_are_far_apart_are_read_for_a_bounded_price() {
    const COUNT: u32 = 500;
    let (thin, thick) = (key(0, 1), key(0, 2));
    // All reads are of the file.
    let options = LogOptions {
        group_count: 1,
        recent_bytes_max: 0,
        read_cache_bytes_max: 0,
        ..LogOptions::default()
    };
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
    for number in 0..COUNT {
        node.append(thin, &number.to_le_bytes()).unwrap();
        node.append(thick, &[7; 6_000]).unwrap();
        node.commit().unwrap();
    }
    let window = 64 << 10;
    let expected: Vec<u8> = (0..COUNT).flat_map(u32::to_le_bytes).collect();
    let mut found = Vec::new();
    let shard = node.shard(thin.group);
    while found.len() < expected.len() {
        let from = ByteOffset::new(found.len() as u64);
        let piece = shard.read(thin, from, window).unwrap().to_bytes().unwrap();
        // Four windows' worth of the file hold so many of its entries, which are 6,000 bytes and more apart.
        assert!((4..=4 * (4 * window / 6_000 + 1)).contains(&piece.len()), "{}", piece.len());
        found.extend_from_slice(&piece);
    }
    assert_eq!(found, expected);
    let read = |key, bytes| shard.read(key, ByteOffset::ZERO, bytes).unwrap().to_bytes().unwrap();
    assert_eq!(read(thin, 60), expected[..60], "a short answer comes at once");
    let whole = read(thick, window);
    assert!(whole.len() > window - 6_000, "long ones fill their window: {}", whole.len());
}

/// Reads of one piece after the other cost the loop as much as a chunk when they have fetched eight times what is hot.
#[test]
fn a_group_is_sealed_for_its_readers_when_a_chunk_would_have_cost_as_little() {
    const COUNT: u64 = 100;
    let options =
        LogOptions { group_count: 1, seal_bytes: 4 << 20, segment_bytes: 4 << 20, ..never_full() };
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
    // Each second append is of the stream that is read, and all are further from each other than one read takes along.
    for number in 0..COUNT {
        node.append(key(0, number % 2), &[number as u8; 2_000]).unwrap();
        node.append(key(0, 2 + number % 2), &[7; 18_000]).unwrap();
        node.commit().unwrap();
    }
    let hot_bytes = COUNT * 20_000;
    let mut reads = 0;
    while !node.run_job() {
        assert!(node.shards[0].stats().chunks == 0 && reads < 1_000);
        node.read_all(key(0, 0), 1 << 20).unwrap();
        reads += 1;
    }
    // Each append that is read counts 4 KiB.
    let least = 8 * hot_bytes / (COUNT / 2 * 4_096);
    assert!((least..=least + 2).contains(&reads), "{reads} reads, for {least}");
    assert_eq!(node.shards[0].stats().chunks, 1);
}

#[test]
fn short_appends_are_sealed_when_there_are_many_of_them() {
    let options = LogOptions { seal_bytes: 1 << 20, hot_appends: 300, ..never_full() };
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
    for number in 0..99 {
        node.append(key(0, number), b"short").unwrap();
        node.append(key(1, number), b"short").unwrap();
    }
    node.append(key(0, 1), b"short").unwrap();
    node.commit().unwrap();
    assert!(node.run_job(), "a third of them are of one of three groups");
    assert!(!node.run_job(), "the other one lacks one");
    let stats = node.shards[0].stats();
    assert_eq!((stats.chunks, stats.hot_appends), (1, 99));
    assert_eq!(node.read_all(key(0, 1), 100).unwrap(), b"shortshort");
}
