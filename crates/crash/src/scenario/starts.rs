//! How long a start takes that has very many entries to apply again, beside very many chunks.
//!
//! # How
//! Settings make chunks small, and appends fill so many of them. Then other settings keep all that is written in the
//! log, and the process is killed. Each start after that applies all of it again, and is killed as soon as it is
//! ready. The fastest one counts: what else the machine does makes the others slower, and no start is faster than
//! its work.

use crate::http::request;
use crate::report::{Report, add};
use crate::scenario::chunks::{insist, insist_on_all};
use crate::scenario::fill::{BINARY, call, connect};
use crate::server::{LOCAL, Server, Start, logged};
use crate::trial::{Options, Outcome, Verdict, in_threads, wait_until};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What a start finds, and how long it may take.
#[derive(Debug, Clone, Copy)]
struct Shape {
    name: &'static str,
    shards: usize,
    groups: usize,
    chunks: u64,
    streams: usize,
    /// Bytes of an append that goes into a chunk.
    sealed_bytes: usize,
    /// Appends to each stream that are in no chunk.
    entries_each: usize,
    /// Fewer entries than this part of them are a mistake. A log shortens itself when half of its bound is full, or when it is long for
    /// little data on a disk with little room. On a busy machine batches are short, and padding fills it.
    left_part: u64,
    ready_max: Duration,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "one group",
        shards: 1,
        groups: 1,
        chunks: 549,
        streams: 2_000,
        sealed_bytes: 32,
        entries_each: 125,
        left_part: 1,
        ready_max: Duration::from_secs(1),
    },
    Shape {
        name: "a long log",
        shards: 2,
        groups: 64,
        chunks: 10_000,
        streams: 1_000,
        sealed_bytes: 1_000,
        entries_each: 10_000,
        left_part: 10,
        ready_max: Duration::from_secs(10),
    },
];

const STARTS: usize = 4;
/// Many, so that batches are long and little of the log is padding.
const WRITERS: usize = 16;
/// Bytes of an append that is in no chunk.
const ENTRY_BYTES: usize = 16;
/// Bytes of a group that are worth a chunk while chunks are made.
const SEAL_BYTES: usize = 64 << 10;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    for shape in SHAPES {
        let shape = if options.is_short { shape.short() } else { shape };
        one(shape, options, report).map_err(|what| format!("{}: {what}", shape.name))?;
        add(&report.cycles, 1);
    }
    Ok(Verdict::Done)
}

fn one(shape: Shape, options: &Options, report: &Report) -> Outcome<()> {
    let data = options.dir.join(format!("starts-{}", shape.groups));
    let mut start = Start {
        binary: options.binary.clone(),
        data: data.clone(),
        log: options.dir.join("starts.log"),
        flags: shape.flags(true),
        under: Vec::new(),
        host: LOCAL.to_owned(),
    };
    let server = start.serve()?;
    create_all(shape, server.address)?;
    let rounds = fill(shape, &server)?;
    server.stop()?;

    start.flags = shape.flags(false);
    let server = start.serve()?;
    write_all(shape, server.address, (shape.entries_each, ENTRY_BYTES))?;
    server.kill()?;

    let sealed_each = rounds * shape.round();
    let tail = sealed_each * shape.sealed_bytes + shape.entries_each * ENTRY_BYTES;
    let mut fastest = Duration::MAX;
    for _ in 0..STARTS {
        let (server, took) = start_again(shape, &start)?;
        fastest = fastest.min(took);
        server.kill()?;
    }
    check_tails(shape, &start, tail)?;
    add(&report.acknowledged, (shape.streams * (sealed_each + shape.entries_each)) as u64);
    // The next shape needs the room.
    let _ = std::fs::remove_dir_all(data);
    if fastest > shape.ready_max {
        return Err(format!("ready after {fastest:.2?}, not {:?}", shape.ready_max));
    }
    Ok(())
}

impl Shape {
    fn short(self) -> Self {
        Self { chunks: 40, streams: self.streams / 10, entries_each: 50, left_part: 1, ..self }
    }

    fn flags(self, makes_chunks: bool) -> Vec<String> {
        let (seal, segment, wal) = match makes_chunks {
            true => (format!("{SEAL_BYTES}"), "1MiB", "8MiB"),
            false => ("16MiB".to_owned(), "64MiB", "2GiB"),
        };
        vec![
            format!("--shards={}", self.shards),
            format!("--groups={}", self.groups),
            format!("--seal-bytes={seal}"),
            format!("--segment-bytes={segment}"),
            format!("--wal-bytes-max={wal}"),
            // No merges.
            "--chunk-bytes-max=64KiB".to_owned(),
        ]
    }

    /// Appends to each stream that fill about one chunk of each group.
    fn round(self) -> usize {
        (self.groups * SEAL_BYTES).div_ceil(self.streams * self.sealed_bytes)
    }
}

fn path(stream: usize) -> String {
    format!("/starts/{stream}")
}

fn create_all(shape: Shape, address: SocketAddr) -> Outcome<()> {
    let mut connection = connect(address)?;
    for stream in 0..shape.streams {
        insist(&mut connection, &request("PUT", &path(stream), &[BINARY], b""))?;
    }
    Ok(())
}

/// Writes until there are so many chunks; returns after how many rounds.
fn fill(shape: Shape, server: &Server) -> Outcome<usize> {
    let mut rounds = 0;
    let mut chunks = server.metric("chunks")?;
    while chunks < shape.chunks {
        write_all(shape, server.address, (shape.round(), shape.sealed_bytes))?;
        rounds += 1;
        // Chunks grow where appends come faster than seals. Half of the groups is enough: they are not filled alike.
        let wanted = chunks + (shape.groups as u64).div_ceil(2);
        let waited_from = Instant::now();
        while chunks < wanted && waited_from.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
            chunks = server.metric("chunks")?;
        }
    }
    Ok(rounds)
}

/// So many appends of so many bytes to each stream.
fn write_all(shape: Shape, address: SocketAddr, appends: (usize, usize)) -> Outcome<()> {
    let streams: Vec<usize> = (0..shape.streams).collect();
    let parts = streams.chunks(shape.streams.div_ceil(WRITERS));
    in_threads(parts, |part| write_part(part, address, appends)).map(drop)
}

fn write_part(
    streams: &[usize],
    address: SocketAddr,
    (count, bytes): (usize, usize),
) -> Outcome<()> {
    let body = vec![b'x'; bytes];
    let append = |stream: &usize| request("POST", &path(*stream), &[BINARY], &body);
    let appends: Vec<Vec<u8>> = streams.iter().map(append).collect();
    let all = appends.len() * count;
    insist_on_all(address, appends.iter().map(Vec::as_slice).cycle().take(all))
}

/// Starts it, and shows what that took.
fn start_again(shape: Shape, start: &Start) -> Outcome<(Server, Duration)> {
    let (began, log_from) = (Instant::now(), start.log_bytes());
    let server = start.serve()?;
    wait_until("the server is ready", || Ok(server.readiness()?.0 == 200))?;
    let took = began.elapsed();
    let (processor, memory_mib) = (server.processor_time()?, server.resident_mib()?);
    // What is shown of a shard is what it was a moment ago.
    wait_until("all chunks are there", || Ok(server.metric("chunks")? >= shape.chunks))?;
    let log = start.log_from(log_from);
    let entries = logged(&log, " recovered ", "entries_replayed");
    println!(
        "[starts] {}: ready after {took:.2?}, {processor:.2?} of processor time; {entries} entries applied again \
         beside {} chunks; {memory_mib} MiB",
        shape.name,
        server.metric("chunks")?
    );
    let wanted = (shape.streams * shape.entries_each) as u64;
    match entries.parse::<u64>() {
        Ok(entries) if entries >= wanted => Ok((server, took)),
        Ok(entries) if entries >= wanted / shape.left_part => {
            println!(
                "[starts] {}: the log has shortened itself; all of it is left on a quiet machine",
                shape.name
            );
            Ok((server, took))
        }
        _ => Err(format!("{entries} entries were applied again, not {wanted}")),
    }
}

/// Each stream ends where its appends do.
fn check_tails(shape: Shape, start: &Start, tail: usize) -> Outcome<()> {
    let server = start.serve()?;
    let mut connection = connect(server.address)?;
    for stream in 0..shape.streams {
        let answer = call(&mut connection, &request("HEAD", &path(stream), &[], b""))?;
        if answer.next != Some(tail as u64) {
            return Err(format!("{} ends at {:?}, not at {tail}", path(stream), answer.next));
        }
    }
    server.stop()
}
