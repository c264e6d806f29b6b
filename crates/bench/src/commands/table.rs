//! Every figure of docs/performance.md in one go, as its table.

use super::Bench;
use crate::cli::{
    Appends, Command, Creates, CreatesVsAppends, IdleStreams, LongPoll, Place, Recovery, Replay,
    Shutdown, SlowReaders, SseFanout, Table, Via,
};
use crate::failure::{Failure, Outcome};
use crate::report::{Run, number, print};
use crate::systems::System;
use std::fmt::Write;

/// One row: a run, and the figures of it that the table shows.
struct TableRow {
    what: &'static str,
    command: Command,
    against: System,
    figures: &'static [&'static str],
}

const RATE: &[&str] = &[
    "appends per second",
    "append latency p50",
    "append latency p99",
    "server CPU per append",
    "load generator CPU per append",
    "server memory peak",
];
const CREATE: &[&str] =
    &["creates per second", "create latency p50", "create latency p99", "server CPU per create"];
const DELIVERY: &[&str] = &[
    "delivery latency p50",
    "delivery latency p99",
    "server CPU per delivery",
    "server memory peak",
];
const REPLAY: &[&str] = &[
    "replay latency p50",
    "replay latency p99",
    "replays per second",
    "server CPU per replay",
    "server memory peak",
];
const IDLE: &[&str] = &[
    "memory per stream",
    "memory per stream after restart",
    "disk per stream",
    "disk per stream after a clean end",
    "disk before",
    "disk after settling",
    "disk after settling, wal",
    "disk after settling, checkpoints",
    "disk after settling, checkpoints",
    "descriptors before",
    "descriptors after",
    "creates per second",
];
const RECOVERY: &[&str] = &[
    "ready after kill -9",
    "first acknowledgement after kill -9",
    "memory peak at start after kill -9",
    "SIGTERM until exit",
    "ready after SIGTERM",
];
const SLOW: &[&str] = &[
    "server memory before",
    "server memory peak",
    "memory rise per reader",
    "append of others before p99",
    "append of others meanwhile p99",
];
const VERSUS: &[&str] = &[
    "creates per second, median",
    "appends per second, median",
    "creates per append, median",
    "creates per append, least",
    "creates per append, most",
];
const SHUTDOWN: &[&str] = &[
    "SIGTERM until exit",
    "readers that got a last control event",
    "readers whose answer was ended whole",
];

/// Runs all and prints the table; whether all checks passed. A run that fails leaves its row empty
/// and the others are made all the same.
pub(super) fn run(bench: &Bench, asked: &Table) -> Outcome<bool> {
    if bench.place.url.is_some() {
        return Err(Failure::new("the table needs servers of its own; leave --url out"));
    }
    let rows = rows(asked.quick);
    let count = rows.len();
    let mut runs = Vec::new();
    let mut lines = Vec::new();
    let mut failed = 0;
    for (at, row) in rows.into_iter().enumerate() {
        eprintln!("[{} of {count}] {}", at + 1, row.what);
        let place = Place { against: row.against, ..bench.place.clone() };
        match (Bench { place, keeper: bench.keeper.clone() }).run(&row.command) {
            Ok(run) => {
                lines.push(line(row.what, &run, row.figures));
                runs.push(run);
            }
            Err(failure) => {
                eprintln!("error: {}: {failure}", row.what);
                failed += 1;
                lines.push(format!("| {} | not measured: {failure} |", row.what));
            }
        }
    }
    print(&format!("\n| What | Measured |\n|---|---|\n{}\n\n", lines.join("\n")));
    let passed = bench.finish(runs)?;
    Ok(passed && failed == 0)
}

fn line(what: &str, run: &Run, figures: &[&str]) -> String {
    let mut text = format!("| {what}<br>`{}{}` | ", run.command, run.asked());
    let shown = figures.iter().filter_map(|name| run.value(name));
    for (at, figure) in shown.enumerate() {
        let separator = if at > 0 { "; " } else { "" };
        let value = format!("{} {}", number(figure.value), figure.unit);
        let _ = write!(text, "{separator}{} **{}**", figure.name, value.trim_end());
    }
    for check in run.checks.iter().filter(|check| !check.passed) {
        let _ = write!(text, "; FAILED: {}", check.what);
    }
    text + " |"
}

/// The rows; `quick` makes all of them small.
fn rows(quick: bool) -> Vec<TableRow> {
    let of = |what, command, figures| TableRow { what, command, against: System::Thalweg, figures };
    let seconds = |full: f64| if quick { 0.5 } else { full };
    let count = |full: u64| if quick { full.div_ceil(1000).clamp(10, 1000) } else { full };
    let appends = |streams, connections, rate, producer| {
        let seconds = seconds(15.0);
        let (depth, payload_bytes, verify_streams) = (1, 256, 2000);
        let streams = count(streams).min(streams);
        Command::Appends(Appends {
            streams,
            connections,
            depth,
            pinned: false,
            warm_up_seconds: 0.0,
            payload_bytes,
            seconds,
            rate,
            producer,
            verify_streams,
        })
    };
    let creates = |connections| Command::Creates(Creates { connections, seconds: seconds(15.0) });
    let versus = |connections| {
        let (pairs, streams, payload_bytes) = (if quick { 2 } else { 6 }, count(1000), 256);
        let seconds = seconds(8.0);
        Command::CreatesVsAppends(CreatesVsAppends {
            connections,
            seconds,
            pairs,
            streams,
            payload_bytes,
        })
    };
    let bare = |what, connections| TableRow {
        what,
        command: appends(1000, connections, None, false),
        against: System::Bare,
        figures: RATE,
    };
    let mut rows = vec![
        bare("Bare responder, 1 connection", 1),
        bare("Bare responder, 64 connections", 64),
        of("Appends, 1 stream, 1 connection", appends(1, 1, None, false), RATE),
        of("Appends, 1 stream, 64 connections", appends(1, 64, None, false), RATE),
        of("Appends, 1,000 streams, 64 connections", appends(1000, 64, None, false), RATE),
        of("Appends, 1,000 streams, 256 connections", appends(1000, 256, None, false), RATE),
        of("Appends by producers, 100 streams", appends(100, 100, None, true), RATE),
        of("Appends by producers, 500 streams", appends(500, 500, None, true), RATE),
        of(
            "Appends, open loop",
            appends(1000, 256, Some(if quick { 500.0 } else { 10_000.0 }), false),
            RATE,
        ),
        of("Creates, 1 connection", creates(1), CREATE),
        of("Creates, 64 connections", creates(64), CREATE),
        of("Creates against appends, 1 connection", versus(1), VERSUS),
        of("Creates against appends, 64 connections", versus(64), VERSUS),
    ];
    rows.extend(stored_rows(quick));
    rows.extend(live_rows(quick));
    rows
}

/// Rows about streams that are only kept, and about starting and ending.
fn stored_rows(quick: bool) -> Vec<TableRow> {
    let of = |what, command, figures| TableRow { what, command, against: System::Thalweg, figures };
    let count = |full: u64| if quick { full / 1000 } else { full };
    let idle = |streams| {
        let settle_seconds = if quick { 1 } else { 60 };
        let (streams, connections, depth) = (count(streams), 64, 8);
        Command::IdleStreams(IdleStreams { streams, connections, depth, settle_seconds })
    };
    let recovery = |streams, empty| {
        Command::Recovery(Recovery { streams: count(streams), empty, verify_streams: 500 })
    };
    let shutdown = |stubborn| {
        let (idle, readers) = if quick { (50, 10) } else { (1000, 100) };
        Command::Shutdown(Shutdown { idle, readers, stubborn })
    };
    vec![
        of("Idle streams, 100,000", idle(100_000), IDLE),
        of("Idle streams, 1,000,000", idle(1_000_000), IDLE),
        of("Recovery, 19,000 streams", recovery(19_000, false), RECOVERY),
        of("Recovery, 100,000 streams", recovery(100_000, false), RECOVERY),
        of("Recovery, 1,000,000 empty streams", recovery(1_000_000, true), RECOVERY),
        of("Shutdown", shutdown(false), SHUTDOWN),
        of("Shutdown, clients do not close", shutdown(true), SHUTDOWN),
    ]
}

/// Rows about readers.
fn live_rows(quick: bool) -> Vec<TableRow> {
    let of = |what, command, figures| TableRow { what, command, against: System::Thalweg, figures };
    let seconds = if quick { 0.5 } else { 30.0 };
    let slow = |via| {
        let (readers, bytes_per_second) = (50, 65_536);
        let stream_gib = if quick { 0.02 } else { 2.0 };
        Command::SlowReaders(SlowReaders { stream_gib, readers, bytes_per_second, seconds, via })
    };
    let fanout = |readers: usize| {
        let readers = if quick { readers / 10 } else { readers };
        Command::SseFanout(SseFanout { readers, rate: 50.0, event_bytes: 256, seconds })
    };
    let replay = |clients: usize, events| {
        let (clients, rounds) = if quick { (clients / 10, 1) } else { (clients, 5) };
        Command::Replay(Replay { clients, own_stream: false, events, event_bytes: 1024, rounds })
    };
    let long_poll = LongPoll { streams: 100, rate: 500.0, writers: 16, event_bytes: 256, seconds };
    vec![
        of("Slow readers by GET", slow(Via::Get), SLOW),
        of("Slow readers by SSE", slow(Via::Sse), SLOW),
        of("SSE, 100 readers", fanout(100), DELIVERY),
        of("SSE, 1,000 readers", fanout(1000), DELIVERY),
        of("Replay of 200 × 1 KiB, 100 clients", replay(100, 200), REPLAY),
        of("Replay of 200 × 1 KiB, 1,000 clients", replay(1000, 200), REPLAY),
        of("Replay of 2,000 × 1 KiB, 100 clients", replay(100, 2000), REPLAY),
        of("Long-poll, 100 streams", Command::LongPoll(long_poll), DELIVERY),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_figures_and_failed_checks() {
        let mut run = Run::new("creates");
        run.setting("connections", 1);
        run.figure("creates per second", 1234.0, "1/s");
        run.check("all is well", false);
        let wanted = "| One<br>`creates --connections 1` | creates per second **1,234 1/s**; \
            FAILED: all is well |";
        assert_eq!(line("One", &run, CREATE), wanted);
    }

    #[test]
    fn quick_rows_are_the_same_rows() {
        let names = |quick| rows(quick).iter().map(|row| row.what).collect::<Vec<_>>();
        assert_eq!(names(true), names(false));
    }
}
