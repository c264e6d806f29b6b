//! When a stream goes away by itself. PROTOCOL §5.1 (`Stream-TTL`, `Stream-Expires-At`).

use model::Timestamp;

/// A stream's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// Until it is deleted.
    #[default]
    Forever,
    /// Until it has not been read or written for `seconds` (any `u64`; sums saturate).
    Ttl {
        /// Length of the sliding window.
        seconds: u64,
    },
    /// Until this moment, whatever happens.
    ExpiresAt(Timestamp),
}

impl Lifetime {
    /// When a stream that was last used at `used_at` expires; `None` if it never does.
    #[must_use]
    pub fn deadline(self, used_at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Forever => None,
            Self::Ttl { seconds } => Some(used_at.plus_ms(seconds.saturating_mul(1000))),
            Self::ExpiresAt(at) => Some(at),
        }
    }

    /// The lifetime of a fork that asks for `self` of a source that has `source`.
    #[must_use]
    pub fn or_inherit(self, source: Self) -> Self {
        // PROTOCOL §4.2, the table of fork lifetimes: only "no expiry" inherits.
        if self == Self::Forever { source } else { self }
    }
}

/// A lifetime in 9 bytes at any place, so that a record has room for more in the same space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompactLifetime {
    kind: Kind,
    number: [u8; 8],
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Forever,
    Ttl,
    ExpiresAt,
}

impl CompactLifetime {
    pub(crate) fn get(self) -> Lifetime {
        let number = u64::from_ne_bytes(self.number);
        match self.kind {
            Kind::Forever => Lifetime::Forever,
            Kind::Ttl => Lifetime::Ttl { seconds: number },
            Kind::ExpiresAt => Lifetime::ExpiresAt(Timestamp::new(number)),
        }
    }
}

impl From<Lifetime> for CompactLifetime {
    fn from(lifetime: Lifetime) -> Self {
        let (kind, number) = match lifetime {
            Lifetime::Forever => (Kind::Forever, 0),
            Lifetime::Ttl { seconds } => (Kind::Ttl, seconds),
            Lifetime::ExpiresAt(at) => (Kind::ExpiresAt, at.get()),
        };
        Self { kind, number: number.to_ne_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_ttl_does_not_overflow() {
        let ttl = Lifetime::Ttl { seconds: u64::MAX };
        assert_eq!(ttl.deadline(Timestamp::new(7)), Some(Timestamp::new(u64::MAX)));
    }

    #[test]
    fn a_compact_lifetime_is_the_same() {
        let at = |ms| Lifetime::ExpiresAt(Timestamp::new(ms));
        let ttl = |seconds| Lifetime::Ttl { seconds };
        for lifetime in
            [Lifetime::Forever, ttl(0), ttl(u64::MAX), ttl(1 << 32), at(1), at(u64::MAX - 1)]
        {
            assert_eq!(CompactLifetime::from(lifetime).get(), lifetime);
        }
    }

    #[test]
    fn a_fork_inherits_only_when_it_asks_for_nothing() {
        let source = Lifetime::ExpiresAt(Timestamp::new(9));
        assert_eq!(Lifetime::Forever.or_inherit(source), source);
        let own = Lifetime::Ttl { seconds: 1 };
        assert_eq!(own.or_inherit(source), own);
    }
}
