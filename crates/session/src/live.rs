//! Live readers by stream, and one encoded frame per commit for all of them.
//!
//! # How readers are grouped
//! Readers of a stream that want the same form (mode and framing) and have got the same bytes share
//! a [`Cohort`], which has one encoder. A commit is encoded once per cohort; each reader costs
//! one write. A change wakes long-polls, too ([`crate::due_answers`]). A reader whose queue is full leaves its cohort and catches up from its own offset
//! when its socket has drained: nobody buffers for it.
//!
//! # Watching
//! This shard watches a stream at its owner while it has readers of it. The owner's messages come
//! in order, so a cohort has seen every change since it began. The watch ends with its last reader.

use crate::{
    body::whole_answer,
    connection::{Piece, Poll, State},
    due_answers::{self, News, Shape, SharedAnswer},
    members::Members,
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire,
};
use bytes::Bytes;
use log::Slice;
use model::{ByteOffset, StreamKey, Timestamp};
use node::{Change, ReadReply, Request};
use protocol::{
    BodyFraming, cursor,
    events::{Control, Mode, SseEncoder, put_with_cursor},
    problem::{Code, Problem},
    response::ReadAnswer,
};
use std::collections::HashMap;

pub(crate) use crate::sse::SseReader;

/// The sender of requests without an answer: a slot that no slab gives out. An option would make every
/// ticket larger for one request that nobody answers.
const NOBODY: ConnId = ConnId { slot: u32::MAX, generation: 0 };

#[derive(Debug, Default)]
pub(crate) struct LiveStreams {
    streams: HashMap<StreamKey, LiveStream>,
    /// The number that the last member of any stream got.
    last_number: u64,
}

#[derive(Debug, Default)]
struct LiveStream {
    polls: Members<WaitingPoll>,
    cohorts: Vec<Cohort>,
    /// The owner was asked to tell of changes.
    watched: bool,
    /// The tail of the last change.
    tail: ByteOffset,
    /// A change is on its way to its readers: they are not in here, and come back.
    is_changing: bool,
}

/// A long-poll that has got everything up to `at`.
#[derive(Debug, Clone, Copy)]
struct WaitingPoll {
    id: ConnId,
    at: ByteOffset,
}

/// What an encoder was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fed {
    /// After its last byte.
    pub end: ByteOffset,
    /// Number of the record there, for readers who want numbers.
    pub next_record: Option<u64>,
}

#[derive(Debug)]
struct Cohort {
    encoding: Encoding,
    encoder: SseEncoder,
    /// What the encoder was given.
    fed: Fed,
    readers: Members<LiveReader>,
}

/// A live reader. A frame for thousands looks at nothing else of it but its connection: each look at memory that is its own costs as
/// much as all the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveReader {
    pub id: ConnId,
    /// Its cursors are at least this.
    pub cursor_min: u64,
    /// When its credential allows it no more, if ever.
    pub valid_until: Option<Timestamp>,
}

/// What makes two readers get the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub mode: Mode,
    pub framing: BodyFraming,
    /// Control events have the numbers of records.
    pub numbers: bool,
}

/// A frame for all readers of a cohort.
struct Frame {
    /// As the encoder wrote it.
    plain: Vec<u8>,
    /// As it goes out.
    framed: Bytes,
    cursor: u64,
    /// The position of a reader that has not got it.
    before: ByteOffset,
    closes: bool,
}

impl LiveStreams {
    /// Asserts that nothing is kept for streams without readers.
    pub(crate) fn check(&self) {
        for (key, stream) in &self.streams {
            let readers = stream.cohorts.iter().map(|cohort| cohort.readers.len()).sum::<usize>();
            assert!(readers + stream.polls.len() > 0, "{key:?} is watched for nobody");
        }
    }

    /// All who wait, with their streams.
    pub(crate) fn waiting(&self) -> Vec<(StreamKey, ConnId)> {
        let polls = self
            .streams
            .iter()
            .flat_map(|(key, stream)| stream.polls.iter().map(|poll| (*key, poll.id)));
        polls.chain(self.readers().map(|(key, reader)| (key, reader.id))).collect()
    }

    /// All live readers, with their streams.
    pub(crate) fn readers(&self) -> impl Iterator<Item = (StreamKey, LiveReader)> {
        self.streams.iter().flat_map(|(key, stream)| {
            let readers = stream.cohorts.iter().flat_map(|cohort| cohort.readers.iter());
            readers.map(|reader| (*key, *reader))
        })
    }

    /// Something of a live reader is another.
    pub(crate) fn renew_reader(&mut self, key: StreamKey, number: u64, reader: LiveReader) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let mut cohorts = stream.cohorts.iter_mut();
        if let Some(known) = cohorts.find_map(|cohort| cohort.readers.get_mut(number)) {
            *known = reader;
        }
    }

    /// Streams that have readers.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    fn take_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A long-poll waits for what follows `at`, under the number that is returned.
    pub(crate) fn add_poll(&mut self, key: StreamKey, id: ConnId, at: ByteOffset) -> u64 {
        let number = self.take_number();
        let stream = self.streams.entry(key).or_default();
        stream.polls.push(number, WaitingPoll { id, at });
        number
    }

    /// The tail of a stream after the last change.
    pub(crate) fn tail_of(&self, key: StreamKey) -> ByteOffset {
        self.streams.get(&key).map_or(ByteOffset::ZERO, |stream| stream.tail)
    }

    /// Whether a long-poll waits for a change. Otherwise one has woken it.
    pub(crate) fn has_poll(&self, key: StreamKey, number: u64) -> bool {
        self.streams.get(&key).is_some_and(|stream| stream.polls.has(number))
    }

    fn remove_poll(&mut self, key: StreamKey, number: u64) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.polls.remove(number);
        }
    }

    fn remove_reader(&mut self, key: StreamKey, number: u64) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.cohorts.iter_mut().for_each(|cohort| cohort.readers.remove(number));
            stream.cohorts.retain(|cohort| !cohort.readers.is_empty());
        }
    }

    /// Forgets a stream without readers; `true` if its owner tells of its changes.
    fn forget_unused(&mut self, key: StreamKey) -> bool {
        let unused = |stream: &LiveStream| {
            stream.polls.is_empty() && stream.cohorts.is_empty() && !stream.is_changing
        };
        let is_unused = self.streams.get(&key).is_some_and(unused);
        is_unused && self.streams.remove(&key).is_some_and(|stream| stream.watched)
    }

    /// The position of the encoder of the reader's cohort, and the number of the record there if it is known.
    pub(crate) fn place_of(
        &self,
        key: StreamKey,
        number: u64,
    ) -> Option<(ByteOffset, Option<u64>)> {
        let stream = self.streams.get(&key)?;
        let cohort = stream.cohorts.iter().find(|cohort| cohort.readers.has(number))?;
        let position = cohort.encoder.position();
        Some((position, cohort.fed.number_at(position)))
    }

    /// Makes a reader live that has got everything up to `fed`, under the number that is returned; `None` if more has
    /// come since.
    pub(crate) fn join(
        &mut self,
        key: StreamKey,
        reader: LiveReader,
        encoding: Encoding,
        (encoder, fed): (SseEncoder, Fed),
    ) -> Option<u64> {
        let number = self.take_number();
        let stream = self.streams.entry(key).or_default();
        if stream.watched && stream.tail > fed.end {
            return None;
        }
        stream.cohorts.retain(|cohort| !cohort.readers.is_empty());
        let same = |cohort: &Cohort| cohort.encoding == encoding && cohort.fed.end == fed.end;
        let place = stream.cohorts.iter().position(same).unwrap_or_else(|| {
            let readers = Members::default();
            stream.cohorts.push(Cohort { encoding, encoder, fed, readers });
            stream.cohorts.len() - 1
        });
        stream.cohorts[place].readers.push(number, reader);
        Some(number)
    }
}

impl<T: Transport> Step<'_, T> {
    /// Asks the owner to tell of changes, unless it does so already.
    pub(crate) fn ensure_watch(&mut self, id: ConnId, key: StreamKey) {
        let stream = self.state.live.streams.entry(key).or_default();
        if !std::mem::replace(&mut stream.watched, true) {
            self.ask_on_key(id, Request::Watch { key });
        }
    }

    pub(crate) fn handle_change(&mut self, change: Change) {
        let key = change.key;
        let Some(stream) = self.state.live.streams.get_mut(&key) else { return };
        stream.tail = stream.tail.max(change.tail);
        let is_over = change.closed || change.gone;
        let woken = stream.polls.take_if(|poll| is_over || change.tail > poll.at);
        let woken = woken.into_iter().map(|(number, poll)| (number, poll.id)).collect();
        let cohorts = std::mem::take(&mut stream.cohorts);
        stream.is_changing = true;
        self.state.due.add_news(&change, woken);
        for cohort in cohorts {
            self.advance_cohort(cohort, &change);
        }
        if let Some(stream) = self.state.live.streams.get_mut(&key) {
            stream.is_changing = false;
        }
        if change.gone {
            self.state.live.forget_unused(key);
        } else {
            self.unwatch_unused(key);
        }
        if self.state.due.is_any() {
            self.give_due();
        }
    }

    /// A long-poll is over.
    pub(crate) fn leave_poll(&mut self, key: StreamKey, number: u64) {
        self.state.live.remove_poll(key, number);
        self.unwatch_unused(key);
    }

    /// A live reader is over.
    pub(crate) fn leave_live(&mut self, key: StreamKey, number: u64) {
        self.state.live.remove_reader(key, number);
        self.unwatch_unused(key);
    }

    fn unwatch_unused(&mut self, key: StreamKey) {
        if self.state.live.forget_unused(key) {
            self.ask_on_key(NOBODY, Request::Unwatch { key });
        }
    }

    fn advance_cohort(&mut self, mut cohort: Cohort, change: &Change) {
        if change.gone {
            cohort.readers.iter().for_each(|reader| self.end_sse_in_turn(reader.id));
            return;
        }
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(cohort.fed.end));
        let is_reached = change.tail == cohort.fed.end && !self.is_up_to_date(&cohort);
        if data.is_none() && (change.tail > cohort.fed.end || is_reached) {
            // Something is missing in between, or too large to be shared: each reads for itself. So do readers
            // who were beyond the tail until now.
            let position = cohort.encoder.position();
            cohort.readers.iter().for_each(|reader| self.fall_behind(reader.id, position));
            return;
        }
        if data.is_some() || change.closed {
            let cursor = cursor::current(self.state.now.wall);
            let frame = cohort.encode(data, change, cursor);
            self.fan_out(&mut cohort, &frame);
        }
        if !cohort.readers.is_empty() {
            let stream = self.state.live.streams.entry(change.key).or_default();
            stream.cohorts.push(cohort);
        }
    }

    /// Whether its readers have all that there is, and not more: they were not beyond the tail.
    fn is_up_to_date(&self, cohort: &Cohort) -> bool {
        let is_told = |reader: &LiveReader| match &self.state.connections.get(reader.id)?.state {
            State::Sse(reader) => Some(reader.is_up_to_date()),
            _ => None,
        };
        cohort.readers.iter().find_map(is_told).unwrap_or(true)
    }

    fn fan_out(&mut self, cohort: &mut Cohort, frame: &Frame) {
        let encoding = cohort.encoding;
        cohort.readers.retain(|reader| self.send_frame(reader, encoding, frame));
    }

    /// Sends a frame to a reader, or queues it; `false` if the reader is live no more.
    fn send_frame(&mut self, reader: LiveReader, encoding: Encoding, frame: &Frame) -> bool {
        let (id, now) = (reader.id, self.state.now.monotonic);
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        if !matches!(connection.state, State::Sse(_)) {
            return false;
        }
        if reader.valid_until.is_some_and(|until| until <= self.state.now.wall) {
            // It ends where it reads on.
            self.fall_behind(id, frame.before);
            return false;
        }
        let queued_bytes = connection.queued_bytes + frame.framed.len();
        if queued_bytes > self.state.options.live_queue_bytes_max && !connection.is_drained() {
            self.fall_behind(id, frame.before);
            return false;
        }
        let own;
        let bytes = if reader.cursor_min <= frame.cursor {
            &frame.framed
        } else {
            let mut plain = Vec::new();
            put_with_cursor(&frame.plain, reader.cursor_min, &mut plain);
            own = Bytes::from(encoding.frame(&plain));
            &own
        };
        let (is_drained, parent) = (connection.is_drained(), connection.parent);
        let may_send = !is_drained || self.state.admit_frame(parent, bytes.len());
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        let sent = if may_send {
            connection.send_shared(self.io, bytes, now)
        } else {
            connection.push(Piece::Bytes(bytes.clone()), now);
            self.state.fair.note_unsent(id);
            Ok(())
        };
        if sent.is_err() && parent.is_some() {
            self.lose_stream(id);
        } else if sent.is_err() {
            self.drop_connection(id);
        } else if frame.closes {
            self.end_sse_in_turn(id);
        }
        sent.is_ok() && !frame.closes
    }
}

impl<T: Transport> Step<'_, T> {
    /// Gives answers that are due, as many as this turn has room for.
    pub(crate) fn give_due(&mut self) {
        let began_ns = self.io.turn_ns();
        while self.io.turn_ns() - began_ns <= due_answers::TURN_NS_MAX
            && let Some(id) = self.state.due.take_end()
        {
            self.end_sse_now(id);
        }
        while let Some(mut news) = self.state.due.news.pop_front() {
            self.give_news(&mut news);
            if !news.polls.is_empty() {
                return self.state.due.news.push_front(news);
            }
        }
    }

    fn give_news(&mut self, news: &mut News) {
        let began_ns = self.io.turn_ns();
        while self.io.turn_ns() - began_ns <= due_answers::TURN_NS_MAX
            && let Some((number, id)) = self.state.due.take_poll(news)
        {
            if let Some(poll) = self.take_poll(id, number) {
                self.answer_poll(id, *poll, news);
            }
        }
    }

    /// Answers a long-poll with what a change has brought.
    fn answer_poll(&mut self, id: ConnId, poll: Poll, news: &mut News) {
        if poll.is_expired(self.state.now.wall) {
            self.answer_problem(id, &Problem::new(Code::TokenExpired));
            return self.resume_input(id);
        }
        let change = &news.change;
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(poll.offset));
        // One that wants bounds, or numbers of records, asks for them.
        let is_plain = !change.gone && poll.request.records.is_none();
        let Some(data) = data.filter(|_| is_plain) else {
            // Too large to be shared, deleted, or closed without data: ask for the present state.
            return self.reread(id, poll.request, poll.offset);
        };
        let mut info = poll.info;
        (info.tail, info.closed) = (change.tail, change.closed);
        let first = Some(Slice::Bytes(data.clone()));
        let reply = ReadReply {
            key: poll.key,
            info,
            start: poll.offset,
            end: change.tail,
            first,
            records: None,
        };
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let meta = connection.meta;
        if !meta.may_be_followed() || !connection.ahead.is_empty() {
            self.answer_read(id, &poll.request, reply);
            return self.resume_input(id);
        }
        let shape = Shape {
            offset: poll.offset,
            is_now: poll.request.offset == model::ReadFrom::Now,
            cursor: self.next_cursor(poll.request.cursor),
            gzip: self.may_gzip(&poll.request, &reply),
            second: self.state.now.wall.get() / 1000,
            is_public: self.is_public(&poll.request),
            sender: meta.sender,
        };
        let known = news.last.take().filter(|(last, _)| *last == shape);
        let (_, shared) = news.last.insert(known.unwrap_or_else(|| {
            let answer = ReadAnswer {
                request: &poll.request,
                group: reply.key.group,
                info: &reply.info,
                start: reply.start,
                end: reply.end,
                is_stable: false,
                cursor: Some(shape.cursor),
                records: None,
                gzip: shape.gzip,
                is_public: shape.is_public,
                tail_age: self.state.options.tail_age,
            };
            let shown = (&self.state.date, &*self.state.options.pages);
            (shape, whole_answer(&meta, shown, &answer, data))
        }));
        let shared = shared.clone();
        self.send_whole(id, &shared);
    }

    /// Sends a whole answer, and ends the exchange.
    fn send_whole(&mut self, id: ConnId, answer: &SharedAnswer) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.note_head(answer.status, now);
        if connection.send_shared(self.io, &answer.bytes, now).is_err() {
            return self.drop_connection(id);
        }
        self.state.counts.count_answer(answer.status);
        self.state.counts.read_bytes += answer.read_bytes;
        self.end_exchange(id);
        self.resume_input(id);
    }
}

impl Cohort {
    fn encode(&mut self, data: Option<&Bytes>, change: &Change, cursor: u64) -> Frame {
        let before = self.encoder.position();
        let bytes = data.map_or(0, Bytes::len);
        let mut plain = Vec::with_capacity(self.encoder.frame_bytes(bytes));
        self.encoder.begin_event(cursor);
        if let Some(data) = data {
            self.encoder.push(data, &mut plain);
        }
        // Readers beyond the tail learn of its end alone.
        let up_to_date = change.tail >= self.fed.end;
        let next_record = self.encoding.numbers.then_some(change.next_record);
        let closed = change.closed;
        let control = Control { cursor, up_to_date, closed, next_record };
        self.encoder.end_event(control, &mut plain);
        self.fed = Fed { end: change.tail, next_record };
        let framed = self.encoding.frame(&plain).into();
        Frame { plain, framed, cursor, before, closes: change.closed }
    }
}

impl Fed {
    /// Number of the record at a reader's position, if that is where it has got to: the first bytes of a character keep it
    /// behind.
    pub(crate) fn number_at(self, position: ByteOffset) -> Option<u64> {
        self.next_record.filter(|_| position == self.end)
    }
}

impl Encoding {
    /// Events as they go out.
    pub(crate) fn frame(self, events: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(events.len() + 16);
        wire::put_body(self.framing, events, &mut out);
        out
    }
}
