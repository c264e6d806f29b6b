//! A disk is filled through the API and emptied through the API: no outside help, default settings.
//!
//! Every DELETE is taken on a full disk, before and after a restart. The service and the space come
//! back by themselves, and `/readyz` says what is wrong. One stream stays. It is read from before the first append
//! until the space is back, but for the moment in which the server is killed and started again.

use crate::disk::Disk;
use crate::http::{Answer, Connection, offset, request};
use crate::report::{Report, add};
use crate::server::{LOCAL, Server, Start};
use crate::trial::{Options, Outcome, Verdict, beside, in_threads, wait_until};
use env::{Disk as _, RealDisk};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A file system, and how many streams fill it.
#[derive(Debug, Clone, Copy)]
struct Shape {
    mib: u64,
    streams: usize,
}

const SHAPES: [Shape; 5] = [
    Shape { mib: 200, streams: 100 },
    Shape { mib: 500, streams: 1000 },
    Shape { mib: 900, streams: 100 },
    Shape { mib: 1400, streams: 1000 },
    Shape { mib: 4096, streams: 2000 },
];
const SHORT: [Shape; 1] = [Shape { mib: 300, streams: 200 }];
const WRITER_COUNT: usize = 8;
const APPEND_BYTES: usize = 60_000;
/// So many refusals in a row, this far apart: the disk is full, and nothing makes room by itself.
const REFUSALS: u32 = 20;
const REFUSAL_PAUSE: Duration = Duration::from_millis(100);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// After the last DELETE.
const APPEND_WITHIN: Duration = Duration::from_secs(10);
const SPACE_WITHIN: Duration = Duration::from_secs(60);
const SPACE_PERCENT: u64 = 90;
/// The stream that is read all the time and never deleted.
const READ: &str = "/fill/read";
const READ_PAUSE: Duration = Duration::from_millis(5);
/// From one answer to the next one.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// What the reader saw.
#[derive(Debug, Clone, Copy)]
struct Seen {
    reads: u64,
    /// The longest time from one answer to the next one.
    silence: Duration,
}

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let shapes = if options.is_short { &SHORT[..] } else { &SHAPES };
    for shape in shapes {
        let mut disk = match small_disk(&options.dir, shape.mib) {
            Ok(disk) => disk,
            Err(missing) => return Ok(Verdict::Skipped(missing)),
        };
        one(options, report, &disk, *shape).map_err(|what| format!("{} MiB: {what}", shape.mib))?;
        add(&report.cycles, 1);
        disk.unmount()?;
    }
    Ok(Verdict::Done)
}

/// In memory where that can be mounted: what is tested is the room, not the disk.
fn small_disk(dir: &Path, mib: u64) -> Result<Disk, String> {
    let name = format!("fill-{mib}");
    Disk::in_memory(dir, &name, mib).or_else(|_| Disk::make(dir, &name, mib))
}

fn one(options: &Options, report: &Report, disk: &Disk, shape: Shape) -> Outcome<()> {
    let room = free_bytes(disk)?;
    let start = Start {
        binary: options.binary.clone(),
        data: disk.path().join("data"),
        log: options.dir.join("fill.log"),
        flags: Vec::new(),
        under: Vec::new(),
        host: LOCAL.to_owned(),
    };
    let half = shape.streams / 2;
    let server = start.serve()?;
    create_all(server.address, shape.streams)?;
    let ((appends, filled), before) = beside(
        |stop| read(server.address, stop),
        || {
            let started = Instant::now();
            let appends = fill(server.address, shape.streams)?;
            let filled = started.elapsed();
            says_that_it_is_full(&server)?;
            delete(server.address, 0..half, report)?;
            Ok((appends, filled))
        },
    )?;
    add(&report.acknowledged, appends);
    server.kill()?;

    let server = start.serve()?;
    let ((served, freed), after) = beside(
        |stop| read(server.address, stop),
        || {
            delete(server.address, half..shape.streams, report)?;
            let emptied = Instant::now();
            let served = append_again(server.address, emptied)?;
            let freed = space_returns(disk, room, emptied)?;
            wait_until("the server is ready again", || Ok(server.readiness()?.0 == 200))?;
            Ok((served, freed))
        },
    )?;
    server.stop()?;
    println!(
        "[fill] {} MiB: full after {appends} appends and {:.1} s, {} deletes taken; then an append after {:.2} s, \
         {SPACE_PERCENT} % free after {:.1} s; {} reads, none later than {:.0?} after the one before",
        shape.mib,
        filled.as_secs_f64(),
        shape.streams,
        served.as_secs_f64(),
        freed.as_secs_f64(),
        before.reads + after.reads,
        before.silence.max(after.silence),
    );
    Ok(())
}

fn free_bytes(disk: &Disk) -> Outcome<u64> {
    RealDisk.free_bytes(disk.path()).map_err(|error| error.to_string())
}

fn path(stream: usize) -> String {
    format!("/fill/{stream}")
}

fn body() -> Vec<u8> {
    (0..APPEND_BYTES).map(|at| (at % 251) as u8).collect()
}

pub(super) fn call(connection: &mut Connection, request: &[u8]) -> Outcome<Answer> {
    connection.call(request).map_err(|error| format!("a request got no answer: {error}"))
}

pub(super) fn connect(address: SocketAddr) -> Outcome<Connection> {
    Connection::open(address).map_err(|error| format!("cannot connect: {error}"))
}

pub(super) const BINARY: (&str, &str) = ("Content-Type", "application/octet-stream");

/// Creates the streams that are filled, and the one that is read.
fn create_all(address: SocketAddr, streams: usize) -> Outcome<()> {
    let mut connection = connect(address)?;
    let read = request("PUT", READ, &[BINARY], &body());
    let filled = (0..streams).map(|stream| request("PUT", &path(stream), &[BINARY], b""));
    for request in filled.chain([read]) {
        let answer = call(&mut connection, &request)?;
        if answer.status != 201 {
            return Err(format!("a stream is not created: {}", answer.shown()));
        }
    }
    Ok(())
}

/// Writes to all streams until the disk is full; how many appends were acknowledged.
fn fill(address: SocketAddr, streams: usize) -> Outcome<u64> {
    let counts = in_threads(0..WRITER_COUNT, |writer| write(address, writer, streams))?;
    Ok(counts.into_iter().sum())
}

fn write(address: SocketAddr, writer: usize, streams: usize) -> Outcome<u64> {
    let (mut connection, body) = (connect(address)?, body());
    let own = (0..streams).skip(writer).step_by(WRITER_COUNT).cycle();
    let (mut taken, mut refusals) = (0, 0);
    for stream in own {
        let answer = call(&mut connection, &request("POST", &path(stream), &[BINARY], &body))?;
        match (answer.status, answer.code().as_str()) {
            (204, _) => (taken, refusals) = (taken + 1, 0),
            (503, "overloaded") => std::thread::sleep(RETRY_PAUSE),
            (507, "disk-full") if refusals == REFUSALS => break,
            (507, "disk-full") => {
                refusals += 1;
                std::thread::sleep(REFUSAL_PAUSE);
            }
            _ => return Err(format!("an append is answered {}", answer.shown())),
        }
    }
    Ok(taken)
}

fn says_that_it_is_full(server: &Server) -> Outcome<()> {
    wait_until("/readyz says that the disk is full", || {
        let (status, text) = server.readiness()?;
        Ok(status == 503 && text.contains("\"disk_full\""))
    })
}

fn read(address: SocketAddr, stop: &AtomicBool) -> Outcome<Seen> {
    let (mut connection, body) = (connect(address)?, body());
    let read = request("GET", &format!("{READ}?offset={}", offset(0)), &[], b"");
    let mut seen = Seen { reads: 0, silence: Duration::ZERO };
    let mut last = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        let answer = call(&mut connection, &read)?;
        if answer.status != 200 || answer.body != body {
            return Err(format!("a read on a full disk is answered {}", answer.status));
        }
        seen = Seen { reads: seen.reads + 1, silence: seen.silence.max(last.elapsed()) };
        if seen.silence > SILENCE_MAX {
            return Err(format!("reads stopped for {:.1?}", seen.silence));
        }
        last = Instant::now();
        std::thread::sleep(READ_PAUSE);
    }
    Ok(seen)
}

/// Deletes streams one after the other: every one is taken at once.
fn delete(address: SocketAddr, streams: std::ops::Range<usize>, report: &Report) -> Outcome<()> {
    let mut connection = connect(address)?;
    let (mut refused, asked) = (Vec::new(), streams.len());
    for stream in streams {
        let answer = call(&mut connection, &request("DELETE", &path(stream), &[], b""))?;
        match answer.status {
            204 => add(&report.lifecycle, 1),
            _ => refused.push(answer.shown()),
        }
    }
    match refused.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} of {asked} DELETEs are refused: {first}", refused.len())),
    }
}

/// A new stream gets an append; how long after `emptied`.
fn append_again(address: SocketAddr, emptied: Instant) -> Outcome<Duration> {
    let (mut connection, body) = (connect(address)?, body());
    loop {
        let answer = call(&mut connection, &request("PUT", "/fill/again", &[BINARY], &body))?;
        if answer.is_success() {
            return Ok(emptied.elapsed());
        }
        if emptied.elapsed() > APPEND_WITHIN {
            return Err(format!("no append is taken again: {}", answer.shown()));
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// Waits until most of the room is free; how long after `emptied`.
fn space_returns(disk: &Disk, room: u64, emptied: Instant) -> Outcome<Duration> {
    loop {
        let free = free_bytes(disk)?;
        if free >= room / 100 * SPACE_PERCENT {
            return Ok(emptied.elapsed());
        }
        if emptied.elapsed() > SPACE_WITHIN {
            return Err(format!("{} of {} MiB are free again", free >> 20, room >> 20));
        }
        std::thread::sleep(REFUSAL_PAUSE);
    }
}
