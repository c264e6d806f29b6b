//! What must stay bounded: the length of a turn (see `turn_cost`), the log, memory, open files, and what is kept for nobody.
//!
//! # What is kept for nobody
//! At the end of a run nobody asks for anything. After some time no connection, watcher, charge or entry under way is left. No
//! chunk is mostly dead, and no file is left of one that was replaced.

use super::World;
use crate::{fault::FaultKind, oracle::Rule};
use std::path::{Path, PathBuf};

/// The longest turn, beside what each thing that has come may take.
const TURN_US_MAX: u64 = 5_000;
const MAIL_US_MAX: u64 = 500;

/// A merge holds the chunks that it joins.
const FILES_PER_JOB: u64 = 16;

/// Beyond the open chunks and segments: what a store always has open, and files that are being written.
const FILES_BESIDE: u64 = 24;

/// How long nobody asks for anything before it is looked at what is kept: longer than each timeout of a session.
const QUIET_US: u64 = 150_000_000;

/// Quiet times that a process may need, if it is started again in one.
const QUIET_TIMES: usize = 6;

impl World {
    /// The shard is busy for what its turn has cost.
    pub(super) fn spend_turn(&mut self, shard: usize, cost_us: u64, mails: usize) {
        if !self.has_fault(FaultKind::CostlyWork) {
            return;
        }
        let most_us = TURN_US_MAX + mails as u64 * MAIL_US_MAX;
        if cost_us >= most_us {
            let detail = format!("a turn with {mails} messages takes {cost_us} us of {most_us}");
            self.oracle.broken(Rule::LongTurn, detail);
        }
        let busy_until_us = self.clock.now_us + cost_us;
        if let Some(process) = &mut self.process {
            process.busy_until_us[shard] = busy_until_us;
        }
    }

    /// What may never grow, whatever happens.
    pub(super) fn check_bounds(&mut self) {
        let Some(process) = &self.process else { return };
        let (mut wal_bytes, mut recent_bytes, mut page_bytes) = (0, 0, 0);
        for shard in process.open_shards() {
            let stats = shard.core.log().stats();
            wal_bytes += stats.wal_bytes;
            recent_bytes += stats.recent.held_bytes;
            page_bytes = stats.chunk_cache.page_bytes;
        }
        let (jobs, open_files) = (process.jobs.len() as u64, self.disk.open_files());
        let wires: u64 = process.open_shards().map(|shard| shard.wire_count() as u64).sum();
        let removed = self.disk.removed_count();
        // A reader that has begun keeps the chunks that are replaced meanwhile.
        if jobs == 0 {
            self.removed_before_jobs = removed;
        }
        let replaced_max = removed - self.removed_before_jobs + wires + FILES_BESIDE;
        let body_bytes = process.admission.body_bytes();
        // The WAL of every shard, WALs of other shard counts, and what a large append may add.
        let wal_max = 10 * self.options.wal_bytes_max + (2 << 20);
        let segments = self.disk.file_count(Path::new("/data/wal"));
        let files_max =
            self.options.chunk_files_max + segments as u64 + FILES_PER_JOB * jobs + FILES_BESIDE;
        let bodies_max = self.plane.sessions.body_bytes_in_flight_max;
        let recent_max = self.options.recent_bytes_max + self.options.read_cache_bytes_max;
        let checks = [
            (Rule::Bounds, "bytes of WAL", wal_bytes, wal_max),
            (Rule::Hoarded, "recent bytes", recent_bytes, recent_max),
            (Rule::Hoarded, "bytes of pages", page_bytes, self.options.chunk_pages_bytes_max),
            (Rule::Hoarded, "open files", open_files.named, files_max),
            (Rule::Hoarded, "open files that are removed", open_files.removed, replaced_max),
            (Rule::Hoarded, "bytes of bodies", body_bytes as u64, bodies_max as u64),
        ];
        for (rule, what, found, most) in checks {
            if found > most {
                self.oracle.broken(rule, format!("{found} {what}, of {most}"));
            }
        }
    }

    /// Nobody asks for anything any more. What is kept all the same is kept for nobody.
    pub(crate) fn check_hoarded(&mut self) {
        for _ in 0..QUIET_TIMES {
            let until_us = self.clock.now_us + QUIET_US;
            let starts = self.starts;
            self.pass_until(until_us);
            let is_up = self.process.as_ref().is_some_and(|process| !process.is_poisoned());
            if self.oracle.violation().is_some() || is_up && self.starts == starts {
                break;
            }
        }
        let kept = self.kept_for_nobody();
        if !kept.is_empty() {
            self.oracle.broken(Rule::Hoarded, format!("kept for nobody: {}", kept.join(", ")));
        }
    }

    fn kept_for_nobody(&self) -> Vec<String> {
        let Some(process) = &self.process else { return Vec::new() };
        let mut kept = Vec::new();
        let mut note = |what: &str, count: u64| {
            if count > 0 {
                kept.push(format!("{count} {what}"));
            }
        };
        let is_intact = !self.oracle.damage_possible;
        let (mut chunks, mut wasteful) = (0, 0);
        for shard in process.open_shards() {
            let (core, log) = (shard.core.stats(), shard.core.log().stats());
            note("connections", shard.wire_count() as u64);
            note("streams with readers", shard.sessions.watched_count() as u64);
            note("watched streams", core.watched_count);
            note("entries under way", core.in_flight_count);
            chunks += log.chunks;
            wasteful += shard.core.log().wasteful_chunks() as u64;
        }
        note("bytes of bodies", process.admission.body_bytes() as u64);
        let is_chunk = |path: &&PathBuf| path.extension().is_some_and(|name| name == "chunk");
        let files = self.disk.paths().iter().filter(is_chunk).count() as u64;
        if is_intact {
            note("chunks of which most is dead", wasteful);
        }
        if is_intact {
            note("files of chunks that nobody knows", files.saturating_sub(chunks));
        }
        kept
    }
}
