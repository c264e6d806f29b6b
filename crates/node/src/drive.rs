//! The loop that drives operations, and the ways by which answers reach them.
//!
//! # How
//! An operation says what it wants next ([`Step`]). If the answer is at hand the loop gives it at once;
//! a read through hundreds of forks takes as many rounds and no more stack than one. Else the operation
//! waits under its number, which travels with the question.
//!
//! # Invariants
//! - Each question gets one answer: at once, or later to the number of the operation that asked.

use crate::{
    Failure, Locate, LocateError, ReadDone, Reply, ShardAnswer, ShardCall, ShardCore, ShardMessage,
    Stamp, Ticket,
    expiry::ExpirySteps,
    fork::fork_source,
    locate::{Asked, intact_before, position_of},
    lookup::{Found, NotFound},
    operation::Operation,
    proposed::ReplyTo,
    reads::{Asker, Lookup, PendingRead},
    replicated::Gate,
    shard::Proposal,
    step::{Step, View},
    unpin::UnpinSteps,
};
use model::{ByteOffset, StreamKey, StreamPath};
use stream::{Command, Refusal};

impl ShardCore {
    /// What operations see of the shard.
    pub(crate) fn view(&mut self, now: Stamp) -> View<'_> {
        View {
            now,
            groups: &self.groups,
            log: &self.log,
            damage: &mut self.damage,
            releases: &mut self.releases,
            retention: &mut self.retention,
            nonces: &mut self.nonces,
        }
    }

    /// Does what an operation wants, step by step, until it waits or ends.
    pub(crate) fn drive(&mut self, now: Stamp, operation: Operation, step: Step) {
        self.run(now, operation, step);
        self.release_due(now);
    }

    /// Gives back the references that are due.
    pub(crate) fn release_due(&mut self, now: Stamp) {
        while let Some((source, token)) = self.releases.poll() {
            let (unpin, step) = UnpinSteps::begin(source, token);
            self.run(now, Operation::Unpin(unpin), step);
        }
    }

    fn run(&mut self, now: Stamp, mut operation: Operation, mut step: Step) {
        loop {
            let number = self.operations.next_number();
            let answer = match step {
                Step::Ask(call) => self.ask(now, call, number),
                Step::Propose(to, command, data) => {
                    if let Command::Create(create) = &command {
                        self.expire_holder(now, &create.path);
                    }
                    let proposal = Proposal { to, command, data: &data };
                    let proposed = self.propose(proposal, ReplyTo::Operation(number));
                    proposed.err().map(ShardAnswer::Failed)
                }
                Step::Reply(ticket, reply) => return self.reply(ticket, reply),
                Step::Refuse(ticket, path, refusal) => {
                    match ExpirySteps::begin(&self.groups, now, (ticket, &path), refusal) {
                        Ok((expiry, begun)) => {
                            (operation, step) = (Operation::Expiry(expiry), begun);
                            continue;
                        }
                        Err(refusal) => return self.refuse(ticket, refusal),
                    }
                }
                Step::Elsewhere(moved) => return self.carry_out_elsewhere(*moved),
                Step::End => return self.note_end(&operation),
            };
            match answer {
                Some(answer) => step = operation.step(&mut self.view(now), answer),
                None => return self.operations.insert(number, operation),
            }
        }
    }

    /// An operation that nobody outside waits for has ended.
    fn note_end(&mut self, operation: &Operation) {
        if let Operation::Trim(trim) = operation
            && trim.is_retention()
        {
            self.retention.in_flight_count -= 1;
        }
        if let Operation::Sweep(sweep) = operation {
            self.end_sweep(sweep);
        }
    }

    /// Refuses a request for what is at `path`, once an expiry that it shows is logged.
    pub(crate) fn refuse_path(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        path: &StreamPath,
        refusal: Refusal,
    ) {
        match ExpirySteps::begin(&self.groups, now, (ticket, path), refusal) {
            Ok((expiry, step)) => self.drive(now, Operation::Expiry(expiry), step),
            Err(refusal) => self.refuse(ticket, refusal),
        }
    }

    /// Asks the shard that has the group; `None` if the answer comes later.
    fn ask(&mut self, now: Stamp, call: ShardCall, operation: u64) -> Option<ShardAnswer> {
        let to = self.groups.owner(call.group(self.groups.total_count()));
        let from = self.groups.shard();
        if to == from {
            return self.answer(now, call, ReplyTo::Operation(operation));
        }
        self.send(to, ShardMessage::Call { from, operation, call });
        None
    }

    /// Answers a call for a group of this shard; `None` if the answer comes later, to `reply_to`.
    fn answer(&mut self, now: Stamp, call: ShardCall, reply_to: ReplyTo) -> Option<ShardAnswer> {
        if self.replication.is_none() {
            return self.answer_open(now, call, reply_to);
        }
        match self.let_call_in(now, call, reply_to) {
            Gate::Open(call) => self.answer_open(now, call, reply_to),
            Gate::Held => None,
            Gate::Closed(failure) => Some(ShardAnswer::Failed(failure)),
        }
    }

    /// As [`Self::answer`], for a call that may be answered now.
    fn answer_open(
        &mut self,
        now: Stamp,
        call: ShardCall,
        reply_to: ReplyTo,
    ) -> Option<ShardAnswer> {
        match call {
            ShardCall::Locate(key, what) => self.locate(now, key, Lookup::new(what), reply_to),
            ShardCall::Find(key, search) => self.search(now, key, search, reply_to),
            ShardCall::ForkSource { path, offset, content_type } => {
                let view = self.view(now);
                let source = fork_source(&view, &path, offset, content_type.as_ref());
                Some(ShardAnswer::ForkSource(source))
            }
            ShardCall::Propose(key, command) => {
                let proposal = Proposal { to: key.into(), command, data: &[] };
                self.propose(proposal, reply_to).err().map(ShardAnswer::Failed)
            }
            ShardCall::Holder { path, token } => {
                Some(ShardAnswer::Holder(self.holder_of(&path, token)))
            }
            ShardCall::Replicas(group) => Some(self.replicas_of(group)),
            ShardCall::Watch { group, streams } => match reply_to {
                ReplyTo::Client(ticket) => Some(self.watch_for_peer(ticket, group, &streams)),
                // Nobody asks the own shard like this.
                _ => Some(ShardAnswer::Failed(Failure::NoLeader)),
            },
        }
    }

    pub(crate) fn handle_call(&mut self, now: Stamp, reply_to: ReplyTo, call: ShardCall) {
        if let Some(answer) = self.answer(now, call, reply_to) {
            self.give(now, reply_to, answer);
        }
    }

    /// Answers a call that has waited for the word of a majority.
    pub(crate) fn handle_open_call(&mut self, now: Stamp, reply_to: ReplyTo, call: ShardCall) {
        if let Some(answer) = self.answer_open(now, call, reply_to) {
            self.give(now, reply_to, answer);
        }
    }

    /// Gives an answer to another shard or to an operation that waits for it.
    pub(crate) fn give(&mut self, now: Stamp, reply_to: ReplyTo, answer: ShardAnswer) {
        match reply_to {
            ReplyTo::Shard { shard, operation } => {
                self.send(shard, ShardMessage::Return { operation, result: answer });
            }
            ReplyTo::Operation(number) => {
                let mut operation = self.operations.take(number);
                let step = operation.step(&mut self.view(now), answer);
                self.drive(now, operation, step);
            }
            ReplyTo::Client(ticket) => self.answer_peer_call(ticket, answer),
            ReplyTo::Watchers => self.hear_watched(answer),
            ReplyTo::Removal(id) => self.hear_replicas(id, &answer),
            ReplyTo::Expiries => self.expiries.note_done(),
            ReplyTo::Nobody => {}
        }
    }

    /// Looks for a position in bytes of this shard; `None` if it takes a job.
    fn locate(
        &mut self,
        now: Stamp,
        key: StreamKey,
        mut lookup: Lookup,
        reply_to: ReplyTo,
    ) -> Option<ShardAnswer> {
        match self.view(now).find(key, &mut lookup) {
            Asked::Answered(located) => {
                if let Err(LocateError::Failed(failure)) = &located {
                    self.damage.note_failure(key, failure);
                }
                Some(ShardAnswer::Located(located))
            }
            Asked::Job(question, extent) => {
                let asker = Asker::Position { lookup, reply_to };
                self.reads.add(PendingRead { key, asker }, question, extent);
                None
            }
        }
    }

    /// A job is done: its asker gets the answer, or the next piece of work is queued.
    pub(crate) fn handle_read_done(&mut self, now: Stamp, done: ReadDone) {
        let ReadDone { job, found } = done;
        let found = match found {
            Ok(None) => return self.reads.put_back(job),
            Ok(Some(found)) => Ok(found),
            Err(not_found) => Err(not_found),
        };
        let PendingRead { key, asker } = self.reads.finish(job.id);
        self.log.note_extent(key, &job.extent);
        drop(job);
        match (asker, found) {
            (Asker::Window(ticket), Ok(Found::Slice(slice))) => {
                self.reply(ticket, Reply::Window(slice));
            }
            (Asker::Window(ticket), Err(not_found)) => {
                let failure = self.view(now).failure_of(key, ByteOffset::ZERO, not_found.error);
                self.fail_window(ticket, key, failure);
            }
            (Asker::Position { lookup, reply_to }, found) => {
                if let Some(answer) = self.position_found(now, key, (lookup, reply_to), found) {
                    self.give(now, reply_to, answer);
                }
            }
            (Asker::Record { search, reply_to }, found) => {
                if let Some(answer) = self.record_found(now, key, (search, reply_to), found) {
                    self.give(now, reply_to, answer);
                }
            }
            (asker, found) => unreachable!("{asker:?} got {found:?}"),
        }
    }

    /// The answer to a question for a position; `None` if it takes another job.
    fn position_found(
        &mut self,
        now: Stamp,
        key: StreamKey,
        (mut lookup, reply_to): (Lookup, ReplyTo),
        found: Result<Found, NotFound>,
    ) -> Option<ShardAnswer> {
        let located = match (lookup.what, found) {
            (Locate::IntactEnd { .. }, Ok(Found::Position(intact))) => {
                lookup.intact = intact;
                return self.locate(now, key, lookup, reply_to);
            }
            (_, Ok(found)) => position_of(found),
            (what, Err(NotFound { error, append_start })) => {
                let failure = self.view(now).failure_of(key, lookup.intact, error);
                self.damage.note_failure(key, &failure);
                let located = match what {
                    Locate::IntactEnd { from, json, .. } => {
                        intact_before((from, lookup.intact), json, append_start, failure)
                    }
                    _ => Err(failure),
                };
                located.map_err(LocateError::Failed)
            }
        };
        Some(ShardAnswer::Located(located))
    }
}
