//! What a shard shows of itself to the metrics and the log.

use super::{handshakes::HandshakeCounts, shard::Shard};
use crate::{cluster::REPORT_MS, metrics::DiskRefusal};
use ::cluster::{NodeNumber, Section};
use log::ChunkStats;
use node::{DiskTrouble, ToPeer};
use std::sync::Arc;

impl Shard {
    /// Shows the state of the shard to the metrics and the log.
    pub(super) fn report(&mut self) {
        self.metrics.note_alive(self.now.monotonic);
        let stats = self.core.stats();
        self.metrics.streams.set(stats.stream_count);
        let log = self.core.log().stats();
        self.metrics.wal_bytes.set(log.wal_bytes);
        let trims = self.core.retention_trims();
        self.metrics.retention_trims.add(trims - self.metrics.retention_trims.get());
        self.metrics.recent_bytes.set(log.recent.held_bytes);
        self.metrics.recent_hits.add(log.recent.hits - self.metrics.recent_hits.get());
        self.metrics.recent_misses.add(log.recent.misses - self.metrics.recent_misses.get());
        self.metrics.recent_run_hits.add(log.recent.run_hits - self.metrics.recent_run_hits.get());
        self.metrics.batch_bytes.add(log.batch_bytes - self.metrics.batch_bytes.get());
        self.metrics.batch_entries.add(log.entries - self.metrics.batch_entries.get());
        self.metrics.chunks.set(log.chunks);
        self.metrics.chunk_bytes.set(log.chunk_bytes);
        self.metrics.chunk_dead_bytes.set(log.dead_bytes);
        self.metrics.chunks_damaged.set(log.damaged_chunks);
        if self.id.get() == 0 {
            // One number for all shards: a sum over them must not count it twice.
            let in_flight = self.shared.admission.body_bytes();
            self.metrics.body_bytes_in_flight.set(in_flight as u64);
            self.report_chunk_cache(log.chunk_cache);
        }
        for damage in self.core.take_damages() {
            self.metrics.note_damage(damage.kind);
            tracing::error!(shard = self.id.get(), %damage, "stored data is damaged");
        }
        for damage in self.core.take_read_damages() {
            self.metrics.damaged.add(1);
            let node::ReadDamage { key, file, position } = damage;
            tracing::error!(
                shard = self.id.get(),
                group = key.group.get(),
                stream = key.stream.get(),
                file,
                position,
                "stored data is damaged: reads of it fail, the rest is served"
            );
        }
        if let Some(error) = self.core.take_merge_refusal() {
            tracing::warn!(
                shard = self.id.get(),
                %error,
                "no room to merge chunks: dead data keeps its space until there is"
            );
        }
        if self.metrics.catching_up.get() > 0 {
            self.metrics.catching_up.set(self.core.catching_up() as u64);
        }
        self.report_doors();
        self.report_disk();
        self.report_clock();
        self.report_poison();
    }

    /// Shows what this shard can tell of its copies. The first one tells all other nodes.
    pub(super) fn report_copies(&mut self) {
        let now = self.now.monotonic;
        let Some(links) = self.links.as_mut().filter(|_| now >= self.next_report) else { return };
        self.next_report = now.plus_ms(REPORT_MS);
        // A node alone has nothing to tell.
        let Some(report) = self.core.report() else { return };
        let peers = Arc::clone(links.peers());
        peers.board().show(self.id, report, now);
        if self.id.get() > 0 {
            return;
        }
        let payload = peers.board().own();
        for to in peers.others() {
            let section = Section::Report { payload: payload.clone() };
            links.push(ToPeer { to, section }, self.now);
        }
    }

    /// Another node has reported its copies.
    pub(super) fn hear_report(&self, from: NodeNumber, payload: &[u8]) {
        if let Some(links) = &self.links {
            links.peers().board().hear(from, payload, self.now.monotonic);
        }
    }

    fn report_doors(&self) {
        let handshakes = &self.doors.handshakes;
        self.metrics.handshakes_open.set(handshakes.count() as u64);
        let HandshakeCounts { done, failed, timed_out, evicted, plain } = handshakes.counts;
        for (shown, count) in
            self.metrics.handshakes.iter().zip([done, failed, timed_out, evicted, plain])
        {
            shown.set(count);
        }
    }

    /// Shows that a write or sync has failed, and logs it once.
    fn report_poison(&self) {
        let (Some(error), Some(trouble)) = (self.core.poison(), self.core.poison_trouble()) else {
            return;
        };
        if self.metrics.is_poisoned() {
            return;
        }
        self.metrics.set_poisoned(trouble, error);
        let why = match trouble {
            DiskTrouble::Full => "a write of the log found no space",
            DiskTrouble::QuotaUsedUp => "a write of the log exceeded a quota",
            DiskTrouble::NoDescriptors | DiskTrouble::Failing => "a write or sync failed",
        };
        let shard = self.id.get();
        tracing::error!(
            shard,
            error,
            "{why}: this shard takes no writes until the server is restarted"
        );
    }

    /// Shows whether the wall clock is believed, logs it when that changes, and takes an operator's word.
    fn report_clock(&mut self) {
        let shard = self.id.get();
        if self.metrics.take_clock_confirmation() {
            self.core.confirm_clock(self.now);
            tracing::info!(shard, "an operator has confirmed the clock");
        }
        let (was, ahead_ms) = (self.metrics.clock_ahead_ms.get(), self.core.clock_ahead_ms());
        self.metrics.clock_ahead_ms.set(ahead_ms);
        match (was, ahead_ms) {
            (0, 1..) => tracing::error!(
                shard,
                ahead_ms,
                "the clock has jumped ahead, or the server was down for long: nothing expires until the clock is \
                 set right or confirmed (PUT /clock/confirm at admin_listen)"
            ),
            (1.., 0) => tracing::info!(shard, "the clock is believed again"),
            _ => {}
        }
    }

    /// Shows whether the disk refuses data, and logs it when that changes.
    fn report_disk(&self) {
        let (needed_bytes, free_bytes) = self.core.disk_room().unwrap_or_default();
        self.metrics.disk_needed_bytes.set(needed_bytes);
        self.metrics.disk_free_bytes.set(free_bytes);
        let refusal = self.core.disk_trouble();
        let shown =
            refusal.map(|(trouble, error)| DiskRefusal { trouble, error: error.to_owned() });
        if !self.metrics.set_disk_refusal(shown) {
            return;
        }
        let shard = self.id.get();
        let Some((trouble, error)) = refusal else {
            return tracing::info!(shard, "the disk takes data again");
        };
        match trouble {
            DiskTrouble::Full => tracing::error!(shard, error, "the disk refuses data: it is full"),
            DiskTrouble::QuotaUsedUp => {
                tracing::error!(shard, error, "the disk refuses data: the quota is used up");
            }
            DiskTrouble::NoDescriptors => {
                tracing::error!(
                    shard,
                    error,
                    "no file can be opened: the limit of descriptors is reached"
                );
            }
            DiskTrouble::Failing => {
                tracing::error!(shard, error, "the disk refuses data: it fails")
            }
        }
    }

    fn report_chunk_cache(&self, stats: ChunkStats) {
        self.metrics.chunk_files_open.set(stats.open_files);
        self.metrics.chunk_page_bytes.set(stats.page_bytes);
        self.metrics.chunk_file_hits.set(stats.file_hits);
        self.metrics.chunk_file_misses.set(stats.file_misses);
        self.metrics.chunk_page_hits.set(stats.page_hits);
        self.metrics.chunk_page_misses.set(stats.page_misses);
        self.metrics.chunk_pages_damaged.set(stats.damaged_pages);
    }
}
