//! When each request of an open loop is due.

use std::time::{Duration, Instant};

/// Request `n` is due `n / rate` after the start, until the duration has passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) start: Instant,
    /// Requests per second.
    pub(crate) rate: f64,
    /// None forever.
    pub(crate) duration: Option<Duration>,
}

impl Schedule {
    /// How many are due at `now`.
    pub(crate) fn due_count(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_secs_f64();
        let due = (elapsed * self.rate) as u64 + 1;
        due.min(self.total())
    }

    /// When request `number` is due: its latency begins then, even if it goes later.
    pub(crate) fn due_at(&self, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// How many there are in all.
    pub(crate) fn total(&self) -> u64 {
        let seconds = self.duration.map(|duration| duration.as_secs_f64());
        seconds.map_or(u64::MAX, |seconds| (seconds * self.rate).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_from_the_start_until_the_end() {
        let start = Instant::now();
        let schedule = Schedule { start, rate: 50.0, duration: Some(Duration::from_secs(2)) };
        let count = |ms| schedule.due_count(start + Duration::from_millis(ms));
        assert_eq!([count(0), count(19), count(21), count(1001), count(9000)], [1, 1, 2, 51, 100]);
        assert_eq!(schedule.due_at(100), start + Duration::from_secs(2));
        assert_eq!(schedule.total(), 100);
    }

    #[test]
    fn each_is_due_when_it_is_counted() {
        let start = Instant::now();
        let schedule = Schedule { start, rate: 500.0, duration: None };
        for number in 0..1000 {
            let just_after = schedule.due_at(number) + Duration::from_micros(1);
            assert_eq!(schedule.due_count(just_after), number + 1);
        }
    }
}
