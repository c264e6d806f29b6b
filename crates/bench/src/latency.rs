//! Latencies, collected and summed up.

use crate::report::Run;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest latency that differs from longer ones.
const HIGHEST_US: u64 = 600_000_000;

/// Latencies in microseconds, to three digits.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, HIGHEST_US, 3).expect("the bounds are constant"))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.max(1));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Takes all of `other` in.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    pub(crate) fn least_ms(&self) -> f64 {
        self.0.min() as f64 / 1000.0
    }

    pub(crate) fn mean_ms(&self) -> f64 {
        self.0.mean() / 1000.0
    }

    pub(crate) fn longest_ms(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }

    /// The latency that `share` of all did not exceed, in milliseconds.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1000.0
    }

    /// Adds the quantiles that the tables show.
    pub(crate) fn report(&self, of: &str, run: &mut Run) {
        if self.0.is_empty() {
            return;
        }
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            run.figure(format!("{of} {name}"), self.quantile_ms(share), "ms");
        }
        run.figure(format!("{of} longest"), self.longest_ms(), "ms");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut latencies = Latencies::new();
        for us in 1..=10_000 {
            latencies.record(Duration::from_micros(us));
        }
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted / 500.0;
        assert!(near(latencies.quantile_ms(0.5), 5.0), "{}", latencies.quantile_ms(0.5));
        assert!(near(latencies.quantile_ms(0.99), 9.9), "{}", latencies.quantile_ms(0.99));
        assert_eq!(latencies.count(), 10_000);
    }

    #[test]
    fn what_is_out_of_bounds_counts_as_the_bound() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(100_000));
        assert_eq!(latencies.count(), 2);
        assert!(latencies.quantile_ms(1.0) >= 600_000.0);
    }

    #[test]
    fn two_collections_are_one() {
        let [mut first, mut second] = [Latencies::new(), Latencies::new()];
        first.record(Duration::from_millis(1));
        second.record(Duration::from_millis(2));
        second.record(Duration::from_millis(6));
        first.add(&second);
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted / 500.0;
        let (least, mean, longest) = (first.least_ms(), first.mean_ms(), first.longest_ms());
        assert!(
            near(least, 1.0) && near(mean, 3.0) && near(longest, 6.0),
            "{least} {mean} {longest}"
        );
    }
}
