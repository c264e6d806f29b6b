//! A process of several shards in one thread: their messages are carried, their jobs run at once.

#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses a part of it")]

use env::{MemoryDisk, SeededRandom};
use log::{LogOptions, WorkJob};
use model::{ByteOffset, GroupId, Monotonic, ReadFrom, ShardId, StreamKey, StreamPath, Timestamp};
use std::{path::Path, sync::Arc};
use stream::{Append, ContentType, CreateRequest, ForkRequest, Lifetime, Outcome, Refusal};
use thalweg_node::{
    Change, Event, Failure, Output, ReadJob, ReadReply, ReadRequest, Reply, Request, ShardCore,
    Stamp, Ticket,
};

pub const GROUPS: u16 = 2;

pub struct Process {
    pub disk: MemoryDisk,
    pub nodes: Vec<ShardCore>,
    pub now: Stamp,
    /// Answers in the order in which they came.
    pub replies: Vec<Reply>,
    pub changes: Vec<(ShardId, Change)>,
    /// Background jobs are kept here instead of being run.
    pub held_work: Option<Vec<(usize, WorkJob)>>,
    /// Reads are kept here instead of being run.
    pub held_reads: Option<Vec<(usize, ReadJob)>>,
}

/// A request and its data.
pub struct Ask<'a> {
    pub request: Request,
    pub data: &'a [u8],
}

impl From<Request> for Ask<'_> {
    fn from(request: Request) -> Self {
        Self { request, data: &[] }
    }
}

pub fn options() -> LogOptions {
    LogOptions {
        group_count: GROUPS,
        segment_bytes: 1 << 20,
        wal_bytes_max: 4 << 20,
        ..LogOptions::default()
    }
}

/// A path of this group that begins with `name`.
pub fn path_in(group: u16, name: &str) -> StreamPath {
    let paths = (0..).map(|number| StreamPath::new(&format!("{name}{number}")).unwrap());
    paths.into_iter().find(|path| path.group(GROUPS) == GroupId::new(group)).unwrap()
}

pub fn text() -> Append {
    let content_type = Some(ContentType::new("text/plain"));
    Append { content_type, record_count: 1, ..Append::default() }
}

pub fn fork_of(source: &StreamPath, offset: Option<u64>, sub_offset: u64) -> ForkRequest {
    ForkRequest { source: source.clone(), offset: offset.map(ByteOffset::new), sub_offset }
}

impl Process {
    pub fn open(disk: &MemoryDisk, shard_count: u16) -> Self {
        Self::open_with(disk, shard_count, options())
    }

    pub fn open_with(disk: &MemoryDisk, shard_count: u16, options: LogOptions) -> Self {
        let (port, random) = (Arc::new(disk.clone()), &mut SeededRandom::new(1));
        let dir = Path::new("/data");
        let nodes = thalweg_node::open(port, random, dir, options, shard_count).unwrap().nodes;
        let now = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };
        let disk = disk.clone();
        Self {
            disk,
            nodes,
            now,
            replies: vec![],
            changes: vec![],
            held_work: None,
            held_reads: None,
        }
    }

    /// Kills the process but not the power: everything written stays.
    pub fn kill(self) -> MemoryDisk {
        let disk = self.disk.clone();
        drop(self);
        disk.kill_process();
        disk
    }

    fn shard_of(&self, group: GroupId) -> usize {
        usize::from(group.shard(self.nodes.len() as u16).get())
    }

    /// Hands in a request without doing anything that it asks for.
    pub fn offer<'a>(&mut self, ask: impl Into<Ask<'a>>) {
        let Ask { request, data } = ask.into();
        let group = match (&request, request.path()) {
            (_, Some(path)) => path.group(GROUPS),
            (Request::Window { key, .. }, _) => key.group,
            (Request::Watch { key } | Request::Unwatch { key }, _) => key.group,
            _ => unreachable!("every request names a path or a key"),
        };
        let ticket = Ticket { shard: ShardId::new(0), exchange: [0; 3] };
        let (shard, now) = (self.shard_of(group), self.now);
        self.nodes[shard].handle(now, Event::Request { ticket, request, data });
    }

    /// Does one thing that a node wants done; `false` if none wants any.
    pub fn step(&mut self) -> bool {
        for shard in 0..self.nodes.len() {
            if let Some(output) = self.nodes[shard].poll_output() {
                self.perform(shard, output);
                return true;
            }
        }
        false
    }

    fn perform(&mut self, shard: usize, output: Output) {
        let now = self.now;
        match output {
            Output::Reply { reply, .. } => self.replies.push(reply),
            Output::Changed { to, change } => self.changes.push((to, change)),
            Output::Sync(job) => self.nodes[shard].handle(now, Event::Synced(job.run())),
            Output::Read(job) => match &mut self.held_reads {
                Some(held) => held.push((shard, job)),
                None => self.nodes[shard].handle(now, Event::ReadDone(job.run())),
            },
            Output::Work(job) => match &mut self.held_work {
                Some(held) => held.push((shard, job)),
                None => self.nodes[shard].handle(now, Event::Worked(job.run())),
            },
            Output::Shard { to, message } => {
                self.nodes[usize::from(to.get())].handle(now, Event::Shard(message));
            }
        }
    }

    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// Lets time pass for all nodes.
    pub fn wait_ms(&mut self, ms: u64) {
        let Stamp { wall, monotonic } = self.now;
        self.now = Stamp { wall: wall.plus_ms(ms), monotonic: monotonic.plus_ms(ms) };
        for shard in 0..self.nodes.len() {
            self.nodes[shard].handle(self.now, Event::Tick);
        }
        self.settle();
    }

    pub fn ask<'a>(&mut self, ask: impl Into<Ask<'a>>) -> Reply {
        self.offer(ask);
        self.settle();
        assert_eq!(self.replies.len(), 1, "one answer for one request: {:?}", self.replies);
        self.replies.remove(0)
    }

    pub fn outcome<'a>(&mut self, ask: impl Into<Ask<'a>>) -> Outcome {
        match self.ask(ask) {
            Reply::Outcome(outcome) => outcome,
            other => panic!("a change was answered by {other:?}"),
        }
    }

    pub fn create(&mut self, path: &StreamPath, content_type: &str) -> Outcome {
        self.outcome(create(path, Some(content_type), None, b""))
    }

    pub fn fork(&mut self, path: &StreamPath, fork: ForkRequest) -> Outcome {
        self.outcome(create(path, None, Some(fork), b""))
    }

    pub fn append(&mut self, path: &StreamPath, append: Append, data: &[u8]) -> Outcome {
        let request = Request::Append { path: path.clone(), append };
        self.outcome(Ask { request, data })
    }

    /// Makes a stream of text with one append.
    pub fn with_text(&mut self, path: &StreamPath, data: &[u8]) {
        assert!(matches!(self.create(path, "text/plain"), Outcome::Created(_)));
        assert!(matches!(self.append(path, text(), data), Outcome::Appended(_)));
    }

    pub fn delete(&mut self, path: &StreamPath) -> Outcome {
        self.outcome(Request::Delete { path: path.clone() })
    }

    pub fn key(&mut self, path: &StreamPath) -> StreamKey {
        match self.ask(Request::Head { path: path.clone() }) {
            Reply::Head(key, _) => key,
            other => panic!("{path} is described by {other:?}"),
        }
    }

    /// The refusal of a path, if it is refused.
    pub fn refusal(&mut self, path: &StreamPath) -> Option<Refusal> {
        match self.ask(Request::Head { path: path.clone() }) {
            Reply::Outcome(Outcome::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }

    pub fn read(&mut self, path: &StreamPath, from: u64, boundary_bytes: u64) -> Box<ReadReply> {
        let from = ReadFrom::At(ByteOffset::new(from));
        match self.ask(Request::Read(ReadRequest { path: path.clone(), from, boundary_bytes })) {
            Reply::Read(reply) => reply,
            other => panic!("a read was answered by {other:?}"),
        }
    }

    /// Where a read starts and ends.
    pub fn ends(&mut self, path: &StreamPath, from: u64, boundary_bytes: u64) -> (u64, u64) {
        let reply = self.read(path, from, boundary_bytes);
        (reply.start.get(), reply.end.get())
    }

    /// All bytes of an answer, from the streams that store them.
    pub fn bytes(&mut self, path: &StreamPath) -> Vec<u8> {
        let reply = self.read(path, 0, 1 << 40);
        let (mut at, mut bytes) = (reply.start, vec![]);
        while at < reply.end {
            let (key, to) = reply.owner_of(at);
            let slice = match self.ask(Request::Window { key, from: at, to }) {
                Reply::Window(slice) => slice,
                other => panic!("byte {at} is answered by {other:?}"),
            };
            at = at.advance(slice.len());
            bytes.extend(slice.to_bytes().unwrap());
        }
        bytes
    }

    /// Failures among the answers so far.
    pub fn failures(&self) -> Vec<Failure> {
        let failure = |reply: &Reply| match reply {
            Reply::Failed(failure) => Some(failure.clone()),
            _ => None,
        };
        self.replies.iter().filter_map(failure).collect()
    }
}

pub fn append<'a>(path: &StreamPath, data: &'a [u8]) -> Ask<'a> {
    Ask { request: Request::Append { path: path.clone(), append: text() }, data }
}

pub fn create<'a>(
    path: &StreamPath,
    content_type: Option<&str>,
    fork: Option<ForkRequest>,
    data: &'a [u8],
) -> Ask<'a> {
    let request = Request::Create(CreateRequest {
        path: path.clone(),
        content_type: content_type.map(ContentType::new),
        lifetime: Lifetime::Forever,
        close: false,
        fork,
        record_count: u32::from(!data.is_empty()),
    });
    Ask { request, data }
}
