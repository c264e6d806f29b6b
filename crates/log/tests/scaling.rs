//! What a start, a deletion and a trim cost does not grow with the chunks of the group: looks into chunks are counted.
//! What a read of a damaged block costs does not grow with the rows of its chunk: reads of the disk are counted.

use crate::support;
use crate::support::{Node, file, flip_two, key};
use env::{Disk, MemoryDisk};
use model::{ByteOffset, GroupId};
use std::ops::RangeInclusive;
use thalweg_log::{LogOptions, ReadError};

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

/// Makes chunks of which the first one alone has stream 5: no other has it, and each has streams on both sides of it.
fn with_one_in_the_first_chunk(options: &LogOptions) -> (MemoryDisk, Node) {
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
    for chunk in 0..CHUNKS {
        let between = if chunk == 0 { 5 } else { 6 };
        for stream in [1, between, 20] {
            node.append(key(0, stream), &[7; 300]).unwrap();
        }
        node.commit().unwrap();
        node.work().unwrap();
    }
    assert_eq!(node.shards[0].stats().chunks, CHUNKS);
    (disk, node)
}

#[test]
fn a_read_takes_no_page_of_a_chunk_without_its_stream() {
    let (disk, node) = with_one_in_the_first_chunk(&options());
    drop(node);
    let mut node = open(&disk);
    for _ in 0..2 {
        let before = looks(&node);
        assert_eq!(node.read_all(key(0, 5), 300).unwrap(), [7; 300]);
        let taken = looks(&node) - before;
        assert!(taken < CHUNKS / 20, "{taken} pages of {CHUNKS} chunks");
    }
}

#[test]
fn a_read_of_a_stream_that_is_in_all_chunks_looks_into_few() {
    let (_, node) = with_chunks(CHUNKS);
    for chunk in [0, 1, CHUNKS / 3, CHUNKS - 1] {
        let before = looks(&node);
        let read = node.shards[0].read(key(0, 5), ByteOffset::new(chunk * 100 + 50), 10);
        assert_eq!(read.unwrap().to_bytes().unwrap()[..], [7; 10]);
        let taken = looks(&node) - before;
        assert!(taken < CHUNKS / 8, "{taken} pages of {CHUNKS} chunks");
    }
}

#[test]
fn filters_and_pages_take_no_more_memory_than_they_may() {
    let options = LogOptions { chunk_pages_bytes_max: 8 << 10, ..options() };
    let (disk, node) = with_one_in_the_first_chunk(&options);
    drop(node);
    let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
    let kept = |node: &Node| node.shards[0].stats().chunk_cache.page_bytes;
    for _ in 0..2 {
        assert_eq!(node.read_all(key(0, 5), 300).unwrap(), [7; 300]);
        assert!((4 << 10..=8 << 10).contains(&kept(&node)), "{} bytes", kept(&node));
    }
    (1..=20).for_each(|stream| node.shards[0].forget(key(0, stream)));
    for _ in 0..10 {
        append_to_all(&mut node, 1);
        node.work().unwrap();
    }
    assert!(node.shards[0].stats().chunks < 20, "{:?}", node.shards[0].stats().chunks);
    assert!(kept(&node) <= 4 << 10, "filters of chunks that are gone are gone: {}", kept(&node));
}

/// Streams on both sides of a damaged one that are read: more than its block holds.
const NEIGHBOURS: u64 = 1_000;

/// The bytes of a stream in a chunk of many streams: no other stream has the same.
fn run(stream: u64) -> Vec<u8> {
    stream.to_le_bytes().repeat(12)
}

/// One chunk with a run of each of so many streams; no page of it stays in memory, so that each look is a read.
fn with_rows(rows: u64) -> (MemoryDisk, LogOptions) {
    let disk = MemoryDisk::new();
    let options = LogOptions {
        seal_bytes: 64 << 10,
        chunk_bytes_max: 64 << 20,
        chunk_pages_bytes_max: 0,
        segment_bytes: 64 << 20,
        wal_bytes_max: 256 << 20,
        ..options()
    };
    let sealing = LogOptions { seal_bytes: rows * run(0).len() as u64, ..options.clone() };
    let mut node = Node::open_with(&disk, 1, sealing).unwrap();
    for stream in 1..=rows {
        node.append(key(0, stream), &run(stream)).unwrap();
        if stream % 1000 == 0 {
            node.commit().unwrap();
        }
    }
    node.commit().unwrap();
    node.work().unwrap();
    let stats = node.shards[0].stats();
    assert_eq!((stats.chunks, stats.hot_appends), (1, 0));
    (disk, options)
}

/// The place of the bytes of a stream in the only chunk.
fn place(disk: &MemoryDisk, stream: u64) -> u64 {
    let file = disk.open(&file(disk, "chunk")).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let run = run(stream);
    bytes.windows(run.len()).position(|found| found == run).unwrap() as u64
}

/// After a start: the most reads of the disk for one of `streams`, and which of these are damaged.
fn reads_each(
    (disk, options): &(MemoryDisk, LogOptions),
    streams: RangeInclusive<u64>,
) -> (u64, Vec<u64>) {
    let node = Node::open_with(disk, 1, options.clone()).unwrap();
    let (mut most, mut damaged) = (0, Vec::new());
    for stream in streams {
        let before = disk.read_counts();
        let found = node.shards[0].read(key(0, stream), ByteOffset::ZERO, 1 << 10);
        match found.map(|slice| slice.to_bytes().unwrap()) {
            Ok(bytes) => assert_eq!(bytes[..], run(stream)),
            Err(ReadError::Damaged { .. }) => damaged.push(stream),
            Err(error) => panic!("stream {stream}: {error:?}"),
        }
        let now = disk.read_counts();
        most = most.max(now.waiting + now.cached - before.waiting - before.cached);
    }
    (most, damaged)
}

#[test]
fn a_read_of_a_damaged_block_makes_few_reads_however_many_rows_the_chunk_has() {
    for rows in [3_000, 70_000] {
        let chunk = with_rows(rows);
        let middle = rows / 2;
        let streams = middle - NEIGHBOURS..=middle + NEIGHBOURS;
        let (intact, damaged) = reads_each(&chunk, streams.clone());
        assert_eq!(damaged, []);
        let disk = &chunk.0;
        flip_two(disk, &file(disk, "chunk"), place(disk, middle));
        let (beside, damaged) = reads_each(&chunk, streams);
        assert_eq!(damaged, [middle], "its neighbours in the block are intact");
        assert!(intact <= 8, "{rows} rows: {intact} reads for one stream");
        assert!(beside <= 12, "{rows} rows: {beside} reads for one stream beside damage");
    }
}
