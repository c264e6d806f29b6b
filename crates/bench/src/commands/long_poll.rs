//! Latency from append to the one long-poll that waits for it, over many streams.
//!
//! The latency begins when the append was due, and ends when its reader has it.

use super::{Bench, streams};
use crate::api::{Api, Content, Live, Read, ReadFrom, stream_name};
use crate::cli::LongPoll;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::body::{Body, Head};
use crate::load::driver::Driver;
use crate::load::publisher::Publisher;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::time::{Duration, Instant};

const SET: &str = "poll";
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Before the first append every reader shall wait.
const SETTLE: Duration = Duration::from_millis(300);

/// One reader and its position.
#[derive(Debug)]
struct Reader {
    from: ReadFrom,
    cursor: Option<Box<str>>,
    content: Content,
    /// The answer in progress; none while its head is awaited.
    answer: Option<Body>,
    /// What has come of it.
    data: Vec<u8>,
}

/// One reader per stream, and the connections of the writers behind them.
struct Polls {
    driver: Driver,
    api: Api,
    readers: Vec<Reader>,
    publisher: Publisher,
    deliveries: u64,
    wrong: u64,
    empty_answers: u64,
    latencies: Latencies,
}

pub(super) fn run(bench: &Bench, asked: &LongPoll) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("long-poll", &server);
    run.setting("streams", asked.streams);
    run.setting("rate", asked.rate);
    run.setting("writers", asked.writers);
    run.setting("event-bytes", asked.event_bytes);
    run.setting("seconds", asked.seconds);
    streams::create(&server, SET, asked.streams as u64, (16.min(asked.streams), 1))?;
    let mut polls = Polls::new(&server, asked)?;
    polls.start()?;
    let gauge = Gauge::start(&server);
    polls.publish(asked)?;
    let reading = gauge.stop();

    let Polls { ref publisher, deliveries, wrong, empty_answers, ref latencies, .. } = polls;
    let (published, acknowledged) = (publisher.total(), publisher.acknowledged);
    run.figure("appends acknowledged", acknowledged as f64, "");
    run.figure("deliveries", deliveries as f64, "");
    run.figure("polls answered without data", empty_answers as f64, "");
    latencies.report("delivery latency", &mut run);
    reading.report(deliveries, "delivery", &mut run);
    run.check(
        format!("every append was acknowledged ({acknowledged} of {published})"),
        acknowledged == published,
    );
    run.check(
        format!("every append was delivered ({deliveries} of {published})"),
        deliveries == published,
    );
    run.check(format!("nothing wrong was delivered ({wrong})"), wrong == 0);
    Ok(run)
}

impl Polls {
    fn new(server: &Server, asked: &LongPoll) -> Outcome<Self> {
        let api = server.api.clone();
        let set = (SET, asked.streams as u64);
        let writers = asked.streams..asked.streams + asked.writers.max(1);
        Ok(Self {
            driver: Driver::connect(server.address, writers.end)?,
            readers: (0..asked.streams).map(|_| Reader::new(&api)).collect(),
            publisher: Publisher::new(api.clone(), set, asked.event_bytes, writers),
            api,
            deliveries: 0,
            wrong: 0,
            empty_answers: 0,
            latencies: Latencies::new(),
        })
    }

    fn start(&mut self) -> Outcome<()> {
        (0..self.readers.len()).for_each(|at| self.poll(at));
        let start = Instant::now();
        while start.elapsed() < SETTLE {
            self.turn(Duration::from_millis(20))?;
        }
        Ok(())
    }

    fn poll(&mut self, at: usize) {
        let stream = stream_name(SET, at as u64);
        let Reader { from, cursor, .. } = &self.readers[at];
        let socket = &mut self.driver.sockets[at];
        let read = Read { from, live: Live::LongPoll, cursor: cursor.as_deref() };
        self.api.put_read(&mut socket.output, &stream, read);
        socket.flush();
    }

    fn publish(&mut self, asked: &LongPoll) -> Outcome<()> {
        let mut progress = Progress::start(format!("long-polls on {} streams", asked.streams));
        self.publisher.start(&mut self.driver, asked.rate, asked.seconds)?;
        let end = Instant::now() + Duration::from_secs_f64(asked.seconds) + DRAIN_LIMIT;
        while self.deliveries < self.publisher.total() || !self.publisher.is_over() {
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
                continue;
            }
            let has_ended = self.readers[at].take(&mut self.driver, at)?;
            if has_ended {
                self.count(at, now);
                self.poll(at);
            } else if self.driver.sockets[at].is_ended {
                return Err(Failure::new("a reader was cut off"));
            }
        }
        self.driver.done(ready);
        Ok(())
    }

    /// Counts what reader `at` has got.
    fn count(&mut self, at: usize, now: Instant) {
        let data = std::mem::take(&mut self.readers[at].data);
        self.empty_answers += u64::from(data.is_empty());
        let streams = self.readers.len() as u64;
        for payload in data.chunks(self.publisher.payloads.bytes()) {
            let here = |(number, _): &(u64, Instant)| number % streams == at as u64;
            match self.publisher.due(payload).filter(here) {
                Some((_, due)) => {
                    self.deliveries += 1;
                    self.latencies.record(now.saturating_duration_since(due));
                }
                None => self.wrong += 1,
            }
        }
    }
}

impl Reader {
    fn new(api: &Api) -> Self {
        let content = Content::new(api.style);
        Self { from: ReadFrom::Begin, cursor: None, content, answer: None, data: Vec::new() }
    }

    /// Takes the input of connection `at`; whether the answer is whole.
    fn take(&mut self, driver: &mut Driver, at: usize) -> Outcome<bool> {
        let socket = &mut driver.sockets[at];
        if self.answer.is_none() {
            let Some(head) = Head::parse(socket.input())? else { return Ok(false) };
            if !matches!(head.status, 200 | 204) {
                return Err(Failure::new(format!("a long-poll was answered {}", head.status)));
            }
            socket.consume(head.head_bytes);
            self.answer = Some(head.body());
            if let Some(next) = head.next {
                self.from = ReadFrom::At(next);
            }
            self.cursor = head.cursor;
        }
        let Self { answer: Some(answer), content, data, .. } = self else { return Ok(false) };
        let has_ended = answer.take(socket, |bytes| {
            content.take(bytes, |bytes| data.extend_from_slice(bytes));
        })?;
        if has_ended {
            self.answer = None;
            if let Some(record) = self.content.next_record() {
                self.from = ReadFrom::At(record.to_string().into());
            }
        }
        Ok(has_ended)
    }
}
