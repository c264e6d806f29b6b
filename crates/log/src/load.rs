//! Whether so much is written to the log that merges and some seals should wait.
//!
//! # Why
//! Commits and merges write to the same disk. A merge that saves no space can be made at any time. Beside commits of 100 KB merges
//! added half to their p50 (`docs/adr/0120-bursts-go-before-what-can-wait.md`).
//!
//! # Driving it
//! No clock in here: the owner of the log calls [`Load::tick`] about every 100 ms. Where nobody does, no merge waits.

/// Ticks with little to write, in a row, until the log is quiet.
const QUIET_TICKS: u32 = 10;

/// Of the bytes that are sealed into one chunk, this part in one tick is much.
const MUCH_PART: u64 = 8;

/// So much in one tick is a flood: 80 MB/s.
const FLOOD_BYTES: u64 = 8 << 20;

/// What was written lately.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Bytes of all batches at the last tick.
    bytes_then: u64,
    /// Ticks with little to write that must still come.
    ticks_left: u32,
    /// Since the log was quiet, much has come to be sealed.
    is_lasting: bool,
    /// The last tick brought so much that the system's cache would not keep it for long.
    pub(crate) is_flood: bool,
}

impl Load {
    /// All batches have had `bytes` by now. Whether the log has just become quiet.
    pub(crate) fn tick(&mut self, bytes: u64, seal_bytes: u64) -> bool {
        let was_heavy = self.is_heavy();
        let written = bytes - std::mem::replace(&mut self.bytes_then, bytes);
        let is_much = written * MUCH_PART >= seal_bytes;
        self.is_flood = written >= FLOOD_BYTES;
        self.ticks_left = if is_much { QUIET_TICKS } else { self.ticks_left.saturating_sub(1) };
        self.is_lasting &= self.is_heavy();
        was_heavy && !self.is_heavy()
    }

    /// There is so much to seal that it should not become more.
    pub(crate) fn note_backlog(&mut self) {
        self.is_lasting = self.is_heavy();
    }

    /// Whether much is written, but not yet for long.
    pub(crate) fn is_burst(&self) -> bool {
        self.is_heavy() && !self.is_lasting
    }

    pub(crate) fn is_heavy(&self) -> bool {
        self.ticks_left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_quiet_a_second_after_it_had_much_to_write() {
        let (mut load, seal_bytes) = (Load::default(), 800);
        assert!(!load.tick(99, seal_bytes) && !load.is_heavy(), "that was little");
        assert!(!load.tick(199, seal_bytes) && load.is_heavy());
        for tick in 1..QUIET_TICKS {
            assert!(!load.tick(199 + u64::from(tick), seal_bytes) && load.is_heavy());
        }
        assert!(load.is_burst());
        load.note_backlog();
        assert!(load.is_heavy() && !load.is_burst());
        assert!(load.tick(250, seal_bytes), "the last one says it");
        assert!(!load.is_heavy() && !load.tick(250, seal_bytes), "and none after it");
        load.note_backlog();
        assert!(!load.tick(350, seal_bytes) && load.is_burst(), "that was before it");
    }

    #[test]
    fn much_in_one_tick_is_a_flood_until_the_next() {
        let (mut load, mut bytes) = (Load::default(), 0);
        for (written, is_flood) in [(FLOOD_BYTES - 1, false), (FLOOD_BYTES, true), (800, false)] {
            bytes += written;
            load.tick(bytes, 800);
            assert_eq!(load.is_flood, is_flood, "{written}");
        }
    }
}
