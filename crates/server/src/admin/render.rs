//! The counters as OpenMetrics text.

use super::gauge::gauge;
use super::process::Reading;
use super::render_cluster;
use crate::meters::{Counter, Gauge, Histogram};
use crate::metrics::{NodeMetrics, ShardMetrics};
use node::DiskTrouble;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// All metrics of the process; every name starts with `thalweg_`.
pub(super) fn render(node: &Arc<NodeMetrics>, process: Reading) -> String {
    let mut registry = Registry::with_prefix("thalweg");
    registry.register_collector(Box::new(Snapshot { node: Arc::clone(node), process }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string succeeds");
    text
}

type ReadCounter = fn(&ShardMetrics) -> &Counter;
type ReadGauge = fn(&ShardMetrics) -> &Gauge;
type ReadHistogram = fn(&ShardMetrics) -> &Histogram;
type ReadFlag = fn(&ShardMetrics) -> bool;

/// Name (the format appends `_total`), meaning and field of each counter.
const COUNTERS: &[(&str, &str, ReadCounter)] = &[
    ("appends", "Appends acknowledged, without duplicates", |s| &s.appends),
    ("append_bytes", "Payload bytes of appends acknowledged", |s| &s.append_bytes),
    ("duplicates", "Appends that had been acknowledged before", |s| &s.duplicates),
    ("creates", "Streams created", |s| &s.creates),
    ("closes", "Streams closed", |s| &s.closes),
    ("deletes", "Streams deleted on request", |s| &s.deletes),
    ("retention_trims", "Beginnings of streams dropped because they need not be kept", |s| {
        &s.retention_trims
    }),
    ("reads", "Answers to reads", |s| &s.reads),
    ("read_bytes", "Payload bytes of answers to reads", |s| &s.read_bytes),
    ("rejected", "Requests refused because a limit was reached", |s| &s.rejected),
    ("denied", "Requests that their sender's credentials do not allow", |s| &s.denied),
    ("log_lines_lost", "Lines of access and audit log that found no room", |s| &s.log_lines_lost),
    ("connections_accepted", "Connections taken", |s| &s.connections_accepted),
    ("batches", "Group commits", |s| &s.batches),
    ("batch_bytes", "Bytes written by group commits", |s| &s.batch_bytes),
    ("batch_entries", "Entries in group commits", |s| &s.batch_entries),
    ("recent_hits", "Appends of the log that reads found in memory", |s| &s.recent_hits),
    ("recent_misses", "Appends of the log that reads had to fetch", |s| &s.recent_misses),
    ("recent_run_hits", "Long reads that found their bytes in one piece in memory", |s| {
        &s.recent_run_hits
    }),
    ("chunk_file_hits", "Reads that found their chunk file open", |s| &s.chunk_file_hits),
    ("chunk_file_misses", "Looks for an open chunk file that found none", |s| &s.chunk_file_misses),
    ("chunk_page_hits", "Pages of chunks that were found in memory", |s| &s.chunk_page_hits),
    ("chunk_page_misses", "Pages of chunks that were not in memory", |s| &s.chunk_page_misses),
    ("chunk_pages_damaged", "Damaged copies of pages that reads have met", |s| {
        &s.chunk_pages_damaged
    }),
    ("damaged_entries", "Damaged entries found", |s| &s.damaged),
    ("unreadable_blocks", "Of these, blocks of the log that cannot be read", |s| {
        &s.unreadable_blocks
    }),
];

/// Name, meaning and field of each gauge.
const GAUGES: &[(&str, &str, ReadGauge)] = &[
    ("tls_handshakes_open", "TLS handshakes in progress", |s| &s.handshakes_open),
    ("connections", "Connections open", |s| &s.connections),
    ("live_readers", "Long-polls and SSE answers waiting", |s| &s.live_readers),
    ("groups_catching_up", "Groups that lack some of what was committed at the start", |s| {
        &s.catching_up
    }),
    ("streams", "Streams that exist", |s| &s.streams),
    ("wal_bytes", "Size of the write-ahead log", |s| &s.wal_bytes),
    ("recent_bytes", "Recently committed bytes in memory", |s| &s.recent_bytes),
    ("chunks", "Chunk files", |s| &s.chunks),
    ("chunk_bytes", "Bytes of data in chunks", |s| &s.chunk_bytes),
    ("chunk_dead_bytes", "Of these, deleted data whose room has not returned", |s| {
        &s.chunk_dead_bytes
    }),
    ("chunks_damaged", "Chunk files that are left alone, for a part of them is damaged", |s| {
        &s.chunks_damaged
    }),
    ("chunk_files_open", "Chunk files that are open", |s| &s.chunk_files_open),
    ("chunk_page_bytes", "Pages of chunks in memory", |s| &s.chunk_page_bytes),
    ("body_bytes_in_flight", "Request bodies held in memory", |s| &s.body_bytes_in_flight),
    ("clock_ahead_ms", "Milliseconds by which the clock is ahead and not believed", |s| {
        &s.clock_ahead_ms
    }),
    ("disk_needed_bytes", "What refused work needs, 0 if none is", |s| &s.disk_needed_bytes),
    ("disk_free_bytes", "What was free when work was refused", |s| &s.disk_free_bytes),
];

/// Name, meaning and getter of each state, 1 if it holds.
const FLAGS: &[(&str, &str, ReadFlag)] = &[
    ("recovering", "1 while the shard recovers", ShardMetrics::is_recovering),
    ("poisoned", "1 once a write or sync failed", ShardMetrics::is_poisoned),
    ("poisoned_by_full_disk", "1 once a write of the log found no space", |s| {
        s.is_poisoned_by(DiskTrouble::Full)
    }),
    ("poisoned_by_quota", "1 once a write of the log exceeded a quota", |s| {
        s.is_poisoned_by(DiskTrouble::QuotaUsedUp)
    }),
    ("disk_full", "1 while appends fail for want of space", |s| s.has_trouble(DiskTrouble::Full)),
    ("disk_quota_used_up", "1 while appends fail because a quota is used up", |s| {
        s.has_trouble(DiskTrouble::QuotaUsedUp)
    }),
    ("out_of_descriptors", "1 while no file can be opened", |s| {
        s.has_trouble(DiskTrouble::NoDescriptors)
    }),
    ("disk_failing", "1 while other work on the disk fails", |s| {
        s.has_trouble(DiskTrouble::Failing)
    }),
];

/// Name, meaning and field of each histogram of durations.
const HISTOGRAMS: &[(&str, &str, ReadHistogram)] = &[
    ("sync_seconds", "Duration of each sync of the write-ahead log", |s| &s.sync_ns),
    ("turn_seconds", "Length of each turn of the loop, in which it serves nobody else", |s| {
        &s.turn_ns
    }),
];

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// How TLS handshakes end.
const HANDSHAKES: [&str; 5] = ["done", "failed", "timed_out", "evicted", "plain"];

type ReadCounters = fn(&ShardMetrics) -> &[Counter];

/// Name, meaning, label, its values and field of each counter with a label.
type Labelled = (&'static str, &'static str, &'static str, &'static [&'static str], ReadCounters);
const LABELLED: &[Labelled] = &[
    ("answers", "Answers by class of status", "class", &CLASSES, |s| &s.answers),
    ("tls_handshakes", "TLS handshakes by how they ended", "result", &HANDSHAKES, |s| {
        &s.handshakes
    }),
];

#[derive(Debug)]
struct Snapshot {
    node: Arc<NodeMetrics>,
    process: Reading,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_counters(&mut encoder)?;
        self.encode_gauges(&mut encoder)?;
        self.encode_silences(&mut encoder)?;
        self.encode_labelled(&mut encoder)?;
        self.encode_certificates(&mut encoder)?;
        self.encode_histograms(&mut encoder)?;
        if let Some(peers) = self.node.peers() {
            let now = self.node.clock().now_monotonic();
            render_cluster::encode(&mut encoder, peers, now)?;
        }
        self.encode_process(&mut encoder)
    }
}

impl Snapshot {
    fn shards(&self) -> impl Iterator<Item = ([(&'static str, String); 1], &ShardMetrics)> {
        let shards = self.node.shards().iter().enumerate();
        shards.map(|(index, shard)| ([("shard", index.to_string())], &**shard))
    }

    fn encode_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, read) in COUNTERS {
            let counter = ConstCounter::new(0_u64);
            let mut metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            for (labels, shard) in self.shards() {
                ConstCounter::new(read(shard).get()).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, read) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, shard) in self.shards() {
                gauge(read(shard).get()).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in FLAGS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, shard) in self.shards() {
                gauge(read(shard).into()).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_silences(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whole seconds since the loop of the shard last ran; /healthz fails beyond 60";
        let mut metric =
            encoder.encode_descriptor("loop_silent_seconds", help, None, MetricType::Gauge)?;
        for (labels, shard) in self.shards() {
            gauge(self.node.silent_ms(shard) / 1000).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_labelled(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, label, values, read) in LABELLED {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, shard) in self.shards() {
                let [of_shard] = labels;
                for (value, counter) in values.iter().zip(read(shard)) {
                    let labels = [of_shard.clone(), (label, (*value).to_owned())];
                    ConstCounter::new(counter.get()).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn encode_certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let node = &self.node;
        let unwritten = node.log_lines_unwritten.get() + node.log_lines_full.get();
        let counters = [
            ("reloads", "Reloads that were taken up", node.reloads.get()),
            ("reloads_failed", "Reloads that were refused", node.reloads_failed.get()),
            (
                "log_lines_unwritten",
                "Lines of access and audit log that could not be written",
                unwritten,
            ),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        let (name, help) = ("certificate_expires_seconds", "When the first certificate expires");
        let expires_s = gauge(self.node.certificate_expires_s.get());
        expires_s.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    fn encode_histograms(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, read) in HISTOGRAMS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (labels, shard) in self.shards() {
                let histogram = read(shard);
                let buckets = buckets(histogram);
                let count = buckets.iter().map(|(_, count)| count).sum();
                metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                    seconds(histogram.sum_ns()),
                    count,
                    &buckets,
                    None,
                )?;
            }
        }
        Ok(())
    }

    fn encode_process(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let readings = [
            ("process_resident_bytes", "Memory in use", self.process.resident_bytes),
            ("process_open_fds", "Open file descriptors", self.process.open_fds),
            ("process_uptime_seconds", "Time since the start", Some(self.process.uptime.as_secs())),
        ];
        for (name, help, value) in readings {
            let Some(value) = value else { continue };
            gauge(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)?;
        }
        let help = "1, with the version as label";
        let mut metric = encoder.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        gauge(1).encode(metric.encode_family(&labels)?)
    }
}

/// Upper bounds in seconds, each with the count up to it.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let bounds = Histogram::BOUNDS_NS.iter().map(|bound| seconds(*bound));
    bounds.chain([f64::INFINITY]).zip(histogram.counts()).collect()
}

/// Nanoseconds as seconds. One division, so that a bound of 1.6384 s is written as that.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::metrics_of;
    use log::DamageKind;
    use std::time::Duration;

    fn rendered(change: impl FnOnce(&ShardMetrics)) -> String {
        let node = metrics_of(2);
        change(&node.shards()[1]);
        let process =
            Reading { resident_bytes: Some(4096), open_fds: None, uptime: Duration::from_secs(7) };
        render(&node, process)
    }

    fn has_line(text: &str, wanted: &str) {
        assert!(text.lines().any(|line| line == wanted), "no line `{wanted}` in\n{text}");
    }

    #[test]
    fn counters_carry_their_shard() {
        let text = rendered(|shard| shard.appends.add(3));
        has_line(&text, "thalweg_appends_total{shard=\"0\"} 0");
        has_line(&text, "thalweg_appends_total{shard=\"1\"} 3");
    }

    #[test]
    fn answers_carry_their_class() {
        let text = rendered(|shard| shard.answers[3].add(1));
        has_line(&text, "thalweg_answers_total{shard=\"1\",class=\"4xx\"} 1");
    }

    #[test]
    fn a_poisoned_shard_can_be_alerted_on() {
        let text = rendered(|shard| shard.set_poisoned(DiskTrouble::Full, "ENOSPC"));
        has_line(&text, "thalweg_poisoned{shard=\"1\"} 1");
        has_line(&text, "thalweg_poisoned_by_full_disk{shard=\"1\"} 1");
        has_line(&text, "thalweg_poisoned_by_quota{shard=\"1\"} 0");
        has_line(&text, "thalweg_poisoned{shard=\"0\"} 0");
    }

    #[test]
    fn unreadable_blocks_are_counted_among_the_damage() {
        let text = rendered(|shard| {
            shard.note_damage(DamageKind::UnreadableBlock);
            shard.note_damage(DamageKind::EntryData);
        });
        has_line(&text, "thalweg_damaged_entries_total{shard=\"1\"} 2");
        has_line(&text, "thalweg_unreadable_blocks_total{shard=\"1\"} 1");
    }

    #[test]
    fn what_a_full_disk_refuses_is_shown_in_bytes() {
        let text = rendered(|shard| {
            shard.disk_needed_bytes.set(70);
            shard.disk_free_bytes.set(7);
        });
        has_line(&text, "thalweg_disk_needed_bytes{shard=\"1\"} 70");
        has_line(&text, "thalweg_disk_free_bytes{shard=\"1\"} 7");
        has_line(&text, "thalweg_disk_needed_bytes{shard=\"0\"} 0");
    }

    #[test]
    fn sync_durations_are_a_histogram_in_seconds() {
        let text = rendered(|shard| shard.sync_ns.record_ns(60_000));
        has_line(&text, "thalweg_sync_seconds_count{shard=\"1\"} 1");
        has_line(&text, "thalweg_sync_seconds_bucket{le=\"0.00005\",shard=\"1\"} 0");
        has_line(&text, "thalweg_sync_seconds_bucket{le=\"0.0001\",shard=\"1\"} 1");
        has_line(&text, "thalweg_sync_seconds_bucket{le=\"+Inf\",shard=\"1\"} 1");
    }

    #[test]
    fn long_turns_can_be_alerted_on() {
        let text = rendered(|shard| shard.turn_ns.record_ns(6_000_000));
        has_line(&text, "thalweg_turn_seconds_bucket{le=\"0.0032\",shard=\"1\"} 0");
        has_line(&text, "thalweg_turn_seconds_bucket{le=\"0.0064\",shard=\"1\"} 1");
        has_line(&text, "thalweg_turn_seconds_count{shard=\"0\"} 0");
    }

    #[test]
    fn a_reading_that_the_system_withholds_is_left_out() {
        let text = rendered(|_| {});
        has_line(&text, "thalweg_process_resident_bytes 4096");
        assert!(!text.contains("open_fds"));
        assert!(text.ends_with("# EOF\n"));
    }
}
