//! How fast snapshots leave a shard.

use model::Monotonic;

/// Bytes of all snapshots that a shard sends in a second, unless it is set.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// What may be sent at once, in parts of a second.
const BURST_PART: u64 = 8;

/// A bucket that fills with time.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: u64,
    room: u64,
    filled: Monotonic,
}

impl Default for Pace {
    fn default() -> Self {
        Self { bytes_per_second: BYTES_PER_SECOND, room: 0, filled: Monotonic::new(0) }
    }
}

impl Pace {
    /// # Panics
    /// If nothing may be sent.
    pub(crate) fn set(&mut self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "a snapshot that is never sent");
        self.bytes_per_second = bytes_per_second;
    }

    /// Time has passed.
    pub(super) fn fill(&mut self, now: Monotonic) {
        let ms = now.ms_since(self.filled);
        if ms == 0 {
            return;
        }
        self.filled = now;
        let more = ms.saturating_mul(self.bytes_per_second) / 1000;
        let most = (self.bytes_per_second / BURST_PART).max(cluster::PIECE_BYTES_MAX as u64);
        self.room = self.room.saturating_add(more).min(most);
    }

    /// Whether so many bytes may be sent now. They are.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let room = self.room.checked_sub(bytes);
        self.room = room.unwrap_or(self.room);
        room.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_second_no_more_leaves_than_it_says() {
        let mut pace = Pace::default();
        pace.set(1_000_000);
        let mut sent = 0;
        for ms in 1..=10_000 {
            pace.fill(Monotonic::new(ms * 1_000_000));
            while pace.take(50_000) {
                sent += 50_000;
            }
        }
        assert!((9_900_000..=10_000_000).contains(&sent), "{sent}");
    }

    #[test]
    fn an_idle_shard_saves_little_up() {
        let mut pace = Pace::default();
        pace.fill(Monotonic::new(3_600_000_000_000));
        assert!(pace.take(8 << 20) && !pace.take(1));
    }
}
