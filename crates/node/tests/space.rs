//! What a node reports of a disk without room, and that it continues by itself when there is some.

use env::MemoryDisk;
use log::LogOptions;
use stream::Outcome;
use thalweg_node::testing::{self, Process, options, path_in, text};
use thalweg_node::{DiskTrouble, Event, Reply};

const KIB: usize = 1 << 10;

#[test]
fn a_full_disk_is_reported_until_no_work_has_failed_for_a_while() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 1);
    let path = path_in(0, "s");
    process.create(&path, "text/plain");
    assert_eq!(process.shards[0].disk_trouble(), None);
    disk.set_capacity(disk.used_bytes());
    for _ in 0..64 {
        let append = testing::append(&path, &[b'x'; 64 * KIB]);
        process.offer(append);
        process.wait_ms(300);
    }
    let (trouble, error) = process.shards[0].disk_trouble().unwrap();
    assert_eq!(trouble, DiskTrouble::Full);
    assert!(error.ends_with("free bytes, and 0 are free"), "{error} says what is needed");
    disk.set_capacity(u64::MAX / 2);
    process.wait_ms(300);
    assert!(process.shards[0].disk_trouble().is_some(), "one success is not enough");
    process.wait_ms(1_000);
    process.wait_ms(1_000);
    assert_eq!(process.shards[0].disk_trouble(), None);
    process.replies.clear();
    assert!(matches!(process.append(&path, text(), b"x"), Outcome::Appended(_)));
}

/// Runs the jobs that were held. Those that copy find less room than a merge asks for.
fn work_without_room_for_merges(process: &mut Process, disk: &MemoryDisk) {
    loop {
        process.settle();
        let Some((shard, job)) = process.held.work.as_mut().unwrap().pop() else { return };
        let room = if job.group().is_none() { u64::MAX / 2 } else { options().segment_bytes };
        disk.set_capacity(disk.used_bytes() + room);
        process.shards[shard].handle(process.now, Event::Worked(job.run()));
    }
}

#[test]
fn a_merge_without_room_is_reported_once_and_made_when_there_is_some() {
    let disk = MemoryDisk::new();
    let options = LogOptions { seal_bytes: 8 << 10, checkpoint_bytes: 16 << 10, ..options() };
    let mut process = Process::open_with(&disk, 1, options);
    let path = path_in(0, "s");
    process.create(&path, "text/plain");
    process.held.work = Some(vec![]);
    for _ in 0..32 {
        process.offer(testing::append(&path, &[b'x'; 12 * KIB]));
        work_without_room_for_merges(&mut process, &disk);
    }
    let appended = |reply: &Reply| matches!(reply, Reply::Outcome(Outcome::Appended(_)));
    assert!(
        process.replies.drain(..).all(|(_, reply)| appended(&reply)),
        "appends are taken all the same"
    );
    let chunks = || {
        disk.paths().iter().filter(|path| path.extension().is_some_and(|e| e == "chunk")).count()
    };
    let before = chunks();
    assert!(before > 8, "{before} chunks");
    assert!(process.shards[0].take_merge_refusal().is_some());
    assert!(process.shards[0].take_merge_refusal().is_none(), "told once");
    assert_eq!(process.shards[0].disk_trouble(), None, "it is no trouble");

    disk.set_capacity(u64::MAX / 2);
    process.held.work = None;
    process.wait_ms(1_000);
    assert_eq!(chunks(), before);
    process.wait_ms(10_000);
    assert!(chunks() < before, "merged without a write");
}
