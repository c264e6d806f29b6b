//! Numbers as gauges.

use prometheus_client::metrics::gauge::ConstGauge;

/// A gauge of a number; what does not fit is the largest one.
pub(super) fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
