//! What the core wants: answers, frames for peers, commits, and work for other threads.

use super::Shard;
use crate::plane::{asks::ASKS, mailbox::Mail, workers::DiskRead};
use log::SyncDone;
use node::{Event, Output};
use session::Input;

impl Shard {
    /// Carries out what the core wants, and sends what comes of that. The commit may wait for another turn, if this one had events.
    pub(super) fn drain_node(&mut self, has_events: bool) {
        if self.holds_commit(has_events) {
            return;
        }
        self.drain_outputs();
        self.send_answers();
        self.drain_outputs();
        self.flush_links();
    }

    /// Whether the commit waits for another turn. All that need not wait for it is on its way then.
    fn holds_commit(&mut self, has_events: bool) -> bool {
        let may_wait = self.links.is_some()
            && self.sync_place.is_loop()
            && self.yields.are_on()
            && !self.is_behind();
        if !may_wait {
            self.commit_hold.end();
            return false;
        }
        while let Some(output) = self.core.poll_before_commit() {
            self.do_output(output);
        }
        if self.core.uncommitted_count() == 0 {
            self.commit_hold.end();
            return false;
        }
        let is_held = self.commit_hold.waits(self.shared.clock.now_monotonic(), has_events);
        if is_held {
            self.send_answers();
            self.flush_links();
        }
        is_held
    }

    fn send_answers(&mut self) {
        let (sessions, sockets, mut owners) = self.split();
        sessions.send_answers(owners.now, sockets, &mut |ask| owners.give(ask));
        self.start_checks();
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.core.poll_output() {
            self.do_output(output);
        }
    }

    fn do_output(&mut self, output: Output) {
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

    pub(super) fn handle_synced(&mut self, done: SyncDone, took_ns: u64) {
        self.metrics.batches.add(1);
        self.metrics.sync_ns.record_ns(took_ns);
        self.batch_delay.note_sync(took_ns);
        self.core.handle(self.now, Event::Synced(done));
    }

    /// Commits what is left, with the mark that says that it is durable.
    pub(super) fn close_log(&mut self) {
        self.core.mark_durable();
        while let Some(output) = self.core.poll_output() {
            if let Output::Sync(job) = output {
                self.core.handle(self.now, Event::Synced(job.run()));
            }
        }
    }
}
