//! Simulated time: a monotonic clock that the scheduler moves, and a wall clock that may jump.
//!
//! # What a server may believe
//! A wall clock that is ahead of its course by more than [`JUMP_MS_MAX`] is not the time. So the oracle does not take
//! it for the time either. It asks for the latest time that a server may have: the wall clock as far as it was to be
//! believed, at the pace of the monotonic clock. A server can have less, after a start for example.

use model::{Monotonic, Timestamp};
use node::Stamp;

/// Wall time of the first moment: 2026-01-01.
const START_MS: i64 = 1_767_225_600_000;

/// How far ahead of its course the wall clock may be: some jumps are shorter and many longer.
pub(crate) const JUMP_MS_MAX: u64 = 300_000;

/// By so much the course of a server may lag behind: it was down, or its last entry is old.
const LAG_MS_MAX: i64 = 60_000;

/// The clocks of one machine.
#[derive(Debug)]
pub(crate) struct SimClock {
    pub(crate) now_us: u64,
    /// The greatest offset that a server may have believed.
    believed: i64,
    /// The least and the greatest offset so far.
    offsets: (i64, i64),
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
        let (believed, offsets) = (START_MS, (START_MS, START_MS));
        Self { now_us: 1_000_000, believed, offsets, jumps: vec![(0, START_MS)] }
    }

    fn offset(&self) -> i64 {
        self.jumps.last().expect("one is there from the start").1
    }

    /// Moves the wall clock by `ms`.
    pub(crate) fn jump(&mut self, ms: i64) {
        let offset = self.offset() + ms;
        self.jumps.push((self.now_us, offset));
        self.offsets = (self.offsets.0.min(offset), self.offsets.1.max(offset));
        if offset - self.believed <= JUMP_MS_MAX.cast_signed() {
            self.believed = self.believed.max(offset);
        }
    }

    /// A server has begun that knows of no earlier time: whatever the wall clock says is the time.
    pub(crate) fn believe(&mut self) {
        self.believed = self.believed.max(self.offset());
    }

    /// Whether the wall clock has ever left its course.
    pub(crate) fn has_jumped(&self) -> bool {
        self.jumps.len() > 1
    }

    /// Whether a server may have stopped to believe the wall clock.
    fn is_doubtful(&self) -> bool {
        self.offsets.1 - self.offsets.0 > JUMP_MS_MAX.cast_signed() - LAG_MS_MAX
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

    /// What the wall clock has shown from `since_us` to now.
    pub(crate) fn raw_since(&self, since_us: u64) -> WallRange {
        let mut range = WallRange { low: u64::MAX, high: 0 };
        for (place, (from, offset)) in self.jumps.iter().enumerate() {
            let until = self.jumps.get(place + 1).map_or(self.now_us, |next| next.0);
            if until >= since_us {
                range.low = range.low.min(wall((*from).max(since_us), *offset));
                range.high = range.high.max(wall(until, *offset));
            }
        }
        range
    }

    /// The times that a server may have had from `since_us` to now. Time does not fall, so the latest is that of now.
    pub(crate) fn time_since(&self, since_us: u64) -> WallRange {
        let mut range = WallRange { low: u64::MAX, high: wall(self.now_us, self.believed) };
        for (place, (from, offset)) in self.jumps.iter().enumerate() {
            let until = self.jumps.get(place + 1).map_or(self.now_us, |next| next.0);
            if until >= since_us {
                range.low = range.low.min(wall((*from).max(since_us), *offset));
            }
        }
        if self.is_doubtful() {
            range.low = 0;
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
    fn a_jump_that_is_too_long_is_not_the_time() {
        let mut clock = SimClock::new();
        let (since, before) = (clock.now_us, clock.wall_ms());
        clock.jump(200_000);
        assert_eq!(clock.time_since(since), WallRange { low: before, high: before + 200_000 });
        clock.jump(400_000);
        clock.now_us += 7_000;
        assert_eq!(clock.time_since(since), WallRange { low: 0, high: before + 200_007 });
    }

    #[test]
    fn a_range_holds_both_sides_of_a_jump() {
        let mut clock = SimClock::new();
        let (since, before) = (clock.now_us, clock.wall_ms());
        clock.now_us += 5_000_000;
        clock.jump(-60_000);
        clock.now_us += 1_000_000;
        let range = clock.time_since(since);
        assert_eq!(range, WallRange { low: before - 55_000, high: before + 6_000 });
    }
}
