//! Connections that carry many exchanges at once.
//!
//! # Manner
//! Each exchange is a connection of its own in the slab, with a [`crate::wire::StreamWire`] where others have a transport. So
//! all that holds for a connection holds for it: its states, its queue, its limits in time. The connection that carries
//! them has [`State::Streams`]: it moves frames, opens exchanges, and knows which it has.
//!
//! # Driving it
//! The wire writes down which lines and streams something has happened to. [`Step::run_ready`] looks at them after each input,
//! so nothing here is called from within an exchange.
//!
//! # Invariants
//! - An exchange that the client gave up counts among those of its line until the node has answered.
//! - A line whose client takes nothing reads nothing. It holds what one poll leaves, and what each exchange may queue.
//! - A turn gives a line that brings no requests 16 KiB of input.

use crate::{
    carried::Streams,
    connection::{Connection, State},
    sessions::{Sessions, Step},
    slab::ConnId,
    transport::Transport,
    wire::{Arrived, Brought, Data, Line, Meta, StreamWire, Wire},
};
use protocol::{HeadSink, problem::Problem};
use std::sync::Arc;

/// The part of a turn's budget that a request takes. Some are under way together, so they share what a flight costs.
const REQUEST_BUDGET_BYTES: usize = 16 << 10;

/// Input without requests or bodies after which the others have their turn.
const IDLE_BYTES_MAX: usize = 8 << 10;

/// Rounds of looks after one input.
const ROUNDS_MAX: usize = 64;

/// What stands for a connection or a stream in the list of those that are ready.
fn key_of(id: ConnId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.slot)
}

fn id_of(key: u64) -> ConnId {
    ConnId { slot: key as u32, generation: (key >> 32) as u32 }
}

impl Sessions {
    /// Asserts that streams and lines know each other.
    pub(crate) fn check_streams(&self) {
        for id in self.connections.ids() {
            let connection = self.connections.get(id).expect("just listed");
            if let State::Streams(streams) = &connection.state {
                let is_ours = |child: &ConnId| {
                    self.connections.get(*child).is_some_and(|child| child.parent == Some(id))
                };
                assert!(streams.open.iter().all(is_ours), "{id:?} has streams that are gone");
            }
            let Some(parent) = connection.parent else { continue };
            let parent = self.connections.get(parent).map(|parent| &parent.state);
            let is_known =
                matches!(parent, Some(State::Streams(streams)) if streams.open.contains(&id));
            assert!(is_known, "{id:?} is a stream of nobody");
        }
    }
}

impl<T: Transport> Step<'_, T> {
    /// The connection that carries an exchange.
    pub(crate) fn line_of(&self, id: ConnId) -> ConnId {
        self.state.connections.get(id).and_then(|connection| connection.parent).unwrap_or(id)
    }

    /// Looks at all lines and streams that something has happened to, as far as the turn has time.
    #[inline]
    pub(crate) fn run_ready(&mut self) {
        if self.state.ready.is_any() {
            self.look_at_ready();
        }
    }

    fn look_at_ready(&mut self) {
        for _ in 0..ROUNDS_MAX {
            for id in self.state.ready.take().into_iter().map(id_of) {
                match self.state.connections.get(id) {
                    None => {}
                    Some(connection) if connection.is_stream() => self.look_at_stream(id),
                    Some(_) => self.drive(id),
                }
            }
            if !self.state.ready.is_any() || self.is_turn_long() {
                return;
            }
        }
    }

    /// A connection turns out to carry many exchanges; `bytes` is what its client has sent.
    pub(crate) fn begin_streams(&mut self, id: ConnId, bytes: &[u8]) {
        let now = self.state.now.monotonic;
        let mut line = Line::new(&self.state.limits, key_of(id), &self.state.ready);
        line.receive(bytes);
        if self.state.stopping.is_some() {
            line.shut_down();
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.state = State::Streams(Box::new(Streams::new(line, now)));
    }

    /// The client sends no more frames.
    pub(crate) fn end_frames(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.readable = false;
        connection.has_ended = true;
        if let State::Streams(streams) = &mut connection.state {
            streams.line.end_input();
        }
    }

    /// Moves the frames of a line: one round of input, all requests in it, and what is to be sent.
    fn drive(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let is_drained = connection.is_drained();
        let State::Streams(streams) = &mut connection.state else { return };
        streams.line.look();
        if connection.yielded || !is_drained {
            // It is looked at again in its turn, or when there is room.
            return;
        }
        if streams.idle_bytes.saturating_sub(streams.line.take_read_bytes()) > IDLE_BYTES_MAX {
            streams.idle_bytes = 0;
            return self.yield_input(id);
        }
        let before = streams.line.input_bytes();
        streams.line.allow_input();
        streams.line.lend(std::mem::take(&mut self.state.frames_buffer));
        let Some(request_count) = self.accept(id) else { return self.end_streams(id) };
        self.send_frames(id);
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let State::Streams(streams) = &mut connection.state else { return };
        let left = streams.line.input_bytes();
        streams.idle_bytes = if request_count == 0 { before.saturating_sub(left) } else { 0 };
        if left > 0 {
            streams.line.knock();
        } else if connection.readable && !connection.yielded {
            self.handle_readable(id, false);
        }
    }

    /// Takes requests of a line; how many there were, `None` if the line is over.
    fn accept(&mut self, id: ConnId) -> Option<usize> {
        let streams_max = self.state.options.http2_streams_max as usize;
        let turn = self.state.turn;
        let mut count = 0;
        while let Some(connection) = self.state.connections.get_mut(id) {
            let is_spent = connection.is_spent(turn);
            let State::Streams(streams) = &mut connection.state else { break };
            let may_accept = !is_spent && streams.open.len() < streams_max;
            match streams.line.poll(may_accept) {
                Brought::Exchange(wire) => {
                    connection.spend(turn, REQUEST_BUDGET_BYTES);
                    connection.progress = self.state.now.monotonic;
                    count += 1;
                    self.open_stream(id, wire);
                }
                Brought::Nothing if is_spent => {
                    self.yield_input(id);
                    break;
                }
                Brought::Nothing => break,
                Brought::End => return None,
            }
        }
        Some(count)
    }

    fn send_frames(&mut self, id: ConnId) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let State::Streams(streams) = &mut connection.state else { return };
        let output = streams.take_output();
        let is_sent = output.is_empty() || connection.send(self.io, &output, now).is_ok();
        self.state.frames_buffer = output;
        if !is_sent {
            self.drop_connection(id);
        }
    }

    fn open_stream(&mut self, parent: ConnId, wire: StreamWire) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get(parent) else { return };
        let template = Connection::of_stream(parent, connection, Wire::Stream(wire), now);
        let child = self.state.connections.insert(|id| template.named(id));
        if let Some(connection) = self.state.connections.get_mut(parent)
            && let State::Streams(streams) = &mut connection.state
        {
            streams.open.insert(child);
        }
        let Some(connection) = self.state.connections.get_mut(child) else { return };
        if let Some(stream) = connection.wire.stream() {
            stream.name(key_of(child), &self.state.ready);
        }
        self.look_at_stream(child);
    }

    /// Something has happened to a stream: it was reset, has room, or has more of its request.
    fn look_at_stream(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let Some(stream) = connection.wire.stream() else { return };
        if stream.look().is_err() {
            return self.lose_stream(id);
        }
        if !connection.is_drained() {
            self.handle_writable(id);
        } else if matches!(connection.state, State::Sending(_) | State::Sse(_)) {
            self.handle_drained(id);
        }
        self.read_stream(id);
    }

    /// The client has given an exchange up.
    pub(crate) fn lose_stream(&mut self, id: ConnId) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.is_abandoned {
            return;
        }
        let parent = connection.parent;
        if matches!(connection.state, State::Waiting(_)) {
            connection.is_abandoned = true;
        } else {
            self.drop_connection(id);
        }
        let line = parent.and_then(|parent| self.state.connections.get_mut(parent));
        if let Some(State::Streams(streams)) = line.map(|connection| &mut connection.state) {
            streams.line.note_reset(now);
        }
    }

    /// Reads what has come of a request.
    pub(crate) fn read_stream(&mut self, id: ConnId) {
        while let Some(connection) = self.state.connections.get_mut(id) {
            let Some(stream) = connection.wire.stream() else { return };
            match connection.state {
                State::Head => {
                    let Some(head) = stream.take_head() else { return };
                    connection.meta = head.meta();
                    let site = Arc::clone(&self.state.options.site);
                    let way = connection.peer.way(&site);
                    let limits = self.state.limits;
                    let begun = head.read(&limits, &way, |arrived| match arrived {
                        Ok(arrived) => {
                            self.note_sender(id, &arrived);
                            self.begin(id, arrived, &[]).is_some()
                        }
                        Err(error) => {
                            self.answer_problem(id, &Problem::from(error));
                            true
                        }
                    });
                    if !begun {
                        return self.begin_stream_later(id, head);
                    }
                }
                State::Body(_) => match stream.read() {
                    Data::Bytes(bytes) => self.take_stream_body(id, &bytes),
                    Data::Nothing => return,
                    Data::End => self.finish_body(id),
                    Data::Gone => return self.lose_stream(id),
                },
                State::Lingering => match stream.read() {
                    Data::Bytes(bytes) => stream.release(bytes.len()),
                    Data::Nothing => return,
                    Data::End | Data::Gone => return self.forget_stream(id),
                },
                _ => return,
            }
        }
    }

    /// Notes whether a page sends a request, and which, where that matters.
    fn note_sender(&mut self, id: ConnId, arrived: &Arrived<'_>) {
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.meta = arrived.meta;
            connection.meta.note_page(arrived.page.as_ref(), &self.state.options.pages);
        }
    }

    fn begin_stream_later(&mut self, id: ConnId, head: crate::wire::StreamHead) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if let Some(stream) = connection.wire.stream() {
            stream.put_head(head);
        }
        self.yield_input(id);
    }

    fn take_stream_body(&mut self, id: ConnId, bytes: &[u8]) {
        self.consume(id, bytes);
        // Charged by now: the client may send as much more.
        if let Some(connection) = self.state.connections.get_mut(id)
            && let Some(stream) = connection.wire.stream()
        {
            stream.release(bytes.len());
        }
    }

    /// Sends the head of a stream's answer, and what `write` puts behind it; `None` if nobody waits.
    pub(crate) fn send_stream_head<R>(
        &mut self,
        id: ConnId,
        write: impl FnOnce(&mut dyn HeadSink) -> R,
    ) -> Option<R> {
        let now = self.state.now.monotonic;
        let connection = self.state.connections.get_mut(id)?;
        let meta: Meta = connection.meta;
        let shown = (&self.state.date, &*self.state.options.pages);
        let stream = connection.wire.stream()?;
        let Ok((written, status, body)) = stream.answer(&meta, shown, write) else {
            self.drop_connection(id);
            return None;
        };
        self.state.counts.count_answer(status);
        connection.note_head(status, now);
        if !body.is_empty() && connection.send_shared(self.io, &body.into(), now).is_err() {
            self.drop_connection(id);
            return None;
        }
        Some(written)
    }

    /// All of a stream's answer was given. If its client still sends the request, that is read past for a while: some clients lose
    /// the answer of a stream that is reset while they send.
    pub(crate) fn finish_stream(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let Some(stream) = connection.wire.stream() else { return };
        if stream.end() {
            return self.forget_stream(id);
        }
        connection.state = State::Lingering;
    }

    /// A stream is over: its answer was given, and its request was read or given up.
    fn forget_stream(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.remove(id) else { return };
        let Some(parent) = connection.parent else { return };
        self.leave_streams(parent, &connection);
        self.forget_state(&connection);
    }

    /// A stream is over.
    pub(crate) fn leave_streams(&mut self, parent: ConnId, child: &Connection) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(parent) else { return };
        connection.known.clone_from(&child.known);
        connection.progress = now;
        if let State::Streams(streams) = &mut connection.state {
            streams.open.remove(&child.id());
            streams.line.knock();
        }
    }

    /// A line is over, and its streams are.
    fn end_streams(&mut self, id: ConnId) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let state = std::mem::replace(&mut connection.state, State::Closing);
        let State::Streams(mut streams) = state else { unreachable!("{state:?} has no line") };
        let last = streams.take_output();
        let is_sent = last.is_empty() || connection.send(self.io, &last, now).is_ok();
        self.state.frames_buffer = last;
        let (is_drained, has_ended) = (connection.is_drained(), connection.has_ended);
        self.drop_streams(*streams);
        if !is_sent || has_ended {
            return self.drop_connection(id);
        }
        if is_drained {
            self.begin_linger(id);
        }
    }

    /// Ends all streams of a line that is gone.
    pub(crate) fn drop_streams(&mut self, streams: Streams) {
        for child in streams.open {
            self.drop_connection(child);
        }
    }

    /// Asks the client of a line for a sign of life.
    pub(crate) fn ask_for_life(&mut self, id: ConnId) {
        if let Some(connection) = self.state.connections.get_mut(id)
            && let State::Streams(streams) = &mut connection.state
        {
            streams.ask_for_life();
        }
    }

    /// Tells the client of a line to begin nothing more.
    pub(crate) fn shut_streams_down(&mut self, id: ConnId) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.progress = now;
        if let State::Streams(streams) = &mut connection.state {
            streams.line.shut_down();
        }
    }
}
