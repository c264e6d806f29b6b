//! The event loop of one shard: sockets, mail and the node, in one thread.
//!
//! # A turn
//! 1. wait for sockets, mail or the next deadline;
//! 2. read what sockets have, parse, give requests to the node or to another loop's outgoing mail;
//! 3. if commits run on this thread, look for writes that are about to come ([`Gather`]);
//! 4. take mail in;
//! 5. drain the node: answers go to connections, jobs to threads, the rest to outgoing mail; a commit
//!    runs here and now if there is little else to do ([`SyncPlace`]);
//! 6. hand the outgoing mail over, one lock and one wake per loop that gets any.
//!
//! All requests of a turn are in the node before it is drained, so they share one group commit.
//!
//! # Invariants
//! - Only this thread touches its connections, its node and its live readers.
//! - A ticket names a connection by slot and generation; an answer for one that is gone is dropped.

use super::{
    bulk::Bulk,
    connection::Connection,
    gather::Gather,
    live::LiveStreams,
    mailbox::{Mail, Mailbox},
    slots::{SlotId, Slots},
    sync_place::SyncPlace,
    timers::Deadlines,
    windows::Windows,
    workers::Workers,
};
use crate::{metrics::ShardMetrics, settings::Settings};
use env::Clock;
use log::SyncDone;
use mio::{Events, Interest, Poll, Token, net::TcpListener};
use model::{Monotonic, ShardId, StreamPath};
use node::{Event, Output, Request, ShardCore, Stamp, Ticket};
use protocol::{HttpDate, http1::HeadLimits};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, atomic::AtomicUsize};
use std::time::Duration;

pub(crate) const WAKE: Token = Token(usize::MAX);
const LISTEN: Token = Token(usize::MAX - 1);

/// The node's clockwork (expiry, checkpoints, sweeps) runs this often.
const TICK_MS: u64 = 100;

/// Events that one wait returns at most: each may send or receive 64 KiB, and those who ask for little wait for
/// the turn to end.
const EVENTS_MAX: usize = 64;

/// After this time a turn serves those who have had nothing in it, and nobody else: a request may cost a
/// millisecond, as a read of thousands of short appends does.
const TURN_NS_MAX: u64 = 500_000;

/// Connections accepted in one turn at most, so that a flood of them does not starve the others.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// What one `read` from a socket takes at most.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

/// What all shards of the process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub mailboxes: Vec<Arc<Mailbox>>,
    pub connections: AtomicUsize,
    /// Bytes of request bodies that have arrived and are not in a log yet.
    pub body_bytes: AtomicUsize,
}

pub(crate) struct Shard {
    pub(super) id: ShardId,
    pub(super) shared: Arc<Shared>,
    pub(super) node: ShardCore,
    pub(super) metrics: Arc<ShardMetrics>,
    pub(super) poll: Poll,
    pub(super) listener: Option<TcpListener>,
    /// The listener may have more connections than were accepted.
    accept_pending: bool,
    pub(super) connections: Slots<Connection>,
    pub(super) live: LiveStreams,
    pub(super) deadlines: Deadlines,
    pub(super) now: Stamp,
    pub(super) date: HttpDate,
    /// Outgoing mail by shard.
    outgoing: Vec<Vec<Mail>>,
    incoming: Vec<Mail>,
    pub(super) workers: Workers,
    pub(super) limits: HeadLimits,
    /// The buffer that sockets are read into.
    pub(super) scratch: Vec<u8>,
    /// The buffer that heads of answers are written into.
    pub(super) head: Vec<u8>,
    /// Connections that had their share of this turn and go on with the next.
    pub(super) again: VecDeque<SlotId>,
    pub(super) bulk: Bulk,
    pub(super) windows: Windows,
    pub(super) turn: u64,
    pub(super) gzip_count: usize,
    pub(super) random: u64,
    pub(super) stopping: Option<Monotonic>,
    syncs_in_flight: usize,
    sync_place: SyncPlace,
    pub(super) gather: Gather,
    next_tick: Monotonic,
    accept_again: Monotonic,
}

/// What a shard starts from.
pub(crate) struct ShardParts {
    pub node: ShardCore,
    pub poll: Poll,
    pub listener: TcpListener,
    pub shared: Arc<Shared>,
    pub metrics: Arc<ShardMetrics>,
    pub workers: Workers,
    pub seed: u64,
}

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Arc<Self> {
        let (connections, body_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { settings: settings.clone(), clock, mailboxes, connections, body_bytes })
    }
}

impl Shard {
    pub(crate) fn new(parts: ShardParts) -> Self {
        let ShardParts { node, poll, listener, shared, metrics, workers, seed } = parts;
        let clock = &shared.clock;
        let now = Stamp { wall: clock.now_wall(), monotonic: clock.now_monotonic() };
        let limits = HeadLimits {
            head_bytes_max: shared.settings.head_bytes_max,
            body_bytes_max: shared.settings.append_bytes_max as u64,
        };
        Self {
            id: node.shard(),
            node,
            metrics,
            poll,
            listener: Some(listener),
            accept_pending: false,
            connections: Slots::new(),
            live: LiveStreams::default(),
            deadlines: Deadlines::default(),
            now,
            date: HttpDate::new(now.wall),
            outgoing: shared.mailboxes.iter().map(|_| Vec::new()).collect(),
            incoming: Vec::new(),
            workers,
            limits,
            scratch: vec![0; SCRATCH_BYTES],
            head: Vec::with_capacity(1024),
            again: VecDeque::new(),
            bulk: Bulk::default(),
            windows: Windows::default(),
            turn: 0,
            gzip_count: 0,
            random: seed,
            stopping: None,
            syncs_in_flight: 0,
            sync_place: SyncPlace::default(),
            gather: Gather::default(),
            next_tick: now.monotonic,
            accept_again: now.monotonic,
            shared,
        }
    }

    /// Serves until a [`Mail::Stop`] has been carried out.
    ///
    /// # Errors
    /// If the system's readiness interface fails; nothing can be served then.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.listen()?;
        let mut events = Self::events();
        while !self.is_finished() {
            self.wait(&mut events)?;
            self.turn(&mut events)?;
        }
        if self.syncs_in_flight == 0 {
            self.close_log();
        }
        Ok(())
    }

    /// Listens; comes before the first turn.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        self.poll.registry().register(listener, LISTEN, Interest::READABLE)
    }

    /// Room for the events of one turn.
    pub(super) fn events() -> Events {
        Events::with_capacity(EVENTS_MAX)
    }

    /// A turn with the events that are there, if any.
    pub(super) fn turn_now(&mut self, events: &mut Events) -> io::Result<()> {
        self.poll_events(events, Duration::ZERO)?;
        self.turn(events)
    }

    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        self.read_clock();
        self.turn += 1;
        self.sync_place.note_turn(events.iter().count(), self.is_behind());
        self.go_on_with_shares();
        self.handle_events(events);
        self.gather(events)?;
        if self.accept_pending {
            self.accept()?;
        }
        self.take_mail();
        self.run_clockwork();
        self.drain_node();
        self.hand_over()
    }

    fn handle_events(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKE => {}
                LISTEN => self.accept_pending = true,
                Token(slot) => self.handle_socket(slot, event),
            }
        }
    }

    /// Lets writes that are about to come into the commit of this turn.
    fn gather(&mut self, events: &mut Events) -> io::Result<()> {
        while self.sync_place.is_loop()
            && !self.accept_pending
            && !self.is_behind()
            && self.gather.waits(self.shared.clock.now_monotonic())
        {
            self.poll_events(events, Duration::ZERO)?;
            self.handle_events(events);
            if events.iter().any(|event| event.token() == WAKE) {
                break;
            }
        }
        self.gather.end();
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        if !self.again.is_empty() {
            // A client that pipelines keeps this thread busy: the WAL threads and whoever else is on this
            // processor need not wait for the end of its time slice. Not for readers of stored bytes: where
            // somebody computes beside us, each of these is a time slice lost.
            std::thread::yield_now();
        }
        let now = self.shared.clock.now_monotonic();
        let next = self.deadlines.next().map_or(self.next_tick, |due| due.min(self.next_tick));
        let accepts = self.accept_pending && now >= self.accept_again;
        let wait_ns =
            if accepts || self.is_behind() { 0 } else { next.get().saturating_sub(now.get()) };
        self.poll_events(events, Duration::from_nanos(wait_ns))
    }

    fn poll_events(&mut self, events: &mut Events, wait: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether there is work left over from the last turn.
    fn is_behind(&self) -> bool {
        !self.again.is_empty() || self.bulk.is_ready()
    }

    /// Whether this turn has taken so long that those who had something in it should wait for the next.
    pub(super) fn is_turn_long(&self) -> bool {
        let now = self.shared.clock.now_monotonic();
        now.get() - self.now.monotonic.get() > TURN_NS_MAX
    }

    fn read_clock(&mut self) {
        let wall = self.shared.clock.now_wall();
        if wall.get() / 1000 != self.now.wall.get() / 1000 {
            self.date = HttpDate::new(wall);
        }
        self.now = Stamp { wall, monotonic: self.shared.clock.now_monotonic() };
    }

    fn handle_socket(&mut self, slot: usize, event: &mio::event::Event) {
        let Some(id) = self.connections.id_of(slot) else { return };
        if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
            return self.drop_connection(id);
        }
        if event.is_writable() {
            self.handle_writable(id);
        }
        if event.is_readable() || event.is_read_closed() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.readable = true;
            }
            self.handle_readable(id, event.is_read_closed());
        }
    }

    fn go_on_with_shares(&mut self) {
        self.bulk.begin_turn();
        for _ in 0..self.again.len() {
            if self.is_turn_long() {
                break;
            }
            let Some(id) = self.again.pop_front() else { break };
            if let Some(connection) = self.connections.get_mut(id) {
                connection.goes_on = false;
            }
            self.resume_input(id);
        }
        self.call_waiting();
        self.send_unsent();
    }

    fn accept(&mut self) -> io::Result<()> {
        if self.now.monotonic < self.accept_again {
            return Ok(());
        }
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let Some(listener) = &self.listener else { return Ok(()) };
            match listener.accept() {
                Ok((socket, _)) => self.admit(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accept_pending = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors or memory: those who are connected go on being served.
                    tracing::warn!(%error, "cannot accept connections, trying again in 100 ms");
                    self.accept_again = self.now.monotonic.plus_ms(TICK_MS);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Registers a connection's socket under its slot.
    pub(super) fn register(&mut self, id: SlotId) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(id) else { return Ok(()) };
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(id.slot as usize);
        self.poll.registry().register(&mut connection.socket, token, interest)
    }

    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.incoming);
        self.shared.mailboxes[usize::from(self.id.get())].take(&mut mail);
        for mail in mail.drain(..) {
            match mail {
                Mail::Request { ticket, request, data } => {
                    self.node.handle(self.now, Event::Request { ticket, request, data: &data });
                }
                Mail::Reply { ticket, reply } => self.handle_reply(ticket, reply),
                Mail::Shard(message) => self.node.handle(self.now, Event::Shard(message)),
                Mail::Changed(change) => self.handle_change(change),
                Mail::Synced { done, took_ns } => {
                    self.syncs_in_flight -= 1;
                    self.handle_synced(done, took_ns);
                }
                Mail::Worked(done) => self.node.handle(self.now, Event::Worked(done)),
                Mail::Checked(done) => self.handle_checked(*done),
                Mail::Stop => self.begin_stop(),
            }
        }
        self.incoming = mail;
    }

    fn run_clockwork(&mut self) {
        self.handle_deadlines();
        if self.now.monotonic < self.next_tick {
            return;
        }
        self.next_tick = self.now.monotonic.plus_ms(TICK_MS);
        self.node.handle(self.now, Event::Tick);
        self.sweep();
        self.report();
    }

    fn drain_node(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Reply { ticket, reply } if ticket.shard == self.id => {
                    self.handle_reply(ticket, reply);
                }
                Output::Reply { ticket, reply } => {
                    self.mail(ticket.shard, Mail::Reply { ticket, reply });
                }
                Output::Shard { to, message } => self.mail(to, Mail::Shard(message)),
                Output::Changed { to, change } if to == self.id => self.handle_change(change),
                Output::Changed { to, change } => self.mail(to, Mail::Changed(change)),
                Output::Sync(job) if self.sync_place.is_loop() => {
                    let start = self.shared.clock.now_monotonic();
                    let done = job.run();
                    self.read_clock();
                    self.handle_synced(done, self.now.monotonic.get() - start.get());
                }
                Output::Sync(job) => {
                    self.syncs_in_flight += 1;
                    self.workers.commits.send(job).expect("the WAL thread outlives its loop");
                }
                Output::Work(job) => self.workers.start(self.id, job),
            }
        }
    }

    fn handle_synced(&mut self, done: SyncDone, took_ns: u64) {
        self.metrics.batches.add(1);
        self.metrics.sync_ns.record_ns(took_ns);
        self.sync_place.note_sync(took_ns);
        self.gather.note_sync(took_ns);
        self.node.handle(self.now, Event::Synced(done));
    }

    pub(super) fn mail(&mut self, to: ShardId, mail: Mail) {
        self.outgoing[usize::from(to.get())].push(mail);
    }

    fn hand_over(&mut self) -> io::Result<()> {
        for (batch, mailbox) in self.outgoing.iter_mut().zip(&self.shared.mailboxes) {
            if !batch.is_empty() {
                mailbox.put(batch)?;
            }
        }
        Ok(())
    }

    /// Gives a request without data to the shard that owns its group; the reply comes to `id`.
    pub(super) fn ask(&mut self, id: SlotId, request: Request) {
        self.ask_with(id, request, Cow::Borrowed(&[]));
    }

    /// As [`Self::ask`], with data.
    pub(super) fn ask_with(&mut self, id: SlotId, request: Request, data: Cow<'_, [u8]>) {
        let (owner, ticket) = self.address(id, &request);
        if owner == self.id {
            self.node.handle(self.now, Event::Request { ticket, request, data: &data });
        } else {
            self.mail(owner, Mail::Request { ticket, request, data: data.into_owned() });
        }
    }

    /// The shard that owns the group of a request, and whom it answers.
    fn address(&self, id: SlotId, request: &Request) -> (ShardId, Ticket) {
        let group = match request {
            Request::Window { key, .. } | Request::Watch { key } | Request::Unwatch { key } => {
                key.group
            }
            other => other.path().map(|path| self.group_of(path)).expect("others name a path"),
        };
        let owner = node::shard_of(group, u16::try_from(self.outgoing.len()).expect("u16 shards"));
        (owner, Ticket { shard: self.id, exchange: id.to_exchange() })
    }

    fn group_of(&self, path: &StreamPath) -> model::GroupId {
        path.group(self.node.group_count())
    }

    fn is_finished(&self) -> bool {
        let Some(deadline) = self.stopping else { return false };
        let is_late = self.now.monotonic >= deadline;
        (self.connections.len() == 0 && self.syncs_in_flight == 0) || is_late
    }

    /// Commits what is left, with the mark that says that it is durable.
    fn close_log(&mut self) {
        self.node.mark_durable();
        while let Some(output) = self.node.poll_output() {
            if let Output::Sync(job) = output {
                self.node.handle(self.now, Event::Synced(job.run()));
            }
        }
    }

    pub(super) fn random(&mut self) -> u64 {
        // xorshift64: spreads cache cursors, nothing depends on its quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
