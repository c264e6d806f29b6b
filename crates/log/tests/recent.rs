//! Recently committed bytes are read from memory: only those, all of those, and never others.

use crate::support::{APPEND, DELETE, Node, file, files, key, never_full, small, spoil, wal};
use env::{MemoryDisk, Random, SeededRandom};
use model::{ByteOffset, StreamKey};
use std::collections::BTreeMap;
use thalweg_log::{LogOptions, ReadError, RecentStats, Slice};

fn open(disk: &MemoryDisk, recent_bytes_max: u64) -> Node {
    Node::open_with(disk, 1, LogOptions { recent_bytes_max, ..small() }).unwrap()
}

fn stats(node: &Node) -> RecentStats {
    node.shards[0].stats().recent
}

fn commit(node: &mut Node, key: StreamKey, data: &[u8]) {
    node.append(key, data).unwrap();
    node.commit().unwrap();
}

fn read(node: &mut Node, key: StreamKey, from: u64) -> Result<Vec<u8>, ReadError> {
    let slice = node.shard(key.group).read(key, ByteOffset::new(from), 1 << 20)?;
    Ok(slice.to_bytes()?.to_vec())
}

/// Nearly a block.
const LONG: usize = 3_000;

/// Appends to a stream of each of two groups in turn, a block each, until the first two segments are full; what each then has.
fn fill_segments(node: &mut Node) -> [Vec<u8>; 2] {
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..20 {
        commit(node, key(number % 2, 1), &[number as u8; LONG]);
        assert!(
            !node.run_job(),
            "a segment is made before an append waits for it, for which all would be sealed"
        );
        expected[usize::from(number % 2)].extend_from_slice(&[number as u8; LONG]);
    }
    expected
}

/// Keeps nothing of what was committed last, and four pieces of 16 KiB of what is read.
fn open_with_cache(disk: &MemoryDisk) -> Node {
    let options = LogOptions {
        segment_bytes: 32 << 10,
        wal_bytes_max: 8 << 20,
        seal_bytes: 1 << 20,
        read_cache_bytes_max: 64 << 10,
        ..never_full()
    };
    Node::open_with(disk, 1, options).unwrap()
}

/// Damages the data of the append that is the only one in the batch at this block of the only segment with batches.
fn damage(disk: &MemoryDisk, block: u64) {
    spoil(disk, &file(disk, "wal"), wal::batch(block) + wal::payload(1));
}

#[test]
fn what_was_just_written_needs_no_file() {
    let disk = MemoryDisk::new();
    let mut node = open(&disk, 1 << 20);
    for number in 0..4 {
        commit(&mut node, key(0, 1), &[number; 100]);
        commit(&mut node, key(0, 2), &[99; 100]);
    }
    (0..8).for_each(|block| damage(&disk, block));
    let expected: Vec<u8> = (0..4).flat_map(|number| [number; 100]).collect();
    assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), expected, "as it was acknowledged");
    assert_eq!(read(&mut node, key(0, 1), 250).unwrap(), expected[250..]);
    let part = node.shard(key(0, 1).group).read(key(0, 1), ByteOffset::new(130), 20).unwrap();
    assert_eq!(part.to_bytes().unwrap(), expected[130..150], "a part of one append");
    assert_eq!(
        stats(&node),
        RecentStats { held_bytes: 800, hits: 4 + 2 + 1, ..RecentStats::default() }
    );
}

#[test]
fn a_long_history_that_is_read_again_is_in_one_piece() {
    let disk = MemoryDisk::new();
    let mut node = open(&disk, 1 << 20);
    let mut expected = Vec::new();
    for number in 0..10 {
        node.append(key(0, 1), &[number; 100]).unwrap();
        node.append(key(0, 2), &[99; 100]).unwrap();
        expected.extend_from_slice(&[number; 100]);
    }
    node.commit().unwrap();
    let mut read_from = |from: u64| {
        let slice = node.shard(key(0, 1).group).read(key(0, 1), ByteOffset::new(from), 600);
        let (slice, from) = (slice.unwrap(), from as usize);
        let bytes = slice.to_bytes().unwrap();
        assert_eq!(bytes, expected[from..from + bytes.len()], "from {from}");
        (matches!(slice, Slice::File { .. }), bytes.len())
    };
    for _ in 0..3 {
        assert_eq!(read_from(50), (false, 550), "most are read seldom, and end with an append");
    }
    assert_eq!(read_from(50), (true, 600), "made now");
    spoil(&disk, &file(&disk, "wal"), wal::batch(0) + wal::payload(20) + 310);
    assert_eq!(read_from(50), (true, 600));
    assert_eq!(read_from(120), (true, 530), "a part of it");
    assert_eq!(read_from(800), (false, 200), "a short one is copied");
    assert_eq!(stats(&node).run_hits, 2);
}

#[test]
fn a_run_ends_where_memory_does_and_never_outlives_its_stream() {
    let disk = MemoryDisk::new();
    let mut node = open(&disk, 1 << 20);
    commit(&mut node, key(0, 1), &[1; 400]);
    (0..5).for_each(|_| assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), [1; 400]));
    // Its next append is too long to be kept.
    commit(&mut node, key(0, 1), &[2; 40_000]);
    commit(&mut node, key(0, 1), &[3; 400]);
    let whole = node.read_all(key(0, 1), 1 << 20).unwrap();
    assert_eq!(whole, [vec![1; 400], vec![2; 40_000], vec![3; 400]].concat());
    node.trim(key(0, 1), 100).unwrap();
    node.commit().unwrap();
    assert!(matches!(read(&mut node, key(0, 1), 0), Err(ReadError::Trimmed { .. })));
    assert_eq!(read(&mut node, key(0, 1), 100).unwrap()[..300], [1; 300]);
    node.write(key(0, 1), DELETE, &[], &[]).unwrap();
    node.commit().unwrap();
    assert!(matches!(read(&mut node, key(0, 1), 100), Err(ReadError::NotFound)));
}

#[test]
fn the_oldest_bytes_leave_first_and_are_read_from_the_log() {
    let disk = MemoryDisk::new();
    // A quarter is for runs, and of the rest one piece of four is for seals. Each of the others has room for one append.
    let mut node = open(&disk, 600);
    for number in 0..5 {
        commit(&mut node, key(0, 1), &[number; 100]);
        assert!(stats(&node).held_bytes <= 300);
    }
    // The fourth append has replaced the first one. The fifth has replaced the second.
    damage(&disk, 2);
    assert_eq!(read(&mut node, key(0, 1), 200).unwrap()[..100], [2; 100]);
    assert_eq!(stats(&node).misses, 0);
    damage(&disk, 1);
    assert!(matches!(read(&mut node, key(0, 1), 100), Err(ReadError::Damaged { .. })));
    assert!(stats(&node).misses > 0);
    assert_eq!(read(&mut node, key(0, 1), 0).unwrap()[..100], [0; 100], "from the log, intact");
}

/// Three pieces of a ring, one append in each; a seal of the first two is under way.
fn open_with_pieces(disk: &MemoryDisk) -> Node {
    let options = LogOptions { recent_bytes_max: 600, hot_appends: 9, ..never_full() };
    let mut node = Node::open_with(disk, 1, options).unwrap();
    (0..3).for_each(|number| commit(&mut node, key(0, 1), &[number; 100]));
    node
}

#[test]
fn a_seal_takes_short_appends_from_memory_and_the_others_from_the_log() {
    let disk = MemoryDisk::new();
    let mut node = open_with_pieces(&disk);
    // The last piece is still filled, so its append is read from the log.
    (0..2).for_each(|block| damage(&disk, block));
    let seal = node.next_job().expect("it is worth a chunk");
    node.finish_job(seal);
    let whole = node.read_all(key(0, 1), 1 << 20).unwrap();
    assert_eq!(whole, [[0; 100], [1; 100], [2; 100]].concat(), "as it was acknowledged");
    assert_eq!(stats(&node).hits, 0, "it is in a chunk");
}

#[test]
fn what_a_seal_takes_from_memory_is_not_written_over_meanwhile() {
    let disk = MemoryDisk::new();
    let mut node = open_with_pieces(&disk);
    (0..2).for_each(|block| damage(&disk, block));
    let seal = node.next_job().expect("it is worth a chunk");
    // One piece takes the place of the first one. Then there is no memory: these are not kept.
    for number in 3..8 {
        commit(&mut node, key(1, 1), &[number; 100]);
        assert!(stats(&node).held_bytes <= 400);
    }
    node.finish_job(seal);
    let whole = node.read_all(key(0, 1), 1 << 20).unwrap();
    assert_eq!(whole, [[0; 100], [1; 100], [2; 100]].concat());
    let before = stats(&node).misses;
    let whole = node.read_all(key(1, 1), 1 << 20).unwrap();
    assert_eq!(whole, [[3; 100], [4; 100], [5; 100], [6; 100], [7; 100]].concat());
    assert!(stats(&node).misses > before);
    // The seal has ended: what comes now is kept.
    commit(&mut node, key(1, 1), &[8; 100]);
    let before = stats(&node);
    assert_eq!(read(&mut node, key(1, 1), 500).unwrap(), [8; 100]);
    assert_eq!(stats(&node).hits, before.hits + 1);
}

#[test]
fn short_appends_are_sealed_before_they_leave_memory() {
    let seals = |(recent_bytes_max, seal_bytes), bytes: usize, appends: u8| {
        let options = LogOptions { recent_bytes_max, seal_bytes, ..never_full() };
        let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
        (0..appends).for_each(|number| commit(&mut node, key(0, 1), &vec![number; bytes]));
        node.next_job().is_some()
    };
    // Three pieces of 225 bytes, two appends in each. A 32nd of what is sealed otherwise are 225 bytes, too.
    assert!(!seals((1_200, 7_200), 100, 4) && seals((1_200, 7_200), 100, 5));
    assert!(!seals((1_200, 1 << 20), 100, 100), "so little is worth no chunk");
    let large = (40_000, 128 << 10);
    assert!(seals(large, 4_000, 4) && !seals(large, 5_000, 4), "long ones wait");
    assert!(!seals(large, 4_000, 9), "it left long ago");
}

#[test]
fn only_what_is_in_memory_and_worth_a_chunk_is_sealed_before_it_leaves() {
    let options = LogOptions { recent_bytes_max: 1_200, seal_bytes: 7_200, ..never_full() };
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
    (0..3).for_each(|number| commit(&mut node, key(0, 1), &[number; 100]));
    drop(node);
    // Those are not in memory any more.
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    commit(&mut node, key(1, 1), &[0; 100]);
    (1..9).for_each(|number| {
        assert!(node.next_job().is_none(), "before append {number}");
        commit(&mut node, key(2, 1), &[number; 100]);
        commit(&mut node, key(0, 1), &[number; 100]);
        if let Some(seal) = node.next_job() {
            node.finish_job(seal);
        }
    });
    let stats = node.shards[0].stats();
    // Two seals of three appends of one group. Another one has too little, and of the third one the first are not in memory.
    assert_eq!((stats.chunks, stats.hot_appends), (2, 2 + 1 + 11));
}

#[test]
fn no_memory_is_used_if_there_shall_be_none() {
    let mut node = open(&MemoryDisk::new(), 0);
    commit(&mut node, key(0, 1), &[1; 100]);
    assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), [1; 100]);
    assert_eq!(stats(&node), RecentStats { misses: 1, ..RecentStats::default() });
    node.write(key(0, 2), APPEND, &[], b"1").unwrap();
    node.commit().unwrap();
    assert_eq!(stats(&node).held_bytes, 0);
}

#[test]
fn commands_alone_and_long_appends_take_no_memory() {
    let mut node = open(&MemoryDisk::new(), 1 << 20);
    for number in 0..100 {
        node.write(key(0, number), APPEND, &[7; 200], &[]).unwrap();
        node.commit().unwrap();
    }
    commit(&mut node, key(0, 200), &vec![1; 40_000]);
    assert_eq!(stats(&node).held_bytes, 0);
    assert_eq!(read(&mut node, key(0, 200), 0).unwrap(), [1; 40_000]);
    // A command takes room only beside data.
    node.write(key(0, 201), APPEND, &[7; 30], &[2; 10]).unwrap();
    node.commit().unwrap();
    assert_eq!(stats(&node).held_bytes, 40);
    assert_eq!(read(&mut node, key(0, 201), 0).unwrap(), [2; 10]);
}

#[test]
fn bytes_whose_sync_failed_are_never_served() {
    let disk = MemoryDisk::new();
    let mut node = open(&disk, 1 << 20);
    commit(&mut node, key(0, 1), b"durable");
    disk.fail_next_sync(1);
    node.append(key(0, 1), b"unknown").unwrap();
    assert!(node.commit().is_err());
    assert_eq!(stats(&node).held_bytes, 7);
    assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), b"durable");
    assert_eq!(read(&mut node, key(0, 1), 7).unwrap(), b"");
}

#[test]
fn deleted_and_trimmed_bytes_are_gone_from_memory_too() {
    let mut node = open(&MemoryDisk::new(), 1 << 20);
    for stream in [1, 2] {
        commit(&mut node, key(0, stream), &[1; 100]);
        commit(&mut node, key(0, stream), &[2; 100]);
    }
    node.write(key(0, 1), DELETE, &[], &[]).unwrap();
    node.trim(key(0, 2), 150).unwrap();
    node.commit().unwrap();
    assert!(matches!(read(&mut node, key(0, 1), 0), Err(ReadError::NotFound)));
    assert!(matches!(read(&mut node, key(0, 2), 149), Err(ReadError::Trimmed { .. })));
    assert_eq!(read(&mut node, key(0, 2), 150).unwrap(), [2; 50]);
}

#[test]
fn the_bound_is_for_all_shards_together() {
    let options = LogOptions { recent_bytes_max: 4000, ..small() };
    let mut node = Node::open_with(&MemoryDisk::new(), 3, options).unwrap();
    for number in 0..300 {
        commit(&mut node, key(number % 3, 1), &[1; 100]);
    }
    let held: Vec<u64> = node.shards.iter().map(|shard| shard.stats().recent.held_bytes).collect();
    // Two of them in each of three pieces.
    assert_eq!(held, [600; 3]);
}

/// A ring that outlives the segments whose bytes it holds: their slots and files are used again.
#[test]
fn places_of_segments_that_are_used_again_name_their_new_bytes() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let disk = MemoryDisk::new();
        let bound = [2_000, 50_000, 1 << 20][(seed % 3) as usize];
        let read_cache_bytes_max = [0, 16 << 10][(seed / 3 % 2) as usize];
        // What leaves memory is not worth a chunk.
        let seal_bytes = 256 << 10;
        let options =
            LogOptions { recent_bytes_max: bound, read_cache_bytes_max, seal_bytes, ..small() };
        let mut node = Node::open_with(&disk, 1, options).unwrap();
        let mut expected: BTreeMap<StreamKey, Vec<u8>> = BTreeMap::new();
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..600 {
            let key = key(random.below(3) as u16, 1 + random.below(5));
            let mut data = vec![0; 1 + random.below(700) as usize];
            random.fill(&mut data);
            node.append(key, &data).unwrap();
            expected.entry(key).or_default().extend_from_slice(&data);
            match random.below(8) {
                0 => node.work().unwrap(),
                1 => node.hold_jobs(key.group),
                2..6 => node.commit().unwrap(),
                _ => {}
            }
            names.extend(files(&disk, "wal"));
            let ends = node.machine.streams.get(&key).copied().unwrap_or_default();
            let found = node.read_all(key, 1 + random.below(3000) as usize).unwrap();
            assert_eq!(found, expected[&key][..ends.tail as usize], "seed {seed}: {key}");
            let held = stats(&node).held_bytes;
            assert!(held <= bound + read_cache_bytes_max, "seed {seed}");
        }
        assert!(names.len() > 8, "segments were used again: {}", names.len());
        let RecentStats { hits, misses, run_hits, .. } = stats(&node);
        assert!(run_hits > 0 || bound < 1 << 20, "seed {seed}: no run was read");
        assert!(hits > 100 && (misses > 100 || bound > 2_000), "{hits} hits, {misses} misses");
    }
}

#[test]
fn a_read_of_an_older_segment_takes_along_what_lies_around_it() {
    let disk = MemoryDisk::new();
    let mut node = open_with_cache(&disk);
    let expected = fill_segments(&mut node);
    // One piece for a read: the second half of the segment is still read append by append.
    assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), expected[0]);
    assert_eq!(stats(&node).held_bytes, 16 << 10);
    let segment = files(&disk, "wal")[0].clone();
    spoil(&disk, &segment, wal::batch(1) + wal::payload(1));
    assert_eq!(read(&mut node, key(1, 1), 0).unwrap(), expected[1], "of another stream, too");
    let held = stats(&node);
    assert_eq!(held.held_bytes, 32 << 10);
    assert_eq!(held.hits + held.misses, 20);
    assert!(held.hits >= 5, "{held:?}");
    assert_eq!(read(&mut node, key(1, 1), 0).unwrap(), expected[1]);
}

#[test]
fn nothing_is_taken_along_of_the_segment_that_is_written() {
    let disk = MemoryDisk::new();
    let mut node = open_with_cache(&disk);
    let mut expected = Vec::new();
    for number in 0..6 {
        commit(&mut node, key(0, 1), &[number; LONG]);
        expected.extend_from_slice(&[number; LONG]);
        assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), expected);
    }
    assert_eq!(stats(&node).held_bytes, 0);
    assert_eq!(stats(&node).hits, 0);
}

#[test]
fn damage_that_a_piece_has_is_found_by_its_checksum() {
    let disk = MemoryDisk::new();
    let mut node = open_with_cache(&disk);
    let expected = fill_segments(&mut node);
    let segment = files(&disk, "wal")[0].clone();
    spoil(&disk, &segment, wal::batch(1) + wal::payload(1));
    // This one loads the piece.
    assert_eq!(read(&mut node, key(0, 1), 0).unwrap(), expected[0]);
    assert_eq!(stats(&node).held_bytes, 16 << 10);
    assert!(matches!(read(&mut node, key(1, 1), 0), Err(ReadError::Damaged { .. })));
    let behind = read(&mut node, key(1, 1), LONG as u64).unwrap();
    assert_eq!(behind, expected[1][LONG..], "what follows is intact");
}

#[test]
fn a_start_begins_without_memory() {
    let disk = MemoryDisk::new();
    let mut node = open(&disk, 1 << 20);
    commit(&mut node, key(0, 1), &[1; 100]);
    drop(node);
    let mut node = open(&disk, 1 << 20);
    commit(&mut node, key(0, 1), &[2; 100]);
    let found = read(&mut node, key(0, 1), 0).unwrap();
    assert_eq!((&found[..100], &found[100..]), (&[1; 100][..], &[2; 100][..]));
    assert_eq!(stats(&node), RecentStats { held_bytes: 100, hits: 1, misses: 1, run_hits: 0 });
}
