//! Latency from append to every one of many live readers of one stream.
//!
//! The latency begins when the append was due, and ends when a reader has its event.

use super::{Bench, streams};
use crate::api::{Live, Read, ReadFrom, stream_name};
use crate::cli::SseFanout;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::events::Follower;
use crate::load::publisher::Publisher;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::time::{Duration, Instant};

const SET: &str = "fanout";
const SETUP_LIMIT: Duration = Duration::from_secs(60);
/// Before the first append every reader shall wait: not every system says when it does.
const SETTLE: Duration = Duration::from_millis(300);
/// How long readers may take to get the last event.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Readers, and the connection of the writer behind them.
struct Fanout {
    driver: Driver,
    followers: Vec<Follower>,
    publisher: Publisher,
    /// The number that each reader must get next.
    expected: Vec<u64>,
    deliveries: u64,
    /// Events out of order, and bytes that are no event of ours.
    wrong: u64,
    latencies: Latencies,
}

pub(super) fn run(bench: &Bench, asked: &SseFanout) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("sse-fanout", &server);
    run.setting("readers", asked.readers);
    run.setting("rate", asked.rate);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("seconds", asked.seconds);
    streams::create(&server, SET, 1, (1, 1))?;

    let mut fanout = Fanout::new(&server, asked)?;
    fanout.follow(&server)?;
    let gauge = Gauge::start(&server);
    fanout.publish(asked)?;
    let reading = gauge.stop();

    let Fanout { ref publisher, deliveries, wrong, .. } = fanout;
    let (published, acknowledged) = (publisher.total(), publisher.acknowledged);
    let wanted = published * asked.readers as u64;
    run.figure("appends acknowledged", acknowledged as f64, "");
    run.figure("deliveries", deliveries as f64, "");
    let rate = deliveries as f64 / reading.elapsed.as_secs_f64();
    run.figure("deliveries per second", rate, "1/s");
    fanout.latencies.report("delivery latency", &mut run);
    reading.report(deliveries, "delivery", &mut run);
    run.check(
        format!("every append was acknowledged ({acknowledged} of {published})"),
        acknowledged == published,
    );
    run.check(
        format!("every reader got every event ({deliveries} of {wanted})"),
        deliveries == wanted,
    );
    run.check(format!("events came in order and unchanged ({wrong} did not)"), wrong == 0);
    Ok(run)
}

impl Fanout {
    fn new(server: &Server, asked: &SseFanout) -> Outcome<Self> {
        let style = server.api.style;
        let writer = asked.readers..asked.readers + 1;
        Ok(Self {
            driver: Driver::connect(server.address, writer.end)?,
            followers: (0..asked.readers).map(|_| Follower::new(style)).collect(),
            publisher: Publisher::new(server.api.clone(), (SET, 1), asked.event_bytes, writer),
            expected: vec![0; asked.readers],
            deliveries: 0,
            wrong: 0,
            latencies: Latencies::new(),
        })
    }

    /// Starts every reader and waits until each is at the tail.
    fn follow(&mut self, server: &Server) -> Outcome<()> {
        let stream = stream_name(SET, 0);
        let read = Read { from: &ReadFrom::Tail, live: Live::Sse, cursor: None };
        for socket in &mut self.driver.sockets[..self.followers.len()] {
            server.api.put_read(&mut socket.output, &stream, read);
            socket.flush();
        }
        let start = Instant::now();
        while !self.followers.iter().all(Follower::is_live) {
            if start.elapsed() > SETUP_LIMIT {
                let live = self.followers.iter().filter(|follower| follower.is_live()).count();
                return Err(Failure::new(format!("only {live} readers were answered")));
            }
            self.turn(Duration::from_millis(10))?;
        }
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn publish(&mut self, asked: &SseFanout) -> Outcome<()> {
        let mut progress = Progress::start(format!("fan-out to {} readers", asked.readers));
        self.publisher.start(&mut self.driver, asked.rate, asked.seconds)?;
        let wanted = self.publisher.total() * asked.readers as u64;
        let end = Instant::now() + Duration::from_secs_f64(asked.seconds) + DRAIN_LIMIT;
        while self.deliveries < wanted || !self.publisher.is_over() {
            if Instant::now() > end {
                break;
            }
            self.publisher.send_due(&mut self.driver);
            self.turn(Duration::from_millis(20))?;
            progress.show(Instant::now(), self.deliveries, "deliveries");
        }
        Ok(())
    }

    fn turn(&mut self, limit: Duration) -> Outcome<()> {
        let ready = self.driver.wait(limit)?;
        for &at in &ready {
            self.driver.fill(at);
            let now = Instant::now();
            if self.publisher.owns(at) {
                self.publisher.take(&mut self.driver, at)?;
            } else {
                self.take_events(at, now)?;
            }
        }
        self.driver.done(ready);
        Ok(())
    }

    fn take_events(&mut self, at: usize, now: Instant) -> Outcome<()> {
        let Self { driver, followers, publisher, expected, .. } = self;
        let socket = &mut driver.sockets[at];
        let (mut deliveries, mut wrong) = (0, 0);
        let latencies = &mut self.latencies;
        followers[at].take(socket, |data| {
            for payload in data.chunks(publisher.payloads.bytes()) {
                let Some((number, due)) = publisher.due(payload) else {
                    wrong += 1;
                    continue;
                };
                wrong += u64::from(number != expected[at]);
                expected[at] = number + 1;
                deliveries += 1;
                latencies.record(now.saturating_duration_since(due));
            }
        })?;
        self.deliveries += deliveries;
        self.wrong += wrong;
        if self.driver.sockets[at].is_ended {
            return Err(Failure::new("a reader was cut off"));
        }
        Ok(())
    }
}
