//! Slow readers of a long stream: what they cost in memory, and what others feel of them.

use super::{Bench, Calls, streams};
use crate::api::{Api, Live, MEDIA_TYPE, Read, ReadFrom};
use crate::cli::{SlowReaders, Via};
use crate::failure::{Doing, Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::events::Follower;
use crate::load::exchange::{Plan, exchange};
use crate::load::pages::PageReader;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::time::{Duration, Instant};
use streams::Filler;

/// The set of the one stream that is read.
const SET: &str = "long";
const STREAM: &str = "long-00000000";
const PROBE_PATH: &str = "bench/probe";
const PAYLOAD_BYTES: usize = 1 << 20;
const PROBE_BYTES: usize = 256;

/// A reader takes its share this often.
const TURN: Duration = Duration::from_millis(100);

/// A small window of the reader's system, so that it is slow from its first byte.
const RECEIVE_BYTES: usize = 64 << 10;

enum Reader {
    Pages(PageReader),
    Events(Follower),
}

pub(super) fn run(bench: &Bench, asked: &SlowReaders) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("slow-readers", &server);
    run.setting("stream-gib", asked.stream_gib);
    run.setting("readers", asked.readers);
    run.setting("bytes-per-second", asked.bytes_per_second);
    run.setting("seconds", asked.seconds);
    run.setting("via", if asked.via == Via::Get { "get" } else { "sse" });
    let calls = Calls::new(&server)?;
    for path in [STREAM, PROBE_PATH] {
        calls.wait(calls.client.create(path, MEDIA_TYPE))?;
    }
    let stream_bytes = fill(&server, asked, &mut run)?;
    let alone = probe_alone(&calls)?;
    alone.report("append of others before", &mut run);

    let gauge = Gauge::start(&server);
    let mut readers = Readers::start(&server, asked)?;
    let probes = readers.run(asked, &calls)?;
    let reading = gauge.stop();
    let read = readers.received_bytes;
    probes.report("append of others meanwhile", &mut run);
    if let Some(server) = &reading.server {
        let rise = server.peak_bytes as f64 - server.before_bytes as f64;
        run.figure("memory rise", rise / f64::from(1 << 20), "MiB");
        run.figure("memory rise per reader", rise / 1024.0 / asked.readers as f64, "KiB");
    }
    reading.report(read >> 20, "MiB read", &mut run);
    run.figure("bytes read", read as f64 / f64::from(1 << 20), "MiB");
    let broken = readers.driver.sockets.iter().filter(|socket| socket.is_ended).count();
    run.check(format!("no reader was cut off ({broken})"), broken == 0);
    let turns = (asked.seconds / TURN.as_secs_f64()) as u64;
    let share = asked.bytes_per_second as f64 * TURN.as_secs_f64() * turns as f64;
    let wanted = (share * asked.readers as f64).min(stream_bytes as f64 * asked.readers as f64);
    run.check("readers got at least half of what they could take", read as f64 >= wanted / 2.0);
    Ok(run)
}

fn fill(server: &Server, asked: &SlowReaders, run: &mut Run) -> Outcome<u64> {
    let bytes = asked.stream_gib * f64::from(1 << 30);
    let count = ((bytes / PAYLOAD_BYTES as f64) as u64).max(1);
    let mut filler = Filler::new(server, (SET, 1), count, &Payloads::new(PAYLOAD_BYTES), 1);
    // One connection, so that the order in the stream is that of the payloads.
    let mut driver = Driver::connect(server.address, 1)?;
    let plan = Plan { depth: 8, rate: None, duration: None };
    let mut progress = Progress::start(format!("filling a stream with {count} MiB"));
    let filled = exchange(&mut driver, &mut filler, plan, &mut progress)?;
    if filled.acknowledged != count {
        let (done, refusals) = (filled.acknowledged, filled.refusals());
        return Err(Failure::new(format!("{done} of {count} MiB were stored: {refusals}")));
    }
    run.figure("filling", filled.rate(), "MiB/s");
    Ok(count * PAYLOAD_BYTES as u64)
}

struct Readers {
    driver: Driver,
    readers: Vec<Reader>,
    api: Api,
    payloads: Payloads,
    received_bytes: u64,
}

impl Readers {
    fn start(server: &Server, asked: &SlowReaders) -> Outcome<Self> {
        let mut driver = Driver::empty()?;
        driver.add(server.address, asked.readers, Some(RECEIVE_BYTES))?;
        let api = server.api.clone();
        let mut readers = Vec::new();
        for socket in &mut driver.sockets {
            readers.push(match asked.via {
                Via::Get => {
                    let reader = PageReader::new(&api, None);
                    reader.ask(&api, STREAM, &mut socket.output);
                    Reader::Pages(reader)
                }
                Via::Sse => {
                    let from = &ReadFrom::Begin;
                    let read = Read { from, live: Live::Sse, cursor: None };
                    api.put_read(&mut socket.output, STREAM, read);
                    Reader::Events(Follower::new(api.style))
                }
            });
            socket.flush();
        }
        Ok(Self { driver, readers, api, payloads: Payloads::new(PAYLOAD_BYTES), received_bytes: 0 })
    }

    /// Lets every reader take its share each turn; one append of another client per turn is timed.
    fn run(&mut self, asked: &SlowReaders, calls: &Calls) -> Outcome<Latencies> {
        let share = (asked.bytes_per_second as f64 * TURN.as_secs_f64()) as usize;
        let mut probes = Latencies::new();
        let mut progress = Progress::start("slow readers");
        let start = Instant::now();
        let turns = (asked.seconds / TURN.as_secs_f64()) as u32;
        for turn in 1..=turns {
            std::thread::sleep((start + TURN * turn).saturating_duration_since(Instant::now()));
            for at in 0..self.readers.len() {
                self.take(at, share)?;
            }
            probes.record(probe(calls)?);
            progress.show(Instant::now(), self.received_bytes >> 10, "KiB read");
        }
        Ok(probes)
    }

    fn take(&mut self, at: usize, share: usize) -> Outcome<()> {
        let socket = &mut self.driver.sockets[at];
        self.received_bytes += socket.fill(&mut self.driver.scratch, share) as u64;
        let payloads = &self.payloads;
        match &mut self.readers[at] {
            Reader::Events(follower) => follower.take(socket, |_| {})?,
            Reader::Pages(reader) if !reader.is_done() => {
                let has_ended = reader.take(socket, |at, bytes| payloads.are_at(0, at, bytes))?;
                if has_ended && !reader.is_done() {
                    reader.ask(&self.api, STREAM, &mut socket.output);
                    socket.flush();
                }
            }
            Reader::Pages(_) => {}
        }
        Ok(())
    }
}

fn probe_alone(calls: &Calls) -> Outcome<Latencies> {
    let mut latencies = Latencies::new();
    for _ in 0..50 {
        latencies.record(probe(calls)?);
    }
    Ok(latencies)
}

/// One append of a client that has nothing to do with the readers.
fn probe(calls: &Calls) -> Outcome<Duration> {
    let start = Instant::now();
    let body = [b'p'; PROBE_BYTES];
    let done = calls.wait(calls.client.append(PROBE_PATH, MEDIA_TYPE, None, &body));
    done.doing(|| "an append of another client".to_owned())?;
    Ok(start.elapsed())
}
