//! Requests that every command needs: creates and appends, and what was acknowledged of them.

use super::{Calls, MEDIA_TYPE};
use crate::failure::{Failure, Outcome};
use crate::load::driver::Driver;
use crate::load::exchange::{Exchanged, Plan, Source, exchange};
use crate::payload::{Numbers, Payloads};
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use protocol::client::{Target, put_append, put_create};
use std::collections::HashMap;
use std::fmt::Write;

/// The path of stream `number` of the set `prefix`.
pub(crate) fn path(prefix: &str, number: u64) -> String {
    format!("bench/{prefix}/{number:08}")
}

/// Paths without an allocation for each.
#[derive(Debug, Default)]
struct PathText(String);

impl PathText {
    fn of(&mut self, prefix: &str, number: u64) -> &str {
        self.0.clear();
        let _ = write!(self.0, "bench/{prefix}/{number:08}");
        &self.0
    }
}

/// Creates streams 0, 1, 2 and so on of a set.
#[derive(Debug)]
pub(crate) struct Creator {
    host: String,
    prefix: String,
    text: PathText,
    next: u64,
    end: u64,
    pub(crate) acknowledged: Numbers,
}

impl Creator {
    /// Creates at most `count`.
    pub(crate) fn new(server: &Server, prefix: &str, count: u64) -> Self {
        Self {
            host: server.address.to_string(),
            prefix: prefix.to_owned(),
            text: PathText::default(),
            next: 0,
            end: count,
            acknowledged: Numbers::default(),
        }
    }
}

impl Source for Creator {
    fn next(&mut self, _: usize, out: &mut Vec<u8>) -> Option<u64> {
        let number = self.next;
        if number == self.end {
            return None;
        }
        self.next += 1;
        let path = self.text.of(&self.prefix, number);
        put_create(out, Target { host: &self.host, path }, MEDIA_TYPE, b"");
        Some(number)
    }

    fn acknowledged(&mut self, number: u64) {
        self.acknowledged.insert(number);
    }
}

/// Creates `count` streams as fast as it goes; every one must be acknowledged.
pub(crate) fn create(
    server: &Server,
    prefix: &str,
    count: u64,
    out: (usize, usize),
) -> Outcome<Exchanged> {
    let (connections, depth) = out;
    let mut driver = Driver::connect(server.address, connections)?;
    let mut creator = Creator::new(server, prefix, count);
    let plan = Plan { depth, rate: None, duration: None };
    let mut progress = Progress::start(format!("creating {count} streams"));
    let exchanged = exchange(&mut driver, &mut creator, plan, &mut progress)?;
    if exchanged.acknowledged != count {
        let refusals = exchanged.refusals();
        let (done, lost) = (exchanged.acknowledged, exchanged.lost);
        return Err(Failure::new(format!(
            "{done} of {count} streams were created; {lost} answers missing; refused: {refusals}"
        )));
    }
    Ok(exchanged)
}

/// Appends payloads 0, 1, 2 and so on to the streams of a set, in turn.
#[derive(Debug)]
pub(crate) struct Appender {
    host: String,
    prefix: String,
    text: PathText,
    streams: u64,
    payloads: Payloads,
    payload: Vec<u8>,
    next: u64,
    end: u64,
    /// The next number of each producer in each stream; none for appends without producers.
    producers: Option<HashMap<(usize, u64), u64>>,
    acknowledged: Numbers,
    acknowledged_count: u64,
}

impl Appender {
    pub(crate) fn new(server: &Server, prefix: &str, streams: u64, payload_bytes: usize) -> Self {
        Self {
            host: server.address.to_string(),
            prefix: prefix.to_owned(),
            text: PathText::default(),
            streams,
            payloads: Payloads::new(payload_bytes),
            payload: Vec::new(),
            next: 0,
            end: u64::MAX,
            producers: None,
            acknowledged: Numbers::default(),
            acknowledged_count: 0,
        }
    }

    /// Ends after `count` appends.
    pub(crate) fn at_most(mut self, count: u64) -> Self {
        self.end = count;
        self
    }

    /// Makes each connection an idempotent producer.
    pub(crate) fn with_producers(mut self) -> Self {
        self.producers = Some(HashMap::new());
        self
    }

    /// Reads at most `limit` streams back and checks that they hold what was acknowledged.
    pub(crate) fn verify(&self, calls: &Calls, limit: u64, run: &mut Run) -> Outcome<()> {
        let count = limit.min(self.streams);
        if count == 0 {
            return Ok(());
        }
        let mut seen = Numbers::default();
        let (mut stored, mut wrong) = (0, 0);
        let step = self.streams.div_ceil(count);
        let looked_at = (0..self.streams).step_by(step as usize);
        for stream in looked_at.clone() {
            let data = calls.wait(calls.client.read_all(&path(&self.prefix, stream)))?;
            for payload in data.chunks(self.payloads.bytes()) {
                let number = self.payloads.number_of(payload);
                let right = number.filter(|n| n % self.streams == stream && seen.insert(*n));
                if right.is_some() { stored += 1 } else { wrong += 1 }
            }
        }
        let expected = (0..self.next).filter(|number| {
            (number % self.streams).is_multiple_of(step) && self.acknowledged.contains(*number)
        });
        let missing = expected.filter(|number| !seen.contains(*number)).count();
        let streams = looked_at.count();
        run.figure("appends read back", stored as f64, "");
        run.check(
            format!("no acknowledged append is missing in {streams} streams ({missing})"),
            missing == 0,
        );
        run.check(format!("nothing is stored twice or changed ({wrong})"), wrong == 0);
        Ok(())
    }
}

impl Source for Appender {
    fn next(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<u64> {
        let number = self.next;
        if number == self.end {
            return None;
        }
        self.next += 1;
        let stream = number % self.streams;
        self.payload.clear();
        self.payloads.put(number, &mut self.payload);
        let producer = self.producers.as_mut().map(|producers| {
            let next = producers.entry((connection, stream)).or_default();
            let producer =
                client::Producer { id: format!("p{connection}").into(), epoch: 0, seq: *next };
            *next += 1;
            producer
        });
        let target = Target { host: &self.host, path: self.text.of(&self.prefix, stream) };
        put_append(out, target, MEDIA_TYPE, producer.as_ref(), &self.payload);
        Some(number)
    }

    fn acknowledged(&mut self, number: u64) {
        self.acknowledged.insert(number);
        self.acknowledged_count += 1;
    }
}

/// Adds what every exchange found.
pub(crate) fn report(exchanged: &Exchanged, of: &str, run: &mut Run) {
    run.figure(format!("{of}s acknowledged"), exchanged.acknowledged as f64, "");
    run.figure(format!("{of}s per second"), exchanged.rate(), "1/s");
    exchanged.latencies.report(&format!("{of} latency"), run);
    let refused: u64 = exchanged.refused.values().sum();
    run.check(format!("no {of} was refused ({refused}) {}", exchanged.refusals()), refused == 0);
    run.check(
        format!("every {of} was answered ({} were not)", exchanged.lost),
        exchanged.lost == 0,
    );
}
