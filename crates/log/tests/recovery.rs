//! What recovery decides about whole WALs, streams and groups.

use crate::support;
use crate::support::wal::{SEGMENT, batch};
use crate::support::{Node, key, small};
use env::{Disk, MemoryDisk, SeededRandom};
use model::ByteOffset;
use thalweg_log::{DamageKind, LogOptions};

#[test]
fn an_opening_that_the_disk_fails_is_an_error_wherever_it_fails() {
    let changes = {
        let disk = MemoryDisk::new();
        let _open = Node::open(&disk, 2).unwrap();
        disk.change_count()
    };
    assert!(changes > 10);
    for done in 0..changes {
        let disk = MemoryDisk::new();
        disk.power_off_after(done);
        assert!(Node::open(&disk, 2).is_err(), "the power went after {done} changes of {changes}");
    }
}

#[test]
fn each_wal_of_a_shard_that_is_gone_is_drained_by_one_shard() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 3).unwrap();
    for group in 0..3 {
        node.append(key(group, 1), b"data").unwrap();
    }
    node.commit().unwrap();
    drop(node);
    let mut node = Node::open(&disk, 2).unwrap();
    node.work().unwrap();
    let of_lane_2 = |path: &std::path::PathBuf| path.starts_with("/data/wal/00002");
    assert_eq!(disk.paths().into_iter().find(of_lane_2), None);
    assert_eq!(node.read_all(key(2, 1), 100).unwrap(), b"data");
}

#[test]
fn a_batch_that_fills_its_segment_needs_no_header() {
    let disk = MemoryDisk::new();
    let options = LogOptions { checkpoint_bytes: 1 << 30, seal_bytes: 1 << 30, ..small() };
    let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
    let data = vec![7; small().segment_bytes as usize - 200];
    for _ in 0..3 {
        // A spare segment, and nothing else.
        let job = node.shards[0].poll_work();
        job.map(|job| node.shards[0].handle_work(job.run()));
        node.offer(key(0, 1), support::APPEND, &[], &data).unwrap();
        node.commit().unwrap();
    }
    drop(node);
    let wal = disk.paths().into_iter().filter(|path| path.starts_with("/data/wal")).nth(1).unwrap();
    support::spoil(&disk, &wal, 8);
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    let found = node.machine.damages.iter().map(|d| (d.kind, d.file.clone(), d.position));
    assert_eq!(found.collect::<Vec<_>>(), [(DamageKind::BatchHeader, wal, 0)]);
    assert_eq!(node.read_all(key(0, 1), 1 << 16).unwrap(), data.repeat(3));
}

#[test]
fn a_segment_that_ends_inside_a_batch_without_a_header_is_read_to_its_end() {
    let disk = MemoryDisk::new();
    let options = LogOptions { checkpoint_bytes: 1 << 30, seal_bytes: 1 << 30, ..small() };
    let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
    // One block; one of entry headers and one of data; and the next segment.
    for (count, data) in [(1, vec![1; 10]), (70, vec![2; 10]), (1, vec![3; 30_000])] {
        (0..count).for_each(|_| _ = node.offer(key(0, 1), support::APPEND, &[], &data).unwrap());
        node.commit().unwrap();
        // A spare segment, and nothing else.
        let job = node.shards[0].poll_work();
        job.map(|job| node.shards[0].handle_work(job.run()));
    }
    drop(node);
    let wal = disk.paths().into_iter().find(|path| path.starts_with("/data/wal")).unwrap();
    for bit in 0..2 {
        disk.flip_bit(&wal, (batch(1) + SEGMENT) * 8 + bit);
    }
    Disk::open(&disk, &wal).unwrap().set_len(batch(2)).unwrap();
    let node = Node::open_with(&disk, 1, options).unwrap();
    let damages = &node.machine.damages;
    assert!(damages.iter().any(|damage| damage.kind == DamageKind::BatchHeader), "{damages:?}");
    // The 63 entries with headers in the remaining block keep their places.
    assert_eq!(node.machine.streams[&key(0, 1)].tail, 10 + 630 + 30_000);
    let first = node.shards[0].read(key(0, 1), ByteOffset::ZERO, 10).unwrap();
    assert_eq!(first.to_bytes().unwrap(), [1; 10][..]);
}

#[test]
fn an_empty_log_knows_how_often_it_was_opened_if_it_is_marked() {
    for marks_empty in [false, true] {
        let (disk, options) = (MemoryDisk::new(), LogOptions { marks_empty, ..small() });
        let openings = (1..=3).map(|_| {
            let epoch = Node::open_with(&disk, 2, options.clone()).unwrap().report.epoch;
            // Only what was synced is there after the power has failed.
            disk.crash(&mut SeededRandom::new(1));
            epoch
        });
        let expected = if marks_empty { [1, 2, 3] } else { [1, 1, 1] };
        assert_eq!(openings.collect::<Vec<_>>(), expected);
        let mut node = Node::open_with(&disk, 2, options).unwrap();
        node.append(key(0, 1), b"first").unwrap();
        node.commit().unwrap();
        disk.crash(&mut SeededRandom::new(1));
        let mut node = Node::open_with(&disk, 1, small()).unwrap();
        assert_eq!(node.read_all(key(0, 1), 10).unwrap(), b"first");
        assert_eq!(node.machine.kinds(), []);
    }
}
