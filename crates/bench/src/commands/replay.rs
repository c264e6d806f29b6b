//! Many clients read a stream from its beginning, all from the same moment: one stream for all, or
//! one for each.

use super::{Bench, streams};
use crate::api::{Api, stream_name};
use crate::cli::Replay;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::exchange::{Plan, exchange};
use crate::load::pages::PageReader;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::time::{Duration, Instant};
use streams::Filler;

const SET: &str = "replay";
const ROUND_LIMIT: Duration = Duration::from_secs(120);
/// Connections that fill the streams, each of which is filled by one.
const FILLERS: u64 = 32;

/// What every client reads.
struct Library {
    api: Api,
    payloads: Payloads,
    streams: u64,
    events: u64,
}

pub(super) fn run(bench: &Bench, asked: &Replay) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("replay", &server);
    run.setting("clients", asked.clients);
    run.setting("own-stream", asked.own_stream);
    run.setting("events", asked.events);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("rounds", asked.rounds);
    let library = Library::fill(&server, asked)?;

    let mut driver = Driver::connect(server.address, asked.clients)?;
    let mut latencies = Latencies::new();
    let mut progress = Progress::start(format!("{} clients", asked.clients));
    let gauge = Gauge::start(&server);
    let mut spent = Duration::ZERO;
    for _ in 0..asked.rounds {
        spent += library.round(&mut driver, &mut latencies)?;
        progress.show(Instant::now(), latencies.count(), "replays");
    }
    let reading = gauge.stop();
    let replays = latencies.count();
    let bytes = library.stream_bytes() * replays;
    run.figure("replays", replays as f64, "");
    run.figure("replays per second", replays as f64 / spent.as_secs_f64(), "1/s");
    let rate = bytes as f64 / spent.as_secs_f64() / f64::from(1 << 20);
    run.figure("bytes per second", rate, "MiB/s");
    latencies.report("replay latency", &mut run);
    reading.report(replays, "replay", &mut run);
    if let Some(server) = &reading.server {
        let per_gib = server.cpu.as_secs_f64() / (bytes as f64 / f64::from(1 << 30));
        run.figure("server CPU per GiB", per_gib, "s");
    }
    run.check("every client got every byte", replays == (asked.clients * asked.rounds) as u64);
    Ok(run)
}

impl Library {
    fn fill(server: &Server, asked: &Replay) -> Outcome<Self> {
        let streams = if asked.own_stream { asked.clients as u64 } else { 1 };
        let payloads = Payloads::new(asked.event_bytes);
        let connections = streams.min(FILLERS) as usize;
        streams::create(server, SET, streams, (connections, 1))?;
        let mut filler = Filler::new(server, (SET, streams), asked.events, &payloads, connections);
        let mut driver = Driver::connect(server.address, connections)?;
        let plan = Plan { depth: 1, rate: None, duration: Some(streams::SETUP_LIMIT) };
        let mut progress = Progress::start(format!("filling {streams} streams"));
        let filled = exchange(&mut driver, &mut filler, plan, &mut progress)?;
        let (done, wanted) = (filled.acknowledged, streams * asked.events);
        if done != wanted {
            let (spent, refusals) = (filled.elapsed, filled.refusals());
            return Err(Failure::new(format!(
                "{done} of {wanted} events were stored in {spent:?}; {refusals}"
            )));
        }
        Ok(Self { api: server.api.clone(), payloads, streams, events: asked.events })
    }

    fn stream_bytes(&self) -> u64 {
        self.events * self.payloads.bytes() as u64
    }

    /// One replay by every client; how long it took until the last had all.
    fn round(&self, driver: &mut Driver, latencies: &mut Latencies) -> Outcome<Duration> {
        let reader = || PageReader::new(&self.api, Some(self.stream_bytes()));
        let mut readers: Vec<PageReader> = driver.sockets.iter().map(|_| reader()).collect();
        let start = Instant::now();
        (0..readers.len()).for_each(|at| self.ask(driver, &readers[at], at));
        let mut left = readers.len();
        while left > 0 {
            if start.elapsed() > ROUND_LIMIT {
                return Err(Failure::new(format!("{left} clients did not end in {ROUND_LIMIT:?}")));
            }
            let ready = driver.wait(Duration::from_millis(50))?;
            for &at in &ready {
                driver.fill(at);
                if self.take(driver, &mut readers[at], at)? {
                    latencies.record(start.elapsed());
                    left -= 1;
                }
            }
            driver.done(ready);
        }
        Ok(start.elapsed())
    }

    fn stream_of(&self, client: usize) -> u64 {
        client as u64 % self.streams
    }

    fn ask(&self, driver: &mut Driver, reader: &PageReader, at: usize) {
        let socket = &mut driver.sockets[at];
        reader.ask(&self.api, &stream_name(SET, self.stream_of(at)), &mut socket.output);
        socket.flush();
    }

    /// Takes what has come for client `at`; whether it has all now.
    fn take(&self, driver: &mut Driver, reader: &mut PageReader, at: usize) -> Outcome<bool> {
        let first = self.stream_of(at) * self.events;
        while !reader.is_done() {
            let socket = &mut driver.sockets[at];
            let right = |position, bytes: &[u8]| self.payloads.are_at(first, position, bytes);
            if !reader.take(socket, right)? {
                if socket.is_ended {
                    return Err(Failure::new("a client was cut off"));
                }
                return Ok(false);
            }
            if reader.is_done() {
                return self.is_whole(reader).map(|()| true);
            }
            self.ask(driver, reader, at);
        }
        Ok(false)
    }

    fn is_whole(&self, reader: &PageReader) -> Outcome<()> {
        let (got, wanted) = (reader.position, self.stream_bytes());
        if got == wanted {
            return Ok(());
        }
        Err(Failure::new(format!("a client got {got} of {wanted} bytes")))
    }
}
