//! The time of records: what a client gives with an append.
//!
//! An append has two times. It *arrives*: the time of its entry, by which retention and lifetimes go. A client may give a
//! *record time* besides. Of these a stream keeps the largest so far, its *mark*: so they can be searched, in whatever
//! order clients send them.

use crate::{
    DecodeError,
    codec::{Reader, Writer},
};
use model::Timestamp;

/// A time in 6 bytes at any place, so that a record has room for more in the same space. Times from the year 10889 on are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactTime([u16; 3]);

impl CompactTime {
    /// The last one.
    pub(crate) const MAX: Self = Self([u16::MAX; 3]);

    pub(crate) fn get(self) -> Timestamp {
        let [low, middle, high] = self.0.map(u64::from);
        Timestamp::new(low | middle << 16 | high << 32)
    }
}

impl From<Timestamp> for CompactTime {
    fn from(time: Timestamp) -> Self {
        let ms = time.get().min(Self::MAX.get().get());
        Self([ms as u16, (ms >> 16) as u16, (ms >> 32) as u16])
    }
}

/// The largest record time of an append, milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordTime {
    /// As the client gave it.
    Given(u64),
    /// In milliseconds since the arrival of the append, as it is logged; below 0 before it.
    SinceArrival(i64),
}

impl RecordTime {
    /// Learns when the append arrives. A time in the future is that of the arrival: one that is wrong by years would
    /// raise all that come after it.
    pub fn settle(&mut self, arrival: Timestamp) {
        if let Self::Given(time) = *self {
            let late = arrival.get().saturating_sub(time);
            *self = Self::SinceArrival(-i64::try_from(late).unwrap_or(i64::MAX));
        }
    }

    /// The time, milliseconds since 1970.
    pub(crate) fn at(self, arrival: Timestamp) -> u64 {
        match self {
            Self::Given(time) => time,
            Self::SinceArrival(since) => arrival.get().saturating_add_signed(since),
        }
    }
}

impl Writer<'_> {
    /// # Panics
    /// If the time was not settled: the log holds what its arrival makes of it.
    pub(crate) fn record_time(&mut self, time: RecordTime) {
        let RecordTime::SinceArrival(since) = time else { panic!("a record time is not settled") };
        // Small numbers of both signs are short.
        self.number((since << 1 ^ since >> 63) as u64);
    }
}

impl Reader<'_> {
    pub(crate) fn record_time(&mut self) -> Result<RecordTime, DecodeError> {
        let number = self.number()?;
        Ok(RecordTime::SinceArrival((number >> 1) as i64 ^ -((number & 1) as i64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_and_late_ones_are_short() {
        for since in [0, 1, -1, 63, -64, 64, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            Writer(&mut bytes).record_time(RecordTime::SinceArrival(since));
            assert_eq!(Reader::new(&bytes).record_time(), Ok(RecordTime::SinceArrival(since)));
            assert_eq!(bytes.len() == 1, (-64..64).contains(&since));
        }
    }

    #[test]
    fn a_time_in_the_future_is_that_of_the_arrival() {
        let settled = |time| {
            let mut time = RecordTime::Given(time);
            time.settle(Timestamp::new(1000));
            (time, time.at(Timestamp::new(1000)))
        };
        assert_eq!(settled(900), (RecordTime::SinceArrival(-100), 900));
        assert_eq!(settled(0), (RecordTime::SinceArrival(-1000), 0));
        assert_eq!(settled(u64::MAX), (RecordTime::SinceArrival(0), 1000));
        assert_eq!(RecordTime::SinceArrival(i64::MAX).at(Timestamp::new(u64::MAX)), u64::MAX);
    }
}
