//! Histories that were written a moment ago, each read whole: first once, then again and again.
//!
//! Appends go to all streams in turn, so those of one stream lie apart in a log that streams share.

use super::{Bench, streams};
use crate::api::{Api, stream_name};
use crate::cli::Recent;
use crate::failure::{Failure, Outcome};
use crate::gauge::{Gauge, Reading};
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::exchange::{Plan, exchange};
use crate::load::pages::PageReader;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use streams::Filler;

const SET: &str = "recent";
/// Connections that fill the streams, each of which is filled by one.
const FILLERS: u64 = 32;
/// How long one reading may take after its time.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// What is read.
#[derive(Debug, Clone)]
struct Histories {
    address: SocketAddr,
    api: Api,
    payloads: Payloads,
    streams: u64,
    events: u64,
}

/// One thread's connections: `first`, `first + 1` and so on of `of` in all.
#[derive(Debug, Clone, Copy)]
struct Share {
    first: usize,
    count: usize,
    of: usize,
}

/// How long to read.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// Each stream once.
    EachWasRead,
    Time(Instant),
}

pub(super) fn run(bench: &Bench, asked: &Recent) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("recent", &server);
    run.setting("streams", asked.streams);
    run.setting("events", asked.events);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("connections", asked.connections);
    run.setting("client-threads", asked.client_threads);
    run.setting("seconds", asked.seconds);
    let histories = Histories::fill(&server, asked)?;
    let gauge = Gauge::start(&server);
    let first = histories.read_all(asked, Until::EachWasRead)?;
    let reading = gauge.stop();
    histories.report("first read", (&first, &reading), &mut run);
    if let Some(server) = reading.server {
        let us = server.cpu.as_secs_f64() * 1e6 / asked.streams as f64;
        run.figure("server CPU per first read", us, "µs");
    }
    let gauge = Gauge::start(&server);
    let end = Instant::now() + Duration::from_secs_f64(asked.seconds);
    let repeated = histories.read_all(asked, Until::Time(end))?;
    let reading = gauge.stop();
    histories.report("read", (&repeated, &reading), &mut run);
    reading.report(repeated.count(), "read", &mut run);
    run.check("every reader got every byte", first.count() == asked.streams);
    Ok(run)
}

impl Histories {
    fn fill(server: &Server, asked: &Recent) -> Outcome<Self> {
        let Recent { streams, events, event_bytes, .. } = *asked;
        let payloads = Payloads::new(event_bytes);
        let connections = streams.min(FILLERS) as usize;
        streams::create(server, SET, streams, (connections, 4))?;
        let filler = Filler::new(server, (SET, streams), events, &payloads, connections);
        let mut filler = filler.in_turn();
        let mut driver = Driver::connect(server.address, connections)?;
        let plan = Plan { depth: 1, rate: None, duration: Some(streams::SETUP_LIMIT) };
        let mut progress = Progress::start(format!("filling {streams} streams"));
        let filled = exchange(&mut driver, &mut filler, plan, &mut progress)?;
        filled.check_all_acknowledged()?;
        if filled.acknowledged != streams * events {
            let (done, spent) = (filled.acknowledged, filled.elapsed);
            return Err(Failure::new(format!("only {done} events were stored in {spent:?}")));
        }
        let (address, api) = (server.address, server.api.clone());
        Ok(Self { address, api, payloads, streams, events })
    }

    fn stream_bytes(&self) -> u64 {
        self.events * self.payloads.bytes() as u64
    }

    /// Reads on all connections, which the threads share evenly.
    fn read_all(&self, asked: &Recent, until: Until) -> Outcome<Latencies> {
        let (of, threads) = (asked.connections, asked.client_threads.min(asked.connections));
        let share = |thread: usize| {
            let (first, end) = (of * thread / threads, of * (thread + 1) / threads);
            Share { first, count: end - first, of }
        };
        let mut latencies = Latencies::new();
        let others = (1..threads).map(|thread| {
            let (histories, share) = (self.clone(), share(thread));
            std::thread::spawn(move || Readers::new(&histories, share)?.read(until))
        });
        let others: Vec<_> = others.collect();
        latencies.add(&Readers::new(self, share(0))?.read(until)?);
        for other in others {
            let read = other.join().map_err(|_| Failure::new("a thread of readers panicked"))?;
            latencies.add(&read?);
        }
        Ok(latencies)
    }

    fn report(&self, of: &str, (latencies, reading): (&Latencies, &Reading), run: &mut Run) {
        let count = latencies.count();
        let seconds = reading.elapsed.as_secs_f64();
        run.figure(format!("{of}s"), count as f64, "");
        run.figure(format!("{of}s per second"), count as f64 / seconds, "1/s");
        let bytes = (count * self.stream_bytes()) as f64;
        run.figure(format!("{of} bytes per second"), bytes / seconds / f64::from(1 << 20), "MiB/s");
        latencies.report(&format!("{of} latency"), run);
    }
}

/// The readers of one thread.
struct Readers<'a> {
    histories: &'a Histories,
    share: Share,
    driver: Driver,
    readers: Vec<PageReader>,
    /// The stream that each reads, counted on beyond the last one, and since when.
    streams: Vec<(u64, Instant)>,
    latencies: Latencies,
}

impl<'a> Readers<'a> {
    fn new(histories: &'a Histories, share: Share) -> Outcome<Self> {
        let first = share.first as u64;
        let now = Instant::now();
        let end = Some(histories.stream_bytes());
        Ok(Self {
            histories,
            share,
            driver: Driver::connect(histories.address, share.count)?,
            readers: (0..share.count).map(|_| PageReader::new(&histories.api, end)).collect(),
            streams: (0..share.count as u64).map(|at| (first + at, now)).collect(),
            latencies: Latencies::new(),
        })
    }

    fn read(mut self, until: Until) -> Outcome<Latencies> {
        let start = Instant::now();
        let mut left = (0..self.readers.len()).filter(|at| self.begin(*at, until)).count();
        while left > 0 {
            let limit = if let Until::Time(end) = until { end.max(start) } else { start };
            if limit.elapsed() > DRAIN_LIMIT {
                return Err(Failure::new(format!("{left} readers did not end")));
            }
            let ready = self.driver.wait(Duration::from_millis(50))?;
            for &at in &ready {
                self.driver.fill(at);
                left -= usize::from(self.take(at, until)?);
            }
            self.driver.done(ready);
        }
        Ok(self.latencies)
    }

    /// Asks for the next stream of reader `at`; `false` if it has read enough.
    fn begin(&mut self, at: usize, until: Until) -> bool {
        let (stream, since) = &mut self.streams[at];
        *since = Instant::now();
        let is_over = match until {
            Until::EachWasRead => *stream >= self.histories.streams,
            Until::Time(end) => *since >= end,
        };
        if is_over {
            return false;
        }
        let end = Some(self.histories.stream_bytes());
        self.readers[at] = PageReader::new(&self.histories.api, end);
        self.ask(at);
        true
    }

    fn stream_of(&self, at: usize) -> u64 {
        self.streams[at].0 % self.histories.streams
    }

    fn ask(&mut self, at: usize) {
        let name = stream_name(SET, self.stream_of(at));
        let socket = &mut self.driver.sockets[at];
        self.readers[at].ask(&self.histories.api, &name, &mut socket.output);
        socket.flush();
    }

    /// Takes what has come for reader `at`; whether it has read enough.
    fn take(&mut self, at: usize, until: Until) -> Outcome<bool> {
        let histories = self.histories;
        loop {
            let first = self.stream_of(at) * histories.events;
            let socket = &mut self.driver.sockets[at];
            let right = |position, bytes: &[u8]| histories.payloads.are_at(first, position, bytes);
            if !self.readers[at].take(socket, right)? {
                if socket.is_ended {
                    return Err(Failure::new("a reader was cut off"));
                }
                return Ok(false);
            }
            if !self.readers[at].is_done() {
                self.ask(at);
                continue;
            }
            let (got, wanted) = (self.readers[at].position, histories.stream_bytes());
            if got != wanted {
                return Err(Failure::new(format!("a reader got {got} of {wanted} bytes")));
            }
            self.latencies.record(self.streams[at].1.elapsed());
            self.streams[at].0 += self.share.of as u64;
            if !self.begin(at, until) {
                return Ok(true);
            }
        }
    }
}
