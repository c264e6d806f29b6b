//! How far a run over many seeds has come, and what it cost.

use env::{Clock, RealClock};
use model::Monotonic;
use std::fmt;
use thalweg_sim::{ClusterReport, EngineReport, Failure, Report};

/// How often progress is printed.
const REPORT_MS: u64 = 10_000;

/// Seeds that were run, and their sums.
#[derive(Debug)]
pub(crate) struct Hunt {
    clock: RealClock,
    begin: Monotonic,
    reported_ms: u64,
    done: u64,
    failed: u64,
    acked: u64,
    ordered: usize,
    compared_bytes: u64,
    starts: u64,
    simulated_us: u64,
    engine_done: u64,
    engine_acked: u64,
}

impl Hunt {
    pub(crate) fn begin() -> Self {
        let clock = RealClock::new();
        Self {
            begin: clock.now_monotonic(),
            clock,
            reported_ms: 0,
            done: 0,
            failed: 0,
            acked: 0,
            ordered: 0,
            compared_bytes: 0,
            starts: 0,
            simulated_us: 0,
            engine_done: 0,
            engine_acked: 0,
        }
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.clock.now_monotonic().ms_since(self.begin)
    }

    pub(crate) fn failed_count(&self) -> u64 {
        self.failed
    }

    /// A seed held.
    pub(crate) fn held(&mut self, report: &Report) {
        self.done += 1;
        self.acked += report.acked_count;
        self.ordered += report.ordered_count;
        self.compared_bytes += report.compared_bytes;
        self.starts += report.starts;
        self.simulated_us += report.simulated_us;
    }

    /// A seed of the engine's world held.
    pub(crate) fn engine_held(&mut self, report: &EngineReport) {
        self.engine_done += 1;
        self.engine_acked += report.acked_count;
    }

    /// A seed of the engine's world broke a promise.
    pub(crate) fn engine_failed(&mut self) {
        self.engine_done += 1;
        self.failed += 1;
    }

    /// A seed broke a promise.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.done += 1;
        self.failed += 1;
        self.simulated_us += failure.at_us;
    }

    /// Reports on standard error how far it is, if it has not done so lately.
    pub(crate) fn report(&mut self) {
        let elapsed_ms = self.elapsed_ms();
        if elapsed_ms >= self.reported_ms + REPORT_MS {
            self.reported_ms = elapsed_ms;
            let Self { done, failed, simulated_us, .. } = self;
            let (simulated, cpu) = (*simulated_us / 1_000_000, self.clock.cpu_ms() / 1000);
            eprintln!("{done} seeds, {failed} failed, {simulated} simulated s, {cpu} CPU s");
        }
    }
}

/// What seeds of clusters have done, together.
#[derive(Debug, Default)]
pub(crate) struct ClusterSum {
    seeds: u64,
    sum: ClusterReport,
}

impl ClusterSum {
    pub(crate) fn add(&mut self, report: &ClusterReport) {
        self.seeds += 1;
        self.sum += *report;
    }
}

impl fmt::Display for ClusterSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, sum } = self;
        write!(f, "{seeds} clusters held: {} appends acknowledged, ", sum.acked_count)?;
        write!(f, "{} of them looked for on all disks, ", sum.images_count)?;
        write!(f, "{} operations ordered, {} entries and ", sum.ordered_count, sum.entries_count)?;
        write!(f, "{} states compared, ", sum.states_count)?;
        write!(f, "{} digests compared, {} leaders, ", sum.digests_count, sum.leaders_count)?;
        let kib = sum.snapshot_bytes >> 10;
        write!(f, "{} snapshots installed ({kib} KiB, {} resumed), ", sum.installs, sum.resumed)?;
        write!(f, "{} faults, {} damaged places, {} starts, ", sum.faults, sum.hits, sum.starts)?;
        write!(f, "{} simulated s", sum.simulated_us / 1_000_000)
    }
}

impl fmt::Display for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (real_ms, cpu_ms) = (self.elapsed_ms(), self.clock.cpu_ms());
        write!(f, "{} seeds, {} failed; ", self.done, self.failed)?;
        write!(f, "{} appends acknowledged, {} operations ordered, ", self.acked, self.ordered)?;
        write!(f, "{} bytes compared, {} starts, ", self.compared_bytes, self.starts)?;
        let Self { engine_done, engine_acked, .. } = self;
        write!(f, "{engine_done} seeds of the engine with {engine_acked} acts, ")?;
        write!(f, "{} simulated seconds in ", self.simulated_us / 1_000_000)?;
        write!(f, "{}.{:03} s, ", real_ms / 1000, real_ms % 1000)?;
        write!(f, "{}.{:03} CPU-seconds", cpu_ms / 1000, cpu_ms % 1000)
    }
}
