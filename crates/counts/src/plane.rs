//! From bytes of a request to bytes of its answer, in one thread: the server's `plane` without sockets.
//!
//! Jobs run at once, in place: the write and the sync of a commit too, on real files.

use env::{RealDisk, SeededRandom};
use log::{LogOptions, LogStats, Slice};
use model::{GroupId, Monotonic, ShardId, StreamKey, Timestamp, limits};
use node::{Change, Event, Output, ReadReply, Reply, ShardCore, Stamp, Ticket};
use protocol::{
    HttpDate,
    body::Payload,
    cursor,
    http1::{Exchange, Head, HeadLimits, HeadReader, HeaderSlots, Version, put_chunk},
    request::{self, AppendRequest, CreateRequest, ReadOffset, ReadRequest, Request, Scheme},
    response::{self, BodyPlan, ReadAnswer},
    sse::{Control, Mode, SseEncoder},
};
use std::collections::HashMap;
use std::{path::Path, sync::Arc};
use stream::Outcome;

/// The time of everything: 2026-01-01.
const NOW_MS: u64 = 1_767_225_600_000;

/// A request that the node has, as a connection holds it.
#[derive(Debug)]
enum Pending {
    Create { location: Box<str>, group: GroupId },
    Append,
    Read(Box<ReadRequest>),
    Window(Box<(ReadRequest, ReadReply)>),
}

/// One shard with one node, between bytes and bytes.
#[derive(Debug)]
pub(crate) struct Plane {
    node: ShardCore,
    now: Stamp,
    date: HttpDate,
    limits: HeadLimits,
    /// Requests under way, by the slot of their connection.
    pending: Vec<Option<Pending>>,
    /// The answer that is being written, as the server's one buffer for heads.
    out: Vec<u8>,
    live: HashMap<StreamKey, SseEncoder>,
    /// Whether created streams get a live reader.
    is_live: bool,
    answer_count: u64,
    answer_bytes: u64,
}

impl Plane {
    /// Opens an empty directory for `slot_count` connections.
    pub(crate) fn open(dir: &Path, slot_count: usize, is_live: bool) -> Self {
        let mut random = SeededRandom::new(1);
        let options = LogOptions { store_id: Some(1), ..LogOptions::default() };
        let opened = node::open(Arc::new(RealDisk), &mut random, dir, options, 1);
        let mut opened = opened.expect("an empty directory opens");
        let now = Stamp { wall: Timestamp::new(NOW_MS), monotonic: Monotonic::new(0) };
        let mut plane = Self {
            node: opened.nodes.pop().expect("one shard has one node"),
            now,
            date: HttpDate::new(now.wall),
            limits: HeadLimits::default(),
            pending: (0..slot_count).map(|_| None).collect(),
            out: Vec::with_capacity(1024),
            live: HashMap::new(),
            is_live,
            answer_count: 0,
            answer_bytes: 0,
        };
        plane.drain();
        plane
    }

    /// Takes one whole request of the connection in `slot`.
    pub(crate) fn receive(&mut self, slot: u32, bytes: &[u8]) {
        let mut slots = HeaderSlots::new();
        let head = HeadReader::default().read(bytes, &mut slots, &self.limits);
        let head: Head<'_, '_> = head.expect("a well-formed head").expect("a whole head");
        let body = &bytes[head.head_bytes..];
        match request::parse(&head, Scheme::Http).expect("a request that is taken") {
            Request::Create(create) => self.begin_create(slot, *create, body),
            Request::Append(append) => self.begin_append(slot, append, body),
            Request::Read(read) => self.begin_read(slot, read),
            other => panic!("{other:?} is no part of any workload"),
        }
    }

    /// Lets the node do what it has to do, until every request is answered.
    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Reply { ticket, reply } => self.handle_reply(ticket.slot, reply),
                Output::Changed { change, .. } => self.handle_change(&change),
                Output::Sync(job) => self.node.handle(self.now, Event::Synced(job.run())),
                Output::Work(job) => self.node.handle(self.now, Event::Worked(job.run())),
                Output::Shard { .. } => panic!("one shard has no peers"),
            }
        }
        assert!(self.pending.iter().all(Option::is_none), "every request of a turn is answered");
    }

    pub(crate) fn log_stats(&self) -> LogStats {
        self.node.log().stats()
    }

    pub(crate) const fn answer_count(&self) -> u64 {
        self.answer_count
    }

    /// Bytes of answers, and of frames for live readers.
    pub(crate) const fn answer_bytes(&self) -> u64 {
        self.answer_bytes
    }

    fn ask(&mut self, slot: u32, pending: Pending, request: node::Request<'_>) {
        self.pending[slot as usize] = Some(pending);
        let ticket = Ticket { shard: ShardId::new(0), slot, generation: 0 };
        self.node.handle(self.now, Event::Request { ticket, request });
    }

    fn begin_create(&mut self, slot: u32, create: CreateRequest, body: &[u8]) {
        let ready = create.finish(body).expect("a body that is taken");
        let Payload::Ready(prepared) = &ready.payload else { panic!("no workload forks") };
        let CreateRequest { path, content_type, lifetime, close, fork, location } = ready.request;
        let group = path.group(self.node.group_count());
        let request = node::Request::Create {
            path,
            content_type,
            lifetime,
            close,
            fork,
            data: &prepared.data,
            record_count: prepared.record_count,
        };
        self.ask(slot, Pending::Create { location, group }, request);
    }

    fn begin_append(&mut self, slot: u32, append: AppendRequest, body: &[u8]) {
        let ready = append.finish(body).expect("a body that is taken");
        let request =
            node::Request::Append { path: ready.path, append: ready.append, data: &ready.data };
        self.ask(slot, Pending::Append, request);
    }

    fn begin_read(&mut self, slot: u32, read: ReadRequest) {
        assert_eq!(read.offset, ReadOffset::Begin, "all reads of a workload start there");
        let request = node::Request::Read {
            path: read.path.clone(),
            from: node::ReadFrom::Begin,
            boundary_bytes: limits::ANSWER_BOUNDARY_BYTES,
        };
        self.ask(slot, Pending::Read(Box::new(read)), request);
    }

    fn handle_reply(&mut self, slot: u32, reply: Reply) {
        let pending = self.pending[slot as usize].take();
        match (pending.expect("a reply is waited for"), reply) {
            (Pending::Create { location, group }, Reply::Outcome(outcome)) => {
                if self.is_live {
                    self.watch(group, &outcome);
                }
                self.answer(|out, exchange| response::outcome(out, exchange, &outcome, &location));
            }
            (Pending::Append, Reply::Outcome(outcome)) => {
                self.answer(|out, exchange| response::outcome(out, exchange, &outcome, ""));
            }
            (Pending::Read(request), Reply::Read(reply)) => {
                self.answer_read(slot, *request, *reply);
            }
            (Pending::Window(read), Reply::Window(slice)) => {
                let (request, mut reply) = *read;
                reply.first = Some(slice);
                self.answer_read(slot, request, reply);
            }
            (pending, reply) => panic!("{pending:?} was answered by {reply:?}"),
        }
    }

    fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>, &Exchange<'_>)) {
        self.out.clear();
        let exchange = Exchange {
            version: Version::Http11,
            keep_alive: true,
            is_head: false,
            date: &self.date,
        };
        write(&mut self.out, &exchange);
        let status = response::status_of(&self.out);
        assert!(matches!(status, Some(200..=299)), "refused with {status:?}");
        self.answer_count += 1;
        self.answer_bytes += self.out.len() as u64;
    }

    /// Answers with the first window; the streams of a workload are no longer than that.
    fn answer_read(&mut self, slot: u32, request: ReadRequest, reply: ReadReply) {
        let Some(first) = &reply.first else {
            let (key, to) = reply.owner_of(reply.start);
            let window = node::Request::Window { key, from: reply.start, to };
            return self.ask(slot, Pending::Window(Box::new((request, reply))), window);
        };
        let Slice::Bytes(bytes) = first else { panic!("no workload fills a chunk") };
        assert_eq!(bytes.len() as u64, reply.end.since(reply.start), "one window holds the answer");
        let answer = ReadAnswer {
            request: &request,
            group: reply.key.group,
            info: &reply.info,
            start: reply.start,
            end: reply.end,
            is_stable: reply.end < reply.info.tail,
            cursor: None,
            gzip: false,
        };
        self.answer(|out, exchange| {
            let plan = response::read(out, exchange, &answer);
            assert!(matches!(plan, BodyPlan::Range { .. }), "an answer with a body");
            out.extend_from_slice(bytes);
        });
    }

    fn watch(&mut self, group: GroupId, outcome: &Outcome) {
        let Outcome::Created(info) = outcome else { panic!("{outcome:?} to a create") };
        let key = StreamKey { group, stream: info.stream };
        self.live.insert(key, SseEncoder::new(Mode::Text, info.tail));
        let ticket = Ticket { shard: ShardId::new(0), slot: 0, generation: 0 };
        let request = node::Request::Watch { key };
        self.node.handle(self.now, Event::Request { ticket, request });
    }

    /// One frame for all live readers of a stream.
    fn handle_change(&mut self, change: &Change) {
        let Some(encoder) = self.live.get_mut(&change.key) else { return };
        let Some(data) = &change.data else { return };
        let cursor = cursor::current(self.now.wall);
        let mut events = Vec::new();
        encoder.begin_event(cursor);
        encoder.push(data, &mut events);
        encoder.end_event(Control { cursor, up_to_date: true, closed: false }, &mut events);
        self.out.clear();
        put_chunk(&mut self.out, &events);
        self.answer_bytes += self.out.len() as u64;
    }
}
