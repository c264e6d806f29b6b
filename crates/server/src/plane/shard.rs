//! The event loop of one shard: sockets, mail and the core, in one thread.
//!
//! # A turn
//! 1. wait for sockets, mail or the next deadline;
//! 2. let the session read what sockets have; its asks go to the core or to another loop's outgoing mail;
//! 3. if commits run on this thread, look for writes that are about to come ([`BatchDelay`]);
//! 4. take mail in;
//! 5. drain the core: replies go to the session, jobs to threads, the rest to outgoing mail; a commit
//!    runs here and now if there is little else to do ([`SyncPlace`]);
//! 6. hand the outgoing mail over, one lock and one wake per loop that gets any.
//!
//! All requests of a turn are in the core before it is drained, so they share one group commit.
//!
//! # Invariants
//! - Only this thread touches its session, its sockets and its core.

mod begin;
mod beside_peers;
mod clockwork;

pub(crate) use begin::{ShardParts, Shared};

use super::{
    asks::{ASKS, Asks},
    batch_delay::BatchDelay,
    commit_hold::CommitHold,
    doors::{Doors, Guest},
    links::Links,
    mailbox::Mail,
    sockets::Sockets,
    sync_place::SyncPlace,
    turn_length::TurnLength,
    workers::{DiskRead, Workers},
    yields::Yields,
};
use crate::metrics::ShardMetrics;
use log::SyncDone;
use mio::{Events, Poll, Token};
use model::{Monotonic, ShardId};
use node::{Event, Output, ShardCore, Stamp};
use session::{Ask, Input, Sessions};
use std::io;
use std::sync::{Arc, atomic::Ordering, mpsc::TrySendError};
use std::time::Duration;

pub(crate) const WAKE: Token = Token(usize::MAX);

/// How long a node that ends waits for others at most: to take its groups over, and to get their answers.
const LEAVE_MS_MAX: u64 = 10_000;

/// Lines of the logs that are handed over before the next tick.
const LOG_BYTES: usize = 32 << 10;

/// Events that one wait returns at most. Each may send or receive 64 KiB, and small requests wait for the turn
/// to end.
const EVENTS_MAX: usize = 64;

pub(crate) struct Shard {
    pub(super) id: ShardId,
    pub(super) shared: Arc<Shared>,
    pub(super) core: ShardCore,
    pub(super) metrics: Arc<ShardMetrics>,
    poll: Poll,
    pub(super) doors: Doors,
    /// Links to other nodes, if there are any.
    pub(super) links: Option<Box<Links>>,
    /// Changes of the cluster that were asked for.
    pub(super) asks: Asks,
    sessions: Sessions,
    sockets: Sockets,
    pub(super) now: Stamp,
    /// Outgoing mail by shard.
    pub(super) outgoing: Vec<Vec<Mail>>,
    incoming: Vec<Mail>,
    workers: Workers,
    syncs_in_flight: usize,
    /// When other nodes are waited for no longer.
    ends_by: Option<Monotonic>,
    has_finished: bool,
    sync_place: SyncPlace,
    yields: Yields,
    batch_delay: BatchDelay,
    commit_hold: CommitHold,
    turn_length: TurnLength,
    next_tick: Monotonic,
    /// When what this shard knows of the cluster is next shown to the other nodes.
    pub(super) next_report: Monotonic,
}

/// The owners of all groups: the core of this shard, and other loops behind their outgoing mail.
struct Owners<'a> {
    id: ShardId,
    now: Stamp,
    core: &'a mut ShardCore,
    outgoing: &'a mut [Vec<Mail>],
    batch_delay: &'a mut BatchDelay,
}

impl Shard {
    /// Serves until a [`Mail::Stop`] has been carried out.
    ///
    /// # Errors
    /// If the system's readiness interface fails; nothing can be served then.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.listen()?;
        let mut events = Self::events();
        while !self.may_end() {
            self.wait(&mut events)?;
            self.turn(&mut events)?;
        }
        self.hand_log_over(0);
        if self.syncs_in_flight == 0 {
            self.close_log();
        }
        Ok(())
    }

    /// Listens; comes before the first turn.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        self.doors.listen(self.poll.registry())
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
        self.turn_length.begin(self.now.monotonic);
        let (event_count, is_behind) = (events.iter().count(), self.is_behind());
        let (sessions, sockets, mut owners) = self.split();
        sessions.begin_turn(owners.now, sockets, &mut |ask| owners.give(ask));
        self.start_checks();
        self.handle_events(events);
        self.sync_place.note_turn((event_count, self.batch_delay.count()), is_behind);
        self.delay_batch(events)?;
        self.take_mail();
        if self.links.is_some() {
            self.hear_peers();
        }
        // Behind the mail: a client that comes after a reload gets what was reloaded.
        self.let_in();
        if self.core.is_behind() {
            self.core.handle(self.now, Event::Continue);
        }
        self.run_clockwork();
        self.tend_cluster();
        self.drain_node(event_count > 0);
        self.hand_log_over(LOG_BYTES);
        self.metrics.publish(self.sessions.counts());
        self.hand_over()
    }

    fn handle_events(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKE => {}
                token if self.doors.note_event(token) => {}
                token if self.links.as_mut().is_some_and(|links| links.note_event(token)) => {}
                Token(slot) => self.handle_socket(slot, event),
            }
        }
    }

    /// Lets writes that are about to come into the commit of this turn.
    fn delay_batch(&mut self, events: &mut Events) -> io::Result<()> {
        while self.links.is_none()
            && self.sync_place.is_loop()
            && !self.doors.is_pending(self.now.monotonic)
            && !self.is_behind()
            && self.batch_delay.waits(self.shared.clock.now_monotonic())
        {
            self.poll_events(events, Duration::ZERO)?;
            self.handle_events(events);
            if events.iter().any(|event| event.token() == WAKE) {
                break;
            }
        }
        self.batch_delay.end();
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let mut now = self.shared.clock.now_monotonic();
        if let Some(turn_ns) = self.turn_length.end(now) {
            self.metrics.turn_ns.record_ns(turn_ns);
        }
        if self.links.is_some() && self.yields.is_due() {
            std::thread::yield_now();
            let began = std::mem::replace(&mut now, self.shared.clock.now_monotonic());
            self.yields.note(now.get() - began.get());
        } else if self.sessions.has_runnable() {
            // A client that pipelines keeps this thread busy. The WAL threads and others on this processor
            // then need not wait for the end of its time slice. Not for readers of stored bytes: beside a
            // busy neighbour each yield loses a time slice.
            std::thread::yield_now();
        }
        let mut next = self.sessions.next_deadline().min(self.tick_deadline());
        next = self.doors.next_accept().map_or(next, |accept| next.min(accept));
        next = self.links.as_ref().map_or(next, |links| next.min(links.next_deadline()));
        let comes_back = self.commit_hold.is_on() || self.is_behind();
        let wait_ns = if comes_back { 0 } else { next.get().saturating_sub(now.get()) };
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
        let links_are = self.links.as_ref().is_some_and(|links| links.is_behind());
        self.sessions.is_behind() || self.core.is_behind() || self.doors.is_behind() || links_are
    }

    fn read_clock(&mut self) {
        let clock = &self.shared.clock;
        self.now = Stamp { wall: clock.now_wall(), monotonic: clock.now_monotonic() };
        self.sockets.begin_turn(self.now.monotonic);
    }

    fn handle_socket(&mut self, slot: usize, event: &mio::event::Event) {
        let Some(conn) = self.sessions.conn_in(slot) else { return };
        if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
            return self.handle(Input::Broken(conn));
        }
        if event.is_writable() && self.sockets.flush(conn) && self.sessions.has_unsent(conn) {
            self.handle(Input::Writable(conn));
        }
        if event.is_readable() || event.is_read_closed() {
            self.handle(Input::Readable { conn, ended: event.is_read_closed() });
        }
    }

    /// Gives the session one input, and the core what the session asks then.
    fn handle(&mut self, input: Input) {
        let (sessions, sockets, mut owners) = self.split();
        sessions.handle(owners.now, input, sockets, &mut |ask| owners.give(ask));
        self.start_checks();
    }

    /// The session, its transport, and the owners of all groups.
    fn split(&mut self) -> (&mut Sessions, &mut Sockets, Owners<'_>) {
        let Self { id, now, core, outgoing, batch_delay, sessions, sockets, .. } = self;
        (sessions, sockets, Owners { id: *id, now: *now, core, outgoing, batch_delay })
    }

    fn start_checks(&mut self) {
        while let Some(job) = self.sessions.poll_check() {
            match self.workers.checks.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => self.handle(Input::Checked(job.run())),
                Err(TrySendError::Disconnected(_)) => unreachable!("the thread outlives its loop"),
            }
        }
    }

    /// Accepts connections, and opens those that can be served.
    fn let_in(&mut self) {
        if !self.doors.is_pending(self.now.monotonic) && !self.doors.is_behind() {
            return;
        }
        let mut guests = Vec::new();
        self.doors.run(&mut self.sockets, self.now, &mut guests);
        for guest in guests {
            self.open(guest);
        }
    }

    fn open(&mut self, guest: Guest) {
        let Guest { socket, tls, peer } = guest;
        let conn = self.sessions.open(peer);
        let has_tls = tls.is_some();
        let added = self.sockets.add(conn, socket, tls);
        self.handle(Input::Opened(conn));
        if added.is_err() {
            self.handle(Input::Broken(conn));
        } else if has_tls {
            // The first request may have come with the end of the handshake: no event tells of it.
            self.handle(Input::Readable { conn, ended: false });
        }
    }

    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.incoming);
        self.shared.mailboxes[usize::from(self.id.get())].take(&mut mail);
        for mail in mail.drain(..) {
            match mail {
                Mail::Request { ticket, request, data } => {
                    self.core.handle(self.now, Event::Request { ticket, request, data: &data });
                }
                Mail::Reply { ticket, reply } => self.handle(Input::Reply(ticket, reply)),
                Mail::Shard(message) => self.core.handle(self.now, Event::Shard(message)),
                Mail::Changed(change) => self.handle(Input::Changed(change)),
                Mail::Peer(event) => self.core.handle(self.now, Event::Peer(event)),
                Mail::Synced { done, took_ns } => {
                    self.syncs_in_flight -= 1;
                    self.sync_place.note_sync_away(took_ns);
                    self.handle_synced(done, took_ns);
                }
                Mail::Worked(done) => self.core.handle(self.now, Event::Worked(done)),
                Mail::ReadDone(done) => self.core.handle(self.now, Event::ReadDone(done)),
                Mail::Fetched(done) => self.core.handle(self.now, Event::Fetched(done)),
                Mail::Transferred(done) => self.core.handle(self.now, Event::Transferred(done)),
                Mail::Checked(done) => self.handle(Input::Checked(*done)),
                Mail::InForce(in_force, taken) => {
                    self.doors.tls = in_force.tls;
                    self.handle(Input::Access(in_force.access));
                    drop(taken);
                }
                Mail::Meta { command, asker } => self.ask_cluster(command, asker),
                Mail::Begin(membership) => self.core.begin_membership(self.now, *membership),
                Mail::JoinAnswer { link, answer } => self.answer_joiner(link, &answer),
                Mail::Stop => self.begin_stop(),
            }
        }
        self.incoming = mail;
    }

    /// Sends to other nodes what has been said to them.
    fn flush_links(&mut self) {
        if let Some(links) = &mut self.links {
            links.flush(self.now);
        }
    }

    /// Carries out what the core wants, and sends what comes of that. The commit may wait for another turn, if this one had events.
    fn drain_node(&mut self, has_events: bool) {
        if self.links.is_some() && self.holds_commit(has_events) {
            return;
        }
        self.drain_outputs();
        self.send_answers();
        self.drain_outputs();
        self.flush_links();
    }

    fn send_answers(&mut self) {
        let (sessions, sockets, mut owners) = self.split();
        sessions.send_answers(owners.now, sockets, &mut |ask| owners.give(ask));
        self.start_checks();
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.core.poll_output() {
            self.execute_output(output);
        }
    }

    fn execute_output(&mut self, output: Output) {
        match output {
            Output::Reply { ticket, reply } if ticket.shard == self.id => {
                self.handle(Input::Reply(ticket, reply));
            }
            Output::Reply { ticket, reply } if ticket.shard == ASKS => {
                self.hear_outcome(ticket, &reply);
            }
            Output::Reply { ticket, reply } => {
                self.mail(ticket.shard, Mail::Reply { ticket, reply });
            }
            Output::Shard { to, message } => self.mail(to, Mail::Shard(message)),
            Output::Changed { to, change } if to == self.id => self.handle(Input::Changed(change)),
            Output::Changed { to, change } => self.mail(to, Mail::Changed(change)),
            Output::Sync(job) if self.sync_place.is_loop() => {
                // Answers, and a leader's entries, are on their way while its own disk works.
                self.send_answers();
                self.flush_links();
                let start = self.shared.clock.now_monotonic();
                let done = job.run();
                self.read_clock();
                let took_ns = self.now.monotonic.get() - start.get();
                self.turn_length.note_sync(took_ns);
                self.sync_place.note_sync_here(took_ns);
                self.handle_synced(done, took_ns);
            }
            Output::Sync(job) => {
                self.syncs_in_flight += 1;
                self.workers.syncs.send(job).expect("the WAL thread outlives its loop");
            }
            Output::Work(job) => self.workers.start(self.id, job),
            Output::Read(job) => self.read(DiskRead::Stream(job)),
            Output::Fetch(job) => self.read(DiskRead::Entries(job)),
            Output::Peer(to) => {
                let links = self.links.as_mut().expect("a node alone has no peers");
                links.push(*to, self.now);
            }
            Output::Transfer(job) => self.workers.start_transfer(self.id, job),
        }
    }

    fn read(&mut self, job: DiskRead) {
        self.workers.reads.send(job).expect("the reading thread outlives its loop");
    }

    fn handle_synced(&mut self, done: SyncDone, took_ns: u64) {
        self.metrics.batches.add(1);
        self.metrics.sync_ns.record_ns(took_ns);
        self.batch_delay.note_sync(took_ns);
        self.core.handle(self.now, Event::Synced(done));
    }

    /// Hands lines of the logs to their thread, if they are more than `bytes`. If it is behind they wait here.
    #[inline]
    fn hand_log_over(&mut self, bytes: usize) {
        let Some(journal) = &self.workers.journal else { return };
        if bytes > 0 && self.sessions.log_bytes() <= bytes {
            return;
        }
        let lines = self.sessions.take_log();
        if lines.bytes() > 0
            && let Err(lines) = journal.write(lines)
        {
            self.sessions.put_log_back(lines);
        }
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

    /// Stops: nobody new, and the session sends everybody on.
    fn begin_stop(&mut self) {
        self.doors.close(self.poll.registry());
        self.handle(Input::Stop);
        self.core.begin_end();
        self.ends_by = Some(self.now.monotonic.plus_ms(LEAVE_MS_MAX));
    }

    /// Shards end together: while one has a request, that may be for a group of another one, or come over its link.
    fn may_end(&mut self) -> bool {
        if self.is_finished() && !std::mem::replace(&mut self.has_finished, true) {
            self.shared.unfinished.fetch_sub(1, Ordering::AcqRel);
        }
        self.has_finished && self.shared.unfinished.load(Ordering::Acquire) == 0
    }

    fn is_finished(&self) -> bool {
        let now = self.now.monotonic;
        let is_idle = self.sessions.is_finished(now) && self.syncs_in_flight == 0;
        let has_left = self.core.may_end() || self.ends_by.is_some_and(|ends_by| now >= ends_by);
        has_left && (is_idle || self.sessions.is_late(now))
    }

    /// Commits what is left, with the mark that says that it is durable.
    fn close_log(&mut self) {
        self.core.mark_durable();
        while let Some(output) = self.core.poll_output() {
            if let Output::Sync(job) = output {
                self.core.handle(self.now, Event::Synced(job.run()));
            }
        }
    }
}

impl Owners<'_> {
    fn give(&mut self, ask: Ask<'_>) {
        if ask.is_write() {
            self.batch_delay.note_write();
        }
        let shard_count = u16::try_from(self.outgoing.len()).expect("shards are u16");
        let owner = ask.group(self.core.group_count()).shard(shard_count);
        let Ask { ticket, request, data } = ask;
        if owner == self.id {
            self.core.handle(self.now, Event::Request { ticket, request, data: &data });
        } else {
            let mail = Mail::Request { ticket, request, data: data.into_owned() };
            self.outgoing[usize::from(owner.get())].push(mail);
        }
    }
}
