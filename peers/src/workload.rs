//! The workloads, and one run of one of them.
//!
//! # Source
//! Walrus's published benchmarks: writers with a topic each, entries of 500 to 1,024 bytes, no sync or
//! a sync per append; its readers, which move a durable cursor. Batches are its `batch_append`.
//!
//! # Invariants
//! - A rate counts acknowledged entries only, over the time in which they were written.
//! - After every run each stream is read back: the acknowledged entries, in order, and nothing else.

use crate::payload::{BYTES_MAX, fill};
use crate::system::{Failure, Kind, SyncMode, System, open};
use env::RealClock;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most threads of a run.
pub(crate) const THREADS_MAX: usize = 64;

/// Entries of a batch.
const BATCH_ENTRIES: usize = 100;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// One entry per call
    Append,
    /// 100 entries per call, all or none
    Batch,
    /// Read one entry and move the durable cursor
    ConsumeOne,
    /// Read about 100 entries and move the durable cursor
    ConsumeMany,
}

/// One run's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub(crate) struct Load {
    /// What each thread does
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    /// When a call returns
    #[arg(long, value_enum)]
    pub(crate) sync: SyncMode,
    /// Threads, each with a stream of its own
    #[arg(long)]
    pub(crate) threads: usize,
    /// How long it runs
    #[arg(long)]
    pub(crate) seconds: u64,
}

/// What came out of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) durability: String,
    pub(crate) entries: u64,
    pub(crate) refused: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_us_per_entry: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
    pub(crate) memory_peak_kib: u64,
    /// Entries that were read back and compared.
    pub(crate) verified: u64,
}

impl Outcome {
    pub(crate) fn rate(&self) -> f64 {
        self.entries as f64 / self.seconds
    }
}

struct Tally {
    entries: u64,
    refused: u64,
    bytes: u64,
    latency: Histogram<u64>,
    /// From the start of the run to the thread's end: a reader may come to the end of its stream.
    seconds: f64,
}

/// Counters that the progress line reads.
#[derive(Default)]
struct Progress {
    entries: AtomicU64,
}

/// Runs `load` on `kind` in the empty directory `dir`.
pub(crate) fn run(kind: Kind, load: Load, dir: &Path) -> Result<Outcome, Failure> {
    assert!((1..=THREADS_MAX).contains(&load.threads), "1 to {THREADS_MAX} threads");
    let system = open(kind, dir, load.sync, is_read(load.work))?;
    let prepared = prepare(&*system, load)?;
    let clock = RealClock::new();
    let (cpu_ms, begin) = (clock.cpu_ms(), Instant::now());
    let deadline = begin + Duration::from_secs(load.seconds);
    let progress = Progress::default();
    let tallies = std::thread::scope(|scope| {
        let work = |stream| run_thread(&*system, load, (stream, begin, deadline), &progress);
        let threads: Vec<_> =
            (0..load.threads).map(|stream| scope.spawn(move || work(stream))).collect();
        tell(&progress, deadline);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let cpu_us = (clock.cpu_ms() - cpu_ms) as f64 * 1000.0;
    let tallies = tallies.into_iter().collect::<Result<Vec<_>, _>>()?;
    let seconds = tallies.iter().map(|tally| tally.seconds).fold(0.0, f64::max);
    let verified = verify(&*system, load, prepared, &tallies)?;
    let mut latency = histogram();
    tallies.iter().for_each(|tally| latency += &tally.latency);
    let entries: u64 = tallies.iter().map(|tally| tally.entries).sum();
    Ok(Outcome {
        durability: system.durability(),
        entries,
        refused: tallies.iter().map(|tally| tally.refused).sum(),
        bytes: tallies.iter().map(|tally| tally.bytes).sum(),
        seconds,
        cpu_us_per_entry: cpu_us / entries.max(1) as f64,
        p50_us: latency.value_at_quantile(0.5) / 1000,
        p99_us: latency.value_at_quantile(0.99) / 1000,
        max_us: latency.max() / 1000,
        memory_peak_kib: memory_peak_kib(),
        verified,
    })
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 2).expect("the bounds are in order")
}

fn is_read(work: Work) -> bool {
    matches!(work, Work::ConsumeOne | Work::ConsumeMany)
}

/// Entries of each stream before a read workload. A fast reader comes to the end before the deadline;
/// its rate is that of the time until then.
fn prepare(system: &dyn System, load: Load) -> Result<u64, Failure> {
    let per_second = match load.work {
        Work::ConsumeOne => 50_000,
        Work::ConsumeMany => 200_000,
        Work::Append | Work::Batch => return Ok(0),
    };
    let batches = (per_second * load.seconds / load.threads as u64).div_ceil(BATCH_ENTRIES as u64);
    for stream in 0..load.threads {
        for batch in 0..batches {
            append_batch(system, stream, batch * BATCH_ENTRIES as u64)?;
        }
    }
    Ok(batches * BATCH_ENTRIES as u64)
}

fn append_batch(system: &dyn System, stream: usize, first: u64) -> Result<u64, Failure> {
    let mut entries = vec![Vec::new(); BATCH_ENTRIES];
    for (number, entry) in (first..).zip(&mut entries) {
        fill(entry, stream, number);
    }
    let slices: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
    system.append_batch(stream, &slices)?;
    Ok(slices.iter().map(|entry| entry.len() as u64).sum())
}

/// What one thread does until the deadline.
fn run_thread(
    system: &dyn System,
    load: Load,
    (stream, start, deadline): (usize, Instant, Instant),
    progress: &Progress,
) -> Result<Tally, Failure> {
    let mut tally = Tally { entries: 0, refused: 0, bytes: 0, latency: histogram(), seconds: 0.0 };
    let mut entry = Vec::with_capacity(BYTES_MAX as usize);
    loop {
        // The payload is made before the clock starts.
        fill(&mut entry, stream, tally.entries);
        let begin = Instant::now();
        tally.seconds = begin.duration_since(start).as_secs_f64();
        if begin >= deadline {
            return Ok(tally);
        }
        let done = call(system, load.work, (stream, tally.entries), &entry);
        let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match done {
            Ok((0, _)) => return Ok(tally),
            Ok((entries, bytes)) => {
                tally.entries += entries;
                tally.bytes += bytes;
                tally.latency.saturating_record(nanos);
                progress.entries.fetch_add(entries, Ordering::Relaxed);
            }
            // Walrus numbers nothing: a refused append may be repeated, as its own benchmark does.
            Err(error) if tally.refused > 1_000_000 => return Err(error),
            Err(_) => tally.refused += 1,
        }
    }
}

/// One call; the entries and bytes that it acknowledged.
fn call(
    system: &dyn System,
    work: Work,
    (stream, number): (usize, u64),
    entry: &[u8],
) -> Result<(u64, u64), Failure> {
    let many = match work {
        Work::Append => {
            system.append(stream, entry)?;
            return Ok((1, entry.len() as u64));
        }
        Work::Batch => {
            let bytes = append_batch(system, stream, number)?;
            return Ok((BATCH_ENTRIES as u64, bytes));
        }
        Work::ConsumeOne => 1,
        Work::ConsumeMany => BATCH_ENTRIES,
    };
    let found = system.consume(stream, many)?;
    let mut expected = Vec::new();
    for (number, found) in (number..).zip(&found) {
        fill(&mut expected, stream, number);
        if *found != expected {
            return Err(format!("stream {stream}: entry {number} is another one").into());
        }
    }
    Ok((found.len() as u64, found.iter().map(|entry| entry.len() as u64).sum()))
}

/// A line per second until the deadline.
fn tell(progress: &Progress, deadline: Instant) {
    let (begin, mut before) = (Instant::now(), 0);
    while Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_secs(1)));
        let now = progress.entries.load(Ordering::Relaxed);
        eprintln!("    {:>4.0} s  {:>10} entries/s", begin.elapsed().as_secs_f64(), now - before);
        before = now;
    }
}

/// Reads every stream back and compares.
fn verify(
    system: &dyn System,
    load: Load,
    prepared: u64,
    tallies: &[Tally],
) -> Result<u64, Failure> {
    // Readers compared what they were given as they went.
    if is_read(load.work) {
        return Ok(tallies.iter().map(|tally| tally.entries).sum());
    }
    let mut verified = 0;
    for (stream, tally) in tallies.iter().enumerate() {
        let (mut number, mut expected, mut wrong) = (0, Vec::new(), None);
        let acknowledged = prepared + tally.entries;
        // One more than there should be: what was never acknowledged is wrong, too.
        system.read_back(stream, acknowledged + 1, &mut |found| {
            fill(&mut expected, stream, number);
            if found != expected {
                wrong.get_or_insert(number);
            }
            number += 1;
        })?;
        if let Some(wrong) = wrong {
            let text = format!(
                "stream {stream}: entry {wrong} of {} is not what was appended; {number} were read",
                acknowledged
            );
            return Err(text.into());
        }
        if number != acknowledged {
            let text = format!("stream {stream}: {acknowledged} acknowledged, {number} there");
            return Err(text.into());
        }
        verified += number;
    }
    Ok(verified)
}

fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
