//! Each test breaks one invariant of a shard, and the check names it.

use crate::{Request, ShardCore, Ticket, deferred::Deferred, group::ReplyTo};
use env::{MemoryDisk, SeededRandom};
use log::LogOptions;
use model::{EntryIndex, GroupId, Monotonic, ShardId, StreamId, StreamPath};
use std::path::Path;
use std::sync::Arc;
use stream::{Append, Command};

fn core() -> ShardCore {
    let options = LogOptions {
        group_count: 2,
        segment_bytes: 1 << 20,
        wal_bytes_max: 4 << 20,
        ..LogOptions::default()
    };
    let (disk, random) = (Arc::new(MemoryDisk::new()), &mut SeededRandom::new(1));
    let opened = crate::open(disk, random, Path::new("/d"), options, 1).unwrap();
    let core = opened.nodes.into_iter().next().unwrap();
    core.check();
    core
}

fn defer(core: &mut ShardCore, data: Vec<u8>) {
    let ticket = Ticket { shard: ShardId::new(0), exchange: [0; 3] };
    let request = Request::Delete { path: StreamPath::new("a").unwrap() };
    core.write_queue.push(Deferred { ticket, request, data, since: Monotonic::new(1) });
}

fn propose(core: &mut ShardCore, index: u64) {
    let of = (StreamId::new(7), Command::Append(Append::default()));
    let group = core.groups.get_mut(GroupId::new(1));
    group.note_proposed(EntryIndex::new(index), of, ReplyTo::Nobody);
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
    let _ = core.groups.get_mut(GroupId::new(1)).role.durable(EntryIndex::new(1));
    core.check();
}
