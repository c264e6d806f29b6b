//! Commits of events, one after the other: the log of a runtime that releases an effect only when the
//! event that caused it is durable.
//!
//! # What a commit is
//! Seguro's events are opaque values with contiguous numbers. A commit holds one event or a few, all or
//! none. Here the log is one stream of bytes, and a commit is one append of whole events. The server
//! keeps an append together, so no part of a batch is ever read without the rest. The events contain
//! their numbers, because values of any size follow each other without any frame. Reading the stream
//! back proves that the numbers are contiguous. A JSON array was refused: events are not text.
//!
//! Where the style has idempotent producers, the writer is one, with the commit's number. Then a
//! repeated commit is not stored again, and one that would leave a gap is refused.
//!
//! A value of 100 KB needs no fragments here; those are FoundationDB's, whose values end at 100 KB.
//!
//! # What it is compared with
//! A latency says little without the machine's own time for the same work. So three loads take turns
//! within the run: commits, bare writes of the same bytes with `fdatasync`, and the same requests to a
//! responder that stores nothing. Slow changes of the machine hit all three.

use super::{Bench, streams};
use crate::api::{Api, Append, Batch, stream_name};
use crate::cli::Commits;
use crate::disk::WrittenFile;
use crate::failure::{Doing, Failure, Outcome};
use crate::gauge::{Gauge, Reading};
use crate::latency::Latencies;
use crate::load::driver::Driver;
use crate::load::exchange::{Exchanged, Plan, Source, exchange};
use crate::load::pages::Collector;
use crate::payload::Payloads;
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use crate::systems::System;

/// Turns of commits, bare writes and bare requests. One more turn goes before them and does not count.
const ROUNDS: u64 = 8;

const PREFIX: &str = "log";

/// One request at a time, until the source has no more.
const SERIAL: Plan = Plan { depth: 1, rate: None, duration: None };

/// Commits events 0, 1, 2 and so on.
#[derive(Debug)]
struct Committer {
    api: Api,
    stream: String,
    payloads: Payloads,
    batch: Vec<u8>,
    events_per_commit: u64,
    next: u64,
    /// The commit that is not made in this turn.
    end: u64,
}

pub(super) fn run(bench: &Bench, asked: &Commits) -> Outcome<Run> {
    if asked.batch == 0 || asked.events < asked.batch {
        return Err(Failure::new("a commit needs at least one event, and a run one commit"));
    }
    let server = bench.server()?;
    let bare = Server::start(System::Bare, &bench.places()?, &bench.dir(), &bench.keeper)?;
    let mut run = bench.start_run("commits", &server);
    run.setting("events", asked.events);
    run.setting("batch", asked.batch);
    run.setting("event-bytes", asked.event_bytes);
    streams::create(&server, PREFIX, 1, (1, 1))?;
    let mut log = Committer::new(&server, asked);
    let (commits, reading, disk, echo) = measure(bench, (&server, &bare), &mut log, asked)?;
    report(&commits, asked.batch, &mut run);
    reading.report(commits.acknowledged, "commit", &mut run);
    report_beside(&commits.latencies, &disk, &echo.latencies, &mut run);
    if bench.stores() {
        log.verify(&server, &mut run)?;
    }
    Ok(run)
}

/// What came of commits, what they cost the server, bare writes, and bare requests.
fn measure(
    bench: &Bench,
    servers: (&Server, &Server),
    log: &mut Committer,
    asked: &Commits,
) -> Outcome<(Exchanged, Reading, Latencies, Exchanged)> {
    let (server, bare) = servers;
    let (mut driver, mut bare_driver) = (Driver::to(server, 1)?, Driver::to(bare, 1)?);
    let mut echo = Committer::new(bare, asked);
    let dir = bench.dir();
    let file = WrittenFile::make(&dir, log.commit_bytes());
    let mut file = file.doing(|| format!("cannot write to {}", dir.display()))?;
    let (mut commits, mut echoes) = (Exchanged::none(), Exchanged::none());
    let (mut disk, mut reading) = (Latencies::new(), None::<Reading>);
    let count = asked.events / asked.batch;
    let mut progress = Progress::start("commits");
    // One turn that does not count: systems that compile as they run are slow at first.
    let warm = count.div_ceil(ROUNDS);
    log.go_on(warm, &mut driver, &mut progress)?.check_all_acknowledged()?;
    echo.go_on(warm, &mut bare_driver, &mut progress)?.check_all_acknowledged()?;
    for round in 1..=ROUNDS {
        let end = warm + count * round / ROUNDS;
        let due = end - log.next;
        let gauge = Gauge::start(server);
        commits.add(&log.go_on(end, &mut driver, &mut progress)?);
        let now = gauge.stop();
        reading = Some(reading.map_or(now, |before| before.and(now)));
        file.write(due, &mut disk)?;
        echoes.add(&echo.go_on(end, &mut bare_driver, &mut progress)?);
    }
    let reading = reading.ok_or_else(|| Failure::new("there was no turn"))?;
    Ok((commits, reading, disk, echoes))
}

/// The figures of Seguro's own text, and those of every exchange.
fn report(commits: &Exchanged, batch: u64, run: &mut Run) {
    streams::report(commits, "commit", run);
    run.figure("events per second", commits.rate() * batch as f64, "1/s");
    let of = &commits.latencies;
    for (name, ms) in
        [("average", of.mean_ms()), ("maximum", of.longest_ms()), ("minimum", of.least_ms())]
    {
        run.figure(format!("commit {name}"), ms, "ms");
        run.figure(format!("event {name}"), ms / batch as f64, "ms");
    }
}

/// What the machine takes without a server, and how many times that a commit takes.
fn report_beside(commits: &Latencies, disk: &Latencies, echo: &Latencies, run: &mut Run) {
    let [commit_ms, disk_ms, echo_ms] =
        [commits, disk, echo].map(|latencies| latencies.quantile_ms(0.5));
    run.figure("raw write and fdatasync average", disk.mean_ms(), "ms");
    run.figure("raw write and fdatasync p50", disk_ms, "ms");
    run.figure("raw write and fdatasync p99", disk.quantile_ms(0.99), "ms");
    run.figure("bare round trip p50", echo_ms, "ms");
    run.figure("commit p50 in raw writes", commit_ms / disk_ms, "×");
    run.figure(
        "commit p50 in raw writes with bare round trips",
        commit_ms / (disk_ms + echo_ms),
        "×",
    );
}

impl Committer {
    fn new(server: &Server, asked: &Commits) -> Self {
        Self {
            api: server.api.clone(),
            stream: stream_name(PREFIX, 0),
            payloads: Payloads::new(asked.event_bytes),
            batch: Vec::new(),
            events_per_commit: asked.batch,
            next: 0,
            end: 0,
        }
    }

    fn commit_bytes(&self) -> usize {
        self.payloads.bytes() * self.events_per_commit as usize
    }

    /// Commits up to commit `end`.
    fn go_on(
        &mut self,
        end: u64,
        driver: &mut Driver,
        progress: &mut Progress,
    ) -> Outcome<Exchanged> {
        self.end = end;
        exchange(driver, self, SERIAL, progress)
    }

    /// Reads the log and checks that it is every event in order.
    fn verify(&self, server: &Server, run: &mut Run) -> Outcome<()> {
        let data = Collector::new(server)?.read_all(&self.stream)?;
        let events = self.next * self.events_per_commit;
        let (length, wanted) = (data.len() as u64, events * self.payloads.bytes() as u64);
        run.figure("events read back", (data.len() / self.payloads.bytes()) as f64, "");
        run.check(format!("the log holds {wanted} B ({length})"), length == wanted);
        run.check("events are contiguous and unchanged", self.payloads.are_at(0, 0, &data));
        Ok(())
    }
}

impl Source for Committer {
    fn next(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<u64> {
        if self.next == self.end {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.batch.clear();
        for event in number * self.events_per_commit..self.next * self.events_per_commit {
            self.payloads.put(event, &mut self.batch);
        }
        let producer = client::Producer { id: "log".into(), epoch: 0, seq: number };
        let producer = self.api.style.has_producers().then_some(&producer);
        let batch = Batch { bytes: &self.batch, each: self.payloads.bytes() };
        self.api.put_append(out, Append { connection, stream: &self.stream, producer, batch });
        Some(number)
    }

    fn acknowledged(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiStyle;

    fn committer(events: u64, batch: u64) -> Committer {
        let server = Server::at("127.0.0.1:1", None, ApiStyle::Durable).unwrap();
        Committer::new(&server, &Commits { events, batch, event_bytes: 20 })
    }

    #[test]
    fn a_commit_is_one_append_of_contiguous_events() {
        let mut log = committer(15, 5);
        log.end = 2;
        let mut out = Vec::new();
        assert_eq!(log.next(0, &mut out), Some(0));
        out.clear();
        assert_eq!((log.next(0, &mut out), log.next(0, &mut Vec::new())), (Some(1), None));
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Producer-Seq: 1\r\n"), "{head}");
        assert_eq!(body.len(), 100);
        assert!(log.payloads.are_at(5, 0, body.as_bytes()), "{body}");
    }

    #[test]
    fn figures_are_per_commit_and_per_event() {
        let mut commits = Exchanged::none();
        for ms in [1, 2, 6] {
            commits.acknowledged += 1;
            commits.latencies.record(std::time::Duration::from_millis(ms));
        }
        commits.elapsed = std::time::Duration::from_secs(1);
        let mut run = Run::new("commits");
        report(&commits, 5, &mut run);
        let near = |name: &str, wanted: f64| {
            let value = run.value(name).unwrap().value;
            assert!((value - wanted).abs() < 0.01, "{name}: {value}");
        };
        near("commit average", 3.0);
        near("event average", 0.6);
        near("commit maximum", 6.0);
        near("event minimum", 0.2);
        near("events per second", 15.0);
    }

    #[test]
    fn the_figures_beside_it_are_related_by_their_median() {
        let of = |us| {
            let mut latencies = Latencies::new();
            latencies.record(std::time::Duration::from_micros(us));
            latencies
        };
        let mut run = Run::new("commits");
        report_beside(&of(300), &of(150), &of(50), &mut run);
        let value = |name: &str| run.value(name).unwrap().value;
        assert!((value("commit p50 in raw writes") - 2.0).abs() < 0.01);
        let both = value("commit p50 in raw writes with bare round trips");
        assert!((both - 1.5).abs() < 0.01, "{both}");
    }
}
