//! Reads of stored bytes, and what becomes of those that have to wait for the disk.
//!
//! # How
//! Each request for bytes or positions becomes a [`Question`]. It is asked here and now if that takes
//! neither the disk nor long. Else it becomes a [`crate::ReadJob`], and its asker is kept in [`crate::reads::Reads`] until
//! the job is done.

use crate::{
    Failure, Locate, LocateError, ReadDone, Reply, ShardAnswer, ShardCall, ShardCore, ShardMessage,
    Stamp, Ticket,
    forks::Suspended,
    lookup::{Found, NotFound, Question},
    reads::{Asker, Lookup, PendingRead, Receiver},
};
use log::{AppendBounds, Extent, Read, ReadError, ReadMode, Slice};
use model::{ByteOffset, ShardId, StreamKey, limits};

/// Windows that one look for damage reads on the loop; the next one becomes a job.
const WINDOWS_INLINE_MAX: usize = 8;

/// What is to be done with a position.
#[derive(Debug)]
enum Then {
    /// Continue a machine that has not been suspended.
    Job(Suspended),
    Return(Receiver),
}

/// What asking for a position came to.
enum Asked {
    Answered(Result<ByteOffset, LocateError>),
    /// It takes a job.
    Job(Question, Extent),
}

impl From<Result<ByteOffset, Failure>> for Asked {
    fn from(answer: Result<ByteOffset, Failure>) -> Self {
        Self::Answered(answer.map_err(LocateError::Failed))
    }
}

impl ShardCore {
    pub(crate) fn handle_window(
        &mut self,
        ticket: Ticket,
        key: StreamKey,
        (from, to): (ByteOffset, ByteOffset),
    ) {
        match self.window(key, from, to) {
            Ok(Read::Ready(slice)) => self.reply(ticket, Reply::Window(slice)),
            Ok(Read::Job(extent)) => {
                let question = Question::Window { from, max_bytes: window_bytes(from, to) };
                let pending = PendingRead { key, asker: Asker::Window(ticket) };
                self.reads.add(pending, question, extent);
            }
            Err(failure) => self.fail_window(ticket, key, failure),
        }
    }

    fn fail_window(&mut self, ticket: Ticket, key: StreamKey, failure: Failure) {
        self.damage.note_failure(key, &failure);
        self.reply(ticket, Reply::Failed(failure));
    }

    /// Bytes from `from`, which is below a tail that was seen.
    pub(crate) fn window(
        &self,
        key: StreamKey,
        from: ByteOffset,
        to: ByteOffset,
    ) -> Result<Read<Slice>, Failure> {
        match self.log.try_read(key, from, window_bytes(from, to)) {
            Ok(Read::Ready(slice)) if slice.is_empty() => Err(self.missing(key, from)),
            Ok(read) => Ok(read),
            Err(error) => Err(self.failure_of(key, from, error)),
        }
    }

    /// Why the log has no byte at `from`, which is below a tail that was seen. The stream is gone by
    /// now, or damage took its last bytes.
    fn missing(&self, key: StreamKey, from: ByteOffset) -> Failure {
        if self.state(key.group).head_or_lost(key.stream).is_none() {
            return Failure::NotFound;
        }
        Failure::lost(key, from)
    }

    fn failure_of(&self, key: StreamKey, at: ByteOffset, error: ReadError) -> Failure {
        match error {
            ReadError::PastTail { .. } | ReadError::NotFound => self.missing(key, at),
            error => error.into(),
        }
    }

    /// Asks the owner of some bytes for a position. `job` continues when it is known.
    pub(crate) fn locate(&mut self, now: Stamp, owner: StreamKey, what: Locate, job: Suspended) {
        if owner.group.shard(self.shard_count) == self.shard {
            return self.look_up(now, owner, Lookup::new(what), Then::Job(job));
        }
        self.call(owner, ShardCall::Locate(owner, what), job);
    }

    /// Sends a call to the shard of `owner`; `job` continues when it returns.
    pub(crate) fn call(&mut self, owner: StreamKey, call: ShardCall, job: Suspended) {
        let to = owner.group.shard(self.shard_count);
        let job = self.suspended.add(job);
        let message = ShardMessage::Call { from: self.shard, job, call };
        self.send(to, message);
    }

    /// Looks for a position in bytes of this shard and sends it to another, now or after a job.
    pub(crate) fn answer_locate(
        &mut self,
        now: Stamp,
        (key, what): (StreamKey, Locate),
        (shard, job): (ShardId, u64),
    ) {
        self.look_up(now, key, Lookup::new(what), Then::Return(Receiver::Shard { shard, job }));
    }

    fn look_up(&mut self, now: Stamp, key: StreamKey, mut lookup: Lookup, then: Then) {
        match self.find(key, &mut lookup) {
            Asked::Answered(located) => self.conclude(now, key, located, then),
            Asked::Job(question, extent) => {
                let receiver = match then {
                    Then::Job(job) => Receiver::Job(self.suspended.add(job)),
                    Then::Return(receiver) => receiver,
                };
                let asker = Asker::Position { lookup, receiver };
                self.reads.add(PendingRead { key, asker }, question, extent);
            }
        }
    }

    fn conclude(
        &mut self,
        now: Stamp,
        key: StreamKey,
        located: Result<ByteOffset, LocateError>,
        then: Then,
    ) {
        if let Err(LocateError::Failed(failure)) = &located {
            self.damage.note_failure(key, failure);
        }
        let result = ShardAnswer::Located(located);
        match then {
            Then::Job(job) => self.resume(now, job, result),
            Then::Return(Receiver::Job(job)) => self.handle_return(now, job, result),
            Then::Return(Receiver::Shard { shard, job }) => {
                self.send(shard, ShardMessage::Return { job, result });
            }
        }
    }

    fn find(&self, key: StreamKey, lookup: &mut Lookup) -> Asked {
        match lookup.what {
            Locate::IntactEnd { .. } => self.find_intact_end(key, lookup),
            Locate::AppendEnd(at) => self.find_append_end(key, at),
            Locate::MessageStart(at) => {
                self.ask_here(key, at, Question::MessageStart { at, start: at, scan: None })
            }
            Locate::SubOffset { from, count, json, limit } => self.ask_here(
                key,
                from,
                Question::SubOffset { from, count, json, limit, scan: None },
            ),
        }
    }

    /// Asks a question about the append that holds `at`.
    fn ask_here(&self, key: StreamKey, at: ByteOffset, mut question: Question) -> Asked {
        let extent = match self.log.extent(key, at, 1) {
            Ok(Some(extent)) => extent,
            Ok(None) => return Err(self.missing(key, at)).into(),
            Err(error) => return Err(self.failure_of(key, at, error)).into(),
        };
        let asked = question.ask(&extent, ReadMode::Inline);
        self.log.note_extent(key, &extent);
        match asked {
            Ok(found) => {
                let found = found.expect("a question that is asked inline has its answer or waits");
                Asked::Answered(position_of(found))
            }
            Err(NotFound { error, .. }) if error.would_block() => Asked::Job(question, extent),
            Err(NotFound { error, .. }) => Err(self.failure_of(key, at, error)).into(),
        }
    }

    /// End of the first append that ends at `at` or later: the one that holds the byte before.
    fn find_append_end(&self, key: StreamKey, at: ByteOffset) -> Asked {
        let mut before = ByteOffset::new(at.get().saturating_sub(1));
        let mut append = self.log.try_append_at(key, before);
        if let Err(ReadError::Trimmed { head }) = append {
            before = head.max(before);
            append = self.log.try_append_at(key, before);
        }
        match append {
            Ok(Read::Ready(Some(AppendBounds { end, .. }))) => Ok(end).into(),
            Ok(Read::Job(extent)) => Asked::Job(Question::AppendEnd(before), extent),
            Ok(Read::Ready(None)) => Err(self.missing(key, at)).into(),
            Err(error) => Err(self.failure_of(key, at, error)).into(),
        }
    }

    /// How far some bytes can be read: to their end unless damage of their stream is known.
    fn find_intact_end(&self, key: StreamKey, lookup: &mut Lookup) -> Asked {
        let Locate::IntactEnd { from: start, to: end, json } = lookup.what else {
            unreachable!("dispatched by kind")
        };
        if !self.may_lack_bytes(key) {
            return Ok(end).into();
        }
        for _ in 0..WINDOWS_INLINE_MAX {
            let at = lookup.intact;
            if at >= end {
                return Ok(end).into();
            }
            match self.window(key, at, end) {
                Ok(Read::Ready(slice)) => lookup.intact = at.advance(slice.len()),
                Ok(Read::Job(extent)) => return intact_job((at, end), json, extent),
                Err(failure) => {
                    // It is the log's index that says so, or the WAL: both know the append at once.
                    let append = match self.log.try_append_at(key, at) {
                        Ok(Read::Ready(append)) => append.map(|append| append.start),
                        _ => None,
                    };
                    return intact_before((start, at), json, append, failure).into();
                }
            }
        }
        let at = lookup.intact;
        match self.log.extent(key, at, window_bytes(at, end)) {
            _ if at >= end => Ok(end).into(),
            Ok(Some(extent)) => intact_job((at, end), json, extent),
            Ok(None) => intact_before((start, at), json, None, self.missing(key, at)).into(),
            Err(error) => {
                let failure = self.failure_of(key, at, error);
                intact_before((start, at), json, None, failure).into()
            }
        }
    }

    /// A job is done: its asker gets the answer, or the next piece of work is queued.
    pub(crate) fn handle_read_done(&mut self, now: Stamp, done: ReadDone) {
        let ReadDone { job, found } = done;
        if let Ok(None) = found {
            return self.reads.put_back(job);
        }
        let pending = self.reads.finish(job.id);
        let key = pending.key;
        self.log.note_extent(key, &job.extent);
        drop(job);
        match (pending.asker, found) {
            (Asker::Window(ticket), Ok(Some(Found::Slice(slice)))) => {
                self.reply(ticket, Reply::Window(slice));
            }
            (Asker::Window(ticket), Err(not_found)) => {
                self.fail_window(ticket, key, not_found.error.into());
            }
            (Asker::Position { mut lookup, receiver }, Ok(Some(found))) => {
                let located = position_of(found);
                match (lookup.what, &located) {
                    (Locate::IntactEnd { .. }, Ok(intact)) => {
                        lookup.intact = *intact;
                        self.look_up(now, key, lookup, Then::Return(receiver));
                    }
                    _ => self.conclude(now, key, located, Then::Return(receiver)),
                }
            }
            (Asker::Position { lookup, receiver }, Err(not_found)) => {
                let failure = Failure::from(not_found.error);
                self.damage.note_failure(key, &failure);
                let located = match lookup.what {
                    Locate::IntactEnd { from, json, .. } => {
                        let append = not_found.append_start;
                        intact_before((from, lookup.intact), json, append, failure)
                    }
                    _ => Err(failure),
                };
                let located = located.map_err(LocateError::Failed);
                self.conclude(now, key, located, Then::Return(receiver));
            }
            (asker, found) => unreachable!("{asker:?} got {found:?}"),
        }
    }
}

/// A position, or why there is none.
fn position_of(found: Found) -> Result<ByteOffset, LocateError> {
    match found {
        Found::Position(position) => Ok(position),
        Found::Beyond { available } => Err(LocateError::Beyond { available }),
        Found::Slice(_) => unreachable!("a window was asked for no position"),
    }
}

fn intact_job((at, end): (ByteOffset, ByteOffset), json: bool, extent: Extent) -> Asked {
    let max_bytes = window_bytes(at, end);
    Asked::Job(Question::Intact { from: at, max_bytes, json }, extent)
}

/// Where an answer from `start` ends that meets `failure` at `at`. An answer of JSON is a whole array:
/// it ends before the append that is cut.
fn intact_before(
    (start, at): (ByteOffset, ByteOffset),
    json: bool,
    append_start: Option<ByteOffset>,
    failure: Failure,
) -> Result<ByteOffset, Failure> {
    let end = if json { append_start.unwrap_or(start) } else { at };
    if end > start { Ok(end) } else { Err(failure) }
}

fn window_bytes(from: ByteOffset, to: ByteOffset) -> usize {
    let wanted = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
    wanted.min(limits::READ_WINDOW_BYTES_MAX)
}

impl From<Failure> for LocateError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
