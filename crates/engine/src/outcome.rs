//! Where appenders wait for their batch.
//!
//! # Why
//! Not on the engine's lock: callers that wait for a sync must not block callers that fill
//! the next batch. Batches take turns on two conditions, so that the end of one wakes only its own.
//!
//! # Invariants
//! - A batch that was settled stays settled, whatever fails later.

use crate::error::WriteError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The batches that are through.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    done: AtomicU64,
    state: Mutex<State>,
    settled: [Condvar; 2],
}

#[derive(Debug, Default)]
struct State {
    waiting: [u32; 2],
    failure: Option<Arc<str>>,
}

fn parity(batch: u64) -> usize {
    (batch % 2) as usize
}

impl Outcome {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread of the engine panicked")
    }

    /// Every batch up to `batch` is acknowledged.
    pub(crate) fn settle(&self, batch: u64) {
        self.done.store(batch, Ordering::Release);
        // Taken after the store: a waiter that saw the old number is counted by now or sees the new.
        if self.state().waiting[parity(batch)] > 0 {
            self.settled[parity(batch)].notify_all();
        }
    }

    /// No later batch will be acknowledged.
    pub(crate) fn fail(&self, cause: &Arc<str>) {
        self.state().failure.get_or_insert_with(|| Arc::clone(cause));
        self.settled.iter().for_each(Condvar::notify_all);
    }

    /// Whether `batch` is settled.
    ///
    /// # Errors
    /// [`WriteError::Failed`]: it never will be.
    pub(crate) fn poll(&self, batch: u64) -> Result<bool, WriteError> {
        if self.done.load(Ordering::Acquire) >= batch {
            return Ok(true);
        }
        let failure = self.state().failure.clone();
        failure.map_or(Ok(false), |cause| Err(WriteError::Failed { cause }))
    }

    /// Waits until `batch` is settled.
    ///
    /// # Errors
    /// [`WriteError::Failed`]: it never will be.
    pub(crate) fn wait(&self, batch: u64) -> Result<(), WriteError> {
        let is_done = || self.done.load(Ordering::Acquire) >= batch;
        if is_done() {
            return Ok(());
        }
        let turn = parity(batch);
        let mut state = self.state();
        state.waiting[turn] += 1;
        let result = loop {
            if is_done() {
                break Ok(());
            }
            if let Some(cause) = &state.failure {
                break Err(WriteError::Failed { cause: Arc::clone(cause) });
            }
            state = self.settled[turn].wait(state).expect("a thread of the engine panicked");
        };
        state.waiting[turn] -= 1;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_settled_stays_so_and_nothing_later_is() {
        let outcome = Outcome::default();
        outcome.settle(2);
        outcome.fail(&Arc::from("broken"));
        assert_eq!(outcome.wait(2), Ok(()));
        assert_eq!(outcome.wait(3), Err(WriteError::Failed { cause: Arc::from("broken") }));
    }
}
