//! Writers, readers of whole histories and live readers of the same streams, in one run.
//!
//! Each stream has a writer's share of the appends, one reader that reads it from its beginning again and
//! again, and one live reader. Latencies of writes and events begin when the append was due.

use super::{Bench, streams};
use crate::api::{Api, Live, Read, ReadFrom, stream_name};
use crate::cli::Mixed;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::events::Follower;
use crate::load::pages::{Collector, PageReader};
use crate::load::publisher::Publisher;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::time::{Duration, Instant};

const SET: &str = "mixed";
const SETUP_LIMIT: Duration = Duration::from_secs(60);
/// Before the first append every live reader shall wait: not every system says when it does.
const SETTLE: Duration = Duration::from_millis(300);
/// How long answers may take to come after the last append.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Connections of one driver: live readers, then readers of histories, then writers.
struct Load {
    driver: Driver,
    api: Api,
    followers: Vec<Follower>,
    readers: Vec<PageReader>,
    /// Since when each reader reads.
    since: Vec<Instant>,
    publisher: Publisher,
    is_reading: bool,
    found: Found,
}

/// What was counted.
struct Found {
    reads: u64,
    read_bytes: u64,
    events: u64,
    /// Bytes that are no event of their stream.
    wrong: u64,
    reading: Latencies,
    delivery: Latencies,
}

pub(super) fn run(bench: &Bench, asked: &Mixed) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("mixed", &server);
    run.setting("streams", asked.streams);
    run.setting("rate", asked.rate);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("seconds", asked.seconds);
    streams::create(&server, SET, asked.streams as u64, (asked.streams.min(16), 1))?;
    let mut load = Load::new(&server, asked)?;
    load.follow()?;
    let gauge = Gauge::start(&server);
    load.publish(asked)?;
    let reading = gauge.stop();
    let (found, publisher) = (&load.found, &load.publisher);
    let seconds = reading.elapsed.as_secs_f64();
    let (published, acknowledged) = (publisher.total(), publisher.acknowledged);
    run.figure("appends acknowledged", acknowledged as f64, "");
    run.figure("reads", found.reads as f64, "");
    run.figure("reads per second", found.reads as f64 / seconds, "1/s");
    let rate = found.read_bytes as f64 / seconds / f64::from(1 << 20);
    run.figure("bytes per second", rate, "MiB/s");
    found.reading.report("read latency", &mut run);
    publisher.latencies.report("append latency", &mut run);
    found.delivery.report("delivery latency", &mut run);
    reading.report(found.reads, "read", &mut run);
    run.check(
        format!("every append was acknowledged ({acknowledged} of {published})"),
        acknowledged == published,
    );
    let events = found.events;
    run.check(format!("every event came ({events} of {published})"), events == published);
    let wrong = found.wrong;
    run.check(format!("nothing wrong came ({wrong})"), wrong == 0);
    let stored = load.count_stored(&server)?;
    run.check(format!("every append is stored once ({stored:?})"), stored == Some(published));
    Ok(run)
}

impl Load {
    fn new(server: &Server, asked: &Mixed) -> Outcome<Self> {
        let (api, streams) = (server.api.clone(), asked.streams);
        let set = (SET, streams as u64);
        let writers = 2 * streams..3 * streams;
        Ok(Self {
            driver: Driver::connect(server.address, writers.end)?,
            followers: (0..streams).map(|_| Follower::new(api.style)).collect(),
            readers: (0..streams).map(|_| PageReader::new(&api, None)).collect(),
            since: vec![Instant::now(); streams],
            publisher: Publisher::new(api.clone(), set, asked.event_bytes, writers),
            api,
            is_reading: true,
            found: Found {
                reads: 0,
                read_bytes: 0,
                events: 0,
                wrong: 0,
                reading: Latencies::new(),
                delivery: Latencies::new(),
            },
        })
    }

    /// Starts every live reader and waits until each is at the tail.
    fn follow(&mut self) -> Outcome<()> {
        let read = Read { from: &ReadFrom::Tail, live: Live::Sse, cursor: None };
        for (at, socket) in self.driver.sockets[..self.followers.len()].iter_mut().enumerate() {
            self.api.put_read(&mut socket.output, &stream_name(SET, at as u64), read);
            socket.flush();
        }
        let start = Instant::now();
        while !self.followers.iter().all(Follower::is_live) {
            if start.elapsed() > SETUP_LIMIT {
                return Err(Failure::new("not every live reader was answered"));
            }
            self.turn(Duration::from_millis(10))?;
        }
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn publish(&mut self, asked: &Mixed) -> Outcome<()> {
        let mut progress = Progress::start(format!("mixed load on {} streams", asked.streams));
        self.publisher.start(&mut self.driver, asked.rate, asked.seconds)?;
        (0..self.readers.len()).for_each(|reader| self.begin_read(reader));
        let last = Instant::now() + Duration::from_secs_f64(asked.seconds);
        let mut left = self.readers.len();
        while left > 0 || self.found.events < self.publisher.total() || !self.publisher.is_over() {
            let now = Instant::now();
            self.is_reading = now < last;
            if now > last + DRAIN_LIMIT {
                break;
            }
            self.publisher.send_due(&mut self.driver);
            left -= self.turn(Duration::from_millis(20))?;
            progress.show(now, self.found.reads, "reads");
        }
        Ok(())
    }

    fn begin_read(&mut self, reader: usize) {
        self.since[reader] = Instant::now();
        self.readers[reader] = PageReader::new(&self.api, None);
        self.ask(reader);
    }

    fn ask(&mut self, reader: usize) {
        let socket = &mut self.driver.sockets[self.followers.len() + reader];
        self.readers[reader].ask(&self.api, &stream_name(SET, reader as u64), &mut socket.output);
        socket.flush();
    }

    /// Takes what has come; how many readers have read for the last time.
    fn turn(&mut self, limit: Duration) -> Outcome<usize> {
        let ready = self.driver.wait(limit)?;
        let (followers, mut ended) = (self.followers.len(), 0);
        for &at in &ready {
            self.driver.fill(at);
            if self.publisher.owns(at) {
                self.publisher.take(&mut self.driver, at)?;
            } else if at < followers {
                self.take_events(at)?;
            } else {
                ended += usize::from(self.take_pages(at - followers)?);
            }
        }
        self.driver.done(ready);
        Ok(ended)
    }

    fn take_events(&mut self, at: usize) -> Outcome<()> {
        let Self { driver, followers, publisher, found, .. } = self;
        let (now, streams) = (Instant::now(), followers.len() as u64);
        followers[at].take(&mut driver.sockets[at], |data| {
            for payload in data.chunks(publisher.payloads.bytes()) {
                let here = |(number, _): &(u64, Instant)| number % streams == at as u64;
                match publisher.due(payload).filter(here) {
                    Some((_, due)) => {
                        found.events += 1;
                        found.delivery.record(now.saturating_duration_since(due));
                    }
                    None => found.wrong += 1,
                }
            }
        })?;
        if driver.sockets[at].is_ended {
            return Err(Failure::new("a live reader was cut off"));
        }
        Ok(())
    }

    /// Takes what has come for a reader of histories; whether it has read for the last time.
    fn take_pages(&mut self, reader: usize) -> Outcome<bool> {
        let at = self.followers.len() + reader;
        loop {
            let socket = &mut self.driver.sockets[at];
            if !self.readers[reader].take(socket, |_, _| true)? {
                if socket.is_ended {
                    return Err(Failure::new("a reader was cut off"));
                }
                return Ok(false);
            }
            if !self.readers[reader].is_done() {
                self.ask(reader);
                continue;
            }
            let bytes = self.readers[reader].position;
            self.found.wrong += bytes % self.publisher.payloads.bytes() as u64;
            self.found.reads += 1;
            self.found.read_bytes += bytes;
            self.found.reading.record(self.since[reader].elapsed());
            if !self.is_reading {
                return Ok(true);
            }
            self.begin_read(reader);
        }
    }

    /// Appends that the streams hold; `None` if anything else is there.
    fn count_stored(&self, server: &Server) -> Outcome<Option<u64>> {
        let mut collector = Collector::new(server)?;
        let (streams, mut numbers) = (self.followers.len() as u64, Vec::new());
        for stream in 0..streams {
            let data = collector.read_all(&stream_name(SET, stream))?;
            for payload in data.chunks(self.publisher.payloads.bytes()) {
                match self.publisher.due(payload) {
                    Some((number, _)) if number % streams == stream => numbers.push(number),
                    _ => return Ok(None),
                }
            }
        }
        let count = numbers.len() as u64;
        numbers.sort_unstable();
        numbers.dedup();
        Ok((numbers.len() as u64 == count).then_some(count))
    }
}
