//! Nothing is answered before it is durable: the tests hold the commit back and look.

use env::{MemoryDisk, SeededRandom};
use log::LogOptions;
use model::{StreamPath, Timestamp};
use stream::{Append, ContentType, Lifetime, Outcome, Producer, Refusal};
use thalweg_node::testing::{Ask, Process, create_for, options};
use thalweg_node::{Failure, Reply, Request};

/// One shard whose syncs run when the test says so.
fn open(disk: &MemoryDisk) -> Process {
    let options = LogOptions { group_count: 1, ..options() };
    let mut process = Process::open_with(disk, 1, options);
    process.held.syncs = Some(Vec::new());
    process
}

fn with_stream() -> Process {
    with_stream_for(Lifetime::Forever)
}

fn with_stream_for(lifetime: Lifetime) -> Process {
    let mut process = open(&MemoryDisk::new());
    offer(&mut process, create_for(&path(), lifetime));
    process.sync_held();
    assert!(matches!(process.replies[..], [(_, Reply::Outcome(Outcome::Created(_)))]));
    process.replies.clear();
    process
}

/// Hands in a request and does all but to sync. Returns its number.
fn offer<'a>(process: &mut Process, ask: impl Into<Ask<'a>>) -> u32 {
    let number = process.offer(ask);
    process.settle();
    number
}

fn append(process: &mut Process, append: Append, data: &[u8]) -> u32 {
    offer(process, Ask { request: Request::Append { path: path(), append }, data })
}

/// The tail that a reader sees.
fn tail(process: &mut Process) -> u64 {
    process.replies.clear();
    process.ends(&path(), 0, 1 << 20).1
}

fn path() -> StreamPath {
    thalweg_node::testing::path("s")
}

fn produced() -> Append {
    Append {
        content_type: stream::AppendType::Named(ContentType::new("text/plain")),
        producer: Some(Producer { id: "p".into(), epoch: 0, seq: 0 }),
        record_count: 1,
        ..Append::default()
    }
}

fn close() -> Append {
    Append { close: true, ..Append::default() }
}

#[test]
fn a_duplicate_is_answered_only_when_its_original_is_durable() {
    let mut process = with_stream();
    let asked = [0; 2].map(|_| append(&mut process, produced(), b"data"));
    assert!(process.replies.is_empty(), "{:?}", process.replies);
    process.sync_held();
    let numbers: Vec<u32> = process.replies.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, asked);
    let is_duplicate = |reply: &Reply| match reply {
        Reply::Outcome(Outcome::Appended(accepted)) => accepted.duplicate,
        other => panic!("an append was answered by {other:?}"),
    };
    assert!(!is_duplicate(&process.replies[0].1));
    assert!(is_duplicate(&process.replies[1].1));
    assert_eq!(tail(&mut process), 4);
}

#[test]
fn a_repeated_close_is_answered_only_when_the_first_is_durable() {
    let mut process = with_stream();
    append(&mut process, close(), b"");
    append(&mut process, close(), b"");
    assert!(process.replies.is_empty(), "{:?}", process.replies);
    process.sync_held();
    assert_eq!(process.replies.len(), 2);
}

#[test]
fn an_expiry_is_answered_only_when_it_is_durable() {
    let mut process = with_stream_for(Lifetime::ExpiresAt(Timestamp::new(2_000)));
    process.now.wall = Timestamp::new(3_000);
    let asked = [0; 2].map(|_| offer(&mut process, Request::Head { path: path() }));
    assert!(process.replies.is_empty(), "{:?}", process.replies);
    process.sync_held();
    for number in asked {
        let (replied, reply) = process.replies.remove(0);
        let is_gone = matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)));
        assert!(replied == number && is_gone, "{replied} {reply:?}");
    }
}

#[test]
fn a_use_on_its_way_to_the_log_outlives_the_end_of_the_lifetime() {
    let mut process = with_stream_for(Lifetime::Ttl { seconds: 1 });
    process.now.wall = Timestamp::new(1_900);
    append(&mut process, produced(), b"data");
    process.now.wall = Timestamp::new(2_500);
    offer(&mut process, Request::Head { path: path() });
    process.sync_held();
    let told: Vec<&Reply> = process.replies.iter().map(|(_, reply)| reply).collect();
    assert!(matches!(
        told[..],
        [Reply::Outcome(Outcome::Appended(_)), Reply::Failed(Failure::Overloaded)]
    ));
}

#[test]
fn a_repeated_create_is_answered_only_when_the_first_is_durable() {
    let mut process = open(&MemoryDisk::new());
    offer(&mut process, create_for(&path(), Lifetime::Forever));
    offer(&mut process, create_for(&path(), Lifetime::Forever));
    assert!(process.replies.is_empty(), "{:?}", process.replies);
    process.sync_held();
    assert!(matches!(process.replies[0], (1, Reply::Outcome(Outcome::Created(_)))));
    assert!(matches!(process.replies[1], (2, Reply::Outcome(Outcome::Existed(_)))));
}

#[test]
fn a_reader_sees_nothing_that_is_not_durable() {
    let mut process = with_stream();
    append(&mut process, produced(), b"data");
    assert_eq!(tail(&mut process), 0);
    process.sync_held();
    assert_eq!(tail(&mut process), 4);
}

#[test]
fn a_crash_between_an_append_and_its_repeat_acknowledges_neither() {
    let mut process = with_stream();
    append(&mut process, produced(), b"data");
    append(&mut process, produced(), b"data");
    assert!(process.replies.is_empty());
    let disk = process.disk.clone();
    drop(process);
    disk.crash(&mut SeededRandom::new(7));
    let mut process = open(&disk);
    assert_eq!(tail(&mut process), 0);
    append(&mut process, produced(), b"data");
    process.sync_held();
    assert_eq!(tail(&mut process), 4, "the repeat is the first that counts");
}

#[test]
fn a_failed_sync_leaves_the_outcome_open_and_refuses_what_follows() {
    let mut process = with_stream();
    process.disk.fail_next_sync(1);
    let [first, second] = [0; 2].map(|_| append(&mut process, produced(), b"data"));
    process.sync_held();
    let third = append(&mut process, produced(), b"data");
    let failed = |applied_unknown| Failure::Poisoned { applied_unknown };
    let failures: Vec<_> = process
        .replies
        .iter()
        .map(|(number, reply)| match reply {
            Reply::Failed(failure) => (*number, failure.clone()),
            other => panic!("{number} was answered by {other:?}"),
        })
        .collect();
    assert_eq!(failures, [(first, failed(true)), (second, failed(true)), (third, failed(false))]);
    assert_eq!(tail(&mut process), 0);
    assert!(process.shards[0].poison().is_some());
}

#[test]
fn an_announced_append_fails_at_once_only_for_what_cannot_change() {
    let announce = |append| Request::Announce { path: path(), append };
    let one = |append| Append { record_count: 1, ..append };
    let mut process = open(&MemoryDisk::new());
    offer(&mut process, announce(one(produced())));
    let is_missing =
        |reply: &Reply| matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)));
    assert!(is_missing(&process.replies.remove(0).1));

    process = with_stream();
    append(&mut process, close(), b"");
    offer(&mut process, announce(one(produced())));
    assert!(matches!(process.replies.remove(0).1, Reply::Head(..)), "the close may yet be lost");
    process.sync_held();
    process.replies.clear();
    offer(&mut process, announce(one(produced())));
    let reply = process.replies.remove(0).1;
    assert!(matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::Closed { .. }))), "{reply:?}");
    assert!(process.held.syncs.unwrap().is_empty(), "nothing is logged");
}
