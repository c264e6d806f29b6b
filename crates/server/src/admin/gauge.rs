//! Numbers as gauges.

use prometheus_client::metrics::gauge::ConstGauge;

/// A gauge of a number. Gauges of the format are signed; no number of ours comes near the difference.
pub(super) fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
