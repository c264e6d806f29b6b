//! The time of a shard's groups: entries are stamped with it, and lifetimes end by it.
//!
//! # Why
//! A wall clock can be wrong. A machine starts with the wrong year, somebody sets it, a virtual machine is moved. A
//! stream that has expired by a wrong clock does not come back, and the times of entries must never fall. Nobody sets
//! the monotonic clock. Its course from the last reading that was believed says what the wall clock should show.
//!
//! # How
//! A wall clock that is ahead of that course by more than a bound is not believed. Entries are then stamped by the
//! course, and nothing expires. This ends when the wall clock is back, or when an operator confirms it. At a start the
//! last entry takes the place of the last reading: the monotonic clock does not tell how long the process was down. A
//! clock that goes back is believed, but time stops until it has caught up.
//!
//! # Invariants
//! - [`GroupTime::now`] never falls, also over restarts.
//! - Lifetimes end by a time that is at most that.

use crate::Stamp;
use model::Timestamp;

/// See the module.
#[derive(Debug)]
pub(crate) struct GroupTime {
    /// What the next entry is stamped with.
    now: Timestamp,
    /// Readings up to this are not far ahead, whatever the monotonic clock shows: most need no closer look.
    believed_upto: Timestamp,
    /// The last reading that was looked at and believed; at a start, the time of the last entry.
    anchor: Option<Stamp>,
    /// How far ahead of its course the wall clock may be; 0 for any distance.
    jump_ms_max: u64,
    held: Option<Held>,
}

/// A wall clock that is not believed.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Lifetimes end by this time meanwhile: the last one that was believed.
    expires_by: Timestamp,
    ahead_ms: u64,
}

impl GroupTime {
    /// The time of groups whose last entry has this time; 0 if there is none.
    pub(crate) fn after(last: Timestamp) -> Self {
        let believed_upto = Timestamp::new(0);
        Self { now: last, believed_upto, anchor: None, jump_ms_max: 0, held: None }
    }

    /// Sets how far ahead of its course the wall clock may be; 0 for any distance.
    pub(crate) fn set_jump_ms_max(&mut self, jump_ms_max: u64) {
        self.jump_ms_max = jump_ms_max;
        self.believed_upto = Timestamp::new(0);
    }

    /// Takes a reading of the clocks. Returns the time by which lifetimes end.
    #[inline]
    pub(crate) fn read(&mut self, clocks: Stamp) -> Timestamp {
        if clocks.wall < self.now || clocks.wall > self.believed_upto {
            return self.look(clocks);
        }
        self.now = clocks.wall;
        clocks.wall
    }

    #[cold]
    fn look(&mut self, clocks: Stamp) -> Timestamp {
        let bound_ms = if self.jump_ms_max == 0 { u64::MAX } else { self.jump_ms_max };
        let course = self.course(clocks);
        if clocks.wall > course.plus_ms(bound_ms) {
            return self.hold(clocks, course);
        }
        // One that has gone back by more says nothing of where the course is now.
        if clocks.wall.plus_ms(bound_ms) >= course {
            self.anchor = Some(clocks);
        }
        self.believed_upto =
            self.anchor.map_or(clocks.wall, |anchor| anchor.wall).plus_ms(bound_ms);
        self.held = None;
        self.now = self.now.max(clocks.wall);
        self.now
    }

    /// What the wall clock should show.
    fn course(&mut self, clocks: Stamp) -> Timestamp {
        let last = self.now;
        let first = || Stamp { wall: if last.get() == 0 { clocks.wall } else { last }, ..clocks };
        let anchor = *self.anchor.get_or_insert_with(first);
        anchor.wall.plus_ms(clocks.monotonic.ms_since(anchor.monotonic))
    }

    fn hold(&mut self, clocks: Stamp, course: Timestamp) -> Timestamp {
        let expires_by = self.held.map_or(self.now, |held| held.expires_by);
        let ahead_ms = clocks.wall.get() - course.get();
        self.held = Some(Held { expires_by, ahead_ms });
        self.believed_upto = Timestamp::new(0);
        self.now = self.now.max(course);
        expires_by
    }

    /// Believes the wall clock as it is.
    pub(crate) fn confirm(&mut self, clocks: Stamp) {
        self.anchor = Some(clocks);
        self.look(clocks);
    }

    /// An entry of another node has this time: none of this node's comes before it.
    pub(crate) fn follow(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }

    /// What the next entry is stamped with.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// By how much the wall clock is ahead of its course; 0 if it is believed.
    pub(crate) fn ahead_ms(&self) -> u64 {
        self.held.map_or(0, |held| held.ahead_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Monotonic;

    const MINUTE_MS: u64 = 60_000;

    /// The time at which all begins: a year that a clock may show.
    const START_MS: u64 = 1_700_000_000_000;

    /// Both clocks `ms` after the start, the wall clock `ahead_ms` ahead.
    fn clocks(ms: u64, ahead_ms: i64) -> Stamp {
        let wall = Timestamp::new((START_MS + ms).saturating_add_signed(ahead_ms));
        Stamp { wall, monotonic: Monotonic::new((7_000 + ms) * 1_000_000) }
    }

    fn time(last_ms: u64) -> GroupTime {
        let mut time = GroupTime::after(Timestamp::new(last_ms));
        time.set_jump_ms_max(MINUTE_MS);
        time
    }

    /// What entries are stamped with and what lifetimes end by, from the start on.
    fn read(time: &mut GroupTime, clocks: Stamp) -> (u64, u64) {
        let expires_by = time.read(clocks);
        (time.now().get() - START_MS, expires_by.get() - START_MS)
    }

    #[test]
    fn a_clock_that_runs_is_believed_also_after_a_pause() {
        let mut time = time(0);
        for ms in [0, 1, 1, 59_000, MINUTE_MS, 90 * MINUTE_MS] {
            assert_eq!(read(&mut time, clocks(ms, 0)), (ms, ms));
        }
        // It drifts, and somebody corrects it by less than the bound.
        assert_eq!(read(&mut time, clocks(91 * MINUTE_MS, 59_000)).0, 91 * MINUTE_MS + 59_000);
        assert_eq!(time.ahead_ms(), 0);
    }

    #[test]
    fn a_jump_ahead_stops_expiry_and_entries_follow_the_course() {
        let mut time = time(0);
        read(&mut time, clocks(0, 0));
        let year_ms = 365 * 24 * 60 * MINUTE_MS;
        let jump = i64::try_from(year_ms).unwrap();
        assert_eq!(read(&mut time, clocks(1_000, jump)), (1_000, 0));
        assert_eq!(read(&mut time, clocks(9 * MINUTE_MS, jump)), (9 * MINUTE_MS, 0));
        assert_eq!(time.ahead_ms(), year_ms);
        // The clock is put right.
        assert_eq!(
            read(&mut time, clocks(10 * MINUTE_MS, 3)),
            (10 * MINUTE_MS + 3, 10 * MINUTE_MS + 3)
        );
        assert_eq!(time.ahead_ms(), 0);
    }

    #[test]
    fn a_jump_that_is_confirmed_is_the_time() {
        let mut time = time(0);
        read(&mut time, clocks(0, 0));
        let jump = i64::try_from(5 * MINUTE_MS).unwrap();
        read(&mut time, clocks(1_000, jump));
        time.confirm(clocks(2_000, jump));
        let now = 5 * MINUTE_MS + 3_000;
        assert_eq!(read(&mut time, clocks(3_000, jump)), (now, now));
    }

    #[test]
    fn a_start_long_after_the_last_entry_is_a_jump() {
        let mut time_soon = time(START_MS - MINUTE_MS);
        assert_eq!(read(&mut time_soon, clocks(0, 0)), (0, 0));
        let mut time_late = GroupTime::after(Timestamp::new(START_MS));
        time_late.set_jump_ms_max(MINUTE_MS);
        assert_eq!(read(&mut time_late, clocks(MINUTE_MS + 1, 0)), (0, 0));
        assert_eq!(read(&mut time_late, clocks(MINUTE_MS + 9, 0)), (8, 0), "its course continues");
        assert_eq!(time_late.ahead_ms(), MINUTE_MS + 1);
    }

    #[test]
    fn time_never_falls_and_a_clock_that_comes_back_is_no_jump() {
        let mut time = time(0);
        read(&mut time, clocks(0, 0));
        let back = -i64::try_from(30 * MINUTE_MS).unwrap();
        for ms in [1_000, 2_000, 20 * MINUTE_MS] {
            assert_eq!(read(&mut time, clocks(ms, back)), (0, 0), "it stops");
        }
        assert_eq!(read(&mut time, clocks(21 * MINUTE_MS, 0)), (21 * MINUTE_MS, 21 * MINUTE_MS));
        assert_eq!(time.ahead_ms(), 0);
    }

    #[test]
    fn without_a_bound_every_clock_is_believed() {
        let mut time = GroupTime::after(Timestamp::new(START_MS));
        let jump = i64::try_from(1_000_000 * MINUTE_MS).unwrap();
        let now = 1_000_000 * MINUTE_MS;
        assert_eq!(read(&mut time, clocks(0, jump)), (now, now));
    }
}
