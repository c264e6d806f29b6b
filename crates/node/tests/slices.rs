//! Work that a shard has by itself comes in slices, so that no turn of the loop is long.

use env::MemoryDisk;
use log::LogOptions;
use model::StreamPath;
use std::path::PathBuf;
use stream::Lifetime;
use thalweg_node::testing::{Process, append, create, create_for, options, path, path_in};
use thalweg_node::{Event, Request, SliceLimits};

const STREAMS: usize = 100;

/// A process whose streams all expire in a second.
fn with_mortals() -> Process {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    for number in 0..STREAMS {
        process.offer(create_for(&path(&format!("s{number}")), Lifetime::Ttl { seconds: 1 }));
    }
    process.settle();
    process.replies.clear();
    process.shards[0].set_slice_limits(SliceLimits { expiries_max: 7, ..SliceLimits::default() });
    process
}

fn stream_count(process: &Process) -> usize {
    usize::try_from(process.shards[0].stats().stream_count).expect("few streams")
}

/// Lets a second pass, and does what the first turn of it wants done.
fn first_turn(process: &mut Process) {
    process.now.wall = process.now.wall.plus_ms(1_000);
    process.now.monotonic = process.now.monotonic.plus_ms(1_000);
    process.handle(0, Event::Tick);
    while process.step() {}
}

#[test]
fn each_turn_expires_a_bounded_number_of_streams_until_none_is_left() {
    let mut process = with_mortals();
    first_turn(&mut process);
    let mut turns = 1;
    let mut left = STREAMS;
    loop {
        assert_eq!(stream_count(&process), left.saturating_sub(7), "in turn {turns}");
        left = left.saturating_sub(7);
        if !process.next_turn() {
            break;
        }
        while process.step() {}
        turns += 1;
    }
    assert_eq!((left, turns), (0, STREAMS.div_ceil(7)));
}

#[test]
fn a_slice_waits_until_the_one_before_is_applied() {
    let mut process = with_mortals();
    process.held.syncs = Some(Vec::new());
    first_turn(&mut process);
    assert_eq!(process.shards[0].stats().in_flight_count, 7);
    assert!(!process.next_turn(), "the loop sleeps until the disk answers");
    process.handle(0, Event::Tick);
    assert_eq!(process.shards[0].stats().in_flight_count, 7, "time alone brings no other slice");
    process.held.syncs.as_mut().unwrap().clear();
}

#[test]
fn a_request_between_two_slices_waits_for_one_of_them_only() {
    let mut process = with_mortals();
    first_turn(&mut process);
    process.offer(create(&path("new"), Some("text/plain"), None, b""));
    while process.step() {}
    assert_eq!(process.replies.len(), 1, "answered in this turn");
    assert_eq!(stream_count(&process), STREAMS - 7 + 1);
    process.settle();
    assert_eq!(stream_count(&process), 1);
}

#[test]
fn a_log_that_has_failed_has_no_slices() {
    let mut process = with_mortals();
    process.disk.fail_next_sync(1);
    first_turn(&mut process);
    assert!(process.shards[0].poison().is_some());
    assert!(!process.next_turn(), "a shard that has stopped is not behind");
}

/// A process with a checkpoint under way, of which one row is copied in each turn, and its streams.
fn with_checkpoint() -> (Process, Vec<StreamPath>) {
    let options = LogOptions { checkpoint_bytes: 1, ..options() };
    let mut process = Process::open_with(&MemoryDisk::new(), 1, options);
    let paths: Vec<_> = (0..40).map(|number| path_in(0, &format!("s{number}-"))).collect();
    for path in &paths {
        process.with_text(path, b"old ");
    }
    process.shards[0].set_slice_limits(SliceLimits { rows_max: 1, ..SliceLimits::default() });
    process.handle(0, Event::Tick);
    while process.step() {}
    assert!(process.shards[0].is_behind(), "a checkpoint is under way");
    (process, paths)
}

#[test]
fn a_checkpoint_is_copied_in_slices_and_changes_in_between_are_not_in_it() {
    let (mut process, paths) = with_checkpoint();
    let mut turns = 0;
    let mut kept = paths.clone();
    while process.next_turn() {
        while process.step() {}
        if let Some(path) = paths.get(turns * 7 % 40) {
            process.offer(append(path, b"new "));
        }
        if turns % 10 == 3 {
            let gone = kept.remove(turns % kept.len());
            process.offer(Request::Delete { path: gone });
        }
        while process.step() {}
        turns += 1;
    }
    assert!((20..=40).contains(&turns), "{turns} turns for 40 rows, some of them copied early");
    process.replies.clear();
    let is_checkpoint = |path: &PathBuf| path.extension().is_some_and(|end| end == "ckpt");
    assert!(process.disk.paths().iter().any(is_checkpoint), "it was written");
    let texts: Vec<_> = kept.iter().map(|path| process.bytes(path)).collect();
    let mut process = Process::open(&process.kill(), 1);
    for (path, text) in kept.iter().zip(texts) {
        assert!(text.starts_with(b"old "));
        assert_eq!(process.bytes(path), text, "{path}");
    }
    assert_eq!(stream_count(&process), kept.len());
}

#[test]
fn a_checkpoint_that_a_kill_cuts_loses_nothing() {
    for turns in 0..40 {
        let (mut process, paths) = with_checkpoint();
        for path in &paths[..turns] {
            process.next_turn();
            process.offer(append(path, b"new "));
            while process.step() {}
        }
        let mut process = Process::open(&process.kill(), 1);
        for (number, path) in paths.iter().enumerate() {
            let expected: &[u8] = if number < turns { b"old new " } else { b"old " };
            assert_eq!(process.bytes(path), expected, "{path} after {turns} turns");
        }
    }
}
