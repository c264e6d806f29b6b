//! How long the loop leaves something alone that has taken too long.
//!
//! Each time that it takes too long again the pause is twice as long. Many times in a row at which it was quick halve that.

/// What the last times say about the next one.
#[derive(Debug)]
pub(super) struct BackOff {
    /// What must still come before the pause is over.
    left: u32,
    /// The next pause.
    pause: u32,
    /// Times at which it was quick, since that changed.
    quick: u32,
    /// Pauses, at least and at most.
    bounds: (u32, u32),
    /// So many quick times in a row halve the next pause.
    trust: u32,
}

impl BackOff {
    pub(super) const fn new(bounds: (u32, u32), trust: u32) -> Self {
        Self { left: 0, pause: bounds.0, quick: 0, bounds, trust }
    }

    /// Whether there is no pause.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// One of those has come that the pause waits for.
    pub(super) fn count_down(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The present pause is as long again as the next one would be.
    pub(super) fn extend(&mut self) {
        self.left = self.left.max(self.pause);
    }

    /// It has taken too long.
    pub(super) fn note_slow(&mut self) {
        self.left = self.pause;
        self.pause = (self.pause * 2).min(self.bounds.1);
        self.quick = 0;
    }

    /// It was quick.
    pub(super) fn note_quick(&mut self) {
        self.quick += 1;
        if self.quick == self.trust {
            self.pause = (self.pause / 2).max(self.bounds.0);
            self.quick = 0;
        }
    }
}
