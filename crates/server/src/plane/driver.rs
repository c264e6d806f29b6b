//! One shard's real loop in the caller's thread, turn by turn.
//!
//! # Why
//! A count of instructions is worth something only if it counts the code that ships. Here the loop, its
//! sockets and its mailbox are those of a running server. What a thread would do is done by the caller's
//! thread after the turn that asked for it, so two runs do the same.
//!
//! # Driving it
//! Connect to [`Driver::address`], write requests, call [`Driver::turn`] until the answers have come.

use super::{
    StartError,
    doors::Listener,
    listen,
    mailbox::{Mail, Mailbox},
    shard::{Shard, ShardParts, Shared, WAKE},
    workers::{DiskRead, ShardJob, Workers},
};
use crate::{metrics::ShardMetrics, reload::InForce, settings::Settings};
use access::Access;
use env::Clock;
use log::{LogStats, SyncJob};
use mio::Events;
use node::ShardCore;
use std::io;
use std::net::SocketAddr;
use std::sync::{
    Arc,
    mpsc::{Receiver, sync_channel},
};

/// Jobs that one turn may leave for the caller's thread.
const JOBS_MAX: usize = 4096;

/// The loop of a server with one shard.
pub struct Driver {
    shard: Shard,
    events: Events,
    address: SocketAddr,
    mailbox: Arc<Mailbox>,
    jobs: Jobs,
}

/// What the loop leaves for threads that are not there.
struct Jobs {
    syncs: Receiver<SyncJob>,
    checks: Receiver<session::CheckJob>,
    reads: Receiver<DiskRead>,
    works: Receiver<ShardJob>,
}

impl Driver {
    /// A loop for `core`, the only shard of its data directory, with the time from `clock` and the rules of `access`.
    ///
    /// # Errors
    /// [`StartError`] if the address of `settings` cannot be listened on.
    pub fn start(
        settings: &Settings,
        core: ShardCore,
        clock: Arc<dyn Clock>,
        access: Arc<Access>,
    ) -> Result<Self, StartError> {
        let listen = settings.listen[0].address;
        let listen_error = |error| StartError::Listen { setting: "listen", listen, error };
        let mut listeners = listen::all(listen, 1).map_err(listen_error)?;
        let socket = listeners.pop().expect("one listener for one shard");
        let address = socket.local_addr()?;
        let listeners = vec![Listener { socket, is_tls: false }];
        let poll = mio::Poll::new()?;
        let mailbox = Mailbox::new(mio::Waker::new(poll.registry(), WAKE)?);
        let mailboxes = vec![Arc::clone(&mailbox)];
        let shared = Shared::new(settings, clock, mailboxes, InForce { tls: None, access });
        let (workers, jobs) = workers_and_jobs();
        let metrics = Arc::new(ShardMetrics::default());
        let parts =
            ShardParts { core, poll, listeners, peers: None, shared, metrics, workers, seed: 1 };
        let mut shard = Shard::new(parts)?;
        shard.listen()?;
        Ok(Self { shard, events: Shard::events(), address, mailbox, jobs })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One turn of the loop, without waiting for events; then the jobs that it gave away.
    ///
    /// # Errors
    /// If the system's readiness interface fails.
    pub fn turn(&mut self) -> io::Result<()> {
        self.turn_alone()?;
        self.run_jobs()
    }

    /// One turn of the loop, without what it leaves for threads.
    ///
    /// # Errors
    /// If the system's readiness interface fails.
    pub fn turn_alone(&mut self) -> io::Result<()> {
        self.shard.turn_now(&mut self.events)
    }

    /// Runs the jobs that turns gave away.
    ///
    /// # Errors
    /// If the system's readiness interface fails.
    pub fn run_jobs(&mut self) -> io::Result<()> {
        let Jobs { syncs, checks, reads, works } = &self.jobs;
        for job in syncs.try_iter() {
            self.mailbox.put_one(Mail::Synced { done: job.run(), took_ns: 0 })?;
        }
        for job in checks.try_iter() {
            self.mailbox.put_one(Mail::Checked(Box::new(job.run())))?;
        }
        for job in reads.try_iter() {
            self.mailbox.put_one(job.run())?;
        }
        for (_, job) in works.try_iter() {
            self.mailbox.put_one(Mail::Worked(job.run()))?;
        }
        Ok(())
    }

    /// What the log has written so far.
    #[must_use]
    pub fn log_stats(&self) -> LogStats {
        self.shard.core.log().stats()
    }
}

fn workers_and_jobs() -> (Workers, Jobs) {
    let (to_syncs, syncs) = sync_channel(JOBS_MAX);
    let (to_checks, checks) = sync_channel(JOBS_MAX);
    let (to_reads, reads) = sync_channel(JOBS_MAX);
    let (segments, works) = sync_channel(JOBS_MAX);
    let workers = Workers {
        syncs: to_syncs,
        checks: to_checks,
        reads: to_reads,
        copies: segments.clone(),
        segments,
        transfers: None,
        journal: None,
    };
    (workers, Jobs { syncs, checks, reads, works })
}
