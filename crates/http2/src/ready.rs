//! Connections and streams that want to be looked at.
//!
//! A waker of the library must be shareable between threads, so there are a lock and flags here. One thread has all of them:
//! the lock is never contended.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::task::Wake;

/// Keys of connections and streams that something has happened to, in its order.
#[derive(Debug, Default)]
pub struct Ready {
    is_any: AtomicBool,
    keys: Mutex<Vec<u64>>,
}

impl Ready {
    /// Whether there is one.
    #[must_use]
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Takes all of them.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        self.is_any.store(false, Relaxed);
        std::mem::take(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, key: u64) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.is_any.store(true, Relaxed);
    }
}

/// Writes one key down, once until it is looked at.
#[derive(Debug)]
pub(crate) struct Knock {
    key: u64,
    is_written: AtomicBool,
    ready: Arc<Ready>,
}

impl Knock {
    pub(crate) fn new(key: u64, ready: &Arc<Ready>) -> Arc<Self> {
        Arc::new(Self { key, is_written: AtomicBool::new(false), ready: Arc::clone(ready) })
    }

    /// It is looked at now.
    pub(crate) fn answer(&self) {
        self.is_written.store(false, Relaxed);
    }

    /// Does what may wake it, and writes nothing down for that: who does it looks at the same time.
    pub(crate) fn while_looking<R>(&self, work: impl FnOnce() -> R) -> R {
        let was_written = self.is_written.swap(true, Relaxed);
        let done = work();
        self.is_written.store(was_written, Relaxed);
        done
    }
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_written.swap(true, Relaxed) {
            self.ready.push(self.key);
        }
    }
}
