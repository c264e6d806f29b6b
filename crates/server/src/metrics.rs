//! What a shard counts while it works, and what the admin server reads of it.
//!
//! Each shard has one [`ShardMetrics`], shared with the admin thread alone. Its numbers are
//! [`crate::meters`], which only the shard's loop writes.
//! State that stops a shard from being ready (recovering, poisoned, disk full) is kept here too,
//! because `/readyz` is where it is seen.

use crate::cluster::Peers;
use crate::meters::{Counter, Gauge, Histogram};
use env::Clock;
use log::DamageKind;
use model::{Monotonic, Timestamp};
use node::DiskTrouble;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A loop that has not run for longer than this is stuck. It reports that it runs every 100 ms, but a sync
/// on its thread may wait for the disk. Linux gives a command of an NVMe or SCSI disk 30 s, and then
/// repeats it.
pub const SILENT_MS_MAX: u64 = 60_000;

/// Why a shard, or the whole server, takes no requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReady {
    /// Checkpoints and the write-ahead log are still being read.
    Recovering,
    /// So many groups have not applied yet what was committed at the start, or know nobody who leads them.
    CatchingUp(u64),
    /// A write or sync failed; nothing is acknowledged until a restart.
    Poisoned(DiskRefusal),
    /// The disk refuses data; reads continue.
    Disk(DiskRefusal),
    /// The process was told to end.
    ShuttingDown,
}

/// The disk refuses data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRefusal {
    /// Why.
    pub trouble: DiskTrouble,
    /// What is needed and what is free, or what the system named.
    pub error: String,
}

/// Everything that one shard counts, and its state. Starts as recovering.
///
/// Aligned so that two shards never share a cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct ShardMetrics {
    /// Appends acknowledged, without duplicates.
    pub appends: Counter,
    /// Payload bytes of those appends.
    pub append_bytes: Counter,
    /// Appends answered from a producer's memory, because they had been acknowledged before.
    pub duplicates: Counter,
    /// Streams created.
    pub creates: Counter,
    /// Streams closed.
    pub closes: Counter,
    /// Streams deleted on request.
    pub deletes: Counter,
    /// Beginnings of streams that were dropped because they need not be kept.
    pub retention_trims: Counter,
    /// Answers to reads, catch-up and live.
    pub reads: Counter,
    /// Payload bytes of those answers.
    pub read_bytes: Counter,
    /// Requests refused because a limit was reached (429, 503).
    pub rejected: Counter,
    /// Requests that their sender's credentials do not allow (401, 403).
    pub denied: Counter,
    /// Lines of access and audit log that found no room.
    pub log_lines_lost: Counter,
    /// TLS handshakes, by how they ended: done, failed, timed out, given up for others, no TLS at all.
    pub handshakes: [Counter; 5],
    /// TLS handshakes in progress.
    pub handshakes_open: Gauge,
    /// Connections taken since the start.
    pub connections_accepted: Counter,
    /// Answers by class of status: `[0]` counts 1xx, `[4]` counts 5xx.
    pub answers: [Counter; 5],
    /// Group commits: one write and one sync each.
    pub batches: Counter,
    /// Bytes written by group commits.
    pub batch_bytes: Counter,
    /// Entries in those group commits.
    pub batch_entries: Counter,
    /// Appends of the write-ahead log that reads found in memory.
    pub recent_hits: Counter,
    /// Appends that they did not find there.
    pub recent_misses: Counter,
    /// Long reads that found their bytes in one piece in memory.
    pub recent_run_hits: Counter,
    /// Looks for the open file of a chunk that found it. This and the next four are of all shards together.
    pub chunk_file_hits: Counter,
    /// Looks that found it closed.
    pub chunk_file_misses: Counter,
    /// Looks for a page of a chunk that found it in memory.
    pub chunk_page_hits: Counter,
    /// Looks that did not.
    pub chunk_page_misses: Counter,
    /// Damaged copies of pages that reads have met.
    pub chunk_pages_damaged: Counter,
    /// Duration of each sync.
    pub sync_ns: Histogram,
    /// Length of each turn of the loop, without waiting for sockets and without syncs.
    pub turn_ns: Histogram,
    /// Damaged entries found by recovery or by a read.
    pub damaged: Counter,
    /// Of these, blocks that the disk cannot read and that cost nothing that is known of.
    pub unreadable_blocks: Counter,
    /// Connections open now.
    pub connections: Gauge,
    /// Long-polls and SSE answers waiting now.
    pub live_readers: Gauge,
    /// Streams that exist now.
    pub streams: Gauge,
    /// Size of the write-ahead log now.
    pub wal_bytes: Gauge,
    /// Recently committed bytes in memory now.
    pub recent_bytes: Gauge,
    /// Chunk files of the shard's groups.
    pub chunks: Gauge,
    /// Bytes of data in them.
    pub chunk_bytes: Gauge,
    /// Of these, bytes of deleted or trimmed data.
    pub chunk_dead_bytes: Gauge,
    /// Chunk files that are not merged, because a part of them is damaged.
    pub chunks_damaged: Gauge,
    /// Chunk files that are open, for all shards together.
    pub chunk_files_open: Gauge,
    /// Pages of chunks in memory, for all shards together.
    pub chunk_page_bytes: Gauge,
    /// Request bodies held in memory now.
    pub body_bytes_in_flight: Gauge,
    /// By how much the wall clock is ahead of its course and not believed, in milliseconds.
    pub clock_ahead_ms: Gauge,
    /// An operator has said that the wall clock is right, and the shard does not know yet.
    clock_confirmed: AtomicBool,
    /// What work needs that a full disk refuses; 0 if there is none.
    pub disk_needed_bytes: Gauge,
    /// What was free when it was refused; 0 if there is none.
    pub disk_free_bytes: Gauge,
    /// Groups that have not applied yet what was committed when the node started.
    pub catching_up: Gauge,
    recovering: AtomicBool,
    poisoned: AtomicBool,
    /// When the loop last said that it runs, as [`Monotonic`].
    alive_ns: AtomicU64,
    /// Touched when a shard fails and when an operator asks, never by a request.
    poison: Mutex<Option<DiskRefusal>>,
    /// Touched every 100 ms and when an operator asks.
    disk: Mutex<Option<DiskRefusal>>,
}

impl Default for ShardMetrics {
    fn default() -> Self {
        Self {
            appends: Counter::default(),
            append_bytes: Counter::default(),
            duplicates: Counter::default(),
            creates: Counter::default(),
            closes: Counter::default(),
            deletes: Counter::default(),
            retention_trims: Counter::default(),
            reads: Counter::default(),
            read_bytes: Counter::default(),
            rejected: Counter::default(),
            denied: Counter::default(),
            log_lines_lost: Counter::default(),
            handshakes: Default::default(),
            handshakes_open: Gauge::default(),
            connections_accepted: Counter::default(),
            answers: Default::default(),
            batches: Counter::default(),
            batch_bytes: Counter::default(),
            batch_entries: Counter::default(),
            recent_hits: Counter::default(),
            recent_misses: Counter::default(),
            recent_run_hits: Counter::default(),
            chunk_file_hits: Counter::default(),
            chunk_file_misses: Counter::default(),
            chunk_page_hits: Counter::default(),
            chunk_page_misses: Counter::default(),
            chunk_pages_damaged: Counter::default(),
            sync_ns: Histogram::default(),
            turn_ns: Histogram::default(),
            damaged: Counter::default(),
            unreadable_blocks: Counter::default(),
            connections: Gauge::default(),
            live_readers: Gauge::default(),
            streams: Gauge::default(),
            wal_bytes: Gauge::default(),
            recent_bytes: Gauge::default(),
            chunks: Gauge::default(),
            chunk_bytes: Gauge::default(),
            chunk_dead_bytes: Gauge::default(),
            chunks_damaged: Gauge::default(),
            chunk_files_open: Gauge::default(),
            chunk_page_bytes: Gauge::default(),
            body_bytes_in_flight: Gauge::default(),
            clock_ahead_ms: Gauge::default(),
            clock_confirmed: AtomicBool::new(false),
            disk_needed_bytes: Gauge::default(),
            disk_free_bytes: Gauge::default(),
            catching_up: Gauge::default(),
            recovering: AtomicBool::new(true),
            poisoned: AtomicBool::new(false),
            alive_ns: AtomicU64::new(0),
            poison: Mutex::new(None),
            disk: Mutex::new(None),
        }
    }
}

impl ShardMetrics {
    /// Recovery or background work has met a damage.
    pub fn note_damage(&self, kind: DamageKind) {
        self.damaged.add(1);
        self.unreadable_blocks.add(u64::from(kind == DamageKind::UnreadableBlock));
    }

    /// The loop of the shard runs, at `now` of the clock that [`NodeMetrics::new`] was given.
    pub fn note_alive(&self, now: Monotonic) {
        self.alive_ns.store(now.get(), Relaxed);
    }

    /// Whether an operator has confirmed the wall clock since the last call.
    pub fn take_clock_confirmation(&self) -> bool {
        self.clock_confirmed.swap(false, Relaxed)
    }

    /// Recovery is done: the shard takes requests.
    pub fn set_recovered(&self) {
        self.recovering.store(false, Relaxed);
    }

    /// A write or sync failed. There is no way back but a restart.
    pub fn set_poisoned(&self, trouble: DiskTrouble, error: &str) {
        let error = error.to_owned();
        let refusal = DiskRefusal { trouble, error };
        *self.poison.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        self.poisoned.store(true, Relaxed);
    }

    /// Sets why the disk refuses data, `None` if it does not. Whether it is another trouble than before.
    pub fn set_disk_refusal(&self, refusal: Option<DiskRefusal>) -> bool {
        let mut known = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = |refusal: &Option<DiskRefusal>| refusal.as_ref().map(|it| it.trouble);
        let is_other = trouble(&known) != trouble(&refusal);
        *known = refusal;
        is_other
    }

    /// Why the disk refuses data, if it does.
    #[must_use]
    pub fn disk_refusal(&self) -> Option<DiskRefusal> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what the session of the shard has counted.
    pub fn publish(&self, counts: &session::Counts) {
        self.appends.set(counts.appends);
        self.append_bytes.set(counts.append_bytes);
        self.duplicates.set(counts.duplicates);
        self.creates.set(counts.creates);
        self.closes.set(counts.closes);
        self.deletes.set(counts.deletes);
        self.reads.set(counts.reads);
        self.read_bytes.set(counts.read_bytes);
        self.rejected.set(counts.rejected);
        self.denied.set(counts.denied);
        self.log_lines_lost.set(counts.log_lines_lost);
        self.connections_accepted.set(counts.connections_accepted);
        for (shown, count) in self.answers.iter().zip(counts.answers) {
            shown.set(count);
        }
        self.connections.set(counts.connections);
        self.live_readers.set(counts.live_readers);
    }

    /// Whether the shard is poisoned.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    /// The write or sync that failed, if one did.
    #[must_use]
    pub fn poison(&self) -> Option<DiskRefusal> {
        self.poison.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a write or sync failed for this reason.
    #[must_use]
    pub fn is_poisoned_by(&self, trouble: DiskTrouble) -> bool {
        self.poison().is_some_and(|refusal| refusal.trouble == trouble)
    }

    /// Whether the disk refuses data for this reason.
    #[must_use]
    pub fn has_trouble(&self, trouble: DiskTrouble) -> bool {
        self.disk_refusal().is_some_and(|refusal| refusal.trouble == trouble)
    }

    /// Whether the shard is still recovering.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.recovering.load(Relaxed)
    }

    /// Why the shard is not ready; empty if it is.
    #[must_use]
    pub fn not_ready(&self) -> Vec<NotReady> {
        let mut reasons = Vec::new();
        if self.is_recovering() {
            reasons.push(NotReady::Recovering);
        }
        let catching_up = self.catching_up.get();
        if catching_up > 0 {
            reasons.push(NotReady::CatchingUp(catching_up));
        }
        if self.is_poisoned() {
            reasons.extend(self.poison().map(NotReady::Poisoned));
        }
        reasons.extend(self.disk_refusal().map(NotReady::Disk));
        reasons
    }
}

/// The metrics of all shards of the process.
#[derive(Debug)]
pub struct NodeMetrics {
    shards: Box<[Arc<ShardMetrics>]>,
    shutting_down: AtomicBool,
    clock: Arc<dyn Clock>,
    /// Reloads of certificates that brought new ones. The main thread alone writes this and the next two.
    pub reloads: Counter,
    /// Reloads that failed: what was in force stayed.
    pub reloads_failed: Counter,
    /// Lines of access and audit log that could not be written. Their thread alone writes this.
    pub log_lines_unwritten: Counter,
    /// Lines of the audit log that the main thread could not hand over. It alone writes this.
    pub log_lines_full: Counter,
    /// When the first of the certificates expires, in seconds since 1970; 0 without any.
    pub certificate_expires_s: Gauge,
    peers: OnceLock<Arc<Peers>>,
}

/// A shard whose loop has not run for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent {
    /// Its number.
    pub shard: usize,
    /// How long its loop has not run.
    pub for_ms: u64,
    /// When it last ran.
    pub since: Timestamp,
}

impl NodeMetrics {
    /// Metrics for `shard_count` shards, all of them recovering. Their loops read `clock`, too.
    #[must_use]
    pub fn new(shard_count: u16, clock: Arc<dyn Clock>) -> Arc<Self> {
        let shards = (0..shard_count).map(|_| Arc::default()).collect();
        Arc::new(Self {
            shards,
            shutting_down: AtomicBool::new(false),
            clock,
            reloads: Counter::default(),
            reloads_failed: Counter::default(),
            log_lines_unwritten: Counter::default(),
            log_lines_full: Counter::default(),
            certificate_expires_s: Gauge::default(),
            peers: OnceLock::new(),
        })
    }

    /// The server is a node with these peers, or none. To be called once.
    pub fn set_peers(&self, peers: Option<Arc<Peers>>) {
        if let Some(peers) = peers {
            let _ = self.peers.set(peers);
        }
    }

    /// The peers of a node that has started.
    #[must_use]
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    /// An operator says that the wall clock is right: shards that do not believe it learn so.
    pub fn confirm_clock(&self) {
        for shard in &self.shards {
            shard.clock_confirmed.store(true, Relaxed);
        }
    }

    /// The clock of all loops.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Recovery is done and all loops run.
    pub fn set_recovered(&self) {
        for shard in &self.shards {
            shard.note_alive(self.clock.now_monotonic());
            shard.set_recovered();
        }
    }

    /// For how long the loop of `shard` has not run. 0 while it recovers: it has no loop yet.
    #[must_use]
    pub fn silent_ms(&self, shard: &ShardMetrics) -> u64 {
        let alive = Monotonic::new(shard.alive_ns.load(Relaxed));
        if shard.is_recovering() { 0 } else { self.clock.now_monotonic().ms_since(alive) }
    }

    /// The shards whose loops have not run for more than [`SILENT_MS_MAX`].
    #[must_use]
    pub fn silent(&self) -> Vec<Silent> {
        let now = self.clock.now_wall().get();
        let silences = self.shards.iter().enumerate().map(|(shard, metrics)| {
            let for_ms = self.silent_ms(metrics);
            Silent { shard, for_ms, since: Timestamp::new(now.saturating_sub(for_ms)) }
        });
        silences.filter(|silent| silent.for_ms > SILENT_MS_MAX).collect()
    }

    /// The shards, by their index.
    #[must_use]
    pub fn shards(&self) -> &[Arc<ShardMetrics>] {
        &self.shards
    }

    /// From now on `/readyz` sends load balancers elsewhere.
    pub fn set_shutting_down(&self) {
        self.shutting_down.store(true, Relaxed);
    }

    /// Why the process is not ready, with the shard if it is one shard's reason.
    #[must_use]
    pub fn not_ready(&self) -> Vec<(Option<usize>, NotReady)> {
        let own = self.shutting_down.load(Relaxed).then_some((None, NotReady::ShuttingDown));
        let of_shards = self.shards.iter().enumerate().flat_map(|(index, shard)| {
            shard.not_ready().into_iter().map(move |reason| (Some(index), reason))
        });
        own.into_iter().chain(of_shards).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A clock that is set by hand, in milliseconds.
    #[derive(Debug, Default)]
    pub(crate) struct ManualClock(pub(crate) AtomicU64);

    impl Clock for ManualClock {
        fn now_wall(&self) -> Timestamp {
            Timestamp::new(1_700_000_000_000 + self.0.load(Relaxed))
        }

        fn now_monotonic(&self) -> Monotonic {
            Monotonic::default().plus_ms(self.0.load(Relaxed))
        }
    }

    /// Metrics of shards that recover, at a time that does not move.
    pub(crate) fn metrics_of(shard_count: u16) -> Arc<NodeMetrics> {
        NodeMetrics::new(shard_count, Arc::new(ManualClock::default()))
    }

    #[test]
    fn a_loop_that_does_not_run_is_named_after_a_minute() {
        let clock = Arc::new(ManualClock::default());
        let node = NodeMetrics::new(2, clock.clone());
        clock.0.store(10 * SILENT_MS_MAX, Relaxed);
        assert_eq!(node.silent(), [], "recovery takes as long as it takes");
        node.set_recovered();
        clock.0.fetch_add(SILENT_MS_MAX, Relaxed);
        assert_eq!(node.silent(), []);
        node.shards()[0].note_alive(clock.now_monotonic());
        clock.0.fetch_add(1, Relaxed);
        let since = Timestamp::new(1_700_000_000_000 + 10 * SILENT_MS_MAX);
        assert_eq!(node.silent(), [Silent { shard: 1, for_ms: SILENT_MS_MAX + 1, since }]);
        node.shards()[1].note_alive(clock.now_monotonic());
        assert_eq!(node.silent(), [], "it runs again");
    }

    #[test]
    fn a_new_shard_is_recovering_until_it_says_otherwise() {
        let shard = ShardMetrics::default();
        assert_eq!(shard.not_ready(), [NotReady::Recovering]);
        shard.set_recovered();
        assert_eq!(shard.not_ready(), []);
    }

    #[test]
    fn a_poisoned_shard_keeps_its_error() {
        let node = metrics_of(2);
        node.set_recovered();
        node.shards()[1].set_poisoned(DiskTrouble::Failing, "EIO");
        let refusal = DiskRefusal { trouble: DiskTrouble::Failing, error: "EIO".to_owned() };
        let reason = NotReady::Poisoned(refusal);
        assert_eq!(node.not_ready(), [(Some(1), reason)]);
    }

    #[test]
    fn a_full_disk_goes_away_when_there_is_space() {
        let shard = ShardMetrics::default();
        shard.set_recovered();
        let full = DiskRefusal { trouble: DiskTrouble::Full, error: "7 are free".to_owned() };
        assert!(shard.set_disk_refusal(Some(full.clone())));
        assert_eq!(shard.not_ready(), [NotReady::Disk(full.clone())]);
        assert!(!shard.set_disk_refusal(Some(full)), "it is known");
        assert!(shard.set_disk_refusal(None));
        assert_eq!(shard.not_ready(), []);
    }

    #[test]
    fn a_disk_that_fails_is_no_full_disk() {
        let shard = ShardMetrics::default();
        shard.set_recovered();
        let refusal = |trouble| DiskRefusal { trouble, error: "EIO".to_owned() };
        shard.set_disk_refusal(Some(refusal(DiskTrouble::Full)));
        let failing = refusal(DiskTrouble::Failing);
        assert!(shard.set_disk_refusal(Some(failing.clone())), "this is another trouble");
        assert_eq!(shard.not_ready(), [NotReady::Disk(failing)]);
        assert!(shard.has_trouble(DiskTrouble::Failing) && !shard.has_trouble(DiskTrouble::Full));
    }

    #[test]
    fn a_shard_shows_what_its_session_counts() {
        let shard = ShardMetrics::default();
        let counts = session::Counts { answers: [0, 1, 0, 0, 2], appends: 3, ..Default::default() };
        shard.publish(&counts);
        assert_eq!(shard.answers.each_ref().map(Counter::get), counts.answers);
        assert_eq!(shard.appends.get(), 3);
    }
}
