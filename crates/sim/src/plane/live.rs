//! Live readers. See the server's `plane::live` and `plane::sse`.

use super::{
    exchange::{EventUnderWay, Phase, SseReader, State, wanted},
    shard::Shard,
};
use log::Slice;
use model::{ByteOffset, ReadFrom, StreamKey};
use node::{Change, Failure, ReadReply, Reply, Request};
use protocol::{
    cursor,
    http1::{BodyFraming, LAST_CHUNK, put_chunk},
    request::ReadRequest,
    response,
    sse::{Control, Mode, SseEncoder, put_control},
};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct LiveStreams(pub(super) BTreeMap<StreamKey, LiveStream>);

#[derive(Debug, Default)]
pub(super) struct LiveStream {
    pub(super) polls: Vec<u32>,
    pub(super) readers: Vec<u32>,
    watched: bool,
    tail: ByteOffset,
}

impl LiveStreams {
    pub(super) fn forget(&mut self, conn: u32) {
        for stream in self.0.values_mut() {
            stream.polls.retain(|known| *known != conn);
            stream.readers.retain(|known| *known != conn);
        }
    }
}

fn framed(events: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_chunk(&mut out, events);
    out
}

impl Shard {
    pub(super) fn ensure_watch(&mut self, conn: u32, key: StreamKey) {
        let stream = self.live_stream(key);
        if !std::mem::replace(&mut stream.watched, true) {
            self.ask(conn, Request::Watch { key });
        }
    }

    pub(super) fn handle_change(&mut self, change: &Change) {
        let Some(stream) = self.live.0.get_mut(&change.key) else { return };
        stream.tail = stream.tail.max(change.tail);
        let polls = std::mem::take(&mut stream.polls);
        let readers = std::mem::take(&mut stream.readers);
        for conn in polls {
            self.wake_poll(conn, change);
        }
        for conn in readers {
            self.advance(conn, change);
        }
        let Some(stream) = self.live.0.get(&change.key) else { return };
        if stream.polls.is_empty() && stream.readers.is_empty() {
            self.live.0.remove(&change.key);
            if !change.gone {
                self.ask(u32::MAX, Request::Unwatch { key: change.key });
            }
        }
    }

    fn wake_poll(&mut self, conn: u32, change: &Change) {
        let Some(exchange) = self.exchanges.get_mut(&conn) else { return };
        let State::Poll(poll) = &exchange.state else { return };
        if change.tail <= poll.offset && !change.closed && !change.gone {
            return self.live_stream(change.key).polls.push(conn);
        }
        let (request, offset) = (poll.request.clone(), poll.offset);
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(offset));
        if let Some(data) = data.filter(|_| !change.gone) {
            let mut info = poll.info.clone();
            (info.tail, info.closed) = (change.tail, change.closed);
            let first = Some(Slice::Bytes(data.clone()));
            let (start, end) = (offset, change.tail);
            let reply = ReadReply { key: change.key, info, start, end, first };
            return self.answer_read(conn, &request, reply);
        }
        let path = request.path.clone();
        self.wait_for(conn, super::exchange::Pending::Read(Box::new(request)));
        let boundary_bytes = self.options.boundary_bytes;
        let read = node::ReadRequest { path, from: ReadFrom::At(offset), boundary_bytes };
        self.ask(conn, Request::Read(read));
    }

    fn advance(&mut self, conn: u32, change: &Change) {
        if change.gone {
            return self.end_sse(conn);
        }
        let Some(reader) = self.reader(conn) else { return };
        let phase = std::mem::replace(&mut reader.phase, Phase::Moving);
        let Phase::Live(mut encoder, fed) = phase else { panic!("a live reader in {phase:?}") };
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(fed));
        if data.is_none() && change.tail > fed {
            let at = encoder.position();
            let mode = reader.mode;
            return self.ask_on(conn, SseEncoder::new(mode, at), at);
        }
        let mut at = fed;
        if data.is_some() || change.closed {
            let cursor = cursor::current(self.now.wall);
            let mut events = Vec::new();
            encoder.begin_event(cursor);
            if let Some(data) = data {
                encoder.push(data, &mut events);
            }
            let control = Control { cursor, up_to_date: true, closed: change.closed };
            encoder.end_event(control, &mut events);
            at = change.tail;
            self.send(conn, framed(&events), false);
            if change.closed {
                return self.end_sse(conn);
            }
        }
        self.live_stream(change.key).readers.push(conn);
        self.put_phase(conn, Phase::Live(encoder, at));
    }

    pub(super) fn begin_sse(&mut self, conn: u32, request: ReadRequest, reply: ReadReply) {
        let mode = Mode::of(&reply.info.content_type, request.base64);
        let mut out = Vec::new();
        let framing =
            self.write_head(conn, &mut out, |out, exchange| response::sse(out, exchange, mode));
        assert_eq!(framing, BodyFraming::Chunked, "events come in chunks");
        self.send(conn, out, false);
        let encoder = SseEncoder::new(mode, reply.start);
        let key = reply.key;
        let reader = SseReader { key, request, mode, phase: Phase::Moving, told_up_to_date: false };
        if let Some(exchange) = self.exchanges.get_mut(&conn) {
            exchange.state = State::Sse(Box::new(reader));
        }
        self.begin_event(conn, encoder, reply);
    }

    pub(super) fn handle_sse_reply(&mut self, conn: u32, reply: Reply) {
        let Some(reader) = self.reader(conn) else { return };
        match (std::mem::replace(&mut reader.phase, Phase::Moving), reply) {
            (Phase::Asked(encoder), Reply::Read(reply)) => self.begin_event(conn, encoder, *reply),
            (Phase::Event(event), Reply::Window(slice)) => self.take_bytes(conn, event, &slice),
            (_, Reply::Failed(failure)) => {
                let damaged = matches!(failure, Failure::Damaged { .. });
                self.cut(conn, if damaged { "damaged" } else { "" });
            }
            (_, Reply::Outcome(_)) => self.end_sse(conn),
            (phase, reply) => panic!("a reader of events in {phase:?} got {reply:?}"),
        }
    }

    fn reader(&mut self, conn: u32) -> Option<&mut SseReader> {
        match &mut self.exchanges.get_mut(&conn)?.state {
            State::Sse(reader) => Some(reader),
            _ => None,
        }
    }

    fn put_phase(&mut self, conn: u32, phase: Phase) {
        if let Some(reader) = self.reader(conn) {
            reader.phase = phase;
        }
    }

    fn begin_event(&mut self, conn: u32, mut encoder: SseEncoder, mut reply: ReadReply) {
        if reply.start == reply.end {
            return self.arrive(conn, encoder, &reply);
        }
        encoder.begin_event(cursor::current(self.now.wall));
        let first = reply.first.take();
        let next = reply.start;
        let event = Box::new(EventUnderWay { encoder, reply, next });
        match first {
            Some(slice) => self.take_bytes(conn, event, &slice),
            None => self.pump_event(conn, event),
        }
    }

    fn take_bytes(&mut self, conn: u32, mut event: Box<EventUnderWay>, slice: &Slice) {
        let Ok(bytes) = wanted(slice, event.next, event.reply.end) else {
            return self.cut(conn, "");
        };
        let mut out = Vec::new();
        event.encoder.push(&bytes, &mut out);
        event.next = event.next.advance(bytes.len() as u64);
        if !out.is_empty() {
            self.send(conn, framed(&out), false);
        }
        self.pump_event(conn, event);
    }

    fn pump_event(&mut self, conn: u32, event: Box<EventUnderWay>) {
        if event.next < event.reply.end {
            let (key, to) = event.reply.owner_of(event.next);
            let request = Request::Window { key, from: event.next, to };
            self.put_phase(conn, Phase::Event(event));
            return self.ask(conn, request);
        }
        let EventUnderWay { mut encoder, reply, .. } = *event;
        let up_to_date = reply.end == reply.info.tail;
        let closed = up_to_date && reply.info.closed;
        let cursor = cursor::current(self.now.wall);
        let mut out = Vec::new();
        encoder.end_event(Control { cursor, up_to_date, closed }, &mut out);
        self.send(conn, framed(&out), false);
        if let Some(reader) = self.reader(conn) {
            reader.told_up_to_date = up_to_date;
        }
        if closed {
            return self.end_sse(conn);
        }
        if up_to_date {
            return self.go_live(conn, encoder, reply.end);
        }
        self.ask_on(conn, encoder, reply.end);
    }

    /// At the tail without an event to send.
    fn arrive(&mut self, conn: u32, encoder: SseEncoder, reply: &ReadReply) {
        let cursor = cursor::current(self.now.wall);
        let closed = reply.info.closed;
        let Some(reader) = self.reader(conn) else { return };
        if closed || !reader.told_up_to_date {
            reader.told_up_to_date = true;
            let mut out = Vec::new();
            put_control(encoder.position(), Control { cursor, up_to_date: true, closed }, &mut out);
            self.send(conn, framed(&out), false);
        }
        if closed {
            return self.end_sse(conn);
        }
        self.go_live(conn, encoder, reply.end);
    }

    fn go_live(&mut self, conn: u32, encoder: SseEncoder, fed: ByteOffset) {
        let Some(reader) = self.reader(conn) else { return };
        let (key, mode) = (reader.key, reader.mode);
        let stream = self.live_stream(key);
        if stream.watched && stream.tail > fed {
            let at = encoder.position();
            return self.ask_on(conn, SseEncoder::new(mode, at), at);
        }
        stream.readers.push(conn);
        self.put_phase(conn, Phase::Live(encoder, fed));
        self.ensure_watch(conn, key);
    }

    fn ask_on(&mut self, conn: u32, encoder: SseEncoder, at: ByteOffset) {
        let boundary_bytes = self.options.sse_event_bytes;
        let Some(reader) = self.reader(conn) else { return };
        reader.phase = Phase::Asked(encoder);
        let path = reader.request.path.clone();
        let read = node::ReadRequest { path, from: ReadFrom::At(at), boundary_bytes };
        self.ask(conn, Request::Read(read));
    }

    fn end_sse(&mut self, conn: u32) {
        self.finish(conn, LAST_CHUNK.to_vec());
    }
}
