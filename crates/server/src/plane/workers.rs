//! The threads beside the loops. Three per shard: for commits, for checks of large bodies, and for reads
//! that wait for the disk. Two per process for background work.

use super::mailbox::{Mail, Mailbox};
use crate::journal::Journal;
use env::Clock;
use log::{SyncJob, WorkJob};
use model::ShardId;
use node::{FetchJob, ReadJob, TransferJob};
use session::CheckJob;
use std::io;
use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, sync_channel},
};
use std::thread::{Builder, JoinHandle};

/// A log has one sync in flight.
const SYNCS_MAX: usize = 1;

/// More background jobs than all logs together ever have in flight, so that sending never blocks.
const JOBS_MAX: usize = 4096;

/// A background job and whose log gets its result.
pub(crate) type ShardJob = (ShardId, Box<WorkJob>);

/// A job of a snapshot on its way, and which shard gets its result.
pub(crate) type ShardTransfer = (ShardId, Box<TransferJob>);

/// Where an event loop sends its jobs.
#[derive(Debug)]
pub(crate) struct Workers {
    pub syncs: SyncSender<SyncJob>,
    pub checks: SyncSender<CheckJob>,
    pub reads: SyncSender<DiskRead>,
    pub segments: SyncSender<ShardJob>,
    pub copies: SyncSender<ShardJob>,
    /// A node alone sends and receives no snapshots.
    pub transfers: Option<SyncSender<ShardTransfer>>,
    /// The access log and the audit log, if one is kept.
    pub journal: Option<Journal>,
}

/// Starts the WAL thread of one shard. It ends when the sender is dropped.
pub(crate) fn start_syncs(
    shard: ShardId,
    mailbox: Arc<Mailbox>,
    clock: Arc<dyn Clock>,
) -> io::Result<(SyncSender<SyncJob>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel::<SyncJob>(SYNCS_MAX);
    let run = move || {
        for job in jobs {
            let start = clock.now_monotonic();
            let done = job.run();
            let took_ns = clock.now_monotonic().get() - start.get();
            if mailbox.put_one(Mail::Synced { done, took_ns }).is_err() {
                return;
            }
        }
    };
    Ok((sender, spawn(format!("wal-{shard}"), run)?))
}

/// Bodies that wait for their check at most. Beyond that the loop checks them itself.
const CHECKS_MAX: usize = 64;

/// Starts the thread of one shard that checks large bodies. It ends when the sender is dropped.
pub(crate) fn start_checks(
    shard: ShardId,
    mailbox: Arc<Mailbox>,
) -> io::Result<(SyncSender<CheckJob>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel::<CheckJob>(CHECKS_MAX);
    let run = move || {
        for job in jobs {
            if mailbox.put_one(Mail::Checked(Box::new(job.run()))).is_err() {
                return;
            }
        }
    };
    Ok((sender, spawn(format!("bodies-{shard}"), run)?))
}

/// More reads than a node hands out at once, so that sending never blocks.
const READS_MAX: usize = 1 << 10;

/// What is read from the disk for a loop.
#[derive(Debug)]
pub(crate) enum DiskRead {
    /// Bytes of a stream.
    Stream(Box<ReadJob>),
    /// Entries for another node, or to be applied.
    Entries(Box<FetchJob>),
}

impl DiskRead {
    pub(super) fn run(self) -> Mail {
        match self {
            Self::Stream(job) => Mail::ReadDone(Box::new(job.run())),
            Self::Entries(job) => Mail::Fetched(Box::new(job.run())),
        }
    }
}

/// Starts the thread of one shard that reads what is not in memory. It ends when the sender is dropped.
pub(crate) fn start_reads(
    shard: ShardId,
    mailbox: Arc<Mailbox>,
) -> io::Result<(SyncSender<DiskRead>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel::<DiskRead>(READS_MAX);
    let run = move || {
        for job in jobs {
            if mailbox.put_one(job.run()).is_err() {
                return;
            }
        }
    };
    Ok((sender, spawn(format!("reads-{shard}"), run)?))
}

impl Workers {
    pub(crate) fn start(&self, shard: ShardId, job: Box<WorkJob>) {
        let thread = if job.group().is_none() { &self.segments } else { &self.copies };
        thread.send((shard, job)).expect("the background threads outlive the loops");
    }

    pub(crate) fn start_transfer(&self, shard: ShardId, job: Box<TransferJob>) {
        let thread = self.transfers.as_ref().expect("a node alone has no snapshots under way");
        thread.send((shard, job)).expect("the background threads outlive the loops");
    }
}

/// Jobs of a background thread, each with the shard that gets its result.
type ToBackground<Job> = SyncSender<(ShardId, Job)>;

/// Starts a background thread. It ends when all senders are dropped.
pub(crate) fn start_work<Job: Send + 'static>(
    name: &str,
    mailboxes: Vec<Arc<Mailbox>>,
    run_job: fn(Job) -> Mail,
) -> io::Result<(ToBackground<Job>, JoinHandle<()>)> {
    let (sender, jobs): (_, Receiver<(ShardId, Job)>) = sync_channel(JOBS_MAX);
    let run = move || {
        for (shard, job) in jobs {
            if mailboxes[usize::from(shard.get())].put_one(run_job(job)).is_err() {
                return;
            }
        }
    };
    Ok((sender, spawn(name.to_owned(), run)?))
}

pub(crate) fn spawn(
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(run)
}
