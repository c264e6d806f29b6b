//! Latency from append to the one long-poll that waits for it, over many streams.

use super::{Bench, MEDIA_TYPE, streams};
use crate::cli::LongPoll;
use crate::failure::{Failure, Outcome};
use crate::gauge::Gauge;
use crate::latency::Latencies;
use crate::load::answer::Outline;
use crate::load::driver::Driver;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use protocol::client::{AnswerBody, Target, parse_answer, put_append, put_read};
use protocol::request::{Live, ReadOffset};
use std::time::{Duration, Instant};

const SET: &str = "poll";
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Before the first append every reader shall wait.
const SETTLE: Duration = Duration::from_millis(300);

/// Where one reader stands.
#[derive(Debug, Clone, Copy)]
struct Reader {
    from: ReadOffset,
    cursor: Option<u64>,
}

/// One reader per stream, and the connection of the writer behind them.
struct Polls {
    driver: Driver,
    readers: Vec<Reader>,
    payloads: Payloads,
    host: String,
    /// When each append was handed to the system; append `n` goes to stream `n % streams`.
    sent: Vec<Instant>,
    acknowledged: u64,
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
    run.setting("event-bytes", asked.event_bytes);
    run.setting("seconds", asked.seconds);
    streams::create(&server, SET, asked.streams as u64, (16.min(asked.streams), 4))?;
    let mut polls = Polls::new(&server, asked)?;
    polls.start()?;
    let gauge = Gauge::start(&server);
    polls.publish(asked)?;
    let reading = gauge.stop();

    let Polls { acknowledged, deliveries, wrong, empty_answers, ref latencies, .. } = polls;
    let published = polls.sent.len() as u64;
    run.figure("appends acknowledged", acknowledged as f64, "");
    run.figure("deliveries", deliveries as f64, "");
    run.figure("polls answered without data", empty_answers as f64, "");
    latencies.report("delivery latency", &mut run);
    reading.report(deliveries, "delivery", &mut run);
    run.check(format!("every append was acknowledged ({acknowledged})"), acknowledged == published);
    run.check(format!("every append was delivered ({deliveries})"), deliveries == published);
    run.check(format!("nothing wrong was delivered ({wrong})"), wrong == 0);
    Ok(run)
}

impl Polls {
    fn new(server: &Server, asked: &LongPoll) -> Outcome<Self> {
        Ok(Self {
            driver: Driver::connect(server.address, asked.streams + 1)?,
            readers: vec![Reader { from: ReadOffset::Begin, cursor: None }; asked.streams],
            payloads: Payloads::new(asked.event_bytes),
            host: server.address.to_string(),
            sent: Vec::new(),
            acknowledged: 0,
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
        let path = streams::path(SET, at as u64);
        let target = Target { host: &self.host, path: &path };
        let Reader { from, cursor } = self.readers[at];
        let socket = &mut self.driver.sockets[at];
        put_read(&mut socket.output, target, from, Live::LongPoll, cursor);
        socket.flush();
    }

    fn publish(&mut self, asked: &LongPoll) -> Outcome<()> {
        let mut progress = Progress::start(format!("long-polls on {} streams", asked.streams));
        let total = (asked.rate * asked.seconds).ceil() as usize;
        self.driver.tick(Duration::from_secs_f64(1.0 / asked.rate))?;
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(asked.seconds) + DRAIN_LIMIT;
        let total_count = total as u64;
        while (self.deliveries < total_count || self.acknowledged < total_count)
            && Instant::now() < end
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
        let number = self.sent.len() as u64;
        let mut payload = Vec::with_capacity(self.payloads.bytes());
        self.payloads.put(number, &mut payload);
        let path = streams::path(SET, number % self.readers.len() as u64);
        let target = Target { host: &self.host, path: &path };
        let writer = self.driver.sockets.last_mut().expect("the writer was connected");
        put_append(&mut writer.output, target, MEDIA_TYPE, None, &payload);
        self.sent.push(Instant::now());
        writer.flush();
    }

    fn turn(&mut self, limit: Duration) -> Outcome<()> {
        let ready = self.driver.wait(limit)?;
        for &at in &ready {
            self.driver.fill(at);
            let now = Instant::now();
            if self.driver.sockets[at].is_ended {
                return Err(Failure::new("a connection was cut off"));
            }
            if at == self.readers.len() {
                self.take_acknowledgements()?;
            } else if self.take_answer(at, now)? {
                self.poll(at);
            }
        }
        self.driver.done(ready);
        Ok(())
    }

    /// Takes the answer of reader `at`; whether it was whole.
    fn take_answer(&mut self, at: usize, now: Instant) -> Outcome<bool> {
        let socket = &mut self.driver.sockets[at];
        let head = parse_answer(socket.input(), false);
        let head = head.map_err(|error| Failure::new(error.to_string()))?;
        let Some(head) = head else { return Ok(false) };
        let (AnswerBody::Length(length), Some(next), true) =
            (head.body, head.next, head.is_success())
        else {
            return Err(Failure::new(format!("a long-poll was answered {}", head.status)));
        };
        let end = head.head_bytes + length as usize;
        let Some(body) = socket.input().get(head.head_bytes..end) else { return Ok(false) };
        self.empty_answers += u64::from(body.is_empty());
        for payload in body.chunks(self.payloads.bytes()) {
            let number = self.payloads.number_of(payload).unwrap_or(u64::MAX);
            let is_here = number % self.readers.len() as u64 == at as u64;
            match self.sent.get(number as usize).filter(|_| is_here) {
                Some(sent) => {
                    self.deliveries += 1;
                    self.latencies.record(now.saturating_duration_since(*sent));
                }
                None => self.wrong += 1,
            }
        }
        socket.consume(end);
        self.readers[at] = Reader { from: ReadOffset::At(next), cursor: head.cursor };
        Ok(true)
    }

    fn take_acknowledgements(&mut self) -> Outcome<()> {
        let socket = self.driver.sockets.last_mut().expect("the writer was connected");
        loop {
            let outline = Outline::find(socket.input());
            let outline = outline.map_err(|_| Failure::new("the writer got no answer"))?;
            let whole =
                |found: &Outline| socket.input().len() >= found.head_bytes + found.body_bytes;
            let Some(outline) = outline.filter(whole) else { return Ok(()) };
            socket.consume(outline.head_bytes + outline.body_bytes);
            self.acknowledged += u64::from(outline.is_success());
        }
    }
}
