//! Where the next commit runs: on the WAL thread, or on the loop's own.
//!
//! A commit on the WAL thread is two wakes, which on a fast disk take as long as the sync. They pay when the
//! loop has enough to do meanwhile. With a few clients it does not. Requests that arrive during the sync wait
//! in the sockets no longer than for their turn, and become one batch. So commits run on the loop once turns
//! have had few events for a while and syncs are short. Of events that bring a write there may be more: all that comes
//! during the sync would wait for the WAL thread, too. Commits move there with the first turn that
//! has more events, or work left of an earlier turn.
//!
//! A slow sync sends commits away, too: one that hangs, or one after which the average is long. They return when
//! some syncs in a row were not slow: eight at first. Each slow sync on the loop doubles that number, and a long time
//! without one halves it. So a disk that hangs now and then hardly ever holds the loop up.
//!
//! A write that arrives during the sync would also have waited for the WAL thread. A read that arrives then
//! waits for one sync.

use super::back_off::BackOff;

/// Events of a turn without a write that are few.
const EVENTS_MAX: usize = 16;

/// Writes of a turn that are few: the loop takes about five times as long for them as for a short sync.
const WRITES_MAX: usize = 64;

/// Turns of few events, in a row, before commits run on the loop.
const TURNS_MIN: u32 = 16;

/// A commit that takes longer is slow: its disk hangs.
const COMMIT_NS_MAX: u64 = 4_000_000;

/// If commits take longer on average, each is slow: the disk is, or they are large.
const MEAN_NS_MAX: u64 = 1_000_000;

/// How many commits that average is about, more or less.
const MEAN_COMMITS: u64 = 8;

/// Short syncs, in a row, after a slow one before commits run on the loop: at least and at most. Beside chunks that are synced one commit
/// in some hundreds is slow: that costs less than to wake the WAL thread for the others.
const SHORT_MIN: u32 = 8;
const SHORT_MAX: u32 = 128;

/// Short syncs on the loop after which fewer are asked for.
const SHORT_TO_TRUST: u32 = 1024;

/// What the last turns and commits say about the next one.
#[derive(Debug)]
pub(super) struct SyncPlace {
    /// Turns of few events that must still come.
    turns_left: u32,
    /// Counts short syncs on the WAL thread.
    back_off: BackOff,
    /// What the last commits took on average, wherever they ran.
    mean_ns: u64,
}

impl Default for SyncPlace {
    fn default() -> Self {
        let back_off = BackOff::new((SHORT_MIN, SHORT_MAX), SHORT_TO_TRUST);
        Self { turns_left: TURNS_MIN, back_off, mean_ns: 0 }
    }
}

impl SyncPlace {
    /// A turn has brought so many events and writes, and perhaps had work that earlier turns left.
    pub(super) fn note_turn(&mut self, (events, writes): (usize, usize), is_behind: bool) {
        let are_many = events > EVENTS_MAX + writes.min(WRITES_MAX);
        if is_behind || are_many {
            self.turns_left = TURNS_MIN;
        } else {
            self.turns_left = self.turns_left.saturating_sub(1);
        }
    }

    /// A commit on the loop took this long.
    pub(super) fn note_sync_here(&mut self, took_ns: u64) {
        if self.note_time(took_ns) {
            self.back_off.note_slow();
        } else {
            self.back_off.note_quick();
        }
    }

    /// A commit on the WAL thread took this long.
    pub(super) fn note_sync_away(&mut self, took_ns: u64) {
        if self.note_time(took_ns) {
            self.back_off.extend();
        } else {
            self.back_off.count_down();
        }
    }

    /// A commit took this long. Whether the loop should not wait for the next ones.
    fn note_time(&mut self, took_ns: u64) -> bool {
        // One that hangs is not remembered for longer than others.
        let counted_ns = took_ns.min(COMMIT_NS_MAX);
        self.mean_ns = (self.mean_ns * (MEAN_COMMITS - 1) + counted_ns) / MEAN_COMMITS;
        took_ns > COMMIT_NS_MAX || self.mean_ns > MEAN_NS_MAX
    }

    /// Whether the next commit runs on the loop.
    pub(super) fn is_loop(&self) -> bool {
        self.turns_left == 0 && self.back_off.is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_NS: u64 = 100_000;
    const SLOW_NS: u64 = COMMIT_NS_MAX + 1;

    /// How many turns of few events it takes until commits run on the loop.
    fn turns_until_loop(place: &mut SyncPlace) -> u32 {
        let mut turns = 0;
        while !place.is_loop() {
            place.note_turn((EVENTS_MAX, 0), false);
            turns += 1;
        }
        turns
    }

    /// How many short syncs on the WAL thread it takes until commits run on the loop.
    fn syncs_until_loop(place: &mut SyncPlace) -> u32 {
        let mut syncs = 0;
        while !place.is_loop() {
            place.note_sync_away(SHORT_NS);
            syncs += 1;
        }
        syncs
    }

    fn on_loop() -> SyncPlace {
        let mut place = SyncPlace::default();
        turns_until_loop(&mut place);
        place
    }

    #[test]
    fn many_events_send_commits_away_for_a_moment() {
        let mut place = SyncPlace::default();
        assert_eq!(turns_until_loop(&mut place), TURNS_MIN);
        place.note_turn((EVENTS_MAX + 1, 0), false);
        assert_eq!(turns_until_loop(&mut place), TURNS_MIN);
    }

    #[test]
    fn of_events_that_bring_writes_there_may_be_more() {
        let mut place = on_loop();
        place.note_turn((EVENTS_MAX + WRITES_MAX, WRITES_MAX), false);
        // Clients that pipeline bring many writes with few events.
        place.note_turn((EVENTS_MAX, 1_000), false);
        assert!(place.is_loop());
        place.note_turn((EVENTS_MAX + WRITES_MAX + 1, 1_000), false);
        assert!(!place.is_loop());
        let mut place = on_loop();
        place.note_turn((EVENTS_MAX + WRITES_MAX, WRITES_MAX - 1), false);
        assert!(!place.is_loop());
    }

    #[test]
    fn work_that_is_left_sends_commits_away() {
        let mut place = on_loop();
        place.note_turn((1, 0), true);
        assert!(!place.is_loop());
    }

    #[test]
    fn a_slow_commit_sends_them_away_until_some_were_short() {
        let mut place = on_loop();
        place.note_sync_here(SHORT_NS);
        assert!(place.is_loop());
        place.note_sync_here(SLOW_NS);
        place.note_sync_away(SHORT_NS);
        place.note_sync_away(SLOW_NS);
        assert_eq!(syncs_until_loop(&mut place), 2 * SHORT_MIN, "they count in a row");
    }

    #[test]
    fn one_commit_that_takes_a_little_longer_is_waited_for() {
        let mut place = on_loop();
        for _ in 0..100 {
            place.note_sync_here(COMMIT_NS_MAX);
            assert!(place.is_loop());
            (0..8).for_each(|_| place.note_sync_here(SHORT_NS));
        }
    }

    #[test]
    fn a_disk_that_takes_long_each_time_is_not_waited_for() {
        let mut place = on_loop();
        let commits = (1..).find(|_| {
            place.note_sync_here(2 * MEAN_NS_MAX);
            !place.is_loop()
        });
        assert!(commits < Some(10), "{commits:?}");
        (0..1000).for_each(|_| place.note_sync_away(2 * MEAN_NS_MAX));
        assert!(!place.is_loop());
        let syncs = syncs_until_loop(&mut place);
        assert!(syncs <= 2 * SHORT_MIN + 8, "the disk is quick again, {syncs} syncs later");
    }

    #[test]
    fn a_disk_that_is_often_slow_is_tried_ever_less() {
        let mut place = on_loop();
        let mut waits = Vec::new();
        for _ in 0..10 {
            place.note_sync_here(SLOW_NS);
            waits.push(syncs_until_loop(&mut place));
        }
        assert_eq!(waits, [8, 16, 32, 64, 128, 128, 128, 128, 128, 128]);
    }

    #[test]
    fn a_long_time_without_a_slow_commit_is_forgiven() {
        let mut place = on_loop();
        (0..3).for_each(|_| place.note_sync_here(SLOW_NS));
        syncs_until_loop(&mut place);
        (0..SHORT_TO_TRUST).for_each(|_| place.note_sync_here(SHORT_NS));
        place.note_sync_here(SLOW_NS);
        assert_eq!(syncs_until_loop(&mut place), 4 * SHORT_MIN);
    }
}
