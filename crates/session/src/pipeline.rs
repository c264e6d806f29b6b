//! Requests behind the present one: asked early, answered in order.
//!
//! # Why
//! A client that sends many requests without waiting would otherwise get one sync for each. While the present
//! exchange waits for the node, whole requests behind it are asked, too, so they share a sync.
//!
//! # Manner
//! [`Step::look_ahead`] takes whole requests off the input as long as each may go: it becomes an [`Ahead`], whose
//! reply is kept until its turn. The first request that may not go, or that is no plain one, stays in the input
//! with all behind it. It becomes the present exchange when nothing is left before it, as if nobody had looked.
//!
//! # Invariants
//! - Requests of one connection that name the same stream take effect in order. An append goes after the checks
//!   of appends before it. All else goes after the replies to writes, and a write after the ends of reads.
//! - Every request that was asked is answered. An answer that ends the connection leaves that to the last of them,
//!   and nothing goes behind that one.
//! - A connection has at most [`AHEAD_MAX`] requests ahead, [`READS_AHEAD_MAX`] of them reads, each with at most
//!   one window of stored bytes.

use crate::{
    connection::{Connection, Pending, REQUEST_BUDGET_BYTES, State},
    gate::Judged,
    journal::Entry,
    receive::{NO_DATA, Write, join},
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire::{BodyLength, ExchangeId, Limits, Meta},
};
use access::Authorized;
use model::PathHash;
use node::Reply;
use protocol::request::{Asked, Page, Request, Shown, Site};
use std::borrow::Cow;
use std::sync::Arc;

/// Requests of one connection that the node has besides the present one.
const AHEAD_MAX: usize = 255;

/// Reads among them: each may bring a window of 64 KiB, which waits for its turn in memory.
const READS_AHEAD_MAX: usize = 8;

/// Bodies of those requests: the node copies each as it is asked.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// Bytes of requests that wait behind the present one, and so the longest request that is asked before its turn.
const INPUT_BYTES_MAX: usize = 128 << 10;

/// What an exchange does to which stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touch {
    path: Option<PathHash>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Append,
    /// Makes or deletes the stream: what follows finds it only when that is done.
    Exists,
    /// Nothing goes beside it: it may last, or it names several streams.
    Alone,
}

/// A request that was asked before its turn.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub stream: u32,
    meta: Meta,
    touch: Touch,
    pending: Pending,
    reply: Option<Reply>,
    body_bytes: usize,
    pub entry: Option<Box<Entry>>,
}

/// A whole request at the front of the input.
struct Whole<'b> {
    request: Request,
    shown: Option<Box<Shown<'b>>>,
    asked: Option<Box<Asked>>,
    page: Option<Page<'b>>,
    meta: Meta,
    touch: Touch,
    body: std::ops::Range<usize>,
}

/// What is at the front of the input.
enum Front<'b> {
    Whole(Box<Whole<'b>>),
    /// Less than a request.
    Partial,
    /// Something for its own turn.
    Other,
}

impl Touch {
    pub(crate) const ALONE: Self = Self { path: None, kind: Kind::Alone };

    pub(crate) fn of(request: &Request) -> Self {
        let (path, kind) = match request {
            Request::Create(create) if create.asked.fork.is_some() => return Self::ALONE,
            Request::Create(create) => (&create.asked.path, Kind::Exists),
            Request::Append(append) => (&append.path, Kind::Append),
            Request::Delete(path) => (path, Kind::Exists),
            Request::Read(_) if request.is_live() => return Self::ALONE,
            Request::Read(read) => (&read.path, Kind::Read),
            Request::Head(path) => (path, Kind::Read),
            Request::Resolve { .. } | Request::Change { .. } => return Self::ALONE,
            Request::Trim { .. } | Request::Preflight { .. } => return Self::ALONE,
        };
        Self { path: Some(path.hash()), kind }
    }

    /// Whether it may be asked although `earlier` is not over.
    fn may_follow(self, earlier: Self, state: Progress) -> bool {
        match (earlier.kind, self.kind) {
            (Kind::Alone, _) | (_, Kind::Alone) => false,
            _ if earlier.path != self.path => true,
            (Kind::Append, Kind::Append) => state != Progress::Checked,
            (Kind::Append | Kind::Exists, _) => state == Progress::Answered,
            (Kind::Read, Kind::Read) => true,
            (Kind::Read, _) => false,
        }
    }
}

/// How far an exchange is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Its body is being checked.
    Checked,
    Asked,
    Answered,
}

impl Connection {
    /// The present exchange is a new one.
    pub(crate) fn begin_exchange(&mut self, touch: Touch) {
        self.stream_next = self.stream_next.wrapping_add(1);
        (self.stream, self.touch) = (self.stream_next, touch);
    }

    /// Whether requests behind the present one are looked at.
    pub(crate) fn looks_ahead(&self) -> bool {
        matches!(self.state, State::Waiting(_))
            && self.touch.kind != Kind::Alone
            && self.meta.may_be_followed()
            && self.ahead.back().is_none_or(|last| last.meta.keep_alive)
            && !self.is_blocked
            && !self.has_ended
            && !self.is_clogged()
            && self.ahead.len() < AHEAD_MAX
            && self.ahead_bytes < AHEAD_BYTES_MAX
            && self.input.len() < INPUT_BYTES_MAX
    }

    /// How much may be received now. What is no whole request behind the present one waits in the input.
    pub(crate) fn input_room(&self) -> usize {
        let is_kept = matches!(self.state, State::Waiting(_));
        if is_kept { INPUT_BYTES_MAX.saturating_sub(self.input.len()) } else { usize::MAX }
    }

    fn may_go(&self, touch: Touch) -> bool {
        let is_checked = matches!(self.state, State::Waiting(Pending::Check));
        let present = if is_checked { Progress::Checked } else { Progress::Asked };
        let reads = self.ahead.iter().filter(|ahead| ahead.touch.kind == Kind::Read).count();
        let has_room = touch.kind != Kind::Read || reads < READS_AHEAD_MAX;
        has_room
            && touch.may_follow(self.touch, present)
            && self.ahead.iter().all(|ahead| {
                let is_answered = ahead.reply.is_some();
                let state = if is_answered { Progress::Answered } else { Progress::Asked };
                touch.may_follow(ahead.touch, state)
            })
    }

    /// Asserts that requests ahead are in order and within bounds.
    pub(crate) fn check_ahead(&self) {
        let numbers = self.ahead.iter().map(|ahead| ahead.stream.wrapping_sub(self.stream));
        let is_in_order = numbers.clone().zip(numbers.skip(1)).all(|(one, next)| one < next);
        assert!(is_in_order, "requests ahead are answered in the order of their numbers");
        assert!(self.ahead.len() <= AHEAD_MAX, "too many requests are ahead");
        let reads = self.ahead.iter().filter(|ahead| ahead.touch.kind == Kind::Read).count();
        assert!(reads <= READS_AHEAD_MAX, "too many reads are ahead");
        let bytes = self.ahead.iter().map(|ahead| ahead.body_bytes);
        assert_eq!(bytes.sum::<usize>(), self.ahead_bytes, "bodies ahead are counted");
        assert!(self.input.len() <= INPUT_BYTES_MAX, "too much input waits");
        let mut behind = self.ahead.iter().skip(1);
        let is_open = |ahead: &Ahead| behind.next().is_none() || ahead.meta.keep_alive;
        let are_open = self.ahead.is_empty() || self.meta.keep_alive;
        assert!(
            are_open && self.ahead.iter().all(is_open),
            "only the last one ends the connection"
        );
    }

    /// Keeps a reply for the turn of its exchange; `false` if none waits for it.
    pub(crate) fn keep_reply(&mut self, stream: u32, reply: Reply) -> bool {
        let ahead = self.ahead.iter_mut().find(|ahead| ahead.stream == stream);
        let is_known = ahead.is_some();
        if let Some(ahead) = ahead {
            ahead.reply = Some(reply);
        }
        is_known
    }

    /// The last exchange that the client may expect says that the connection ends.
    pub(crate) fn end_after_exchanges(&mut self) {
        let meta = self.ahead.back_mut().map_or(&mut self.meta, |ahead| &mut ahead.meta);
        meta.keep_alive = false;
    }

    /// What is at the front of `bytes`.
    fn front<'b>(&mut self, bytes: &'b [u8], limits: &Limits, site: &Site) -> Front<'b> {
        let arrived = match self.wire.next_request(bytes, limits, &self.peer.way(site)) {
            Ok(Some(arrived)) => arrived,
            Ok(None) => return Front::Partial,
            Err(_) => {
                // It is refused in its turn, which reads it from its start.
                self.wire.restart();
                return Front::Other;
            }
        };
        let BodyLength::Known(body_bytes) = arrived.body else { return Front::Other };
        if body_bytes > (bytes.len() - arrived.head_bytes) as u64 {
            let is_short = body_bytes <= INPUT_BYTES_MAX.saturating_sub(arrived.head_bytes) as u64;
            let is_awaited = is_short && !arrived.expects_invitation;
            return if is_awaited { Front::Partial } else { Front::Other };
        }
        match arrived.request {
            Ok(request) if arrived.meta.may_be_followed() => {
                let touch = Touch::of(&request);
                let body = arrived.head_bytes..arrived.head_bytes + body_bytes as usize;
                let (meta, page) = (arrived.meta, arrived.page);
                let (shown, asked) = (arrived.shown, arrived.asked);
                Front::Whole(Box::new(Whole { request, shown, asked, page, meta, touch, body }))
            }
            _ => Front::Other,
        }
    }
}

/// Whether a request is not asked early: its body is checked beside the loop, or it is answered here.
fn has_own_turn(whole: &Whole<'_>, check_on_loop_bytes_max: usize) -> bool {
    match &whole.request {
        Request::Create(_) | Request::Append(_) => {
            whole.body.len() > check_on_loop_bytes_max && whole.request.takes_json()
        }
        Request::Resolve { .. } | Request::Change { .. } | Request::Trim { .. } => true,
        Request::Preflight { .. } => true,
        Request::Read(_) | Request::Head(_) | Request::Delete(_) => false,
    }
}

impl<T: Transport> Step<'_, T> {
    /// Asks the request at the front of `bytes` before its turn; returns its length, or `None` if it waits.
    pub(crate) fn look_ahead(&mut self, id: ConnId, bytes: &[u8]) -> Option<usize> {
        let turn = self.state.turn;
        let connection = self.state.connections.get_mut(id)?;
        if bytes.is_empty() || self.state.stopping.is_some() || !connection.looks_ahead() {
            return None;
        }
        let is_long =
            connection.has_had_request(turn) && self.io.turn_ns() > crate::sessions::TURN_NS_MAX;
        if connection.is_spent(turn) || is_long {
            self.yield_input(id);
            return None;
        }
        let site = &self.state.options.site;
        let whole = match connection.front(bytes, &self.state.limits, site) {
            Front::Whole(whole)
                if connection.may_go(whole.touch)
                    && !has_own_turn(&whole, self.state.options.check_on_loop_bytes_max) =>
            {
                *whole
            }
            Front::Partial => return None,
            Front::Whole(_) | Front::Other => {
                connection.is_blocked = true;
                return None;
            }
        };
        let Whole { request, shown, asked, page, mut meta, touch, body } = whole;
        meta.note_page(page.as_ref(), &self.state.options.pages);
        let used = body.end;
        let length = BodyLength::Known(body.len() as u64);
        let from = (shown.as_deref(), page.as_ref());
        let judged = self.judge_request(id, request, from, length);
        let (mut who, body_bytes) = (None, body.len());
        let write = match judged {
            Judged::Authorized(request) => {
                if self.state.journal.is_kept() {
                    who = request.permit().who().map(|who| Arc::clone(who.name()));
                }
                self.prepare(request, &bytes[body])
            }
            // It is judged again in its turn, which has the answer. So is one whose body is refused, and it counts
            // twice against a limit.
            Judged::Denied(_) | Judged::Foreign(_) | Judged::Later => None,
        };
        let Some(write) = write else {
            let connection = self.state.connections.get_mut(id)?;
            connection.is_blocked = true;
            return None;
        };
        let connection = self.state.connections.get_mut(id)?;
        connection.spend(turn, REQUEST_BUDGET_BYTES);
        connection.stream_next = connection.stream_next.wrapping_add(1);
        let stream = connection.stream_next;
        let Write { pending, request, data } = write;
        let now = self.state.now.monotonic;
        let mut entry = connection.entry_of(asked, shown.as_deref(), now);
        if let Some(entry) = &mut entry {
            (entry.who, entry.body_bytes) = (who, body_bytes as u64);
        }
        connection.ahead_bytes += body_bytes;
        let ahead = Ahead { stream, meta, touch, pending, reply: None, body_bytes, entry };
        connection.ahead.push_back(ahead);
        self.ask_as(ExchangeId { conn: id, stream }, request, data);
        Some(used)
    }

    /// What to ask for a plain request; `None` if its body is refused.
    fn prepare<'a>(&mut self, request: Authorized<Request>, body: &'a [u8]) -> Option<Write<'a>> {
        if matches!(request.get(), Request::Create(_) | Request::Append(_)) {
            return join(request, Cow::Borrowed(body)).ok();
        }
        let (request, permit) = request.take_apart();
        match request {
            Request::Read(read) => {
                let read = permit.apply(read);
                let request = self.read_of(&read);
                let pending = Pending::Read(Box::new(read));
                Some(Write { pending, request, data: NO_DATA })
            }
            Request::Head(path) => {
                let request = permit.apply(node::Request::Head { path });
                Some(Write { pending: Pending::Head, request, data: NO_DATA })
            }
            Request::Delete(path) => {
                let request = permit.apply(node::Request::Delete { path });
                Some(Write { pending: Pending::Write, request, data: NO_DATA })
            }
            Request::Resolve { .. } | Request::Change { .. } | Request::Trim { .. } => None,
            Request::Create(_) | Request::Append(_) | Request::Preflight { .. } => None,
        }
    }

    /// The next requests that were asked early have their turn, as far as they are answered.
    pub(crate) fn advance(&mut self, id: ConnId) {
        let now = self.state.now.monotonic;
        while let Some(connection) = self.state.connections.get_mut(id) {
            if !matches!(connection.state, State::Head) || connection.is_clogged() {
                return;
            }
            let Some(ahead) = connection.ahead.pop_front() else { return };
            let Ahead { stream, meta, touch, pending, reply, body_bytes, entry } = ahead;
            connection.ahead_bytes -= body_bytes;
            connection.entry = entry;
            (connection.stream, connection.touch, connection.meta) = (stream, touch, meta);
            connection.is_blocked = false;
            connection.progress = now;
            let Some(reply) = reply else {
                connection.state = State::Waiting(pending);
                return;
            };
            connection.is_advancing = true;
            self.answer_pending(id, pending, reply);
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.is_advancing = false;
            }
        }
    }
}

/// What tests of the check break.
#[cfg(test)]
impl Connection {
    pub(crate) fn ask_ahead(&mut self, stream: u32) {
        let (meta, touch) = (self.meta, Touch { path: None, kind: Kind::Append });
        let (pending, body_bytes) = (Pending::Write, 0);
        let ahead = Ahead { stream, meta, touch, pending, reply: None, body_bytes, entry: None };
        self.ahead.push_back(ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &str, kind: Kind) -> Touch {
        let path = model::StreamPath::new(path).unwrap();
        Touch { path: Some(path.hash()), kind }
    }

    #[test]
    fn requests_of_one_stream_keep_their_order() {
        let (read, write) = (touch("a", Kind::Read), touch("a", Kind::Append));
        let exists = touch("a", Kind::Exists);
        assert!(write.may_follow(write, Progress::Asked));
        assert!(
            !write.may_follow(exists, Progress::Asked)
                && !exists.may_follow(write, Progress::Asked)
        );
        assert!(write.may_follow(exists, Progress::Answered));
        assert!(!write.may_follow(write, Progress::Checked));
        assert!(!read.may_follow(write, Progress::Asked));
        assert!(read.may_follow(write, Progress::Answered));
        assert!(read.may_follow(read, Progress::Asked));
        assert!(!write.may_follow(read, Progress::Answered), "its body is not sent");
    }

    #[test]
    fn other_streams_do_not_wait_but_for_what_goes_alone() {
        let (read, write) = (touch("a", Kind::Read), touch("b", Kind::Append));
        assert!(read.may_follow(write, Progress::Asked) && write.may_follow(read, Progress::Asked));
        assert!(read.may_follow(write, Progress::Checked));
        assert!(!read.may_follow(Touch::ALONE, Progress::Answered));
        assert!(!Touch::ALONE.may_follow(read, Progress::Answered));
    }
}
