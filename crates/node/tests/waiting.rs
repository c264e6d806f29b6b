//! Writes that wait for room in the log, answers that need no wait, and events that only time brings
//! about.

use env::MemoryDisk;
use log::LogOptions;
use model::{ReadFrom, StreamPath, Timestamp};
use stream::{Append, Lifetime, Outcome, Producer, Refusal};
use thalweg_node::testing::{self, Ask, Process, options, path_in, text};
use thalweg_node::{Event, Failure, ReadRequest, Reply, Request};

const MIB: usize = 1 << 20;

/// A log whose batches hold one append each, so that a second one must wait.
fn narrow() -> (Process, StreamPath) {
    let options = LogOptions { batch_bytes_max: 4096, wal_bytes_max: 256 << 20, ..options() };
    let mut process = Process::open_with(&MemoryDisk::new(), 1, options);
    let path = path_in(0, "s");
    process.create(&path, "text/plain");
    (process, path)
}

fn offer(process: &mut Process, path: &StreamPath, data: &[u8]) {
    process.offer(testing::append(path, data));
}

fn create_with(process: &mut Process, path: &StreamPath, wanted: Lifetime) {
    process.outcome(testing::create_for(path, wanted));
}

/// Lets time pass for the first shard, and does `steps` of what it wants done then.
fn tick(process: &mut Process, ms: u64, steps: usize) {
    process.now.monotonic = process.now.monotonic.plus_ms(ms);
    let now = process.now;
    process.shards[0].handle(now, Event::Tick);
    for _ in 0..steps {
        assert!(process.step());
    }
}

fn tails(process: &mut Process) -> Vec<u64> {
    let tail = |(_, reply): (u32, Reply)| match reply {
        Reply::Outcome(Outcome::Appended(accepted)) => accepted.tail.get(),
        other => panic!("an append was answered by {other:?}"),
    };
    process.replies.drain(..).map(tail).collect()
}

#[test]
fn writes_wait_for_room_and_are_carried_out_in_order() {
    let (mut process, path) = narrow();
    for _ in 0..2 {
        for number in 1..=5 {
            offer(&mut process, &path, &vec![b'x'; number]);
        }
        process.settle();
    }
    assert_eq!(tails(&mut process), [1, 3, 6, 10, 15, 16, 18, 21, 25, 30]);
}

#[test]
fn a_log_that_is_full_makes_room_without_waiting_for_ticks() {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    let path = path_in(0, "s");
    process.create(&path, "text/plain");
    let data = vec![b'x'; MIB / 16];
    // Three times what the log holds; each append is answered before the next one is made.
    for _ in 0..12 * 16 {
        assert!(matches!(process.append(&path, text(), &data), Outcome::Appended(_)));
    }
}

#[test]
fn a_write_that_has_waited_too_long_is_refused() {
    for (ms, refused, written) in [(4_999, 0, vec![1, 2, 3]), (5_000, 2, vec![1])] {
        let (mut process, path) = narrow();
        for _ in 0..3 {
            offer(&mut process, &path, b"x");
        }
        // Answers come before commits.
        tick(&mut process, ms, 2);
        assert_eq!(process.failures(), vec![Failure::Overloaded; refused]);
        process.replies.retain(|(_, reply)| !matches!(reply, Reply::Failed(_)));
        process.settle();
        assert_eq!(tails(&mut process), written, "the first has its place in the log");
    }
}

/// A log without room, and a stream that lives for eight seconds from its last use; one that comes
/// now, two seconds after its creation, has to be logged.
fn narrow_with_mortal() -> (Process, StreamPath) {
    let (mut process, path) = narrow();
    let mortal = path_in(0, "mortal");
    create_with(&mut process, &mortal, Lifetime::Ttl { seconds: 8 });
    process.wait_ms(2_000);
    offer(&mut process, &path, &[b'x'; 4_000]);
    (process, mortal)
}

fn offer_read(process: &mut Process, path: &StreamPath) {
    let (path, from) = (path.clone(), ReadFrom::Begin);
    process.offer(Request::Read(ReadRequest {
        path,
        from,
        boundary_bytes: 1 << 20,
        first_bytes_max: u64::MAX,
        records: None,
    }));
}

fn reads(process: &Process) -> usize {
    process.replies.iter().filter(|(_, reply)| matches!(reply, Reply::Read(_))).count()
}

#[test]
fn a_read_whose_use_must_be_logged_waits_for_room() {
    let (mut process, mortal) = narrow_with_mortal();
    offer_read(&mut process, &mortal);
    process.settle();
    assert_eq!(reads(&process), 1);
    let now = process.now;
    let mut process = Process::open(&process.kill(), 1);
    // Without the use it would be gone: it was made 9.5 s ago, lives for 8, and a restart adds 1.
    process.now.wall = now.wall.plus_ms(7_500);
    assert_eq!(process.refusal(&mortal), None);
}

#[test]
fn a_read_that_has_waited_too_long_is_answered() {
    for (ms, answered) in [(4_999, 0), (5_000, 1)] {
        let (mut process, mortal) = narrow_with_mortal();
        offer_read(&mut process, &mortal);
        tick(&mut process, ms, 1);
        assert_eq!(reads(&process), answered);
    }
}

#[test]
fn waiting_bytes_are_bounded_but_one_write_may_always_wait() {
    let (mut process, path) = narrow();
    for round in 1..=2 {
        offer(&mut process, &path, b"x");
        offer(&mut process, &path, &vec![b'x'; 40 * MIB]);
        offer(&mut process, &path, &vec![b'x'; 24 * MIB]);
        assert!(process.failures().is_empty());
        offer(&mut process, &path, b"x");
        process.settle();
        assert_eq!(process.failures(), [Failure::Overloaded]);
        process.replies.retain(|(_, reply)| !matches!(reply, Reply::Failed(_)));
        let last = tails(&mut process).pop();
        assert_eq!(last, Some(round * (64 * MIB as u64 + 1)));
    }
}

#[test]
fn waiting_writes_are_counted() {
    let (mut process, path) = narrow();
    for _ in 0..2 + (16 << 10) {
        offer(&mut process, &path, b"x");
    }
    // Only the last one has its answer already.
    assert!(process.step() && process.step());
    assert_eq!(process.failures(), [Failure::Overloaded]);
}

#[test]
fn what_changes_nothing_is_answered_without_a_commit() {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    let path = path_in(0, "s");
    process.with_text(&path, b"x");
    process.settle();
    let changes = process.disk.change_count();
    assert!(matches!(process.create(&path, "text/plain"), Outcome::Existed(_)));
    let untyped = stream::Append { content_type: stream::AppendType::Unnamed, ..text() };
    let refused = process.append(&path, untyped, b"x");
    assert!(matches!(refused, Outcome::Refused(Refusal::ContentType { .. })));
    assert_eq!(process.disk.change_count(), changes);
}

#[test]
fn a_stream_whose_lifetime_has_run_out_goes_by_itself() {
    let mut process = Process::open(&MemoryDisk::new(), 2);
    for group in 0..2 {
        let lifetime = Lifetime::ExpiresAt(Timestamp::new(3_000));
        create_with(&mut process, &path_in(group, "s"), lifetime);
    }
    process.wait_ms(1_999);
    assert_eq!(process.shards.iter().map(|node| node.stats().stream_count).sum::<u64>(), 2);
    process.wait_ms(1);
    assert_eq!(process.shards.iter().map(|node| node.stats().stream_count).sum::<u64>(), 0);
}

#[test]
fn a_quiet_shard_marks_its_last_batch_durable_once() {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    let path = path_in(0, "s");
    process.with_text(&path, b"x");
    for _ in 0..2 {
        process.append(&path, text(), b"x");
        let changes = process.disk.change_count();
        process.wait_ms(999);
        assert_eq!(process.disk.change_count(), changes, "it may not be quiet yet");
        process.wait_ms(1);
        let marked = process.disk.change_count();
        assert!(marked > changes);
        process.wait_ms(5_000);
        assert_eq!(process.disk.change_count(), marked, "once is enough");
    }
}

#[test]
fn what_is_on_its_way_is_judged_when_it_arrives() {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    let path = path_in(0, "s");
    process.create(&path, "text/plain");
    for seq in 0..3 {
        let producer = Some(Producer { id: "p".into(), epoch: 0, seq });
        let append = Append { producer, ..text() };
        let request = Request::Append { path: path.clone(), append };
        process.offer(Ask { request, data: b"x" });
    }
    process.settle();
    assert_eq!(tails(&mut process), [1, 2, 3], "none of them is a gap");
}

#[test]
fn a_creation_on_its_way_delays_no_other() {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    let (made, new) = (path_in(0, "made"), path_in(0, "new"));
    process.create(&made, "text/plain");
    process.offer(testing::create(&new, Some("text/plain"), None, b""));
    process.offer(testing::create(&made, Some("text/plain"), None, b""));
    assert!(process.step());
    assert!(matches!(process.replies[..], [(_, Reply::Outcome(Outcome::Existed(_)))]));
}

#[test]
fn a_fresh_node_reports_its_groups_and_no_trouble() {
    let process = Process::open(&MemoryDisk::new(), 1);
    assert_eq!(process.shards[0].group_count(), testing::GROUPS);
    assert_eq!(process.shards[0].poison(), None);
}
