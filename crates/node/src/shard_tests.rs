//! Each test breaks one invariant of a shard, and the check names it.

use crate::testing::{Process, append, create, fork_of, path_in};
use crate::{Request, ShardCore, Ticket, deferred::Deferred, proposed::ReplyTo, shard::Proposal};
use env::MemoryDisk;
use model::{EntryIndex, GroupId, Monotonic, ShardId, StreamId, StreamKey, StreamPath, Term};
use stream::{Append, Command, PinToken, Subject};

fn core() -> ShardCore {
    let core = Process::open(&MemoryDisk::new(), 1).shards.remove(0);
    core.check();
    core
}

/// A shard with an append and the pin of a fork on their way to the disk, and the stream of both.
fn busy() -> (ShardCore, StreamKey) {
    let mut process = Process::open(&MemoryDisk::new(), 1);
    let path = path_in(0, "a");
    process.with_text(&path, b"text");
    let key = process.head(&path).0;
    process.held.syncs = Some(Vec::new());
    process.offer(append(&path, b"more"));
    process.offer(create(&path_in(1, "fork"), None, Some(fork_of(&path, None, 0)), b""));
    process.settle();
    let core = process.shards.remove(0);
    core.check();
    (core, key)
}

fn defer(core: &mut ShardCore, data: Vec<u8>) {
    let ticket = Ticket { shard: ShardId::new(0), exchange: [0; 3] };
    let request = Request::Delete { path: StreamPath::new("a").unwrap() };
    core.write_queue.push(Deferred { ticket, request, data, since: Monotonic::new(1) });
}

fn propose(core: &mut ShardCore, index: u64) {
    let of = (Subject::Stream(StreamId::new(7)), Command::Append(Append::default()));
    let group = core.groups.get_mut(GroupId::new(1));
    group.note_proposed(EntryIndex::new(index), of, ReplyTo::Expiries);
    core.expiries.note_proposed();
}

#[test]
#[should_panic(expected = "the deferred bytes are miscounted")]
fn deferred_bytes_that_are_miscounted_are_found() {
    let mut core = core();
    defer(&mut core, vec![0; 10]);
    core.check();
    core.write_queue.miscount();
    core.check();
}

#[test]
#[should_panic(expected = "expiries in flight are miscounted")]
fn an_expiry_that_is_not_counted_is_found() {
    let mut core = core();
    core.expiries.note_proposed();
    core.check();
}

#[test]
#[should_panic(expected = "too many writes are deferred")]
fn more_deferred_writes_than_may_be_are_found() {
    let mut core = core();
    while !core.write_queue.is_full(0) {
        defer(&mut core, Vec::new());
    }
    core.check();
    defer(&mut core, Vec::new());
    core.check();
}

#[test]
#[should_panic(expected = "group 1 has a gap in what it proposed")]
fn a_gap_in_what_was_proposed_is_found() {
    let mut core = core();
    propose(&mut core, 1);
    core.check();
    propose(&mut core, 3);
    core.check();
}

#[test]
#[should_panic(expected = "group 1 lags behind what is committed")]
fn an_entry_that_is_committed_and_not_applied_is_found() {
    let mut core = core();
    let _ = core.groups.get_mut(GroupId::new(1)).solo().durable(EntryIndex::new(1));
    core.check();
}

#[test]
#[should_panic(expected = "differ in what is applied")]
fn an_entry_that_is_applied_before_it_is_durable_is_found() {
    let mut core = core();
    core.groups.get_mut(GroupId::new(1)).skip_to(EntryIndex::new(1));
    core.check();
}

#[test]
#[should_panic(expected = "nobody waits for answer")]
fn an_operation_that_is_lost_is_found() {
    let (mut core, _) = busy();
    let number = core.awaited().next().expect("a fork waits for its pin");
    core.operations.take(number);
    core.check();
}

#[test]
#[should_panic(expected = "waits for two answers")]
fn an_operation_that_asks_twice_is_found() {
    let (mut core, key) = busy();
    let reply_to = ReplyTo::Operation(core.awaited().next().expect("a fork waits for its pin"));
    let proposal = Proposal { to: key.into(), command: Command::Expire, data: &[] };
    core.propose(proposal, reply_to).unwrap();
    core.check();
}

#[test]
#[should_panic(expected = "waits for a log that has failed")]
fn an_entry_in_a_log_that_has_failed_is_found() {
    let (mut core, _) = busy();
    core.poison = Some((crate::DiskTrouble::Failing, "the disk is sick".into()));
    core.check();
}

#[test]
#[should_panic(expected = "references were not given back")]
fn a_release_that_is_not_begun_is_found() {
    let (mut core, key) = busy();
    core.releases.add(key, PinToken { fork_group: key.group, term: Term::new(1), nonce: 1 });
    core.check();
}
