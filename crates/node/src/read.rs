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
    Failure, Locate, LocateError, ReadReply, ReadRequest, Reply, ShardAnswer, ShardCore, Stamp,
    Ticket, forks::Suspended,
};
use log::{Read, Slice};
use model::{ByteOffset, ReadFrom, StreamKey};
use stream::StreamInfo;

/// A read whose ends are being resolved.
#[derive(Debug)]
pub(crate) struct ReadSteps {
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
                self.after_use(now, StreamKey { group, stream }, Suspended::Used { ticket, read });
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
        self.continue_read(now, ReadSteps { ticket, key, info, start, end, intact });
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
            && matches!(
                self.log.try_append_at(key, start),
                Ok(Read::Ready(Some(append))) if append.start == start
            )
    }

    fn continue_read(&mut self, now: Stamp, mut job: ReadSteps) {
        match (job.start, job.end) {
            (Position::Near(at), _) => {
                let (owner, _) = owner_of(job.key, &job.info, at);
                self.locate(now, owner, Locate::MessageStart(at), Suspended::Read(job));
            }
            (_, Position::Near(at)) => {
                let (owner, _) = owner_before(&job, at);
                self.locate(now, owner, Locate::AppendEnd(at), Suspended::Read(job));
            }
            (Position::Known(start), Position::Known(end)) => {
                job.intact = job.intact.max(start);
                match self.next_doubt(&mut job, end) {
                    Some((owner, what)) => self.locate(now, owner, what, Suspended::Read(job)),
                    None => self.finish_read(job, start, end),
                }
            }
        }
    }

    /// The next stream whose bytes of this answer may be damaged: a stream of another shard, or one with
    /// known damage. Its owner must be asked.
    fn next_doubt(&self, job: &mut ReadSteps, end: ByteOffset) -> Option<(StreamKey, Locate)> {
        while job.intact < end {
            let (owner, limit) = owner_of(job.key, &job.info, job.intact);
            let to = limit.min(end);
            let is_here = owner.group.shard(self.shard_count) == self.shard;
            if !is_here || self.may_lack_bytes(owner) {
                let json = job.info.content_type.is_json();
                return Some((owner, Locate::IntactEnd { from: job.intact, to, json }));
            }
            job.intact = to;
        }
        None
    }

    /// Whether damage of a stream of this shard is known, from what was met or from the state of its group.
    pub(crate) fn may_lack_bytes(&self, key: StreamKey) -> bool {
        self.damage.has_damage(key) || self.state(key.group).may_lack_bytes(key.stream)
    }

    pub(crate) fn resume_read(&mut self, now: Stamp, mut job: ReadSteps, result: ShardAnswer) {
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

    fn finish_read(&mut self, job: ReadSteps, start: ByteOffset, end: ByteOffset) {
        let reply = match self.first_window(&job, start, end) {
            Ok(first) => {
                let ReadSteps { key, info, .. } = job;
                Reply::Read(Box::new(ReadReply { key, info, start, end, first }))
            }
            Err(failure) => Reply::Failed(failure),
        };
        self.reply(job.ticket, reply);
    }

    /// The first bytes of an answer, if they are at hand: stored here, and in memory.
    fn first_window(
        &mut self,
        job: &ReadSteps,
        start: ByteOffset,
        end: ByteOffset,
    ) -> Result<Option<Slice>, Failure> {
        let (owner, limit) = owner_of(job.key, &job.info, start);
        if start == end || owner.group.shard(self.shard_count) != self.shard {
            return Ok(None);
        }
        match self.window(owner, start, end.min(limit)) {
            Ok(Read::Ready(slice)) => Ok(Some(slice)),
            Ok(Read::Job(_)) => Ok(None),
            Err(failure) => {
                let failure = self.not_missing(job, start, failure);
                self.damage.note_failure(owner, &failure);
                Err(failure)
            }
        }
    }

    /// A byte that a fork inherits is there as long as the fork is: if it is not, it was lost.
    fn not_missing(&self, job: &ReadSteps, at: ByteOffset, failure: Failure) -> Failure {
        let (owner, _) = owner_of(job.key, &job.info, at);
        let has_fork = || self.state(job.key.group).info(job.key.stream).is_some();
        match failure {
            Failure::NotFound if owner != job.key && has_fork() => Failure::lost(owner, at),
            failure => failure,
        }
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
fn owner_before(job: &ReadSteps, end: ByteOffset) -> (StreamKey, ByteOffset) {
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
