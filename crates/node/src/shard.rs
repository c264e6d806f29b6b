//! One shard: dispatch of events, and the way of an append into the log.
//!
//! # Invariants
//! - Those of each [`crate::group::Group`]; see [`ShardCore::check`].

use crate::{
    Change, DiskTrouble, Event, Failure, Output, Reply, Request, ShardMessage, Stamp, Ticket,
    background::Background,
    damage::DamageBook,
    deferred::WriteQueue,
    durable_mark::DurableMark,
    group::{Group, Groups},
    group_time::GroupTime,
    live::Watchers,
    operation::{Operation, Operations},
    proposed::ReplyTo,
    reads::Reads,
    releases::Releases,
    replicated::Replication,
    retention::RetentionBook,
    role::Role,
    slices::{CheckpointSlices, ExpirySlices, SliceLimits},
    step::{Step, Target},
};
use env::SeededRandom;
use log::{AppendError, NewEntry, Purpose, ShardLog};
use model::{ShardId, StreamKey, StreamPath, Timestamp, limits};
use std::collections::VecDeque;
use stream::{Append, Command, Outcome, Refusal};

/// One shard of a node, below the sockets.
#[derive(Debug)]
pub struct ShardCore {
    pub(crate) groups: Groups,
    pub(crate) log: ShardLog,
    pub(crate) time: GroupTime,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) watchers: Watchers,
    pub(crate) operations: Operations,
    pub(crate) reads: Reads,
    /// The nonces of pin tokens: seeded from outside, so that a run can be repeated.
    pub(crate) nonces: SeededRandom,
    pub(crate) damage: DamageBook,
    pub(crate) durable_mark: DurableMark,
    pub(crate) releases: Releases,
    pub(crate) background: Background,
    pub(crate) write_queue: WriteQueue,
    pub(crate) expiries: ExpirySlices,
    pub(crate) retention: RetentionBook,
    pub(crate) checkpoint: Option<CheckpointSlices>,
    pub(crate) slice_limits: SliceLimits,
    pub(crate) poison: Option<(DiskTrouble, String)>,
    /// Producers that each stream is to remember.
    pub(crate) producers_max: u32,
    pub(crate) encoded: Vec<u8>,
    /// `None` for a node alone.
    pub(crate) replication: Option<Box<Replication>>,
}

/// A command and where it goes.
#[derive(Debug)]
pub(crate) struct Proposal<'a> {
    pub to: Target,
    pub command: Command,
    pub data: &'a [u8],
}

/// Figures of one shard.
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
    /// Recovered parts become a shard, whose time follows that of the last entry of any shard. The seed is
    /// that of its nonces.
    pub(crate) fn new(groups: Groups, log: ShardLog, seed: u64, last: Timestamp) -> Self {
        Self {
            groups,
            log,
            time: GroupTime::after(last),
            outputs: VecDeque::new(),
            watchers: Watchers::default(),
            operations: Operations::default(),
            reads: Reads::default(),
            nonces: SeededRandom::new(seed),
            damage: DamageBook::default(),
            durable_mark: DurableMark::default(),
            releases: Releases::default(),
            background: Background::default(),
            write_queue: WriteQueue::default(),
            expiries: ExpirySlices::default(),
            retention: RetentionBook::default(),
            checkpoint: None,
            slice_limits: SliceLimits::default(),
            poison: None,
            producers_max: limits::PRODUCERS_PER_STREAM_DEFAULT,
            encoded: Vec::new(),
            replication: None,
        }
    }

    /// Sets how many producers each stream remembers. The groups' logs get to know with the next tick.
    ///
    /// # Panics
    /// If it is 0 or beyond the limit.
    pub fn set_producers_max(&mut self, count: u32) {
        assert!((1..=limits::PRODUCERS_PER_STREAM_MAX).contains(&count), "a setting in its range");
        self.producers_max = count;
    }

    /// The shard's number.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.groups.shard()
    }

    /// Number of groups of the data directory.
    #[must_use]
    pub fn group_count(&self) -> u16 {
        self.groups.total_count()
    }

    /// The shard's log, for its figures.
    #[must_use]
    pub fn log(&self) -> &ShardLog {
        &self.log
    }

    /// What made the shard stop, if a write or sync failed.
    #[must_use]
    pub fn poison(&self) -> Option<&str> {
        self.poison.as_ref().map(|(_, error)| error.as_str())
    }

    /// Why that failed, if a write or sync did.
    #[must_use]
    pub fn poison_trouble(&self) -> Option<DiskTrouble> {
        self.poison.as_ref().map(|(trouble, _)| *trouble)
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

    /// Takes an event. Then drain [`Self::poll_output`].
    ///
    /// # Panics
    /// If a request is for a group of another shard, or a job result was not asked for.
    #[inline]
    pub fn handle(&mut self, now: Stamp, event: Event<'_>) {
        let now = Stamp { wall: self.time.read(now), ..now };
        if let Some(replication) = &mut self.replication {
            replication.note_time(now);
        }
        match event {
            Event::Request { ticket, request, data } => {
                self.handle_request(now, ticket, (request, data));
            }
            Event::Shard(message) => match *message {
                ShardMessage::Call { from, operation, call } => {
                    self.handle_call(now, ReplyTo::Shard { shard: from, operation }, call);
                }
                ShardMessage::Return { operation, result } => {
                    self.give(now, ReplyTo::Operation(operation), result);
                }
            },
            Event::Synced(done) => self.handle_synced(now, done),
            Event::Worked(done) => self.handle_worked(now, done),
            Event::ReadDone(done) => self.handle_read_done(now, *done),
            Event::Peer(event) => self.handle_peer(now, *event),
            Event::Fetched(done) => self.handle_fetched(*done),
            Event::Transferred(done) => self.handle_transferred(now, *done),
            Event::Tick => self.handle_tick(now),
            Event::Continue => self.do_slice(now),
        }
    }

    /// The next thing to do, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.poll_before_commit() {
            return Some(output);
        }
        if let Some(job) = self.log.poll_sync() {
            return Some(Output::Sync(job));
        }
        if let Some(job) = self.reads.poll() {
            return Some(Output::Read(Box::new(job)));
        }
        let work = self.poll_work().map(|job| Output::Work(Box::new(job)));
        if cfg!(debug_assertions) && work.is_none() {
            self.check();
        }
        work
    }

    /// The next thing to do that comes before a commit, until `None`. An owner that holds a commit back calls this instead of
    /// [`Self::poll_output`], and gives the shard more events.
    pub fn poll_before_commit(&mut self) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.replication.is_some() {
            // What goes to peers comes before the sync.
            self.drive_groups();
        }
        self.outputs.pop_front()
    }

    /// Whether there is something to commit, and no commit is under way.
    #[must_use]
    pub fn has_uncommitted(&self) -> bool {
        self.log.has_batch()
    }

    #[inline]
    fn handle_request(&mut self, now: Stamp, ticket: Ticket, (request, data): (Request, &[u8])) {
        if self.replication.is_some() {
            return self.route(now, ticket, (request, data));
        }
        self.admit(now, ticket, (request, data));
    }

    /// Carries a request out, now or when the log has room for it.
    #[inline]
    pub(crate) fn admit(&mut self, now: Stamp, ticket: Ticket, (request, data): (Request, &[u8])) {
        if let Some(command_bytes) = request.command_bytes()
            && self.must_defer(&request, command_bytes + data.len() as u64)
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
            Request::Change { path, change } => self.handle_change(now, ticket, &path, change),
            Request::Trim { path, before } => self.handle_trim(now, ticket, &path, before),
            Request::Resolve(read) => self.handle_resolve(now, ticket, &read),
            Request::Read(read) => self.handle_read(now, ticket, read),
            Request::Window { key, from, to } => self.handle_window(now, ticket, key, (from, to)),
            Request::Meta(command) => self.handle_meta(ticket, &command),
            Request::Watch { key } => self.handle_watch(ticket, key),
            Request::Unwatch { key } => self.watchers.remove(key, ticket.shard),
        }
    }

    fn handle_append(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        (path, mut append, data): (&StreamPath, Append, &[u8]),
    ) {
        let group = self.groups.of_path(path);
        let stream = match group.state.resolve_for(&mut append, path, now.wall) {
            Ok(stream) => stream,
            Err(refusal) => return self.refuse_path(now, ticket, path, refusal),
        };
        let key = StreamKey { group: group.state.group(), stream };
        if !group.is_in_flight(stream)
            && let Some(outcome) = group.state.check_append(stream, &append, data.len() as u64)
        {
            return self.answer_use(now, ticket, key, outcome);
        }
        self.propose_for(
            ticket,
            Proposal { to: key.into(), command: Command::Append(append), data },
        );
    }

    /// Answers a write that changes nothing, but is a use of the stream. The answer waits for the log if
    /// a crash before it knows of the use would let the stream expire too early.
    fn answer_use(&mut self, now: Stamp, ticket: Ticket, key: StreamKey, outcome: Outcome) {
        let used_at = self.time.now();
        if !self.groups.get_mut(key.group).state.touch(key.stream, used_at) {
            return self.reply(ticket, Reply::Outcome(outcome));
        }
        let use_it = Step::Propose(key.into(), Command::Touch(used_at), Vec::new());
        self.drive(now, Operation::Answer(ticket, outcome), use_it);
    }

    /// Appends an entry to the log for a client.
    pub(crate) fn propose_for(&mut self, ticket: Ticket, proposal: Proposal<'_>) {
        if let Err(failure) = self.propose(proposal, ReplyTo::Client(ticket)) {
            self.reply(ticket, Reply::Failed(failure));
        }
    }

    /// Appends an entry to the log; its outcome goes to `reply_to` once it is applied.
    pub(crate) fn propose(
        &mut self,
        proposal: Proposal<'_>,
        reply_to: ReplyTo,
    ) -> Result<(), Failure> {
        let Proposal { to: Target { group, stream }, mut command, data } = proposal;
        command.settle_times(self.time.now());
        self.encoded.clear();
        command.encode(&mut self.encoded);
        let subject = command.subject(stream);
        let place = self.groups.get_mut(group);
        let Role::Solo(solo) = &place.role else {
            let proposal = Proposal { to: Target { group, stream }, command, data };
            return self.propose_replicated(proposal, (subject, reply_to));
        };
        let entry = NewEntry {
            group,
            term: solo.term(),
            subject: subject.number(),
            at: self.time.now(),
            kind: command.kind() as u8,
            command: &self.encoded,
            data,
        };
        let purpose = if command.is_upkeep() { Purpose::Upkeep } else { Purpose::Data };
        let index = self.log.append_for(purpose, entry)?;
        place.note_proposed(index, (subject, command), reply_to);
        Ok(())
    }

    pub(crate) fn send(&mut self, to: ShardId, message: ShardMessage) {
        self.outputs.push_back(Output::Shard { to, message: Box::new(message) });
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        if self.replication.is_some() {
            return self.reply_as_member(ticket, reply);
        }
        self.outputs.push_back(Output::Reply { ticket, reply });
    }

    #[cold]
    fn reply_as_member(&mut self, ticket: Ticket, mut reply: Reply) {
        if matches!(reply, Reply::Failed(Failure::Damaged { .. })) {
            // Other nodes have what this one has lost, and it leads the group no more.
            reply = Reply::Failed(Failure::NoLeader);
        }
        if ticket.peer().is_some() {
            return self.answer_peer(ticket, &reply);
        }
        self.outputs.push_back(Output::Reply { ticket, reply });
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.reply(ticket, Reply::Outcome(Outcome::Refused(refusal)));
    }

    pub(crate) fn notify(&mut self, to: ShardId, change: Change) {
        self.outputs.push_back(Output::Changed { to, change });
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::DiskFull => Self::DiskFull,
            AppendError::Poisoned => Self::Poisoned { applied_unknown: false },
            AppendError::Backpressure => Self::Overloaded,
        }
    }
}
