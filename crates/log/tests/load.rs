//! What waits while much is written, and what is quicker then.

use crate::support::{APPEND, DELETE, Node, files, key, never_full, small};
use env::MemoryDisk;
use thalweg_log::LogOptions;

/// Enough for some merges, and fewer than may wait.
const CHUNKS: usize = 40;
const CHUNK_BYTES: usize = 3 << 10;

/// Each append is sealed by itself. Chunks may be longer than what is enough for a seal.
fn options() -> LogOptions {
    LogOptions { seal_bytes: 1 << 10, ..never_full() }
}

/// Appends to `group`, a chunk for each, with a tick after each.
fn seal(node: &mut Node, group: u16, count: usize) {
    for number in 0..count {
        node.append(key(group, 1), &[number as u8; CHUNK_BYTES]).unwrap();
        node.commit().unwrap();
        node.work().unwrap();
        node.shards[0].tick();
    }
}

fn chunks(node: &Node) -> u64 {
    node.shards[0].stats().chunks
}

#[test]
fn merges_wait_until_the_log_has_been_quiet() {
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    // Before the first tick nothing says that there is much to write.
    node.shards[0].tick();
    seal(&mut node, 0, 1);
    seal(&mut node, 0, CHUNKS - 1);
    assert_eq!(chunks(&node), CHUNKS as u64);
    let bytes = node.read_all(key(0, 1), 777).unwrap();
    for _ in 0..9 {
        node.shards[0].tick();
        assert!(!node.run_job(), "that was not long enough");
    }
    node.shards[0].tick();
    node.work().unwrap();
    assert!(chunks(&node) < 16, "{} chunks are left", chunks(&node));
    assert_eq!(files(&disk, "chunk").len() as u64, chunks(&node));
    assert_eq!(node.read_all(key(0, 1), 777).unwrap(), bytes);
}

#[test]
fn no_more_than_a_bounded_number_of_chunks_wait() {
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    let mut most = 0;
    for _ in 0..300 {
        seal(&mut node, 0, 1);
        most = most.max(chunks(&node));
    }
    assert!((50..=80).contains(&most), "{most} chunks of one group");
}

#[test]
fn nor_do_those_of_all_groups() {
    let disk = MemoryDisk::new();
    let options = LogOptions { group_count: 12, ..options() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    // Each group alone may let all of its chunks wait.
    for _ in 0..60 {
        (0..12).for_each(|group| seal(&mut node, group, 1));
    }
    assert!((400..=560).contains(&chunks(&node)), "{} chunks", chunks(&node));
}

#[test]
fn what_is_deleted_gives_its_space_back_also_while_much_is_written() {
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    seal(&mut node, 0, CHUNKS);
    node.write(key(0, 1), DELETE, &[], &[]).unwrap();
    seal(&mut node, 1, 2);
    assert!(chunks(&node) <= 3, "{} chunks are left", chunks(&node));
}

/// Appends are long, and a seal of three is enough.
fn long() -> LogOptions {
    LogOptions { seal_bytes: 8 << 10, long_append_bytes: CHUNK_BYTES as u64, ..never_full() }
}

/// A log that has much to write, with nothing in chunks but what came before that was known.
fn burst(disk: &MemoryDisk, options: LogOptions) -> Node {
    let mut node = Node::open_with(disk, 1, options).unwrap();
    seal(&mut node, 0, 1);
    assert_eq!(chunks(&node), 0);
    node
}

#[test]
fn seals_of_long_appends_wait_until_the_log_has_been_quiet() {
    let disk = MemoryDisk::new();
    let options = || LogOptions { checkpoint_bytes: 16 << 10, ..long() };
    let mut node = burst(&disk, options());
    let checkpoints = || files(&disk, "ckpt").len();
    let checkpoints_before = checkpoints();
    seal(&mut node, 0, 30);
    assert_eq!(chunks(&node), 0);
    assert_eq!(checkpoints(), checkpoints_before, "one would be a seal, too");
    let bytes = node.read_all(key(0, 1), 777).unwrap();
    for _ in 0..9 {
        node.shards[0].tick();
        node.work().unwrap();
        assert_eq!(chunks(&node), 0, "that was not long enough");
    }
    node.shards[0].tick();
    node.work().unwrap();
    assert_eq!(chunks(&node), 1);
    assert_eq!(checkpoints(), checkpoints_before + 1);
    assert_eq!(node.read_all(key(0, 1), 777).unwrap(), bytes);
    drop(node);
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    assert_eq!(node.read_all(key(0, 1), 777).unwrap(), bytes);
}

#[test]
fn seals_of_short_appends_do_not_wait() {
    let options = LogOptions { long_append_bytes: CHUNK_BYTES as u64 + 1, ..long() };
    let mut node = burst(&MemoryDisk::new(), options);
    seal(&mut node, 0, 30);
    assert_eq!(chunks(&node), 10);
}

#[test]
fn nor_do_those_on_a_disk_with_less_room_than_the_log_may_use() {
    let disk = MemoryDisk::new();
    disk.set_capacity(20 << 20);
    let mut node = burst(&disk, long());
    seal(&mut node, 0, 30);
    assert!(chunks(&node) >= 9, "{} chunks", chunks(&node));
}

#[test]
fn what_waits_does_not_as_soon_as_the_disk_has_less_room_than_the_log_may_use() {
    let options = LogOptions { segment_bytes: 64 << 10, wal_bytes_max: 16 << 20, ..long() };
    let disk = MemoryDisk::new();
    let mut node = burst(&disk, options);
    seal(&mut node, 0, 30);
    assert_eq!(chunks(&node), 0);
    disk.set_capacity(4 << 20);
    let appends_of_a_segment = 21;
    seal(&mut node, 0, appends_of_a_segment);
    assert!(chunks(&node) >= 1, "the job for the next segment has seen it");
}

#[test]
fn with_half_of_the_log_used_seals_wait_no_longer_until_it_was_quiet() {
    let options = LogOptions { segment_bytes: 64 << 10, wal_bytes_max: 512 << 10, ..long() };
    let mut node = burst(&MemoryDisk::new(), options);
    let mut count = 0;
    while chunks(&node) == 0 {
        seal(&mut node, 0, 1);
        count += 1;
    }
    assert!((50..=90).contains(&count), "{count} appends of 3 KiB until half of 512 KiB are used");
    // What was set apart frees the log when it is in a chunk, and there is more.
    let then = chunks(&node);
    seal(&mut node, 1, 30);
    assert!(chunks(&node) >= then + 9, "{} chunks, {then} then", chunks(&node));
    (0..10).for_each(|_| node.shards[0].tick());
    node.work().unwrap();
    let then = chunks(&node);
    seal(&mut node, 2, 20);
    assert!(chunks(&node) <= then + 1, "the next burst waits again");
}

#[test]
fn what_waits_for_long_becomes_two_chunks() {
    let options = LogOptions { wal_bytes_max: 4 << 20, ..long() };
    let mut node = burst(&MemoryDisk::new(), options);
    // An eighth of the log is set apart.
    seal(&mut node, 0, 500);
    assert_eq!(chunks(&node), 0);
    (0..10).for_each(|_| node.shards[0].tick());
    node.work().unwrap();
    assert_eq!(chunks(&node), 2);
}

#[test]
fn with_many_groups_seals_wait_for_less() {
    let options =
        LogOptions { group_count: 16, wal_bytes_max: 4 << 20, seal_bytes: 16 << 10, ..long() };
    let mut node = burst(&MemoryDisk::new(), options);
    let mut count = 0;
    while chunks(&node) == 0 {
        seal(&mut node, count % 16, 1);
        count += 1;
    }
    // Nothing leaves the log before each group is sealed. Three sixteenths of it are 256 appends of 3 KiB.
    assert!((250..=270).contains(&count), "{count} appends");
}

/// Writes until `bytes` are in the log, and then, if it is to be awaited, until the log takes no more. How many changes of the
/// disk the next segment takes.
fn changes_of_a_fill(fills_segments: bool, bytes: usize, is_awaited: bool) -> u64 {
    const APPEND_BYTES: usize = 256 << 10;
    let options = || LogOptions {
        segment_bytes: 4 << 20,
        wal_bytes_max: 16 << 20,
        seal_bytes: 64 << 20,
        batch_bytes_max: 1 << 20,
        checkpoint_bytes: 64 << 20,
        fills_segments,
        ..small()
    };
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    let append = |node: &mut Node| {
        let is_taken = node.offer(key(0, 1), APPEND, &[], &[7; APPEND_BYTES]).is_ok();
        node.commit().unwrap();
        is_taken
    };
    while node.machine.streams.get(&key(0, 1)).is_none_or(|ends| ends.tail < bytes as u64) {
        if !append(&mut node) {
            let job = node.shards[0].poll_work().expect("a segment is to be made");
            node.finish_job(job);
        }
    }
    let job = node.shards[0].poll_work().filter(|job| job.group().is_none());
    let job = job.expect("a spare segment is to be made");
    while is_awaited && append(&mut node) {}
    let before = disk.change_count();
    node.finish_job(job);
    let changes = disk.change_count() - before;
    assert!(append(&mut node), "the segment can be used");
    let written = node.read_all(key(0, 1), 1 << 20).unwrap();
    assert!(written.iter().all(|byte| *byte == 7));
    drop(node);
    let mut node = Node::open_with(&disk, 1, options()).unwrap();
    assert_eq!(node.read_all(key(0, 1), 1 << 20).unwrap(), written, "what is in it is found");
    changes
}

#[test]
fn a_segment_that_is_awaited_is_not_filled_first() {
    // Sixteen pieces of zeroes, or one allocation.
    let (filled, awaited) = (changes_of_a_fill(true, 1, false), changes_of_a_fill(true, 1, true));
    assert!(filled - awaited >= 15, "{filled} and {awaited} changes");
}

#[test]
fn with_half_of_the_log_used_it_is() {
    let half = 8 << 20;
    assert_eq!(changes_of_a_fill(true, half, true), changes_of_a_fill(true, half, false));
}

#[test]
fn a_log_that_is_synced_seldom_fills_none() {
    let filled = changes_of_a_fill(true, 1, false);
    for bytes in [1, 8 << 20] {
        let allocated = changes_of_a_fill(false, bytes, false);
        assert!(filled - allocated >= 15, "{filled} and {allocated} changes");
    }
}
