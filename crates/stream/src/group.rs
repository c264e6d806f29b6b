//! The state machine of one group.

use crate::{
    Accepted, Append, Command, ContentType, Create, Outcome, Pin, PinToken, Refusal, StreamInfo,
    Wanted,
    append::{self, Verdict},
    create,
    record::{Extra, StreamRecord},
    table::StreamTable,
};
use model::{ByteOffset, EntryIndex, GroupId, StreamId, StreamKey, StreamPath, Timestamp};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

/// Content types shared between streams; beyond this many, new ones are stored per stream.
const SHARED_CONTENT_TYPES_MAX: usize = 64;

/// Stands for a stream that nobody can name any more.
const UNKNOWN: StreamId = StreamId::new(0);

/// All streams of one group at an applied index.
#[derive(Debug)]
pub struct GroupState {
    pub(crate) group: GroupId,
    pub(crate) applied: EntryIndex,
    pub(crate) streams: StreamTable,
    /// References that deleted forks of this group still hold: source by token, until `Released`.
    pub(crate) duties: BTreeMap<PinToken, StreamKey>,
    /// Streams whose records were lost to damage, by the hash of their path.
    pub(crate) damaged: BTreeMap<u64, StreamId>,
    /// Streams of which some entry was lost to damage; 0 if it is not known of which.
    pub(crate) lost: BTreeSet<StreamId>,
    /// Possible deadlines; a stream that was used since is put back when it comes up.
    expiries: BinaryHeap<Reverse<(Timestamp, StreamId)>>,
    /// Streams whose use should be logged, each once.
    touched: Vec<StreamId>,
    content_types: Vec<ContentType>,
}

/// What applying a command did.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    /// The answer to whoever sent it.
    pub outcome: Outcome,
    /// Where the entry's data now stands; `None` if it was not taken.
    pub placement: Option<Placement>,
    /// What readers of a stream see now.
    pub visible: Option<Visible>,
    /// What must be done outside.
    pub effect: Option<Effect>,
}

/// Where the data of an accepted entry stands in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The stream.
    pub stream: StreamId,
    /// Offset of the first byte.
    pub start: ByteOffset,
    /// Number of records.
    pub record_count: u32,
}

/// A change that readers of a stream wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visible {
    /// The stream.
    pub stream: StreamId,
    /// Its tail.
    pub tail: ByteOffset,
    /// No more bytes will come.
    pub closed: bool,
    /// The stream is deleted or expired.
    pub gone: bool,
}

/// A consequence outside the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The stream's bytes are not needed any more.
    Forget(StreamId),
    /// As `Forget`; besides, the reference on the fork's source must be given back.
    ForgetFork {
        /// The deleted fork.
        stream: StreamId,
        /// Where to send `Unpin`.
        source: StreamKey,
        /// With this token.
        token: PinToken,
    },
    /// Bytes before this offset are not needed any more.
    Trim(StreamId, ByteOffset),
}

impl Applied {
    fn answer(outcome: Outcome) -> Self {
        Self { outcome, placement: None, visible: None, effect: None }
    }

    fn refuse(refusal: Refusal) -> Self {
        Self::answer(Outcome::Refused(refusal))
    }
}

impl GroupState {
    /// A group without streams.
    #[must_use]
    pub fn new(group: GroupId) -> Self {
        Self {
            group,
            applied: EntryIndex::new(0),
            streams: StreamTable::default(),
            duties: BTreeMap::new(),
            damaged: BTreeMap::new(),
            lost: BTreeSet::new(),
            expiries: BinaryHeap::new(),
            touched: Vec::new(),
            content_types: Vec::new(),
        }
    }

    /// The group's id.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Index of the last applied entry.
    #[must_use]
    pub fn applied(&self) -> EntryIndex {
        self.applied
    }

    /// Number of streams, deleted ones that forks still need included.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

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
        let lost = self.lost.contains(&stream)
            || self.lost.contains(&UNKNOWN)
            || self.damaged.values().any(|damaged| *damaged == stream);
        self.head(stream).or(lost.then_some(ByteOffset::ZERO))
    }

    /// The stream whose damage makes `path` answer `Damaged`, so that it can be deleted.
    #[must_use]
    pub fn damaged_stream(&self, path: &StreamPath) -> Option<StreamId> {
        let by_hash = self.damaged.get(&path.hash64()).copied();
        let record = || self.streams.find(path).filter(|record| self.lost.contains(&record.id));
        by_hash.or_else(|| record().map(|record| record.id))
    }

    /// The stream that holds `path` but whose lifetime has run out, so that it must be expired
    /// before the path can be used again.
    #[must_use]
    pub fn expired_holder(&self, path: &StreamPath, now: Timestamp) -> Option<StreamId> {
        let record = self.streams.find(path)?;
        (!record.deleted && is_expired(record, now)).then_some(record.id)
    }

    /// Whether `stream` is alive and its lifetime has run out at `now`.
    #[must_use]
    pub fn is_due(&self, stream: StreamId, now: Timestamp) -> bool {
        self.streams.get(stream).is_some_and(|record| !record.deleted && is_expired(record, now))
    }

    fn live_record(&self, path: &StreamPath, now: Timestamp) -> Result<&StreamRecord, Refusal> {
        let hash = path.hash64();
        let Some(record) = self.streams.find_hashed(hash, path.as_str()) else {
            // If a creation may have been lost, "not found" would be a guess.
            let damaged = self.damaged.contains_key(&hash) || self.lost.contains(&UNKNOWN);
            return Err(if damaged { Refusal::Damaged } else { Refusal::NotFound });
        };
        if record.deleted {
            return Err(Refusal::Gone);
        }
        if self.lost.contains(&record.id) {
            return Err(Refusal::Damaged);
        }
        if is_expired(record, now) {
            return Err(if record.is_pinned() { Refusal::Gone } else { Refusal::NotFound });
        }
        Ok(record)
    }

    /// The answer to a `PUT` if the path is taken by a stream alive at `now`, else `None`.
    #[must_use]
    pub fn check_create(
        &self,
        path: &StreamPath,
        wanted: Wanted<'_>,
        now: Timestamp,
    ) -> Option<Outcome> {
        let hash = path.hash64();
        match self.streams.find_hashed(hash, path.as_str()) {
            Some(record) if !record.deleted && is_expired(record, now) => {
                record.is_pinned().then_some(Outcome::Refused(Refusal::PathBlocked))
            }
            Some(record) => Some(create::judge_existing(record, wanted)),
            None => self.damaged.contains_key(&hash).then_some(Outcome::Refused(Refusal::Damaged)),
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

    /// Notes that the stream was used; a sliding lifetime starts again.
    pub fn touch(&mut self, stream: StreamId, now: Timestamp) {
        let Some(record) = self.streams.get_mut(stream) else { return };
        let Some(slack_ms) = touch_slack_ms(record) else { return };
        let unlogged_before = record.used_at.get() >= record.logged_used_at.get() + slack_ms;
        record.used_at = record.used_at.max(now);
        if !unlogged_before && record.used_at.get() >= record.logged_used_at.get() + slack_ms {
            self.touched.push(stream);
        }
    }

    /// Uses that should be logged, at most `count_max` of them.
    pub fn poll_touched(&mut self, count_max: usize) -> Vec<(StreamId, Timestamp)> {
        let from = self.touched.len().saturating_sub(count_max);
        let picked = self.touched.split_off(from);
        let used = |stream| self.streams.get(stream).map(|record| (stream, record.used_at));
        picked.into_iter().filter_map(used).collect()
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
            let Some(record) = self.streams.get(stream).filter(|record| !record.deleted) else {
                continue;
            };
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

    /// Whether a fork at `path` of this group, or a duty left by it, holds `token`.
    #[must_use]
    pub fn holds_token(&self, path: &StreamPath, token: PinToken) -> bool {
        let fork = self.streams.find(path).and_then(StreamRecord::fork);
        fork.is_some_and(|fork| fork.token == token) || self.duties.contains_key(&token)
    }

    /// Records that the stream's state was lost to damage on disk: its path answers `Damaged`.
    pub fn mark_damaged(&mut self, stream: StreamId, path_hash: u64) {
        self.damaged.insert(path_hash, stream);
    }

    /// Records that an entry of `stream` (0: of an unknown stream) was lost: the stream's state
    /// cannot be trusted, its path answers `Damaged` until it is deleted.
    pub fn lose(&mut self, stream: StreamId) {
        self.lost.insert(stream);
    }

    /// Applies the entry `index`, logged at time `at`, for `stream` (0 for a creation).
    ///
    /// # Panics
    /// If `index` is not the one after the last applied: an entry was lost or repeated.
    pub fn apply(&mut self, index: EntryIndex, at: Timestamp, entry: LoggedCommand) -> Applied {
        assert_eq!(index, self.applied.next(), "group {} applies out of order", self.group);
        self.applied = index;
        let LoggedCommand { stream, command, data_bytes } = entry;
        match command {
            Command::Create(create) => self.apply_create(index, at, *create, data_bytes),
            Command::Append(append) => self.apply_append(index, at, stream, &append, data_bytes),
            Command::Delete => self.apply_delete(stream, Outcome::Deleted),
            Command::Expire => self.apply_delete(stream, Outcome::Done),
            Command::Touch(used_at) => self.apply_touch(stream, used_at),
            Command::Trim(to) => self.apply_trim(stream, to),
            Command::Pin(pin) => self.apply_pin(stream, pin),
            Command::Unpin(token) => self.apply_unpin(stream, token),
            Command::Released(token) => {
                self.duties.remove(&token);
                Applied::answer(Outcome::Done)
            }
        }
    }

    /// Passes over an entry that damage has made unreadable.
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn skip(&mut self, index: EntryIndex) {
        assert_eq!(index, self.applied.next(), "group {} skips out of order", self.group);
        self.applied = index;
    }

    fn apply_create(
        &mut self,
        index: EntryIndex,
        at: Timestamp,
        create: Create,
        data_bytes: u64,
    ) -> Applied {
        if let Some(record) = self.streams.find(&create.path) {
            return Applied::answer(create::judge_existing(record, Wanted::from(&create)));
        }
        let record = self.new_record(index, at, create, data_bytes);
        let start = record.fork().map_or(ByteOffset::ZERO, |fork| fork.at);
        let placement = (data_bytes > 0).then(|| Placement {
            stream: record.id,
            start,
            record_count: u32::try_from(record.record_count).expect("one entry's records"),
        });
        let info = record.info();
        self.add_record(record);
        Applied { placement, ..Applied::answer(Outcome::Created(info)) }
    }

    fn new_record(
        &mut self,
        index: EntryIndex,
        at: Timestamp,
        create: Create,
        data_bytes: u64,
    ) -> StreamRecord {
        let start = create.fork.as_ref().map_or(ByteOffset::ZERO, |fork| fork.at);
        let head = create.fork.as_ref().map_or(ByteOffset::ZERO, |fork| fork.head);
        let extra =
            create.fork.map(|fork| Box::new(Extra { fork: Some(fork), ..Extra::default() }));
        StreamRecord {
            id: StreamId::new(index.get()),
            path: create.path,
            content_type: self.share(create.content_type),
            lifetime: create.lifetime,
            head,
            tail: start.advance(data_bytes),
            record_count: u64::from(create.record_count),
            used_at: at,
            logged_used_at: at,
            closed: create.close,
            deleted: false,
            extra,
        }
    }

    pub(crate) fn add_record(&mut self, record: StreamRecord) {
        if let Some(deadline) = record.deadline() {
            self.expiries.push(Reverse((deadline, record.id)));
        }
        self.streams.insert(record);
    }

    /// One allocation for all streams that write their content type alike.
    pub(crate) fn share(&mut self, content_type: ContentType) -> ContentType {
        let alike = |known: &&ContentType| known.as_str() == content_type.as_str();
        if let Some(known) = self.content_types.iter().find(alike) {
            return known.clone();
        }
        if self.content_types.len() < SHARED_CONTENT_TYPES_MAX {
            self.content_types.push(content_type.clone());
        }
        content_type
    }

    fn apply_append(
        &mut self,
        index: EntryIndex,
        at: Timestamp,
        stream: StreamId,
        append: &Append,
        data_bytes: u64,
    ) -> Applied {
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::NotFound);
        };
        if let Verdict::Answer(outcome) = append::judge(record, append, data_bytes) {
            return Applied::answer(outcome);
        }
        let start = record.tail;
        record.tail = start.advance(data_bytes);
        record.record_count += u64::from(append.record_count);
        record.closed |= append.close;
        record.used_at = record.used_at.max(at);
        record.logged_used_at = record.logged_used_at.max(at);
        if let Some(seq) = &append.stream_seq {
            record.extra_mut().stream_seq = Some(seq.clone());
        }
        if let Some(producer) = &append.producer {
            record.extra_mut().producers.accept(producer, index);
        }
        let placement = Placement { stream, start, record_count: append.record_count };
        let accepted = Accepted {
            stream,
            tail: record.tail,
            closed: record.closed,
            producer: append.producer.as_ref().map(|producer| (producer.epoch, producer.seq)),
            duplicate: false,
            close_only: data_bytes == 0,
        };
        Applied {
            outcome: Outcome::Appended(accepted),
            placement: (data_bytes > 0).then_some(placement),
            visible: Some(visible(record)),
            effect: None,
        }
    }

    fn apply_delete(&mut self, stream: StreamId, done: Outcome) -> Applied {
        if self.forget_damaged(stream) {
            return Applied { effect: Some(Effect::Forget(stream)), ..Applied::answer(done) };
        }
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::NotFound);
        };
        if record.deleted {
            return Applied::refuse(Refusal::Gone);
        }
        // PROTOCOL §4.2: while forks read its bytes it stays behind, invisible.
        record.deleted = true;
        let gone = Visible { gone: true, ..visible(record) };
        let effect = if record.is_pinned() { None } else { self.purge(stream) };
        Applied { visible: Some(gone), effect, ..Applied::answer(done) }
    }

    fn forget_damaged(&mut self, stream: StreamId) -> bool {
        self.lost.remove(&stream);
        let before = self.damaged.len();
        self.damaged.retain(|_, damaged| *damaged != stream);
        self.damaged.len() < before
    }

    /// Removes a stream for good; a fork's reference becomes a duty.
    fn purge(&mut self, stream: StreamId) -> Option<Effect> {
        let record = self.streams.remove(stream)?;
        let Some(fork) = record.fork() else { return Some(Effect::Forget(stream)) };
        self.duties.insert(fork.token, fork.source);
        Some(Effect::ForgetFork { stream, source: fork.source, token: fork.token })
    }

    fn apply_touch(&mut self, stream: StreamId, used_at: Timestamp) -> Applied {
        if let Some(record) = self.streams.get_mut(stream) {
            record.used_at = record.used_at.max(used_at);
            record.logged_used_at = record.logged_used_at.max(used_at);
        }
        Applied::answer(Outcome::Done)
    }

    fn apply_trim(&mut self, stream: StreamId, to: ByteOffset) -> Applied {
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::NotFound);
        };
        let to = to.min(record.tail);
        if to <= record.head {
            return Applied::answer(Outcome::Done);
        }
        record.head = to;
        Applied { effect: Some(Effect::Trim(stream, to)), ..Applied::answer(Outcome::Done) }
    }

    fn apply_pin(&mut self, stream: StreamId, pin: Pin) -> Applied {
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::ForkSourceNotFound);
        };
        if record.deleted {
            return Applied::refuse(Refusal::ForkSourceGone);
        }
        if !record.holds_pin(pin.token) {
            record.extra_mut().pins.push(pin);
        }
        Applied::answer(Outcome::Pinned)
    }

    fn apply_unpin(&mut self, stream: StreamId, token: PinToken) -> Applied {
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::answer(Outcome::Done);
        };
        if let Some(extra) = &mut record.extra {
            extra.pins.retain(|pin| pin.token != token);
        }
        let unused = record.deleted && !record.is_pinned();
        let effect = if unused { self.purge(stream) } else { None };
        Applied { effect, ..Applied::answer(Outcome::Done) }
    }
}

/// A committed command with what its entry says beside it.
#[derive(Debug, Clone)]
pub struct LoggedCommand {
    /// The stream it is for; 0 for a creation.
    pub stream: StreamId,
    /// The command.
    pub command: Command,
    /// Length of the entry's data.
    pub data_bytes: u64,
}

fn visible(record: &StreamRecord) -> Visible {
    Visible { stream: record.id, tail: record.tail, closed: record.closed, gone: false }
}

fn is_expired(record: &StreamRecord, now: Timestamp) -> bool {
    record.deadline().is_some_and(|deadline| deadline <= now)
}

/// How far the use of a sliding stream may run ahead of what the log knows: an eighth of its
/// window, between one second and one minute. `None` if the lifetime does not slide.
fn touch_slack_ms(record: &StreamRecord) -> Option<u64> {
    match record.lifetime {
        crate::Lifetime::Ttl { seconds } => Some((seconds.saturating_mul(125)).clamp(1000, 60_000)),
        _ => None,
    }
}
