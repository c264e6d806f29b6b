//! Disks that are filled and emptied through the log, without outside help.

use crate::support::{APPEND, DELETE, Node, key, small};
use env::{Disk, MemoryDisk};
use model::{GroupId, StreamKey};
use std::path::Path;
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

/// Runs jobs until there are none.
fn run_jobs(node: &mut Node) {
    while let Some(job) = node.shards[0].poll_work() {
        assert!(node.shards[0].handle_work(job.run()).error.is_none());
    }
}

/// To seal the little by which a group keeps a segment takes the room of upkeep, for the segment gives more back. If a
/// checkpoint of the group waits for that seal alone, what comes meanwhile does not matter: it is in later segments.
#[test]
fn a_small_seal_that_frees_a_segment_needs_no_room_for_data_to_come() {
    const UPKEEP_BYTES: u64 = 2 * (4 << 10);
    let disk = MemoryDisk::new();
    let options = LogOptions { segment_bytes: 64 << 10, ..options() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    run_jobs(&mut node);
    node.append(key(1, 1), &[1; 100]).unwrap();
    // One block more than a segment: all else of the second one is empty.
    for bytes in [7000; 8].into_iter().chain([10]) {
        node.append(key(0, 1), &vec![7; bytes]).unwrap();
        node.commit().unwrap();
        run_jobs(&mut node);
    }
    node.checkpoint(GroupId::new(0));
    run_jobs(&mut node);
    let wal_bytes = node.shards[0].stats().wal_bytes;
    // Less is free than the room of upkeep and a chunk take together.
    disk.set_capacity(disk.used_bytes() + UPKEEP_BYTES + (2 << 10));
    node.checkpoint(GroupId::new(1));
    for _ in 0..3 {
        let _ = node.work();
    }
    assert!(node.shards[0].stats().wal_bytes < wal_bytes, "the first segment is still there");
}

/// A checkpoint that failed on a full disk is what makes room: it does not wait for all that may be counted and merged.
#[test]
fn a_checkpoint_that_failed_on_a_full_disk_is_tried_again_soon() {
    let disk = MemoryDisk::new();
    let options = LogOptions { segment_bytes: 64 << 10, seal_bytes: 1 << 20, ..options() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    run_jobs(&mut node);
    for number in 1..10 {
        (0..3).for_each(|group| node.append(key(group, number), &[1; APPEND_BYTES]).unwrap());
        node.commit().unwrap();
        run_jobs(&mut node);
    }
    (0..3).for_each(|group| node.checkpoint(GroupId::new(group)));
    run_jobs(&mut node);
    // What is hot of group 0 cannot be sealed any more, and in each group there is something to count.
    (0..12).for_each(|_| node.append(key(0, 99), &[1; APPEND_BYTES]).unwrap());
    (0..3).for_each(|group| node.write(key(group, 1), DELETE, &[], &[]).unwrap());
    node.commit().unwrap();
    disk.set_capacity(disk.used_bytes() + (14 << 10));
    node.checkpoint(GroupId::new(0));
    node.checkpoint(GroupId::new(2));
    let mut after_failure = None;
    for _ in 0..40 {
        let job = node.shards[0].poll_work().expect("the checkpoint waits");
        let is_checkpoint = format!("{job:?}").contains("Checkpoint(");
        if is_checkpoint && after_failure.is_none() {
            disk.fail_next_sync(1);
            assert!(node.shards[0].handle_work(job.run()).error.is_some());
            after_failure = Some(0);
            continue;
        }
        let _ = node.shards[0].handle_work(job.run());
        if is_checkpoint {
            assert!(after_failure <= Some(1), "{after_failure:?} jobs came before it");
            return;
        }
        after_failure = after_failure.map(|jobs| jobs + 1);
    }
    panic!("the checkpoint is not tried again");
}
