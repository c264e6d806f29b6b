//! When streams come up to be expired, in order.
//!
//! # Why a set and not a heap
//! A stream that is deleted leaves at once. In a heap its entry would stay until the deadline, which may be years
//! ahead. A set also grows without ever moving what it holds.
//!
//! # Invariants
//! - A stream is in the set at most once, under the time that its record holds as [`Noted`].
//! - That time is not after the stream's deadline, unless the stream came up and was not expired yet.

use crate::times::CompactTime;
use model::{StreamId, Timestamp};
use std::collections::BTreeSet;

/// The time under which a stream is in the set. A time that never comes is not noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted(CompactTime);

impl Noted {
    /// In no set.
    pub(crate) const NEVER: Self = Self(CompactTime::MAX);

    /// Whether a stream with this deadline comes up.
    pub(crate) fn is_noted(deadline: Timestamp) -> bool {
        CompactTime::from(deadline) != CompactTime::MAX
    }

    fn time(self) -> Timestamp {
        self.0.get()
    }
}

/// The streams that come up, by time.
#[derive(Debug, Default)]
pub(crate) struct Expiries(BTreeSet<(Timestamp, StreamId)>);

impl Expiries {
    /// Puts a stream, which is not in the set, under `time`. The result belongs into its record.
    #[must_use]
    pub(crate) fn note(&mut self, time: Option<Timestamp>, stream: StreamId) -> Noted {
        let noted = time.map_or(Noted::NEVER, |time| Noted(time.into()));
        if noted != Noted::NEVER {
            self.0.insert((noted.time(), stream));
        }
        noted
    }

    /// Takes a stream out.
    pub(crate) fn forget(&mut self, noted: Noted, stream: StreamId) {
        if noted != Noted::NEVER {
            self.0.remove(&(noted.time(), stream));
        }
    }

    /// Takes the first stream out that comes up at `now`.
    pub(crate) fn take_first(&mut self, now: Timestamp) -> Option<StreamId> {
        let (time, _) = self.0.first()?;
        if *time > now {
            return None;
        }
        self.0.pop_first().map(|(_, stream)| stream)
    }

    /// Whether a stream comes up under `noted`.
    pub(crate) fn has(&self, noted: Noted, stream: StreamId) -> bool {
        self.0.contains(&(noted.time(), stream))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What tests of the check break.
#[cfg(test)]
impl Expiries {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_and_those_that_never_come_are_not_kept() {
        let mut expiries = Expiries::default();
        let stream = StreamId::new(7);
        let never_ms = CompactTime::MAX.get().get();
        for ms in [0, 1, 0x1234_5678_9abc, never_ms - 1] {
            let noted = expiries.note(Some(Timestamp::new(ms)), stream);
            assert_eq!(noted.time(), Timestamp::new(ms));
            assert!(expiries.has(noted, stream));
            expiries.forget(noted, stream);
        }
        for time in [None, Some(Timestamp::new(never_ms)), Some(Timestamp::new(u64::MAX))] {
            assert_eq!(expiries.note(time, stream), Noted::NEVER);
        }
        assert_eq!(expiries.len(), 0);
    }
}
