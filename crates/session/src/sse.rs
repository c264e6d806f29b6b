//! One reader of server-sent events: catching up by reads, then live with the others.
//!
//! A reader alternates between two ways of life. While it is behind, it reads its own way to the
//! tail: one read is one event, whose bytes come in windows and are encoded as the socket takes
//! them. At the tail it joins the others of its form (see [`crate::live`]).

use crate::{
    connection::State,
    live::{Encoding, Fed, LiveReader},
    receive::NO_DATA,
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire,
};
use access::Authorized;
use model::{ByteOffset, Monotonic, ReadFrom, ReadRecords, StreamKey, Timestamp};
use node::{Failure, ReadReply, Reply, Request};
use protocol::{
    cursor,
    events::{Control, Mode, SseEncoder, put_control},
    request::ReadRequest,
    response,
    sse::{HEARTBEAT, RETRY},
};

#[derive(Debug)]
pub(crate) struct SseReader {
    pub key: StreamKey,
    pub request: Authorized<ReadRequest>,
    /// The rules allow it no more.
    pub is_revoked: bool,
    encoding: Encoding,
    phase: Phase,
    /// The reader's position while it is not live, and the number of the record there if it is wanted and known.
    position: ByteOffset,
    next_record: Option<u64>,
    since: Monotonic,
    /// Cursors of this reader are at least this: it came with one ahead of the interval.
    cursor_min: u64,
    told_up_to_date: bool,
}

#[derive(Debug)]
enum Phase {
    /// A read was asked for.
    Asked(SseEncoder),
    /// An event is under way.
    Event(Box<EventUnderWay>),
    /// At the tail, with the others, under this number.
    Live(u64),
    /// Fell out of the live ones; reads on when the socket has drained.
    Behind,
    /// It has got its last event; the answer ends in its turn.
    Ending,
}

#[derive(Debug)]
struct EventUnderWay {
    encoder: SseEncoder,
    reply: ReadReply,
    next: ByteOffset,
    asked: bool,
}

impl SseReader {
    /// What frames for all have to know of it.
    pub(crate) fn as_live(&self, id: ConnId) -> LiveReader {
        let who = self.request.permit().who();
        let valid_until = who.and_then(|who| who.valid_until());
        LiveReader { id, cursor_min: self.cursor_min, valid_until }
    }

    /// Between two events, so that something else may be sent or the answer may end.
    pub(crate) fn is_between_events(&self) -> bool {
        matches!(self.phase, Phase::Live(_) | Phase::Behind)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live_number().is_some()
    }

    /// Its number among the live readers of its stream.
    pub(crate) fn live_number(&self) -> Option<u64> {
        match self.phase {
            Phase::Live(number) => Some(number),
            _ => None,
        }
    }

    /// Whether nothing is left but the end of the answer.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending)
    }

    /// Live, and knows that nothing is missing: it is not beyond the tail.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.is_live() && self.told_up_to_date
    }

    /// It has got all before `position`.
    fn stand_at(&mut self, position: ByteOffset, fed: Fed) {
        self.position = position;
        self.next_record = fed.number_at(position);
    }

    /// Whether its credential allows it no more.
    #[inline]
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.is_revoked || self.request.permit().is_over(now)
    }

    pub(crate) fn is_over(&self, now: Monotonic, duration_ms_max: u64) -> bool {
        self.is_between_events() && now.ms_since(self.since) >= duration_ms_max
    }
}

impl<T: Transport> Step<'_, T> {
    pub(crate) fn begin_sse(
        &mut self,
        id: ConnId,
        mut request: Authorized<ReadRequest>,
        reply: ReadReply,
    ) {
        if !self.may_last(id, &mut request) {
            return;
        }
        let mode = Mode::of(reply.info.layout, &reply.info.content_type, request.base64);
        let framing = self.send_head(id, |head| response::sse(head, mode));
        let Some(framing) = framing else { return };
        let current = cursor::current(self.state.now.wall);
        let cursor_min = match request.cursor {
            Some(client) if client >= current => self.next_cursor(Some(client)),
            _ => 0,
        };
        let numbers = request.records.is_some();
        let reader = SseReader {
            key: reply.key,
            request,
            is_revoked: false,
            encoding: Encoding { mode, framing, numbers },
            phase: Phase::Behind,
            position: reply.start,
            next_record: None,
            since: self.state.now.monotonic,
            cursor_min,
            told_up_to_date: false,
        };
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.meta.note_framing(framing);
        connection.state = State::Sse(Box::new(reader));
        self.state.counts.live_readers += 1;
        if !self.send_events(id, RETRY) {
            return;
        }
        let encoder = SseEncoder::new(mode, reply.start);
        self.begin_event(id, encoder, reply);
    }

    pub(crate) fn handle_sse_reply(&mut self, id: ConnId, reply: Reply) {
        let Some(reader) = self.reader(id) else { return };
        match (std::mem::replace(&mut reader.phase, Phase::Behind), reply) {
            (Phase::Asked(encoder), Reply::Read(reply)) => {
                self.begin_event(id, encoder, *reply);
            }
            (Phase::Event(mut event), Reply::Window(slice)) => {
                event.asked = false;
                self.take_event_bytes(id, event, &slice);
            }
            // The stream begins behind the reader now. What it has got is whole: it learns so when it asks again.
            (Phase::Asked(_), Reply::Failed(Failure::Trimmed { .. })) => {
                self.end_sse_with_control(id);
            }
            (_, Reply::Failed(failure)) => {
                self.cut(id, failure);
            }
            // Deleted or expired in between: the next request gets that answer.
            (_, Reply::Outcome(_)) => self.end_sse(id),
            (phase, reply) => unreachable!("an SSE reader in {phase:?} got {reply:?}"),
        }
    }

    fn reader(&mut self, id: ConnId) -> Option<&mut SseReader> {
        match &mut self.state.connections.get_mut(id)?.state {
            State::Sse(reader) => Some(reader),
            _ => None,
        }
    }

    fn cursor_for(&mut self, id: ConnId) -> u64 {
        let current = cursor::current(self.state.now.wall);
        self.reader(id).map_or(current, |reader| current.max(reader.cursor_min))
    }

    fn begin_event(&mut self, id: ConnId, mut encoder: SseEncoder, mut reply: ReadReply) {
        if reply.start == reply.end {
            return self.arrive(id, encoder, &reply);
        }
        encoder.begin_event(self.cursor_for(id));
        let first = reply.first.take();
        let next = reply.start;
        let event = Box::new(EventUnderWay { encoder, reply, next, asked: false });
        match first {
            Some(slice) => self.take_event_bytes(id, event, &slice),
            None => {
                self.put_phase(id, Phase::Event(event));
                self.continue_sse(id);
            }
        }
    }

    fn take_event_bytes(&mut self, id: ConnId, mut event: Box<EventUnderWay>, slice: &log::Slice) {
        let bytes = match slice.to_bytes() {
            Ok(bytes) => bytes,
            Err(error) => {
                return self.cut(id, Failure::Io { error: error.to_string() });
            }
        };
        let wanted = usize::try_from(event.reply.end.since(event.next)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(wanted)];
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 2);
        event.encoder.push(bytes, &mut out);
        event.next = event.next.advance(bytes.len() as u64);
        self.state.counts.read_bytes += bytes.len() as u64;
        if !self.send_events(id, &out) {
            return;
        }
        self.put_phase(id, Phase::Event(event));
        self.continue_sse(id);
    }

    /// Continues when the socket has taken what there was.
    pub(crate) fn continue_sse(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if !connection.is_drained() {
            return;
        }
        let State::Sse(reader) = &mut connection.state else { return };
        match &reader.phase {
            Phase::Asked(_) | Phase::Live(_) | Phase::Ending => return,
            Phase::Event(event) if event.asked => return,
            Phase::Event(event) if event.next >= event.reply.end => return self.end_event(id),
            Phase::Event(_) | Phase::Behind => {}
        }
        if !self.may_move(id) {
            return;
        }
        let Some(reader) = self.reader(id) else { return };
        match &mut reader.phase {
            Phase::Asked(_) | Phase::Live(_) | Phase::Ending => {}
            Phase::Behind => {
                let encoder = SseEncoder::new(reader.encoding.mode, reader.position);
                let at = reader.position;
                self.ask_on(id, encoder, at);
            }
            Phase::Event(event) => {
                event.asked = true;
                let (key, to) = event.reply.owner_of(event.next);
                let request = Request::Window { key, from: event.next, to };
                self.note_window(id);
                self.ask_on_key(id, request);
            }
        }
    }

    fn end_event(&mut self, id: ConnId) {
        let cursor = self.cursor_for(id);
        let Some(reader) = self.reader(id) else { return };
        let Phase::Event(event) = std::mem::replace(&mut reader.phase, Phase::Behind) else {
            return;
        };
        let EventUnderWay { mut encoder, reply, .. } = *event;
        let at_tail = reply.end == reply.info.tail;
        let closed = at_tail && reply.info.closed;
        let mut out = Vec::new();
        let next_record = reply.records.map(|(_, next)| next);
        encoder.end_event(Control { cursor, up_to_date: at_tail, closed, next_record }, &mut out);
        reader.told_up_to_date = at_tail;
        let fed = Fed { end: reply.end, next_record };
        reader.stand_at(encoder.position(), fed);
        if !self.send_events(id, &out) {
            return;
        }
        if closed {
            return self.end_sse(id);
        }
        if at_tail {
            return self.go_live(id, encoder, fed);
        }
        // A reader that must wait is behind, and begins from its position when it is called.
        if self.may_move(id) {
            self.ask_on(id, encoder, reply.end);
        }
    }

    /// At the tail without an event to send.
    fn arrive(&mut self, id: ConnId, encoder: SseEncoder, reply: &ReadReply) {
        let cursor = self.cursor_for(id);
        let (closed, up_to_date) = (reply.info.closed, reply.end <= reply.info.tail);
        let fed = Fed { end: reply.end, next_record: reply.records.map(|(_, next)| next) };
        let Some(reader) = self.reader(id) else { return };
        reader.stand_at(encoder.position(), fed);
        if closed || !reader.told_up_to_date {
            reader.told_up_to_date = up_to_date;
            let mut out = Vec::new();
            let control = Control { cursor, up_to_date, closed, next_record: reader.next_record };
            put_control(encoder.position(), control, &mut out);
            if !self.send_events(id, &out) {
                return;
            }
        }
        if closed {
            return self.end_sse(id);
        }
        self.go_live(id, encoder, fed);
    }

    fn go_live(&mut self, id: ConnId, encoder: SseEncoder, fed: Fed) {
        if self.state.stopping.is_some() {
            return self.end_sse(id);
        }
        let position = encoder.position();
        let wall = self.state.now.wall;
        let Some(reader) = self.reader(id) else { return };
        if reader.is_expired(wall) {
            return self.end_sse_with_control(id);
        }
        let (key, encoding, live) = (reader.key, reader.encoding, reader.as_live(id));
        match self.state.live.join(key, live, encoding, (encoder, fed)) {
            Some(number) => {
                self.put_phase(id, Phase::Live(number));
                self.ensure_watch(id, key);
            }
            None => self.fall_behind(id, position),
        }
    }

    /// A reader leaves the live ones at `position` and reads on by itself.
    pub(crate) fn fall_behind(&mut self, id: ConnId, position: ByteOffset) {
        let Some(reader) = self.reader(id) else { return };
        reader.position = position;
        reader.next_record = None;
        reader.phase = Phase::Behind;
        self.continue_sse(id);
    }

    fn ask_on(&mut self, id: ConnId, encoder: SseEncoder, at: ByteOffset) {
        if self.state.stopping.is_some() {
            return self.end_sse(id);
        }
        let now = self.state.now.wall;
        let boundary_bytes = self.state.options.event_boundary_bytes;
        let Some(reader) = self.reader(id) else { return };
        if reader.is_expired(now) {
            return self.end_sse_with_control(id);
        }
        reader.phase = Phase::Asked(encoder);
        let read =
            reader.request.part(|request| read_at(request, at, boundary_bytes, request.records));
        self.ask(id, read, NO_DATA);
    }

    fn put_phase(&mut self, id: ConnId, phase: Phase) {
        if let Some(reader) = self.reader(id) {
            reader.phase = phase;
        }
    }

    /// Sends encoded events; `false` if the connection is gone.
    fn send_events(&mut self, id: ConnId, events: &[u8]) -> bool {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        let State::Sse(reader) = &connection.state else { return false };
        if events.is_empty() {
            return true;
        }
        let framed = reader.encoding.frame(events);
        if connection.send(self.io, &framed, now).is_err() {
            self.drop_connection(id);
            return false;
        }
        true
    }

    /// A comment for a reader that has heard nothing for a while.
    pub(crate) fn send_heartbeat(&mut self, id: ConnId) {
        self.send_events(id, HEARTBEAT);
    }

    /// Ends the answer with a control event that says where to continue.
    pub(crate) fn end_sse_with_control(&mut self, id: ConnId) {
        let cursor = self.cursor_for(id);
        let Some(reader) = self.reader(id) else { return };
        let (key, number) = (reader.key, reader.live_number());
        let own = (reader.position, reader.next_record);
        let up_to_date = reader.is_up_to_date();
        let place = number.and_then(|number| self.state.live.place_of(key, number));
        let (position, next_record) = place.unwrap_or(own);
        let mut out = Vec::new();
        let control = Control { cursor, up_to_date, closed: false, next_record };
        put_control(position, control, &mut out);
        if !self.send_events(id, &out) {
            return;
        }
        if let Some(number) = number {
            self.leave_live(key, number);
        }
        self.end_sse(id);
    }

    /// Ends the answer between two events, when its turn has come. Many may end at the same time.
    pub(crate) fn end_sse_in_turn(&mut self, id: ConnId) {
        if let Some(reader) = self.reader(id) {
            reader.phase = Phase::Ending;
            self.state.due.add_end(id);
        }
    }

    /// The turn of an answer that ends has come. Its connection may be gone.
    pub(crate) fn end_sse_now(&mut self, id: ConnId) {
        if self.reader(id).is_some_and(|reader| reader.is_ending()) {
            self.end_sse(id);
        }
    }

    /// Ends the answer between two events. The reader is in no cohort any more.
    pub(crate) fn end_sse(&mut self, id: ConnId) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let State::Sse(reader) = &connection.state else { return };
        let framing = reader.encoding.framing;
        let end = wire::end_of_body(framing);
        if !end.is_empty() && connection.send(self.io, end, now).is_err() {
            return self.drop_connection(id);
        }
        self.state.counts.live_readers -= 1;
        self.end_exchange(id);
        self.resume_input(id);
    }

    /// Asks again for the state of a stream, for a long-poll whose change carried no data.
    pub(crate) fn reread(&mut self, id: ConnId, request: Authorized<ReadRequest>, at: ByteOffset) {
        let boundary_bytes = self.state.options.answer_boundary_bytes;
        let read = request.part(|request| read_at(request, at, boundary_bytes, request.records));
        self.wait_for(id, crate::connection::Pending::Read(Box::new(request)));
        self.ask(id, read, NO_DATA);
    }
}

/// A read of what a live reader lacks: it has its turn, so the first bytes come with it.
fn read_at(
    request: &ReadRequest,
    at: ByteOffset,
    boundary_bytes: u64,
    records: Option<ReadRecords>,
) -> Request {
    let (path, from, first_bytes_max) = (request.path.clone(), ReadFrom::At(at), u64::MAX);
    Request::Read(node::ReadRequest { path, from, boundary_bytes, first_bytes_max, records })
}
