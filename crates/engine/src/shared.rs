//! How the threads of an engine work together: which of them commits, waits or wakes another.
//!
//! # Why
//! With a sync per append, an appender that finds no commit under way runs its own: no other thread
//! need be woken. The commit thread takes later arrivals as the next batch, as long as there are more.
//! Without syncs an append is acknowledged when it is written in front of the WAL (`front`). The
//! commit thread takes the batch when it is large. A call that reads, syncs or closes takes it before.
//!
//! # Invariants
//! - A call returns `Ok` only when its entry was written, to the WAL or in front of it, and with
//!   `Durability::Each` synced.
//! - A commit, sync or record that fails is final: [`Shared::fail`].
//! - Nobody waits for the lock while a sync runs.

use crate::core::{Core, Refused, TICK_MS};
use crate::error::WriteError;
use crate::locate::GROUP;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::synced::SyncedFile;
use crate::wal_disk::WalDisk;
use env::Clock;
use log::{AppendError, SyncDone, SyncJob, WorkJob};
use model::Monotonic;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a caller that waits for room sleeps at most before it looks again.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Jobs that one call does at most where there are no threads.
const JOBS_PER_CALL_MAX: u32 = 64;

/// How long background work rests after the disk refused it.
const WORK_REST: Duration = Duration::from_millis(50);

/// Everything that callers and the engine's own threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    pub(crate) outcome: Outcome,
    room: Condvar,
    work: Condvar,
    commit: Condvar,
    tick: Condvar,
    disk: Arc<WalDisk>,
    synced: Mutex<SyncedFile>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    /// There are no threads: a call that would wait for one does its work.
    pub(crate) is_driven: bool,
}

type Guard<'a> = MutexGuard<'a, Core>;

fn healthy<T>(result: std::sync::LockResult<T>) -> T {
    result.expect("a thread of the engine panicked")
}

/// How long a caller has waited for room.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Monotonic>,
    disk_was_full: bool,
    /// Jobs that were done for it, where there are no threads.
    jobs: u32,
}

impl Shared {
    pub(crate) fn new(
        core: Core,
        disk: Arc<WalDisk>,
        synced: SyncedFile,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        Self {
            core: Mutex::new(core),
            outcome: Outcome::default(),
            room: Condvar::new(),
            work: Condvar::new(),
            commit: Condvar::new(),
            tick: Condvar::new(),
            disk,
            synced: Mutex::new(synced),
            clock,
            options,
            is_driven: false,
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_> {
        healthy(self.core.lock())
    }

    /// Puts something into the open batch, waiting for room if need be.
    pub(crate) fn put<T>(
        &self,
        push: impl Fn(&mut Core) -> Result<T, Refused>,
    ) -> Result<(Guard<'_>, T), WriteError> {
        let mut patience = Patience::default();
        let mut core = self.lock();
        loop {
            core.check()?;
            match push(&mut core) {
                Ok(value) => return Ok((core, value)),
                Err(Refused::Call(error)) => return Err(error),
                Err(Refused::Log(refused)) => {
                    core = self.make_room(core, refused, &mut patience)?
                }
            }
        }
    }

    /// Waits for what an append needs; the lock is held again afterwards.
    fn make_room<'a>(
        &'a self,
        mut core: Guard<'a>,
        refused: AppendError,
        patience: &mut Patience,
    ) -> Result<Guard<'a>, WriteError> {
        if self.is_driven {
            return self.make_room_here(core, refused, patience);
        }
        let now = self.clock.now_monotonic();
        let waited_ms = now.ms_since(*patience.since.get_or_insert(now));
        if refused == AppendError::DiskFull && patience.disk_was_full {
            return Err(WriteError::DiskFull);
        }
        if waited_ms >= self.options.wait_ms_max {
            return Err(WriteError::Busy { waited_ms, cause: core.work_error.clone() });
        }
        if refused == AppendError::Backpressure && core.has_open && !core.is_syncing {
            return Ok(self.lead(core));
        }
        patience.disk_was_full = refused == AppendError::DiskFull;
        let works_done = core.works_done;
        loop {
            // A thread that rests after an error must try again now.
            self.work.notify_all();
            core.prepare_work();
            core.waiting.room += 1;
            core = healthy(self.room.wait_timeout(core, ROOM_WAIT)).0;
            core.waiting.room -= 1;
            let waited_ms = self.clock.now_monotonic().ms_since(now);
            // Jobs of both workers may have begun before there was room: the third tells.
            let has_changed = core.works_done > works_done + 2 || !patience.disk_was_full;
            if has_changed || waited_ms > 1000 || core.failure.is_some() {
                return Ok(core);
            }
        }
    }

    /// Makes room without a thread: commits, or does a job of background work.
    fn make_room_here<'a>(
        &'a self,
        mut core: Guard<'a>,
        refused: AppendError,
        patience: &mut Patience,
    ) -> Result<Guard<'a>, WriteError> {
        patience.jobs += 1;
        if refused == AppendError::Backpressure && core.has_open && !core.is_syncing {
            return Ok(self.lead(core));
        }
        let job = if patience.jobs <= JOBS_PER_CALL_MAX { core.poll_work() } else { None };
        match job {
            Some(job) => {
                drop(core);
                self.run_work_here(job)?;
                Ok(self.lock())
            }
            None if refused == AppendError::DiskFull => Err(WriteError::DiskFull),
            None => Err(WriteError::Busy { waited_ms: 0, cause: core.work_error.clone() }),
        }
    }

    /// Waits until what was put into the open batch is acknowledged.
    pub(crate) fn settle(&self, core: Guard<'_>) -> Result<(), WriteError> {
        if !core.is_in_front() {
            return self.settle_open(core);
        }
        self.leave(core);
        Ok(())
    }

    /// Waits until the open batch is in the WAL.
    fn settle_open(&self, mut core: Guard<'_>) -> Result<(), WriteError> {
        let batch = core.batch;
        if core.is_syncing || core.failure.is_some() {
            // The thread that ends the commit under way begins the next one.
            core.awaited = batch;
            drop(core);
        } else {
            drop(self.lead(core));
        }
        self.wait_for(batch)
    }

    /// Waits until `batch` is acknowledged.
    ///
    /// # Panics
    /// Without threads, if the driver holds a commit: nobody else would end it.
    pub(crate) fn wait_for(&self, batch: u64) -> Result<(), WriteError> {
        while self.is_driven && self.outcome.poll(batch) == Ok(false) {
            let core = self.lock();
            assert!(!core.is_syncing, "end the commit before a call that waits for it");
            if core.failure.is_some() || !core.has_open {
                break;
            }
            drop(self.lead(core));
        }
        self.outcome.wait(batch)
    }

    /// Leaves the open batch to the commit thread; the batch to wait for, if what is in it is not acknowledged
    /// already.
    pub(crate) fn leave(&self, core: Guard<'_>) -> Option<u64> {
        let (is_in_front, batch) = (core.is_in_front(), core.batch);
        let wakes = core.wants_sync() && !core.is_syncing && core.waiting.syncer;
        // Without the lock: the woken thread wants it.
        drop(core);
        if wakes {
            self.commit.notify_one();
        }
        (!is_in_front).then_some(batch)
    }

    /// Waits until what was acknowledged can be read.
    pub(crate) fn catch_up(&self) {
        if !self.options.durability.is_each() {
            // A failure leaves what was applied before it, and every later append says so.
            let _ = self.settle_all();
        }
    }

    /// Commits the open batch on this thread.
    fn lead<'a>(&'a self, core: Guard<'a>) -> Guard<'a> {
        let holds_lock = !self.options.durability.is_each();
        self.commit_batch(core, holds_lock)
    }

    fn commit_batch<'a>(&'a self, mut core: Guard<'a>, holds_lock: bool) -> Guard<'a> {
        let Some((batch, job)) = self.take_commit(&mut core) else { return core };
        let done = if holds_lock {
            job.run()
        } else {
            drop(core);
            let done = job.run();
            core = self.lock();
            done
        };
        self.finish_commit(core, batch, done)
    }

    /// Begins a commit of what is open, unless one is under way.
    pub(crate) fn take_commit(&self, core: &mut Core) -> Option<(u64, SyncJob)> {
        let job = if core.is_syncing { None } else { core.shard.poll_sync() }?;
        core.is_syncing = true;
        Some((core.next_batch(), job))
    }

    /// Ends the commit of `batch`: applies it, acknowledges it and wakes its waiters.
    pub(crate) fn finish_commit<'a>(
        &'a self,
        mut core: Guard<'a>,
        batch: u64,
        done: SyncDone,
    ) -> Guard<'a> {
        core.is_syncing = false;
        match core.finish(done) {
            Ok(()) => self.outcome.settle(batch),
            Err(cause) => self.fail_locked(&mut core, &cause),
        }
        core.tick(self.clock.now_monotonic());
        if core.prepare_work() {
            self.work.notify_one();
        }
        if core.waiting.room > 0 {
            self.room.notify_all();
        }
        if core.has_open && core.waiting.syncer {
            self.commit.notify_one();
        }
        core
    }

    fn fail_locked(&self, core: &mut Core, cause: &Arc<str>) {
        core.failure.get_or_insert_with(|| Arc::clone(cause));
        self.outcome.fail(cause);
        self.room.notify_all();
    }

    /// Ends all acknowledgements: what the disk holds is not known any more.
    pub(crate) fn fail(&self, error: &io::Error) -> WriteError {
        let cause: Arc<str> = format!("a sync failed: {error}").into();
        self.fail_locked(&mut self.lock(), &cause);
        WriteError::Failed { cause }
    }

    /// Waits until everything that was put before is written.
    pub(crate) fn settle_all(&self) -> Result<(), WriteError> {
        let core = self.lock();
        if let Some(cause) = &core.failure {
            return Err(WriteError::Failed { cause: Arc::clone(cause) });
        }
        if core.has_open {
            return self.settle_open(core);
        }
        let last = core.batch - 1;
        drop(core);
        self.wait_for(last)
    }

    /// Makes everything that was applied before the call durable and records that.
    ///
    /// # Errors
    /// [`WriteError::Failed`]; the engine has failed then.
    pub(crate) fn barrier(&self) -> Result<(), WriteError> {
        if self.options.durability.is_each() {
            return Ok(());
        }
        let applied = self.lock().shard.applied_index(GROUP).get();
        let synced = self.disk.sync_wal();
        synced
            .and_then(|()| healthy(self.synced.lock()).advance(applied))
            .map_err(|error| self.fail(&error))
    }

    /// Records that all of this life is in the log, durably: the next opening has nothing to do.
    pub(crate) fn end_life(&self) -> Result<(), WriteError> {
        healthy(self.synced.lock()).end_life().map_err(|error| self.fail(&error))
    }

    /// Writes the mark of a clean stop.
    pub(crate) fn mark(&self) -> Result<(), WriteError> {
        let mut core = self.lock();
        while core.is_syncing {
            drop(core);
            self.settle_all()?;
            core = self.lock();
        }
        core.shard.mark_durable();
        core = self.lead(core);
        core.failure
            .as_ref()
            .map_or(Ok(()), |cause| Err(WriteError::Failed { cause: Arc::clone(cause) }))
    }

    /// Lets the engine's threads end.
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.work.notify_all();
        self.commit.notify_all();
        self.tick.notify_all();
    }

    /// The commit thread: takes batches that nobody commits on his own.
    pub(crate) fn run_commits(&self) {
        let mut core = self.lock();
        while !core.is_stopping {
            let is_wanted = core.has_open && core.wants_sync();
            if is_wanted && !core.is_syncing && core.failure.is_none() {
                core = self.commit_batch(core, false);
            } else {
                core.waiting.syncer = true;
                core = healthy(self.commit.wait(core));
                core.waiting.syncer = false;
            }
        }
    }

    /// A worker: seals, merges, checkpoints, and keeps segments ready.
    pub(crate) fn run_work(&self) {
        let mut core = self.lock();
        while !core.is_stopping {
            let Some(job) = core.ready.pop_front().or_else(|| core.poll_work()) else {
                core.waiting.workers += 1;
                core = if core.shard.is_loaded() {
                    healthy(self.work.wait_timeout(core, Duration::from_millis(TICK_MS))).0
                } else {
                    healthy(self.work.wait(core))
                };
                core.waiting.workers -= 1;
                core.tick(self.clock.now_monotonic());
                continue;
            };
            drop(core);
            let Ok((locked, is_merge_refused)) = self.run_job(job) else { return };
            core = locked;
            if core.work_error.is_some() && !core.is_stopping {
                core = healthy(self.work.wait_timeout(core, WORK_REST)).0;
            }
            if is_merge_refused {
                core.shard.retry_merges();
            }
        }
    }

    /// Runs a job of background work after making durable what it relies on; whether a merge was
    /// refused.
    fn run_job(&self, job: WorkJob) -> Result<(Guard<'_>, bool), WriteError> {
        self.barrier()?;
        let done = job.run();
        let mut core = self.lock();
        let report = core.shard.handle_work(done);
        let is_merge_refused = report.merge_refusal.is_some();
        let error = report.error.or(report.merge_refusal);
        core.work_error = error.map(|error| error.to_string());
        core.works_done += 1;
        if core.waiting.room > 0 {
            self.room.notify_all();
        }
        Ok((core, is_merge_refused))
    }

    /// As a worker does, without the rest after an error.
    pub(crate) fn run_work_here(&self, job: WorkJob) -> Result<(), WriteError> {
        let (mut core, is_merge_refused) = self.run_job(job)?;
        if is_merge_refused {
            core.shard.retry_merges();
        }
        Ok(())
    }

    /// The thread of `Durability::Periodic`: syncs at each interval if something was written.
    pub(crate) fn run_syncs(&self, interval: Duration) {
        let mut core = self.lock();
        while !core.is_stopping {
            core = healthy(self.tick.wait_timeout(core, interval)).0;
            drop(core);
            if self.settle_all().and_then(|()| self.barrier()).is_err() {
                return;
            }
            core = self.lock();
        }
    }
}
