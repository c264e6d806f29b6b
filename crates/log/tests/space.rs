//! Space: segments are reused, full disks answered, chunks merged, dead data given back.

use crate::support;
use crate::support::{DELETE, Node, files, key, never_full, small, spoil_rows};
use env::{Disk, DiskOperation, MemoryDisk, SeededRandom};
use model::{ByteOffset, GroupId, StreamKey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use thalweg_log::{AppendError, LogOptions, Slice};

#[test]
fn the_wal_stays_within_its_bound_and_nothing_is_lost() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    // Group 2 has one append and then rests: it must not pin the WAL forever.
    node.append(key(2, 9), b"quiet").unwrap();
    for number in 0..2000_u32 {
        node.append(key(0, 1), &[number as u8; 1000]).unwrap();
        if number % 7 == 0 {
            node.commit().unwrap();
            node.work().unwrap();
        }
        let wal_bytes = node.shards[0].stats().wal_bytes;
        assert!(0 < wal_bytes && wal_bytes <= small().wal_bytes_max);
    }
    node.commit().unwrap();
    node.work().unwrap();
    let bytes = node.read_all(key(0, 1), 4096).unwrap();
    assert!(bytes.chunks(1000).zip(0..2000_u32).all(|(a, n)| a == [n as u8; 1000]));
    drop(node);
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.machine.damages, []);
    assert!(node.report.entries_replayed < 600, "recovery is bounded by the WAL");
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap(), bytes);
    assert_eq!(node.read_all(key(2, 9), 4096).unwrap(), b"quiet");
}

#[test]
fn stale_batches_of_a_reused_segment_are_never_live() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for round in 0..40 {
        for _ in 0..20 {
            node.append(key(0, 1), &[round; 500]).unwrap();
            node.commit().unwrap();
        }
        node.checkpoint(key(0, 1).group);
        node.work().unwrap();
        let expected = node.read_all(key(0, 1), 4096).unwrap();
        // The segment being written is full of intact batches of its former life.
        disk.kill_process();
        node = Node::open(&disk, 1).unwrap();
        assert_eq!(node.machine.damages, []);
        assert!(node.report.entries_replayed <= 20);
        assert_eq!(node.read_all(key(0, 1), 4096).unwrap(), expected);
    }
}

#[test]
fn a_full_disk_is_an_answer_and_service_returns() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.work().unwrap();
    disk.set_capacity(disk.used_bytes());
    let mut taken = 0;
    let refused = loop {
        match node.offer(key(0, 1), support::APPEND, &[], &[7; 900]) {
            Ok(_) => taken += 1,
            Err(AppendError::Backpressure) => {
                node.commit().unwrap();
                // Nothing can be filled or sealed, but nothing breaks either.
                let _ = node.work();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(refused, AppendError::DiskFull);
    node.commit().unwrap();
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), taken * 900);
    disk.set_capacity(None);
    node.work().unwrap();
    node.append(key(0, 1), &[8; 900]).unwrap();
    node.commit().unwrap();
    drop(node);
    disk.crash(&mut SeededRandom::new(3));
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), (taken + 1) * 900);
}

#[test]
fn a_full_disk_can_be_opened_and_read() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), b"abc").unwrap();
    node.commit().unwrap();
    drop(node);
    disk.set_capacity(disk.used_bytes());
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.read_all(key(0, 1), 10).unwrap(), b"abc");
    let refused = node.offer(key(0, 1), support::APPEND, &[], b"d");
    assert_eq!(refused, Err(AppendError::DiskFull));
}

#[test]
fn commits_are_counted_with_every_byte_they_write() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    let stats = |node: &Node| {
        let stats = node.shards[0].stats();
        (stats.batches, stats.batch_bytes, stats.entries)
    };
    assert_eq!(stats(&node), (0, 0, 0));
    for length in [10, 20] {
        node.append(key(0, 1), &vec![1; length]).unwrap();
    }
    assert_eq!(stats(&node), (0, 0, 0), "nothing is durable yet");
    node.commit().unwrap();
    assert_eq!(stats(&node), (1, 4096, 2));
    node.append(key(0, 1), &[1; 5000]).unwrap();
    node.commit().unwrap();
    assert_eq!(stats(&node), (2, 4096 + 8192, 3));
    node.shards[0].mark_durable();
    node.commit().unwrap();
    assert_eq!(stats(&node), (3, 4096 + 8192 + 4096, 3));
    drop(node);
    // The mark of a start is a batch, too.
    assert_eq!(stats(&Node::open(&disk, 1).unwrap()), (1, 4096, 0));
}

#[test]
fn a_failed_sync_poisons_the_shard_for_ever() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), b"first").unwrap();
    node.commit().unwrap();
    disk.fail_next_sync(1);
    node.append(key(0, 1), b"second").unwrap();
    assert!(node.commit().is_err());
    assert!(node.shards[0].is_poisoned());
    let refused = node.offer(key(0, 1), support::APPEND, &[], b"third");
    assert_eq!(refused, Err(AppendError::Poisoned));
    assert!(node.shards[0].poll_sync().is_none());
    assert!(node.shards[0].poll_work().is_none());
    assert_eq!(node.read_all(key(0, 1), 100).unwrap(), b"first");
}

#[test]
fn an_append_larger_than_a_segment_gets_its_own() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    let large: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    node.append(key(0, 1), b"small").unwrap();
    node.append(key(0, 1), &large).unwrap();
    node.append(key(0, 1), b"after").unwrap();
    node.commit().unwrap();
    let expected = [b"small", &large[..], b"after"].concat();
    assert_eq!(node.read_all(key(0, 1), 999).unwrap(), expected);
    drop(node);
    let mut node = Node::open(&disk, 2).unwrap();
    assert_eq!(node.read_all(key(0, 1), 65536).unwrap(), expected);
}

/// Many seals, then merges, until there is no work.
fn sealed(disk: &MemoryDisk, appends: u32) -> Node {
    let mut node = Node::open(disk, 1).unwrap();
    for number in 0..appends {
        node.append(key(0, u64::from(number % 4) + 1), &[number as u8; 400]).unwrap();
        node.commit().unwrap();
        node.work().unwrap();
    }
    node.checkpoint(GroupId::new(0));
    node.work().unwrap();
    node
}

#[test]
fn small_chunks_are_merged_into_long_runs() {
    let disk = MemoryDisk::new();
    let mut node = sealed(&disk, 500);
    let stats = node.shards[0].stats();
    assert_eq!(stats.hot_appends, 0);
    assert_eq!(stats.chunk_bytes, 500 * 400);
    assert!(stats.chunks < 8, "{} chunks of 8 KiB are left", stats.chunks);
    assert_eq!(stats.chunks as usize, files(&disk, "chunk").len());
    // A long range is one file slice, and append boundaries are known.
    let slice = node.shards[0].read(key(0, 1), ByteOffset::ZERO, 20_000).unwrap();
    assert!(matches!(slice, Slice::File { length: 20_000, .. }));
    let bounds = node.shards[0].append_at(key(0, 1), ByteOffset::new(4001)).unwrap().unwrap();
    assert_eq!((bounds.start.get(), bounds.end.get(), bounds.records), (4000, 4400, 1));
    assert_eq!(bounds.at.get(), 1_700_000_000_400);
    assert_eq!(node.read_all(key(0, 1), 777).unwrap().len(), 125 * 400);
}

#[test]
fn chunks_are_merged_and_all_groups_sealed_while_there_is_always_more_to_seal() {
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, never_full()).unwrap();
    for _ in 0..200 {
        for group in 0..3 {
            node.append(key(group, 1), &[7; 8 << 10]).unwrap();
        }
        node.commit().unwrap();
        assert!(node.run_job(), "three groups are due and one of them gets its turn");
    }
    let chunks = files(&disk, "chunk");
    assert!(chunks.len() < 3 * 16, "{} chunks, of which none were merged", chunks.len());
    let groups: BTreeSet<_> = chunks.iter().map(|path| path.parent().unwrap()).collect();
    assert_eq!(groups.len(), 3, "each group has a chunk");
}

#[test]
fn a_group_whose_jobs_fail_does_not_hold_up_the_others() {
    let disk = MemoryDisk::new();
    let mut node = Node::open_with(&disk, 1, never_full()).unwrap();
    let (mut failures, mut done) = (0, BTreeMap::new());
    for round in 0..100 {
        // The first group has the most to seal and a checkpoint that waits: by itself it would always be next.
        for group in 0..3 {
            node.append(key(group, 1), &[7; 8 << 10][..if group == 0 { 8 << 10 } else { 5 << 10 }])
                .unwrap();
        }
        node.commit().unwrap();
        if round == 0 {
            node.checkpoint(GroupId::new(0));
        }
        let Some(job) = node.next_job() else { continue };
        let group = job.group().expect("jobs of segments are run");
        if group == GroupId::new(0) {
            disk.fail(DiskOperation::Rename, 0, None);
        }
        let report = node.shards[0].handle_work(job.run());
        disk.fail_nothing();
        assert_eq!(report.error.is_some(), group == GroupId::new(0), "{report:?}");
        failures += usize::from(report.error.is_some());
        *done.entry(group).or_insert(0) += 1;
    }
    let others = [1, 2].map(|group| done.get(&GroupId::new(group)).copied().unwrap_or(0));
    assert!(
        others.iter().all(|jobs| *jobs >= 40),
        "jobs of the others: {others:?}, {failures} failures"
    );
    assert!((2..=12).contains(&failures), "it is tried again now and then: {failures}");
    // When the disk takes them again, so do the group's jobs.
    while let Some(job) = node.next_job() {
        node.finish_job(job);
    }
    let chunks = files(&disk, "chunk");
    let groups: BTreeSet<_> = chunks.iter().map(|path| path.parent().unwrap()).collect();
    assert_eq!(groups.len(), 3, "each group has a chunk");
}

/// Runs background work; copies find `room` bytes. How many merges were refused.
fn work_with_room(disk: &MemoryDisk, node: &mut Node, room: u64) -> usize {
    let mut refusals = 0;
    node.checkpoint(GroupId::new(0));
    while let Some(job) = node.shards[0].poll_work() {
        let room = if job.group().is_none() { u64::MAX / 2 } else { room };
        disk.set_capacity(disk.used_bytes() + room);
        let report = node.shards[0].handle_work(job.run());
        assert!(report.error.is_none(), "{report:?}");
        refusals += usize::from(report.merge_refusal.is_some());
    }
    refusals
}

#[test]
fn a_merge_that_finds_no_room_is_put_off_and_leaves_nothing() {
    // Enough for what one seal writes, and too little for a merge of several.
    const SEAL_ROOM: u64 = 16 << 10;
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    let mut expected = Vec::new();
    let mut append = |node: &mut Node, room| {
        expected.extend_from_slice(&[expected.len() as u8; 400]);
        node.append(key(0, 1), &expected[expected.len() - 400..]).unwrap();
        node.commit().unwrap();
        work_with_room(&disk, node, room)
    };
    let refusals: usize = (0..400).map(|_| append(&mut node, SEAL_ROOM)).sum();
    let chunks = node.shards[0].stats().chunks as usize;
    assert!(chunks > 8, "{chunks} chunks, though there was no room to merge them");
    assert!((1..=chunks).contains(&refusals), "{refusals} tries with {chunks} chunks");
    assert!(disk.paths().iter().all(|path| !path.ends_with("writing.tmp")));

    let refusals: usize = (0..100).map(|_| append(&mut node, u64::MAX / 2)).sum();
    assert_eq!(refusals, 0);
    assert!((node.shards[0].stats().chunks as usize) < chunks, "merged when there is room");
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap(), expected);
}

/// Small chunks that could be one, and no room for that.
fn refused() -> (MemoryDisk, Node) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..64_u32 {
        node.append(key(0, u64::from(number % 2) + 1), &[number as u8; 800]).unwrap();
        node.commit().unwrap();
        work_with_room(&disk, &mut node, 16 << 10);
    }
    assert!(node.shards[0].stats().chunks >= 4);
    assert!(node.shards[0].poll_work().is_none());
    (disk, node)
}

#[test]
fn a_merge_that_was_put_off_is_made_when_it_is_offered_again() {
    let (disk, mut node) = refused();
    let chunks = node.shards[0].stats().chunks;
    assert_eq!(work_with_room(&disk, &mut node, u64::MAX / 2), 0);
    assert_eq!(node.shards[0].stats().chunks, chunks, "nothing has changed");
    node.shards[0].retry_merges();
    assert_eq!(work_with_room(&disk, &mut node, 0), 1);
    node.shards[0].retry_merges();
    assert_eq!(work_with_room(&disk, &mut node, u64::MAX / 2), 0);
    assert!(node.shards[0].stats().chunks < chunks);
}

/// Runs background work until there is none, or for so many jobs; the errors of these.
fn work_with_errors(node: &mut Node, jobs_max: usize) -> usize {
    let mut errors = 0;
    for _ in 0..jobs_max {
        let Some(job) = node.shards[0].poll_work() else { break };
        errors += usize::from(node.shards[0].handle_work(job.run()).error.is_some());
    }
    errors
}

#[test]
fn a_merge_whose_sources_cannot_be_removed_writes_its_chunk_once() {
    let (disk, mut node) = refused();
    let before = files(&disk, "chunk");
    disk.set_capacity(None);
    node.shards[0].retry_merges();
    disk.fail(DiskOperation::Remove, 0, None);
    assert!(work_with_errors(&mut node, 50) >= 40, "each try is reported");
    let stats = node.shards[0].stats();
    assert!((stats.chunks as usize) < before.len(), "what was merged is served from one chunk");
    let merged: Vec<_> =
        files(&disk, "chunk").into_iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(merged.len() as u64, stats.chunks, "no try has written another one");
    let length = node.read_all(key(0, 1), 4096).unwrap().len();
    assert_eq!(length, 32 * 800);
    // What is left goes as soon as it can be removed.
    disk.fail_nothing();
    assert_eq!(work_with_errors(&mut node, 50), 0);
    assert_eq!(files(&disk, "chunk"), merged);
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), length);
}

#[test]
fn what_a_merge_could_not_remove_goes_with_the_next_start() {
    let (disk, mut node) = refused();
    disk.set_capacity(None);
    node.shards[0].retry_merges();
    disk.fail(DiskOperation::Remove, 0, None);
    work_with_errors(&mut node, 10);
    drop(node);
    disk.kill_process();
    disk.fail_nothing();
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(files(&disk, "chunk").len() as u64, node.shards[0].stats().chunks);
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), 32 * 800);
}

#[test]
fn what_a_start_could_not_remove_goes_as_soon_as_it_can_be_removed() {
    let (disk, mut node) = refused();
    disk.set_capacity(None);
    node.shards[0].retry_merges();
    disk.fail(DiskOperation::Remove, 0, None);
    work_with_errors(&mut node, 10);
    drop(node);
    disk.kill_process();
    let mut node = Node::open(&disk, 1).unwrap();
    assert!(files(&disk, "chunk").len() as u64 > node.shards[0].stats().chunks);
    disk.fail_nothing();
    assert_eq!(work_with_errors(&mut node, 50), 0);
    assert_eq!(files(&disk, "chunk").len() as u64, node.shards[0].stats().chunks);
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), 32 * 800);
}

#[test]
fn a_copy_that_fails_leaves_no_file_once_that_can_be_removed() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..64 {
        node.append(key(0, 1), &[number; 800]).unwrap();
        node.commit().unwrap();
    }
    let copy = loop {
        let job = node.shards[0].poll_work().expect("there is enough to seal");
        if job.group().is_some() {
            break job;
        }
        node.shards[0].handle_work(job.run());
    };
    // The chunk gets its name, and neither keeps nor loses it.
    disk.fail(DiskOperation::SyncDir, 0, None);
    disk.fail(DiskOperation::Remove, 0, None);
    assert!(node.shards[0].handle_work(copy.run()).error.is_some());
    let stats = node.shards[0].stats();
    assert!(files(&disk, "chunk").len() as u64 > stats.chunks, "a file that nobody knows");
    disk.fail_nothing();
    assert_eq!(work_with_errors(&mut node, 50), 0);
    let stats = node.shards[0].stats();
    assert_eq!((files(&disk, "chunk").len() as u64, files(&disk, "tmp")), (stats.chunks, vec![]));
    assert!(stats.chunks > 0);
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), 64 * 800);
}

#[test]
fn a_removal_that_cannot_be_synced_writes_no_chunk_again() {
    let (disk, mut node) = refused();
    disk.set_capacity(None);
    node.shards[0].retry_merges();
    // The chunk's own name is synced, and nothing after it.
    disk.fail(DiskOperation::SyncDir, 1, None);
    work_with_errors(&mut node, 30);
    disk.fail_nothing();
    assert_eq!(work_with_errors(&mut node, 50), 0);
    assert_eq!(files(&disk, "chunk").len() as u64, node.shards[0].stats().chunks);
}

#[test]
fn a_merge_leaves_the_room_that_segments_need() {
    let (disk, mut node) = refused();
    // Enough for its own bytes, not for two more segments beside them.
    let sixteen_chunks = node.shards[0].stats().chunk_bytes / 4;
    let room = sixteen_chunks + small().segment_bytes;
    node.shards[0].retry_merges();
    assert_eq!(work_with_room(&disk, &mut node, room), 1);
    node.shards[0].retry_merges();
    assert_eq!(work_with_room(&disk, &mut node, room + small().segment_bytes), 0);
}

#[test]
fn what_is_deleted_while_a_merge_is_refused_gives_its_space_back_without_any_room() {
    let (disk, mut node) = refused();
    node.shards[0].retry_merges();
    let job = node.shards[0].poll_work().unwrap();
    disk.set_capacity(disk.used_bytes());
    for stream in [1, 2] {
        node.write(key(0, stream), DELETE, &[], &[]).unwrap();
    }
    node.commit().unwrap();
    assert!(node.shards[0].handle_work(job.run()).merge_refusal.is_some());
    while let Some(job) = node.shards[0].poll_work() {
        let report = node.shards[0].handle_work(job.run());
        assert!(report.error.is_none() && report.merge_refusal.is_none(), "{report:?}");
    }
    assert_eq!(files(&disk, "chunk"), Vec::<PathBuf>::new());
}

#[test]
fn what_is_read_in_many_pieces_is_moved_into_a_chunk() {
    const STREAMS: u64 = 32;
    let disk = MemoryDisk::new();
    let options = LogOptions {
        segment_bytes: 8 << 20,
        wal_bytes_max: 64 << 20,
        seal_bytes: 16 << 20,
        checkpoint_bytes: 64 << 20,
        ..small()
    };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    for number in 0..64 {
        (1..=STREAMS).for_each(|stream| node.append(key(0, stream), &[number; 1000]).unwrap());
        node.commit().unwrap();
    }
    // The only stream of its group: one read fetches all of it.
    (0..1000).for_each(|number| node.append(key(1, 1), &[number as u8; 1000]).unwrap());
    node.commit().unwrap();
    let mut chunks_after = |stream: StreamKey| {
        let before = node.read_all(stream, 64 << 10).unwrap();
        node.work().unwrap();
        assert_eq!(node.read_all(stream, 64 << 10).unwrap(), before);
        node.shards[0].stats().chunks
    };
    (0..20).for_each(|_| assert_eq!(chunks_after(key(1, 1)), 0, "it is one piece already"));
    assert_eq!(chunks_after(key(0, 1)), 0, "one reader of one stream is no reason");
    let chunks = (2..=STREAMS).map(|stream| chunks_after(key(0, stream))).max();
    assert_eq!(chunks, Some(1), "one chunk for the group that was read");
    let slice = node.shards[0].read(key(0, 1), ByteOffset::ZERO, 64_000).unwrap();
    assert!(matches!(slice, Slice::File { length: 64_000, .. }));
}

#[test]
fn deleted_and_trimmed_data_gives_its_space_back() {
    let disk = MemoryDisk::new();
    let mut node = sealed(&disk, 200);
    node.write(key(0, 1), DELETE, &[], &[]).unwrap();
    node.write(key(0, 2), DELETE, &[], &[]).unwrap();
    node.trim(key(0, 3), 15_000).unwrap();
    node.commit().unwrap();
    node.work().unwrap();
    let stats = node.shards[0].stats();
    assert!(stats.chunk_bytes < 40_000, "{} bytes are kept", stats.chunk_bytes);
    assert!(stats.dead_bytes * 2 <= stats.chunk_bytes);
    assert!(node.shards[0].read(key(0, 1), ByteOffset::ZERO, 10).is_err());
    assert_eq!(node.read_all(key(0, 3), 100).unwrap().len(), 5000);

    node.write(key(0, 3), DELETE, &[], &[]).unwrap();
    node.write(key(0, 4), DELETE, &[], &[]).unwrap();
    node.commit().unwrap();
    node.work().unwrap();
    assert_eq!(files(&disk, "chunk"), Vec::<PathBuf>::new());
}

#[test]
fn what_is_deleted_while_it_is_sealed_gives_its_space_back() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    (0..30).for_each(|number| node.append(key(0, 1), &[number; 400]).unwrap());
    node.commit().unwrap();
    let seal = node.next_job().expect("a group is due");
    node.write(key(0, 1), DELETE, &[], &[]).unwrap();
    node.commit().unwrap();
    node.finish_job(seal);
    assert_eq!(files(&disk, "chunk").len(), 1);
    node.work().unwrap();
    assert_eq!(files(&disk, "chunk"), Vec::<PathBuf>::new());
}

#[test]
fn what_was_deleted_before_a_restart_gives_its_space_back_after_it() {
    let disk = MemoryDisk::new();
    let mut node = sealed(&disk, 40);
    (1..=4).for_each(|stream| node.write(key(0, stream), DELETE, &[], &[]).unwrap());
    node.commit().unwrap();
    // With a checkpoint behind them the deletions are not applied again.
    node.checkpoint(GroupId::new(0));
    assert!(node.run_job());
    assert!(!files(&disk, "chunk").is_empty());
    drop(node);
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.report.entries_replayed, 0);
    node.work().unwrap();
    assert_eq!(files(&disk, "chunk"), Vec::<PathBuf>::new());
}

#[test]
fn short_appends_are_read_many_at_a_time() {
    let disk = MemoryDisk::new();
    let options = LogOptions { seal_bytes: 1 << 20, ..small() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    for number in 0..200 {
        node.append(key(0, 1), &[number; 100]).unwrap();
    }
    node.commit().unwrap();
    for from in [0, 150, 9_000, 15_999, 16_000] {
        let slice = node.shards[0].read(key(0, 1), ByteOffset::new(from), 4_000).unwrap();
        // The bytes before the first one may count.
        assert!((3_900..=4_000).contains(&slice.len()), "{} from {from}", slice.len());
    }
}

/// A merged chunk, and one of those that it replaces: as if the crash had come between writing it and removing that.
/// What stream 1 holds.
fn with_replaced_chunk(disk: &MemoryDisk) -> (PathBuf, Vec<u8>) {
    let mut node = Node::open(disk, 1).unwrap();
    let mut first = None;
    for number in 0..400_u32 {
        node.append(key(0, 1), &[number as u8; 400]).unwrap();
        node.commit().unwrap();
        node.work().unwrap();
        if first.is_none() {
            first = files(disk, "chunk").pop().map(|path| {
                let file = disk.open(&path).unwrap();
                let mut bytes = vec![0; file.len().unwrap() as usize];
                file.read_exact_at(&mut bytes, 0).unwrap();
                (path, bytes)
            });
        }
    }
    let expected = node.read_all(key(0, 1), 4096).unwrap();
    drop(node);
    let (path, bytes) = first.unwrap();
    assert!(!disk.paths().contains(&path));
    disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
    (path, expected)
}

#[test]
fn a_replaced_chunk_that_came_back_is_removed_unread() {
    let disk = MemoryDisk::new();
    let (path, expected) = with_replaced_chunk(&disk);
    let mut node = Node::open(&disk, 1).unwrap();
    assert!(!disk.paths().contains(&path));
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap(), expected);
}

#[test]
fn a_replaced_chunk_stays_while_a_row_of_the_newer_one_is_lost() {
    let disk = MemoryDisk::new();
    let (path, expected) = with_replaced_chunk(&disk);
    for newer in files(&disk, "chunk").into_iter().filter(|newer| *newer != path) {
        spoil_rows(&disk, &newer);
    }
    for _ in 0..2 {
        let node = Node::open(&disk, 1).unwrap();
        assert!(disk.paths().contains(&path));
        let bytes = node.shards[0].read(key(0, 1), ByteOffset::ZERO, 4000).unwrap();
        let bytes = bytes.to_bytes().unwrap();
        assert_eq!(bytes, expected[..bytes.len()]);
    }
}

#[test]
fn wals_of_shards_that_are_gone_are_drained_and_removed() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 3).unwrap();
    for group in 0..3 {
        node.append(key(group, 1), &[group as u8; 700]).unwrap();
    }
    node.commit().unwrap();
    drop(node);
    let mut node = Node::open(&disk, 1).unwrap();
    for group in 0..3 {
        assert_eq!(node.read_all(key(group, 1), 100).unwrap(), [group as u8; 700]);
    }
    node.work().unwrap();
    let of_lane_0 = |path: &PathBuf| path.starts_with("/data/wal/00000");
    assert!(files(&disk, "wal").iter().all(of_lane_0), "{:?}", files(&disk, "wal"));
    for group in 0..3 {
        assert_eq!(node.read_all(key(group, 1), 100).unwrap(), [group as u8; 700]);
    }
    drop(node);
    let mut node = Node::open(&disk, 2).unwrap();
    assert_eq!(node.machine.damages, []);
    assert_eq!(node.read_all(key(1, 1), 100).unwrap(), [1; 700]);
}

#[test]
fn ends_of_appends_are_found_hot_and_sealed() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for length in [10, 20, 30] {
        node.append(key(0, 1), &vec![1; length]).unwrap();
    }
    node.commit().unwrap();
    for round in 0..2 {
        let shard = node.shard(GroupId::new(0));
        let end = |at| {
            let end = shard.first_end_at_or_after(key(0, 1), ByteOffset::new(at)).unwrap();
            end.map(ByteOffset::get)
        };
        let found = [end(0), end(1), end(10), end(11), end(30), end(60), end(61)];
        let ends = [Some(10), Some(10), Some(10), Some(30), Some(30), Some(60), None];
        assert_eq!(found, ends, "round {round}");
        assert_eq!(shard.tail(key(0, 1)), Some(ByteOffset::new(60)));
        assert!(shard.read(key(0, 1), ByteOffset::new(60), 5).unwrap().is_empty());
        assert!(shard.read(key(0, 1), ByteOffset::new(61), 5).is_err());
        node.checkpoint(GroupId::new(0));
        node.work().unwrap();
        assert_eq!(node.shards[0].stats().hot_appends, 0);
    }
}

#[test]
fn a_batch_takes_entries_up_to_its_bound() {
    let mut node = Node::open(&MemoryDisk::new(), 1).unwrap();
    // Two fill two blocks, which is the bound; a third would need one more.
    for _ in 0..2 {
        node.offer(key(0, 1), support::APPEND, &[], &[1; 3000]).unwrap();
    }
    let third = node.offer(key(0, 1), support::APPEND, &[], &[1; 3000]);
    assert!(matches!(third, Err(AppendError::Backpressure)));
}

#[test]
fn a_checkpoint_is_wanted_before_the_wal_is_full() {
    let options = LogOptions { checkpoint_bytes: 1 << 30, seal_bytes: 1 << 30, ..small() };
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
    let mut wanted_at = None;
    for number in 0..40 {
        node.offer(key(0, 1), support::APPEND, &[], &[1; 3000]).expect("there is room");
        node.commit().unwrap();
        let job = node.shards[0].poll_work();
        job.map(|job| node.shards[0].handle_work(job.run()));
        if wanted_at.is_none() && node.shards[0].wants_checkpoint().is_some() {
            wanted_at = Some(number);
        }
    }
    // Each append takes a block; half of the 64 blocks are used by then.
    let wanted_at = wanted_at.expect("one was wanted");
    assert!((28..=36).contains(&wanted_at), "wanted after {wanted_at} appends");
}

/// Appends to one stream until every segment was left behind several times.
fn wear(node: &mut Node) {
    for number in 0..300 {
        node.append(key(0, 1), &[1; 900]).unwrap();
        node.commit().unwrap();
        // Now and then, so that several are free when the next one is needed.
        if number % 20 == 19 {
            node.checkpoint(key(0, 1).group);
            node.work().unwrap();
        }
    }
}

#[test]
fn segments_are_used_again_instead_of_being_made() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    wear(&mut node);
    // A segment that waits to be written again still holds a batch header of its earlier number.
    let is_reused = |path: &PathBuf| {
        let mut header = [0; 16];
        disk.open(path).unwrap().read_exact_at(&mut header, 0).unwrap();
        let number = u64::from_le_bytes(header[8..].try_into().unwrap());
        number != 0 && *path.file_stem().unwrap() != *format!("{number:016x}")
    };
    assert!(files(&disk, "wal").iter().any(is_reused));
}

#[test]
fn segments_that_little_data_keeps_are_used_again_at_once() {
    let disk = MemoryDisk::new();
    let options = LogOptions { wal_bytes_max: 8 << 20, checkpoint_bytes: 64 << 20, ..small() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    // Each append fills a block of 4 KiB: eight fill a segment.
    for number in 0..200_u8 {
        node.append(key(0, 1), &[number; 10]).unwrap();
        node.commit().unwrap();
        node.work().unwrap();
        assert!(node.shards[0].stats().wal_bytes <= 4 * small().segment_bytes);
    }
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), 2000);
}

#[test]
fn segments_grow_to_their_usual_size_before_they_are_needed() {
    const MIB: u64 = 1 << 20;
    let disk = MemoryDisk::new();
    let options = LogOptions { segment_bytes: 32 * MIB, wal_bytes_max: 128 * MIB, ..small() };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    node.work().unwrap();
    let mut sizes: Vec<u64> =
        files(&disk, "wal").iter().map(|path| disk.open(path).unwrap().len().unwrap()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [MIB, 4 * MIB, 16 * MIB, 32 * MIB]);
}

/// The last segment that a WAL of little more than two makes, where a large append has taken most of it.
#[test]
fn the_bound_of_the_wal_is_passed_by_one_small_segment_at_most() {
    const MIB: u64 = 1 << 20;
    let disk = MemoryDisk::new();
    let options = LogOptions {
        segment_bytes: 16 * MIB,
        wal_bytes_max: 32 * MIB,
        batch_bytes_max: MIB,
        seal_bytes: 64 * MIB,
        checkpoint_bytes: 64 * MIB,
        ..small()
    };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    let mut most = 0;
    for append in [20 << 20, 60_000, 60_000, 12 << 20, 60_000, 60_000] {
        node.append(key(0, 1), &vec![7; append]).unwrap();
        node.commit().unwrap();
        most = most.max(node.shards[0].stats().wal_bytes);
        node.work().unwrap();
        most = most.max(node.shards[0].stats().wal_bytes);
    }
    assert!(most <= 34 * MIB, "{} MiB of a WAL of 32", most >> 20);
}

#[test]
fn segments_have_their_usual_size_again_after_a_large_append() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), &[1; 200 << 10]).unwrap();
    wear(&mut node);
    for path in files(&disk, "wal") {
        assert_eq!(disk.open(&path).unwrap().len().unwrap(), small().segment_bytes);
    }
}
