//! Nothing is answered before it is durable: the tests hold the commit back and look.

use env::{MemoryDisk, SeededRandom};
use log::{LogOptions, SyncJob};
use model::{ByteOffset, Monotonic, ReadFrom, ShardId, StreamPath, Timestamp};
use std::{path::Path, sync::Arc};
use stream::{Append, ContentType, CreateRequest, Lifetime, Outcome, Producer, Refusal};
use thalweg_node::{Event, Failure, Output, ReadRequest, Reply, Request, ShardCore, Stamp, Ticket};

const NOW: Stamp = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };

/// One shard whose commits run when the test says so.
struct Machine {
    disk: MemoryDisk,
    node: ShardCore,
    /// Answers by the number of their request.
    replies: Vec<(u32, Reply)>,
    commits: Vec<SyncJob>,
    now: Stamp,
}

impl Machine {
    fn open(disk: &MemoryDisk) -> Self {
        let options = LogOptions {
            group_count: 1,
            segment_bytes: 1 << 20,
            wal_bytes_max: 4 << 20,
            ..LogOptions::default()
        };
        let disk_port = Arc::new(disk.clone());
        let random = &mut SeededRandom::new(1);
        let opened = thalweg_node::open(disk_port, random, Path::new("/data"), options, 1).unwrap();
        let node = opened.nodes.into_iter().next().unwrap();
        Self { disk: disk.clone(), node, replies: Vec::new(), commits: Vec::new(), now: NOW }
    }

    fn with_stream() -> Self {
        let mut machine = Self::open(&MemoryDisk::new());
        machine.create(0);
        machine.commit();
        machine.replies.clear();
        machine
    }

    fn ask(&mut self, number: u32, request: Request) {
        self.ask_with(number, request, b"");
    }

    fn ask_with(&mut self, number: u32, request: Request, data: &[u8]) {
        let ticket = Ticket { shard: ShardId::new(0), exchange: [number, 0, 0] };
        self.node.handle(self.now, Event::Request { ticket, request, data });
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Reply { ticket, reply } => self.replies.push((ticket.exchange[0], reply)),
                Output::Sync(job) => self.commits.push(job),
                Output::Read(job) => self.node.handle(self.now, Event::ReadDone(job.run())),
                Output::Work(job) => self.node.handle(self.now, Event::Worked(job.run())),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Lets every commit happen.
    fn commit(&mut self) {
        while let Some(job) = self.commits.pop() {
            self.node.handle(self.now, Event::Synced(job.run()));
            self.drain();
        }
    }

    fn create(&mut self, number: u32) {
        self.create_with(number, Lifetime::Forever);
    }

    fn create_with(&mut self, number: u32, lifetime: Lifetime) {
        let create = Request::Create(CreateRequest {
            path: path(),
            content_type: Some(ContentType::new("text/plain")),
            lifetime,
            close: false,
            fork: None,
            record_count: 0,
        });
        self.ask(number, create);
    }

    fn append(&mut self, number: u32, append: Append, data: &[u8]) {
        self.ask_with(number, Request::Append { path: path(), append }, data);
    }

    /// The tail that a reader sees.
    fn tail(&mut self) -> ByteOffset {
        let (path, from) = (path(), ReadFrom::Now);
        self.ask(99, Request::Read(ReadRequest { path, from, boundary_bytes: 1 << 20 }));
        match self.replies.pop() {
            Some((99, Reply::Read(reply))) => reply.end,
            other => panic!("a read was answered by {other:?}"),
        }
    }
}

fn path() -> StreamPath {
    StreamPath::new("s").unwrap()
}

fn produced() -> Append {
    Append {
        content_type: Some(ContentType::new("text/plain")),
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
    let mut machine = Machine::with_stream();
    machine.append(1, produced(), b"data");
    machine.append(2, produced(), b"data");
    assert!(machine.replies.is_empty(), "{:?}", machine.replies);
    machine.commit();
    let numbers: Vec<u32> = machine.replies.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2]);
    let is_duplicate = |reply: &Reply| match reply {
        Reply::Outcome(Outcome::Appended(accepted)) => accepted.duplicate,
        other => panic!("an append was answered by {other:?}"),
    };
    assert!(!is_duplicate(&machine.replies[0].1));
    assert!(is_duplicate(&machine.replies[1].1));
    assert_eq!(machine.tail(), ByteOffset::new(4));
}

#[test]
fn a_repeated_close_is_answered_only_when_the_first_is_durable() {
    let mut machine = Machine::with_stream();
    machine.append(1, close(), b"");
    machine.append(2, close(), b"");
    assert!(machine.replies.is_empty(), "{:?}", machine.replies);
    machine.commit();
    assert_eq!(machine.replies.len(), 2);
}

#[test]
fn an_expiry_is_answered_only_when_it_is_durable() {
    let mut machine = Machine::open(&MemoryDisk::new());
    machine.create_with(1, Lifetime::ExpiresAt(Timestamp::new(2_000)));
    machine.commit();
    machine.replies.clear();
    machine.now.wall = Timestamp::new(3_000);
    machine.ask(2, Request::Head { path: path() });
    machine.ask(3, Request::Head { path: path() });
    assert!(machine.replies.is_empty(), "{:?}", machine.replies);
    machine.commit();
    for number in [2, 3] {
        let (replied, reply) = machine.replies.remove(0);
        let is_gone = matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)));
        assert!(replied == number && is_gone, "{replied} {reply:?}");
    }
}

#[test]
fn a_use_on_its_way_to_the_log_outlives_the_end_of_the_lifetime() {
    let mut machine = Machine::open(&MemoryDisk::new());
    machine.create_with(1, Lifetime::Ttl { seconds: 1 });
    machine.commit();
    machine.replies.clear();
    machine.append(2, produced(), b"data");
    machine.now.wall = Timestamp::new(2_500);
    machine.ask(3, Request::Head { path: path() });
    machine.now.wall = Timestamp::new(1_900);
    machine.commit();
    let told: Vec<&Reply> = machine.replies.iter().map(|(_, reply)| reply).collect();
    assert!(matches!(
        told[..],
        [Reply::Outcome(Outcome::Appended(_)), Reply::Failed(Failure::Overloaded)]
    ));
}

#[test]
fn a_repeated_create_is_answered_only_when_the_first_is_durable() {
    let mut machine = Machine::open(&MemoryDisk::new());
    machine.create(1);
    machine.create(2);
    assert!(machine.replies.is_empty(), "{:?}", machine.replies);
    machine.commit();
    assert!(matches!(machine.replies[0], (1, Reply::Outcome(Outcome::Created(_)))));
    assert!(matches!(machine.replies[1], (2, Reply::Outcome(Outcome::Existed(_)))));
}

#[test]
fn a_reader_sees_nothing_that_is_not_durable() {
    let mut machine = Machine::with_stream();
    machine.append(1, produced(), b"data");
    assert_eq!(machine.tail(), ByteOffset::ZERO);
    machine.commit();
    assert_eq!(machine.tail(), ByteOffset::new(4));
}

#[test]
fn a_crash_between_an_append_and_its_repeat_acknowledges_neither() {
    let mut machine = Machine::with_stream();
    machine.append(1, produced(), b"data");
    machine.append(2, produced(), b"data");
    assert!(machine.replies.is_empty());
    let disk = machine.disk.clone();
    drop(machine);
    disk.crash(&mut SeededRandom::new(7));
    let mut machine = Machine::open(&disk);
    assert_eq!(machine.tail(), ByteOffset::ZERO);
    machine.append(3, produced(), b"data");
    machine.commit();
    assert_eq!(machine.tail(), ByteOffset::new(4), "the repeat is the first that counts");
}

#[test]
fn a_failed_sync_leaves_the_outcome_open_and_refuses_what_follows() {
    let mut machine = Machine::with_stream();
    machine.disk.fail_next_sync(1);
    machine.append(1, produced(), b"data");
    machine.append(2, produced(), b"data");
    machine.commit();
    machine.append(3, produced(), b"data");
    let failed = |applied_unknown| Failure::Poisoned { applied_unknown };
    let failures: Vec<_> = machine
        .replies
        .iter()
        .map(|(number, reply)| match reply {
            Reply::Failed(failure) => (*number, failure.clone()),
            other => panic!("{number} was answered by {other:?}"),
        })
        .collect();
    assert_eq!(failures, [(1, failed(true)), (2, failed(true)), (3, failed(false))]);
    assert_eq!(machine.tail(), ByteOffset::ZERO);
    assert!(machine.node.poison().is_some());
}

#[test]
fn an_announced_append_fails_at_once_only_for_what_cannot_change() {
    let announce = |append| Request::Announce { path: path(), append };
    let one = |append| Append { record_count: 1, ..append };
    let mut machine = Machine::open(&MemoryDisk::new());
    machine.ask(1, announce(one(produced())));
    let is_missing =
        |reply: &Reply| matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)));
    assert!(is_missing(&machine.replies.remove(0).1));

    machine = Machine::with_stream();
    machine.append(1, close(), b"");
    machine.ask(2, announce(one(produced())));
    assert!(matches!(machine.replies.remove(0).1, Reply::Head(..)), "the close may yet be lost");
    machine.commit();
    machine.replies.clear();
    machine.ask(3, announce(one(produced())));
    let reply = machine.replies.remove(0).1;
    assert!(matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::Closed { .. }))), "{reply:?}");
    assert!(machine.commits.is_empty(), "nothing is logged");
}
