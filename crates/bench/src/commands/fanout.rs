//! Latency from append to every one of many live readers of one stream.

use super::{Bench, Calls, MEDIA_TYPE};
use crate::cli::SseFanout;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::answer::Outline;
use crate::load::driver::Driver;
use crate::load::events::Follower;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use protocol::client::{Target, put_append, put_read};
use protocol::request::{Live, ReadOffset};
use std::time::{Duration, Instant};

const PATH: &str = "bench/fanout";
const SETUP_LIMIT: Duration = Duration::from_secs(60);
/// How long readers may take to get the last event.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Readers, and the connection of the writer behind them.
struct Fanout {
    driver: Driver,
    followers: Vec<Follower>,
    /// The number that each reader must get next.
    expected: Vec<u64>,
    payloads: Payloads,
    host: String,
    /// When each append was handed to the system.
    sent: Vec<Instant>,
    acknowledged: u64,
    deliveries: u64,
    out_of_order: u64,
    latencies: Latencies,
}

pub(super) fn run(bench: &Bench, asked: &SseFanout) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("sse-fanout", &server);
    run.setting("readers", asked.readers);
    run.setting("rate", asked.rate);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("seconds", asked.seconds);
    let calls = Calls::new(&server)?;
    calls.wait(calls.client.create(PATH, MEDIA_TYPE))?;

    let mut fanout = Fanout::new(&server, asked)?;
    fanout.follow()?;
    let gauge = Gauge::start(&server);
    fanout.publish(asked)?;
    let reading = gauge.stop();

    let published = fanout.sent.len() as u64;
    let wanted = published * asked.readers as u64;
    run.figure("appends acknowledged", fanout.acknowledged as f64, "");
    run.figure("deliveries", fanout.deliveries as f64, "");
    run.figure(
        "deliveries per second",
        fanout.deliveries as f64 / reading.elapsed.as_secs_f64(),
        "1/s",
    );
    fanout.latencies.report("delivery latency", &mut run);
    reading.report(fanout.deliveries, "delivery", &mut run);
    let Fanout { acknowledged, deliveries, out_of_order, .. } = fanout;
    run.check(format!("every append was acknowledged ({acknowledged})"), acknowledged == published);
    run.check(
        format!("every reader got every event ({deliveries} of {wanted})"),
        deliveries == wanted,
    );
    run.check(format!("events came in order ({out_of_order} did not)"), out_of_order == 0);
    Ok(run)
}

impl Fanout {
    fn new(server: &Server, asked: &SseFanout) -> Outcome<Self> {
        Ok(Self {
            driver: Driver::connect(server.address, asked.readers + 1)?,
            followers: (0..asked.readers).map(|_| Follower::new()).collect(),
            expected: vec![0; asked.readers],
            payloads: Payloads::new(asked.event_bytes),
            host: server.address.to_string(),
            sent: Vec::new(),
            acknowledged: 0,
            deliveries: 0,
            out_of_order: 0,
            latencies: Latencies::new(),
        })
    }

    /// Starts every reader and waits until each stands at the tail.
    fn follow(&mut self) -> Outcome<()> {
        let target = Target { host: &self.host, path: PATH };
        for socket in &mut self.driver.sockets[..self.followers.len()] {
            put_read(&mut socket.output, target, ReadOffset::Now, Live::Sse, None);
            socket.flush();
        }
        let deadline = Instant::now() + SETUP_LIMIT;
        while self.followers.iter().any(|follower| follower.controls == 0) {
            if Instant::now() > deadline {
                return Err(Failure::new("not every reader was answered"));
            }
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn publish(&mut self, asked: &SseFanout) -> Outcome<()> {
        let mut progress = Progress::start(format!("fan-out to {} readers", asked.readers));
        let total = (asked.rate * asked.seconds).ceil() as usize;
        let wanted = (total * asked.readers) as u64;
        self.driver.tick(Duration::from_secs_f64(1.0 / asked.rate))?;
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(asked.seconds) + DRAIN_LIMIT;
        while (self.deliveries < wanted || self.acknowledged < total as u64) && Instant::now() < end
        {
            let due = (start.elapsed().as_secs_f64() * asked.rate) as usize + 1;
            while self.sent.len() < due.min(total) {
                self.append();
            }
            self.turn(Duration::from_millis(20))?;
            progress.show(Instant::now(), self.deliveries, "deliveries");
        }
        Ok(())
    }

    fn append(&mut self) {
        let mut payload = Vec::with_capacity(self.payloads.bytes());
        self.payloads.put(self.sent.len() as u64, &mut payload);
        let writer = self.driver.sockets.last_mut().expect("the writer was connected");
        let target = Target { host: &self.host, path: PATH };
        put_append(&mut writer.output, target, MEDIA_TYPE, None, &payload);
        self.sent.push(Instant::now());
        writer.flush();
    }

    fn turn(&mut self, limit: Duration) -> Outcome<()> {
        let ready = self.driver.wait(limit)?;
        for &at in &ready {
            self.driver.fill(at);
            let now = Instant::now();
            if at == self.followers.len() {
                self.take_acknowledgements()?;
            } else {
                self.take_events(at, now)?;
            }
        }
        self.driver.done(ready);
        Ok(())
    }

    fn take_events(&mut self, at: usize, now: Instant) -> Outcome<()> {
        let socket = &mut self.driver.sockets[at];
        if socket.is_ended {
            return Err(Failure::new("a reader was cut off"));
        }
        let expected = &mut self.expected[at];
        self.followers[at].take(socket, |number| {
            self.out_of_order += u64::from(number != *expected);
            *expected = number + 1;
            if let Some(sent) = self.sent.get(number as usize) {
                self.deliveries += 1;
                self.latencies.record(now.saturating_duration_since(*sent));
            }
        })
    }

    fn take_acknowledgements(&mut self) -> Outcome<()> {
        let socket = self.driver.sockets.last_mut().expect("the writer was connected");
        loop {
            let outline = Outline::find(socket.input());
            let outline = outline.map_err(|_| Failure::new("the writer got no answer"))?;
            let Some(outline) = outline else { return Ok(()) };
            if socket.input().len() < outline.head_bytes + outline.body_bytes {
                return Ok(());
            }
            socket.consume(outline.head_bytes + outline.body_bytes);
            self.acknowledged += u64::from(outline.is_success());
        }
    }
}
