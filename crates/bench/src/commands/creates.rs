//! Creates, alone and in turns with appends.

use super::{Bench, Calls, streams};
use crate::cli::{Creates, CreatesVsAppends};
use crate::failure::Outcome;
use crate::gauge::Gauge;
use crate::load::driver::Driver;
use crate::load::exchange::{Exchanged, Plan, Source, exchange};
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
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
            let head = calls.wait(calls.client.head(&streams::path("new", number)));
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
        let (least, middle, most) = spread(values);
        run.figure(format!("{name}, median"), middle, unit);
        run.figure(format!("{name}, least"), least, unit);
        run.figure(format!("{name}, most"), most, unit);
    };
    spread("creates per second", &creates, "1/s", &mut run);
    spread("appends per second", &appends, "1/s", &mut run);
    spread("creates per append", &ratios, "", &mut run);
    run.check(format!("nothing was refused or lost ({refused})"), refused == 0);
    if bench.stores() {
        appender.verify(&Calls::new(&server)?, asked.streams, &mut run)?;
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

/// The least, the median and the greatest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some((least, most)) = sorted.first().zip(sorted.last()) else { return (0.0, 0.0, 0.0) };
    let middle = sorted.len() / 2;
    let median = if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    };
    (*least, median, *most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), (1.0, 2.5, 4.0));
        assert_eq!(spread(&[2.0, 9.0, 1.0]), (1.0, 2.0, 9.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
    }
}
