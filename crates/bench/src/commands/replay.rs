//! Many clients read one stream from its beginning, all from the same moment.

use super::{Bench, Calls, MEDIA_TYPE};
use crate::cli::Replay;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::pages::PageReader;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use protocol::client::Target;
use std::time::{Duration, Instant};

const PATH: &str = "bench/replay";
const ROUND_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(bench: &Bench, asked: &Replay) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("replay", &server);
    run.setting("clients", asked.clients);
    run.setting("events", asked.events);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("rounds", asked.rounds);
    let payloads = Payloads::new(asked.event_bytes);
    let calls = Calls::new(&server)?;
    calls.wait(calls.client.create(PATH, MEDIA_TYPE))?;
    for number in 0..asked.events {
        let mut payload = Vec::new();
        payloads.put(number, &mut payload);
        calls.wait(calls.client.append(PATH, MEDIA_TYPE, None, &payload))?;
    }

    let host = server.address.to_string();
    let target = Target { host: &host, path: PATH };
    let mut driver = Driver::connect(server.address, asked.clients)?;
    let mut latencies = Latencies::new();
    let mut progress = Progress::start(format!("{} clients", asked.clients));
    let gauge = Gauge::start(&server);
    let mut spent = Duration::ZERO;
    for _ in 0..asked.rounds {
        spent += round(&mut driver, target, &payloads, &mut latencies)?;
        progress.show(Instant::now(), latencies.count(), "replays");
    }
    let reading = gauge.stop();
    let replays = latencies.count();
    let bytes = asked.events * payloads.bytes() as u64 * replays;
    run.figure("replays", replays as f64, "");
    run.figure("replays per second", replays as f64 / spent.as_secs_f64(), "1/s");
    let rate = bytes as f64 / spent.as_secs_f64() / f64::from(1 << 20);
    run.figure("bytes per second", rate, "MiB/s");
    latencies.report("replay latency", &mut run);
    reading.report(replays, "replay", &mut run);
    run.check("every client got every byte", replays == (asked.clients * asked.rounds) as u64);
    Ok(run)
}

/// One replay by every client; how long it took until the last had all.
fn round(
    driver: &mut Driver,
    target: Target<'_>,
    payloads: &Payloads,
    latencies: &mut Latencies,
) -> Outcome<Duration> {
    let mut readers: Vec<PageReader> =
        driver.sockets.iter().map(|_| PageReader::default()).collect();
    let start = Instant::now();
    for (reader, socket) in readers.iter().zip(&mut driver.sockets) {
        reader.ask(target, &mut socket.output);
        socket.flush();
    }
    let mut left = readers.len();
    while left > 0 {
        if start.elapsed() > ROUND_LIMIT {
            return Err(Failure::new(format!("{left} clients did not end in {ROUND_LIMIT:?}")));
        }
        let ready = driver.wait(Duration::from_millis(50))?;
        for &at in &ready {
            driver.fill(at);
            let (reader, socket) = (&mut readers[at], &mut driver.sockets[at]);
            while !reader.is_done() && reader.take(socket, payloads)? {
                if reader.is_done() {
                    latencies.record(start.elapsed());
                    left -= 1;
                } else {
                    reader.ask(target, &mut socket.output);
                    socket.flush();
                }
            }
            if socket.is_ended && !reader.is_done() {
                return Err(Failure::new("a client was cut off"));
            }
        }
        driver.done(ready);
    }
    Ok(start.elapsed())
}
