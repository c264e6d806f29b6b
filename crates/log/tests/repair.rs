//! An operator accepts a loss: what is intact is kept, what is lost is named, and the room returns.

use crate::support;
use crate::support::{DELETE, Node, files, flip_two, key, small, spoil_rows};
use env::{Disk, DiskOperation, MemoryDisk};
use model::{ByteOffset, StreamId};
use std::path::{Path, PathBuf};
use thalweg_log::{LogOptions, LostPart, ReadError};

const STREAMS: u64 = 5;
const APPENDS: u64 = 8;
const APPEND_BYTES: u64 = 200;
const TAIL: u64 = APPENDS * APPEND_BYTES;

/// Where the content of a chunk begins, and the length of a run with its table there: 8 bytes, a point of 28 and
/// three of each append.
const CONTENT: u64 = 4096;
const RUN_BYTES: u64 = TAIL + 8 + 28 + 3 * APPENDS;

fn options() -> LogOptions {
    LogOptions { group_count: 1, seal_bytes: STREAMS * TAIL, batch_bytes_max: 64 << 10, ..small() }
}

fn open(disk: &MemoryDisk) -> Node {
    Node::open_with(disk, 1, options()).unwrap()
}

/// All streams in one chunk, which a checkpoint covers, and its file.
fn sealed() -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let mut node = open(&disk);
    for number in 0..APPENDS {
        for stream in 1..=STREAMS {
            let data = vec![(stream * 10 + number) as u8; APPEND_BYTES as usize];
            node.append(key(0, stream), &data).unwrap();
        }
    }
    node.commit().unwrap();
    node.work().unwrap();
    node.checkpoint(key(0, 1).group);
    node.work().unwrap();
    let chunk = support::file(&disk, "chunk");
    assert_eq!(files(&disk, "chunk").len(), 1);
    (disk, chunk)
}

fn spoil_headers(disk: &MemoryDisk, chunk: &Path) {
    let length = disk.open(chunk).unwrap().len().unwrap();
    [20, length - 128 + 20].into_iter().for_each(|at| flip_two(disk, chunk, at));
}

/// What is lost of the chunk, and the ranges that each stream lacks.
fn look(node: &Node) -> (Vec<LostPart>, Vec<Vec<(u64, u64)>>) {
    let losses = node.shards[0].examine().unwrap();
    let lacks = (1..=STREAMS).map(|stream| {
        let damaged = losses.iter().filter_map(|loss| match loss.lost {
            LostPart::Bytes { stream: of, from, to, .. } if of.get() == stream => Some((from, to)),
            _ => None,
        });
        let whole = (ByteOffset::ZERO, ByteOffset::new(TAIL));
        let gaps = node.shards[0].gaps(key(0, stream), whole, &damaged.collect::<Vec<_>>());
        gaps.unwrap().iter().map(|(from, to)| (from.get(), to.get())).collect()
    });
    let lacks = lacks.collect();
    (losses.into_iter().map(|loss| loss.lost).collect(), lacks)
}

fn accept_all(node: &mut Node) {
    for loss in node.shards[0].examine().unwrap() {
        node.shards[0].accept_loss(loss.group, &loss.file).unwrap();
    }
}

/// Whether each append of each stream can be read, bytes compared.
fn readable(node: &mut Node) -> Vec<Vec<bool>> {
    let one = |stream: u64, number: u64, node: &mut Node| {
        let at = ByteOffset::new(number * APPEND_BYTES);
        let read = node.shards[0].read(key(0, stream), at, APPEND_BYTES as usize);
        match read.and_then(|slice| Ok(slice.to_bytes()?)) {
            Ok(bytes) => bytes == vec![(stream * 10 + number) as u8; APPEND_BYTES as usize],
            Err(ReadError::Damaged { .. } | ReadError::NotFound) => false,
            Err(ReadError::PastTail { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    };
    (1..=STREAMS)
        .map(|stream| (0..APPENDS).map(|number| one(stream, number, node)).collect())
        .collect()
}

fn all_but(lost: impl Fn(u64, u64) -> bool) -> Vec<Vec<bool>> {
    let of = |stream| (0..APPENDS).map(|number| !lost(stream, number)).collect();
    (1..=STREAMS).map(of).collect()
}

/// Accepts the loss of a damaged chunk. What is readable then, in this life and the next.
fn after_acceptance(disk: &MemoryDisk, chunk: &Path) -> Vec<Vec<bool>> {
    let mut node = open(disk);
    accept_all(&mut node);
    assert!(!disk.paths().contains(&chunk.to_owned()), "the damaged file is gone");
    assert_eq!(node.shards[0].stats().damaged_chunks, 0);
    let now = readable(&mut node);
    drop(node);
    let mut node = open(disk);
    assert_eq!(node.machine.kinds(), []);
    assert_eq!(look(&node).0, []);
    assert_eq!(readable(&mut node), now);
    // Its room returns with the streams.
    for stream in 1..=STREAMS {
        node.write(key(0, stream), DELETE, &[], &[]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
    assert_eq!(files(disk, "chunk").len(), 0);
    now
}

#[test]
fn an_intact_directory_has_lost_nothing() {
    let (disk, _) = sealed();
    let node = open(&disk);
    assert_eq!(look(&node), (vec![], vec![vec![]; STREAMS as usize]));
}

#[test]
fn damaged_bytes_are_named_and_cost_their_run() {
    let (disk, chunk) = sealed();
    // In the fourth append of the second stream.
    let position = CONTENT + RUN_BYTES + 3 * APPEND_BYTES;
    flip_two(&disk, &chunk, position + 7);
    let node = open(&disk);
    let (lost, lacks) = look(&node);
    // The small chunk is one block, so each append of the run is judged by the run's checksum.
    let (from, to) = (ByteOffset::ZERO, ByteOffset::new(TAIL));
    let position = CONTENT + RUN_BYTES;
    assert_eq!(lost, [LostPart::Bytes { stream: StreamId::new(2), from, to, position }]);
    assert_eq!(lacks, [vec![], vec![(0, TAIL)], vec![], vec![], vec![]]);
    drop(node);
    assert_eq!(after_acceptance(&disk, &chunk), all_but(|stream, _| stream == 2));
}

#[test]
fn damaged_bytes_of_a_long_run_cost_the_appends_of_their_block() {
    const LONG: u64 = 8000;
    let disk = MemoryDisk::new();
    let sizes = LogOptions { segment_bytes: 1 << 20, wal_bytes_max: 8 << 20, ..options() };
    let options = LogOptions { seal_bytes: 40 * LONG, batch_bytes_max: 1 << 20, ..sizes };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    for number in 0..40 {
        node.append(key(0, 1), &[number as u8; LONG as usize]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
    let chunk = support::file(&disk, "chunk");
    let length = disk.open(&chunk).unwrap().len().unwrap();
    assert!(length > 100_000, "{length} bytes");
    flip_two(&disk, &chunk, CONTENT + 70_000);
    let found = node.shards[0].examine().unwrap();
    let [LostPart::Bytes { from, to, .. }] = found.iter().map(|l| l.lost).collect::<Vec<_>>()[..]
    else {
        panic!("{found:?}")
    };
    // One block of 64 KiB, and the appends at both its ends.
    assert!(to.since(from) <= (64 << 10) + 2 * LONG, "{from} to {to}");
    assert_eq!((from.get() % LONG, to.get() % LONG), (0, 0));
    accept_all(&mut node);
    let lost = from.get() / LONG..to.get() / LONG;
    for number in 0..40_u64 {
        let read = node.shards[0].read(key(0, 1), ByteOffset::new(number * LONG), LONG as usize);
        let bytes = read.ok().map(|slice| slice.to_bytes().unwrap());
        let expected = (!lost.contains(&number)).then(|| vec![number as u8; LONG as usize]);
        assert_eq!(bytes.map(|bytes| bytes.to_vec()), expected, "append {number}");
    }
}

#[test]
fn a_lost_table_costs_no_byte() {
    let (disk, chunk) = sealed();
    flip_two(&disk, &chunk, CONTENT + RUN_BYTES + TAIL + 20);
    let node = open(&disk);
    let (lost, lacks) = look(&node);
    assert!(matches!(lost[..], [LostPart::AppendEnds { .. }]), "{lost:?}");
    assert_eq!(lacks, vec![vec![]; STREAMS as usize]);
    drop(node);
    assert_eq!(after_acceptance(&disk, &chunk), all_but(|_, _| false));
}

#[test]
fn lost_rows_and_headers_are_told_by_the_streams_that_lack_bytes() {
    for (spoil, is_kind) in [
        (
            spoil_rows as fn(&MemoryDisk, &Path),
            (|lost| matches!(lost, LostPart::Rows(_))) as fn(&LostPart) -> bool,
        ),
        (spoil_headers, |lost| matches!(lost, LostPart::Headers)),
    ] {
        let (disk, chunk) = sealed();
        spoil(&disk, &chunk);
        let node = open(&disk);
        assert_eq!(node.shards[0].stats().damaged_chunks, 1);
        let (lost, lacks) = look(&node);
        assert!(lost.len() == 1 && is_kind(&lost[0]), "{lost:?}");
        assert_eq!(lacks, vec![vec![(0, TAIL)]; STREAMS as usize]);
        drop(node);
        assert_eq!(after_acceptance(&disk, &chunk), all_but(|_, _| true));
    }
}

#[test]
fn what_the_wal_has_is_not_lost() {
    let (disk, chunk) = sealed();
    let mut node = open(&disk);
    node.append(key(0, 1), &[9; 100]).unwrap();
    node.commit().unwrap();
    node.stop();
    spoil_headers(&disk, &chunk);
    let node = open(&disk);
    let whole = (ByteOffset::new(TAIL - 50), ByteOffset::new(TAIL + 100));
    let gaps = node.shards[0].gaps(key(0, 1), whole, &[]).unwrap();
    assert_eq!(gaps, [(ByteOffset::new(TAIL - 50), ByteOffset::new(TAIL))]);
}

#[test]
fn a_loss_whose_copy_finds_no_room_or_no_disk_is_not_accepted() {
    let (disk, chunk) = sealed();
    flip_two(&disk, &chunk, CONTENT + 7);
    let mut node = open(&disk);
    let loss = node.shards[0].examine().unwrap().swap_remove(0);
    disk.set_capacity(Some(disk.used_bytes() + 100));
    assert!(node.shards[0].accept_loss(loss.group, &loss.file).is_err());
    disk.set_capacity(None);
    disk.fail(DiskOperation::Rename, 0, Some(1));
    assert!(node.shards[0].accept_loss(loss.group, &loss.file).is_err());
    assert_eq!(files(&disk, "chunk"), std::slice::from_ref(&chunk));
    drop(node);
    assert_eq!(after_acceptance(&disk, &chunk), all_but(|stream, _| stream == 1));
}

#[test]
fn power_that_fails_while_a_loss_is_accepted_costs_nothing_more() {
    for changes in 0..40 {
        let (disk, chunk) = sealed();
        flip_two(&disk, &chunk, CONTENT + 7);
        let mut node = open(&disk);
        let loss = node.shards[0].examine().unwrap().swap_remove(0);
        disk.power_off_after(changes);
        let _ = node.shards[0].accept_loss(loss.group, &loss.file);
        drop(node);
        disk.crash(&mut env::SeededRandom::new(changes));
        let mut node = open(&disk);
        accept_all(&mut node);
        assert_eq!(readable(&mut node), all_but(|stream, _| stream == 1), "{changes} changes");
        assert_eq!(files(&disk, "chunk").len(), 1);
    }
}
