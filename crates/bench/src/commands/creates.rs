//! Creates, alone and in turns with appends.

use super::{Bench, Calls, streams};
use crate::api::stream_name;
use crate::cli::{Creates, CreatesVsAppends};
use crate::failure::Outcome;
use crate::gauge::Gauge;
use crate::load::driver::Driver;
use crate::load::exchange::{Exchanged, Plan, Source, exchange};
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use crate::spread::Spread;
use std::time::Duration;
use streams::{Appender, Creator};

/// Streams that are looked at after creating.
const LOOKED_AT: u64 = 1000;

pub(super) fn run(bench: &Bench, asked: &Creates) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("creates", &server);
    run.setting("connections", asked.connections);
    run.setting("seconds", asked.seconds);
    let mut creator = Creator::new(&server, "new", u64::MAX);
    let gauge = Gauge::start(&server);
    let created =
        closed_loop(&server, &mut creator, (asked.connections, asked.seconds), "creates")?;
    let reading = gauge.stop();
    streams::report(&created, "create", &mut run);
    reading.report(created.acknowledged, "create", &mut run);
    if bench.stores() {
        let calls = Calls::new(&server)?;
        let step = (created.acknowledged / LOOKED_AT).max(1) as usize;
        let mut missing = 0;
        for number in (0..created.acknowledged).step_by(step) {
            let head = calls.wait(calls.client.head(&stream_name("new", number)));
            missing += u64::from(creator.acknowledged.contains(number) && head.is_err());
        }
        run.check(format!("created streams are there ({missing} missing)"), missing == 0);
    }
    Ok(run)
}

pub(super) fn run_versus(bench: &Bench, asked: &CreatesVsAppends) -> Outcome<Run> {
    let server = bench.server()?;
    let mut run = bench.start_run("creates-vs-appends", &server);
    run.setting("connections", asked.connections);
    run.setting("seconds", asked.seconds);
    run.setting("pairs", asked.pairs);
    run.setting("streams", asked.streams);
    run.setting("payload-bytes", asked.payload_bytes);
    streams::create(&server, "old", asked.streams, (asked.connections.min(64), 4))?;
    let mut creator = Creator::new(&server, "new", u64::MAX);
    let mut appender = Appender::new(&server, "old", asked.streams, asked.payload_bytes);
    let load = (asked.connections, asked.seconds);
    let (mut creates, mut appends) = (Vec::new(), Vec::new());
    let mut refused = 0;
    for pair in 1..=asked.pairs {
        let created = closed_loop(&server, &mut creator, load, &format!("creates {pair}"))?;
        let appended = closed_loop(&server, &mut appender, load, &format!("appends {pair}"))?;
        refused += created.refused.values().chain(appended.refused.values()).sum::<u64>();
        refused += created.lost + appended.lost;
        creates.push(created.rate());
        appends.push(appended.rate());
    }
    let ratios: Vec<f64> = creates.iter().zip(&appends).map(|(c, a)| c / a).collect();
    let spread = |name: &str, values: &[f64], unit, run: &mut Run| {
        let Some(Spread { least, median, most }) = Spread::of(values) else { return };
        run.figure(format!("{name}, median"), median, unit);
        run.figure(format!("{name}, least"), least, unit);
        run.figure(format!("{name}, most"), most, unit);
    };
    spread("creates per second", &creates, "1/s", &mut run);
    spread("appends per second", &appends, "1/s", &mut run);
    spread("creates per append", &ratios, "", &mut run);
    run.check(format!("nothing was refused or lost ({refused})"), refused == 0);
    if bench.stores() {
        appender.verify(&server, asked.streams, &mut run)?;
    }
    Ok(run)
}

fn closed_loop<S: Source>(
    server: &Server,
    source: &mut S,
    load: (usize, f64),
    step: &str,
) -> Outcome<Exchanged> {
    let (connections, seconds) = load;
    let mut driver = Driver::connect(server.address, connections)?;
    let plan = Plan { depth: 1, rate: None, duration: Some(Duration::from_secs_f64(seconds)) };
    exchange(&mut driver, source, plan, &mut Progress::start(step))
}
