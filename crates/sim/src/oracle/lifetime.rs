//! When a stream with a lifetime may be gone, and when it must be.

use crate::clock::WallRange;

/// What is known of the use of one stream with a lifetime. Times are wall-clock milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lifetimes {
    /// Length of the sliding window, or the fixed end.
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) expires_at: u64,
    /// The last use was not before this.
    used_from: u64,
    /// The last use was not after this.
    used_to: u64,
}

/// How much later than promised a stream may expire. A restart makes up for uses that the log had not
/// recorded yet. That is an eighth of the window, at least one second and at most one minute.
fn slack_ms(ttl_ms: u64) -> u64 {
    2 * (ttl_ms / 8).clamp(1000, 60_000)
}

impl Lifetimes {
    pub(crate) fn sliding(ttl_ms: u64, created: WallRange) -> Self {
        // Nothing is promised before the creation is answered.
        let (used_from, used_to) = (0, created.high);
        Self { ttl_ms: Some(ttl_ms), expires_at: 0, used_from, used_to }
    }

    pub(crate) fn fixed(expires_at: u64) -> Self {
        Self { ttl_ms: None, expires_at, used_from: 0, used_to: 0 }
    }

    /// An acknowledged use at some moment of `when`.
    pub(crate) fn used(&mut self, when: WallRange) {
        self.used_from = self.used_from.max(when.low);
        self.used_to = self.used_to.max(when.high);
    }

    /// A use that may have happened at some moment of `when`.
    pub(crate) fn perhaps_used(&mut self, when: WallRange) {
        self.used_to = self.used_to.max(when.high);
    }

    /// Whether the stream may be gone at some moment of `when`.
    pub(crate) fn may_be_gone(&self, when: WallRange) -> bool {
        let deadline = self.ttl_ms.map_or(self.expires_at, |ttl_ms| self.used_from + ttl_ms);
        when.high >= deadline
    }

    /// Whether the stream must be gone at all moments of `when`.
    pub(crate) fn must_be_gone(&self, when: WallRange) -> bool {
        let deadline = match self.ttl_ms {
            Some(ttl_ms) => self.used_to + ttl_ms + slack_ms(ttl_ms),
            None => self.expires_at,
        };
        when.low > deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_promised_from_the_earliest_and_bounded_by_the_latest_use() {
        let at = |low, high| WallRange { low, high };
        let mut life = Lifetimes::sliding(8_000, at(100, 200));
        life.used(at(1_000, 1_500));
        assert!(!life.may_be_gone(at(2_000, 8_999)));
        assert!(life.may_be_gone(at(2_000, 9_000)));
        assert!(!life.must_be_gone(at(11_500, 20_000)));
        assert!(life.must_be_gone(at(11_501, 20_000)));
    }
}
