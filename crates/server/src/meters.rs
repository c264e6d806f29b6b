//! Counters, gauges and histograms that one thread writes and others read.
//!
//! Adding is a load and a store without a locked instruction. They are read at any time, each for itself:
//! two of them need not belong to the same moment.
//!
//! Refused: metric objects of a registry, because each of them is a locked add and a pointer of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only grows. One thread writes it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the one writing thread may call this: two would lose counts.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Shows a total that its one writer keeps elsewhere.
    pub fn set(&self, total: u64) {
        self.0.store(total, Relaxed);
    }

    /// The number so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that is what it is now. One thread writes it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the number.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// One more. Only the one writing thread may call this.
    pub fn up(&self) {
        self.set(self.get().saturating_add(1));
    }

    /// One less; stays at 0. Only the one writing thread may call this.
    pub fn down(&self) {
        self.set(self.get().saturating_sub(1));
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How often a duration fell into which range. One thread writes it.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; Self::BOUNDS_NS.len() + 1],
    sum_ns: Counter,
}

impl Histogram {
    /// Upper bounds of all ranges but the last, in nanoseconds: from well below the quickest sync
    /// of a disk to a stall that clients notice, each twice the one before.
    pub const BOUNDS_NS: [u64; 16] = {
        let mut bounds = [50_000; 16];
        let mut index = 1;
        while index < bounds.len() {
            bounds[index] = bounds[index - 1] * 2;
            index += 1;
        }
        bounds
    };

    /// Counts one duration. Only the one writing thread may call this.
    pub fn record_ns(&self, duration_ns: u64) {
        let range = Self::BOUNDS_NS.partition_point(|bound| *bound < duration_ns);
        self.counts[range].add(1);
        self.sum_ns.add(duration_ns);
    }

    /// Counts per range, not accumulated; the last is of durations above every bound.
    #[must_use]
    pub fn counts(&self) -> [u64; Self::BOUNDS_NS.len() + 1] {
        std::array::from_fn(|range| self.counts[range].get())
    }

    /// All durations together.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_range_that_holds_them() {
        let histogram = Histogram::default();
        histogram.record_ns(0);
        histogram.record_ns(50_000);
        histogram.record_ns(50_001);
        histogram.record_ns(u64::MAX / 2);
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[16]), (2, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 4);
    }

    #[test]
    fn a_gauge_never_wraps_below_zero() {
        let gauge = Gauge::default();
        gauge.down();
        gauge.up();
        assert_eq!(gauge.get(), 1);
    }
}
