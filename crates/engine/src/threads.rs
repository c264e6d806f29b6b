//! The engine's own threads: one that commits, two that do background work, and one that syncs at
//! intervals if that was asked for.
//!
//! # Why
//! Two workers: segments must be made ready while a long seal or merge runs.

use crate::options::Durability;
use crate::shared::Shared;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

const WORKERS: usize = 2;

/// Running threads.
#[derive(Debug)]
pub(crate) struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
}

fn start(
    shared: &Arc<Shared>,
    name: &str,
    run: impl FnOnce(&Shared) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    Builder::new().name(name.to_owned()).spawn(move || run(&shared))
}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// As the system answers; those that were started end then.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let threads = Self { handles: Mutex::default() };
        threads.start_all(shared).inspect_err(|_| threads.join(shared))?;
        Ok(threads)
    }

    fn start_all(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let keep = |handle| {
            self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        };
        keep(start(shared, "thalweg-commit", Shared::run_commits)?);
        for _ in 0..WORKERS {
            keep(start(shared, "thalweg-work", Shared::run_work)?);
        }
        if let Durability::Periodic(interval) = shared.options.durability {
            keep(start(shared, "thalweg-sync", move |shared| shared.run_syncs(interval))?);
        }
        Ok(())
    }

    /// Ends them and waits until they have ended.
    pub(crate) fn join(&self, shared: &Shared) {
        shared.stop();
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in handles.drain(..) {
            // A panic was reported by the thread itself and has poisoned the lock for callers.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests;
