//! Readers of a long history on a disk that reads slowly. The appends of others do not wait for their reads.
//!
//! # How
//! History is written to a file system of its own. It is unmounted and mounted again, so that nothing of it is in
//! memory. Then four readers go through it while the system holds reads of the device back, and one client appends to
//! another stream of the same shard. Its appends are timed alone, beside these readers, and beside readers that come
//! again: their bytes have been compared with their checksums, but have left memory.

use crate::disk::Disk;
use crate::durations::{part, spread};
use crate::http::{offset, request};
use crate::report::{Report, add};
use crate::scenario::chunks::insist;
use crate::scenario::fill::{BINARY, call, connect};
use crate::server::{LOCAL, Start, files, quiet};
use crate::throttle::Throttle;
use crate::trial::{Options, Outcome, Verdict, in_threads};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DISK_MIB: u64 = 1024;
const READERS: usize = 4;
const APPEND_BYTES: usize = 60_000;
/// What the device reads in a second, for all readers together.
const SLOW_BYTES: u64 = 16 << 20;
const SLOW_READS: u64 = 200;
/// What is read beyond it: the system lets some through at first.
const BYTES_MARGIN: u64 = 8 << 20;
/// Appends to the stream of each reader, more than all of them can read in time, and how long they read.
const SHORT: (u64, Duration) = (600, Duration::from_secs(2));
const LONG: (u64, Duration) = (2_000, Duration::from_secs(10));
const APPEND_PAUSE: Duration = Duration::from_millis(2);
/// Half of the appends beside slow reads may take so much longer than alone. One that waits for a read takes hundreds
/// of milliseconds.
const DELAY_MAX: Duration = Duration::from_millis(15);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let made = Disk::make(&options.dir, "slow-reads", DISK_MIB);
    let mut disk = match made {
        Ok(disk) => disk,
        Err(missing) => return Ok(Verdict::Skipped(missing)),
    };
    if let Err(missing) = Throttle::make(disk.path()) {
        return Ok(Verdict::Skipped(missing));
    }
    let (appends, lasts) = if options.is_short { SHORT } else { LONG };
    let mut start = Start {
        binary: options.binary.clone(),
        data: disk.path().join("data"),
        log: options.dir.join("slow-reads.log"),
        flags: ["--shards=1", "--seal-bytes=1MiB", "--segment-bytes=4MiB", "--wal-bytes-max=16MiB"]
            .map(str::to_owned)
            .to_vec(),
        under: Vec::new(),
        host: LOCAL.to_owned(),
    };
    let server = start.serve()?;
    write_history(server.address, appends)?;
    add(&report.acknowledged, READERS as u64 * appends);
    server.stop()?;
    disk.unmount()?;
    disk.mount()?;
    // It may have another device now.
    let throttle = Throttle::make(disk.path())?;
    start.under = throttle.joining();
    start.flags.truncate(1);
    let server = start.serve()?;
    throttle.set(SLOW_BYTES, SLOW_READS)?;
    let measured = measure(server.address, (&throttle, &start.data), lasts);
    throttle.set(0, 0)?;
    measured?;
    server.stop()?;
    add(&report.cycles, 1);
    disk.unmount()?;
    Ok(Verdict::Done)
}

fn measure(
    address: SocketAddr,
    (throttle, data): (&Throttle, &Path),
    lasts: Duration,
) -> Outcome<()> {
    insist(&mut connect(address)?, &request("PUT", "/slow/other", &[BINARY], b""))?;
    let mut alone = append_for(address, lasts)?;
    println!("[slow-reads] appends alone: {}", shown(&mut alone));
    for what in ["slow reads", "slow reads of what had been read"] {
        let before = throttle.read_bytes()?;
        let (mut appends, mut reads) = with_readers(address, || append_for(address, lasts))?;
        let read_bytes = throttle.read_bytes()? - before;
        println!(
            "[slow-reads] appends beside {what}: {}; answers of 4 MiB at most: {}; {} MiB from the device",
            shown(&mut appends),
            shown(&mut reads),
            read_bytes >> 20
        );
        check(lasts, [part(&mut alone, 500), part(&mut appends, 500)], read_bytes)?;
        forget_cached(data)?;
    }
    Ok(())
}

/// Whether the device was busy all the time, and half of the appends took about as long beside slow reads as alone.
fn check(lasts: Duration, [alone, beside]: [Duration; 2], read_bytes: u64) -> Outcome<()> {
    let slow_bytes = SLOW_BYTES * lasts.as_secs();
    if !(slow_bytes / 2..slow_bytes * 2 + BYTES_MARGIN).contains(&read_bytes) {
        return Err(format!(
            "{read_bytes} bytes were read from the device, not about {slow_bytes}"
        ));
    }
    if beside > alone + DELAY_MAX {
        return Err(format!(
            "appends took {beside:.1?} beside slow reads and {alone:.1?} alone (p50)"
        ));
    }
    Ok(())
}

fn path(reader: usize) -> String {
    format!("/slow/{reader}")
}

fn write_history(address: SocketAddr, appends: u64) -> Outcome<()> {
    let write = |reader: usize| {
        let (mut connection, body) = (connect(address)?, vec![reader as u8; APPEND_BYTES]);
        insist(&mut connection, &request("PUT", &path(reader), &[BINARY], b""))?;
        let append = request("POST", &path(reader), &[BINARY], &body);
        (0..appends).try_for_each(|_| insist(&mut connection, &append).map(drop))
    };
    in_threads(0..READERS, write).map(drop)
}

/// Appends one after the other; how long each took.
fn append_for(address: SocketAddr, lasts: Duration) -> Outcome<Vec<Duration>> {
    let (mut connection, began) = (connect(address)?, Instant::now());
    let append = request("POST", "/slow/other", &[BINARY], &[7; 100]);
    let mut took = Vec::new();
    while began.elapsed() < lasts {
        let sent = Instant::now();
        insist(&mut connection, &append)?;
        took.push(sent.elapsed());
        std::thread::sleep(APPEND_PAUSE);
    }
    Ok(took)
}

/// Runs `during` beside the readers; its result, and how long each read took.
fn with_readers<T>(
    address: SocketAddr,
    during: impl FnOnce() -> Outcome<T>,
) -> Outcome<(T, Vec<Duration>)> {
    let (stop, took) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let result = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (stop, took) = (&stop, &took);
                scope.spawn(move || read_history(address, reader, (stop, took)))
            })
            .collect();
        let result = during();
        stop.store(true, Ordering::SeqCst);
        let mut readers = readers.into_iter();
        let read = readers.try_for_each(|reader| reader.join().expect("a reader does not panic"));
        read.and(result)
    });
    Ok((result?, took.into_inner().expect("no reader panics")))
}

fn read_history(
    address: SocketAddr,
    reader: usize,
    (stop, took): (&AtomicBool, &Mutex<Vec<Duration>>),
) -> Outcome<()> {
    let (mut connection, mut at) = (connect(address)?, 0);
    while !stop.load(Ordering::SeqCst) {
        let sent = Instant::now();
        let target = format!("{}?offset={}", path(reader), offset(at));
        let answer = call(&mut connection, &request("GET", &target, &[], b""))?;
        if answer.status == 200 && answer.body.is_empty() && answer.up_to_date {
            // The others have left it more than its part.
            return Ok(());
        }
        let is_right = answer.body.iter().all(|byte| usize::from(*byte) == reader);
        if answer.status != 200 || answer.body.is_empty() || !is_right {
            return Err(format!("a read at {at} is answered {}", answer.status));
        }
        took.lock().expect("no reader panics").push(sent.elapsed());
        at += answer.body.len() as u64;
    }
    Ok(())
}

/// Lets the bytes of all files go from memory. A merge may remove a file meanwhile.
fn forget_cached(dir: &Path) -> Outcome<()> {
    for file in files(dir) {
        let mut command = Command::new("dd");
        command.arg(format!("if={}", file.display())).args(["iflag=nocache", "count=0"]);
        if !quiet(&mut command) && file.exists() {
            return Err(format!("{} stays in memory", file.display()));
        }
    }
    Ok(())
}

fn shown(taken: &mut [Duration]) -> String {
    format!("{}, {}", taken.len(), spread(taken))
}
