//! Steps of the operations: requests that take more than one turn.
//!
//! # What
//! An operation is a value: a read, a fork, an expiry. [`Step`] is what it wants next, [`View`] what it
//! sees of its shard. It calls no other operation and nothing that calls it back: one loop does what it
//! asks, and gives it the answer at once or when it comes.
//!
//! # Driving it
//! Each operation has a method that begins it and `step(view, answer)`, which takes the answer to the
//! step before. After [`Step::Reply`], [`Step::Refuse`], [`Step::Elsewhere`] or [`Step::End`] it gets no other.

use crate::{
    Failure, Reply, Request, ShardCall, Stamp, Ticket, damage::DamageBook, group::Groups,
    releases::Releases, retention::RetentionBook,
};
use env::SeededRandom;
use log::{Aim, Read, ReadError, ReadLimit, ShardLog, Slice};
use model::{ByteOffset, GroupId, Monotonic, StreamId, StreamKey, StreamPath, limits};
use stream::{Command, GroupState, Refusal, StreamInfo};

/// The receiver of a command: a group, and a stream of it unless the command names none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub group: GroupId,
    pub stream: Option<StreamId>,
}

impl From<StreamKey> for Target {
    fn from(key: StreamKey) -> Self {
        Self { group: key.group, stream: Some(key.stream) }
    }
}

/// What an operation does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Ask the shard that it is about, which may be this one.
    Ask(ShardCall),
    /// Log a command and its data in a group of this shard; the answer is its outcome.
    Propose(Target, Command, Vec<u8>),
    /// Answer the client, and end.
    Reply(Ticket, Reply),
    /// Refuse a request for what is at a path, and end.
    Refuse(Ticket, StreamPath, Refusal),
    /// Have a write carried out where its group is led by now, and end.
    Elsewhere(Box<Moved>),
    /// End without an answer.
    End,
}

/// A write of a client that another leader is to carry out.
#[derive(Debug)]
pub(crate) struct Moved {
    pub ticket: Ticket,
    /// It has waited since then.
    pub since: Monotonic,
    pub request: Request,
    pub data: Vec<u8>,
}

/// What an operation sees of its shard, and the little that it may note.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub now: Stamp,
    pub groups: &'a Groups,
    pub log: &'a ShardLog,
    pub damage: &'a mut DamageBook,
    pub releases: &'a mut Releases,
    pub retention: &'a mut RetentionBook,
    pub nonces: &'a mut SeededRandom,
}

impl View<'_> {
    /// The state of the group of a path of this shard.
    #[inline]
    pub(crate) fn state_of(&self, path: &StreamPath) -> &GroupState {
        &self.groups.of_path(path).state
    }

    /// The stream that a client asks for, as it is now.
    ///
    /// # Errors
    /// The step that refuses the request.
    #[inline]
    pub(crate) fn stream_at(
        &self,
        ticket: Ticket,
        path: &StreamPath,
    ) -> Result<(StreamKey, StreamInfo), Box<Step>> {
        let state = self.state_of(path);
        match state.resolve(path, self.now.wall) {
            Ok(info) => Ok((StreamKey { group: state.group(), stream: info.stream }, info)),
            Err(refusal) => Err(Box::new(Step::Refuse(ticket, path.clone(), refusal))),
        }
    }

    /// Whether damage of a stream of this shard is known, from what was met or from the state of its group.
    pub(crate) fn may_lack_bytes(&self, key: StreamKey) -> bool {
        self.damage.has_damage(key) || self.groups.get(key.group).state.may_lack_bytes(key.stream)
    }

    /// Bytes from `from`, which is below a tail that was seen.
    pub(crate) fn window(
        &self,
        key: StreamKey,
        from: ByteOffset,
        to: ByteOffset,
    ) -> Result<Read<Slice>, Failure> {
        match self.log.try_read(key, from, window_limit(from, to)) {
            Ok(Read::Ready(slice)) if slice.is_empty() => Err(self.missing(key, from)),
            Ok(read) => Ok(read),
            Err(error) => Err(self.failure_of(key, from, error)),
        }
    }

    /// Why the log has no byte at `from`, which is below a tail that was seen. The stream is gone by
    /// now, or damage took its last bytes.
    pub(crate) fn missing(&self, key: StreamKey, from: ByteOffset) -> Failure {
        if self.groups.get(key.group).state.floor_or_lost(key.stream).is_none() {
            return Failure::NotFound;
        }
        Failure::lost(key, from)
    }

    /// The answer to who has not found a record of a stream.
    pub(crate) fn not_found(
        &self,
        ticket: Ticket,
        (key, aim): (StreamKey, Aim),
        failure: Failure,
    ) -> Step {
        Step::Reply(ticket, Reply::Failed(self.overtaken(key, aim, failure)))
    }

    /// Why a record was not found: it is lost, unless a trim has overtaken who looks for it.
    pub(crate) fn overtaken(&self, key: StreamKey, aim: Aim, failure: Failure) -> Failure {
        let Failure::Damaged { .. } = failure else { return failure };
        let Some(info) = self.groups.get(key.group).state.info(key.stream) else {
            return Failure::NotFound;
        };
        let is_trimmed = match aim {
            Aim::Byte(at) => at < info.head,
            Aim::Record(number) => number < info.first_record,
            Aim::Time(_) => false,
        };
        if is_trimmed { Failure::Trimmed { head: info.head } } else { failure }
    }

    pub(crate) fn failure_of(&self, key: StreamKey, at: ByteOffset, error: ReadError) -> Failure {
        match error {
            ReadError::PastTail { .. } | ReadError::NotFound => self.missing(key, at),
            error => error.into(),
        }
    }
}

/// How many bytes one window takes of what is wanted, copied or as a range of a file.
fn window_limit(from: ByteOffset, to: ByteOffset) -> ReadLimit {
    let wanted = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
    let file_bytes = wanted.min(limits::FILE_WINDOW_BYTES_MAX);
    ReadLimit { bytes: window_bytes(from, to), file_bytes }
}

/// How many bytes one window takes of what is wanted.
pub(crate) fn window_bytes(from: ByteOffset, to: ByteOffset) -> usize {
    let wanted = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
    wanted.min(limits::READ_WINDOW_BYTES_MAX)
}
