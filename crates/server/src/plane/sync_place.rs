//! Where the next commit runs: on the WAL thread, or on the loop's own.
//!
//! A commit on the WAL thread is two wakes, which on a fast disk take as long as the sync. They pay when the
//! loop has enough to do meanwhile. With a few clients it does not. Requests that arrive during the sync wait
//! in the sockets no longer than for their turn, and become one batch. So commits run on the loop once turns
//! have had few events for a while and syncs are short. They move to the WAL thread with the first turn that
//! has more events, or work left of an earlier turn.
//!
//! A write that arrives during the sync would also have waited for the WAL thread. A read that arrives then
//! waits for one short sync.

/// Events of a turn that are few.
const EVENTS_MAX: usize = 16;

/// Turns of few events, in a row, before commits run on the loop.
const TURNS_MIN: u32 = 16;

/// A commit that takes longer is not waited for: its disk is slow, or it is large.
const COMMIT_NS_MAX: u64 = 1_000_000;

/// Turns before it is tried again after such a commit.
const TURNS_AFTER_SLOW: u32 = 4096;

/// What the last turns and commits say about the next one.
#[derive(Debug)]
pub(super) struct SyncPlace {
    /// Turns of few events that must still come.
    turns_left: u32,
}

impl Default for SyncPlace {
    fn default() -> Self {
        Self { turns_left: TURNS_MIN }
    }
}

impl SyncPlace {
    /// A turn brings this many events, and perhaps work that earlier turns left.
    pub(super) fn note_turn(&mut self, events: usize, is_behind: bool) {
        if is_behind || events > EVENTS_MAX {
            self.turns_left = self.turns_left.max(TURNS_MIN);
        } else {
            self.turns_left = self.turns_left.saturating_sub(1);
        }
    }

    /// A commit took this long, on either thread.
    pub(super) fn note_sync(&mut self, took_ns: u64) {
        if took_ns > COMMIT_NS_MAX {
            self.turns_left = TURNS_AFTER_SLOW;
        }
    }

    /// Whether the next commit runs on the loop.
    pub(super) fn is_loop(&self) -> bool {
        self.turns_left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many turns of few events it takes until commits run on the loop.
    fn turns_until_loop(place: &mut SyncPlace) -> u32 {
        let mut turns = 0;
        while !place.is_loop() {
            place.note_turn(EVENTS_MAX, false);
            turns += 1;
        }
        turns
    }

    #[test]
    fn many_events_send_commits_away_for_a_moment() {
        let mut place = SyncPlace::default();
        assert_eq!(turns_until_loop(&mut place), TURNS_MIN);
        place.note_turn(EVENTS_MAX + 1, false);
        assert_eq!(turns_until_loop(&mut place), TURNS_MIN);
    }

    #[test]
    fn work_that_is_left_sends_commits_away() {
        let mut place = SyncPlace::default();
        turns_until_loop(&mut place);
        place.note_turn(1, true);
        assert!(!place.is_loop());
    }

    #[test]
    fn a_slow_commit_sends_them_away_for_long() {
        let mut place = SyncPlace::default();
        turns_until_loop(&mut place);
        place.note_sync(COMMIT_NS_MAX);
        assert!(place.is_loop());
        place.note_sync(COMMIT_NS_MAX + 1);
        place.note_turn(EVENTS_MAX + 1, false);
        assert_eq!(turns_until_loop(&mut place), TURNS_AFTER_SLOW);
    }
}
