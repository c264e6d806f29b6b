//! From replies of the node to answers on the wire, and the end of an exchange.

use crate::{
    connection::{Connection, Pending, Piece, Poll, State},
    journal::{Came, Entry},
    sessions::Step,
    slab::ConnId,
    transport::{Close, Transport},
    wire::ExchangeId,
};
use access::Authorized;
use log::Slice;
use model::{Monotonic, Timestamp};
use node::{Failure, ReadReply, Reply, Resolved, Ticket};
use protocol::{
    HeadSink, cursor,
    problem::{Code, Problem},
    request::{Live, ReadRequest},
    response,
};
use std::sync::Arc;
use stream::{Outcome, Refusal};

impl<T: Transport> Step<'_, T> {
    pub(crate) fn handle_reply(&mut self, ticket: Ticket, reply: Reply) {
        let exchange = ExchangeId::from(ticket.exchange);
        let id = exchange.conn;
        self.release_fork(exchange);
        self.state.fair.note_answered(exchange);
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.is_blocked = false;
        if connection.is_abandoned {
            return self.drop_connection(id);
        }
        if connection.stream != exchange.stream {
            if connection.keep_reply(exchange.stream, reply) {
                self.resume_input(id);
            }
            return;
        }
        match &mut connection.state {
            State::Waiting(_) => {
                let state = std::mem::replace(&mut connection.state, State::Head);
                let State::Waiting(pending) = state else { return };
                self.answer_pending(id, pending, reply);
                self.resume_input(id);
            }
            State::Sending(_) => self.handle_window(id, reply),
            State::Sse(_) => self.handle_sse_reply(id, reply),
            _ => {}
        }
    }

    pub(crate) fn answer_pending(&mut self, id: ConnId, pending: Pending, reply: Reply) {
        match (pending, reply) {
            (Pending::Announced(receiving), Reply::Head(..)) => self.invite(id, receiving),
            (Pending::Announced(_), reply) => {
                // The client may send the body all the same, and it is no request.
                if let Some(connection) = self.state.connections.get_mut(id) {
                    connection.meta.keep_alive = false;
                }
                self.answer_pending(id, Pending::Write, reply);
            }
            // A trim has overtaken a read that has named no place.
            (Pending::First(read), Reply::Failed(Failure::Trimmed { head }))
                if read.0.offset.follows_head() && head > read.1.info.head =>
            {
                self.finish_read(id, read.0);
            }
            (_, Reply::Failed(failure)) => self.answer_problem(id, &problem_of(failure)),
            (_, Reply::InvalidJson(error)) => {
                self.answer_problem(id, &Problem::from(&error));
            }
            (Pending::Create { location }, Reply::Outcome(outcome)) => {
                self.count(&outcome, 0);
                self.answer_outcome(id, &outcome, &location);
            }
            (Pending::Append { data_bytes, shows_records }, Reply::Outcome(mut outcome)) => {
                self.count(&outcome, data_bytes);
                if let (false, Outcome::Appended(accepted)) = (shows_records, &mut outcome) {
                    accepted.records = None;
                }
                self.answer_outcome(id, &outcome, b"");
            }
            (Pending::Write, Reply::Outcome(outcome)) => {
                self.count(&outcome, 0);
                self.answer_outcome(id, &outcome, b"");
            }
            (_, Reply::Outcome(outcome)) => self.answer_outcome(id, &outcome, b""),
            (_, Reply::Head(key, info)) => {
                self.answer(id, |head| response::metadata(head, key.group, &info));
            }
            (_, Reply::Resolved(found)) => {
                let Resolved { info, at, record, time, .. } = *found;
                self.answer(id, |head| response::resolved(head, &info, (at, record), time));
            }
            (Pending::Read(request), Reply::Read(reply)) => self.begin_read(id, *request, *reply),
            (Pending::First(read), Reply::Window(slice)) => {
                let (request, mut reply) = *read;
                self.keep_window(reply.owner_of(reply.start).0, reply.start, &slice);
                reply.first = Some(slice);
                self.give_read(id, request, reply);
            }
            (pending, reply) => unreachable!("{pending:?} was answered by {reply:?}"),
        }
    }

    fn answer_outcome(&mut self, id: ConnId, outcome: &Outcome, location: &[u8]) {
        if let Outcome::Refused(refusal) = outcome {
            self.note_code(id, || Problem::from(refusal).name());
        }
        self.answer(id, |head| response::outcome(head, outcome, location));
    }

    /// Counts what was acknowledged.
    fn count(&mut self, outcome: &Outcome, data_bytes: u64) {
        match outcome {
            Outcome::Appended(accepted) if accepted.duplicate => self.state.counts.duplicates += 1,
            Outcome::Appended(accepted) => {
                self.state.counts.appends += 1;
                self.state.counts.append_bytes += data_bytes;
                self.state.counts.closes += u64::from(accepted.closed);
            }
            Outcome::Created(info) => {
                self.state.counts.creates += 1;
                self.state.counts.closes += u64::from(info.closed);
            }
            Outcome::Deleted => self.state.counts.deletes += 1,
            _ => {}
        }
    }

    /// Whether an answer is queued to move stored bytes.
    fn is_long(&self, reply: &ReadReply) -> bool {
        reply.end.since(reply.start) > self.state.options.short_answer_bytes_max
    }

    /// A long answer takes its place in the line: readers may come by the thousand, and each would put its
    /// first window into the same turn.
    fn begin_read(&mut self, id: ConnId, request: Authorized<ReadRequest>, mut reply: ReadReply) {
        if !self.is_long(&reply) || self.may_move(id) {
            return self.give_read(id, request, reply);
        }
        // Read again in its turn, so that queued readers hold no bytes.
        if let Some(slice) = reply.first.take_if(|slice| matches!(slice, Slice::Bytes(_))) {
            self.keep_window(reply.owner_of(reply.start).0, reply.start, &slice);
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.state = State::Queued(Box::new((request, reply)));
    }

    /// A reader in the line may have been called.
    fn leave_queue(&mut self, id: ConnId) {
        if !self.may_move(id) {
            return;
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let state = std::mem::replace(&mut connection.state, State::Head);
        let State::Queued(read) = state else { unreachable!("queued, but {state:?}") };
        let (request, reply) = *read;
        self.give_read(id, request, reply);
        self.resume_input(id);
    }

    fn give_read(&mut self, id: ConnId, request: Authorized<ReadRequest>, reply: ReadReply) {
        if reply.first.is_none() && reply.start < reply.end {
            return self.fetch_first(id, request, reply);
        }
        let at_tail = reply.start == reply.end && !reply.info.closed;
        let has_all = reply.info.closed && reply.start == reply.info.tail;
        match request.live {
            // A browser comes back after every end, until a 204 says that there is no more (WHATWG HTML §9.2.3).
            Live::Sse if has_all && request.resumes_events => {
                let numbers = request.records.is_some();
                self.answer(id, |head| response::long_poll_timeout(head, &reply.info, 0, numbers));
            }
            Live::Sse => self.begin_sse(id, request, reply),
            Live::LongPoll if at_tail => self.begin_poll(id, request, reply),
            Live::LongPoll | Live::CatchUp => self.answer_read(id, &request, reply),
        }
    }

    /// Gets the first bytes of an answer before its head is sent: if they cannot be read, the
    /// status can still say so.
    fn fetch_first(&mut self, id: ConnId, request: Authorized<ReadRequest>, mut reply: ReadReply) {
        let (key, to) = reply.owner_of(reply.start);
        if let Some(bytes) = self.state.windows.get(key, reply.start, to.min(reply.end)) {
            reply.first = Some(Slice::Bytes(bytes));
            return self.give_read(id, request, reply);
        }
        let window = node::Request::Window { key, from: reply.start, to };
        if self.is_long(&reply) {
            self.note_window(id);
        }
        self.wait_for(id, Pending::First(Box::new((request, reply))));
        self.ask_on_key(id, window);
    }

    fn begin_poll(&mut self, id: ConnId, mut request: Authorized<ReadRequest>, reply: ReadReply) {
        if !self.may_last(id, &mut request) {
            return;
        }
        let due = self.state.now.monotonic.plus_ms(self.state.options.long_poll_timeout_ms);
        let key = reply.key;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let number = self.state.live.add_poll(key, id, reply.end);
        let (is_revoked, offset, info) = (false, reply.end, reply.info);
        let poll = Poll { request, is_revoked, key, offset, info, due, number };
        connection.state = State::LongPoll(Box::new(poll));
        self.state.counts.live_readers += 1;
        self.state.deadlines.add(due, id);
        self.ensure_watch(id, key);
    }

    /// A long-poll has waited long enough.
    pub(crate) fn time_out_poll(&mut self, id: ConnId, number: u64) {
        let Some(mut poll) = self.take_poll(id, number) else { return };
        poll.info.tail = poll.info.tail.max(self.state.live.tail_of(poll.key));
        self.leave_poll(poll.key, number);
        if poll.offset > poll.info.tail {
            self.answer_beyond(id, *poll);
            return self.resume_input(id);
        }
        let cursor = self.next_cursor(poll.request.cursor);
        let numbers = poll.request.records.is_some();
        self.answer(id, |head| response::long_poll_timeout(head, &poll.info, cursor, numbers));
        self.resume_input(id);
    }

    /// Answers a long-poll whose offset the stream has not reached: it keeps its offset.
    fn answer_beyond(&mut self, id: ConnId, poll: Poll) {
        let Poll { request, key, offset, info, .. } = poll;
        let records = request.records.map(|_| (info.next_record, info.next_record));
        let nothing = ReadReply { key, info, start: offset, end: offset, first: None, records };
        self.answer_read(id, &request, nothing);
    }

    /// Takes a connection out of its long-poll with this number.
    pub(crate) fn take_poll(&mut self, id: ConnId, number: u64) -> Option<Box<Poll>> {
        let connection = self.state.connections.get_mut(id)?;
        if !matches!(&connection.state, State::LongPoll(poll) if poll.number == number) {
            return None;
        }
        let state = std::mem::replace(&mut connection.state, State::Head);
        let State::LongPoll(poll) = state else { return None };
        self.state.counts.live_readers -= 1;
        Some(poll)
    }

    pub(crate) fn next_cursor(&mut self, client: Option<u64>) -> u64 {
        let random = self.state.random();
        cursor::next(self.state.now.wall, client, random)
    }

    pub(crate) fn answer_preflight(&mut self, id: ConnId, fields: Option<&str>) {
        self.answer(id, |head| response::preflight(head, fields));
    }

    pub(crate) fn answer_problem(&mut self, id: ConnId, problem: &Problem) {
        if problem.closes()
            && let Some(connection) = self.state.connections.get_mut(id)
        {
            connection.end_after_exchanges();
        }
        self.note_code(id, || problem.name());
        self.answer(id, |head| problem.render(head));
    }

    /// The present exchange is answered with a problem.
    #[inline]
    fn note_code(&mut self, id: ConnId, name: impl FnOnce() -> &'static str) {
        if let Some(entry) = self.state.connections.get_mut(id).and_then(|c| c.entry.as_mut()) {
            entry.code = Some(name());
        }
    }

    /// Sends an answer without a body of stored bytes, and ends the exchange.
    fn answer(&mut self, id: ConnId, write: impl FnOnce(&mut dyn HeadSink)) {
        if self.send_head(id, write).is_some() {
            self.end_exchange(id);
        }
    }

    /// Writes and sends a head and what `write` puts behind it; `None` if the connection is gone.
    pub(crate) fn send_head<R>(
        &mut self,
        id: ConnId,
        write: impl FnOnce(&mut dyn HeadSink) -> R,
    ) -> Option<R> {
        let connection = self.state.connections.get_mut(id)?;
        if connection.is_stream() {
            return self.send_stream_head(id, write);
        }
        let mut out = std::mem::take(&mut self.state.head);
        out.clear();
        let is_followed = !connection.ahead.is_empty();
        let shown = (&self.state.date, &*self.state.options.pages);
        let (written, status) = connection.meta.write_head(&mut out, shown, is_followed, write);
        self.state.counts.count_answer(status);
        connection.note_head(status, self.state.now.monotonic);
        let sent = connection.send(self.io, &out, self.state.now.monotonic);
        self.state.head = out;
        if sent.is_err() {
            self.drop_connection(id);
            return None;
        }
        Some(written)
    }

    /// As [`Self::send_head`], but the head waits for what follows at once: it goes with the first bytes of the body.
    pub(crate) fn queue_head<R>(
        &mut self,
        id: ConnId,
        write: impl FnOnce(&mut dyn HeadSink) -> R,
    ) -> Option<R> {
        let connection = self.state.connections.get_mut(id)?;
        let mut out = Vec::with_capacity(512);
        let is_followed = !connection.ahead.is_empty();
        let shown = (&self.state.date, &*self.state.options.pages);
        let (written, status) = connection.meta.write_head(&mut out, shown, is_followed, write);
        self.state.counts.count_answer(status);
        connection.note_head(status, self.state.now.monotonic);
        connection.push(Piece::Bytes(out.into()), self.state.now.monotonic);
        Some(written)
    }

    /// Sends what is queued, as much as is taken; the rest goes when there is room.
    pub(crate) fn send_queued(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.flush(self.io, self.state.now.monotonic).is_err() {
            self.drop_connection(id);
        }
    }

    /// The answer is complete: the connection waits for the next request, or ends.
    pub(crate) fn end_exchange(&mut self, id: ConnId) {
        let state = &mut *self.state;
        let Some(connection) = state.connections.get_mut(id) else { return };
        connection.progress = state.now.monotonic;
        if let Some(entry) = connection.entry.take() {
            state.journal.end(&entry, connection.came(false), state.now);
            state.counts.log_lines_lost = state.journal.lost;
        }
        let is_last = state.stopping.is_some() && connection.ahead.is_empty();
        if connection.meta.keep_alive && !is_last {
            connection.state = State::Head;
            return;
        }
        connection.state = State::Closing;
        if connection.is_drained() {
            self.begin_linger(id);
        }
    }

    /// Announces the end and reads on for a while: a close with unread input would make the kernel
    /// throw away what the client has not read yet.
    pub(crate) fn begin_linger(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.is_stream() {
            return self.finish_stream(id);
        }
        connection.state = State::Lingering;
        connection.input = Vec::new();
        self.io.close(id, Close::Writes);
    }

    pub(crate) fn handle_writable(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.is_drained() {
            return;
        }
        match connection.flush(self.io, self.state.now.monotonic) {
            Ok(true) => self.handle_drained(id),
            Ok(false) => {}
            Err(_) => self.drop_connection(id),
        }
    }

    pub(crate) fn handle_drained(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if !connection.is_drained() {
            return;
        }
        match connection.state {
            State::Sending(_) => self.continue_body(id),
            State::Sse(_) => self.continue_sse(id),
            State::Queued(_) => self.leave_queue(id),
            State::Closing => self.begin_linger(id),
            State::Head => self.resume_input(id),
            State::Streams(_) => self.resume_input(id),
            _ => {}
        }
    }

    /// Closes a connection, whatever it is in the middle of.
    pub(crate) fn drop_connection(&mut self, id: ConnId) {
        self.close(id, Close::Whole);
    }

    /// Closes a connection in the middle of an answer: the head promised bytes that cannot be read, and only
    /// cutting the answer short tells the truth.
    pub(crate) fn cut(&mut self, id: ConnId, failure: Failure) {
        self.close(id, Close::Cut(failure));
    }

    fn close(&mut self, id: ConnId, how: Close) {
        self.abandon_body(id);
        let Some(mut connection) = self.state.connections.remove(id) else { return };
        self.cut_entries(&mut connection);
        if let Some(parent) = connection.parent {
            if let Some(stream) = connection.wire.stream() {
                stream.reset(matches!(how, Close::Cut(_)));
            }
            self.leave_streams(parent, &connection);
            return self.forget_state(&connection);
        }
        self.io.close(id, how);
        self.state.admission.remove_connection();
        self.state.counts.connections -= 1;
        self.forget_state(&connection);
        if let State::Streams(streams) = connection.state {
            self.drop_streams(*streams);
        }
    }

    /// Exchanges of a connection that is gone have no end.
    fn cut_entries(&mut self, connection: &mut Connection) {
        let came = connection.came(true);
        let ahead = connection.ahead.iter_mut().map(|ahead| ahead.entry.take());
        for entry in [connection.entry.take()].into_iter().chain(ahead).flatten() {
            self.write_entry(&entry, came);
        }
    }

    pub(crate) fn forget_state(&mut self, connection: &Connection) {
        match &connection.state {
            State::LongPoll(poll) => {
                self.state.counts.live_readers -= 1;
                self.leave_poll(poll.key, poll.number);
            }
            State::Sse(reader) => {
                self.state.counts.live_readers -= 1;
                if let Some(number) = reader.live_number() {
                    self.leave_live(reader.key, number);
                }
            }
            State::Sending(sending) if sending.is_gzip() => self.state.gzip_count -= 1,
            _ => {}
        }
    }
}

impl<T: Transport> Step<'_, T> {
    pub(crate) fn write_entry(&mut self, entry: &Entry, came: Came) {
        self.state.journal.end(entry, came, self.state.now);
        self.state.counts.log_lines_lost = self.state.journal.lost;
    }

    /// Names the client of the present exchange.
    pub(crate) fn note_client(&mut self, id: ConnId, name: Option<Arc<str>>) {
        if let Some(entry) = self.state.connections.get_mut(id).and_then(|c| c.entry.as_mut()) {
            entry.who = name;
        }
    }
}

impl Poll {
    /// Whether its credential allows it no more.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.is_revoked || self.request.permit().is_over(now)
    }

    pub(crate) fn is_due(&self, now: Monotonic) -> bool {
        self.due <= now
    }
}

/// What a failure of the node is to a client.
pub(crate) fn problem_of(failure: Failure) -> Problem {
    match failure {
        Failure::DiskFull => Problem::new(Code::DiskFull),
        Failure::Poisoned { applied_unknown: true } => Problem::new(Code::WriteUnknown),
        Failure::Poisoned { applied_unknown: false } => Problem::new(Code::StorageFailed),
        Failure::Overloaded => Problem::overloaded(1),
        Failure::NoLeader => Problem::new(Code::NotLeader),
        Failure::Unknown => Problem::new(Code::WriteUnknown),
        Failure::Damaged { file, position } => Problem::damaged(&file, position, position),
        Failure::Trimmed { head } => Problem::trimmed(head),
        Failure::Beyond { tail, next_record } => Problem::beyond_tail(tail, next_record),
        Failure::NotFound => Problem::from(&Refusal::NotFound),
        Failure::Io { error } => Problem::with_detail(Code::Internal, error),
    }
}
