//! Disks that are filled and emptied through the log, without outside help.

mod support;

use env::{Disk, MemoryDisk};
use model::StreamKey;
use std::path::Path;
use support::{APPEND, DELETE, Node, key, small};
use thalweg_log::{AppendError, LogOptions};

const STREAM_COUNT: u64 = 60;
const APPEND_BYTES: usize = 900;

/// A WAL that could take more than any of the disks has.
fn options() -> LogOptions {
    LogOptions { segment_bytes: 16 << 10, wal_bytes_max: 4 << 20, ..small() }
}

fn stream(number: u64) -> StreamKey {
    key((number % 3) as u16, number + 1)
}

fn free(disk: &MemoryDisk) -> u64 {
    disk.free_bytes(Path::new("/")).unwrap()
}

/// Appends to all streams until nothing makes room any more; how many appends were taken of each.
fn fill(node: &mut Node) -> Vec<usize> {
    let mut taken = vec![0; STREAM_COUNT as usize];
    let mut refusals = 0;
    for number in (0..STREAM_COUNT).cycle() {
        match node.offer(stream(number), APPEND, &[], &[number as u8; APPEND_BYTES]) {
            Ok(_) => (taken[number as usize], refusals) = (taken[number as usize] + 1, 0),
            Err(AppendError::DiskFull) if refusals == 100 => return taken,
            Err(AppendError::Poisoned) => panic!("a full disk has poisoned the log"),
            Err(AppendError::DiskFull | AppendError::Backpressure) => refusals += 1,
        }
        node.commit().unwrap();
        let _ = node.work();
        assert!(refusals < 1000, "the log pushes back for ever");
    }
    unreachable!("the streams never end");
}

/// Deletes streams one by one, each with a commit of its own. Some jobs may run before the log takes one.
fn delete(node: &mut Node, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let taken = (0..10).any(|_| {
            let taken = node.offer(stream(number), DELETE, &[], &[]).is_ok();
            node.commit().unwrap();
            let _ = node.work();
            taken
        });
        assert!(taken, "delete {number} is refused");
    }
}

fn fill_and_empty(bytes: u64) {
    let disk = MemoryDisk::new();
    disk.set_capacity(bytes);
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    let taken = fill(&mut node);
    let stored = taken.iter().sum::<usize>() * APPEND_BYTES;
    assert!(stored as u64 > bytes / 3, "{stored} of {bytes} bytes are used");
    for number in 0..STREAM_COUNT {
        let length = node.read_all(stream(number), 4096).unwrap().len();
        assert_eq!(length, taken[number as usize] * APPEND_BYTES, "a full disk is read");
    }
    delete(&mut node, 0..STREAM_COUNT / 2);
    drop(node);
    disk.kill_process();
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    delete(&mut node, STREAM_COUNT / 2..STREAM_COUNT);
    for _ in 0..100 {
        let _ = node.work();
    }
    let free = free(&disk);
    assert!(free >= bytes / 10 * 9, "{free} of {bytes} bytes are free again");
    node.append(key(0, 1000), &[1; APPEND_BYTES]).unwrap();
    node.commit().unwrap();
    assert!(node.work().is_ok(), "no work fails any more");
}

#[test]
fn disks_of_many_sizes_are_filled_and_emptied() {
    for kib in [640, 1000, 2000, 4000, 8 << 10] {
        fill_and_empty(kib << 10);
    }
}

/// Each start takes a segment. What the one before it has not used comes back, or else some starts would take the room
/// that is kept for deletes.
#[test]
fn a_full_disk_takes_deletes_after_many_starts() {
    let options = LogOptions { segment_bytes: 1 << 20, wal_bytes_max: 16 << 20, ..options() };
    let disk = MemoryDisk::new();
    disk.set_capacity(8 << 20);
    let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
    for number in (0..STREAM_COUNT).cycle().take(600) {
        // The next job of a log that is busy makes a segment: nothing is sealed.
        while node.offer(stream(number), APPEND, &[], &[number as u8; APPEND_BYTES]).is_err() {
            let job = node.shards[0].poll_work().expect("a job");
            assert!(node.shards[0].handle_work(job.run()).error.is_none());
        }
        node.commit().unwrap();
    }
    // Others fill the disk but for what the log keeps for deletes; a seal of all data needs more.
    disk.set_capacity(disk.used_bytes() + (128 << 10));
    for _ in 0..20 {
        drop(node);
        disk.kill_process();
        node = Node::open_with(&disk, 1, options.clone()).unwrap();
        let _ = node.work();
    }
    delete(&mut node, 0..STREAM_COUNT);
}
