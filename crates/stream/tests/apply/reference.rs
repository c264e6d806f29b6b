//! The reference: what the protocol says of streams, kept as plainly as it can be said.
//!
//! Each stream holds all its bytes, a fork a copy of its source's; a producer is the list of every
//! append that was accepted from it. Nothing is shared, indexed or forgotten early, so there is
//! little here that can be wrong in the same way as the state machine.

use model::{
    ByteOffset, GroupId, Placement, StreamId, StreamKey, StreamPath, TimeMarks, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_stream::{
    Accepted, Append, AppendType, Applied, Change, Command, Condition, ConfigField, ContentType,
    Create, Effect, EndState, ForkPoint, Layout, Lifetime, Outcome, Pin, PinToken, Producer,
    RecordTime, Refusal, Retention, RetentionChange, StreamInfo, Visible,
};

use crate::bug::Bug;

/// Every stream of the test lives in this group.
pub(crate) const GROUP: GroupId = GroupId::new(0);

/// A stream with everything that ever happened to it.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub id: StreamId,
    pub path: StreamPath,
    pub content_type: ContentType,
    pub layout: Layout,
    pub lifetime: Lifetime,
    pub created_at: Timestamp,
    pub written_at: Timestamp,
    pub head: usize,
    pub bytes: Vec<u8>,
    /// Where each record ends, inherited ones included.
    record_ends: Vec<usize>,
    /// For each append, inherited ones included: where it ends, and the largest record time so far.
    marks: Vec<(usize, Option<u64>)>,
    pub retention: Retention,
    pub closed: bool,
    pub deleted: bool,
    pub used_at: Timestamp,
    /// The last use that an entry of the log recorded.
    pub logged_at: Timestamp,
    /// Every `Stream-Seq` that was accepted.
    pub seqs: Vec<String>,
    /// The place of every append that was accepted, by producer, epoch and sequence.
    pub produced: BTreeMap<String, BTreeMap<(u64, u64), Place>>,
    pub fork: Option<ForkPoint>,
    pub pins: Vec<Pin>,
}

/// Where an append ends, and its records.
pub(crate) type Place = (usize, (u64, u64));

/// All streams of a group, deleted ones that forks need included.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    pub streams: Vec<Stream>,
    pub pending_unpins: BTreeMap<PinToken, StreamKey>,
    /// When an expired stream is asked for again at the earliest.
    pub asked_until: BTreeMap<StreamId, Timestamp>,
    pub applied: u64,
    /// The negative control: a rule that this reference gets wrong.
    pub bug: Option<Bug>,
}

fn offset(bytes: usize) -> ByteOffset {
    ByteOffset::new(bytes as u64)
}

fn media_type(content_type: &ContentType) -> String {
    let (media_type, _) =
        content_type.as_str().split_once(';').unwrap_or((content_type.as_str(), ""));
    media_type.trim().to_lowercase()
}

fn answer(outcome: Outcome) -> Applied {
    Applied { outcome, placement: None, visible: None, effect: None }
}

fn refuse(refusal: Refusal) -> Applied {
    answer(Outcome::Refused(refusal))
}

impl Stream {
    pub(crate) fn info(&self) -> StreamInfo {
        StreamInfo {
            stream: self.id,
            content_type: self.content_type.clone(),
            layout: self.layout,
            lifetime: self.lifetime,
            head: offset(self.head),
            tail: offset(self.bytes.len()),
            first_record: self.record_at(self.head),
            next_record: self.next_record(),
            mark: self.mark_at(self.bytes.len()),
            retention: self.retention,
            closed: self.closed,
            created_at: self.created_at,
            written_at: self.written_at,
            lineage: self.fork.as_ref().map(|fork| fork.lineage.clone()).unwrap_or_default(),
        }
    }

    fn next_record(&self) -> u64 {
        self.record_ends.len() as u64
    }

    /// The number of the record that holds a byte; of the next one at the tail.
    pub(crate) fn record_at(&self, byte: usize) -> u64 {
        self.record_ends.iter().filter(|end| **end <= byte).count() as u64
    }

    /// The number of the first record that begins at a byte or behind it.
    pub(crate) fn record_from(&self, byte: usize) -> u64 {
        let starts = [0].into_iter().chain(self.record_ends.iter().copied());
        starts.take(self.record_ends.len()).filter(|start| *start < byte).count() as u64
    }

    /// The largest record time of what begins before a byte.
    pub(crate) fn mark_at(&self, byte: usize) -> Option<u64> {
        let starts = [0].into_iter().chain(self.marks.iter().map(|(end, _)| *end));
        let before = starts.zip(&self.marks).filter(|(start, _)| *start < byte);
        before.last().and_then(|(_, (_, mark))| *mark)
    }

    /// What is needed of it begins here.
    pub(crate) fn floor(&self, bug: Option<Bug>) -> usize {
        let own = if self.deleted { self.bytes.len() } else { self.head };
        let pins = self.pins.iter().map(|pin| pin.from.get() as usize);
        if bug == Some(Bug::TrimsBelowPins) { own } else { pins.chain([own]).min().unwrap() }
    }

    fn rise(&self, before: usize, bug: Option<Bug>) -> Option<Effect> {
        let floor = self.floor(bug);
        (floor > before).then_some(Effect::Trim(self.id, offset(floor)))
    }

    /// Adds records, and what their times are.
    fn add(
        &mut self,
        data: &[u8],
        count: u32,
        (at, given): (Timestamp, Option<RecordTime>),
    ) -> Option<TimeMarks> {
        if data.is_empty() {
            return None;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        // Their bytes do not matter here, but for the last one.
        let ends = (1..=count as usize).map(|number| start + data.len() * number / count as usize);
        self.record_ends.extend(ends);
        let last = self.marks.last().and_then(|(_, mark)| *mark);
        let arrived = if start > 0 { self.written_at.get() } else { 0 };
        let since = match given {
            Some(RecordTime::SinceArrival(since)) => Some(since),
            _ => last.map(|_| 0),
        };
        let marks = since.map(|since| {
            let before = last.unwrap_or(arrived);
            TimeMarks { before, upto: before.max(at.get().saturating_add_signed(since)) }
        });
        self.marks.push((self.bytes.len(), marks.map(|marks| marks.upto)));
        marks
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        match self.lifetime {
            Lifetime::Forever => false,
            Lifetime::Ttl { seconds } => self.used_at.plus_ms(seconds * 1000) <= now,
            Lifetime::ExpiresAt(at) => at <= now,
        }
    }

    /// How far uses may run ahead of the log: an eighth of the window, from a second to a minute.
    pub(crate) fn slack_ms(&self) -> Option<u64> {
        let Lifetime::Ttl { seconds } = self.lifetime else { return None };
        Some((seconds * 1000 / 8).clamp(1000, 60_000))
    }

    fn visible(&self) -> Option<Visible> {
        let tail = offset(self.bytes.len());
        let (next_record, closed) = (self.next_record(), self.closed);
        Some(Visible { stream: self.id, tail, next_record, closed, gone: self.deleted })
    }

    fn accepted(&self, producer: Option<(u64, u64)>, is_empty: bool, duplicate: bool) -> Outcome {
        Outcome::Appended(Accepted {
            stream: self.id,
            tail: offset(self.bytes.len()),
            records: None,
            closed: self.closed,
            producer,
            duplicate,
            close_only: is_empty,
        })
    }

    /// The answer to a repetition. Only that of the producer's last append has its own place.
    fn repeated(&self, producer: &Producer, last: u64, is_empty: bool) -> Outcome {
        let numbers = (producer.epoch, last);
        let Outcome::Appended(mut answer) = self.accepted(Some(numbers), is_empty, true) else {
            unreachable!("an append")
        };
        if producer.seq == last {
            let (end, records) = self.produced[&*producer.id][&numbers];
            (answer.tail, answer.records) = (offset(end), Some(records));
            answer.closed &= end == self.bytes.len();
        }
        Outcome::Appended(answer)
    }

    /// PROTOCOL §5.2 and §5.2.1: the answer to an append that adds nothing.
    fn judge(&self, append: &Append, data: &[u8], bug: Option<Bug>) -> Option<Outcome> {
        let refused = |refusal| Some(Outcome::Refused(refusal));
        if self.deleted {
            return refused(Refusal::Gone);
        }
        let numbers = append.producer.as_ref().map(|producer| self.judge_numbers(producer));
        if let Some(Err(stale @ Refusal::StaleEpoch { .. })) = numbers {
            return refused(stale);
        }
        let repeat = match (&numbers, &append.producer) {
            (Some(Ok(Some(last))), Some(producer)) => Some((producer, *last)),
            _ => None,
        };
        let is_close_only = append.close && data.is_empty();
        if self.closed && bug != Some(Bug::WritesBehindTheEnd) {
            if let Some((producer, last)) = repeat {
                return Some(self.repeated(producer, last, data.is_empty()));
            }
            if is_close_only && append.producer.is_none() {
                return Some(self.accepted(None, true, true));
            }
            return refused(Refusal::Closed { tail: offset(self.bytes.len()) });
        }
        let is_alike = |sent: &ContentType| media_type(sent) == media_type(&self.content_type);
        let fits = match &append.content_type {
            AppendType::Unnamed => false,
            AppendType::StreamsOwn => true,
            AppendType::Named(sent) => is_alike(sent),
        };
        if !data.is_empty() && !fits {
            return refused(Refusal::ContentType { expected: self.content_type.clone() });
        }
        match numbers {
            Some(Ok(Some(_))) => {
                return repeat
                    .map(|(producer, last)| self.repeated(producer, last, data.is_empty()));
            }
            Some(Err(refusal)) => return refused(refusal),
            _ => {}
        }
        let last = self.seqs.iter().max_by_key(|seq| seq.as_bytes());
        let rises = |last: &String| {
            append.stream_seq.as_ref().is_none_or(|seq| seq.as_bytes() > last.as_bytes())
        };
        if let Some(last) = last.filter(|last| !rises(last)) {
            return refused(Refusal::StreamSeq { last: last.as_str().into() });
        }
        let Condition { next_record: number, states } = append.condition.as_deref()?;
        let (next_record, tail) = (self.next_record(), offset(self.bytes.len()));
        if number.is_some_and(|number| number != next_record) && bug != Some(Bug::IgnoresRecords) {
            return refused(Refusal::RecordMatch { next_record, tail });
        }
        let own = StreamKey { group: GROUP, stream: self.id };
        let is_there = |state: &EndState| {
            state.stream == own && state.tail == tail && state.closed == self.closed
        };
        let fits = states.is_empty() || states.iter().any(is_there);
        (!fits).then_some(Outcome::Refused(Refusal::Precondition { tail }))
    }

    /// The last sequence if this append was accepted before, `None` if it is the next one.
    fn judge_numbers(&self, producer: &Producer) -> Result<Option<u64>, Refusal> {
        let (epoch, received) = (producer.epoch, producer.seq);
        let accepted = self.produced.get(&*producer.id).and_then(BTreeMap::last_key_value);
        let accepted = accepted.map(|(numbers, _)| *numbers);
        let Some((current, last)) = accepted else {
            let gap = Refusal::SeqGap { expected: 0, received };
            return if received == 0 { Ok(None) } else { Err(gap) };
        };
        if epoch < current {
            return Err(Refusal::StaleEpoch { current });
        }
        if epoch > current {
            return if received == 0 { Ok(None) } else { Err(Refusal::EpochStart { received }) };
        }
        if self.produced[&*producer.id].contains_key(&(epoch, received)) {
            return Ok(Some(last));
        }
        let gap = Refusal::SeqGap { expected: last + 1, received };
        if received == last + 1 { Ok(None) } else { Err(gap) }
    }

    fn take(&mut self, at: Timestamp, append: &Append, data: &[u8], bug: Option<Bug>) -> Applied {
        let start = offset(self.bytes.len());
        let (first_record, record_count) = (self.next_record(), append.record_count);
        let marks = self.add(data, record_count, (at, append.record_time));
        self.closed |= append.close;
        self.written_at = self.written_at.max(at);
        if bug != Some(Bug::WritesAreNoUse) {
            self.used_at = self.used_at.max(at);
            self.logged_at = self.logged_at.max(at);
        }
        self.seqs.extend(append.stream_seq.as_deref().map(String::from));
        let numbers = append.producer.as_ref().map(|producer| (producer.epoch, producer.seq));
        if let (Some(producer), true) = (&append.producer, bug != Some(Bug::ForgetsProducers)) {
            let id = producer.id.to_string();
            let place = (self.bytes.len(), (first_record, self.next_record()));
            self.produced.entry(id).or_default().insert((producer.epoch, producer.seq), place);
        }
        let placement = Placement { stream: self.id, start, first_record, record_count, marks };
        let mut outcome = self.accepted(numbers, data.is_empty(), false);
        if let Outcome::Appended(accepted) = &mut outcome {
            accepted.records = Some((first_record, self.next_record()));
        }
        Applied {
            placement: (!data.is_empty()).then_some(placement),
            visible: self.visible(),
            ..answer(outcome)
        }
    }

    /// PROTOCOL §5.1: the answer to a `PUT` of a path that is taken.
    fn judge_create(&self, wanted: &Create) -> Outcome {
        if self.deleted {
            return Outcome::Refused(Refusal::PathBlocked);
        }
        let asked = |fork: Option<&ForkPoint>| fork.map(|fork| fork.request.clone());
        let lifetime = |fork: Option<&ForkPoint>, own| fork.map_or(own, |fork| fork.lifetime);
        let (ours, theirs) = (self.fork.as_ref(), wanted.fork.as_deref());
        let same = [
            (ConfigField::Fork, asked(ours) == asked(theirs)),
            (
                ConfigField::ContentType,
                media_type(&self.content_type) == media_type(&wanted.content_type),
            ),
            (
                ConfigField::Lifetime,
                lifetime(ours, self.lifetime) == lifetime(theirs, wanted.lifetime),
            ),
            (ConfigField::Closed, self.closed == wanted.close),
        ];
        match same.into_iter().find(|(_, is_same)| !is_same) {
            Some((differs, _)) => Outcome::Refused(Refusal::Config { differs }),
            None => Outcome::Existed(Box::new(self.info())),
        }
    }
}

impl Reference {
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    pub(crate) fn find(&self, path: &StreamPath) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.path == *path)
    }

    /// What a client that names `path` at `now` finds.
    pub(crate) fn resolve(&self, path: &StreamPath, now: Timestamp) -> Result<StreamInfo, Refusal> {
        match self.find(path) {
            None => Err(Refusal::NotFound),
            Some(stream) if stream.deleted => Err(Refusal::Gone),
            Some(stream) if stream.is_expired(now) && stream.pins.is_empty() => {
                Err(Refusal::NotFound)
            }
            Some(stream) if stream.is_expired(now) => Err(Refusal::Gone),
            Some(stream) => Ok(stream.info()),
        }
    }

    /// The answer to an append that would change nothing.
    pub(crate) fn check_append(
        &self,
        id: StreamId,
        append: &Append,
        data: &[u8],
    ) -> Option<Outcome> {
        let Some(stream) = self.get(id) else {
            return Some(Outcome::Refused(Refusal::NotFound));
        };
        stream.judge(append, data, self.bug)
    }

    /// The answer to a `PUT` of a path that a stream alive at `now` holds.
    pub(crate) fn check_create(&self, wanted: &Create, now: Timestamp) -> Option<Outcome> {
        let stream = self.find(&wanted.path)?;
        if stream.is_expired(now) && !stream.deleted {
            let blocked = Outcome::Refused(Refusal::PathBlocked);
            return (!stream.pins.is_empty()).then_some(blocked);
        }
        Some(stream.judge_create(wanted))
    }

    pub(crate) fn apply(
        &mut self,
        at: Timestamp,
        id: StreamId,
        command: &Command,
        data: &[u8],
    ) -> Applied {
        self.applied += 1;
        match command {
            Command::Create(create) => self.create(at, create, data),
            Command::Append(append) => match self.check_append(id, append, data) {
                Some(outcome) => answer(outcome),
                None => {
                    let bug = self.bug;
                    self.get_mut(id).expect("was judged").take(at, append, data, bug)
                }
            },
            Command::Delete => self.delete(id, Outcome::Deleted),
            Command::Expire => self.delete(id, Outcome::Done),
            Command::Touch(used_at) => self.touched(id, *used_at),
            Command::Trim(trim) => self.trim(id, trim.to),
            Command::Change(change) => self.change(id, change),
            Command::Pin(pin) => self.pin(id, pin),
            Command::Unpin(token) => self.unpin(id, *token),
            // It never forgets a producer.
            Command::KeepProducers(_) => answer(Outcome::Done),
            Command::UnpinDone(token) => {
                self.pending_unpins.remove(token);
                answer(Outcome::Done)
            }
        }
    }

    fn create(&mut self, at: Timestamp, create: &Create, data: &[u8]) -> Applied {
        if let Some(stream) = self.find(&create.path) {
            return answer(stream.judge_create(create));
        }
        // PROTOCOL §4.2: a fork begins with its source's bytes.
        let inherited = create.fork.as_ref().map(|fork| {
            let source = self.get(fork.source.stream).expect("a fork's source is pinned");
            let at = fork.at.get() as usize;
            let count = source.record_from(at) as usize;
            let ends = source.record_ends[..count].iter().map(|end| (*end).min(at)).collect();
            let starts = [0].into_iter().chain(source.marks.iter().map(|(end, _)| *end));
            let before = starts.zip(&source.marks).filter(|(start, _)| *start < at);
            let marks = before.map(|(_, (end, mark))| ((*end).min(at), *mark)).collect();
            (source.bytes[..at].to_vec(), ends, marks)
        });
        let (bytes, record_ends, marks) = inherited.unwrap_or_default();
        let mut stream = Stream {
            id: StreamId::new(self.applied),
            path: create.path.clone(),
            content_type: create.content_type.clone(),
            layout: create.layout,
            lifetime: create.lifetime,
            head: create.fork.as_ref().map_or(0, |fork| fork.head.get() as usize),
            bytes,
            record_ends,
            marks,
            retention: create.retention,
            closed: create.close,
            deleted: false,
            created_at: at,
            written_at: at,
            used_at: at,
            logged_at: at,
            seqs: vec![],
            produced: BTreeMap::new(),
            fork: create.fork.as_deref().cloned(),
            pins: vec![],
        };
        let start = offset(stream.bytes.len());
        let (first_record, record_count) = (stream.next_record(), create.record_count);
        let marks = stream.add(data, record_count, (at, create.record_time));
        let placement = Placement { stream: stream.id, start, first_record, record_count, marks };
        let placement = (!data.is_empty()).then_some(placement);
        let applied = Applied { placement, ..answer(Outcome::Created(Box::new(stream.info()))) };
        self.streams.push(stream);
        applied
    }

    fn delete(&mut self, id: StreamId, done: Outcome) -> Applied {
        let bug = self.bug;
        let Some(stream) = self.get_mut(id) else { return refuse(Refusal::NotFound) };
        if stream.deleted {
            return refuse(Refusal::Gone);
        }
        let floor = stream.floor(bug);
        stream.deleted = true;
        let visible = stream.visible();
        let rise = stream.rise(floor, bug);
        // PROTOCOL §4.2: it stays behind, invisible, while forks read its bytes.
        let is_needed = !stream.pins.is_empty() && bug != Some(Bug::DeletesUnderForks);
        let effect = if is_needed { rise } else { self.purge(id) };
        Applied { visible, effect, ..answer(done) }
    }

    fn purge(&mut self, id: StreamId) -> Option<Effect> {
        let position = self.streams.iter().position(|stream| stream.id == id)?;
        let Some(fork) = self.streams.remove(position).fork else {
            return Some(Effect::Forget(id));
        };
        self.pending_unpins.insert(fork.token, fork.source);
        Some(Effect::ForgetFork { stream: id, source: fork.source, token: fork.token })
    }

    fn touched(&mut self, id: StreamId, used_at: Timestamp) -> Applied {
        if let Some(stream) = self.get_mut(id) {
            stream.used_at = stream.used_at.max(used_at);
            stream.logged_at = stream.logged_at.max(used_at);
        }
        answer(Outcome::Done)
    }

    fn trim(&mut self, id: StreamId, to: ByteOffset) -> Applied {
        let bug = self.bug;
        let Some(stream) = self.get_mut(id) else { return refuse(Refusal::NotFound) };
        if stream.deleted {
            return refuse(Refusal::Gone);
        }
        let floor = stream.floor(bug);
        stream.head = stream.head.max((to.get() as usize).min(stream.bytes.len()));
        let (head, first_record) = (offset(stream.head), stream.record_at(stream.head));
        let effect = stream.rise(floor, bug);
        Applied { effect, ..answer(Outcome::Trimmed { head, first_record }) }
    }

    fn change(&mut self, id: StreamId, change: &Change) -> Applied {
        let Some(stream) = self.get_mut(id) else { return refuse(Refusal::NotFound) };
        if stream.deleted {
            return refuse(Refusal::Gone);
        }
        let RetentionChange { age_seconds, bytes, records } = change.retention;
        let kept = &mut stream.retention;
        kept.age_seconds = age_seconds.unwrap_or(kept.age_seconds);
        kept.bytes = bytes.unwrap_or(kept.bytes);
        kept.records = records.unwrap_or(kept.records);
        answer(Outcome::Changed(Box::new(stream.info())))
    }

    fn pin(&mut self, id: StreamId, pin: &Pin) -> Applied {
        let bug = self.bug;
        let Some(stream) = self.get_mut(id) else { return refuse(Refusal::ForkSourceNotFound) };
        if stream.deleted {
            return refuse(Refusal::ForkSourceGone);
        }
        if !stream.pins.iter().any(|known| known.token == pin.token) {
            let from = pin.from.max(offset(stream.floor(bug)));
            stream.pins.push(Pin { from, ..pin.clone() });
        }
        let (head, first_record) = (offset(stream.head), stream.record_at(stream.head));
        answer(Outcome::Pinned { head, first_record })
    }

    fn unpin(&mut self, id: StreamId, token: PinToken) -> Applied {
        let bug = self.bug;
        let Some(stream) = self.get_mut(id) else { return answer(Outcome::Done) };
        let floor = stream.floor(bug);
        stream.pins.retain(|pin| pin.token != token);
        let rise = stream.rise(floor, bug).filter(|_| bug != Some(Bug::KeepsWhatWasPinned));
        let is_unused = stream.deleted && stream.pins.is_empty();
        let effect = if is_unused { self.purge(id) } else { rise };
        Applied { effect, ..answer(Outcome::Done) }
    }

    /// A use that no entry records; whether it must be recorded.
    pub(crate) fn touch(&mut self, id: StreamId, now: Timestamp) -> bool {
        let bug = self.bug;
        let Some(stream) = self.get_mut(id) else { return false };
        let Some(slack_ms) = stream.slack_ms() else { return false };
        if bug != Some(Bug::ReadsAreNoUse) {
            stream.used_at = stream.used_at.max(now);
        }
        stream.used_at >= stream.logged_at.plus_ms(slack_ms)
    }

    /// Streams that must be expired and were not asked for within the last second.
    pub(crate) fn due(&self, now: Timestamp) -> BTreeSet<StreamId> {
        let waits = |id| self.asked_until.get(&id).is_some_and(|until| *until > now);
        let is_due = |stream: &&Stream| !stream.deleted && stream.is_expired(now);
        let due = self.streams.iter().filter(is_due).map(|stream| stream.id);
        due.filter(|id| !waits(*id)).collect()
    }

    /// A restart from a checkpoint: uses that were not logged are lost, and made up for.
    pub(crate) fn restart(&mut self, forgives: bool) {
        self.asked_until.clear();
        for stream in &mut self.streams {
            let slack_ms = stream.slack_ms().filter(|_| forgives).unwrap_or(0);
            stream.used_at = stream.logged_at.plus_ms(slack_ms);
            if self.bug == Some(Bug::RestartsForgetSeqs) {
                stream.seqs.clear();
            }
        }
    }
}
