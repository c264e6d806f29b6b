//! From bytes of a connection to requests of the node.
//!
//! A connection has one present exchange. While that waits for the node, whole requests behind it may be asked
//! already ([`crate::pipeline`]). All other input waits, so a client that sends too fast is slowed by its own
//! connection. Bodies are charged to admission as their bytes arrive, never by what a header announces.

use crate::{
    connection::{Connection, Pending, REQUEST_BUDGET_BYTES, State},
    gate::Judged,
    pipeline::Touch,
    sessions::Step,
    slab::ConnId,
    transport::{Read, Transport},
    wire::{self, Arrived, BodyLength, ExchangeId, Meta},
};
use access::Authorized;
use model::ReadRecords;
use protocol::{
    problem::{Code, Problem},
    request::{Asked, Live, ReadRequest, ReadyAppend, ReadyCreate, Request, Shown},
};
use std::borrow::Cow;
use std::sync::Arc;

/// What requests without data bring.
pub(crate) const NO_DATA: Cow<'static, [u8]> = Cow::Borrowed(&[]);

/// What is left to do after some input was looked at.
pub(crate) enum Next {
    /// Look at what follows.
    Again,
    /// More bytes are needed, or the connection is busy.
    Stop,
}

impl<T: Transport> Step<'_, T> {
    pub(crate) fn admit(&mut self, id: ConnId) {
        if self.state.connections.get_mut(id).is_none() {
            return;
        }
        let count = self.state.admission.add_connection();
        self.state.counts.connections_accepted += 1;
        self.state.counts.connections += 1;
        if count > self.state.options.connections_max {
            self.state.counts.rejected += 1;
            self.answer_problem(id, &Problem::overloaded(1));
        }
    }

    pub(crate) fn handle_readable(&mut self, id: ConnId, is_closed: bool) {
        if self.state.connections.get(id).is_some_and(Connection::is_stream) {
            return self.read_stream(id);
        }
        let mut scratch = std::mem::take(&mut self.state.scratch);
        while let Some(connection) = self.state.connections.get_mut(id) {
            if !connection.takes_input() {
                if is_closed && !connection.outlives_input() {
                    self.drop_connection(id);
                }
                break;
            }
            if connection.yielded || connection.is_spent(self.state.turn) {
                self.yield_input(id);
                break;
            }
            let room = connection.input_room().min(scratch.len());
            match connection.read(self.io, &mut scratch[..room]) {
                Read::Nothing => break,
                Read::Bytes(count) | Read::Last(count) => {
                    connection.spend(self.state.turn, count);
                    let is_last = !connection.readable;
                    self.feed(id, &scratch[..count]);
                    if is_last {
                        break;
                    }
                }
                Read::End if matches!(connection.state, State::Waiting(_)) => {
                    connection.has_ended = true;
                    break;
                }
                Read::End if matches!(connection.state, State::Streams(_)) => {
                    self.end_frames(id);
                    break;
                }
                Read::End if connection.outlives_input() => {
                    // The client sends no more but has not taken all answers.
                    connection.state = State::Closing;
                    break;
                }
                Read::End | Read::Broken => {
                    self.drop_connection(id);
                    break;
                }
            }
        }
        self.state.scratch = scratch;
    }

    /// The connection has spent its budget of this turn. It is noted once, however often this is called.
    pub(crate) fn yield_input(&mut self, id: ConnId) {
        if let Some(connection) = self.state.connections.get_mut(id)
            && !connection.yielded
        {
            connection.yielded = true;
            self.state.runnable.push_back(id);
        }
    }

    /// Takes what was received while the connection was busy.
    pub(crate) fn resume_input(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.is_advancing {
            return;
        }
        if !connection.ahead.is_empty() {
            self.advance(id);
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.yielded {
            return;
        }
        if let State::Streams(streams) = &connection.state {
            streams.line.knock();
        }
        if !connection.input.is_empty() {
            self.feed(id, &[]);
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.readable && connection.takes_input() {
            self.handle_readable(id, false);
        }
    }

    fn feed(&mut self, id: ConnId, bytes: &[u8]) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.input.is_empty() {
            if matches!(connection.state, State::Head) {
                // The head's time runs from its first byte on.
                connection.progress = self.state.now.monotonic;
            }
            let used = self.consume(id, bytes);
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.input.extend_from_slice(&bytes[used..]);
            }
            return;
        }
        let mut input = std::mem::take(&mut connection.input);
        input.extend_from_slice(bytes);
        let used = self.consume(id, &input);
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if used < input.len() {
            input.drain(..used);
            connection.input = input;
        }
    }

    /// Uses `bytes` as far as they go; returns how many were used.
    pub(crate) fn consume(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some(connection) = self.state.connections.get_mut(id) {
            let rest = &bytes[used..];
            let (count, next) = match &mut connection.state {
                State::Head if !connection.ahead.is_empty() => (0, Next::Stop),
                State::Head => self.take_head(id, rest),
                State::Body(_) => self.take_body(id, rest),
                State::Discard { left_bytes } => {
                    let count = (*left_bytes).min(rest.len() as u64);
                    *left_bytes -= count;
                    let done = *left_bytes == 0;
                    if done {
                        connection.state = State::Head;
                    }
                    (count as usize, if done { Next::Again } else { Next::Stop })
                }
                State::Waiting(_) => match self.look_ahead(id, rest) {
                    Some(used) => (used, Next::Again),
                    None => (0, Next::Stop),
                },
                State::Streams(streams) => {
                    streams.receive(rest, self.state.now.monotonic);
                    (rest.len(), Next::Stop)
                }
                State::Lingering => (rest.len(), Next::Stop),
                _ => (0, Next::Stop),
            };
            used += count;
            if matches!(next, Next::Stop) {
                break;
            }
        }
        used
    }

    fn take_head(&mut self, id: ConnId, bytes: &[u8]) -> (usize, Next) {
        let Some(connection) = self.state.connections.get_mut(id) else { return (0, Next::Stop) };
        if bytes.is_empty() || connection.is_clogged() {
            return (0, Next::Stop);
        }
        let had_request = connection.has_had_request(self.state.turn);
        if connection.is_spent(self.state.turn) || (had_request && self.is_turn_long()) {
            self.yield_input(id);
            return (0, Next::Stop);
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return (0, Next::Stop) };
        let way = connection.peer.way(&self.state.options.site);
        match connection.wire.next_request(bytes, &self.state.limits, &way) {
            Ok(None) => (0, Next::Stop),
            Ok(Some(arrived)) => {
                connection.spend(self.state.turn, REQUEST_BUDGET_BYTES);
                connection.meta = arrived.meta;
                connection.meta.note_page(arrived.page.as_ref(), &self.state.options.pages);
                connection.meta.keep_alive &= self.state.stopping.is_none();
                let head_bytes = arrived.head_bytes;
                match self.begin(id, arrived, &bytes[head_bytes..]) {
                    Some((count, next)) => (head_bytes + count, next),
                    None => {
                        self.begin_later(id);
                        (0, Next::Stop)
                    }
                }
            }
            Err(error) if wire::begins_line(error, bytes, &self.state.limits) => {
                self.begin_streams(id, bytes);
                (bytes.len(), Next::Stop)
            }
            Err(error) => {
                connection.meta = Meta::CLOSE;
                self.answer_problem(id, &Problem::from(error));
                (bytes.len(), Next::Stop)
            }
        }
    }

    /// Begins a request whose head is complete; `bytes` is what follows it. `None` if it cannot be judged in this turn.
    pub(crate) fn begin(
        &mut self,
        id: ConnId,
        arrived: Arrived<'_>,
        bytes: &[u8],
    ) -> Option<(usize, Next)> {
        let Arrived { request, shown, asked, page, body, expects_invitation, .. } = arrived;
        if asked.is_some() {
            self.begin_entry(id, asked, shown.as_deref());
        }
        let judged = match request {
            Ok(request) => self.judge_request(id, request, (shown.as_deref(), page.as_ref()), body),
            Err(problem) => {
                let problem = problem.with_trace(shown.and_then(|shown| shown.trace));
                return Some((0, self.refuse_early(id, &problem, body, expects_invitation)));
            }
        };
        let request = match judged {
            Judged::Authorized(request) => request,
            Judged::Later => return None,
            Judged::Foreign(problem) => {
                self.state.counts.denied += 1;
                return Some((0, self.refuse_early(id, &problem, body, expects_invitation)));
            }
            Judged::Denied(denied) => {
                self.note_client(id, denied.who().cloned());
                let problem = self.refuse(id, &denied, shown.as_deref());
                let problem = problem.with_trace(shown.and_then(|shown| shown.trace));
                return Some((0, self.refuse_early(id, &problem, body, expects_invitation)));
            }
        };
        if self.state.journal.is_kept() {
            self.note_client(id, request.permit().who().map(|who| Arc::clone(who.name())));
        }
        Some(match body {
            BodyLength::Known(length) if length <= bytes.len() as u64 => {
                let length = usize::try_from(length).expect("no longer than a buffer");
                self.finish(id, request, Cow::Borrowed(&bytes[..length]));
                (length, Next::Again)
            }
            BodyLength::Known(_) | BodyLength::Unknown => {
                let is_stream = self.state.connections.get(id).is_some_and(Connection::is_stream);
                let reader = body.reader(&self.state.limits, is_stream);
                (0, self.receive(id, request, reader, expects_invitation))
            }
        })
    }

    /// A log will say what comes of the present exchange.
    fn begin_entry(&mut self, id: ConnId, asked: Option<Box<Asked>>, shown: Option<&Shown<'_>>) {
        let now = self.state.now.monotonic;
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.entry = connection.entry_of(asked, shown, now);
        }
    }

    /// A head is read again in the next turn.
    fn begin_later(&mut self, id: ConnId) {
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.wire.restart();
        }
        self.yield_input(id);
    }

    /// A request is complete, and it is its turn.
    pub(crate) fn finish(&mut self, id: ConnId, request: Authorized<Request>, body: Cow<'_, [u8]>) {
        // What waits would not end. All else is answered: nobody new comes, and each connection ends with its answer.
        if self.state.stopping.is_some() && request.get().is_live() {
            return self.answer_problem(id, &Problem::new(Code::ShuttingDown));
        }
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.begin_exchange(Touch::of(&request));
            if let Some(entry) = &mut connection.entry {
                entry.body_bytes = body.len() as u64;
            }
        }
        if matches!(request.get(), Request::Create(_) | Request::Append(_)) {
            return self.ask_write(id, join(request, body));
        }
        let (request, permit) = request.take_apart();
        let (pending, request) = match request {
            Request::Create(_) | Request::Append(_) => unreachable!("joined with its body"),
            Request::Read(read) => return self.finish_read(id, permit.apply(read)),
            Request::Preflight { fields } => return self.answer_preflight(id, fields.as_deref()),
            Request::Head(path) => (Pending::Head, node::Request::Head { path }),
            Request::Resolve { path, from, clamp } => {
                let records = Some(ReadRecords { clamp, ..ReadRecords::default() });
                let (boundary_bytes, first_bytes_max) = (1, 0);
                let read =
                    node::ReadRequest { path, from, boundary_bytes, first_bytes_max, records };
                (Pending::Head, node::Request::Resolve(read))
            }
            Request::Change { path, change } => {
                (Pending::Write, node::Request::Change { path, change })
            }
            Request::Trim { path, before } => {
                (Pending::Write, node::Request::Trim { path, before })
            }
            Request::Delete(path) => (Pending::Write, node::Request::Delete { path }),
        };
        self.ask_for(id, pending, permit.apply(request), NO_DATA);
    }

    /// Asks for a write, or says why its body is refused.
    pub(crate) fn ask_write(&mut self, id: ConnId, write: Result<Write<'_>, Problem>) {
        match write {
            Ok(Write { pending, request, data }) => {
                if is_fork(&request) && !self.charge_fork(id, data.len()) {
                    self.state.counts.rejected += 1;
                    return self.answer_problem(id, &Problem::overloaded(1));
                }
                self.ask_for(id, pending, request, data);
            }
            Err(problem) => self.answer_problem(id, &problem),
        }
    }

    /// Charges the body of a fork, which the node keeps until the source is pinned; `false` if that is too much.
    fn charge_fork(&mut self, id: ConnId, bytes: usize) -> bool {
        let exchange = self.exchange_of(id);
        if bytes == 0 {
            return true;
        }
        let in_flight = self.state.admission.charge(bytes);
        if in_flight > self.state.options.body_bytes_in_flight_max {
            self.state.admission.release(bytes);
            return false;
        }
        self.state.fork_bytes.insert(exchange, bytes);
        true
    }

    /// The node has answered `exchange`: it holds no body of a fork for it any more.
    pub(crate) fn release_fork(&mut self, exchange: ExchangeId) {
        if self.state.fork_bytes.is_empty() {
            return;
        }
        if let Some(bytes) = self.state.fork_bytes.remove(&exchange) {
            self.state.admission.release(bytes);
        }
    }

    pub(crate) fn finish_read(&mut self, id: ConnId, read: Authorized<ReadRequest>) {
        let request = self.read_of(&read);
        self.ask_for(id, Pending::Read(Box::new(read)), request, NO_DATA);
    }

    /// What the node is asked for a read.
    pub(crate) fn read_of(&mut self, read: &Authorized<ReadRequest>) -> Authorized<node::Request> {
        let may_read_ahead = self.state.fair.may_read_ahead();
        let short_bytes_max = self.state.options.short_answer_bytes_max;
        let first_bytes_max = if may_read_ahead { u64::MAX } else { short_bytes_max };
        self.state.counts.reads += 1;
        let boundary_bytes = match read.live {
            Live::Sse => self.state.options.event_boundary_bytes,
            Live::CatchUp | Live::LongPoll => self.state.options.answer_boundary_bytes,
        };
        read.part(|read| {
            let (path, from, records) = (read.path.clone(), read.offset, read.records);
            node::Request::Read(node::ReadRequest {
                path,
                from,
                boundary_bytes,
                first_bytes_max,
                records,
            })
        })
    }

    /// Asks for what the present exchange needs, and waits for the reply.
    pub(crate) fn ask_for(
        &mut self,
        id: ConnId,
        pending: Pending,
        request: Authorized<node::Request>,
        data: Cow<'_, [u8]>,
    ) {
        self.wait_for(id, pending);
        self.ask(id, request, data);
    }

    #[inline]
    pub(crate) fn wait_for(&mut self, id: ConnId, pending: Pending) {
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.state = State::Waiting(pending);
            connection.progress = self.state.now.monotonic;
        }
    }
}

/// A write with its body in stored form: what to wait for, and what to ask.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub pending: Pending,
    pub request: Authorized<node::Request>,
    pub data: Cow<'a, [u8]>,
}

/// Joins a write with its body.
///
/// # Errors
/// The [`Problem`] to answer if the body is not what the write says.
pub(crate) fn join(
    request: Authorized<Request>,
    body: Cow<'_, [u8]>,
) -> Result<Write<'_>, Problem> {
    let (request, permit) = request.take_apart();
    match request {
        Request::Create(create) => {
            let ReadyCreate { asked, location, data } = create.finish(&body)?;
            let stored = stored(data, &body);
            let data = stored.map_or(body, Cow::Owned);
            let request = permit.apply(node::Request::Create(asked));
            Ok(Write { pending: Pending::Create { location }, request, data })
        }
        Request::Append(append) => {
            let ReadyAppend { path, append, data, shows_records } = append.finish(&body)?;
            let stored = stored(data, &body);
            let request = permit.apply(node::Request::Append { path, append });
            let data = stored.map_or(body, Cow::Owned);
            let pending = Pending::Append { data_bytes: data.len() as u64, shows_records };
            Ok(Write { pending, request, data })
        }
        other => unreachable!("{other:?} has no body"),
    }
}

fn is_fork(request: &node::Request) -> bool {
    matches!(request, node::Request::Create(create) if create.fork.is_some())
}

/// The stored form of a body; `None` if it is the body itself.
fn stored(data: Cow<'_, [u8]>, body: &[u8]) -> Option<Vec<u8>> {
    match data {
        Cow::Borrowed(data) if data.len() == body.len() => None,
        Cow::Borrowed(data) => Some(data.to_vec()),
        Cow::Owned(data) => Some(data),
    }
}

impl Connection {
    fn takes_input(&self) -> bool {
        match self.state {
            State::Head => !self.is_clogged() && self.ahead.is_empty(),
            State::Streams(ref streams) => self.is_drained() && streams.line.input_bytes() == 0,
            State::Body(_) | State::Discard { .. } | State::Lingering => true,
            State::Waiting(_) => self.looks_ahead(),
            _ => false,
        }
    }

    /// Whether a client that sends no more (half-closed) still gets its answers.
    fn outlives_input(&self) -> bool {
        match self.state {
            State::Head => !self.is_drained(),
            State::Waiting(_) | State::Queued(_) | State::Sending(_) | State::Closing => true,
            State::Streams(_) => true,
            _ => false,
        }
    }
}
