//! One shard: its node, its exchanges and its live readers. See the server's `plane::shard`.

use super::{
    Job, Mail, Outbox, Piece, PlaneOptions,
    exchange::Exchange,
    live::{LiveStream, LiveStreams},
};
use crate::mutant::Mutant;
use model::{ShardId, StreamKey};
use node::{Event, Output, Request, ShardCore, Stamp, Ticket};
use protocol::HttpDate;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) id: ShardId,
    pub(crate) node: ShardCore,
    pub(super) exchanges: BTreeMap<u32, Exchange>,
    pub(super) live: LiveStreams,
    pub(super) now: Stamp,
    pub(super) date: HttpDate,
    pub(super) options: PlaneOptions,
    pub(super) out: Outbox,
    pub(super) random: u64,
    /// Commits that were handed out and have not come back.
    pub(crate) syncs_in_flight: usize,
}

impl Shard {
    pub(crate) fn new(node: ShardCore, now: Stamp, options: PlaneOptions) -> Self {
        Self {
            id: node.shard(),
            node,
            exchanges: BTreeMap::new(),
            live: LiveStreams::default(),
            now,
            date: HttpDate::new(now.wall),
            options,
            out: Outbox::default(),
            random: 1,
            syncs_in_flight: 0,
        }
    }

    /// Takes everything that has come, then drains the node; so the requests of a turn share a
    /// group commit.
    pub(crate) fn turn(&mut self, now: Stamp, mail: Vec<Mail>) -> Outbox {
        self.now = match self.options.mutant {
            Some(Mutant::LateExpiry) => Stamp { wall: model::Timestamp::new(1), ..now },
            _ => now,
        };
        self.date = HttpDate::new(now.wall);
        for mail in mail {
            self.take(mail);
        }
        self.drain();
        self.node.check();
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, mail: Mail) {
        match mail {
            Mail::Raw { conn, bytes } => self.receive(conn, &bytes),
            Mail::Gone { conn } => self.forget(conn),
            Mail::PollDue { conn } => self.time_out_poll(conn),
            Mail::Request { ticket, request, data } => {
                self.give(ticket, request, &data);
            }
            Mail::Reply { ticket, reply } => self.handle_reply(ticket.exchange[0], reply),
            Mail::Shard(message) => self.node.handle(self.now, Event::Shard(message)),
            Mail::Changed(change) => self.handle_change(&change),
            Mail::Synced(done) => {
                self.syncs_in_flight -= 1;
                self.node.handle(self.now, Event::Synced(done));
            }
            Mail::Worked(done) => self.node.handle(self.now, Event::Worked(done)),
            Mail::Tick => self.node.handle(self.now, Event::Tick),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Reply { ticket, reply } if ticket.shard == self.id => {
                    self.handle_reply(ticket.exchange[0], reply);
                }
                Output::Reply { ticket, reply } => {
                    self.out.mails.push((ticket.shard, Mail::Reply { ticket, reply }));
                }
                Output::Shard { to, message } => self.out.mails.push((to, Mail::Shard(message))),
                Output::Changed { to, change } if to == self.id => self.handle_change(&change),
                Output::Changed { to, change } => {
                    self.out.mails.push((to, Mail::Changed(change)));
                }
                Output::Sync(job) => {
                    self.syncs_in_flight += 1;
                    self.out.jobs.push(Job::Sync(job));
                }
                Output::Work(job) => self.out.jobs.push(Job::Work(job)),
            }
        }
    }

    /// Commits what is left, with the mark that says that it is durable, and releases everything.
    pub(crate) fn close(mut self) {
        self.node.mark_durable();
        while let Some(output) = self.node.poll_output() {
            if let Output::Sync(job) = output {
                self.node.handle(self.now, Event::Synced(job.run()));
            }
        }
    }

    /// Gives a request without data to the shard that owns its group.
    pub(super) fn ask(&mut self, conn: u32, request: Request) {
        self.ask_with(conn, request, &[]);
    }

    /// As [`Self::ask`], with data.
    pub(super) fn ask_with(&mut self, conn: u32, request: Request, data: &[u8]) {
        let group = match &request {
            Request::Window { key, .. } | Request::Watch { key } | Request::Unwatch { key } => {
                key.group
            }
            other => other.path().expect("others name a path").group(self.node.group_count()),
        };
        let ticket = Ticket { shard: self.id, exchange: [conn, 0, 0] };
        let owner = node::shard_of(group, self.options.shard_count);
        if owner == self.id {
            return self.give(ticket, request, data);
        }
        let data = data.to_vec();
        self.out.mails.push((owner, Mail::Request { ticket, request, data }));
    }

    /// Gives a request to this shard's node; a mutant may change it on the way.
    fn give(&mut self, ticket: Ticket, request: Request, data: &[u8]) {
        let Some(mutant) = self.options.mutant else {
            return self.node.handle(self.now, Event::Request { ticket, request, data });
        };
        if mutant == Mutant::DoubleApply
            && let Request::Append { path, append } = &request
        {
            let nobody = Ticket { exchange: [u32::MAX, 0, 0], ..ticket };
            let again = Request::Append { path: path.clone(), append: append.clone() };
            let again = Event::Request { ticket: nobody, request: again, data };
            self.node.handle(self.now, again);
            return self.node.handle(self.now, Event::Request { ticket, request, data });
        }
        let (now, request) = mutant.change_request(self.now, request, data);
        self.node.handle(now, Event::Request { ticket, request, data });
    }

    pub(super) fn send(&mut self, conn: u32, bytes: Vec<u8>, ends: bool) {
        self.out.answers.push(Piece { conn, bytes, ends });
    }

    /// The answer is complete.
    pub(super) fn finish(&mut self, conn: u32, bytes: Vec<u8>) {
        self.exchanges.remove(&conn);
        self.send(conn, bytes, true);
    }

    pub(super) fn forget(&mut self, conn: u32) {
        self.exchanges.remove(&conn);
        self.live.forget(conn);
    }

    pub(super) fn live_stream(&mut self, key: StreamKey) -> &mut LiveStream {
        self.live.0.entry(key).or_default()
    }

    /// Exchanges under way.
    pub(crate) fn exchange_count(&self) -> usize {
        self.exchanges.len()
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.random >> 33
    }
}
