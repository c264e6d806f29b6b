//! Live readers by stream, and one encoded frame per commit for all of them.
//!
//! # How readers are grouped
//! Readers of a stream that want the same form (mode and framing) and have got the same bytes share
//! a [`Cohort`], which has one encoder. A commit is encoded once per cohort; each reader costs
//! one write. A reader whose queue is full leaves its cohort and catches up from its own offset
//! when its socket has drained: nobody buffers for it.
//!
//! # Watching
//! This shard watches a stream at its owner while it has readers of it. The owner's messages come
//! in order, so a cohort has seen every change since it began. The watch ends with its last reader.

use crate::{
    connection::{Piece, State},
    receive::NO_DATA,
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire,
};
use bytes::Bytes;
use log::Slice;
use model::{ByteOffset, StreamKey};
use node::{Change, ReadReply, Request};
use protocol::{
    BodyFraming, cursor,
    events::{Control, Mode, SseEncoder, put_with_cursor},
};
use std::collections::HashMap;

pub(crate) use crate::sse::SseReader;

/// The sender of requests without an answer.
const NOBODY: ConnId = ConnId { slot: u32::MAX, generation: 0 };

#[derive(Debug, Default)]
pub(crate) struct LiveStreams(HashMap<StreamKey, LiveStream>);

#[derive(Debug, Default)]
struct LiveStream {
    polls: Vec<ConnId>,
    cohorts: Vec<Cohort>,
    /// The owner was asked to tell of changes.
    watched: bool,
    /// The tail of the last change.
    tail: ByteOffset,
}

#[derive(Debug)]
struct Cohort {
    encoding: Encoding,
    encoder: SseEncoder,
    /// End of the bytes that the encoder was given.
    fed: ByteOffset,
    readers: Vec<ConnId>,
}

/// What makes two readers get the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub mode: Mode,
    pub framing: BodyFraming,
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
        for (key, stream) in &self.0 {
            let readers = stream.cohorts.iter().map(|cohort| cohort.readers.len()).sum::<usize>();
            assert!(readers + stream.polls.len() > 0, "{key:?} is watched for nobody");
        }
    }

    /// All readers, with their streams.
    pub(crate) fn readers(&self) -> Vec<(StreamKey, ConnId)> {
        let of = |(key, stream): (&StreamKey, &LiveStream)| {
            let live = stream.cohorts.iter().flat_map(|cohort| &cohort.readers);
            live.chain(&stream.polls).map(|id| (*key, *id)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Streams that have readers.
    pub(crate) fn stream_count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn add_poll(&mut self, key: StreamKey, id: ConnId) {
        self.0.entry(key).or_default().polls.push(id);
    }

    fn remove_poll(&mut self, key: StreamKey, id: ConnId) {
        if let Some(stream) = self.0.get_mut(&key) {
            stream.polls.retain(|known| *known != id);
        }
    }

    fn remove_reader(&mut self, key: StreamKey, id: ConnId) {
        if let Some(stream) = self.0.get_mut(&key) {
            for cohort in &mut stream.cohorts {
                cohort.readers.retain(|known| *known != id);
            }
            stream.cohorts.retain(|cohort| !cohort.readers.is_empty());
        }
    }

    /// Forgets a stream without readers; `true` if its owner tells of its changes.
    fn forget_unused(&mut self, key: StreamKey) -> bool {
        let unused = |stream: &LiveStream| stream.polls.is_empty() && stream.cohorts.is_empty();
        let is_unused = self.0.get(&key).is_some_and(unused);
        is_unused && self.0.remove(&key).is_some_and(|stream| stream.watched)
    }

    /// The position of the encoder of the reader's cohort.
    pub(crate) fn position_of(&self, key: StreamKey, id: ConnId) -> Option<ByteOffset> {
        let stream = self.0.get(&key)?;
        let cohort = stream.cohorts.iter().find(|cohort| cohort.readers.contains(&id))?;
        Some(cohort.encoder.position())
    }

    /// Makes a reader live that has got everything up to `fed`; `false` if more has come since.
    pub(crate) fn join(
        &mut self,
        key: StreamKey,
        id: ConnId,
        encoding: Encoding,
        (encoder, fed): (SseEncoder, ByteOffset),
    ) -> bool {
        let stream = self.0.entry(key).or_default();
        if stream.watched && stream.tail > fed {
            return false;
        }
        stream.cohorts.retain(|cohort| !cohort.readers.is_empty());
        let same = |cohort: &&mut Cohort| cohort.encoding == encoding && cohort.fed == fed;
        match stream.cohorts.iter_mut().find(same) {
            Some(cohort) => cohort.readers.push(id),
            None => stream.cohorts.push(Cohort { encoding, encoder, fed, readers: vec![id] }),
        }
        true
    }
}

impl<T: Transport> Step<'_, T> {
    /// Asks the owner to tell of changes, unless it does so already.
    pub(crate) fn ensure_watch(&mut self, id: ConnId, key: StreamKey) {
        let stream = self.state.live.0.entry(key).or_default();
        if !std::mem::replace(&mut stream.watched, true) {
            self.ask(id, Request::Watch { key }, NO_DATA);
        }
    }

    pub(crate) fn handle_change(&mut self, change: Change) {
        let key = change.key;
        let Some(stream) = self.state.live.0.get_mut(&key) else { return };
        stream.tail = stream.tail.max(change.tail);
        let polls = std::mem::take(&mut stream.polls);
        let cohorts = std::mem::take(&mut stream.cohorts);
        for id in polls {
            self.wake_poll(id, &change);
        }
        for cohort in cohorts {
            self.advance_cohort(cohort, &change);
        }
        if change.gone {
            self.state.live.forget_unused(key);
        } else {
            self.unwatch_unused(key);
        }
    }

    /// A long-poll is over.
    pub(crate) fn leave_poll(&mut self, key: StreamKey, id: ConnId) {
        self.state.live.remove_poll(key, id);
        self.unwatch_unused(key);
    }

    /// A live reader is over.
    pub(crate) fn leave_live(&mut self, key: StreamKey, id: ConnId) {
        self.state.live.remove_reader(key, id);
        self.unwatch_unused(key);
    }

    fn unwatch_unused(&mut self, key: StreamKey) {
        if self.state.live.forget_unused(key) {
            self.ask(NOBODY, Request::Unwatch { key }, NO_DATA);
        }
    }

    fn wake_poll(&mut self, id: ConnId, change: &Change) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let State::LongPoll(poll) = &mut connection.state else { return };
        if change.tail <= poll.offset && !change.closed && !change.gone {
            poll.info.tail = change.tail;
            return self.state.live.add_poll(change.key, id);
        }
        let Some(poll) = self.take_poll(id) else { return };
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(poll.offset));
        if let Some(data) = data
            && !change.gone
        {
            let mut info = poll.info;
            info.tail = change.tail;
            info.closed = change.closed;
            let reply = ReadReply {
                key: poll.key,
                info,
                start: poll.offset,
                end: change.tail,
                first: Some(Slice::Bytes(data.clone())),
            };
            self.answer_read(id, &poll.request, reply);
            return self.resume_input(id);
        }
        // Too large to be shared, deleted, or closed without data: ask for the present state.
        self.reread(id, poll.request, poll.offset);
    }

    fn advance_cohort(&mut self, mut cohort: Cohort, change: &Change) {
        if change.gone {
            for id in cohort.readers {
                self.end_sse(id);
            }
            return;
        }
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(cohort.fed));
        let is_reached = change.tail == cohort.fed && !self.is_up_to_date(&cohort);
        if data.is_none() && (change.tail > cohort.fed || is_reached) {
            // Something is missing in between, or too large to be shared: each reads for itself. So do readers
            // who were beyond the tail until now.
            let position = cohort.encoder.position();
            for id in cohort.readers {
                self.fall_behind(id, position);
            }
            return;
        }
        if data.is_some() || change.closed {
            let cursor = cursor::current(self.state.now.wall);
            let frame = cohort.encode(data, change, cursor);
            self.fan_out(&mut cohort, &frame);
        }
        if !cohort.readers.is_empty() {
            let stream = self.state.live.0.entry(change.key).or_default();
            stream.cohorts.push(cohort);
        }
    }

    /// Whether its readers have all that there is, and not more: they were not beyond the tail.
    fn is_up_to_date(&self, cohort: &Cohort) -> bool {
        let is_told = |id: &ConnId| match &self.state.connections.get(*id)?.state {
            State::Sse(reader) => Some(reader.is_up_to_date()),
            _ => None,
        };
        cohort.readers.iter().find_map(is_told).unwrap_or(true)
    }

    fn fan_out(&mut self, cohort: &mut Cohort, frame: &Frame) {
        let now = self.state.now.monotonic;
        for id in std::mem::take(&mut cohort.readers) {
            let Some(connection) = self.state.connections.get_mut(id) else { continue };
            let State::Sse(reader) = &connection.state else { continue };
            if connection.queued_bytes + frame.framed.len()
                > self.state.options.live_queue_bytes_max
                && !connection.is_drained()
            {
                self.fall_behind(id, frame.before);
                continue;
            }
            let own;
            let bytes = match reader.cursor_ahead(frame.cursor) {
                None => &frame.framed,
                Some(cursor) => {
                    let mut plain = Vec::new();
                    put_with_cursor(&frame.plain, cursor, &mut plain);
                    own = Bytes::from(cohort.encoding.frame(&plain));
                    &own
                }
            };
            let sent = if !connection.is_drained() || self.state.fair.admit_frame(bytes.len()) {
                connection.send_shared(self.io, bytes, now)
            } else {
                connection.push(Piece::Bytes(bytes.clone()), now);
                self.state.fair.note_unsent(id);
                Ok(())
            };
            if sent.is_err() {
                self.drop_connection(id);
            } else if frame.closes {
                self.end_sse(id);
            } else {
                cohort.readers.push(id);
            }
        }
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
        let up_to_date = change.tail >= self.fed;
        let control = Control { cursor, up_to_date, closed: change.closed };
        self.encoder.end_event(control, &mut plain);
        self.fed = change.tail;
        let framed = self.encoding.frame(&plain).into();
        Frame { plain, framed, cursor, before, closes: change.closed }
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
