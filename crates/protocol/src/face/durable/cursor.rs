//! `Stream-Cursor`: the number of the current 20-second interval. Caches on the way see a new URL in
//! each interval. PROTOCOL §10.1.

use model::Timestamp;

/// Length of an interval.
pub const INTERVAL_MS: u64 = 20_000;

/// 2024-10-09T00:00:00Z, where interval 0 begins.
pub const EPOCH_MS: u64 = 1_728_432_000_000;

/// Largest number that is believed to be a cursor: the interval at the end of the year 9999. A
/// larger one is treated as if none had been sent.
pub const CURSOR_MAX: u64 = 12_583_000_000;

/// The longest jitter, 3600 s, in intervals.
const JITTER_INTERVALS_MAX: u64 = 180;

/// The cursor of everybody who sent none, or an older one: the same for all readers.
#[must_use]
pub fn current(now: Timestamp) -> u64 {
    now.get().saturating_sub(EPOCH_MS) / INTERVAL_MS
}

/// The cursor for a client that sent `client`: greater than its own. `random` is any random number.
#[must_use]
pub fn next(now: Timestamp, client: Option<u64>, random: u64) -> u64 {
    let current = current(now);
    match client {
        // PROTOCOL §10.1, "Monotonic Progression": 1 to 3600 s of jitter, at least one interval.
        Some(sent) if sent >= current && sent <= CURSOR_MAX => {
            sent + 1 + random % JITTER_INTERVALS_MAX
        }
        _ => current,
    }
}

/// Reads a client's cursor; `None` if it is not one of ours. It is opaque, so that is no error.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|cursor| is_number && *cursor <= CURSOR_MAX + 2 * JITTER_INTERVALS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::new(EPOCH_MS + 1_000 * INTERVAL_MS + 7);

    #[test]
    fn a_client_without_a_cursor_gets_the_current_interval() {
        assert_eq!(next(NOW, None, 5), 1_000);
        assert_eq!(next(NOW, Some(999), 5), 1_000);
    }

    #[test]
    fn all_readers_of_an_interval_share_a_cursor() {
        assert_eq!(next(NOW, None, 1), next(NOW, Some(4), 2));
    }

    #[test]
    fn a_client_that_is_not_behind_gets_a_greater_one() {
        for random in [0, 1, 179, 180, u64::MAX] {
            for sent in [1_000, 1_001, CURSOR_MAX] {
                let cursor = next(NOW, Some(sent), random);
                assert!(cursor > sent && cursor <= sent + 180);
            }
        }
    }

    #[test]
    fn nonsense_counts_as_no_cursor() {
        assert_eq!(next(NOW, Some(u64::MAX), 1), 1_000);
        for text in ["", "-1", "+1", "1.0", "abc", "99999999999999999999"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("1050"), Some(1050));
        assert_eq!(current(Timestamp::new(0)), 0);
    }
}
