//! A seal keeps no loop busy, however much is sealed: its beginning, its end and each append are counted in allocations, which
//! are the same in every run.

mod support;

use env::MemoryDisk;
use model::{GroupId, StreamId, StreamKey};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use support::{APPEND, Node};
use thalweg_log::{LogOptions, WorkJob};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const STREAMS: u64 = 20_000;

/// Memory taken and given back by the beginning or the end of a seal, at most.
const STEPS_MAX: usize = 100;

/// Bytes that one append takes at most: its own, and some thousand places of the index.
const APPEND_BYTES_MAX: usize = 1 << 20;

const DATA: &[u8] = b"thirty bytes are enough of it\n";

fn options() -> LogOptions {
    LogOptions {
        group_count: 1,
        segment_bytes: 8 << 20,
        wal_bytes_max: 64 << 20,
        batch_bytes_max: 1 << 20,
        seal_bytes: STREAMS * DATA.len() as u64,
        checkpoint_bytes: 1 << 30,
        ..support::small()
    }
}

fn key(stream: u64) -> StreamKey {
    StreamKey { group: GroupId::new(0), stream: StreamId::new(stream) }
}

/// What is taken and given back by `work`, and its result.
fn steps<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let region = Region::new(ALLOCATOR);
    let result = work();
    let change = region.change();
    (change.allocations + change.deallocations + change.reallocations, result)
}

/// Appends to all streams; the most bytes that one append has taken.
fn append_to_all(node: &mut Node) -> usize {
    let mut bytes_max = 0;
    for stream in 1..=STREAMS {
        while node.offer(key(stream), APPEND, &[], DATA).is_err() {
            bytes_max = commit(node).max(bytes_max);
            while let Some(job) = node.shards[0].poll_work() {
                node.finish_job(job);
            }
        }
    }
    commit(node).max(bytes_max)
}

/// Commits what was appended; the most bytes that it took to place one append.
fn commit(node: &mut Node) -> usize {
    let mut bytes_max = 0;
    while let Some(job) = node.shards[0].poll_sync() {
        let batch = node.shards[0].handle_synced(job.run()).unwrap();
        for entry in batch.entries() {
            let (key, bytes) = (key(entry.subject.get()), entry.data.len() as u64);
            let placed = node.machine.apply_one((key, entry.index, APPEND), &[], bytes);
            let region = Region::new(ALLOCATOR);
            node.shards[0].place(&entry, placed.unwrap());
            bytes_max = bytes_max.max(region.change().bytes_allocated);
        }
    }
    bytes_max
}

#[test]
fn neither_a_seal_nor_the_growth_of_the_index_is_many_steps() {
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options()).unwrap();
    let bytes_max = append_to_all(&mut node);
    assert!(bytes_max <= APPEND_BYTES_MAX, "{bytes_max} bytes taken by one append");
    let (begin_steps, job) = loop {
        let (steps, job) = steps(|| node.shards[0].poll_work().expect("a seal is due"));
        if job.group().is_some() {
            break (steps, job);
        }
        node.finish_job(job);
    };
    assert!(begin_steps <= STEPS_MAX, "{begin_steps} steps to begin a seal");
    let (run_steps, done) = steps(|| WorkJob::run(job));
    assert!(run_steps > 100, "the job is where the work is: {run_steps} steps");
    let (end_steps, report) = steps(|| node.shards[0].handle_work(done));
    assert!(report.error.is_none() && end_steps <= STEPS_MAX, "{end_steps} steps to end a seal");
    assert_eq!(node.shards[0].stats().hot_appends, 0);
    let free = node.shards[0].poll_work().expect("a job drops the index");
    assert_eq!(free.group(), None);
    node.finish_job(free);
    node.shards[0].check_all();
    assert_eq!(node.read_all(key(STREAMS), 100).unwrap(), DATA);
}
