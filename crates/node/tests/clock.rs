//! A wall clock that jumps: entries follow the monotonic clock, and nothing expires until an operator confirms it.

use env::MemoryDisk;
use model::StreamPath;
use stream::{Lifetime, Refusal};
use thalweg_node::testing::{Process, create_for, path_in};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// A process that believes no jump of more than an hour.
fn open(disk: &MemoryDisk) -> Process {
    let mut process = Process::open(disk, 2);
    for shard in &mut process.shards {
        shard.set_clock_jump_ms_max(HOUR_MS);
    }
    process
}

/// Moves the wall clock alone.
fn jump(process: &mut Process, ms: u64) {
    process.now.wall = process.now.wall.plus_ms(ms);
}

fn confirm(process: &mut Process) {
    let now = process.now;
    process.shards.iter_mut().for_each(|shard| shard.confirm_clock(now));
    process.settle();
}

fn with_stream(process: &mut Process, seconds: u64) -> StreamPath {
    let path = path_in(0, "mortal");
    process.outcome(create_for(&path, Lifetime::Ttl { seconds }));
    path
}

fn ahead_ms(process: &Process) -> Vec<u64> {
    process.shards.iter().map(thalweg_node::ShardCore::clock_ahead_ms).collect()
}

#[test]
fn nothing_expires_by_a_clock_that_has_jumped_until_it_is_confirmed() {
    let mut process = open(&MemoryDisk::new());
    let path = with_stream(&mut process, 300);
    process.wait_ms(1_000);
    jump(&mut process, 10 * HOUR_MS);
    for _ in 0..3 {
        process.wait_ms(MINUTE_MS);
        assert_eq!(process.refusal(&path), None);
    }
    assert_eq!(ahead_ms(&process), [10 * HOUR_MS; 2]);
    confirm(&mut process);
    assert_eq!(ahead_ms(&process), [0; 2]);
    process.wait_ms(1);
    assert_eq!(process.refusal(&path), Some(Refusal::NotFound));
}

#[test]
fn a_lifetime_goes_on_when_the_clock_is_put_right() {
    let mut process = open(&MemoryDisk::new());
    let path = with_stream(&mut process, 300);
    process.wait_ms(1_000);
    let right = process.now.wall;
    jump(&mut process, 10 * HOUR_MS);
    process.wait_ms(MINUTE_MS);
    process.now.wall = right.plus_ms(MINUTE_MS);
    process.wait_ms(3 * MINUTE_MS);
    assert_eq!((process.refusal(&path), ahead_ms(&process)), (None, vec![0; 2]));
    process.wait_ms(MINUTE_MS);
    assert_eq!(process.refusal(&path), Some(Refusal::NotFound), "five minutes are over");
}

#[test]
fn a_jump_within_the_bound_is_the_time() {
    let mut process = open(&MemoryDisk::new());
    let path = with_stream(&mut process, 300);
    process.wait_ms(1_000);
    jump(&mut process, HOUR_MS - MINUTE_MS);
    process.wait_ms(1);
    assert_eq!(process.refusal(&path), Some(Refusal::NotFound));
}

#[test]
fn a_start_long_after_the_last_entry_expires_nothing_until_it_is_confirmed() {
    let mut process = open(&MemoryDisk::new());
    let path = with_stream(&mut process, 300);
    let stopped = process.now;
    let mut process = open(&process.kill());
    process.now.wall = stopped.wall.plus_ms(HOUR_MS + 1);
    process.wait_ms(100);
    assert_eq!(process.refusal(&path), None);
    // Its entries have the time of the course: another start does not take them for new ones.
    process.append(&path, thalweg_node::testing::text(), b"x");
    let wall = process.now.wall;
    let mut process = open(&process.kill());
    process.now.wall = wall;
    process.wait_ms(100);
    assert_eq!(process.refusal(&path), None);
    assert!(ahead_ms(&process)[0] > HOUR_MS);
    confirm(&mut process);
    process.wait_ms(100);
    assert_eq!(process.refusal(&path), Some(Refusal::NotFound));
    // What is confirmed is logged: the next start takes it for the time.
    let wall = process.now.wall;
    let mut process = open(&process.kill());
    process.now.wall = wall;
    process.wait_ms(100);
    assert_eq!(ahead_ms(&process), [0; 2]);
}

#[test]
fn a_start_soon_after_a_quiet_time_is_no_jump() {
    let mut process = open(&MemoryDisk::new());
    let path = with_stream(&mut process, 365 * 24 * 3_600);
    for _ in 0..30 {
        process.wait_ms(10 * MINUTE_MS);
    }
    let stopped = process.now;
    let mut process = open(&process.kill());
    process.now.wall = stopped.wall.plus_ms(30 * MINUTE_MS);
    process.wait_ms(100);
    assert_eq!((process.refusal(&path), ahead_ms(&process)), (None, vec![0; 2]));
}

#[test]
fn a_jump_before_the_first_request_is_noticed() {
    let mut process = open(&MemoryDisk::new());
    let now = process.now;
    process.shards.iter_mut().for_each(|shard| shard.begin_clock(now));
    jump(&mut process, 10 * HOUR_MS);
    process.wait_ms(1);
    assert_eq!(ahead_ms(&process), [10 * HOUR_MS; 2]);
}
