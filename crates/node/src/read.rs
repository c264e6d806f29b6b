//! Reads: where an answer starts and ends, and the bytes of its windows.
//!
//! # Stable boundaries
//! An answer ends at the tail or at the next multiple of the boundary, whichever comes first. For JSON
//! streams it ends with the append that holds that multiple, because an answer is a complete array. So
//! wherever readers start, they end at the same places, and caches can share the pieces.
//!
//! # Inherited bytes
//! A fork's inherited bytes are stored by other streams, perhaps of another shard. Positions inside
//! them are asked of their owner by [`Locate`]; their bytes are fetched by windows that name it.
//!
//! # Damage
//! The length of an answer is promised before its bytes are read. So each owner of some of them is
//! asked first how far they are intact. The answer then ends before known damage instead of being cut
//! there. The next read starts at the damage and gets an error.

use crate::{
    Failure, Locate, LocateError, ReadReply, ReadRequest, Reply, ShardAnswer, ShardCall, ShardCore,
    ShardMessage, Stamp, Ticket, forks::Job,
};
use log::{ReadError, Slice};
use model::{ByteOffset, ReadFrom, StreamKey, limits};
use stream::{StreamInfo, messages::MessageScanner};

/// A read whose ends are being resolved.
#[derive(Debug)]
pub(crate) struct ReadJob {
    ticket: Ticket,
    key: StreamKey,
    info: StreamInfo,
    start: Position,
    end: Position,
    /// Up to here the owners of the bytes have no doubt: from `start`, once it is known.
    intact: ByteOffset,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    Known(ByteOffset),
    /// To be asked of the owner of this byte.
    Near(ByteOffset),
}

impl ShardCore {
    pub(crate) fn handle_read(&mut self, now: Stamp, ticket: Ticket, read: ReadRequest) {
        let group = read.path.group(self.group_count);
        match self.state(group).resolve_id(&read.path, now.wall) {
            // PROTOCOL §5.1: a read starts a sliding lifetime again; a live read when it begins.
            Ok(stream) => {
                self.after_use(now, StreamKey { group, stream }, Job::Used { ticket, read });
            }
            Err(refusal) => self.refuse_path(now, ticket, &read.path, refusal),
        }
    }

    pub(crate) fn begin_read(&mut self, now: Stamp, ticket: Ticket, read: &ReadRequest) {
        let group = read.path.group(self.group_count);
        let info = match self.state(group).resolve(&read.path, now.wall) {
            Ok(info) => info,
            Err(refusal) => return self.refuse_path(now, ticket, &read.path, refusal),
        };
        let key = StreamKey { group, stream: info.stream };
        let start = match read.from {
            ReadFrom::Begin => info.head,
            ReadFrom::Now => info.tail,
            ReadFrom::At(offset) => offset.min(info.tail),
        };
        if start < info.head {
            let failure = Failure::Trimmed { head: info.head };
            return self.reply(ticket, Reply::Failed(failure));
        }
        let (start, end) = self.plan(key, &info, start, read.boundary_bytes);
        let intact = ByteOffset::ZERO;
        self.continue_read(now, ReadJob { ticket, key, info, start, end, intact });
    }

    fn plan(
        &self,
        key: StreamKey,
        info: &StreamInfo,
        start: ByteOffset,
        boundary_bytes: u64,
    ) -> (Position, Position) {
        let boundary = ByteOffset::new((start.get() / boundary_bytes + 1) * boundary_bytes);
        let json = info.content_type.is_json();
        let end = match boundary {
            _ if boundary >= info.tail => Position::Known(info.tail),
            _ if json => Position::Near(boundary),
            _ => Position::Known(boundary),
        };
        let inside = json && start > info.head && start < info.tail;
        if inside && !self.is_append_start(key, info, start) {
            return (Position::Near(start), end);
        }
        (Position::Known(start), end)
    }

    /// Whether `start` is known here to be the start of an append, hence of a message.
    fn is_append_start(&self, key: StreamKey, info: &StreamInfo, start: ByteOffset) -> bool {
        info.lineage.span_at(start).is_none()
            && self
                .log
                .append_at(key, start)
                .is_ok_and(|append| append.is_some_and(|append| append.start == start))
    }

    fn continue_read(&mut self, now: Stamp, mut job: ReadJob) {
        match (job.start, job.end) {
            (Position::Near(at), _) => {
                let (owner, _) = owner_of(job.key, &job.info, at);
                self.locate(now, owner, Locate::MessageStart(at), Job::Read(job));
            }
            (_, Position::Near(at)) => {
                let (owner, _) = owner_before(&job, at);
                self.locate(now, owner, Locate::AppendEnd(at), Job::Read(job));
            }
            (Position::Known(start), Position::Known(end)) => {
                job.intact = job.intact.max(start);
                match self.next_doubt(&mut job, end) {
                    Some((owner, what)) => self.locate(now, owner, what, Job::Read(job)),
                    None => self.finish_read(job, start, end),
                }
            }
        }
    }

    /// The next stream whose bytes of this answer may be damaged: a stream of another shard, or one with
    /// known damage. Its owner must be asked.
    fn next_doubt(&self, job: &mut ReadJob, end: ByteOffset) -> Option<(StreamKey, Locate)> {
        while job.intact < end {
            let (owner, limit) = owner_of(job.key, &job.info, job.intact);
            let to = limit.min(end);
            let is_here = crate::shard_of(owner.group, self.shard_count) == self.shard;
            if !is_here || self.may_lack_bytes(owner) {
                let json = job.info.content_type.is_json();
                return Some((owner, Locate::IntactEnd { from: job.intact, to, json }));
            }
            job.intact = to;
        }
        None
    }

    /// Whether damage of a stream of this shard is known, from what was met or from the state of its group.
    fn may_lack_bytes(&self, key: StreamKey) -> bool {
        self.idle.has_damage(key) || self.state(key.group).may_lack_bytes(key.stream)
    }

    pub(crate) fn resume_read(&mut self, now: Stamp, mut job: ReadJob, result: ShardAnswer) {
        let located = match result {
            ShardAnswer::Located(Ok(offset)) => Ok(offset),
            ShardAnswer::Located(Err(LocateError::Failed(failure)))
            | ShardAnswer::Failed(failure) => Err(failure),
            other => unreachable!("a read asked for a position and got {other:?}"),
        };
        match (job.start, job.end, located) {
            (Position::Known(start), Position::Known(_), Err(_)) if job.intact > start => {
                job.end = Position::Known(job.intact);
            }
            (_, _, Err(failure)) => {
                let at = match (job.start, job.end) {
                    (Position::Near(at), _) => at,
                    (_, Position::Near(end)) => ByteOffset::new(end.get() - 1),
                    _ => job.intact,
                };
                let failure = self.not_missing(&job, at, failure);
                return self.reply(job.ticket, Reply::Failed(failure));
            }
            (Position::Near(_), _, Ok(at)) => job.start = Position::Known(at),
            (_, Position::Near(near), Ok(at)) => {
                let (_, limit) = owner_before(&job, near);
                job.end = Position::Known(at.min(limit));
            }
            (_, Position::Known(end), Ok(at)) => {
                let (_, limit) = owner_of(job.key, &job.info, job.intact);
                job.intact = at;
                if at < limit.min(end) {
                    job.end = Position::Known(at);
                }
            }
        }
        self.continue_read(now, job);
    }

    fn finish_read(&mut self, job: ReadJob, start: ByteOffset, end: ByteOffset) {
        let reply = match self.first_window(&job, start, end) {
            Ok(first) => {
                let ReadJob { key, info, .. } = job;
                Reply::Read(Box::new(ReadReply { key, info, start, end, first }))
            }
            Err(failure) => Reply::Failed(failure),
        };
        self.reply(job.ticket, reply);
    }

    /// The first bytes of an answer, if they are stored here.
    fn first_window(
        &mut self,
        job: &ReadJob,
        start: ByteOffset,
        end: ByteOffset,
    ) -> Result<Option<Slice>, Failure> {
        let (owner, limit) = owner_of(job.key, &job.info, start);
        if start == end || crate::shard_of(owner.group, self.shard_count) != self.shard {
            return Ok(None);
        }
        let first = self.window(owner, start, end.min(limit));
        let first = first.map_err(|failure| self.not_missing(job, start, failure));
        first.map(Some).inspect_err(|failure| self.idle.note_failure(owner, failure))
    }

    /// A byte that a fork inherits is there as long as the fork is: if it is not, it was lost.
    fn not_missing(&self, job: &ReadJob, at: ByteOffset, failure: Failure) -> Failure {
        let (owner, _) = owner_of(job.key, &job.info, at);
        let has_fork = || self.state(job.key.group).info(job.key.stream).is_some();
        match failure {
            Failure::NotFound if owner != job.key && has_fork() => lost(owner, at),
            failure => failure,
        }
    }

    /// How far some bytes can be read: to `end` unless damage of their stream is known.
    fn intact_end(
        &mut self,
        owner: StreamKey,
        (start, end): (ByteOffset, ByteOffset),
        is_json: bool,
    ) -> Result<ByteOffset, Failure> {
        let mut at = if self.may_lack_bytes(owner) { start } else { end };
        while at < end {
            match self.window(owner, at, end) {
                Ok(slice) => at = at.advance(slice.len()),
                Err(failure) => {
                    self.idle.note_failure(owner, &failure);
                    if is_json {
                        // An answer is a whole array: it ends before the append that is cut.
                        let append = self.log.append_at(owner, at).ok().flatten();
                        at = append.map_or(start, |append| append.start);
                    }
                    return if at > start { Ok(at) } else { Err(failure) };
                }
            }
        }
        Ok(end)
    }

    pub(crate) fn handle_window(
        &mut self,
        ticket: Ticket,
        key: StreamKey,
        from: ByteOffset,
        to: ByteOffset,
    ) {
        let reply = match self.window(key, from, to) {
            Ok(slice) => Reply::Window(slice),
            Err(failure) => {
                self.idle.note_failure(key, &failure);
                Reply::Failed(failure)
            }
        };
        self.reply(ticket, reply);
    }

    fn window(&self, key: StreamKey, from: ByteOffset, to: ByteOffset) -> Result<Slice, Failure> {
        let wanted = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
        let slice = self.log.read(key, from, wanted.min(limits::READ_WINDOW_BYTES_MAX));
        self.found(key, from, slice.map(|slice| (!slice.is_empty()).then_some(slice)))
    }

    /// Why the log has no byte at `from`, which is below a tail that was seen. The stream is gone by
    /// now, or damage took its last bytes.
    fn missing(&self, key: StreamKey, from: ByteOffset) -> Failure {
        if self.state(key.group).head_or_lost(key.stream).is_none() {
            return Failure::NotFound;
        }
        lost(key, from)
    }

    /// Asks the owner of some bytes for a position. `job` continues when it is known.
    pub(crate) fn locate(&mut self, now: Stamp, owner: StreamKey, what: Locate, job: Job) {
        if crate::shard_of(owner.group, self.shard_count) == self.shard {
            let result = ShardAnswer::Located(self.answer_locate(owner, what));
            return self.resume(now, job, result);
        }
        self.call(owner, ShardCall::Locate(owner, what), job);
    }

    /// Sends a call to the shard of `owner`; `job` continues when it returns.
    pub(crate) fn call(&mut self, owner: StreamKey, call: ShardCall, job: Job) {
        let to = crate::shard_of(owner.group, self.shard_count);
        let job = self.jobs.add(job);
        let message = ShardMessage::Call { from: self.shard, job, call };
        self.send(to, message);
    }

    pub(crate) fn answer_locate(
        &mut self,
        key: StreamKey,
        what: Locate,
    ) -> Result<ByteOffset, LocateError> {
        let located = self.find(key, what);
        if let Err(LocateError::Failed(failure)) = &located {
            self.idle.note_failure(key, failure);
        }
        located
    }

    fn find(&mut self, key: StreamKey, what: Locate) -> Result<ByteOffset, LocateError> {
        match what {
            Locate::IntactEnd { from, to, json } => Ok(self.intact_end(key, (from, to), json)?),
            Locate::AppendEnd(at) => {
                Ok(self.found(key, at, self.log.first_end_at_or_after(key, at))?)
            }
            Locate::MessageStart(at) => self.message_start(key, at),
            Locate::SubOffset { from, count, json, limit } => {
                let append = self.found(key, from, self.log.append_at(key, from))?;
                let end = append.end.min(limit);
                if json {
                    return self.nth_message_end(key, from, end, count);
                }
                let available = end.since(from);
                if count > available {
                    return Err(LocateError::Beyond { available });
                }
                Ok(from.advance(count))
            }
        }
    }

    /// What the log found, or why it did not.
    fn found<T>(
        &self,
        key: StreamKey,
        at: ByteOffset,
        found: Result<Option<T>, ReadError>,
    ) -> Result<T, Failure> {
        match found {
            Ok(Some(found)) => Ok(found),
            Ok(None) | Err(ReadError::PastTail { .. } | ReadError::NotFound) => {
                Err(self.missing(key, at))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn message_start(&self, key: StreamKey, at: ByteOffset) -> Result<ByteOffset, LocateError> {
        let append = self.found(key, at, self.log.append_at(key, at))?;
        let mut start = append.start;
        self.scan_messages(key, append.start, append.end, |end| {
            if end <= at {
                start = end;
            }
            end <= at
        })?;
        Ok(start)
    }

    fn nth_message_end(
        &self,
        key: StreamKey,
        from: ByteOffset,
        limit: ByteOffset,
        count: u64,
    ) -> Result<ByteOffset, LocateError> {
        let mut available = 0;
        let mut found = from;
        self.scan_messages(key, from, limit, |end| {
            available += 1;
            found = end;
            available < count
        })?;
        if available < count {
            return Err(LocateError::Beyond { available });
        }
        Ok(found)
    }

    /// Calls `more` with the end of each message in `from..to` until it answers `false`.
    fn scan_messages(
        &self,
        key: StreamKey,
        from: ByteOffset,
        to: ByteOffset,
        mut more: impl FnMut(ByteOffset) -> bool,
    ) -> Result<(), LocateError> {
        let mut scanner = MessageScanner::default();
        let mut at = from;
        while at < to {
            let slice = self.window(key, at, to)?;
            let bytes = slice.to_bytes().map_err(|error| Failure::from(ReadError::Io(error)))?;
            let mut scanned = 0;
            while let Some(length) = scanner.next_end(&bytes[scanned..]) {
                scanned += length;
                if !more(at.advance(scanned as u64)) {
                    return Ok(());
                }
            }
            at = at.advance(bytes.len() as u64);
        }
        Ok(())
    }
}

/// The log does not hold a byte that was seen.
fn lost(key: StreamKey, at: ByteOffset) -> Failure {
    let file = format!("the log of group {}, stream {}", key.group, key.stream);
    Failure::Damaged { file, position: at.get() }
}

impl From<Failure> for LocateError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The owner of the byte at `offset` of a stream, and the end of the owner's bytes.
pub(crate) fn owner_of(
    key: StreamKey,
    info: &StreamInfo,
    offset: ByteOffset,
) -> (StreamKey, ByteOffset) {
    match info.lineage.span_at(offset) {
        Some((end, owner)) => (owner, end),
        None => (key, info.tail),
    }
}

/// The owner of the byte before `end`, the end of an answer, and the end of the owner's bytes. A fork's
/// own bytes may begin at `end`.
fn owner_before(job: &ReadJob, end: ByteOffset) -> (StreamKey, ByteOffset) {
    owner_of(job.key, &job.info, ByteOffset::new(end.get() - 1))
}

impl ReadReply {
    /// The owner of the byte at `offset` of the answer, and the end of the owner's bytes.
    #[must_use]
    pub fn owner_of(&self, offset: ByteOffset) -> (StreamKey, ByteOffset) {
        let (owner, limit) = owner_of(self.key, &self.info, offset);
        (owner, limit.min(self.end))
    }
}
