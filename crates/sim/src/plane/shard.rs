//! One shard: its session, its core and what passes between them. See the server's `plane::shard`.

use super::{Job, Mail, Outbox, PlaneOptions, disorder::Disorder, wires::Wires};
use crate::{dice::Dice, mutant::Mutant};
use log::Slice;
use model::ShardId;
use node::{Event, Output, Reply, Request, ShardCore, Stamp, Ticket};
use session::{Admission, Ask, Input, Peer, Sessions};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Shard {
    id: ShardId,
    pub(crate) core: ShardCore,
    pub(crate) sessions: Sessions,
    wires: Wires,
    now: Stamp,
    options: PlaneOptions,
    out: Outbox,
    /// Requests whose reply a mutant may change.
    mutable: BTreeSet<(u16, [u32; 3])>,
    /// Exchanges that read a fork, for a mutant.
    forks: BTreeSet<[u32; 3]>,
    /// Stored bytes that were read before, for a mutant.
    stale: Option<Slice>,
    disorder: Disorder,
    /// Commits that were handed out and have not come back.
    pub(crate) syncs_in_flight: usize,
    /// The connections know that the process stops.
    pub(crate) is_stopping: bool,
}

impl Shard {
    pub(crate) fn new(
        mut core: ShardCore,
        now: Stamp,
        options: PlaneOptions,
        (admission, dice): (Arc<Admission>, Dice),
    ) -> Self {
        let id = core.shard();
        core.set_slice_limits(options.slices);
        core.begin_clock(now);
        let mut sessions = Sessions::new(id, options.sessions.clone(), admission, (now, 1));
        if let Some(access) = options.access.clone() {
            sessions = sessions.with_access(access);
        }
        Self {
            id,
            core,
            sessions,
            wires: Wires::new(dice, options.mutant),
            disorder: Disorder::new(options.mutant),
            now,
            options,
            out: Outbox::default(),
            mutable: BTreeSet::new(),
            forks: BTreeSet::new(),
            stale: None,
            syncs_in_flight: 0,
            is_stopping: false,
        }
    }

    /// Takes everything that has come, then drains the core; so the requests of a turn share a
    /// group commit.
    pub(crate) fn turn(&mut self, now: Stamp, mail: Vec<Mail>) -> Outbox {
        self.now = match self.options.mutant {
            Some(Mutant::LateExpiry) => Stamp { wall: model::Timestamp::new(1), ..now },
            _ => now,
        };
        let mut asks = Vec::new();
        self.sessions.begin_turn(self.now, &mut self.wires, &mut |ask| asks.push(kept(ask)));
        self.give_asks(asks);
        for mail in mail {
            self.take(mail);
        }
        if self.core.is_behind() {
            self.core.handle(self.now, Event::Continue);
        }
        self.drain();
        let mut asks = Vec::new();
        self.sessions.send_answers(self.now, &mut self.wires, &mut |ask| asks.push(kept(ask)));
        self.give_asks(asks);
        self.drain();
        self.core.check();
        self.sessions.check();
        self.out.answers = std::mem::take(&mut self.wires.answers);
        self.out.stalled = std::mem::take(&mut self.wires.stalled);
        self.out.is_behind = self.sessions.is_behind() || self.core.is_behind();
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, mail: Mail) {
        match mail {
            Mail::Open { wire } => {
                let conn = self.sessions.open(Peer::default());
                self.wires.add(conn, wire);
                self.handle(Input::Opened(conn));
            }
            Mail::Bytes { wire, bytes } => {
                if let Some(conn) = self.wires.conn(wire) {
                    self.wires.arrive(conn, &bytes);
                    self.handle(Input::Readable { conn, ended: false });
                }
            }
            Mail::HalfClosed { wire } => {
                if let Some(conn) = self.wires.conn(wire) {
                    self.wires.half_close(conn);
                    self.handle(Input::Readable { conn, ended: true });
                }
            }
            Mail::Gone { .. } if self.options.mutant == Some(Mutant::DeafToEnds) => {}
            Mail::Gone { wire } => {
                if let Some(conn) = self.wires.conn(wire) {
                    self.handle(Input::Broken(conn));
                }
            }
            Mail::Writable { wire } => {
                if let Some(conn) = self.wires.conn(wire) {
                    self.wires.unstall(conn);
                    self.handle(Input::Writable(conn));
                }
            }
            Mail::Request { ticket, request, data } => self.give(ticket, request, &data),
            Mail::Reply { ticket, reply } => self.handle_reply(ticket, reply),
            Mail::Shard(message) => self.core.handle(self.now, Event::Shard(message)),
            Mail::Changed(change) => self.handle(Input::Changed(change)),
            Mail::Synced(done) => {
                self.syncs_in_flight -= 1;
                self.core.handle(self.now, Event::Synced(done));
            }
            Mail::ReadDone(done) => self.core.handle(self.now, Event::ReadDone(done)),
            Mail::Worked(done) => self.core.handle(self.now, Event::Worked(done)),
            Mail::Checked(done) => self.handle(Input::Checked(*done)),
            Mail::Tick => self.tick(),
            Mail::Access(access) => self.handle(Input::Access(access)),
            Mail::Again => {}
            Mail::Stop => {
                self.is_stopping = true;
                self.handle(Input::Stop);
            }
        }
    }

    fn tick(&mut self) {
        self.core.handle(self.now, Event::Tick);
        let is_due = self.now.monotonic >= self.sessions.next_deadline();
        if is_due && self.options.mutant != Some(Mutant::Timeless) {
            self.handle(Input::Tick);
        }
    }

    fn handle(&mut self, input: Input) {
        let mut asks = Vec::new();
        self.sessions.handle(self.now, input, &mut self.wires, &mut |ask| asks.push(kept(ask)));
        self.give_asks(asks);
        self.disorder.end_input();
    }

    /// Gives what the session asked to the shards that own the groups.
    fn give_asks(&mut self, asks: Vec<Ask<'static>>) {
        for ask in asks {
            let is_unwatch = matches!(ask.request, Request::Unwatch { .. });
            if is_unwatch && self.options.mutant == Some(Mutant::DeafToUnwatch) {
                continue;
            }
            let group = ask.group(self.core.group_count());
            let owner = group.shard(self.options.shard_count);
            let Ask { ticket, request, data } = ask;
            self.disorder.asked(ticket, &request, data.len() as u64);
            if owner == self.id {
                self.give(ticket, request, &data);
            } else {
                let data = data.into_owned();
                self.out.mails.push((owner, Mail::Request { ticket, request, data }));
            }
        }
        while let Some(job) = self.sessions.poll_check() {
            self.out.jobs.push(Job::Check(Box::new(job)));
        }
    }

    fn handle_reply(&mut self, ticket: Ticket, mut reply: Reply) {
        if let Some(mutant) = self.options.mutant {
            mutant.change_memory(&mut reply, &mut self.stale);
            match &mut reply {
                Reply::Read(read) if read.info.lineage.spans().is_empty() => {
                    self.forks.remove(&ticket.exchange);
                }
                Reply::Read(read) => {
                    self.forks.insert(ticket.exchange);
                    read.first.iter_mut().for_each(|slice| mutant.change_fork(slice));
                }
                Reply::Window(slice) if self.forks.contains(&ticket.exchange) => {
                    mutant.change_fork(slice);
                }
                _ => {}
            }
        }
        let ticket = self.disorder.replied(ticket, &mut reply);
        self.handle(Input::Reply(ticket, reply));
    }

    fn drain(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Reply { ticket, mut reply } => {
                    self.change_reply(ticket, &mut reply);
                    if ticket.shard == self.id {
                        self.handle_reply(ticket, reply);
                    } else {
                        self.out.mails.push((ticket.shard, Mail::Reply { ticket, reply }));
                    }
                }
                Output::Shard { to, message } => self.out.mails.push((to, Mail::Shard(message))),
                Output::Changed { to, change } if to == self.id => {
                    self.handle(Input::Changed(change));
                }
                Output::Changed { to, change } => {
                    self.out.mails.push((to, Mail::Changed(change)));
                }
                Output::Sync(job) => {
                    self.syncs_in_flight += 1;
                    self.out.jobs.push(Job::Sync(job));
                }
                Output::Work(job) if self.options.mutant == Some(Mutant::WorkOnLoop) => {
                    self.core.handle(self.now, Event::Worked(job.run()));
                }
                Output::Work(job) => self.out.jobs.push(Job::Work(job)),
                Output::Read(job) => self.out.jobs.push(Job::Read(job)),
                Output::Peer(_) | Output::Fetch(_) | Output::Transfer(_) => {
                    unreachable!("a node alone has no peers")
                }
            }
        }
    }

    /// Commits what is left, with the mark that says that it is durable, and releases everything.
    pub(crate) fn close(mut self) {
        self.core.mark_durable();
        while let Some(output) = self.core.poll_output() {
            if let Output::Sync(job) = output {
                self.core.handle(self.now, Event::Synced(job.run()));
            }
        }
    }

    /// Gives a request to this shard's core; a mutant may change it on the way.
    fn give(&mut self, ticket: Ticket, request: Request, data: &[u8]) {
        let Some(mutant) = self.options.mutant else {
            return self.core.handle(self.now, Event::Request { ticket, request, data });
        };
        if mutant == Mutant::DoubleApply
            && let Request::Append { path, append } = &request
        {
            let nobody = Ticket { exchange: [u32::MAX, 0, 0], ..ticket };
            let again = Request::Append { path: path.clone(), append: append.clone() };
            let again = Event::Request { ticket: nobody, request: again, data };
            self.core.handle(self.now, again);
            return self.core.handle(self.now, Event::Request { ticket, request, data });
        }
        if mutant.may_change_reply_to(&request, self.options.sessions.event_boundary_bytes) {
            self.mutable.insert((ticket.shard.get(), ticket.exchange));
        }
        let (now, request) = mutant.change_request(self.now, request, data);
        self.core.handle(now, Event::Request { ticket, request, data });
    }

    fn change_reply(&mut self, ticket: Ticket, reply: &mut Reply) {
        if let Some(mutant) = self.options.mutant
            && self.mutable.remove(&(ticket.shard.get(), ticket.exchange))
        {
            mutant.change_reply(reply);
        }
    }

    /// Connections that are open.
    pub(crate) fn wire_count(&self) -> usize {
        self.wires.count()
    }

    /// Whether everybody has gone, or has had the time for it.
    pub(crate) fn is_finished(&self, now: Stamp) -> bool {
        let is_idle = self.sessions.is_finished(now.monotonic) && self.syncs_in_flight == 0;
        is_idle || (self.sessions.is_late(now.monotonic) && self.syncs_in_flight == 0)
    }
}

/// An ask with data of its own: a mutant may change the request on its way, with all of the shard at hand.
fn kept(ask: Ask<'_>) -> Ask<'static> {
    let Ask { ticket, request, data } = ask;
    Ask { ticket, request, data: data.into_owned().into() }
}
