//! All connections of one shard: what goes in, what comes out, and the order of both.
//!
//! # Driving it
//! 1. [`Sessions::begin_turn`] once for each turn of the loop;
//! 2. [`Sessions::open`] for a new connection, then [`Input::Opened`] when its id is known to the transport;
//! 3. [`Sessions::handle`] for everything that happens. What it asks goes to the shard that owns the group, whose
//!    reply comes back as [`Input::Reply`], never from within the call;
//! 4. [`Sessions::poll_check`] until it is empty;
//! 5. sleep until [`Sessions::next_deadline`], or not at all while [`Sessions::is_behind`].
//!
//! # Invariants
//! - Nothing of a request outlives its connection.
//! - A ticket names a connection by slot and generation; a reply for one that is gone is dropped.

use crate::{
    check::{CheckDone, CheckJob},
    connection::{Connection, State},
    counts::Counts,
    deadlines::Deadlines,
    due_answers::DueAnswers,
    fair_queue::FairQueue,
    gate::Gate,
    journal::{Journal, Lines},
    live::LiveStreams,
    options::{Admission, Options},
    slab::{ConnId, Slab},
    transport::{Peer, Transport},
    window_cache::WindowCache,
    wire::{ExchangeId, Limits, Ready},
};
use access::{Access, Authorized};
use env::{Random, SeededRandom};
use model::{GroupId, Monotonic, ShardId};
use node::{Change, Reply, Request, Stamp, Ticket};
use protocol::HttpDate;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// After this time a turn serves only connections that have had nothing in it. A request may cost a
/// millisecond, as a read of thousands of short appends does.
pub(crate) const TURN_NS_MAX: u64 = 500_000;

/// What one `read` of a connection takes at most.
const SCRATCH_BYTES: usize = 64 << 10;

/// Everything that can happen to a session.
#[derive(Debug)]
pub enum Input {
    /// A connection that [`Sessions::open`] has named can be read and written.
    Opened(ConnId),
    /// A connection may have something to read; `ended` if its client sends no more after that.
    Readable {
        /// Which.
        conn: ConnId,
        /// Whether the client has closed its half.
        ended: bool,
    },
    /// A connection takes bytes again.
    Writable(ConnId),
    /// A connection is broken.
    Broken(ConnId),
    /// The reply to an ask.
    Reply(Ticket, Reply),
    /// A stream that is watched has changed.
    Changed(Change),
    /// A body was checked.
    Checked(CheckDone),
    /// Time has passed: deadlines, and now and then the coarser limits.
    Tick,
    /// New rules for what clients may do.
    Access(Arc<Access>),
    /// The server stops: nobody new, live readers are sent on, everybody else may finish.
    Stop,
}

/// A request for the shard that owns a group.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The receiver of the reply.
    pub ticket: Ticket,
    /// What is asked, without its data.
    pub request: Request,
    /// Its data.
    pub data: Cow<'a, [u8]>,
}

/// The connections of one shard.
#[derive(Debug)]
pub struct Sessions {
    pub(crate) shard: ShardId,
    pub(crate) options: Options,
    pub(crate) admission: Arc<Admission>,
    pub(crate) gate: Gate,
    pub(crate) journal: Journal,
    pub(crate) counts: Counts,
    pub(crate) connections: Slab<Connection>,
    pub(crate) live: LiveStreams,
    pub(crate) due: DueAnswers,
    pub(crate) deadlines: Deadlines,
    pub(crate) now: Stamp,
    pub(crate) date: HttpDate,
    pub(crate) limits: Limits,
    /// The buffer that connections are read into.
    pub(crate) scratch: Vec<u8>,
    /// The buffer that heads of answers are written into.
    pub(crate) head: Vec<u8>,
    /// Connections that had their budget of this turn and continue with the next.
    pub(crate) runnable: VecDeque<ConnId>,
    pub(crate) fair: FairQueue,
    pub(crate) windows: WindowCache,
    pub(crate) turn: u64,
    pub(crate) gzip_count: usize,
    pub(crate) random: SeededRandom,
    pub(crate) stopping: Option<Monotonic>,
    /// What admission is charged for bodies of forks that the node has.
    pub(crate) fork_bytes: HashMap<ExchangeId, usize>,
    pub(crate) checks: VecDeque<CheckJob>,
    /// Connections that carry many exchanges, and their streams, that something has happened to.
    pub(crate) ready: Arc<Ready>,
    /// What frames of a line are written to, one line after the other.
    pub(crate) frames_buffer: Vec<u8>,
}

/// Takes what a session asks, at once; the data is borrowed where it lies.
pub type AskSink<'a> = dyn FnMut(Ask<'_>) + 'a;

/// One input under way, with the transport and the sink that it may use.
pub(crate) struct Step<'a, T> {
    pub state: &'a mut Sessions,
    pub io: &'a mut T,
    asks: &'a mut AskSink<'a>,
}

impl Sessions {
    /// A session without connections. `seed` spreads cache cursors and is not 0.
    #[must_use]
    pub fn new(
        shard: ShardId,
        options: Options,
        admission: Arc<Admission>,
        (now, seed): (Stamp, u64),
    ) -> Self {
        Self {
            limits: Limits::of(&options),
            shard,
            admission,
            gate: Gate::new(Arc::new(Access::open(None))),
            journal: Journal::new(options.logs, shard, now.wall),
            options,
            counts: Counts::default(),
            connections: Slab::new(),
            live: LiveStreams::default(),
            due: DueAnswers::default(),
            deadlines: Deadlines::default(),
            now,
            date: HttpDate::new(now.wall),
            scratch: vec![0; SCRATCH_BYTES],
            head: Vec::with_capacity(1024),
            runnable: VecDeque::new(),
            fair: FairQueue::default(),
            windows: WindowCache::default(),
            turn: 0,
            gzip_count: 0,
            random: SeededRandom::new(seed),
            stopping: None,
            fork_bytes: HashMap::new(),
            checks: VecDeque::new(),
            ready: Arc::default(),
            frames_buffer: Vec::new(),
        }
    }

    /// This session with other rules than those that let everybody do everything.
    #[must_use]
    pub fn with_access(mut self, access: Arc<Access>) -> Self {
        self.put_access(access);
        self
    }

    /// These rules count from now on.
    pub(crate) fn put_access(&mut self, access: Arc<Access>) {
        self.limits.reads_shown = !access.is_open() || self.journal.is_kept();
        self.gate.access = access;
    }

    /// A turn begins: connections that had their budget of the last one continue.
    pub fn begin_turn(&mut self, now: Stamp, io: &mut impl Transport, asks: &mut AskSink<'_>) {
        self.set_now(now);
        self.turn += 1;
        let mut step = Step { state: self, io, asks };
        step.run_turn();
        step.run_ready();
    }

    /// Makes room for a connection.
    pub fn open(&mut self, peer: Peer) -> ConnId {
        let now = self.now.monotonic;
        self.connections.insert(|id| Connection::new(id, peer, now))
    }

    /// Takes one input in. Answers that a reply makes over HTTP/2 wait for [`Self::send_answers`].
    pub fn handle(
        &mut self,
        now: Stamp,
        input: Input,
        io: &mut impl Transport,
        asks: &mut AskSink<'_>,
    ) {
        self.set_now(now);
        let is_reply = matches!(input, Input::Reply(..));
        let mut step = Step { state: self, io, asks };
        match input {
            Input::Opened(conn) => step.admit(conn),
            Input::Readable { conn, ended } => step.handle_ready(conn, ended),
            Input::Writable(conn) => step.handle_writable(conn),
            Input::Broken(conn) => step.drop_connection(conn),
            Input::Reply(ticket, reply) => step.handle_reply(ticket, reply),
            Input::Changed(change) => step.handle_change(change),
            Input::Checked(done) => step.handle_checked(done),
            Input::Tick => step.handle_tick(),
            Input::Access(access) => step.take_access(access),
            Input::Stop => step.begin_stop(),
        }
        if !is_reply {
            step.run_ready();
        }
    }

    /// The replies that there are now were all taken: their answers over HTTP/2 go out, with one write for those of a connection. What is
    /// not called for here comes in the next turn.
    #[inline]
    pub fn send_answers(&mut self, now: Stamp, io: &mut impl Transport, asks: &mut AskSink<'_>) {
        self.set_now(now);
        Step { state: self, io, asks }.run_ready();
    }

    /// The next body to check beside the loop; its result comes back as [`Input::Checked`].
    #[inline]
    pub fn poll_check(&mut self) -> Option<CheckJob> {
        self.checks.pop_front()
    }

    /// When the session wants [`Input::Tick`] at the latest, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Monotonic {
        self.deadlines.next()
    }

    /// Whether there is work left over from the last turn.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.runnable.is_empty()
            || self.fair.is_ready()
            || self.due.is_any()
            || self.deadlines.is_behind
            || self.ready.is_any()
    }

    /// Whether clients that send much wait for the next turn.
    #[must_use]
    pub fn has_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// Whether it was told to stop and everybody has gone, or has had the time for it.
    #[must_use]
    pub fn is_finished(&self, now: Monotonic) -> bool {
        self.stopping.is_some_and(|deadline| self.connections.len() == 0 || now >= deadline)
    }

    /// Whether the time for a stop is over.
    #[must_use]
    pub fn is_late(&self, now: Monotonic) -> bool {
        self.stopping.is_some_and(|deadline| now >= deadline)
    }

    /// Lines of the logs that wait, in bytes.
    #[must_use]
    #[inline]
    pub fn log_bytes(&self) -> usize {
        self.journal.bytes()
    }

    /// Takes the lines of the logs.
    pub fn take_log(&mut self) -> Lines {
        self.journal.take(self.now.wall)
    }

    /// Puts lines back that could not be written now.
    pub fn put_log_back(&mut self, lines: Lines) {
        self.journal.put_back(lines);
    }

    /// Connections that are open.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Streams that have live readers here.
    #[must_use]
    pub fn watched_count(&self) -> usize {
        self.live.stream_count()
    }

    /// Whether answers wait for room on a connection. Without any, [`Input::Writable`] changes nothing.
    #[must_use]
    #[inline]
    pub fn has_unsent(&self, conn: ConnId) -> bool {
        self.connections.get(conn).is_some_and(|connection| !connection.is_drained())
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The connection that uses a slot now; `None` if that is a stream of another one, which has no transport.
    #[must_use]
    pub fn conn_in(&self, slot: usize) -> Option<ConnId> {
        let id = self.connections.id_of(slot)?;
        self.connections.get(id).filter(|connection| !connection.is_stream()).map(|_| id)
    }

    /// Asserts the invariants of what is kept here; for the simulator, after each turn.
    ///
    /// # Panics
    /// If one of them is broken.
    pub fn check(&mut self) {
        let ids = self.connections.ids();
        assert_eq!(ids.len(), self.connections.len(), "each slot is free or used");
        let mut gzip_count = 0;
        for id in &ids {
            let connection = self.connections.get_mut(*id).expect("just listed");
            connection.check();
            connection.check_ahead();
            gzip_count += usize::from(connection.is_compressing());
            let (is_queued, yielded) = (connection.is_queued, connection.yielded);
            assert_eq!(is_queued, self.fair.has_queued(*id), "{id:?} is queued once or not at all");
            assert_eq!(yielded, self.runnable.contains(id), "{id:?} continues in a later turn");
        }
        assert_eq!(gzip_count, self.gzip_count, "compressors at work are counted");
        self.check_streams();
        self.fair.check();
        self.live.check();
        self.check_waiting();
        for (key, id) in self.live.waiting() {
            let connection = self.connections.get_mut(id).expect("a live reader has a connection");
            assert_eq!(connection.follows(), Some(key), "{id:?} is live where it says");
        }
        for (_, known) in self.live.readers() {
            let connection = self.connections.get_mut(known.id).map(|connection| &connection.state);
            let Some(State::Sse(reader)) = connection else { panic!("{known:?} is no reader") };
            assert!(!reader.is_revoked, "{known:?} is live no more");
            assert_eq!(reader.as_live(known.id), known, "what frames know of it holds");
        }
    }

    /// Asserts that each reader that waits for something is where it comes from.
    fn check_waiting(&mut self) {
        let woken: HashSet<(u64, ConnId)> = self.due.polls().collect();
        let ending: HashSet<ConnId> = self.due.ends().collect();
        for id in self.connections.ids() {
            match &self.connections.get_mut(id).expect("just listed").state {
                State::LongPoll(poll) => {
                    let is_waiting = self.live.has_poll(poll.key, poll.number);
                    let is_woken = woken.contains(&(poll.number, id));
                    assert!(is_waiting != is_woken, "{id:?} waits at its stream or for its turn");
                }
                State::Sse(reader) => {
                    let place = reader.live_number().map(|n| self.live.place_of(reader.key, n));
                    assert_ne!(place, Some(None), "{id:?} is live with nobody");
                    let is_ending = reader.is_ending();
                    assert_eq!(is_ending, ending.contains(&id), "{id:?} ends in its turn");
                }
                _ => {}
            }
        }
    }

    #[inline]
    fn set_now(&mut self, now: Stamp) {
        let is_new = now.wall != self.now.wall;
        if is_new && now.wall.get() / 1000 != self.now.wall.get() / 1000 {
            self.date = HttpDate::new(now.wall);
        }
        self.now = now;
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random.next_u64()
    }
}

impl<T: Transport> Step<'_, T> {
    fn run_turn(&mut self) {
        self.state.gate.verified.begin_turn();
        self.state.fair.begin_turn();
        self.state.due.begin_turn(self.state.options.due_answers_per_turn_max);
        for _ in 0..self.state.runnable.len() {
            if self.is_turn_long() {
                break;
            }
            let Some(id) = self.state.runnable.pop_front() else { break };
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.yielded = false;
            }
            self.resume_input(id);
        }
        self.call_queued();
        self.send_unsent();
        if self.state.due.is_any() {
            self.give_due();
        }
        if self.state.deadlines.is_behind {
            self.handle_tick();
        }
    }

    /// Whether this turn has taken so long that connections it has served should wait for the next.
    pub(crate) fn is_turn_long(&self) -> bool {
        self.io.turn_ns() > TURN_NS_MAX
    }

    fn handle_ready(&mut self, id: ConnId, ended: bool) {
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.readable = true;
            connection.is_half_closed |= ended;
        }
        self.handle_readable(id, ended);
    }

    fn handle_tick(&mut self) {
        let is_all = self.handle_deadlines();
        self.sweep();
        self.state.deadlines.is_behind = !is_all || self.state.deadlines.sweep_slot.is_some();
        self.stop_some();
        self.judge_some();
    }

    /// Asks for something whose reply comes to `id`.
    pub(crate) fn ask(&mut self, id: ConnId, request: Authorized<Request>, data: Cow<'_, [u8]>) {
        let exchange = self.exchange_of(id);
        self.ask_as(exchange, request, data);
    }

    /// Asks on about a stream that a reply to an authorized request has named. Nothing else knows its key.
    pub(crate) fn ask_on_key(&mut self, id: ConnId, request: Request) {
        debug_assert!(request.path().is_none(), "a path is asked for by an authorized request");
        let ticket = Ticket { shard: self.state.shard, exchange: self.exchange_of(id).into() };
        (self.asks)(Ask { ticket, request, data: Cow::Borrowed(&[]) });
    }

    /// The present exchange of a connection.
    #[inline]
    pub(crate) fn exchange_of(&mut self, id: ConnId) -> ExchangeId {
        let stream = self.state.connections.get_mut(id).map_or(0, |connection| connection.stream);
        ExchangeId { conn: id, stream }
    }

    /// Asks for something whose reply comes to `exchange`.
    #[inline]
    pub(crate) fn ask_as(
        &mut self,
        exchange: ExchangeId,
        request: Authorized<Request>,
        data: Cow<'_, [u8]>,
    ) {
        let ticket = Ticket { shard: self.state.shard, exchange: exchange.into() };
        (self.asks)(Ask { ticket, request: request.into_inner(), data });
    }
}

impl Ask<'_> {
    /// The group that the request is for, of `group_count` groups.
    ///
    /// # Panics
    /// If the request names neither a path nor a stream, which none does.
    #[must_use]
    pub fn group(&self, group_count: u16) -> GroupId {
        match &self.request {
            Request::Window { key, .. } | Request::Watch { key } | Request::Unwatch { key } => {
                key.group
            }
            other => other.path().expect("others name a path").group(group_count),
        }
    }

    /// Whether it changes a stream.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self.request, Request::Create(_) | Request::Append { .. } | Request::Delete { .. })
    }
}
