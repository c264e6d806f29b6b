//! Very many chunks, made small by settings, and few descriptors. What a start, a deletion and the memory cost is
//! shown, and every answer is compared.
//!
//! The process may have 160 descriptors open. There are many times as many chunks, so they are opened and closed
//! all the time. No client may notice that. At the end all streams are deleted, and no chunk is left.

use crate::http::{Answer, Connection, offset, request};
use crate::report::{Report, add};
use crate::scenario::fill::{BINARY, call, connect};
use crate::server::{LOCAL, Server, Start, logged, quiet};
use crate::trial::{Options, Outcome, Verdict, in_threads, wait_until};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const CHUNKS: u64 = 10_000;
const SHORT_CHUNKS: u64 = 300;
const DESCRIPTORS: usize = 160;
const OPEN_CHUNKS: u64 = 64;
const STREAM_COUNT: usize = 64;
const WRITER_COUNT: usize = 8;
const APPEND_BYTES: usize = 16_000;
/// Short appends that a start has to apply again, beside all the chunks.
const ENTRIES: usize = 250_000;
const SHORT_ENTRIES: usize = 5_000;
/// Requests that a writer of short appends has under way.
const PIPELINED: usize = 250;

/// Bounds, far above what was measured: a start or a deletion that looks into all chunks is far beyond them.
const START_MAX: Duration = Duration::from_secs(20);
const DELETE_MAX: Duration = Duration::from_secs(1);
const MEMORY_MIB_MAX: u64 = 400;
const EMPTY_WITHIN: Duration = Duration::from_secs(300);
const RETRY_PAUSE: Duration = Duration::from_millis(20);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    if !quiet(Command::new("prlimit").arg("--version")) {
        return Ok(Verdict::Skipped("prlimit is not installed".to_owned()));
    }
    let (chunks, entries) = match options.is_short {
        true => (SHORT_CHUNKS, SHORT_ENTRIES),
        false => (CHUNKS, ENTRIES),
    };
    let mut start = Start {
        binary: options.binary.clone(),
        data: options.dir.join("chunks"),
        log: options.dir.join("chunks.log"),
        flags: Vec::new(),
        under: vec!["prlimit".to_owned(), format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}")],
        host: LOCAL.to_owned(),
    };
    start.flags = flags("64KiB");
    let server = start.serve()?;
    create_all(server.address)?;
    let few = delete_one(server.address, "/few")?;
    let appends = fill(&server, chunks)?;
    add(&report.acknowledged, appends.iter().sum());
    show(&server, "filled")?;
    server.stop()?;

    let server = start_again(&start, "started")?;
    compare(server.address, &appends, report)?;
    let many = delete_one(server.address, "/many")?;
    println!("[chunks] a deletion beside few chunks {few:.1?}, beside {chunks} {many:.1?}");
    server.stop()?;

    // What is written now stays in the log.
    start.flags = flags("16MiB");
    let server = start.serve()?;
    write_short(server.address, entries)?;
    server.kill()?;
    let server = start_again(&start, "started beside short appends")?;
    check_short(server.address, entries)?;
    compare(server.address, &appends, report)?;
    empty(&server)?;
    show(&server, "emptied")?;
    server.stop()?;
    add(&report.cycles, 1);
    Ok(Verdict::Done)
}

fn flags(seal_bytes: &str) -> Vec<String> {
    let sizes = ["--segment-bytes=4MiB", "--wal-bytes-max=256MiB", "--chunk-bytes-max=64KiB"];
    let counts = ["--shards=1", "--groups=4", "--connections-max=40"];
    let all = sizes.into_iter().chain(counts).map(str::to_owned);
    all.chain([format!("--seal-bytes={seal_bytes}"), format!("--chunk-files-max={OPEN_CHUNKS}")])
        .collect()
}

fn path(stream: usize) -> String {
    format!("/chunks/{stream}")
}

/// The bytes of an append, by its number.
fn body(stream: usize, number: u64) -> Vec<u8> {
    let seed = stream as u64 * 7 + number * 13;
    (0..APPEND_BYTES as u64).map(|at| ((seed + at) % 251) as u8).collect()
}

/// Sends a request until the server has room for it; any other refusal is a broken promise.
pub(crate) fn insist(connection: &mut Connection, request: &[u8]) -> Outcome<Answer> {
    loop {
        let answer = call(connection, request)?;
        match (answer.status, answer.code().as_str()) {
            (503, "overloaded") => std::thread::sleep(RETRY_PAUSE),
            _ if answer.is_success() => return Ok(answer),
            _ => return Err(format!("a request is answered {}", answer.shown())),
        }
    }
}

/// Insists on requests of which many are under way at once on one connection.
pub(crate) fn insist_on_all<'a>(
    address: SocketAddr,
    requests: impl Iterator<Item = &'a [u8]>,
) -> Outcome<()> {
    let broken = |error| format!("pipelined requests: {error}");
    let (mut connection, mut requests) = (connect(address)?, requests);
    loop {
        let part: Vec<&[u8]> = requests.by_ref().take(PIPELINED).collect();
        if part.is_empty() {
            return Ok(());
        }
        connection.send(&part.concat()).map_err(broken)?;
        let mut refused = Vec::new();
        for request in part {
            let answer = connection.answer().map_err(broken)?;
            match answer.status {
                503 => refused.push(request),
                _ if answer.is_success() => {}
                _ => return Err(format!("a request is answered {}", answer.shown())),
            }
        }
        for request in refused {
            insist(&mut connection, request)?;
        }
    }
}

fn create_all(address: SocketAddr) -> Outcome<()> {
    let mut connection = connect(address)?;
    for stream in 0..STREAM_COUNT {
        insist(&mut connection, &request("PUT", &path(stream), &[BINARY], b""))?;
    }
    Ok(())
}

/// Makes a stream and deletes it; the longest of some deletions.
fn delete_one(address: SocketAddr, path: &str) -> Outcome<Duration> {
    let mut connection = connect(address)?;
    let mut longest = Duration::ZERO;
    for number in 0..50 {
        let path = format!("{path}/{number}");
        insist(&mut connection, &request("PUT", &path, &[BINARY], b"short"))?;
        let began = Instant::now();
        insist(&mut connection, &request("DELETE", &path, &[], b""))?;
        longest = longest.max(began.elapsed());
    }
    if longest > DELETE_MAX {
        return Err(format!("a deletion took {longest:?}"));
    }
    Ok(longest)
}

/// Writes to all streams until there are so many chunks; appends of each stream.
fn fill(server: &Server, chunks: u64) -> Outcome<Vec<u64>> {
    let address = server.address;
    let mut counts = vec![0; STREAM_COUNT];
    while server.metric("chunks")? < chunks {
        let parts = counts.chunks_mut(STREAM_COUNT / WRITER_COUNT).enumerate();
        in_threads(parts, |(writer, part)| write_round(address, writer, part))?;
    }
    Ok(counts)
}

/// Some appends to each stream of one writer.
fn write_round(address: SocketAddr, writer: usize, counts: &mut [u64]) -> Outcome<()> {
    let mut connection = connect(address)?;
    for _ in 0..8 {
        for (place, count) in counts.iter_mut().enumerate() {
            let stream = writer * (STREAM_COUNT / WRITER_COUNT) + place;
            let body = body(stream, *count);
            insist(&mut connection, &request("POST", &path(stream), &[BINARY], &body))?;
            *count += 1;
        }
    }
    Ok(())
}

/// Starts it and shows how long that took.
fn start_again(start: &Start, what: &str) -> Outcome<Server> {
    let (began, log_from) = (Instant::now(), start.log_bytes());
    let server = start.serve()?;
    let took = began.elapsed();
    let log = start.log_from(log_from);
    let of = |field| logged(&log, " recovered ", field);
    show(&server, what)?;
    println!(
        "[chunks] {what} in {took:.2?}: {} entries applied again, recovery {} ms",
        of("entries_replayed"),
        of("took_ms")
    );
    if took > START_MAX {
        return Err(format!("{what} in {took:?}"));
    }
    Ok(server)
}

/// Shows chunks, descriptors and memory, and compares them with their bounds.
fn show(server: &Server, what: &str) -> Outcome<()> {
    let chunks = server.metric("chunks")?;
    let (open, descriptors) = (server.metric("chunk_files_open")?, server.descriptors()?);
    let memory_mib = server.resident_mib()?;
    println!(
        "[chunks] {what}: {chunks} chunks, {open} of them open, {descriptors} descriptors, {memory_mib} MiB"
    );
    if open > OPEN_CHUNKS || descriptors > DESCRIPTORS {
        return Err(format!("{what}: {open} chunks open, {descriptors} descriptors"));
    }
    if memory_mib > MEMORY_MIB_MAX {
        return Err(format!("{what}: {memory_mib} MiB of memory"));
    }
    Ok(())
}

/// Reads all streams and compares each byte.
fn compare(address: SocketAddr, appends: &[u64], report: &Report) -> Outcome<()> {
    let mut connection = connect(address)?;
    for (stream, count) in appends.iter().enumerate() {
        let expected: Vec<u8> = (0..*count).flat_map(|number| body(stream, number)).collect();
        let mut at = 0;
        while at < expected.len() {
            let target = format!("{}?offset={}", path(stream), offset(at as u64));
            let answer = insist(&mut connection, &request("GET", &target, &[], b""))?;
            let end = at + answer.body.len();
            let is_same = expected.get(at..end) == Some(&answer.body[..]);
            if answer.body.is_empty() || !is_same {
                return Err(format!("{} differs behind byte {at}", path(stream)));
            }
            add(&report.bytes_verified, answer.body.len() as u64);
            at = end;
        }
    }
    Ok(())
}

const SHORT: &str = "/short";

/// Short appends to one stream, many under way at once.
fn write_short(address: SocketAddr, entries: usize) -> Outcome<()> {
    let mut connection = connect(address)?;
    insist(&mut connection, &request("PUT", SHORT, &[BINARY], b""))?;
    let append = request("POST", SHORT, &[BINARY], b"a short one");
    for _ in 0..entries / PIPELINED {
        let broken = |error| format!("pipelined appends: {error}");
        connection.send(&append.repeat(PIPELINED)).map_err(broken)?;
        for _ in 0..PIPELINED {
            let answer = connection.answer().map_err(broken)?;
            if !answer.is_success() {
                return Err(format!("a short append is answered {}", answer.shown()));
            }
        }
    }
    Ok(())
}

fn check_short(address: SocketAddr, entries: usize) -> Outcome<()> {
    let answer = call(&mut connect(address)?, &request("HEAD", SHORT, &[], b""))?;
    let expected = (entries / PIPELINED * PIPELINED * b"a short one".len()) as u64;
    match answer.next {
        Some(tail) if tail == expected => Ok(()),
        found => Err(format!("the tail of {SHORT} is {found:?}, not {expected}")),
    }
}

/// Deletes all streams; all chunks go.
fn empty(server: &Server) -> Outcome<()> {
    let mut connection = connect(server.address)?;
    let mut longest = Duration::ZERO;
    for path in (0..STREAM_COUNT).map(path).chain([SHORT.to_owned()]) {
        let began = Instant::now();
        insist(&mut connection, &request("DELETE", &path, &[], b""))?;
        longest = longest.max(began.elapsed());
    }
    let emptied = Instant::now();
    while server.metric("chunks")? > 0 {
        if emptied.elapsed() > EMPTY_WITHIN {
            return Err(format!("{} chunks are left", server.metric("chunks")?));
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    println!(
        "[chunks] all streams deleted, {longest:.1?} at most; all chunks gone after {:.1?}",
        emptied.elapsed()
    );
    wait_until("the server is ready", || Ok(server.readiness()?.0 == 200))
}
