//! Questions to a group's state, and what time does to it.
//!
//! Nothing in here is logged: `touch` and the polls only change what will be logged later.

use crate::{
    CreateCheck, CreateRequest, Lifetime, Outcome, Pin, PinToken, Refusal, StreamInfo,
    expiries::Noted, group::GroupState, pins::Pinned, record::StreamRecord,
};
use model::{ByteOffset, StreamId, StreamKey, StreamPath, Timestamp};

/// The bytes that a stream stores itself.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The stream.
    pub stream: StreamId,
    /// Its path.
    pub path: &'a StreamPath,
    /// Offset of the first byte that it retains and does not inherit.
    pub head: ByteOffset,
    /// Its tail.
    pub tail: ByteOffset,
}

impl GroupState {
    /// The stream with this id, unless it is deleted.
    #[must_use]
    pub fn info(&self, stream: StreamId) -> Option<StreamInfo> {
        self.streams.get(stream).filter(|record| !record.deleted).map(StreamRecord::info)
    }

    /// All streams that are not deleted, in order.
    pub fn infos(&self) -> impl Iterator<Item = StreamInfo> {
        let records = self.streams.sorted().into_iter();
        records.filter(|record| !record.deleted).map(StreamRecord::info)
    }

    /// After the last byte of a stream, deleted or not; `None` if there is none or was none yet.
    #[must_use]
    pub fn tail(&self, stream: StreamId) -> Option<ByteOffset> {
        self.streams.get(stream).map(|record| record.tail)
    }

    /// First byte of a stream that is needed, by itself or by forks.
    #[must_use]
    pub fn floor(&self, stream: StreamId) -> Option<ByteOffset> {
        self.streams.get(stream).map(StreamRecord::floor)
    }

    /// The stream that holds `path` but whose lifetime has run out, so that it must be expired
    /// before the path can be used again.
    #[must_use]
    pub fn expired_holder(&self, path: &StreamPath, now: Timestamp) -> Option<StreamId> {
        let record = self.streams.find(path)?;
        self.is_record_due(record, now).then_some(record.id)
    }

    /// Whether `stream` is alive and its lifetime has run out at `now`. That of a stream that lost an
    /// entry does not: the entry may have been a use.
    #[must_use]
    pub fn is_due(&self, stream: StreamId, now: Timestamp) -> bool {
        self.streams.get(stream).is_some_and(|record| self.is_record_due(record, now))
    }

    fn is_record_due(&self, record: &StreamRecord, now: Timestamp) -> bool {
        !record.deleted && record.is_expired(now) && !self.losses.is_lost(record.id)
    }

    /// What a `PUT` would find at its path at `now`.
    #[must_use]
    pub fn check_create(&self, asked: &CreateRequest, now: Timestamp) -> CreateCheck {
        let holder = self.streams.find(&asked.path);
        if let Some(holder) = holder.filter(|holder| self.is_record_due(holder, now)) {
            if holder.is_pinned() {
                return CreateCheck::Answered(Outcome::Refused(Refusal::PathBlocked));
            }
            return CreateCheck::Expired(holder.id);
        }
        let judged = holder.and_then(|holder| self.judge_holder(holder, asked.into()));
        let judged = judged.or_else(|| self.judge_damaged_path(asked));
        judged.map_or(CreateCheck::Free, CreateCheck::Answered)
    }

    /// Notes that the stream was used; a sliding lifetime starts again. `true` if the use must be
    /// logged before it is answered: it lies further ahead of the log than
    /// [`Self::forgive_lost_touches`] makes up for.
    pub fn touch(&mut self, stream: StreamId, now: Timestamp) -> bool {
        let Some(record) = self.streams.get_mut(stream) else { return false };
        let Some(slack_ms) = touch_slack_ms(record) else { return false };
        record.use_at(now);
        record.used_at() >= record.logged_used_at().plus_ms(slack_ms)
    }

    /// The next stream whose lifetime has run out at `now`. It comes up again in a second if nobody expires it.
    /// `looks_left` falls by one for each stream that is looked at; at 0 the answer is `None`.
    pub fn poll_expired(&mut self, now: Timestamp, looks_left: &mut usize) -> Option<StreamId> {
        while *looks_left > 0 {
            let stream = self.expiries.take_first(now)?;
            *looks_left -= 1;
            let Some(record) = self.streams.get_mut(stream) else { continue };
            record.noted = Noted::NEVER;
            if self.losses.is_lost(stream) {
                continue;
            }
            let deadline = record.deadline();
            let is_due = deadline.is_some_and(|deadline| deadline <= now);
            let next = if is_due { Some(now.plus_ms(1000)) } else { deadline };
            record.noted = self.expiries.note(next, stream);
            if is_due {
                return Some(stream);
            }
        }
        None
    }

    /// The latest use of a stream that the log has recorded. No entry of a stream that is left is later.
    #[must_use]
    pub fn last_logged_use(&self) -> Timestamp {
        let uses = self.streams.sorted().into_iter().map(StreamRecord::logged_used_at);
        uses.max().unwrap_or_default()
    }

    /// After recovery: uses that the log had not recorded yet are made up for, so that no stream
    /// expires earlier than it would have without the crash.
    pub fn forgive_lost_touches(&mut self) {
        let sliding: Vec<StreamId> = self.streams.sorted().iter().map(|r| r.id).collect();
        for stream in sliding {
            let Some(record) = self.streams.get_mut(stream) else { continue };
            if let Some(slack_ms) = touch_slack_ms(record) {
                record.use_at(record.used_at().plus_ms(slack_ms));
            }
        }
    }

    /// References that deleted forks of this group still hold, and on what.
    pub fn pending_unpins(&self) -> impl Iterator<Item = (PinToken, StreamKey)> + '_ {
        self.pending_unpins.iter().map(|(token, source)| (*token, *source))
    }

    /// All references that streams of this group have given to forks.
    #[must_use]
    pub fn pins(&self) -> Vec<(StreamId, Pin)> {
        fn pins(record: &StreamRecord) -> impl Iterator<Item = (StreamId, Pin)> + '_ {
            let id = record.id;
            let pins = record.extra.iter().flat_map(|extra| extra.pins.iter());
            pins.map(move |(&token, Pinned { from, fork_path })| {
                (id, Pin { token, from: *from, fork_path: fork_path.clone() })
            })
        }
        self.streams.sorted().into_iter().flat_map(pins).collect()
    }

    /// The path of the fork for which `stream` has given a reference; `None` if it has not, or has it back.
    #[must_use]
    pub fn pin_path(&self, stream: StreamId, token: PinToken) -> Option<&StreamPath> {
        self.streams.get(stream)?.extra.as_ref()?.pins.path(token)
    }

    /// What each stream of the group stores itself, by id; deleted ones that forks read, too. Streams of which damage
    /// has taken a part of the state are left out: nobody knows where they end.
    pub fn stored(&self) -> impl Iterator<Item = Stored<'_>> {
        let intact = |record: &&StreamRecord| !self.losses.is_lost(record.id);
        self.streams.sorted().into_iter().filter(intact).map(|record| {
            let inherited = record.fork().map_or(ByteOffset::ZERO, |fork| fork.at);
            let (head, tail) = (record.head.max(inherited), record.tail);
            Stored { stream: record.id, path: &record.path, head, tail }
        })
    }

    /// Whether a fork at `path` of this group, or its pending unpin, holds `token`. Also `true` if the
    /// fork may hold it because its record is lost to damage: its own forks read the source's bytes too.
    #[must_use]
    pub fn holds_token(&self, path: &StreamPath, token: PinToken) -> bool {
        let fork = self.streams.find(path).and_then(StreamRecord::fork);
        fork.is_some_and(|fork| fork.token == token)
            || self.pending_unpins.contains_key(&token)
            || self.may_lack_a_fork(path)
    }
}

/// How far the use of a sliding stream may run ahead of what the log knows: an eighth of its
/// window, between one second and one minute. `None` if the lifetime does not slide.
fn touch_slack_ms(record: &StreamRecord) -> Option<u64> {
    match record.lifetime.get() {
        Lifetime::Ttl { seconds } => Some((seconds.saturating_mul(125)).clamp(1000, 60_000)),
        _ => None,
    }
}
