//! How long a loop keeps everybody else waiting: the time of each turn, without waiting for sockets.
//!
//! # How
//! By the monotonic clock, which the loop reads anyway before it waits. So a turn is also long if other
//! threads have the processor meanwhile. Refused: the processor time of the thread, which leaves that out. Each
//! reading of it is a system call, so it would cost every turn one. A sync that runs on the loop is left out:
//! syncs are shown by themselves.

use model::Monotonic;

/// The turn that the loop is in.
#[derive(Debug, Default)]
pub(super) struct TurnLength {
    began: Option<Monotonic>,
    synced_ns: u64,
}

impl TurnLength {
    /// A turn begins.
    pub(super) fn begin(&mut self, now: Monotonic) {
        *self = Self { began: Some(now), synced_ns: 0 };
    }

    /// A sync ran on the loop.
    pub(super) fn note_sync(&mut self, took_ns: u64) {
        self.synced_ns += took_ns;
    }

    /// The turn has ended; its length in nanoseconds. `None` if none had begun.
    pub(super) fn end(&mut self, now: Monotonic) -> Option<u64> {
        let began = self.began.take()?;
        Some(now.get().saturating_sub(began.get()).saturating_sub(self.synced_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_as_long_as_what_it_does_besides_syncs() {
        let mut turn = TurnLength::default();
        assert_eq!(turn.end(Monotonic::new(5)), None);
        turn.begin(Monotonic::new(1_000));
        turn.note_sync(300);
        turn.note_sync(100);
        assert_eq!(turn.end(Monotonic::new(3_000)), Some(1_600));
        assert_eq!(turn.end(Monotonic::new(4_000)), None, "the wait for sockets is no turn");
        turn.begin(Monotonic::new(4_000));
        assert_eq!(turn.end(Monotonic::new(4_500)), Some(500));
    }
}
