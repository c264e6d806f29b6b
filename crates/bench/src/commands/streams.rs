//! Requests that every command needs: creates and appends, and what was acknowledged of them.

use crate::api::{Api, Append, Batch, stream_name};
use crate::failure::{Failure, Outcome};
use crate::gauge::{Gauge, Reading};
use crate::load::driver::Driver;
use crate::load::exchange::{Exchanged, Plan, Source, exchange};
use crate::load::pages::Collector;
use crate::payload::{Numbers, Payloads};
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::collections::HashMap;
use std::time::Duration;

/// Creates streams 0, 1, 2 and so on of a set.
#[derive(Debug)]
pub(crate) struct Creator {
    api: Api,
    prefix: String,
    next: u64,
    end: u64,
    pub(crate) acknowledged: Numbers,
}

impl Creator {
    /// Creates at most `count`.
    pub(crate) fn new(server: &Server, prefix: &str, count: u64) -> Self {
        Self {
            api: server.api.clone(),
            prefix: prefix.to_owned(),
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
        self.api.put_create(out, &stream_name(&self.prefix, number));
        Some(number)
    }

    fn acknowledged(&mut self, number: u64) {
        self.acknowledged.insert(number);
    }
}

/// How long setting up may take: a system that needs longer cannot be measured with so much.
pub(crate) const SETUP_LIMIT: Duration = Duration::from_secs(300);

/// Creates `count` streams as fast as it goes; every one must be acknowledged.
pub(crate) fn create(
    server: &Server,
    prefix: &str,
    count: u64,
    out: (usize, usize),
) -> Outcome<Exchanged> {
    if !server.api.style.is_http() {
        server.make_streams(prefix, count)?;
        return Ok(Exchanged::none());
    }
    let (connections, depth) = out;
    let mut driver = Driver::connect(server.address, connections)?;
    let mut creator = Creator::new(server, prefix, count);
    let plan = Plan { depth, rate: None, duration: Some(SETUP_LIMIT) };
    let mut progress = Progress::start(format!("creating {count} streams"));
    let exchanged = exchange(&mut driver, &mut creator, plan, &mut progress)?;
    if exchanged.acknowledged != count {
        let refusals = exchanged.refusals();
        let (done, lost) = (exchanged.acknowledged, exchanged.lost);
        return Err(Failure::new(format!(
            "{done} of {count} streams were created in {:?}; {lost} answers missing; {refusals}",
            exchanged.elapsed
        )));
    }
    Ok(exchanged)
}

/// Appends payloads 0, 1, 2 and so on to the streams of a set, in turn.
#[derive(Debug)]
pub(crate) struct Appender {
    api: Api,
    prefix: String,
    streams: u64,
    payloads: Payloads,
    payload: Vec<u8>,
    next: u64,
    end: u64,
    /// The next number of each producer in each stream; none for appends without producers.
    producers: Option<HashMap<(usize, u64), u64>>,
    /// How many appends each connection has made to its own stream; none if streams take turns.
    pinned: Option<Vec<u64>>,
    /// Where nodes send clients to each other: which streams each node leads.
    led: Option<Led>,
    acknowledged: Numbers,
}

/// Which streams each node of a cluster leads, and how many appends it got.
#[derive(Debug)]
struct Led {
    streams: Vec<Vec<u64>>,
    sent: Vec<u64>,
}

impl Led {
    /// The next stream of a connection's node, and how many appends that has had; `None` if the node leads none. Connections are
    /// spread over the nodes in turn.
    fn take_place(&mut self, connection: usize) -> Option<(u64, u64)> {
        let node = connection % self.streams.len();
        let (streams, sent) = (&self.streams[node], &mut self.sent[node]);
        let count = streams.len() as u64;
        let place = *sent;
        *sent += u64::from(count > 0);
        (count > 0).then(|| (streams[(place % count) as usize], place / count))
    }

    fn node_of(&self, stream: u64) -> usize {
        let node = self.streams.iter().position(|streams| streams.contains(&stream));
        node.expect("each stream was made at a node")
    }
}

impl Appender {
    pub(crate) fn new(server: &Server, prefix: &str, streams: u64, payload_bytes: usize) -> Self {
        Self {
            api: server.api.clone(),
            prefix: prefix.to_owned(),
            streams,
            payloads: Payloads::new(payload_bytes),
            payload: Vec::new(),
            next: 0,
            end: u64::MAX,
            producers: None,
            acknowledged: Numbers::default(),
            pinned: None,
            led: None,
        }
    }

    /// Makes each connection append to the streams that its node leads.
    pub(crate) fn at_leaders(mut self, streams: Vec<Vec<u64>>) -> Self {
        let sent = vec![0; streams.len()];
        self.led = Some(Led { streams, sent });
        self
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

    /// Makes connection `c` append to stream `c` only.
    pub(crate) fn pinned(mut self) -> Self {
        self.pinned = Some(vec![0; self.streams as usize]);
        self
    }

    /// The number of the next append of `connection`; its stream is `number % streams`. `None` if it has no stream.
    fn take_number(&mut self, connection: usize) -> Option<u64> {
        let number = if let Some(led) = &mut self.led {
            let (stream, round) = led.take_place(connection)?;
            stream + round * self.streams
        } else if let Some(pinned) = &mut self.pinned {
            pinned[connection] += 1;
            connection as u64 + (pinned[connection] - 1) * self.streams
        } else {
            self.next
        };
        self.next = self.next.max(number + 1);
        Some(number)
    }

    /// Readers, one at each node that leads some of the streams.
    fn collectors(&self, server: &Server) -> Outcome<Vec<Collector>> {
        match &self.led {
            None => Ok(vec![Collector::new(server)?]),
            Some(_) => {
                let addresses = server.addresses().into_iter();
                addresses.map(|address| Collector::at(server, address)).collect()
            }
        }
    }

    /// Reads at most `limit` streams back and checks that they hold what was acknowledged.
    pub(crate) fn verify(&self, server: &Server, limit: u64, run: &mut Run) -> Outcome<()> {
        let count = limit.min(self.streams);
        if count == 0 {
            return Ok(());
        }
        let mut collectors = self.collectors(server)?;
        let mut seen = Numbers::default();
        let (mut stored, mut wrong) = (0, 0);
        let step = self.streams.div_ceil(count);
        let looked_at = (0..self.streams).step_by(step as usize);
        for stream in looked_at.clone() {
            let node = self.led.as_ref().map_or(0, |led| led.node_of(stream));
            let data = collectors[node].read_all(&stream_name(&self.prefix, stream))?;
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
        if self.next == self.end {
            return None;
        }
        let number = self.take_number(connection)?;
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
        let name = stream_name(&self.prefix, stream);
        let (producer, batch) = (producer.as_ref(), Batch::one(&self.payload));
        self.api.put_append(out, Append { connection, stream: &name, producer, batch });
        Some(number)
    }

    fn acknowledged(&mut self, number: u64) {
        self.acknowledged.insert(number);
    }
}

/// Fills streams with payloads in order: stream `s` gets `events` of them from number `s × events`
/// on, all by one connection.
#[derive(Debug)]
pub(crate) struct Filler {
    api: Api,
    prefix: String,
    streams: u64,
    events: u64,
    payloads: Payloads,
    connections: u64,
    /// Whether a connection's streams take turns. Otherwise it fills one after the other.
    takes_turns: bool,
    /// How many appends each connection has sent.
    sent: Vec<u64>,
}

impl Filler {
    pub(crate) fn new(
        server: &Server,
        set: (&str, u64),
        events: u64,
        payloads: &Payloads,
        connections: usize,
    ) -> Self {
        let (prefix, streams) = set;
        Self {
            api: server.api.clone(),
            prefix: prefix.to_owned(),
            streams,
            events,
            payloads: payloads.clone(),
            connections: connections as u64,
            takes_turns: false,
            sent: vec![0; connections],
        }
    }

    /// Gives each stream one append before any gets a second one.
    pub(crate) fn in_turn(mut self) -> Self {
        self.takes_turns = true;
        self
    }

    /// The next stream that `connection` appends to, and the place of the append there; `None` at its end.
    fn take_place(&mut self, connection: usize) -> Option<(u64, u64)> {
        let (first, sent) = (connection as u64, self.sent[connection]);
        let own_streams = self.streams.saturating_sub(first).div_ceil(self.connections);
        if sent >= own_streams * self.events {
            return None;
        }
        self.sent[connection] += 1;
        let (nth, event) = if self.takes_turns {
            (sent % own_streams, sent / own_streams)
        } else {
            (sent / self.events, sent % self.events)
        };
        Some((first + nth * self.connections, event))
    }
}

impl Source for Filler {
    fn next(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<u64> {
        let (stream, event) = self.take_place(connection)?;
        let number = stream * self.events + event;
        let mut payload = Vec::with_capacity(self.payloads.bytes());
        self.payloads.put(number, &mut payload);
        let (name, batch) = (stream_name(&self.prefix, stream), Batch::one(&payload));
        self.api.put_append(out, Append { connection, stream: &name, producer: None, batch });
        Some(number)
    }

    fn acknowledged(&mut self, _: u64) {}
}

/// What came of `plan` on some connections, and what it cost the server. It is measured after
/// `warm_up_seconds` of the same.
pub(crate) fn measure<S: Source>(
    server: &Server,
    source: &mut S,
    (connections, plan): (usize, Plan),
    warm_up_seconds: f64,
    what: &str,
) -> Outcome<(Exchanged, Reading)> {
    let mut driver = Driver::to(server, connections)?;
    warm_up(&mut driver, source, plan, warm_up_seconds)?;
    let gauge = Gauge::start(server);
    let exchanged = exchange(&mut driver, source, plan, &mut Progress::start(what))?;
    Ok((exchanged, gauge.stop()))
}

/// Does what will be measured for `seconds` before it is. None of it counts, and all of it must be
/// acknowledged.
fn warm_up<S: Source>(
    driver: &mut Driver,
    source: &mut S,
    plan: Plan,
    seconds: f64,
) -> Outcome<()> {
    if seconds == 0.0 {
        return Ok(());
    }
    let plan = Plan { duration: Some(Duration::from_secs_f64(seconds)), ..plan };
    let exchanged = exchange(driver, source, plan, &mut Progress::start("warming up"))?;
    exchanged.check_all_acknowledged()
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
