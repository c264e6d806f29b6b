//! A very long history, of which nearly nothing is in memory: what a start, a read and a seal of a real server take
//! beside it.
//!
//! # How
//! Appends go to all streams in turn, so that each chunk has a piece of very many of them. Settings make chunks small
//! and keep them from being merged. Every read is compared, and a writer on a connection of its own tells what others
//! notice. In the long form the kernel's pages are dropped before the cold start and the cold reads.
//!
//! Bounds of time hold in the long form. What a busy machine shows in the short one says nothing.

use crate::durations::{part, spread};
use crate::http::{Connection, offset, request};
use crate::numbers::Numbers;
use crate::report::{Report, add};
use crate::scenario::chunks::{insist, insist_on_all};
use crate::scenario::fill::{BINARY, connect};
use crate::server::{LOCAL, Server, Start, logged, quiet};
use crate::trial::{Options, Outcome, Verdict, beside, in_threads, wait_until};
use crate::turns::Turns;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much there is, and what is wanted.
#[derive(Debug, Clone, Copy)]
struct Shape {
    chunks: u64,
    /// At least those of a round, so that no two writers have appends of one stream.
    streams: usize,
    /// Over so many connections they are made. With one their numbers rise as they are written, and a chunk has streams that
    /// lie side by side. With many a chunk has streams from everywhere, and its bounds exclude none.
    makers: usize,
    reads: usize,
    /// Appends on one connection, while groups seal.
    singles: usize,
    ready_max: Duration,
    memory_mib_max: u64,
    read_p99_max: Duration,
}

const LONG: [Shape; 2] = [
    Shape {
        chunks: CHUNKS,
        streams: 100_000,
        makers: WRITERS,
        reads: 10_000,
        singles: ROUND,
        ready_max: READY_MAX,
        memory_mib_max: MEMORY_MIB_MAX,
        read_p99_max: READ_P99_MAX,
    },
    Shape {
        chunks: CHUNKS,
        streams: 1_000_000,
        makers: 1,
        reads: 10_000,
        singles: ROUND,
        ready_max: READY_MAX,
        // The states of a million streams are 200 MB, and as much again once each has been trimmed.
        memory_mib_max: 3 * MEMORY_MIB_MAX,
        read_p99_max: READ_P99_MAX,
    },
];
const SHORT: Shape = Shape {
    chunks: 256,
    streams: 20_000,
    makers: 1,
    reads: 500,
    singles: 1_500,
    ready_max: Duration::MAX,
    memory_mib_max: MEMORY_MIB_MAX,
    read_p99_max: Duration::MAX,
};

/// 600 of each group.
const CHUNKS: u64 = 600 * GROUPS as u64;
const GROUPS: usize = 64;
/// Each append is a run: 260 of them are 64 KiB, and 38,400 such chunks have ten million.
const APPEND_BYTES: usize = 252;
const RUNS: usize = 260;
/// Appends that fill about a chunk of each group.
const ROUND: usize = GROUPS * RUNS;
/// Many, so that batches are long.
const WRITERS: usize = 16;
const _: () = assert!(SHORT.streams >= ROUND, "appends of a stream keep their order");
const STARTS: usize = 3;
/// How long others are watched without reads.
const CALM: Duration = Duration::from_secs(2);
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

const READY_MAX: Duration = Duration::from_secs(5);
const MEMORY_MIB_MAX: u64 = 190;
const DESCRIPTORS_MAX: usize = 1_100;
const READ_P99_MAX: Duration = Duration::from_millis(1);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let shapes = if options.is_short { &[SHORT][..] } else { &LONG };
    for shape in shapes {
        one(*shape, options, report)
            .map_err(|what| format!("{} streams: {what}", shape.streams))?;
        add(&report.cycles, 1);
    }
    Ok(Verdict::Done)
}

fn one(shape: Shape, options: &Options, report: &Report) -> Outcome<()> {
    let data = options.dir.join(format!("history-{}", shape.streams));
    let start = |is_made| Start {
        binary: options.binary.clone(),
        data: data.clone(),
        log: options.dir.join("history.log"),
        flags: flags(is_made),
        under: Vec::new(),
        host: LOCAL.to_owned(),
    };
    let mut history = History::made(shape, &data, || start(false).serve())?;
    let start = start(true);
    let mut measured = Measured::default();
    for _ in 0..STARTS {
        let (server, took) = start_again(&history, &start, "warm")?;
        measured.ready = measured.ready.min(took);
        server.kill()?;
    }
    drop_caches(options);
    let (server, _) = start_again(&history, &start, "with what the kernel has")?;
    measured.read_p99 = history.read_cold(&server, options, report)?;
    measured.memory_mib = server.resident_mib()?;
    measured.descriptors = server.descriptors()?;
    show(&server, "after the reads")?;

    history.seals(&server, "before the trims")?;
    trim_all(&history, server.address)?;
    history.seals(&server, "with every stream trimmed")?;
    show(&server, "after the seals")?;
    add(&report.acknowledged, history.appends as u64);
    server.stop()?;
    if options.is_kept {
        history.write_book(&data)?;
    } else {
        // The next shape needs the room.
        let _ = fs::remove_dir_all(&data);
    }
    measured.is_within_bounds(shape)
}

/// What has bounds.
#[derive(Debug)]
struct Measured {
    /// The fastest start: what else the machine does makes the others slower.
    ready: Duration,
    read_p99: Duration,
    memory_mib: u64,
    descriptors: usize,
}

impl Default for Measured {
    fn default() -> Self {
        Self { ready: Duration::MAX, read_p99: Duration::ZERO, memory_mib: 0, descriptors: 0 }
    }
}

impl Measured {
    fn is_within_bounds(&self, shape: Shape) -> Outcome<()> {
        let is_within = self.ready <= shape.ready_max
            && self.read_p99 <= shape.read_p99_max
            && self.memory_mib <= shape.memory_mib_max
            && self.descriptors <= DESCRIPTORS_MAX;
        if is_within { Ok(()) } else { Err(format!("{self:.2?}")) }
    }
}

fn flags(is_made: bool) -> Vec<String> {
    let sizes = match is_made {
        false => ["--segment-bytes=4MiB", "--wal-bytes-max=64MiB"].map(str::to_owned).to_vec(),
        true => Vec::new(),
    };
    // No merges.
    let chunks = ["--seal-bytes=64KiB", "--chunk-bytes-max=64KiB"].map(str::to_owned);
    [sizes, vec![format!("--groups={GROUPS}")], chunks.to_vec()].concat()
}

fn path(stream: usize) -> String {
    format!("/history/{stream}")
}

/// The bytes of an append, by its number in its stream.
fn body(stream: usize, number: usize) -> Vec<u8> {
    let word = format!("{stream:08} {number:08}\n");
    word.bytes().cycle().take(APPEND_BYTES).collect()
}

/// Insists on many requests over many connections; `make` has the request of a number.
pub(crate) fn send_range(
    (address, connections): (SocketAddr, usize),
    numbers: Range<usize>,
    make: impl Fn(usize) -> Vec<u8> + Sync,
) -> Outcome<()> {
    let each = numbers.len().div_ceil(connections).max(1);
    let parts = numbers.clone().step_by(each).map(|from| from..numbers.end.min(from + each));
    let send = |part: Range<usize>| {
        // Some thousand at a time are made.
        part.clone().step_by(ROUND).try_for_each(|from| {
            let requests: Vec<_> = (from..part.end.min(from + ROUND)).map(&make).collect();
            insist_on_all(address, requests.iter().map(Vec::as_slice))
        })
    };
    in_threads(parts, send).map(drop)
}

fn create_all(shape: Shape, address: SocketAddr) -> Outcome<()> {
    send_range((address, shape.makers), 0..shape.streams, |stream| {
        request("PUT", &path(stream), &[BINARY], b"")
    })
}

/// Drops the first append of each stream.
fn trim_all(history: &History, address: SocketAddr) -> Outcome<()> {
    let began = Instant::now();
    let first = [("Stream-Trim-Before-Record", "1")];
    send_range((address, WRITERS), 0..history.shape.streams, |stream| {
        request("PATCH", &path(stream), &first, b"")
    })?;
    println!("[history] {} streams trimmed in {:.1?}", history.shape.streams, began.elapsed());
    Ok(())
}

/// What was written: appends to each stream in turn.
#[derive(Debug)]
struct History {
    shape: Shape,
    appends: usize,
}

impl History {
    /// The stream of an append, and its number there.
    fn place(&self, append: usize) -> (usize, usize) {
        (append % self.shape.streams, append / self.shape.streams)
    }

    fn append(&self, append: usize) -> Vec<u8> {
        let (stream, number) = self.place(append);
        request("POST", &path(stream), &[BINARY], &body(stream, number))
    }

    /// Makes the directory, or takes the one that an earlier run has left.
    fn made(shape: Shape, data: &Path, serve: impl FnOnce() -> Outcome<Server>) -> Outcome<Self> {
        let book = fs::read_to_string(data.with_extension("made"));
        let known = book.ok().and_then(|text| text.trim().parse().ok());
        if let Some(appends) = known {
            return Ok(Self { shape, appends });
        }
        let began = Instant::now();
        let server = serve()?;
        create_all(shape, server.address)?;
        let mut history = Self { shape, appends: 0 };
        history.fill(&server)?;
        println!(
            "[history] {} streams and {} appends made in {:.0?}",
            shape.streams,
            history.appends,
            began.elapsed()
        );
        server.stop()?;
        history.write_book(data)?;
        Ok(history)
    }

    fn write_book(&self, data: &Path) -> Outcome<()> {
        let written = fs::write(data.with_extension("made"), self.appends.to_string());
        written.map_err(|error| format!("the book of appends: {error}"))
    }

    /// Writes until there are so many chunks.
    fn fill(&mut self, server: &Server) -> Outcome<()> {
        let mut chunks = server.metric("chunks")?;
        while chunks < self.shape.chunks {
            let to = self.appends + ROUND;
            send_range((server.address, WRITERS), self.appends..to, |append| self.append(append))?;
            self.appends = to;
            // Chunks grow where appends come faster than seals. Half of the groups is enough: they are not filled alike.
            let wanted = chunks + GROUPS as u64 / 2;
            let waited_from = Instant::now();
            while chunks < wanted && waited_from.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(1));
                chunks = server.metric("chunks")?;
            }
        }
        Ok(())
    }

    /// Reads appends at random, of which nothing is in memory: first from the disk, then the same ones from what the
    /// kernel has. The p99 of the latter, which is the server's own part.
    fn read_cold(&self, server: &Server, options: &Options, report: &Report) -> Outcome<Duration> {
        let calm = || {
            std::thread::sleep(CALM);
            Ok(())
        };
        let ((), mut alone) = beside(|stop| append_until(server.address, stop), calm)?;
        println!("[history] appends of a client alone: {}", spread(&mut alone));
        drop_caches(options);
        self.read_beside(server, options.seed, report)?;
        println!("[history] the same reads again, with what the kernel has");
        self.read_beside(server, options.seed, report)
    }

    /// Reads while another client appends; the p99.
    fn read_beside(&self, server: &Server, seed: u64, report: &Report) -> Outcome<Duration> {
        let misses = || server.metric("chunk_page_misses_total");
        let (missed, turns) = (misses()?, Turns::of(server)?);
        let (mut taken, mut others) = beside(
            |stop| append_until(server.address, stop),
            || self.read_all(server.address, seed, report),
        )?;
        println!("[history] {} reads: {}", taken.len(), spread(&mut taken));
        println!("[history]   {} pages of chunks were not in memory", misses()? - missed);
        println!("[history]   turns meanwhile: {}", Turns::of(server)?.since(&turns).shown());
        println!("[history]   appends of another client meanwhile: {}", spread(&mut others));
        Ok(part(&mut taken, 990))
    }

    fn read_all(&self, address: SocketAddr, seed: u64, report: &Report) -> Outcome<Vec<Duration>> {
        let mut numbers = Numbers::of(seed, &[1]);
        let mut connection = connect(address)?;
        let mut taken = Vec::with_capacity(self.shape.reads);
        for _ in 0..self.shape.reads {
            // An earlier run may have trimmed the first append of each stream.
            let first = self.shape.streams;
            let (stream, number) = self.place(first + numbers.below(self.appends - first));
            let from = offset((number * APPEND_BYTES) as u64);
            let target = format!("{}?offset={from}&max_bytes={APPEND_BYTES}", path(stream));
            let began = Instant::now();
            let answer = insist(&mut connection, &request("GET", &target, &[], b""))?;
            taken.push(began.elapsed());
            if answer.body != body(stream, number) {
                return Err(format!("append {number} of {} differs", path(stream)));
            }
            add(&report.bytes_verified, answer.body.len() as u64);
        }
        Ok(taken)
    }

    /// Writes on one connection, one request after the other, until about every group has sealed. A turn then has one
    /// request, or a part of a seal.
    fn seals(&mut self, server: &Server, when: &str) -> Outcome<()> {
        let before = server.metric("chunks")?;
        let turns = Turns::of(server)?;
        let mut connection = connect(server.address)?;
        let mut taken = Vec::with_capacity(self.shape.singles);
        for _ in 0..self.shape.singles {
            let append = self.append(self.appends);
            let began = Instant::now();
            insist(&mut connection, &append)?;
            taken.push(began.elapsed());
            self.appends += 1;
        }
        let turns = Turns::of(server)?.since(&turns);
        let after = server.metric("chunks")?;
        println!(
            "[history] {before} chunks became {after} {when}; an append: {}",
            spread(&mut taken)
        );
        println!("[history]   turns meanwhile: {}", turns.shown());
        Ok(())
    }
}

/// Drops what the kernel has of files, in the long form: it is felt by all programs of the machine.
fn drop_caches(options: &Options) {
    let is_dropped = !options.is_short
        && quiet(&mut Command::new("sync"))
        && fs::write(DROP_CACHES, "3").is_ok();
    println!("[history] the kernel's pages are {}", if is_dropped { "dropped" } else { "left" });
}

/// Starts it, and shows what that took.
fn start_again(history: &History, start: &Start, what: &str) -> Outcome<(Server, Duration)> {
    let (began, log_from) = (Instant::now(), start.log_bytes());
    let server = start.serve()?;
    wait_until("the server is ready", || Ok(server.readiness()?.0 == 200))?;
    let (took, processor) = (began.elapsed(), server.processor_time()?);
    let log = start.log_from(log_from);
    let entries = logged(&log, " recovered ", "entries_replayed");
    println!(
        "[history] {what}: ready after {took:.2?}, {processor:.2?} of processor time, {entries} entries applied again"
    );
    // What is shown of a shard is what it was a moment ago. An earlier run may have trimmed away some chunks.
    wait_until("the chunks are there", || Ok(server.metric("chunks")? > history.shape.chunks / 2))?;
    show(&server, "ready")?;
    Ok((server, took))
}

fn show(server: &Server, what: &str) -> Outcome<()> {
    let (chunks, streams) = (server.metric("chunks")?, server.metric("streams")?);
    let (memory_mib, descriptors) = (server.resident_mib()?, server.descriptors()?);
    println!(
        "[history]   {what}: {chunks} chunks, {streams} streams, {memory_mib} MiB, {descriptors} descriptors"
    );
    Ok(())
}

fn append_until(address: SocketAddr, is_over: &AtomicBool) -> Outcome<Vec<Duration>> {
    let mut connection: Connection = connect(address)?;
    insist(&mut connection, &request("PUT", "/other", &[BINARY], b""))?;
    let append = request("POST", "/other", &[BINARY], &[b'o'; APPEND_BYTES]);
    let mut taken = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        insist(&mut connection, &append)?;
        taken.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(taken)
}
