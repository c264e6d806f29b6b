//! When streams are looked at for what they need not keep any more.
//!
//! # How
//! A stream is put down for a time. That is now if an append has made it larger than it has to be, or when its first
//! append may be too old. Then its owner looks where the bounds lie now, and logs a trim ([`crate::trim::TrimSteps`]). An append
//! costs nothing where no stream has bounds.
//!
//! # Invariants
//! - A stream is put down once, for its earliest time.
//! - Ages are arrivals, by the time by which lifetimes end: a clock that is not believed makes nothing old.

use model::{StreamKey, Timestamp};
use std::collections::{BTreeSet, HashMap};
use stream::{Retention, StreamInfo};

/// Ticks after which a stream whose trim has failed is looked at again, at most: one second.
const PUT_OFF_TICKS: u32 = 10;

/// Streams that are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct RetentionBook {
    /// What a stream keeps that does not say so itself.
    pub defaults: Retention,
    /// Whether any stream may have bounds.
    pub is_on: bool,
    by_time: BTreeSet<(Timestamp, StreamKey)>,
    times: HashMap<StreamKey, Timestamp>,
    /// Streams whose trim has failed: the log had no room, perhaps. They are tried again after some ticks, whatever the clock on the
    /// wall says: one that was set back may not move for hours.
    put_off: Vec<StreamKey>,
    /// Ticks since these were last put down.
    put_off_ticks: u32,
    /// Some may be due that nobody has looked at.
    pub is_due: bool,
    /// Streams that are being looked at.
    pub in_flight_count: usize,
    /// Trims that were logged for retention.
    pub trims: u64,
}

impl RetentionBook {
    /// Puts a stream down, unless it is for an earlier time.
    pub(crate) fn put_down(&mut self, key: StreamKey, due: Timestamp) {
        match self.times.get(&key) {
            Some(known) if *known <= due => return,
            Some(known) => _ = self.by_time.remove(&(*known, key)),
            None => {}
        }
        self.times.insert(key, due);
        self.by_time.insert((due, key));
    }

    /// Has a stream looked at again in a second.
    pub(crate) fn put_off(&mut self, key: StreamKey) {
        self.put_off.push(key);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.put_off_ticks += 1;
        if self.put_off_ticks >= PUT_OFF_TICKS {
            self.put_off_ticks = 0;
            for key in std::mem::take(&mut self.put_off) {
                self.put_down(key, now);
            }
        }
        self.is_due = true;
    }

    /// A stream is gone.
    pub(crate) fn forget(&mut self, key: StreamKey) {
        if let Some(due) = self.times.remove(&key) {
            self.by_time.remove(&(due, key));
        }
    }

    /// Takes the next stream that is due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<StreamKey> {
        let (due, key) = *self.by_time.first()?;
        if due > now {
            return None;
        }
        self.forget(key);
        Some(key)
    }

    /// Whether a slice may be looked for.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_due && self.in_flight_count == 0
    }

    /// When a stream is to be looked at after an append, or after a change of its settings.
    pub(crate) fn due_of(&self, info: &StreamInfo, now: Timestamp) -> Option<Timestamp> {
        let kept = info.retention.or(self.defaults);
        let is_more = |amount: u64, bound: Option<u64>| bound.is_some_and(|bound| amount > bound);
        let is_larger = is_more(info.tail.since(info.head), kept.bytes.at_least())
            || is_more(info.next_record - info.first_record, kept.records.at_least());
        if is_larger {
            return Some(now);
        }
        let has_bytes = info.tail > info.head;
        let age_seconds = kept.age_seconds.at_least().filter(|_| has_bytes)?;
        // No append of the stream is older.
        Some(info.created_at.plus_ms(age_ms(age_seconds).saturating_add(1)))
    }

    /// Asserts that each stream is put down once.
    ///
    /// # Panics
    /// If one is not.
    pub(crate) fn check(&self) {
        let times = self.times.iter().map(|(key, due)| (*due, *key)).collect::<BTreeSet<_>>();
        assert_eq!(times, self.by_time, "streams are put down for other times");
    }
}

/// Seconds in milliseconds.
pub(crate) fn age_ms(seconds: u64) -> u64 {
    seconds.saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{GroupId, StreamId};

    #[test]
    fn a_stream_that_was_put_off_comes_up_again_though_the_clock_stands_still() {
        let mut book = RetentionBook::default();
        let key = StreamKey { group: GroupId::new(0), stream: StreamId::new(1) };
        let now = Timestamp::new(70);
        book.put_off(key);
        (1..PUT_OFF_TICKS).for_each(|_| book.tick(now));
        assert_eq!(book.take_due(now), None);
        book.tick(now);
        assert_eq!((book.take_due(now), book.take_due(now)), (Some(key), None));
    }

    #[test]
    fn a_stream_comes_up_once_at_its_earliest_time() {
        let mut book = RetentionBook::default();
        let key = |stream| StreamKey { group: GroupId::new(0), stream: StreamId::new(stream) };
        for (stream, due) in [(1, 50), (2, 40), (1, 30), (2, 60), (3, 35)] {
            book.put_down(key(stream), Timestamp::new(due));
            book.check();
        }
        book.forget(key(3));
        let mut due = |now| book.take_due(Timestamp::new(now)).map(|key| key.stream.get());
        assert_eq!([29, 30, 39, 40, 99].map(&mut due), [None, Some(1), None, Some(2), None]);
        book.check();
    }
}
