//! The state machine of one group.

use crate::{
    Append, Change, Command, ContentType, Create, Outcome, PinToken, Refusal, StreamInfo, Subject,
    create::Wanted,
    expiries::{Expiries, Noted},
    losses::Losses,
    record::{Extra, StreamRecord},
    table::StreamTable,
};
use model::{
    ByteOffset, EntryIndex, GroupId, Placement, StreamId, StreamKey, StreamPath, Timestamp, limits,
};
use std::collections::BTreeMap;

/// Content types shared between streams; beyond this many, new ones are stored per stream.
const SHARED_CONTENT_TYPES_MAX: usize = 64;

/// All streams of one group at an applied index.
#[derive(Debug)]
pub struct GroupState {
    pub(crate) group: GroupId,
    pub(crate) applied: EntryIndex,
    pub(crate) streams: StreamTable,
    /// References that deleted forks of this group still hold: source by token, until `UnpinDone`.
    pub(crate) pending_unpins: BTreeMap<PinToken, StreamKey>,
    /// How often a restore gave the group's log another end. It is 0: nothing raises it yet.
    pub(crate) history: u64,
    /// Producers remembered per stream, as the log says.
    pub(crate) producers_max: u32,
    /// What damage has taken.
    pub(crate) losses: Losses,
    /// Possible deadlines; a stream that was used since is put back when it comes up.
    pub(crate) expiries: Expiries,
    content_types: Vec<ContentType>,
}

/// What applying a command did.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    /// The answer to its sender.
    pub outcome: Outcome,
    /// The place of the entry's data in its stream; `None` if it was refused.
    pub placement: Option<Placement>,
    /// What readers of a stream see now.
    pub visible: Option<Visible>,
    /// What must be done outside.
    pub effect: Option<Effect>,
}

/// A change that readers of a stream wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visible {
    /// The stream.
    pub stream: StreamId,
    /// Its tail.
    pub tail: ByteOffset,
    /// Number of the record that comes next.
    pub next_record: u64,
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
    pub(crate) fn answer(outcome: Outcome) -> Self {
        Self { outcome, placement: None, visible: None, effect: None }
    }

    pub(crate) fn refuse(refusal: Refusal) -> Self {
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
            pending_unpins: BTreeMap::new(),
            history: 0,
            producers_max: limits::PRODUCERS_PER_STREAM_DEFAULT,
            losses: Losses::default(),
            expiries: Expiries::default(),
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

    /// Producers remembered per stream.
    #[must_use]
    pub fn producers_max(&self) -> u32 {
        self.producers_max
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

    /// The stream that has `path` and is alive at `now`, for an append, which learns whether it names the stream's own
    /// content type.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_for(
        &self,
        append: &mut Append,
        path: &StreamPath,
        now: Timestamp,
    ) -> Result<StreamId, Refusal> {
        let record = self.live_record(path, now)?;
        append.content_type.recognise(record);
        Ok(record.id)
    }

    /// The id of the stream that has `path` and is alive at `now`; cheaper than [`Self::resolve`].
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_id(&self, path: &StreamPath, now: Timestamp) -> Result<StreamId, Refusal> {
        self.live_record(path, now).map(|record| record.id)
    }

    fn live_record(&self, path: &StreamPath, now: Timestamp) -> Result<&StreamRecord, Refusal> {
        let Some(record) = self.streams.find(path) else {
            return Err(self.losses.missing(path.hash()));
        };
        if record.deleted {
            return Err(Refusal::Gone);
        }
        if self.losses.is_lost(record.id) {
            return Err(Refusal::Damaged);
        }
        if record.is_expired(now) {
            return Err(if record.is_pinned() { Refusal::Gone } else { Refusal::NotFound });
        }
        Ok(record)
    }

    /// Applies the entry `index`, logged at time `at`.
    ///
    /// # Panics
    /// If `index` is not the one after the last applied: an entry was lost or repeated.
    pub fn apply(&mut self, index: EntryIndex, at: Timestamp, entry: LoggedCommand) -> Applied {
        assert_eq!(index, self.applied.next(), "group {} applies out of order", self.group);
        self.applied = index;
        let LoggedCommand { subject, command, data_bytes } = entry;
        let mark = Mark { index, at };
        use Subject::Stream;
        match (command, subject) {
            (Command::Append(append), Stream(to)) => {
                self.apply_append(mark, to, &append, data_bytes)
            }
            (Command::Create(create), _) => self.apply_create(mark, *create, data_bytes),
            (Command::Delete, Stream(stream)) => self.apply_delete(stream, Outcome::Deleted),
            (Command::Expire, Stream(stream)) => self.apply_delete(stream, Outcome::Done),
            (Command::Touch(used_at), Stream(stream)) => self.apply_touch(stream, used_at),
            (Command::Trim(trim), Stream(stream)) => self.apply_trim(stream, trim),
            (Command::Change(change), Stream(stream)) => self.apply_change(stream, change),
            (Command::Pin(pin), Stream(stream)) => self.apply_pin(stream, pin),
            (Command::Unpin(token), Stream(stream)) => self.apply_unpin(stream, token),
            (Command::UnpinDone(token), _) => {
                self.pending_unpins.remove(&token);
                Applied::answer(Outcome::Done)
            }
            (Command::KeepProducers(count), _) => {
                self.producers_max = count;
                Applied::answer(Outcome::Done)
            }
            (_, Subject::Path(_) | Subject::Group) => Applied::refuse(Refusal::NotFound),
        }
    }

    /// Passes over the entries up to `index`, which damage has made unreadable.
    ///
    /// # Panics
    /// If `index` was applied.
    pub fn skip_to(&mut self, index: EntryIndex) {
        assert!(index > self.applied, "group {} skips out of order", self.group);
        self.applied = index;
    }

    fn apply_create(&mut self, mark: Mark, create: Create, data_bytes: u64) -> Applied {
        if let Some(holder) = self.streams.find(&create.path) {
            // Where entries were lost that nobody can name, the deletion of a holder that was there was
            // among them: the creation would not have been logged otherwise.
            if !self.losses.is_suspect(holder.id)
                && let Some(outcome) = self.judge_holder(holder, Wanted::from(&create))
            {
                return Applied::answer(outcome);
            }
            // It makes way. Its bytes stay.
            let holder = holder.id;
            self.remove_record(holder);
            self.losses.note_made_way(holder);
        }
        self.losses.note_path_taken(create.path.hash());
        let (given, record_count) = (create.record_time, create.record_count);
        let mut record = self.new_record(mark, create);
        let (stream, (start, first_record)) = (record.id, record.begin());
        let placement = (data_bytes > 0).then(|| {
            let marks = record.mark_times(given, mark.at);
            record.tail = start.advance(data_bytes);
            record.next_record = first_record + u64::from(record_count);
            Placement { stream, start, first_record, record_count, marks }
        });
        let info = record.info();
        self.add_record(record);
        Applied { placement, ..Applied::answer(Outcome::Created(Box::new(info))) }
    }

    /// The stream without the bytes that it is made with.
    fn new_record(&mut self, mark: Mark, create: Create) -> StreamRecord {
        let fork = create.fork.as_deref();
        let (tail, next_record) =
            fork.map_or((ByteOffset::ZERO, 0), |fork| (fork.at, fork.records));
        let (head, head_record) =
            fork.map_or((ByteOffset::ZERO, 0), |fork| (fork.head, fork.head_record));
        let times = fork.and_then(|fork| fork.mark);
        let has_extra = fork.is_some() || !create.retention.is_default();
        let extra = has_extra.then(|| {
            let (fork, retention) = (create.fork, create.retention);
            Box::new(Extra { fork, retention, head_record, mark: times, ..Extra::default() })
        });
        let (known_type, other_type) = self.share(create.content_type).into_parts();
        StreamRecord {
            id: StreamId::new(mark.index.get()),
            path: create.path,
            known_type,
            other_type,
            layout: create.layout,
            lifetime: create.lifetime.into(),
            head,
            tail,
            next_record,
            created_at: mark.at.into(),
            written_at: mark.at.into(),
            closed: create.close,
            deleted: false,
            noted: Noted::NEVER,
            copied_in: 0,
            extra,
        }
    }

    pub(crate) fn add_record(&mut self, mut record: StreamRecord) {
        if !record.deleted {
            record.noted = self.expiries.note(record.deadline(), record.id);
        }
        self.streams.insert(record);
    }

    fn remove_record(&mut self, stream: StreamId) -> Option<StreamRecord> {
        let record = self.streams.remove(stream)?;
        self.expiries.forget(record.noted, stream);
        Some(record)
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

    fn apply_delete(&mut self, stream: StreamId, done: Outcome) -> Applied {
        if self.losses.free_path(stream) {
            return Applied::answer(done);
        }
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::NotFound);
        };
        if record.deleted {
            return Applied::refuse(Refusal::Gone);
        }
        // PROTOCOL §4.2: while forks read its bytes it stays behind, invisible.
        let floor = record.floor();
        record.deleted = true;
        self.expiries.forget(std::mem::replace(&mut record.noted, Noted::NEVER), stream);
        let gone = Visible { gone: true, ..visible(record) };
        // What forks do not need of it is free.
        let rise = record.rise_from(floor);
        let effect = if record.is_pinned() { rise } else { self.purge(stream) };
        Applied { visible: Some(gone), effect, ..Applied::answer(done) }
    }

    /// Removes a stream for good; a fork's unpin becomes pending. If an entry of the stream was
    /// lost, it may have been a reference: then its bytes stay, and its own reference does.
    pub(crate) fn purge(&mut self, stream: StreamId) -> Option<Effect> {
        let record = self.remove_record(stream)?;
        if self.losses.is_lost(stream) {
            return None;
        }
        let Some(fork) = record.fork() else { return Some(Effect::Forget(stream)) };
        self.pending_unpins.insert(fork.token, fork.source);
        Some(Effect::ForgetFork { stream, source: fork.source, token: fork.token })
    }

    fn apply_touch(&mut self, stream: StreamId, used_at: Timestamp) -> Applied {
        if let Some(record) = self.streams.get_mut(stream) {
            record.note_logged_use(used_at);
        }
        Applied::answer(Outcome::Done)
    }

    /// A stream whose beginning or settings are to change.
    pub(crate) fn record_to_change(
        &mut self,
        stream: StreamId,
    ) -> Result<&mut StreamRecord, Refusal> {
        if self.losses.is_lost(stream) {
            return Err(Refusal::Damaged);
        }
        match self.streams.get_mut(stream) {
            None => Err(Refusal::NotFound),
            Some(record) if record.deleted => Err(Refusal::Gone),
            Some(record) => Ok(record),
        }
    }

    fn apply_change(&mut self, stream: StreamId, change: Change) -> Applied {
        let record = match self.record_to_change(stream) {
            Ok(record) => record,
            Err(refusal) => return Applied::refuse(refusal),
        };
        if !change.retention.is_empty() {
            record.extra_mut().retention.change(change.retention);
        }
        Applied::answer(Outcome::Changed(Box::new(record.info())))
    }
}

/// A committed command with what its entry says beside it.
#[derive(Debug, Clone)]
pub struct LoggedCommand {
    /// What it is about.
    pub subject: Subject,
    /// The command.
    pub command: Command,
    /// Length of the entry's data.
    pub data_bytes: u64,
}

/// Which entry is applied, and when it was logged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub index: EntryIndex,
    pub at: Timestamp,
}

pub(crate) fn visible(record: &StreamRecord) -> Visible {
    let next_record = record.next_record;
    let StreamRecord { id: stream, tail, closed, .. } = *record;
    Visible { stream, tail, next_record, closed, gone: false }
}
