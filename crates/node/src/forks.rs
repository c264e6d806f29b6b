//! Making and releasing forks, whose source may live in another group. See [`stream::ForkPoint`]
//! for the three steps and what a crash between them leaves behind.

use crate::{
    Failure, Locate, LocateError, ReadRequest, Reply, ShardAnswer, ShardCall, ShardCore,
    ShardMessage, Stamp, Ticket, expiry::ExpiryJob, group::ReplyTo, read::ReadSteps,
    shard::Proposal,
};
use env::Random;
use model::{ByteOffset, ShardId, StreamKey, StreamPath, limits};
use std::collections::HashMap;
use stream::{
    Command, ContentType, Create, CreateRequest, ForkPoint, ForkRequest, Lifetime, Lineage,
    NO_STREAM, Outcome, Pin, PinToken, Refusal, StreamInfo, messages,
};

/// What waits for a message from another shard, or for a command of its own.
#[derive(Debug)]
pub(crate) enum Suspended {
    Read(ReadSteps),
    /// A read whose use of the stream is being logged.
    Used {
        ticket: Ticket,
        read: ReadRequest,
    },
    /// An answer to a write that changes nothing, whose use of the stream is being logged.
    Answer {
        ticket: Ticket,
        outcome: Outcome,
    },
    /// An answer that waits until an expiry is logged.
    Expired(ExpiryJob),
    Fork(Box<ForkJob>),
    Release {
        source: StreamKey,
        token: PinToken,
    },
}

/// The jobs under way, by number.
#[derive(Debug, Default)]
pub(crate) struct SuspendedSet {
    next: u64,
    waiting: HashMap<u64, Suspended>,
}

impl SuspendedSet {
    pub(crate) fn add(&mut self, job: Suspended) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, job);
        self.next
    }

    /// Asserts that no number is given twice.
    ///
    /// # Panics
    /// If one may be.
    pub(crate) fn check(&self) {
        let is_past = |number: &u64| *number <= self.next;
        assert!(self.waiting.keys().all(is_past), "a number is used before it is given");
    }
}

/// The request for a fork.
#[derive(Debug)]
struct ForkCreate {
    ticket: Ticket,
    asked: CreateRequest,
    data: Vec<u8>,
}

impl ForkCreate {
    fn fork(&self) -> &ForkRequest {
        self.asked.fork.as_ref().expect("a creation without source is no fork")
    }
}

/// A fork on its way.
#[derive(Debug)]
pub(crate) struct ForkJob {
    create: ForkCreate,
    stage: ForkStage,
}

#[derive(Debug)]
enum ForkStage {
    /// Asking the source's group.
    Source,
    /// Asking the owner of the anchored append how far the sub-offset reaches.
    SubOffset { source: StreamKey, info: StreamInfo },
    /// Taking the reference.
    Pin(Box<ForkPoint>, ContentType, Lifetime),
    /// Making the fork.
    Create(Box<ForkPoint>),
}

impl ShardCore {
    pub(crate) fn start_fork(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        asked: CreateRequest,
        data: Vec<u8>,
    ) {
        let create = ForkCreate { ticket, asked, data };
        let path = create.fork().source.clone();
        let call = ShardCall::ForkSource {
            offset: create.fork().offset,
            content_type: create.asked.content_type.clone(),
            path: path.clone(),
        };
        let owner = StreamKey { group: path.group(self.group_count), stream: NO_STREAM };
        let job = Suspended::Fork(Box::new(ForkJob { create, stage: ForkStage::Source }));
        self.ask(now, owner, call, job);
    }

    /// Calls a peer, or answers at once if the group is this shard's.
    fn ask(&mut self, now: Stamp, owner: StreamKey, call: ShardCall, job: Suspended) {
        if owner.group.shard(self.shard_count) != self.shard {
            return self.call(owner, call, job);
        }
        match call {
            ShardCall::Locate(key, what) => self.locate(now, key, what, job),
            ShardCall::ForkSource { path, offset, content_type } => {
                let source = self.fork_source(now, &path, offset, content_type.as_ref());
                self.resume(now, job, ShardAnswer::ForkSource(source));
            }
            ShardCall::Propose(key, command) => {
                let job = self.suspended.add(job);
                self.propose_for(now, key, command, ReplyTo::Job(job));
            }
        }
    }

    fn propose_for(&mut self, now: Stamp, key: StreamKey, command: Command, reply_to: ReplyTo) {
        let proposal = Proposal { group: key.group, stream: key.stream, command, data: &[] };
        self.propose(now, proposal, reply_to);
    }

    pub(crate) fn handle_call(&mut self, now: Stamp, from: ShardId, job: u64, call: ShardCall) {
        let result = match call {
            ShardCall::Locate(key, what) => {
                return self.answer_locate(now, (key, what), (from, job));
            }
            ShardCall::ForkSource { path, offset, content_type } => {
                let source = self.fork_source(now, &path, offset, content_type.as_ref());
                ShardAnswer::ForkSource(source)
            }
            ShardCall::Propose(key, command) => {
                let reply_to = ReplyTo::Shard { shard: from, job };
                return self.propose_for(now, key, command, reply_to);
            }
        };
        let message = ShardMessage::Return { job, result };
        self.send(from, message);
    }

    pub(crate) fn handle_return(&mut self, now: Stamp, job: u64, result: ShardAnswer) {
        let job =
            self.suspended.waiting.remove(&job).expect("a result belongs to a job that waits");
        self.resume(now, job, result);
    }

    pub(crate) fn resume(&mut self, now: Stamp, job: Suspended, result: ShardAnswer) {
        match job {
            Suspended::Read(job) => self.resume_read(now, job, result),
            // A use that could not be logged (the disk is full, or has failed) is answered too, as
            // is one that waited in vain (`write_queue`).
            Suspended::Used { ticket, read } => self.begin_read(now, ticket, &read),
            Suspended::Answer { ticket, outcome } => self.reply(ticket, Reply::Outcome(outcome)),
            Suspended::Expired(expiry) => self.resume_expiry(now, expiry, result),
            Suspended::Fork(job) => self.resume_fork(now, *job, result),
            Suspended::Release { source, token } => {
                self.resume_release(now, source, token, &result)
            }
        }
    }

    /// Checks the source of a fork, in the source's group. PROTOCOL §4.2, "Fork creation errors".
    fn fork_source(
        &self,
        now: Stamp,
        path: &StreamPath,
        offset: Option<ByteOffset>,
        content_type: Option<&ContentType>,
    ) -> Result<(StreamKey, StreamInfo), Refusal> {
        let group = path.group(self.group_count);
        let info = self.state(group).resolve(path, now.wall).map_err(|refusal| match refusal {
            Refusal::NotFound => Refusal::ForkSourceNotFound,
            Refusal::Gone => Refusal::ForkSourceGone,
            other => other,
        })?;
        if content_type.is_some_and(|wanted| *wanted != info.content_type) {
            return Err(Refusal::ForkContentType { expected: info.content_type });
        }
        let at = offset.unwrap_or(info.tail);
        if at > info.tail {
            return Err(Refusal::ForkBeyondTail { tail: info.tail });
        }
        if at < info.head {
            return Err(Refusal::ForkTrimmed { head: info.head });
        }
        if info.lineage.depth() >= limits::FORK_DEPTH_MAX {
            return Err(Refusal::ForkDepth);
        }
        Ok((StreamKey { group, stream: info.stream }, info))
    }

    fn resume_fork(&mut self, now: Stamp, job: ForkJob, result: ShardAnswer) {
        let ForkJob { create, stage } = job;
        if let ShardAnswer::Failed(failure) = result {
            return self.abandon_fork(now, &create, stage, failure);
        }
        match (stage, result) {
            (ForkStage::Source, ShardAnswer::ForkSource(Ok((source, info)))) => {
                self.anchor_fork(now, create, source, info);
            }
            (ForkStage::Source, ShardAnswer::ForkSource(Err(refusal))) => {
                self.refuse(create.ticket, refusal);
            }
            (ForkStage::SubOffset { source, info }, ShardAnswer::Located(located)) => {
                match located {
                    Ok(at) => self.pin_source(now, create, (source, info), at),
                    Err(LocateError::Beyond { available }) => {
                        self.refuse(create.ticket, Refusal::ForkSubOffset { available });
                    }
                    // The source went away after its group was asked.
                    Err(LocateError::Failed(Failure::NotFound)) => {
                        self.refuse(create.ticket, Refusal::ForkSourceNotFound);
                    }
                    Err(LocateError::Failed(failure)) => {
                        self.reply(create.ticket, Reply::Failed(failure));
                    }
                }
            }
            (ForkStage::Pin(point, content_type, lifetime), ShardAnswer::Outcome(outcome)) => {
                match outcome {
                    Outcome::Pinned => {
                        self.create_fork(now, create, point, (content_type, lifetime));
                    }
                    other => self.reply(create.ticket, Reply::Outcome(other)),
                }
            }
            (ForkStage::Create(point), ShardAnswer::Outcome(outcome)) => {
                if !matches!(outcome, Outcome::Created(_)) {
                    self.unpin(now, point.source, point.token);
                }
                self.reply(create.ticket, Reply::Outcome(outcome));
            }
            (stage, result) => unreachable!("fork stage {stage:?} got {result:?}"),
        }
    }

    /// A step failed. If the creation's fate is unknown, so is the reference's: it stays, and the
    /// next start of the node compares the two.
    fn abandon_fork(
        &mut self,
        now: Stamp,
        create: &ForkCreate,
        stage: ForkStage,
        failure: Failure,
    ) {
        let unknown = failure == Failure::Poisoned { applied_unknown: true };
        if let ForkStage::Create(point) = stage
            && !unknown
        {
            self.unpin(now, point.source, point.token);
        }
        self.reply(create.ticket, Reply::Failed(failure));
    }

    fn anchor_fork(&mut self, now: Stamp, create: ForkCreate, source: StreamKey, info: StreamInfo) {
        let anchor = create.fork().offset.unwrap_or(info.tail);
        let count = create.fork().sub_offset;
        if count == 0 {
            return self.pin_source(now, create, (source, info), anchor);
        }
        if anchor == info.tail {
            return self.refuse(create.ticket, Refusal::ForkSubOffset { available: 0 });
        }
        let (owner, limit) = crate::read::owner_of(source, &info, anchor);
        let json = info.content_type.is_json();
        let what = Locate::SubOffset { from: anchor, count, json, limit };
        let stage = ForkStage::SubOffset { source, info };
        self.locate(now, owner, what, Suspended::Fork(Box::new(ForkJob { create, stage })));
    }

    fn pin_source(
        &mut self,
        now: Stamp,
        mut create: ForkCreate,
        (source, info): (StreamKey, StreamInfo),
        at: ByteOffset,
    ) {
        let inherits = create.asked.content_type.is_none();
        if inherits && !create.data.is_empty() && info.content_type.is_json() {
            match messages::flatten(&create.data) {
                Ok(flattened) => {
                    create.data = flattened.stored;
                    create.asked.record_count = flattened.count;
                }
                Err(error) => return self.reply(create.ticket, Reply::InvalidJson(error)),
            }
        }
        let fork_group = create.asked.path.group(self.group_count);
        let token = PinToken { fork_group, nonce: self.nonces.next_u64() };
        let point = ForkPoint {
            request: create.fork().clone(),
            source,
            token,
            at,
            head: info.head.min(at),
            lifetime: create.asked.lifetime,
            lineage: Lineage::of_fork(&info.lineage, source, at),
        };
        let pin = Command::Pin(Pin { token, fork_path: create.asked.path.clone() });
        let lifetime = create.asked.lifetime.or_inherit(info.lifetime);
        let stage = ForkStage::Pin(Box::new(point), info.content_type, lifetime);
        let job = Suspended::Fork(Box::new(ForkJob { create, stage }));
        self.ask(now, source, ShardCall::Propose(source, pin), job);
    }

    fn create_fork(
        &mut self,
        now: Stamp,
        mut create: ForkCreate,
        point: Box<ForkPoint>,
        (content_type, lifetime): (ContentType, Lifetime),
    ) {
        let data = std::mem::take(&mut create.data);
        let command = Create {
            path: create.asked.path.clone(),
            content_type,
            lifetime,
            close: create.asked.close,
            record_count: create.asked.record_count,
            fork: Some(point.clone()),
        };
        let stage = ForkStage::Create(point);
        let job = self.suspended.add(Suspended::Fork(Box::new(ForkJob { create, stage })));
        self.propose_create(now, command, &data, ReplyTo::Job(job));
    }

    /// Gives back a reference whose fork was not created.
    fn unpin(&mut self, now: Stamp, source: StreamKey, token: PinToken) {
        self.start_release(now, source, token);
    }

    /// Gives back a reference; when that is durable, the duty to do so is forgotten.
    pub(crate) fn start_release(&mut self, now: Stamp, source: StreamKey, token: PinToken) {
        let call = ShardCall::Propose(source, Command::Unpin(token));
        self.ask(now, source, call, Suspended::Release { source, token });
    }

    fn resume_release(
        &mut self,
        now: Stamp,
        source: StreamKey,
        token: PinToken,
        result: &ShardAnswer,
    ) {
        let group = token.fork_group;
        let is_duty = self.state(group).pending_unpins().any(|(known, _)| known == token);
        if let ShardAnswer::Failed(failure) = result {
            let final_here = matches!(failure, Failure::Poisoned { .. });
            if !final_here {
                self.releases.retry(source, token);
            }
        } else if is_duty {
            let command = Command::UnpinDone(token);
            let proposal = Proposal { group, stream: NO_STREAM, command, data: &[] };
            self.propose(now, proposal, ReplyTo::Nobody);
        }
    }
}
