//! Simulated time: a monotonic clock that the scheduler moves, and a wall clock that may jump.

use model::{Monotonic, Timestamp};
use node::Stamp;

/// Wall time of the first moment: 2026-01-01.
const START_MS: i64 = 1_767_225_600_000;

/// The clocks of one machine.
#[derive(Debug)]
pub(crate) struct SimClock {
    pub(crate) now_us: u64,
    /// From when on which offset holds, in order.
    jumps: Vec<(u64, i64)>,
}

/// The least and the greatest wall time of an interval, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WallRange {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self { now_us: 1_000_000, jumps: vec![(0, START_MS)] }
    }

    fn offset(&self) -> i64 {
        self.jumps.last().expect("one is there from the start").1
    }

    /// Moves the wall clock by `ms`.
    pub(crate) fn jump(&mut self, ms: i64) {
        let offset = self.offset() + ms;
        self.jumps.push((self.now_us, offset));
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        wall(self.now_us, self.offset())
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            wall: Timestamp::new(self.wall_ms()),
            monotonic: Monotonic::new(self.now_us * 1000),
        }
    }

    /// What the wall clock showed from `since_us` to now.
    pub(crate) fn wall_since(&self, since_us: u64) -> WallRange {
        let mut range = WallRange { low: u64::MAX, high: 0 };
        for (place, (from, offset)) in self.jumps.iter().enumerate() {
            let until = self.jumps.get(place + 1).map_or(self.now_us, |next| next.0);
            if until < since_us {
                continue;
            }
            range.low = range.low.min(wall((*from).max(since_us), *offset));
            range.high = range.high.max(wall(until, *offset));
        }
        range
    }
}

fn wall(us: u64, offset_ms: i64) -> u64 {
    (us / 1000).saturating_add_signed(offset_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_both_sides_of_a_jump() {
        let mut clock = SimClock::new();
        let (since, before) = (clock.now_us, clock.wall_ms());
        clock.now_us += 5_000_000;
        clock.jump(-60_000);
        clock.now_us += 1_000_000;
        let range = clock.wall_since(since);
        assert_eq!(range, WallRange { low: before - 55_000, high: before + 5_000 });
    }
}
