//! A log with very many chunks: how long it takes to open, what it keeps in memory, what a lookup costs.
//!
//! # Why
//! What is kept of each chunk and of each run adds up where a history is long. A directory with 600 chunks in
//! each of 64 groups and ten million runs shows it.
//!
//! # How
//! The directory is made through the log, on a disk that syncs nothing. If it is there already, it is opened as
//! it is. Lookups are of streams and places at random; their times are processor time of the thread. So are those of
//! what seals do on the loop once every stream is trimmed (`--trimmed`, which adds a chunk to each group).
//!
//! # Driving it
//! `cargo run --release -p thalweg-counts --bin thalweg-chunks -- --dir DIR`. It takes minutes and 2 GiB.

use clap::Parser;
use env::{Clock, Disk, DiskOverlay, File, FileOverlay, Random, RealClock, RealDisk, SeededRandom};
use log::{
    CheckpointRow, CheckpointRows, Damage, DataDir, Entry, LogOptions, NewEntry, NewerVersion,
    Owner, Read, ReadLimit, ReadMode, Replay, ShardLog,
};
use model::{
    ByteOffset, EntryIndex, EntrySubject, GroupId, Placement, StreamId, StreamKey, Term, Timestamp,
};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const GROUPS: u16 = 64;
/// Streams of a group. Each is in every sixtieth chunk.
const STREAMS: u64 = 15_625;
/// Runs of a chunk.
const RUNS: u64 = 260;
/// Bytes of a run.
const RUN_BYTES: u64 = 20;
const LOOKUPS: u64 = 20_000;

/// The start, the memory and the lookups of a log with very many chunks, as a line of JSON
#[derive(Parser)]
struct Cli {
    /// Chunks of each of 64 groups
    #[arg(long, default_value_t = 600)]
    chunks: u64,
    /// A directory, empty or made by an earlier run
    #[arg(long)]
    dir: PathBuf,
    /// Trims every stream, and seals once more in each group
    #[arg(long)]
    trimmed: bool,
}

/// A disk that syncs nothing.
#[derive(Debug)]
struct Hasty;

#[derive(Debug)]
struct HastyFile(Arc<dyn File>);

impl DiskOverlay for Hasty {
    fn below(&self) -> &dyn Disk {
        &RealDisk
    }

    fn wrap(&self, _path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HastyFile(file))
    }
}

impl FileOverlay for HastyFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn write_out(&self) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Streams that know where they end: the number of a run says it.
struct Streams;

impl Replay for Streams {
    fn restore(
        &mut self,
        _group: GroupId,
        _applied: EntryIndex,
        _header: &[u8],
        _rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion> {
        Ok(())
    }

    fn apply(&mut self, entry: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion> {
        Ok(Some(placement(entry.index)))
    }

    fn damaged(&mut self, damage: &Damage) {
        panic!("a directory that was just made is damaged: {damage}");
    }
}

/// The run of a group that an entry made, from 0.
fn run_of(index: EntryIndex) -> u64 {
    index.get() - 1
}

/// Streams have runs in turn.
fn placement(index: EntryIndex) -> Placement {
    let run = run_of(index);
    Placement {
        stream: StreamId::new(1 + run % STREAMS),
        start: ByteOffset::new(run / STREAMS * RUN_BYTES),
        first_record: run / STREAMS,
        record_count: 1,
        marks: None,
    }
}

fn open(disk: Arc<dyn Disk>, dir: &Path) -> ShardLog {
    let options = LogOptions {
        seal_bytes: RUNS * RUN_BYTES,
        // No merges.
        chunk_bytes_max: 1,
        group_count: GROUPS,
        ..LogOptions::default()
    };
    let data_dir = DataDir::open(disk, dir, options, Owner::SERVER, &mut SeededRandom::new(7));
    let opened = log::open(data_dir.expect("a directory"), 1, &mut Streams).expect("it opens");
    opened.shards.into_iter().next().expect("a shard")
}

fn main() {
    let Cli { chunks, dir, trimmed } = Cli::parse();
    println!("{}", measure(chunks, &dir, trimmed));
}

/// Makes the chunks, and opens the directory again; what that took and what lookups take, as JSON.
fn measure(chunks: u64, dir: &Path, is_trimmed: bool) -> Value {
    if RealDisk.open(&dir.join("FORMAT")).is_err() {
        make(chunks, dir);
    }
    let clock = RealClock::new();
    let resident_before_kib = resident_kib();
    let (began, began_cpu_ns) = (clock.now_monotonic(), clock.thread_cpu_ns());
    let mut log = open(Arc::new(RealDisk), dir);
    let ready_ms = clock.now_monotonic().ms_since(began);
    let ready_cpu_ms = (clock.thread_cpu_ns() - began_cpu_ns) / 1_000_000;
    let resident_ready_kib = resident_kib();
    let (inline_ns, job_ns) = look_up(&log, chunks, &clock);
    let stats = log.stats();
    let seals = if is_trimmed { seal_trimmed(&mut log, &clock) } else { Value::Null };
    json!({
        "chunks": stats.chunks,
        "ready_ms": ready_ms,
        "ready_cpu_ms": ready_cpu_ms,
        "resident_before_kib": resident_before_kib,
        "resident_ready_kib": resident_ready_kib,
        "resident_kib": resident_kib(),
        "descriptors": RealDisk.list(Path::new("/proc/self/fd")).map_or(0, |open| open.len()),
        "chunk_files_open": stats.chunk_cache.open_files,
        "chunk_page_bytes": stats.chunk_cache.page_bytes,
        "loop_us": percentiles_us(inline_ns),
        "job_us": percentiles_us(job_ns),
        "trimmed": seals,
    })
}

/// Trims every stream, then seals in each group. Each trim has its processor time, and so has each call that the loop
/// makes for a seal or for the count of what has died.
fn seal_trimmed(log: &mut ShardLog, clock: &RealClock) -> Value {
    let (mut trims_ns, mut calls_ns) = (Vec::new(), Vec::new());
    let timed = |times_ns: &mut Vec<u64>, began_ns: u64| {
        times_ns.push(clock.thread_cpu_ns() - began_ns);
    };
    let sealed_before = log.stats().chunks;
    for group in (0..GROUPS).map(GroupId::new) {
        (0..RUNS).for_each(|_| append(log, group));
        commit(log);
        for stream in (1..=STREAMS).map(StreamId::new) {
            let began_ns = clock.thread_cpu_ns();
            // No chunk is mostly dead, so none is copied.
            log.trim(StreamKey { group, stream }, ByteOffset::new(RUN_BYTES / 2));
            timed(&mut trims_ns, began_ns);
        }
        loop {
            let began_ns = clock.thread_cpu_ns();
            let job = log.poll_work();
            timed(&mut calls_ns, began_ns);
            let Some(job) = job else { break };
            let done = job.run();
            let began_ns = clock.thread_cpu_ns();
            let report = log.handle_work(done);
            timed(&mut calls_ns, began_ns);
            assert!(report.error.is_none(), "the disk refuses: {:?}", report.error);
        }
    }
    let sealed = log.stats().chunks - sealed_before;
    assert_eq!(sealed, u64::from(GROUPS), "each group has sealed");
    json!({ "seals": sealed, "trim_us": percentiles_us(trims_ns), "call_us": percentiles_us(calls_ns) })
}

fn make(chunks: u64, dir: &Path) {
    let mut log = open(Arc::new(Hasty), dir);
    for _ in 0..chunks {
        for group in 0..GROUPS {
            for _ in 0..RUNS {
                append(&mut log, GroupId::new(group));
            }
            commit(&mut log);
            while let Some(job) = log.poll_work() {
                let report = log.handle_work(job.run());
                assert!(report.error.is_none(), "the disk refuses: {:?}", report.error);
                if let Some(group) = log.wants_checkpoint() {
                    let index = log.applied_index(group);
                    log.checkpoint(group, index, Vec::new(), CheckpointRows::new());
                }
            }
        }
    }
    for group in (0..GROUPS).map(GroupId::new) {
        log.checkpoint(group, log.applied_index(group), Vec::new(), CheckpointRows::new());
        while let Some(job) = log.poll_work() {
            let _ = log.handle_work(job.run());
        }
    }
}

fn append(log: &mut ShardLog, group: GroupId) {
    let entry = NewEntry {
        group,
        term: Term::new(1),
        subject: EntrySubject::new(1),
        at: Timestamp::new(1_700_000_000_000),
        kind: 1,
        command: &[],
        data: &[b'x'; RUN_BYTES as usize],
    };
    log.append(entry).expect("the log has room");
}

fn commit(log: &mut ShardLog) {
    while let Some(job) = log.poll_sync() {
        let batch = log.handle_synced(job.run()).expect("the disk takes it");
        for entry in batch.entries() {
            log.place(&entry, placement(entry.index));
            log.applied(entry.group, entry.index);
        }
    }
}

/// Processor time of each lookup on a loop, and of those that became jobs.
fn look_up(log: &ShardLog, chunks: u64, clock: &RealClock) -> (Vec<u64>, Vec<u64>) {
    let mut random = SeededRandom::new(3);
    let (mut inline_ns, mut job_ns) = (Vec::new(), Vec::new());
    for _ in 0..LOOKUPS {
        let run = random.next_u64() % (chunks * RUNS);
        let group = GroupId::new((random.next_u64() % u64::from(GROUPS)) as u16);
        let Placement { stream, start, .. } = placement(EntryIndex::new(run + 1));
        let began = clock.thread_cpu_ns();
        let read = log.try_read(
            StreamKey { group, stream },
            start,
            ReadLimit::anywhere(RUN_BYTES as usize),
        );
        inline_ns.push(clock.thread_cpu_ns() - began);
        let slice = match read.expect("a run that was made") {
            Read::Ready(slice) => slice,
            Read::Job(extent) => {
                let began = clock.thread_cpu_ns();
                let slice = extent.read(start, RUN_BYTES as usize, ReadMode::Blocking);
                job_ns.push(clock.thread_cpu_ns() - began);
                slice.expect("a run that was made")
            }
        };
        let bytes = slice.to_bytes().expect("it can be read");
        assert_eq!(bytes[..], [b'x'; RUN_BYTES as usize]);
    }
    (inline_ns, job_ns)
}

fn percentiles_us(mut times_ns: Vec<u64>) -> Value {
    times_ns.sort_unstable();
    let at = |part: usize| {
        let last = times_ns.len().saturating_sub(1);
        times_ns.get(last * part / 1000).map_or(0, |ns| ns / 1000)
    };
    let count = times_ns.len();
    json!({"count": count, "p50": at(500), "p99": at(990), "p999": at(999), "most": at(1000)})
}

/// Memory of this process.
fn resident_kib() -> u64 {
    let mut bytes = vec![0; 8192];
    let status = RealDisk.open(Path::new("/proc/self/status"));
    let length = status.and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..length]);
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
