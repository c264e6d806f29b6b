//! Work that a shard has by itself comes in slices, so that no turn of the loop is long.

use env::MemoryDisk;
use stream::Lifetime;
use thalweg_node::testing::{Process, create, create_for, path};
use thalweg_node::{Event, SliceLimits};

const STREAMS: usize = 100;

/// A process whose streams all expire in a second.
fn with_mortals() -> Process {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    for number in 0..STREAMS {
        process.offer(create_for(&path(&format!("s{number}")), Lifetime::Ttl { seconds: 1 }));
    }
    process.settle();
    process.replies.clear();
    process.shards[0].set_slice_limits(SliceLimits { expiries_max: 7 });
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
