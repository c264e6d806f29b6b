//! The state machine and its reference, side by side: every step is taken by both, and every
//! answer compared.

use crate::{
    bug::Bug,
    reference::{GROUP, Reference},
    steps::{
        AppendStep, CONTENT_TYPES, CreateStep, LifetimeStep, Numbers, PATHS, SEQS, Step, Target,
        Wanted,
    },
};
use model::{ByteOffset, EntryIndex, StreamId, StreamKey, StreamPath, Term, Timestamp};
use proptest::{prelude::*, test_runner::TestCaseError};
use std::collections::BTreeMap;
use thalweg_stream::{
    Append, AppendType, Applied, Change, Command, Condition, ContentType, Create, CreateCheck,
    CreateRequest, Effect, EndState, ForkPoint, ForkRequest, GroupState, Lifetime, Lineage,
    LoggedCommand, Outcome, Pin, PinToken, Producer, RecordTime, StreamInfo, Trim,
};

/// No entry makes a stream with this id.
const NO_STREAM: StreamId = StreamId::new(0);

type Checked<T = ()> = Result<T, TestCaseError>;

/// Both machines and the little world around them.
pub(crate) struct Pair {
    pub real: GroupState,
    pub reference: Reference,
    pub now: Timestamp,
    /// What a log would hold: each byte under the stream and offset where `apply` placed it.
    pub stored: BTreeMap<(StreamId, u64), u8>,
    /// Every stream that ever was, with its path.
    pub created: Vec<(StreamId, usize)>,
    /// Every token that was ever made.
    pub tokens: Vec<PinToken>,
    /// Pins without a fork.
    orphans: Vec<(StreamId, PinToken)>,
    last_append: Option<(StreamId, Append, Vec<u8>)>,
}

pub(crate) fn path(number: usize) -> StreamPath {
    StreamPath::new(PATHS[number]).unwrap()
}

fn content_type(number: usize) -> ContentType {
    ContentType::new(CONTENT_TYPES[number])
}

impl Pair {
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        Self {
            real: GroupState::new(GROUP),
            reference: Reference { bug, ..Reference::default() },
            now: Timestamp::new(1_700_000_000_000),
            stored: BTreeMap::new(),
            created: vec![],
            tokens: vec![],
            orphans: vec![],
            last_append: None,
        }
    }

    pub(crate) fn take(&mut self, step: &Step) -> Checked {
        match step {
            Step::Create(create) => self.create(create, None).map(|_| ()),
            Step::Fork { source, at, create } => self.fork(*source, *at, create),
            Step::Append(append) => self.append(append),
            Step::Retry => match self.last_append.clone() {
                Some((stream, append, data)) => self.send(stream, append, data),
                None => Ok(()),
            },
            Step::Delete(target) => self.command(*target, Command::Delete),
            Step::Expire(target) => self.command(*target, Command::Expire),
            Step::Trim(target, to) => self.trim(*target, *to),
            Step::Change(target, retention) => {
                self.command(*target, Command::Change(Change { retention: *retention }))
            }
            Step::Touch(target) => self.touch(*target),
            Step::Pin(target) => self.orphan(*target),
            Step::Unpin(number) => self.unpin(*number),
            Step::Release(number) => self.release(*number),
            Step::Clock(ms) => {
                self.now = Timestamp::new(self.now.get().saturating_add_signed(*ms));
                Ok(())
            }
            Step::Poll { count_max, expires } => self.poll(*count_max, *expires),
            Step::Restart { forgives } => self.restart(*forgives),
        }
    }

    fn stream(&self, target: Target) -> StreamId {
        let newest = |path| self.created.iter().rev().find(|(_, its)| *its == path);
        let found = match target {
            Target::Path(path) => newest(path),
            Target::Any(number) => self.created.get(number % (self.created.len() + 1)),
        };
        found.map_or(NO_STREAM, |(stream, _)| *stream)
    }

    /// Lets both apply the command, as the log would give it back.
    fn apply(&mut self, stream: StreamId, command: &Command, data: &[u8]) -> Checked<Applied> {
        let mut bytes = vec![];
        command.encode(&mut bytes);
        let decoded = Command::decode(command.kind() as u8, &bytes).unwrap();
        prop_assert_eq!(&decoded, command);
        let data_bytes = data.len() as u64;
        let subject = decoded.subject(Some(stream));
        let entry = LoggedCommand { subject, command: decoded, data_bytes };
        let applied = self.real.apply(self.real.applied().next(), self.now, entry);
        self.real.check();
        let expected = self.reference.apply(self.now, stream, command, data);
        prop_assert_eq!(&applied, &expected, "{:?} of stream {}", command, stream);
        self.perform(&applied, data);
        Ok(applied)
    }

    /// What the log would do.
    fn perform(&mut self, applied: &Applied, data: &[u8]) {
        if let Some(placement) = applied.placement {
            let offsets = placement.start.get()..;
            let bytes = offsets.zip(data).map(|(at, byte)| ((placement.stream, at), *byte));
            self.stored.extend(bytes);
        }
        match applied.effect {
            Some(Effect::Forget(gone) | Effect::ForgetFork { stream: gone, .. }) => {
                self.stored.retain(|(stream, _), _| *stream != gone);
            }
            Some(Effect::Trim(trimmed, to)) => {
                self.stored.retain(|(stream, at), _| *stream != trimmed || *at >= to.get());
            }
            None => {}
        }
    }

    fn trim(&mut self, target: Target, to: u64) -> Checked {
        let stream = self.stream(target);
        let known = self.reference.get(stream);
        let first_record = known.map_or(0, |stream| stream.record_at(to as usize));
        let trim = Command::Trim(Trim { to: ByteOffset::new(to), first_record });
        self.apply(stream, &trim, b"").map(|_| ())
    }

    fn command(&mut self, target: Target, command: Command) -> Checked {
        self.apply(self.stream(target), &command, b"").map(|_| ())
    }

    fn create(&mut self, step: &CreateStep, fork: Option<ForkPoint>) -> Checked<Outcome> {
        let inherit = fork.as_ref().map(|fork| self.reference.get(fork.source.stream).unwrap());
        let asked = self.lifetime(step.lifetime);
        let own_type = || content_type(step.content_type);
        let content_type = inherit.map_or_else(own_type, |source| source.content_type.clone());
        let create = Create {
            path: path(step.path),
            layout: content_type.layout(),
            content_type,
            lifetime: inherit.map_or(asked, |source| asked.or_inherit(source.lifetime)),
            close: step.close,
            record_count: step.records.len() as u32,
            retention: step.retention,
            record_time: step.record_time.map(RecordTime::SinceArrival),
            fork: fork.map(Box::new),
        };
        let beforehand = self.real.check_create(&request_for(&create), self.now);
        let expired = self.real.expired_holder(&create.path, self.now);
        let beforehand = match beforehand {
            CreateCheck::Answered(outcome) => Some(outcome),
            CreateCheck::Free => None,
            CreateCheck::Expired(stream) => {
                prop_assert_eq!(Some(stream), expired);
                None
            }
        };
        prop_assert_eq!(&beforehand, &self.reference.check_create(&create, self.now));
        if let Some(expired) = expired {
            self.apply(expired, &Command::Expire, b"")?;
        }
        let data = step.records.concat();
        let outcome = self.apply(NO_STREAM, &Command::Create(Box::new(create)), &data)?.outcome;
        if let Outcome::Created(info) = &outcome {
            self.created.push((info.stream, step.path));
        }
        prop_assert!(beforehand.is_none_or(|answer| answer == outcome));
        Ok(outcome)
    }

    fn lifetime(&self, step: LifetimeStep) -> Lifetime {
        match step {
            LifetimeStep::Forever => Lifetime::Forever,
            LifetimeStep::Ttl(seconds) => Lifetime::Ttl { seconds },
            LifetimeStep::ExpiresIn(ms) => Lifetime::ExpiresAt(self.now.plus_ms(ms)),
        }
    }

    fn token(&mut self) -> PinToken {
        let token =
            PinToken { fork_group: GROUP, term: Term::new(1), nonce: self.tokens.len() as u64 };
        self.tokens.push(token);
        token
    }

    fn fork(&mut self, source: usize, at: usize, create: &CreateStep) -> Checked {
        let Ok(info) = self.reference.resolve(&path(source), self.now) else {
            return self.orphan(Target::Path(source));
        };
        let point = self.fork_point(path(source), &info, (at, create.lifetime));
        let (key, token) = (point.source, point.token);
        let pin = Pin { token, from: point.head, fork_path: path(create.path) };
        let pin = Command::Pin(pin);
        self.apply(key.stream, &pin, b"")?;
        if !matches!(self.create(create, Some(point))?, Outcome::Created(_)) {
            self.apply(key.stream, &Command::Unpin(token), b"")?;
        }
        Ok(())
    }

    fn fork_point(
        &mut self,
        source_path: StreamPath,
        info: &StreamInfo,
        (at, lifetime): (usize, LifetimeStep),
    ) -> ForkPoint {
        let source = StreamKey { group: GROUP, stream: info.stream };
        let at = info.head.advance(at as u64 % (info.tail.since(info.head) + 1));
        let offset = (at != info.tail).then_some(at);
        let known = self.reference.get(info.stream).unwrap();
        let records = known.record_from(at.get() as usize);
        let mark = known.mark_at(at.get() as usize);
        ForkPoint {
            request: ForkRequest { source: source_path, offset, sub_offset: 0 },
            source,
            token: self.token(),
            at,
            head: info.head,
            head_record: if info.head == at { records } else { info.first_record },
            records,
            mark,
            lifetime: self.lifetime(lifetime),
            lineage: Lineage::of_fork(&info.lineage, source, (at, records)),
        }
    }

    fn append(&mut self, step: &AppendStep) -> Checked {
        let stream = self.stream(step.target);
        let append = Append {
            content_type: step
                .content_type
                .map_or(AppendType::Unnamed, |number| AppendType::Named(content_type(number))),
            stream_seq: step.seq.map(|seq| SEQS[seq].into()),
            producer: step.producer.map(|producer| self.producer(stream, producer)),
            close: step.close,
            record_count: step.records.len() as u32,
            record_time: step.record_time.map(RecordTime::SinceArrival),
            condition: step.wanted.and_then(|wanted| self.condition(stream, wanted)),
        };
        self.send(stream, append, step.records.concat())
    }

    /// The condition that a stream is as it was so many records, or bytes, ago.
    fn condition(&self, stream: StreamId, wanted: Wanted) -> Option<Box<Condition>> {
        let info = self.reference.get(stream)?.info();
        let condition = match wanted {
            Wanted::Record { back } => {
                let next_record = Some(info.next_record.saturating_sub(back));
                Condition { next_record, states: vec![] }
            }
            Wanted::State { back, closed, other } => {
                let stream = StreamId::new(stream.get() + u64::from(other));
                let stream = StreamKey { group: GROUP, stream };
                let tail = ByteOffset::new(info.tail.get().saturating_sub(back));
                Condition { next_record: None, states: vec![EndState { stream, tail, closed }] }
            }
        };
        Some(Box::new(condition))
    }

    fn producer(&self, stream: StreamId, (id, numbers): (usize, Numbers)) -> Producer {
        let id = ["p", "q"][id];
        let produced = self.reference.get(stream).and_then(|stream| stream.produced.get(id));
        let last = produced.and_then(BTreeMap::last_key_value).map(|(numbers, _)| *numbers);
        let (epoch, seq) = match (numbers, last) {
            (Numbers::Raw { epoch, seq }, _) => (epoch, seq),
            (_, None) => (0, 0),
            (Numbers::Next, Some((epoch, seq))) => (epoch, seq + 1),
            (Numbers::Again { back }, Some((epoch, seq))) => (epoch, seq.saturating_sub(back)),
            (Numbers::Gap { left_out }, Some((epoch, seq))) => (epoch, seq + 1 + left_out),
            (Numbers::NewEpoch { seq }, Some((epoch, _))) => (epoch + 1, seq),
        };
        Producer { id: id.into(), epoch, seq }
    }

    fn send(&mut self, stream: StreamId, append: Append, data: Vec<u8>) -> Checked {
        let beforehand = self.real.check_append(stream, &append, data.len() as u64);
        prop_assert_eq!(&beforehand, &self.reference.check_append(stream, &append, &data));
        let applied = self.apply(stream, &Command::Append(append.clone()), &data)?;
        prop_assert!(beforehand.is_none_or(|answer| answer == applied.outcome));
        self.last_append = Some((stream, append, data));
        Ok(())
    }

    fn touch(&mut self, target: Target) -> Checked {
        let stream = self.stream(target);
        let must_log = self.real.touch(stream, self.now);
        prop_assert_eq!(must_log, self.reference.touch(stream, self.now));
        if must_log {
            self.apply(stream, &Command::Touch(self.now), b"")?;
        }
        Ok(())
    }

    fn orphan(&mut self, target: Target) -> Checked {
        let stream = self.stream(target);
        let token = self.token();
        let pin = Command::Pin(Pin { token, from: ByteOffset::ZERO, fork_path: path(0) });
        for _ in 0..2 {
            self.apply(stream, &pin, b"")?;
        }
        self.orphans.push((stream, token));
        Ok(())
    }

    fn unpin(&mut self, number: usize) -> Checked {
        if self.orphans.is_empty() {
            return Ok(());
        }
        // Not taken out of the list: to give it back again is harmless.
        let (stream, token) = self.orphans[number % self.orphans.len()];
        self.apply(stream, &Command::Unpin(token), b"").map(|_| ())
    }

    fn release(&mut self, number: usize) -> Checked {
        let unpins: Vec<_> = self.real.pending_unpins().collect();
        if unpins.is_empty() {
            return Ok(());
        }
        let (token, source) = unpins[number % unpins.len()];
        self.apply(source.stream, &Command::Unpin(token), b"")?;
        self.apply(NO_STREAM, &Command::UnpinDone(token), b"").map(|_| ())
    }

    fn poll(&mut self, count_max: usize, expires: bool) -> Checked {
        let due = self.reference.due(self.now);
        let mut looks_left = usize::MAX;
        let next = std::iter::from_fn(|| self.real.poll_expired(self.now, &mut looks_left));
        let polled: Vec<StreamId> = next.take(count_max).collect();
        prop_assert_eq!(polled.len(), due.len().min(count_max), "{:?} of {:?}", polled, due);
        for stream in polled {
            prop_assert!(due.contains(&stream), "{} is not due", stream);
            let again = self.reference.asked_until.insert(stream, self.now.plus_ms(1000));
            prop_assert!(again.is_none_or(|until| until <= self.now), "asked twice in a second");
            if expires {
                self.apply(stream, &Command::Expire, b"")?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, forgives: bool) -> Checked {
        let (header, rows) = (self.real.encode_header(), self.real.encode_rows());
        let mut restored = GroupState::new(GROUP);
        let applied: EntryIndex = self.real.applied();
        restored.restore_header(applied, &header).unwrap();
        for row in &rows {
            restored.restore_row(row.stream, &row.bytes).unwrap();
        }
        prop_assert_eq!(restored.encode_header(), header);
        prop_assert_eq!(restored.encode_rows(), rows);
        if forgives {
            restored.forgive_lost_touches();
        }
        self.real = restored;
        self.reference.restart(forgives);
        Ok(())
    }
}

/// What a client asks for who is to get `create`.
fn request_for(create: &Create) -> CreateRequest {
    CreateRequest {
        path: create.path.clone(),
        content_type: Some(create.content_type.clone()),
        lifetime: create.fork.as_ref().map_or(create.lifetime, |fork| fork.lifetime),
        close: create.close,
        fork: create.fork.as_ref().map(|fork| fork.request.clone()),
        retention: create.retention,
        record_time: create.record_time,
        record_count: create.record_count,
    }
}
