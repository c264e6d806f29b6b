//! A driver for tests: all shards of a process in one thread, on a disk in memory.
//!
//! # Why
//! Each test of shards needs the same: requests in, messages from shard to shard, jobs run, time that
//! passes when the test says so. It is written once, in terms of the public interface.
//!
//! # Driving it
//! [`Process::offer`] hands in a request, [`Process::settle`] does all that the shards want done, and the
//! answers are in [`Process::replies`]. [`Process::ask`] is the three in one. Jobs run at once, unless the
//! test holds them back to look at what lies between: see [`Held`].

use crate::{
    Change, Event, Failure, Membership, Opened, Output, ReadJob, ReadReply, ReadRequest, Reply,
    Request, ShardCore, Stamp, Ticket, ToPeer,
};
use env::{MemoryDisk, SeededRandom};
use log::{Damage, LogOptions, OpenError, SyncJob, WorkJob};
use model::{ByteOffset, GroupId, Monotonic, ReadFrom, ShardId, StreamKey, StreamPath, Timestamp};
use std::{path::Path, sync::Arc};
use stream::{
    Append, AppendType, ContentType, CreateRequest, ForkRequest, Lifetime, Outcome, Refusal,
    Retention,
};

/// Groups of the directories of [`options`].
pub const GROUPS: u16 = 2;

/// The time at which a process opens.
pub const START: Stamp = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };

/// Shards of one process.
#[derive(Debug)]
pub struct Process {
    /// The disk of the data directory, which is `/data`.
    pub disk: MemoryDisk,
    /// The shards, in order.
    pub shards: Vec<ShardCore>,
    /// What recovery found damaged.
    pub damages: Vec<Damage>,
    /// The time that the shards are given.
    pub now: Stamp,
    /// Answers in the order in which they came, each with the number of its request.
    pub replies: Vec<(u32, Reply)>,
    /// Changes of watched streams, each with the shard that watches.
    pub changes: Vec<(ShardId, Change)>,
    /// What was said to peers.
    pub said: Vec<ToPeer>,
    /// Jobs that wait for the test.
    pub held: Held,
    last_request: u32,
}

/// Jobs that are kept instead of being run: those of a kind that is `Some`, each with its shard.
#[derive(Debug, Default)]
pub struct Held {
    /// Writes and syncs.
    pub syncs: Option<Vec<(usize, SyncJob)>>,
    /// Background work.
    pub work: Option<Vec<(usize, WorkJob)>>,
    /// Reads that wait for the disk.
    pub reads: Option<Vec<(usize, ReadJob)>>,
    /// Turns for work in slices are not taken: a slice comes with each tick alone.
    pub turns: bool,
}

/// A request and its data.
#[derive(Debug)]
pub struct Ask<'a> {
    /// What is asked.
    pub request: Request,
    /// See [`Event::Request`].
    pub data: &'a [u8],
}

impl From<Request> for Ask<'_> {
    fn from(request: Request) -> Self {
        Self { request, data: &[] }
    }
}

/// A small log of [`GROUPS`] groups. It keeps nothing in memory: reads find what the disk has.
#[must_use]
pub fn options() -> LogOptions {
    LogOptions {
        group_count: GROUPS,
        segment_bytes: 1 << 20,
        wal_bytes_max: 4 << 20,
        recent_bytes_max: 0,
        read_cache_bytes_max: 0,
        ..LogOptions::default()
    }
}

/// A path.
///
/// # Panics
/// If `text` is none.
#[must_use]
pub fn path(text: &str) -> StreamPath {
    StreamPath::new(text).expect("a path")
}

/// A path of this group of [`GROUPS`] that begins with `name`.
///
/// # Panics
/// If `name` is no path.
#[must_use]
pub fn path_in(group: u16, name: &str) -> StreamPath {
    let mut paths = (0..).map(|number| path(&format!("{name}{number}")));
    paths.find(|path| path.group(GROUPS) == GroupId::new(group)).expect("groups have paths")
}

/// An append of text.
#[must_use]
pub fn text() -> Append {
    let content_type = AppendType::Named(ContentType::new("text/plain"));
    Append { content_type, record_count: 1, ..Append::default() }
}

/// The source of a fork.
#[must_use]
pub fn fork_of(source: &StreamPath, offset: Option<u64>, sub_offset: u64) -> ForkRequest {
    ForkRequest { source: source.clone(), offset: offset.map(ByteOffset::new), sub_offset }
}

/// The request for an append of text.
#[must_use]
pub fn append<'a>(path: &StreamPath, data: &'a [u8]) -> Ask<'a> {
    Ask { request: Request::Append { path: path.clone(), append: text() }, data }
}

/// The request for a stream whose lifetime does not end.
#[must_use]
pub fn create<'a>(
    path: &StreamPath,
    content_type: Option<&str>,
    fork: Option<ForkRequest>,
    data: &'a [u8],
) -> Ask<'a> {
    let request = Request::Create(Box::new(CreateRequest {
        path: path.clone(),
        content_type: content_type.map(ContentType::new),
        lifetime: Lifetime::Forever,
        close: false,
        fork,
        retention: Retention::default(),
        record_time: None,
        record_count: u32::from(!data.is_empty()),
    }));
    Ask { request, data }
}

/// The request for an empty stream of text with a lifetime.
#[must_use]
pub fn create_for(path: &StreamPath, lifetime: Lifetime) -> Ask<'static> {
    let mut create = create(path, Some("text/plain"), None, b"");
    if let Request::Create(asked) = &mut create.request {
        asked.lifetime = lifetime;
    }
    create
}

impl Process {
    /// Opens a directory with [`options`].
    ///
    /// # Panics
    /// If it does not open.
    #[must_use]
    pub fn open(disk: &MemoryDisk, shard_count: u16) -> Self {
        Self::open_with(disk, shard_count, options())
    }

    /// Opens a directory.
    ///
    /// # Panics
    /// If it does not open.
    #[must_use]
    pub fn open_with(disk: &MemoryDisk, shard_count: u16, options: LogOptions) -> Self {
        Self::try_open(disk, shard_count, options).expect("the directory opens")
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// As [`crate::open`].
    pub fn try_open(
        disk: &MemoryDisk,
        shard_count: u16,
        options: LogOptions,
    ) -> Result<Self, OpenError> {
        Self::try_open_from(1, disk, shard_count, options)
    }

    /// Opens a directory, with this seed of its randomness. Where forks are made before and after a restart, each start
    /// needs its own: references that forks hold are told apart by random numbers.
    ///
    /// # Errors
    /// As [`crate::open`].
    pub fn try_open_from(
        seed: u64,
        disk: &MemoryDisk,
        shard_count: u16,
        options: LogOptions,
    ) -> Result<Self, OpenError> {
        let (port, random) = (Arc::new(disk.clone()), &mut SeededRandom::new(seed));
        let opened = crate::open(port, random, Path::new("/data"), options, shard_count)?;
        Ok(Self::of(disk, opened))
    }

    /// Opens the directory of a member of a cluster, with these options and so many shards.
    ///
    /// # Errors
    /// As [`crate::open_member`].
    pub fn open_member(
        disk: &MemoryDisk,
        with: (LogOptions, u16),
        membership: &Membership,
    ) -> Result<Self, OpenError> {
        let random = &mut SeededRandom::new(u64::from(membership.node.get()));
        let (port, dir) = (Arc::new(disk.clone()), Path::new("/data"));
        Ok(Self::of(disk, crate::open_member((port, random), dir, with, membership)?))
    }

    fn of(disk: &MemoryDisk, opened: Opened) -> Self {
        Self {
            disk: disk.clone(),
            shards: opened.shards,
            damages: opened.damages,
            now: START,
            replies: Vec::new(),
            changes: Vec::new(),
            said: Vec::new(),
            held: Held::default(),
            last_request: 0,
        }
    }

    /// Kills the process but not the power: everything written stays.
    pub fn kill(self) -> MemoryDisk {
        let disk = self.disk.clone();
        drop(self);
        disk.kill_process();
        disk
    }

    /// The place of the shard that has a group.
    fn owner(&self, group: GroupId) -> usize {
        let shard_count = u16::try_from(self.shards.len()).expect("few shards");
        usize::from(group.shard(shard_count).get())
    }

    /// Hands in a request without doing anything that it asks for. Returns its number, from 1 on.
    ///
    /// # Panics
    /// If a shard does.
    pub fn offer<'a>(&mut self, ask: impl Into<Ask<'a>>) -> u32 {
        let Ask { request, data } = ask.into();
        let group = match (&request, request.path()) {
            (_, Some(path)) => path.group(self.shards[0].group_count()),
            (
                Request::Window { key, .. } | Request::Watch { key } | Request::Unwatch { key },
                _,
            ) => key.group,
            (Request::Meta(_), _) => GroupId::new(self.shards[0].group_count()),
            _ => unreachable!("every request names a path, a key or a group"),
        };
        self.last_request += 1;
        let ticket = Ticket { shard: ShardId::new(0), exchange: [self.last_request, 0, 0] };
        self.handle(self.owner(group), Event::Request { ticket, request, data });
        self.last_request
    }

    /// Gives an event to a shard.
    pub fn handle(&mut self, shard: usize, event: Event<'_>) {
        self.shards[shard].handle(self.now, event);
    }

    /// Does one thing that a shard wants done; `false` if none wants any.
    pub fn step(&mut self) -> bool {
        for shard in 0..self.shards.len() {
            if let Some(output) = self.shards[shard].poll_output() {
                self.perform(shard, output);
                return true;
            }
        }
        false
    }

    fn perform(&mut self, shard: usize, output: Output) {
        match output {
            Output::Reply { ticket, .. } if ticket.exchange[0] == 0 => {}
            Output::Reply { ticket, reply } => self.replies.push((ticket.exchange[0], reply)),
            Output::Changed { to, change } => self.changes.push((to, change)),
            Output::Sync(job) => match &mut self.held.syncs {
                Some(held) => held.push((shard, job)),
                None => self.handle(shard, Event::Synced(job.run())),
            },
            Output::Read(job) => match &mut self.held.reads {
                Some(held) => held.push((shard, *job)),
                None => self.handle(shard, Event::ReadDone(Box::new(job.run()))),
            },
            Output::Work(job) => match &mut self.held.work {
                Some(held) => held.push((shard, *job)),
                None => self.handle(shard, Event::Worked(job.run())),
            },
            Output::Peer(said) => self.said.push(*said),
            Output::Transfer(job) => {
                self.handle(shard, Event::Transferred(Box::new(job.run())));
            }
            Output::Fetch(job) => self.handle(shard, Event::Fetched(Box::new(job.run()))),
            Output::Shard { to, message } => {
                self.handle(usize::from(to.get()), Event::Shard(message));
            }
        }
    }

    /// Does all that the shards want done, in as many turns as that takes.
    pub fn settle(&mut self) {
        loop {
            while self.step() {}
            self.ask_wishes();
            if !self.next_turn() {
                return;
            }
        }
    }

    /// Asks for the changes of the cluster that the shards want. Nobody has the ticket 0.
    fn ask_wishes(&mut self) {
        for shard in 0..self.shards.len() {
            while let Some(command) = self.shards[shard].poll_wish() {
                let group = GroupId::new(self.shards[0].group_count());
                let ticket = Ticket { shard: ShardId::new(0), exchange: [0; 3] };
                let request = Request::Meta(Box::new(command));
                self.handle(self.owner(group), Event::Request { ticket, request, data: &[] });
            }
        }
    }

    /// Begins a turn of the shards that have work left; `false` if none has.
    pub fn next_turn(&mut self) -> bool {
        if self.held.turns {
            return false;
        }
        let behind: Vec<usize> =
            (0..self.shards.len()).filter(|&shard| self.shards[shard].is_behind()).collect();
        behind.iter().for_each(|&shard| self.handle(shard, Event::Continue));
        !behind.is_empty()
    }

    /// Runs the syncs that are held, and those that follow, until none is left.
    pub fn sync_held(&mut self) {
        while self.sync_one() {}
    }

    /// Runs one sync that is held; `false` if there is none.
    pub fn sync_one(&mut self) -> bool {
        let Some((shard, job)) = self.held.syncs.as_mut().and_then(Vec::pop) else { return false };
        self.handle(shard, Event::Synced(job.run()));
        self.settle();
        true
    }

    /// Lets time pass for all shards.
    pub fn wait_ms(&mut self, ms: u64) {
        let Stamp { wall, monotonic } = self.now;
        self.now = Stamp { wall: wall.plus_ms(ms), monotonic: monotonic.plus_ms(ms) };
        for shard in 0..self.shards.len() {
            self.handle(shard, Event::Tick);
        }
        self.settle();
    }

    /// The answer to a request, which is the only one.
    ///
    /// # Panics
    /// If there are none or others.
    pub fn ask<'a>(&mut self, ask: impl Into<Ask<'a>>) -> Reply {
        let number = self.offer(ask);
        self.settle();
        let [(answered, _)] = self.replies[..] else {
            panic!("one answer for one request: {:?}", self.replies)
        };
        assert_eq!(answered, number, "another request was answered");
        self.replies.remove(0).1
    }

    /// The outcome of a change.
    ///
    /// # Panics
    /// If it was answered otherwise.
    pub fn outcome<'a>(&mut self, ask: impl Into<Ask<'a>>) -> Outcome {
        match self.ask(ask) {
            Reply::Outcome(outcome) => outcome,
            other => panic!("a change was answered by {other:?}"),
        }
    }

    /// Makes an empty stream.
    pub fn create(&mut self, path: &StreamPath, content_type: &str) -> Outcome {
        self.outcome(create(path, Some(content_type), None, b""))
    }

    /// Makes the state of a stream another one than its log says, as a defect would.
    pub fn spoil(&mut self, path: &StreamPath) {
        for shard in &mut self.shards {
            let group = path.group(shard.group_count());
            if shard.groups.iter().any(|it| it.state.group() == group) {
                let state = &mut shard.groups.get_mut(group).state;
                let stream = state.resolve(path, self.now.wall).expect("it is there").stream;
                state.mark_damaged(stream, path.hash());
            }
        }
    }

    /// Makes a fork.
    pub fn fork(&mut self, path: &StreamPath, fork: ForkRequest) -> Outcome {
        self.outcome(create(path, None, Some(fork), b""))
    }

    /// Appends.
    pub fn append(&mut self, path: &StreamPath, append: Append, data: &[u8]) -> Outcome {
        let request = Request::Append { path: path.clone(), append };
        self.outcome(Ask { request, data })
    }

    /// Makes a stream of text with one append.
    ///
    /// # Panics
    /// If it is refused.
    pub fn with_text(&mut self, path: &StreamPath, data: &[u8]) {
        assert!(matches!(self.create(path, "text/plain"), Outcome::Created(_)));
        assert!(matches!(self.append(path, text(), data), Outcome::Appended(_)));
    }

    /// Deletes a stream.
    pub fn delete(&mut self, path: &StreamPath) -> Outcome {
        self.outcome(Request::Delete { path: path.clone() })
    }

    /// What a stream is.
    ///
    /// # Panics
    /// If there is none.
    pub fn head(&mut self, path: &StreamPath) -> (StreamKey, stream::StreamInfo) {
        match self.ask(Request::Head { path: path.clone() }) {
            Reply::Head(key, info) => (key, *info),
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

    /// A read.
    ///
    /// # Panics
    /// If it fails.
    pub fn read(&mut self, path: &StreamPath, from: u64, boundary_bytes: u64) -> Box<ReadReply> {
        let from = ReadFrom::At(ByteOffset::new(from));
        match self.ask(Request::Read(ReadRequest {
            path: path.clone(),
            from,
            boundary_bytes,
            first_bytes_max: u64::MAX,
            records: None,
        })) {
            Reply::Read(reply) => reply,
            other => panic!("a read was answered by {other:?}"),
        }
    }

    /// Where a read starts and ends.
    pub fn ends(&mut self, path: &StreamPath, from: u64, boundary_bytes: u64) -> (u64, u64) {
        let reply = self.read(path, from, boundary_bytes);
        (reply.start.get(), reply.end.get())
    }

    /// All bytes of a stream, from the streams that store them.
    ///
    /// # Panics
    /// If some cannot be read.
    pub fn bytes(&mut self, path: &StreamPath) -> Vec<u8> {
        let reply = self.read(path, 0, 1 << 40);
        self.bytes_of(&reply)
    }

    /// All bytes of an answer.
    ///
    /// # Panics
    /// If some cannot be read.
    pub fn bytes_of(&mut self, reply: &ReadReply) -> Vec<u8> {
        let (mut at, mut bytes) = (reply.start, vec![]);
        while at < reply.end {
            let (key, to) = reply.owner_of(at);
            let slice = match self.ask(Request::Window { key, from: at, to }) {
                Reply::Window(slice) => slice,
                other => panic!("byte {at} is answered by {other:?}"),
            };
            at = at.advance(slice.len());
            bytes.extend(slice.to_bytes().expect("a window can be read"));
        }
        bytes
    }

    /// Failures among the answers so far.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let failure = |(_, reply): &(u32, Reply)| match reply {
            Reply::Failed(failure) => Some(failure.clone()),
            _ => None,
        };
        self.replies.iter().filter_map(failure).collect()
    }
}
