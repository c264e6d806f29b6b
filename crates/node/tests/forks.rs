//! Forks whose source lives in another shard, and what is left of those that fail. PROTOCOL §4.2.

use env::MemoryDisk;
use model::{ByteOffset, StreamPath};
use stream::{ContentType, Outcome, Refusal};
use thalweg_node::testing::{self, Process, create, fork_of, path_in};
use thalweg_node::{Reply, Request};

/// Two shards; a text of three bytes in the first.
fn with_source() -> (Process, StreamPath) {
    let mut process = Process::open(&MemoryDisk::new(), 2);
    let source = path_in(0, "source");
    process.with_text(&source, b"abc");
    (process, source)
}

fn refused(refusal: Refusal) -> Outcome {
    Outcome::Refused(refusal)
}

#[test]
fn a_fork_in_another_shard_begins_with_its_sources_bytes() {
    let (mut process, source) = with_source();
    let fork = path_in(1, "fork");
    assert!(matches!(process.fork(&fork, fork_of(&source, Some(2), 0)), Outcome::Created(_)));
    process.append(&fork, testing::text(), b"xy");
    process.append(&source, testing::text(), b"later");
    assert_eq!(process.bytes(&fork), b"abxy");
    let again = fork_of(&source, Some(2), 0);
    assert!(matches!(process.fork(&fork, again), Outcome::Existed(_)));
}

#[test]
fn a_fork_may_begin_anywhere_from_the_first_byte_to_the_tail() {
    let (mut process, source) = with_source();
    for at in 0..=3 {
        let fork = path_in(1, &format!("fork-{at}-"));
        process.fork(&fork, fork_of(&source, Some(at), 0));
        assert_eq!(process.bytes(&fork), b"abc"[..at as usize]);
    }
    let beyond = process.fork(&path_in(1, "fork"), fork_of(&source, Some(4), 0));
    assert_eq!(beyond, refused(Refusal::ForkBeyondTail { tail: ByteOffset::new(3) }));
}

#[test]
fn a_fork_of_a_wrong_source_gets_the_reason() {
    let (mut process, source) = with_source();
    let fork = path_in(1, "fork");
    let missing = process.fork(&fork, fork_of(&path_in(0, "missing"), None, 0));
    assert_eq!(missing, refused(Refusal::ForkSourceNotFound));
    let json = create(&fork, Some("application/json"), Some(fork_of(&source, None, 0)), b"");
    let expected = ContentType::new("text/plain");
    assert_eq!(process.outcome(json), refused(Refusal::ForkContentType { expected }));
    process.fork(&fork, fork_of(&source, None, 0));
    assert_eq!(process.delete(&source), Outcome::Deleted);
    let other = process.fork(&path_in(1, "other"), fork_of(&source, None, 0));
    assert_eq!(other, refused(Refusal::ForkSourceGone));
}

#[test]
fn a_sub_offset_counts_bytes_or_messages_of_one_append() {
    let (mut process, source) = with_source();
    process.append(&source, testing::text(), b"de");
    let fork = path_in(1, "text");
    process.fork(&fork, fork_of(&source, Some(0), 2));
    assert_eq!(process.bytes(&fork), b"ab");
    let refusal = |available| refused(Refusal::ForkSubOffset { available });
    let too_many = process.fork(&path_in(1, "more"), fork_of(&source, Some(1), 3));
    assert_eq!(too_many, refusal(2));
    let at_tail = process.fork(&path_in(1, "tail"), fork_of(&source, None, 1));
    assert_eq!(at_tail, refusal(0));

    let source = path_in(0, "json");
    process.create(&source, "application/json");
    let append = stream::Append {
        content_type: stream::AppendType::Named(ContentType::new("application/json")),
        record_count: 3,
        ..testing::text()
    };
    process.append(&source, append, b"1,22,333,");
    for (count, bytes) in [(1, &b"1,"[..]), (2, b"1,22,"), (3, b"1,22,333,")] {
        let fork = path_in(1, &format!("json-{count}-"));
        process.fork(&fork, fork_of(&source, Some(0), count));
        assert_eq!(process.bytes(&fork), bytes);
    }
    let too_many = process.fork(&path_in(1, "json"), fork_of(&source, Some(0), 4));
    assert_eq!(too_many, refusal(3));
}

#[test]
fn a_fork_that_inherits_json_has_its_first_data_checked() {
    let mut process = Process::open(&MemoryDisk::new(), 2);
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    process.create(&source, "application/json");
    let broken = process.ask(create(&fork, None, Some(fork_of(&source, None, 0)), b"[1,"));
    assert!(matches!(broken, Reply::InvalidJson(_)));
    process.outcome(create(&fork, None, Some(fork_of(&source, None, 0)), b"[1, 2]"));
    assert_eq!(process.bytes(&fork), b"1,2,");
}

/// Deletes the source: it goes for good if nobody holds a reference on it any more.
fn assert_unreferenced(process: &mut Process, source: &StreamPath) {
    assert_eq!(process.delete(source), Outcome::Deleted);
    assert_eq!(process.refusal(source), Some(Refusal::NotFound));
}

#[test]
fn a_deleted_fork_gives_its_reference_back() {
    let (mut process, source) = with_source();
    let fork = path_in(1, "fork");
    process.fork(&fork, fork_of(&source, None, 0));
    process.delete(&fork);
    assert_unreferenced(&mut process, &source);
}

#[test]
fn a_reference_that_was_given_back_is_not_given_back_again_after_a_restart() {
    let (mut process, source) = with_source();
    let fork = path_in(1, "fork");
    process.fork(&fork, fork_of(&source, None, 0));
    process.delete(&fork);
    let disk = process.kill();
    let mut process = Process::open(&disk, 2);
    process.settle();
    let changes = disk.change_count();
    process.wait_ms(100);
    assert_eq!(disk.change_count(), changes);
}

#[test]
fn a_fork_that_is_refused_gives_its_reference_back() {
    let (mut process, source) = with_source();
    let fork = path_in(1, "fork");
    // Both are on their way before either is made.
    process.offer(create(&fork, None, Some(fork_of(&source, Some(1), 0)), b""));
    process.offer(create(&fork, None, Some(fork_of(&source, Some(2), 0)), b""));
    process.settle();
    let is_made = |(_, reply): &(u32, Reply)| matches!(reply, Reply::Outcome(Outcome::Created(_)));
    assert_eq!(process.replies.drain(..).filter(is_made).count(), 1);
    process.delete(&fork);
    assert_unreferenced(&mut process, &source);
}

#[test]
fn a_reference_whose_fork_never_came_to_be_is_given_back_after_a_crash() {
    let mut steps = 0;
    loop {
        let (mut process, source) = with_source();
        process.offer(create(&path_in(1, "fork"), None, Some(fork_of(&source, None, 0)), b""));
        let is_done = !(0..steps).all(|_| process.step());
        let disk = process.kill();
        let mut process = Process::open(&disk, 2);
        process.wait_ms(100);
        process.offer(Request::Delete { path: path_in(1, "fork") });
        process.settle();
        process.replies.clear();
        assert_unreferenced(&mut process, &source);
        if is_done {
            break;
        }
        steps += 1;
    }
    assert!(steps > 5, "the fork was made in {steps} steps");
}
