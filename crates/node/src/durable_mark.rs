//! When a quiet shard marks its last batch durable in the log itself.
//!
//! The next batch says that the one before it is durable. Without a next one only a mark does, and
//! recovery could not distinguish damage of the last batch from a torn tail.

use model::Monotonic;

/// A shard without commits for this long marks its last batch.
const IDLE_MARK_MS: u64 = 1_000;

/// A shard without entries for this long logs the time: the next start then knows how long it was down.
const TIME_MARK_MS: u64 = 15 * 60 * 1_000;

/// Whether the last batch of a shard is marked durable.
#[derive(Debug, Default)]
pub(crate) struct DurableMark {
    last_sync: Monotonic,
    is_marked: bool,
}

impl DurableMark {
    /// Entries became durable: the mark, if there was one, lies before them.
    pub(crate) fn note_sync(&mut self, now: Monotonic) {
        *self = Self { last_sync: now, is_marked: false };
    }

    /// Whether it is time for a mark.
    pub(crate) fn is_due(&self, now: Monotonic) -> bool {
        !self.is_marked && now.ms_since(self.last_sync) >= IDLE_MARK_MS
    }

    /// Whether it is time to log the time.
    pub(crate) fn is_time_due(&self, now: Monotonic) -> bool {
        now.ms_since(self.last_sync) >= TIME_MARK_MS
    }

    pub(crate) fn note_marked(&mut self) {
        self.is_marked = true;
    }
}
