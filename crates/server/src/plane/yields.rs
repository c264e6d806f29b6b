//! When the loop of a cluster's node lets other threads run before it looks for events.
//!
//! # Why
//! Nodes and clients that share processors wait for each other there. A loop that looks at once finds what one of them has said,
//! and answers with a turn, a sync and a frame to each peer. After a yield it finds what all of them have said, and
//! answers once. Where no thread waits for the processor, a yield is one quick system call.
//!
//! Beside a thread that computes, a yield loses a time slice. So after one that took long there is none for some turns: 16 at
//! first. Each long one doubles that number, and 64 short ones halve it.

use super::back_off::BackOff;

/// A yield that takes longer has lost a time slice. Between nodes on one machine it takes a quarter of this.
const YIELD_NS_MAX: u64 = 1_000_000;

/// Turns without a yield after a long one, at least and at most.
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;

/// Short yields after which pauses become shorter.
const SHORT_TO_TRUST: u32 = 64;

/// What the last yields say about the next one.
#[derive(Debug)]
pub(super) struct Yields {
    /// Counts turns without a yield.
    back_off: BackOff,
}

impl Default for Yields {
    fn default() -> Self {
        Self { back_off: BackOff::new((PAUSE_MIN, PAUSE_MAX), SHORT_TO_TRUST) }
    }
}

impl Yields {
    /// Whether the loop yields after this turn.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.back_off.is_over();
        self.back_off.count_down();
        is_due
    }

    /// Whether the next turn ends with one, and the last one did.
    pub(super) fn are_on(&self) -> bool {
        self.back_off.is_over()
    }

    /// A yield took this long.
    pub(super) fn note(&mut self, took_ns: u64) {
        if took_ns > YIELD_NS_MAX {
            self.back_off.note_slow();
        } else {
            self.back_off.note_quick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns until the next yield, after one that took long.
    fn pause_after_long(yields: &mut Yields) -> u32 {
        assert!(yields.is_due());
        yields.note(YIELD_NS_MAX + 1);
        let mut turns = 0;
        while !yields.is_due() {
            turns += 1;
        }
        turns
    }

    #[test]
    fn yields_that_lose_time_become_rare() {
        let mut yields = Yields::default();
        let pauses: Vec<u32> = (0..10).map(|_| pause_after_long(&mut yields)).collect();
        assert_eq!(pauses, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn short_ones_come_in_every_turn_and_make_up_for_long_ones() {
        let mut yields = Yields::default();
        for pause in [16, 32, 64] {
            assert_eq!(pause_after_long(&mut yields), pause);
        }
        for _ in 0..SHORT_TO_TRUST {
            assert!(yields.is_due());
            yields.note(YIELD_NS_MAX);
        }
        assert_eq!(pause_after_long(&mut yields), 4 * PAUSE_MIN);
    }
}
