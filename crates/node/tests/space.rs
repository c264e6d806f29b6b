//! What a node reports of a disk without room, and that it continues by itself when there is some.

use env::MemoryDisk;
use log::LogOptions;
use model::StreamPath;
use stream::{Outcome, Refusal};
use thalweg_node::testing::{self, Process, options, path_in, text};
use thalweg_node::{DiskTrouble, Event, Failure, Reply, Request};

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
    let (needed_bytes, free_bytes) = process.shards[0].disk_room().unwrap();
    assert!(needed_bytes > 0 && free_bytes == 0, "{needed_bytes} and {free_bytes}");
    disk.set_capacity(None);
    process.wait_ms(300);
    assert!(process.shards[0].disk_trouble().is_some(), "one success is not enough");
    process.wait_ms(1_000);
    process.wait_ms(1_000);
    assert_eq!((process.shards[0].disk_trouble(), process.shards[0].disk_room()), (None, None));
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

    disk.set_capacity(None);
    process.held.work = None;
    process.wait_ms(1_000);
    assert_eq!(chunks(), before);
    // And merges wait for a quiet log: ten ticks in which no batch is written.
    (0..30).for_each(|_| process.wait_ms(1_000));
    assert!(chunks() < before, "merged without a write");
}

fn delete_request(path: &StreamPath) -> Request {
    Request::Delete { path: path.clone() }
}

/// Deletes streams one by one on a disk that others have filled, until one is not deleted at once. Each is a batch of
/// its own; returns the number of the last request, and whose it is.
fn delete_until_no_room_is_left(disk: &MemoryDisk, process: &mut Process) -> (u32, StreamPath) {
    let paths: Vec<_> = (0..1_000).map(|number| path_in(0, &format!("{number}-"))).collect();
    for path in &paths {
        process.offer(testing::create(path, Some("text/plain"), None, b""));
    }
    process.settle();
    disk.set_capacity(disk.used_bytes());
    for path in paths {
        process.replies.clear();
        let number = process.offer(delete_request(&path));
        process.settle();
        if !matches!(process.replies[..], [(_, Reply::Outcome(Outcome::Deleted))]) {
            return (number, path);
        }
    }
    panic!("the log has room for every delete");
}

#[test]
fn a_delete_on_a_full_disk_waits_for_the_room_that_jobs_may_make() {
    for (ms, is_freed) in [(400, true), (499, false), (500, false)] {
        let disk = MemoryDisk::new();
        let mut process = Process::open(&disk, 1);
        let (delete, path) = delete_until_no_room_is_left(&disk, &mut process);
        let append = process.offer(testing::append(&path, b"x"));
        process.wait_ms(4_500);
        let [(refused, Reply::Failed(Failure::DiskFull))] = process.replies[..] else {
            panic!("the delete waits, the append does not: {:?}", process.replies);
        };
        assert_eq!(refused, append);
        process.replies.clear();
        if is_freed {
            disk.set_capacity(None);
        }
        process.wait_ms(ms);
        match process.replies.pop() {
            None => assert_eq!(ms, 499),
            Some((answered, Reply::Outcome(Outcome::Deleted))) => {
                assert!(is_freed && answered == delete);
                assert_eq!(process.refusal(&path), Some(Refusal::NotFound));
            }
            Some((answered, Reply::Failed(Failure::DiskFull))) => {
                assert!(ms == 500 && answered == delete);
            }
            other => panic!("a delete was answered by {other:?}"),
        }
    }
}

/// Before it is known that the disk is full, appends wait for a segment.
#[test]
fn deletes_pass_writes_that_wait_for_a_segment_on_a_full_disk() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 1);
    let (kept, gone) = (path_in(0, "kept"), path_in(0, "gone"));
    process.with_text(&gone, b"x");
    process.create(&kept, "text/plain");
    disk.set_capacity(disk.used_bytes() + 100);
    process.held.work = Some(vec![]);
    let mut appends = Vec::new();
    let appended = |process: &mut Process| {
        let number = process.offer(testing::append(&kept, &[b'x'; 64 * KIB]));
        process.settle();
        (number, process.replies.pop())
    };
    while appends.len() < 3 {
        if let (number, None) = appended(&mut process) {
            appends.push(number);
        }
    }
    assert!(matches!(process.ask(delete_request(&gone)), Reply::Outcome(Outcome::Deleted)));
    for (shard, job) in process.held.work.take().expect("jobs were held") {
        process.handle(shard, Event::Worked(job.run()));
    }
    process.wait_ms(1_000);
    let answered = |(number, reply): &(u32, Reply)| {
        assert!(matches!(reply, Reply::Failed(Failure::DiskFull)), "{reply:?}");
        *number
    };
    assert_eq!(process.replies.iter().map(answered).collect::<Vec<_>>(), appends);
}

/// Where a file system copies on write, the zeroes of a segment reserve nothing.
#[test]
fn a_commit_without_room_poisons_with_its_own_word() {
    let disk = MemoryDisk::new();
    disk.set_copy_on_write("btrfs");
    let mut process = Process::open(&disk, 1);
    let path = path_in(0, "s");
    process.create(&path, "text/plain");
    assert_eq!(process.shards[0].poison_trouble(), None);
    disk.set_capacity(disk.used_bytes());
    let reply = process.ask(testing::append(&path, b"x"));
    assert!(matches!(reply, Reply::Failed(Failure::Poisoned { applied_unknown: true })));
    assert_eq!(process.shards[0].poison_trouble(), Some(DiskTrouble::Full));
}
