//! Reads of a stream whose appends are far apart in the WAL: bounded in what they cost.

use crate::support::{Node, key, never_full};
use env::MemoryDisk;
use model::ByteOffset;
use thalweg_log::{LogOptions, ReadMode};

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

/// Appends of the stream that is read; between two of them are more bytes than one read takes along.
const FAR_APPENDS: u64 = 50;
const FAR_BYTES: u64 = FAR_APPENDS * 2 * 20_000;

fn open_with_far_appends() -> Node {
    let options =
        LogOptions { group_count: 1, seal_bytes: 4 << 20, segment_bytes: 4 << 20, ..never_full() };
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
    for number in 0..2 * FAR_APPENDS {
        node.append(key(0, number % 2), &[number as u8; 2_000]).unwrap();
        node.append(key(0, 2 + number % 2), &[7; 18_000]).unwrap();
        node.commit().unwrap();
    }
    node
}

/// How often `read` reads the first stream until the group is sealed.
fn reads_until_sealed(mut read: impl FnMut(&mut Node)) -> u64 {
    let mut node = open_with_far_appends();
    let mut reads = 0;
    while !node.run_job() {
        assert!(node.shards[0].stats().chunks == 0 && reads < 1_000);
        read(&mut node);
        reads += 1;
    }
    assert_eq!(node.shards[0].stats().chunks, 1);
    reads
}

/// Each append that is read counts 4 KiB.
#[test]
fn a_group_is_sealed_for_its_readers_when_that_would_have_cost_as_little() {
    let reads = reads_until_sealed(|node| {
        node.read_all(key(0, 0), 1 << 20).unwrap();
    });
    let least = (8 * FAR_BYTES).div_ceil(FAR_APPENDS * 4_096);
    assert!((least..=least + 1).contains(&reads), "{reads} reads, for {least}");
}

#[test]
fn and_sooner_if_reads_had_to_wait_for_the_disk() {
    let reads = reads_until_sealed(|node| {
        let extent = node.shards[0].extent(key(0, 0), ByteOffset::ZERO, 1 << 20).unwrap().unwrap();
        extent.read(ByteOffset::ZERO, 1 << 20, ReadMode::Blocking).unwrap();
        node.shards[0].note_extent(key(0, 0), &extent);
    });
    let least = FAR_BYTES.div_ceil(FAR_APPENDS * 4_096);
    assert!((least..=least + 1).contains(&reads), "{reads} reads, for {least}");
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
