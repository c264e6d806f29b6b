//! Questions to a group's state, and what time does to it.
//!
//! Nothing in here is logged: `touch` and the polls only change what will be logged later.

use crate::{
    Append, CreateRequest, Lifetime, NO_STREAM, Outcome, Pin, PinToken, Refusal, StreamInfo,
    append::{self, Verdict},
    create::{self, Wanted},
    group::GroupState,
    record::StreamRecord,
};
use model::{ByteOffset, StreamId, StreamKey, StreamPath, Timestamp};
use std::cmp::Reverse;

impl GroupState {
    /// Finds the stream that has `path` and is alive at `now`.
    ///
    /// # Errors
    /// `NotFound`, `Gone` (deleted, forks remain) or `Damaged`.
    pub fn resolve(&self, path: &StreamPath, now: Timestamp) -> Result<StreamInfo, Refusal> {
        self.live_record(path, now).map(StreamRecord::info)
    }

    /// The id of the stream that has `path` and is alive at `now`; cheaper than [`Self::resolve`].
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_id(&self, path: &StreamPath, now: Timestamp) -> Result<StreamId, Refusal> {
        self.live_record(path, now).map(|record| record.id)
    }

    /// The stream with this id, unless it is deleted.
    #[must_use]
    pub fn info(&self, stream: StreamId) -> Option<StreamInfo> {
        self.streams.get(stream).filter(|record| !record.deleted).map(StreamRecord::info)
    }

    /// First retained byte of a stream whose bytes are still needed, by itself or by forks.
    #[must_use]
    pub fn head(&self, stream: StreamId) -> Option<ByteOffset> {
        self.streams.get(stream).map(|record| record.head)
    }

    /// The first retained byte of a stream, or 0 if it may be needed though its state is lost.
    #[must_use]
    pub fn head_or_lost(&self, stream: StreamId) -> Option<ByteOffset> {
        let lost = self.is_lost(stream)
            || self.lost.contains(&NO_STREAM)
            || self.damaged.values().any(|damaged| *damaged == stream);
        self.head(stream).or(lost.then_some(ByteOffset::ZERO))
    }

    /// The stream whose damage makes `path` answer `Damaged`, so that it can be deleted.
    #[must_use]
    pub fn damaged_stream(&self, path: &StreamPath) -> Option<StreamId> {
        let by_hash = self.damaged_at(path.hash64());
        let record = || self.streams.find(path).filter(|record| self.is_lost(record.id));
        by_hash.or_else(|| record().map(|record| record.id))
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
        !record.deleted && is_expired(record, now) && !self.is_lost(record.id)
    }

    /// Whether bytes of a stream that forks read, or that was named, may be gone: entries of it were lost, or all that
    /// was known of it.
    #[must_use]
    pub fn may_lack_bytes(&self, stream: StreamId) -> bool {
        self.is_lost(stream) || self.streams.get(stream).is_none()
    }

    /// Whether an entry of the stream was, or may have been, lost.
    pub(crate) fn is_lost(&self, stream: StreamId) -> bool {
        self.is_suspect(stream) || self.lost.contains(&stream)
    }

    /// Whether the stream was there when entries were lost that nobody can name.
    pub(crate) fn is_suspect(&self, stream: StreamId) -> bool {
        (1..=self.suspect.get()).contains(&stream.get())
    }

    /// Whether a creation was, or may have been, lost: its entry names no stream.
    fn may_lack_a_creation(&self) -> bool {
        self.suspect.get() > 0 || self.lost.contains(&NO_STREAM)
    }

    fn live_record(&self, path: &StreamPath, now: Timestamp) -> Result<&StreamRecord, Refusal> {
        let hash = path.hash64();
        let Some(record) = self.streams.find_hashed(hash, path.as_str()) else {
            // If a creation may have been lost, "not found" would be a guess.
            let damaged = self.damaged.contains_key(&hash) || self.may_lack_a_creation();
            return Err(if damaged { Refusal::Damaged } else { Refusal::NotFound });
        };
        if record.deleted {
            return Err(Refusal::Gone);
        }
        if self.is_lost(record.id) {
            return Err(Refusal::Damaged);
        }
        if is_expired(record, now) {
            return Err(if record.is_pinned() { Refusal::Gone } else { Refusal::NotFound });
        }
        Ok(record)
    }

    /// The answer to a `PUT` if the path is taken by a stream alive at `now`, else `None`.
    #[must_use]
    pub fn check_create(&self, asked: &CreateRequest, now: Timestamp) -> Option<Outcome> {
        let hash = asked.path.hash64();
        let holder = self.streams.find_hashed(hash, asked.path.as_str());
        if let Some(holder) = holder.filter(|holder| self.is_record_due(holder, now)) {
            return holder.is_pinned().then_some(Outcome::Refused(Refusal::PathBlocked));
        }
        let is_damaged = self.damaged.contains_key(&hash);
        let judged = holder.and_then(|holder| self.judge_holder(holder, asked.into()));
        judged.or(is_damaged.then_some(Outcome::Refused(Refusal::Damaged)))
    }

    /// The answer to a creation at the path of `holder`. A deleted one that lost an entry does not hold it:
    /// what was lost may have been the last reference to it.
    pub(crate) fn judge_holder(
        &self,
        holder: &StreamRecord,
        wanted: Wanted<'_>,
    ) -> Option<Outcome> {
        match (self.is_lost(holder.id), holder.deleted) {
            (true, true) => None,
            (true, false) => Some(Outcome::Refused(Refusal::Damaged)),
            (false, _) => Some(create::judge_existing(holder, wanted)),
        }
    }

    /// The answer to an append that would change nothing, else `None`.
    #[must_use]
    pub fn check_append(
        &self,
        stream: StreamId,
        append: &Append,
        data_bytes: u64,
    ) -> Option<Outcome> {
        let Some(record) = self.streams.get(stream) else {
            return Some(Outcome::Refused(Refusal::NotFound));
        };
        match append::judge(record, append, data_bytes) {
            Verdict::Accept => None,
            Verdict::Answer(outcome) => Some(outcome),
        }
    }

    /// Notes that the stream was used; a sliding lifetime starts again. `true` if the use must be
    /// logged before it is answered: it lies further ahead of the log than
    /// [`Self::forgive_lost_touches`] makes up for.
    pub fn touch(&mut self, stream: StreamId, now: Timestamp) -> bool {
        let Some(record) = self.streams.get_mut(stream) else { return false };
        let Some(slack_ms) = touch_slack_ms(record) else { return false };
        record.used_at = record.used_at.max(now);
        record.used_at >= record.logged_used_at.plus_ms(slack_ms)
    }

    /// Streams whose lifetime has run out at `now`, at most `count_max`; they come up again in a
    /// second if nobody expires them.
    pub fn poll_expired(&mut self, now: Timestamp, count_max: usize) -> Vec<StreamId> {
        let mut expired = Vec::new();
        while let Some(Reverse((deadline, stream))) = self.expiries.peek().copied()
            && deadline <= now
            && expired.len() < count_max
        {
            self.expiries.pop();
            let Some(record) = self.streams.get(stream) else { continue };
            if record.deleted || self.is_lost(stream) {
                continue;
            }
            let Some(deadline) = record.deadline() else { continue };
            let due = deadline <= now;
            self.expiries.push(Reverse((if due { now.plus_ms(1000) } else { deadline }, stream)));
            if due {
                expired.push(stream);
            }
        }
        expired
    }

    /// After recovery: uses that the log had not recorded yet are made up for, so that no stream
    /// expires earlier than it would have without the crash.
    pub fn forgive_lost_touches(&mut self) {
        let sliding: Vec<StreamId> = self.streams.sorted().iter().map(|r| r.id).collect();
        for stream in sliding {
            let Some(record) = self.streams.get_mut(stream) else { continue };
            if let Some(slack_ms) = touch_slack_ms(record) {
                record.used_at = record.used_at.plus_ms(slack_ms);
            }
        }
    }

    /// References that deleted forks of this group still hold, and on what.
    pub fn duties(&self) -> impl Iterator<Item = (PinToken, StreamKey)> + '_ {
        self.duties.iter().map(|(token, source)| (*token, *source))
    }

    /// All references that streams of this group have given to forks.
    #[must_use]
    pub fn pins(&self) -> Vec<(StreamId, Pin)> {
        let pins = |record: &&StreamRecord| {
            let id = record.id;
            let pins = record.extra.as_ref().map(|extra| extra.pins.clone()).unwrap_or_default();
            pins.into_iter().map(move |pin| (id, pin)).collect::<Vec<_>>()
        };
        self.streams.sorted().iter().flat_map(pins).collect()
    }

    /// Whether a fork at `path` of this group, or its pending unpin, holds `token`. Also `true` if the
    /// fork may hold it because its record is lost to damage: its own forks read the source's bytes too.
    #[must_use]
    pub fn holds_token(&self, path: &StreamPath, token: PinToken) -> bool {
        let fork = self.streams.find(path).and_then(StreamRecord::fork);
        fork.is_some_and(|fork| fork.token == token)
            || self.duties.contains_key(&token)
            || self.damaged.contains_key(&path.hash64())
            || self.may_lack_a_creation()
            || self.lost.iter().any(|stream| self.streams.get(*stream).is_none())
    }
}

fn is_expired(record: &StreamRecord, now: Timestamp) -> bool {
    record.deadline().is_some_and(|deadline| deadline <= now)
}

/// How far the use of a sliding stream may run ahead of what the log knows: an eighth of its
/// window, between one second and one minute. `None` if the lifetime does not slide.
fn touch_slack_ms(record: &StreamRecord) -> Option<u64> {
    match record.lifetime {
        Lifetime::Ttl { seconds } => Some((seconds.saturating_mul(125)).clamp(1000, 60_000)),
        _ => None,
    }
}
