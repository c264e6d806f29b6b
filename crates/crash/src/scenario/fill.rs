//! A disk is filled through the API and emptied through the API: no outside help, default settings.
//!
//! Every DELETE is taken on a full disk, before and after a restart. The service and the space come
//! back by themselves, reads never stop, and `/readyz` says what is wrong.

use crate::disk::Disk;
use crate::http::{Answer, Connection, offset, request};
use crate::report::{Report, add};
use crate::server::{LOCAL, Server, Start};
use crate::trial::{Options, Outcome, Verdict, wait_until};
use env::{Disk as _, RealDisk};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sizes of the file systems, and the one of a short run.
const SIZES_MIB: [u64; 5] = [200, 500, 900, 1400, 4096];
const SHORT_MIB: u64 = 300;
const STREAM_COUNT: usize = 100;
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

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let sizes = if options.is_short { &[SHORT_MIB][..] } else { &SIZES_MIB };
    for mib in sizes {
        let mut disk = match small_disk(&options.dir, *mib) {
            Ok(disk) => disk,
            Err(missing) => return Ok(Verdict::Skipped(missing)),
        };
        one(options, report, &disk, *mib).map_err(|what| format!("{mib} MiB: {what}"))?;
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

fn one(options: &Options, report: &Report, disk: &Disk, mib: u64) -> Outcome<()> {
    let room = free_bytes(disk)?;
    let start = Start {
        binary: options.binary.clone(),
        data: disk.path().join("data"),
        log: options.dir.join("fill.log"),
        flags: Vec::new(),
        under: Vec::new(),
        host: LOCAL.to_owned(),
    };
    let server = start.serve()?;
    let started = Instant::now();
    let appends = fill(server.address, report)?;
    let filled = started.elapsed();
    says_that_it_is_full(&server)?;
    with_reader(server.address, || delete(server.address, 1..STREAM_COUNT / 2, report))?;
    server.kill()?;

    let server = start.serve()?;
    let rest = STREAM_COUNT / 2..STREAM_COUNT;
    with_reader(server.address, || delete(server.address, rest, report))?;
    delete(server.address, 0..1, report)?;
    let emptied = Instant::now();
    let served = append_again(server.address, emptied)?;
    let freed = space_returns(disk, room, emptied)?;
    wait_until("the server is ready again", || Ok(server.readiness()?.0 == 200))?;
    server.stop()?;
    println!(
        "[fill] {mib} MiB: full after {appends} appends and {:.1} s, {STREAM_COUNT} deletes taken; then an \
         append after {:.2} s, {SPACE_PERCENT} % free after {:.1} s",
        filled.as_secs_f64(),
        served.as_secs_f64(),
        freed.as_secs_f64(),
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

/// Writes to all streams until the disk is full; how many appends were acknowledged.
fn fill(address: SocketAddr, report: &Report) -> Outcome<u64> {
    let mut connection = connect(address)?;
    for stream in 0..STREAM_COUNT {
        let answer = call(&mut connection, &request("PUT", &path(stream), &[BINARY], b""))?;
        if answer.status != 201 {
            return Err(format!("a stream is not created: {}", answer.shown()));
        }
    }
    let appends = std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITER_COUNT).map(|writer| scope.spawn(move || write(address, writer))).collect();
        let counts = writers.into_iter().map(|w| w.join().expect("a writer does not panic"));
        counts.sum::<Outcome<u64>>()
    })?;
    add(&report.acknowledged, appends);
    Ok(appends)
}

fn write(address: SocketAddr, writer: usize) -> Outcome<u64> {
    let (mut connection, body) = (connect(address)?, body());
    let streams = (0..STREAM_COUNT).skip(writer).step_by(WRITER_COUNT).cycle();
    let (mut taken, mut refusals) = (0, 0);
    for stream in streams {
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

/// Runs `during` while the first stream is read all the time.
fn with_reader(address: SocketAddr, during: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(address, &stop));
        let result = during();
        stop.store(true, Ordering::SeqCst);
        let read = reader.join().expect("the reader does not panic");
        result.and(read)
    })
}

fn read(address: SocketAddr, stop: &AtomicBool) -> Outcome<()> {
    let (mut connection, body) = (connect(address)?, body());
    let tail = call(&mut connection, &request("HEAD", &path(0), &[], b""))?.next.unwrap_or(0);
    let last = tail.checked_sub(APPEND_BYTES as u64).ok_or("the first stream has no append")?;
    let target = format!("{}?offset={}", path(0), offset(last));
    loop {
        let answer = call(&mut connection, &request("GET", &target, &[], b""))?;
        if answer.status != 200 || answer.body != body {
            return Err(format!("a read on a full disk is answered {}", answer.status));
        }
        if stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        std::thread::sleep(RETRY_PAUSE);
    }
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
