//! An engine without threads: its owner does what they would do, step by step.
//!
//! # Why
//! A simulation must repeat from its seed, so nothing may depend on how threads are scheduled. Steps
//! have a beginning and an end: between the two, other calls run, as they do beside a thread.
//!
//! # Driving it
//! All calls come from one thread. A call that waits for a batch commits it itself; while the driver
//! holds a commit it must not be made, see [`Driver::holds_commit`].

use crate::error::WriteError;
use crate::shared::Shared;
use log::{SyncJob, WorkJob};
use std::collections::VecDeque;
use std::sync::Arc;

/// The hands of an engine that was opened by [`crate::Engine::open_driven`].
#[derive(Debug)]
pub struct Driver {
    shared: Arc<Shared>,
    /// The batch that is being committed.
    commit: Option<(u64, SyncJob)>,
    works: VecDeque<WorkJob>,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, commit: None, works: VecDeque::new() }
    }

    /// Whether a commit has begun and not ended.
    #[must_use]
    pub fn holds_commit(&self) -> bool {
        self.commit.is_some()
    }

    /// Takes the open batch, if it holds an entry and no commit is under way; whether it did.
    pub fn begin_commit(&mut self) -> bool {
        if self.commit.is_none() {
            self.commit = self.shared.take_commit(&mut self.shared.lock());
        }
        self.commit.is_some()
    }

    /// Writes, syncs and applies the batch that was taken; whether there was one.
    pub fn end_commit(&mut self) -> bool {
        let Some((batch, job)) = self.commit.take() else { return false };
        let done = job.run();
        drop(self.shared.finish_commit(self.shared.lock(), batch, done));
        true
    }

    /// Takes a job of background work, if there is one; whether it did.
    pub fn begin_work(&mut self) -> bool {
        let mut core = self.shared.lock();
        core.tick(self.shared.clock.now_monotonic());
        let job = core.poll_work();
        drop(core);
        let found = job.is_some();
        self.works.extend(job);
        found
    }

    /// Runs the oldest job that was taken; whether there was one.
    ///
    /// # Errors
    /// [`WriteError::Failed`] if the sync before it failed: the engine has failed then.
    pub fn end_work(&mut self) -> Result<bool, WriteError> {
        let Some(job) = self.works.pop_front() else { return Ok(false) };
        self.shared.run_work_here(job)?;
        Ok(true)
    }

    /// Does what happens at each interval of [`crate::Durability::Periodic`].
    ///
    /// # Errors
    /// [`WriteError::Failed`]: the engine has failed then.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.shared.settle_all()?;
        self.shared.barrier()
    }
}
