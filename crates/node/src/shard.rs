//! One shard: dispatch of events, and the way of a command into the log.
//!
//! # Invariants
//! - Those of each [`Group`]; see [`ShardCore::check`].

use crate::{
    Change, Event, Failure, Output, Reply, Request, ShardAnswer, ShardMessage, Stamp, Ticket,
    forks::{Suspended, SuspendedSet},
    group::{Group, ReplyTo},
    live::Watchers,
};
use env::SeededRandom;
use log::{AppendError, NewEntry, ShardLog};
use model::{GroupId, ShardId, StreamId, StreamKey, StreamPath};
use std::collections::VecDeque;
use stream::{Append, Command, Create, CreateRequest, GroupState, NO_STREAM, Outcome, Refusal};

/// One shard of a node, below the sockets.
#[derive(Debug)]
pub struct ShardCore {
    pub(crate) shard: ShardId,
    pub(crate) shard_count: u16,
    pub(crate) group_count: u16,
    /// The groups `g` with `g % shard_count == shard`, at `g / shard_count`.
    pub(crate) groups: Vec<Group>,
    pub(crate) log: ShardLog,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) watchers: Watchers,
    pub(crate) suspended: SuspendedSet,
    pub(crate) reads: crate::reads::Reads,
    /// The nonces of pin tokens: seeded from outside, so that a run can be repeated.
    pub(crate) nonces: SeededRandom,
    pub(crate) damage: crate::damage::DamageBook,
    pub(crate) durable_mark: crate::durable_mark::DurableMark,
    pub(crate) releases: crate::releases::Releases,
    pub(crate) background: crate::background::Background,
    pub(crate) write_queue: crate::deferred::WriteQueue,
    pub(crate) poison: Option<String>,
    encoded: Vec<u8>,
}

/// A command and where it goes.
#[derive(Debug)]
pub(crate) struct Proposal<'a> {
    pub group: GroupId,
    pub stream: StreamId,
    pub command: Command,
    pub data: &'a [u8],
}

/// Figures of one node.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShardStats {
    /// Streams, deleted ones that forks still need included.
    pub stream_count: u64,
    /// Entries appended and not yet applied.
    pub in_flight_count: u64,
    /// Streams that some shard watches.
    pub watched_count: u64,
}

impl ShardCore {
    /// The shard's number.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Number of groups of the data directory.
    #[must_use]
    pub fn group_count(&self) -> u16 {
        self.group_count
    }

    /// The shard's log, for its figures.
    #[must_use]
    pub fn log(&self) -> &ShardLog {
        &self.log
    }

    /// What made the shard stop, if a write or sync failed.
    #[must_use]
    pub fn poison(&self) -> Option<&str> {
        self.poison.as_deref()
    }

    /// Figures of the moment.
    #[must_use]
    pub fn stats(&self) -> ShardStats {
        let sum = |count: fn(&Group) -> usize| self.groups.iter().map(count).sum::<usize>() as u64;
        ShardStats {
            stream_count: sum(|group| group.state.stream_count()),
            in_flight_count: sum(Group::proposed_count),
            watched_count: self.watchers.stream_count(),
        }
    }

    /// Asserts what holds between two turns. Call it when [`Self::poll_output`] has answered `None`.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        self.groups.iter().for_each(Group::check);
        self.reads.check();
        self.log.check();
        self.suspended.check();
        self.watchers.check();
        self.write_queue.check();
    }

    /// Takes an event. Then drain [`Self::poll_output`].
    ///
    /// # Panics
    /// If a request is for a group of another shard, or a job result was not asked for.
    #[inline]
    pub fn handle(&mut self, now: Stamp, event: Event<'_>) {
        match event {
            Event::Request { ticket, request, data } => {
                self.handle_request(now, ticket, (request, data));
            }
            Event::Shard(message) => match *message {
                ShardMessage::Call { from, job, call } => self.handle_call(now, from, job, call),
                ShardMessage::Return { job, result } => self.handle_return(now, job, result),
            },
            Event::Synced(done) => self.handle_synced(now, done),
            Event::Worked(done) => self.handle_worked(now, done),
            Event::ReadDone(done) => self.handle_read_done(now, done),
            Event::Tick => self.handle_tick(now),
        }
    }

    /// The next thing to do, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some(job) = self.log.poll_sync() {
            return Some(Output::Sync(job));
        }
        if let Some(job) = self.reads.poll() {
            return Some(Output::Read(job));
        }
        let work = self.poll_work().map(Output::Work);
        if cfg!(debug_assertions) && work.is_none() {
            self.check();
        }
        work
    }

    #[inline]
    fn handle_request(&mut self, now: Stamp, ticket: Ticket, (request, data): (Request, &[u8])) {
        if let Some(command_bytes) = request.command_bytes()
            && self.must_defer(command_bytes + data.len() as u64)
        {
            return self.defer(now, ticket, (request, data));
        }
        self.execute(now, ticket, (request, data));
    }

    pub(crate) fn execute(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        (request, data): (Request, &[u8]),
    ) {
        match request {
            Request::Create(create) => self.handle_create(now, ticket, (create, data)),
            Request::Append { path, append } => {
                self.handle_append(now, ticket, (&path, append, data));
            }
            Request::Delete { path } => self.handle_delete(now, ticket, &path),
            Request::Head { path } => self.handle_head(now, ticket, &path),
            Request::Announce { path, append } => {
                self.handle_announced(now, ticket, &path, &append);
            }
            Request::Read(read) => self.handle_read(now, ticket, read),
            Request::Window { key, from, to } => self.handle_window(ticket, key, (from, to)),
            Request::Watch { key } => self.handle_watch(ticket, key),
            Request::Unwatch { key } => self.watchers.remove(key, ticket.shard),
        }
    }

    fn handle_create(&mut self, now: Stamp, ticket: Ticket, (asked, data): (CreateRequest, &[u8])) {
        let group = asked.path.group(self.group_count);
        if !self.group(group).is_path_in_flight(&asked.path)
            && let Some(outcome) = self.state(group).check_create(&asked, now.wall)
        {
            return self.reply(ticket, Reply::Outcome(outcome));
        }
        if asked.fork.is_some() {
            return self.start_fork(now, ticket, asked, data.to_vec());
        }
        let CreateRequest { path, content_type, lifetime, close, record_count, .. } = asked;
        let content_type = content_type.expect("only a fork may leave its content type open");
        let create = Create { path, content_type, lifetime, close, record_count, fork: None };
        self.propose_create(now, create, data, ReplyTo::Client(ticket));
    }

    /// Logs a creation; first the expiry of a stream that still holds the path, if there is one.
    pub(crate) fn propose_create(
        &mut self,
        now: Stamp,
        create: Create,
        data: &[u8],
        reply_to: ReplyTo,
    ) {
        let group = create.path.group(self.group_count);
        if let Some(stream) = self.state(group).expired_holder(&create.path, now.wall) {
            self.propose_expiry(now, StreamKey { group, stream });
        }
        let command = Command::Create(Box::new(create));
        self.propose(now, Proposal { group, stream: NO_STREAM, command, data }, reply_to);
    }

    fn handle_append(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        (path, append, data): (&StreamPath, Append, &[u8]),
    ) {
        let group = path.group(self.group_count);
        let stream = match self.state(group).resolve_id(path, now.wall) {
            Ok(stream) => stream,
            Err(refusal) => return self.refuse_path(now, ticket, path, refusal),
        };
        let key = StreamKey { group, stream };
        if !self.is_in_flight(key)
            && let Some(outcome) =
                self.state(group).check_append(stream, &append, data.len() as u64)
        {
            return self.after_use(now, key, Suspended::Answer { ticket, outcome });
        }
        let command = Command::Append(append);
        let proposal = Proposal { group, stream, command, data };
        self.propose(now, proposal, ReplyTo::Client(ticket));
    }

    fn handle_delete(&mut self, now: Stamp, ticket: Ticket, path: &StreamPath) {
        let group = path.group(self.group_count);
        let stream = match self.state(group).resolve_id(path, now.wall) {
            Ok(stream) => stream,
            Err(Refusal::Damaged) => match self.state(group).damaged_stream(path) {
                Some(stream) => stream,
                None => return self.refuse(ticket, Refusal::Damaged),
            },
            Err(refusal) => return self.refuse_path(now, ticket, path, refusal),
        };
        let proposal = Proposal { group, stream, command: Command::Delete, data: &[] };
        self.propose(now, proposal, ReplyTo::Client(ticket));
    }

    /// A missing stream and a closed one stay so, whatever is on its way in the log. What else could
    /// refuse the append is judged when its data is there, in the order of the log.
    fn handle_announced(&mut self, now: Stamp, ticket: Ticket, path: &StreamPath, append: &Append) {
        let state = self.state(path.group(self.group_count));
        let closed = state.resolve(path, now.wall).ok().filter(|info| info.closed);
        // Any number of bytes but 0 is judged alike.
        match closed.and_then(|info| state.check_append(info.stream, append, 1)) {
            Some(outcome) => self.reply(ticket, Reply::Outcome(outcome)),
            None => self.handle_head(now, ticket, path),
        }
    }

    fn handle_head(&mut self, now: Stamp, ticket: Ticket, path: &StreamPath) {
        let group = path.group(self.group_count);
        match self.state(group).resolve(path, now.wall) {
            Ok(info) => {
                let key = StreamKey { group, stream: info.stream };
                self.reply(ticket, Reply::Head(key, info));
            }
            Err(refusal) => self.refuse_path(now, ticket, path, refusal),
        }
    }

    /// Appends an entry to the log; its outcome goes to `reply_to` once it is applied.
    pub(crate) fn propose(&mut self, now: Stamp, proposal: Proposal<'_>, reply_to: ReplyTo) {
        let Proposal { group, stream, command, data } = proposal;
        self.encoded.clear();
        command.encode(&mut self.encoded);
        let place = self.place_of(group);
        let entry = NewEntry {
            group,
            term: self.groups[place].role.term(),
            stream: command.header_stream(stream),
            at: now.wall,
            kind: command.kind() as u8,
            command: &self.encoded,
            data,
        };
        match self.log.append(entry) {
            Ok(index) => self.groups[place].note_proposed(index, (stream, command), reply_to),
            Err(error) => self.fail(now, reply_to, append_failure(error)),
        }
    }

    /// Expires a stream unless something of it is in flight: then the next tick asks again.
    pub(crate) fn propose_expiry(&mut self, now: Stamp, key: StreamKey) {
        if self.is_in_flight(key) || !self.state(key.group).is_due(key.stream, now.wall) {
            return;
        }
        let StreamKey { group, stream } = key;
        let proposal = Proposal { group, stream, command: Command::Expire, data: &[] };
        self.propose(now, proposal, ReplyTo::Nobody);
    }

    pub(crate) fn is_in_flight(&self, key: StreamKey) -> bool {
        self.group(key.group).is_in_flight(key.stream)
    }

    pub(crate) fn group(&self, group: GroupId) -> &Group {
        &self.groups[self.place_of(group)]
    }

    pub(crate) fn group_mut(&mut self, group: GroupId) -> &mut Group {
        let place = self.place_of(group);
        &mut self.groups[place]
    }

    pub(crate) fn state(&self, group: GroupId) -> &GroupState {
        &self.group(group).state
    }

    pub(crate) fn state_mut(&mut self, group: GroupId) -> &mut GroupState {
        &mut self.group_mut(group).state
    }

    fn place_of(&self, group: GroupId) -> usize {
        let shard = group.shard(self.shard_count);
        assert_eq!(shard, self.shard, "group {group} belongs to shard {shard}");
        usize::from(group.get() / self.shard_count)
    }

    /// Notes a use of the stream and continues with `job`. It continues at once, unless a crash before
    /// the log knows of the use would let the stream expire too early. Then it waits for the log.
    pub(crate) fn after_use(&mut self, now: Stamp, key: StreamKey, job: Suspended) {
        if !self.state_mut(key.group).touch(key.stream, now.wall) {
            return self.resume(now, job, ShardAnswer::Outcome(Outcome::Done));
        }
        let job = match job {
            Suspended::Used { ticket, read } if self.must_defer_use() => {
                return self.defer(now, ticket, (Request::Read(read), &[]));
            }
            job => self.suspended.add(job),
        };
        let StreamKey { group, stream } = key;
        let command = Command::Touch(now.wall);
        self.propose(now, Proposal { group, stream, command, data: &[] }, ReplyTo::Job(job));
    }

    pub(crate) fn send(&mut self, to: ShardId, message: ShardMessage) {
        self.outputs.push_back(Output::Shard { to, message: Box::new(message) });
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.outputs.push_back(Output::Reply { ticket, reply });
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.reply(ticket, Reply::Outcome(Outcome::Refused(refusal)));
    }

    pub(crate) fn notify(&mut self, to: ShardId, change: Change) {
        self.outputs.push_back(Output::Changed { to, change });
    }

    /// Recovered parts become a node.
    pub(crate) fn assemble(parts: CoreParts) -> Self {
        Self {
            shard: parts.shard,
            shard_count: parts.shard_count,
            group_count: parts.group_count,
            groups: parts.groups,
            log: parts.log,
            outputs: VecDeque::new(),
            watchers: Watchers::default(),
            suspended: SuspendedSet::default(),
            reads: crate::reads::Reads::default(),
            nonces: SeededRandom::new(parts.seed),
            damage: crate::damage::DamageBook::default(),
            durable_mark: crate::durable_mark::DurableMark::default(),
            releases: crate::releases::Releases::default(),
            background: crate::background::Background::default(),
            write_queue: crate::deferred::WriteQueue::default(),
            poison: None,
            encoded: Vec::new(),
        }
    }
}

/// What [`ShardCore::assemble`] needs.
pub(crate) struct CoreParts {
    pub shard: ShardId,
    pub shard_count: u16,
    pub group_count: u16,
    pub groups: Vec<Group>,
    pub log: ShardLog,
    pub seed: u64,
}

fn append_failure(error: AppendError) -> Failure {
    match error {
        AppendError::DiskFull => Failure::DiskFull,
        AppendError::Poisoned => Failure::Poisoned { applied_unknown: false },
        AppendError::Backpressure => Failure::Overloaded,
    }
}
