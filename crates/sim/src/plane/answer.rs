//! From replies of the node to answers. See the server's `plane::answer` and `plane::pump`.

use super::{
    exchange::{Pending, Poll, Sending, State, wanted},
    shard::Shard,
};
use crate::mutant::Mutant;
use log::Slice;
use node::{Failure, ReadReply, Reply, Request};
use protocol::{
    cursor,
    http1::{BodyFraming, Exchange},
    problem::{Code, Problem},
    request::{Live, ReadRequest},
    response::{self, BodyPlan, ReadAnswer},
};
use stream::Refusal;

impl Shard {
    pub(super) fn handle_reply(&mut self, conn: u32, reply: Reply) {
        let Some(exchange) = self.exchanges.get_mut(&conn) else { return };
        match &mut exchange.state {
            State::Waiting(pending) => {
                let pending = std::mem::replace(pending, Pending::Write);
                self.answer_pending(conn, pending, reply);
            }
            State::Sending(_) => self.handle_window(conn, reply),
            State::Sse(_) => self.handle_sse_reply(conn, reply),
            State::Poll(_) => panic!("a long-poll at the tail got {reply:?}"),
        }
    }

    fn answer_pending(&mut self, conn: u32, pending: Pending, mut reply: Reply) {
        if let Some(mutant) = self.options.mutant
            && !matches!(pending, Pending::Head if mutant == Mutant::LostDelete)
        {
            mutant.change_reply(&mut reply);
        }
        match (pending, reply) {
            (_, Reply::Failed(failure)) => self.answer_problem(conn, &problem_of(failure)),
            (_, Reply::InvalidJson(error)) => {
                self.answer_problem(conn, &protocol::body::invalid_json(&error));
            }
            (Pending::Create { location }, Reply::Outcome(outcome)) => {
                self.answer(conn, |out, exchange| {
                    response::outcome(out, exchange, &outcome, &location);
                });
            }
            (_, Reply::Outcome(outcome)) => {
                self.answer(conn, |out, exchange| response::outcome(out, exchange, &outcome, ""));
            }
            (_, Reply::Head(_, info)) => {
                self.answer(conn, |out, exchange| response::head(out, exchange, &info));
            }
            (Pending::Read(request), Reply::Read(reply)) => {
                self.begin_answer(conn, *request, *reply);
            }
            (pending, reply) => panic!("{pending:?} was answered by {reply:?}"),
        }
    }

    fn begin_answer(&mut self, conn: u32, request: ReadRequest, reply: ReadReply) {
        let at_tail = reply.start == reply.end && !reply.info.closed;
        match request.live {
            Live::Sse => self.begin_sse(conn, request, reply),
            Live::LongPoll if at_tail => {
                let (key, offset, info) = (reply.key, reply.end, reply.info);
                let poll = Poll { request, key, offset, info };
                if let Some(exchange) = self.exchanges.get_mut(&conn) {
                    exchange.state = State::Poll(Box::new(poll));
                }
                self.out.polls.push(conn);
                self.live_stream(key).polls.push(conn);
                self.ensure_watch(conn, key);
            }
            Live::LongPoll | Live::CatchUp => self.answer_read(conn, &request, reply),
        }
    }

    pub(super) fn time_out_poll(&mut self, conn: u32) {
        let Some(exchange) = self.exchanges.get(&conn) else { return };
        let State::Poll(poll) = &exchange.state else { return };
        let (key, info, sent) = (poll.key, poll.info.clone(), poll.request.cursor);
        self.live_stream(key).polls.retain(|known| *known != conn);
        let cursor = self.cursor(sent);
        self.answer(conn, |out, exchange| {
            response::long_poll_timeout(out, exchange, &info, cursor);
        });
    }

    pub(super) fn cursor(&mut self, sent: Option<u64>) -> u64 {
        let random = self.random();
        cursor::next(self.now.wall, sent, random)
    }

    pub(super) fn answer_problem(&mut self, conn: u32, problem: &Problem) {
        self.answer(conn, |out, exchange| problem.write(out, exchange));
    }

    /// Sends an answer without a body of stored bytes.
    pub(super) fn answer(&mut self, conn: u32, write: impl FnOnce(&mut Vec<u8>, &Exchange<'_>)) {
        let mut out = Vec::new();
        self.write_head(conn, &mut out, |out, exchange| write(out, exchange));
        self.finish(conn, out);
    }

    pub(super) fn write_head<T>(
        &self,
        conn: u32,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>, &Exchange<'_>) -> T,
    ) -> T {
        let exchange = &self.exchanges[&conn];
        let exchange = Exchange {
            version: exchange.version,
            keep_alive: true,
            is_head: exchange.is_head,
            date: &self.date,
        };
        write(out, &exchange)
    }

    /// Answers a catch-up read, or a long-poll that has something to tell.
    pub(super) fn answer_read(&mut self, conn: u32, request: &ReadRequest, reply: ReadReply) {
        let is_poll = request.live == Live::LongPoll;
        let cursor = is_poll.then(|| self.cursor(request.cursor));
        let answer = ReadAnswer {
            request,
            group: reply.key.group,
            info: &reply.info,
            start: reply.start,
            end: reply.end,
            is_stable: reply.end < reply.info.tail,
            cursor,
            gzip: false,
        };
        let mut out = Vec::new();
        let plan =
            self.write_head(conn, &mut out, |out, exchange| response::read(out, exchange, &answer));
        let BodyPlan::Range { start, end, frame, framing } = plan else {
            return self.finish(conn, out);
        };
        assert_eq!(framing, BodyFraming::Plain, "uncompressed answers have a length");
        out.extend_from_slice(frame.prefix);
        self.send(conn, out, false);
        let sending = Sending { reply, next: start, end, suffix: frame.suffix };
        if let Some(exchange) = self.exchanges.get_mut(&conn) {
            exchange.state = State::Sending(Box::new(sending));
        }
        self.pump(conn);
    }

    /// Sends what is at hand; asks for the next window, or ends the body.
    fn pump(&mut self, conn: u32) {
        let Some(exchange) = self.exchanges.get_mut(&conn) else { return };
        let State::Sending(sending) = &mut exchange.state else { return };
        if let Some(first) = sending.reply.first.take() {
            return self.take_window(conn, &first);
        }
        if sending.next < sending.end {
            let (key, limit) = sending.reply.owner_of(sending.next);
            let request = Request::Window { key, from: sending.next, to: limit.min(sending.end) };
            return self.ask(conn, request);
        }
        let suffix = sending.suffix.to_vec();
        self.finish(conn, suffix);
    }

    fn take_window(&mut self, conn: u32, slice: &Slice) {
        let Some(exchange) = self.exchanges.get_mut(&conn) else { return };
        let State::Sending(sending) = &mut exchange.state else { return };
        let Ok(mut bytes) = wanted(slice, sending.next, sending.end) else {
            return self.cut(conn, "");
        };
        sending.next = sending.next.advance(bytes.len() as u64);
        let is_fork = !sending.reply.info.lineage.spans().is_empty();
        if let Some(mutant) = self.options.mutant {
            mutant.change_window(is_fork, &mut bytes);
        }
        self.send(conn, bytes, false);
        self.pump(conn);
    }

    fn handle_window(&mut self, conn: u32, reply: Reply) {
        match reply {
            Reply::Window(slice) => self.take_window(conn, &slice),
            Reply::Failed(failure) => {
                let damaged = matches!(failure, Failure::Damaged { .. });
                self.cut(conn, if damaged { "damaged" } else { "" });
            }
            other => panic!("a window was asked for and got {other:?}"),
        }
    }

    /// Ends the connection in the middle of an answer. The reason is for the checkers alone.
    pub(super) fn cut(&mut self, conn: u32, reason: &str) {
        self.forget(conn);
        if reason == "damaged" {
            self.out.cut_by_damage.push(conn);
        }
        self.send(conn, Vec::new(), true);
    }
}

/// What a failure of the node is to a client.
fn problem_of(failure: Failure) -> Problem {
    match failure {
        Failure::DiskFull => Problem::new(Code::DiskFull),
        Failure::Poisoned { applied_unknown: true } => Problem::new(Code::WriteUnknown),
        Failure::Poisoned { applied_unknown: false } => Problem::new(Code::StorageFailed),
        Failure::Overloaded => Problem::overloaded(1),
        Failure::Damaged { file, position } => Problem::damaged(&file, position, position),
        Failure::Trimmed { head } => Problem::trimmed(head),
        Failure::NotFound => Problem::from(&Refusal::NotFound),
        Failure::Io { error } => Problem::with_detail(Code::Internal, error),
    }
}
