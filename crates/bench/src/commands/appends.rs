//! Appends, in a closed or an open loop.

use super::{Bench, streams};
use crate::cli::Appends;
use crate::failure::{Failure, Outcome};
use crate::load::exchange::Plan;
use crate::report::Run;
use std::time::Duration;
use streams::Appender;

pub(super) fn run(bench: &Bench, asked: &Appends) -> Outcome<Run> {
    if asked.producer && asked.depth > 1 {
        return Err(Failure::new("--producer needs --depth 1: its appends must come in order"));
    }
    if asked.producer && !bench.style().has_producers() {
        return Err(Failure::new("this style has no idempotent producers; leave --producer out"));
    }
    if asked.pinned && asked.connections as u64 != asked.streams {
        return Err(Failure::new("--pinned needs as many streams as connections"));
    }
    let server = bench.server()?;
    let mut run = bench.start_run("appends", &server);
    describe(asked, &mut run);
    if asked.pinned && server.redirects() {
        return Err(Failure::new(
            "--pinned needs nodes that pass requests on; these redirect them",
        ));
    }
    let appender = Appender::new(&server, "a", asked.streams, asked.payload_bytes);
    let appender = if server.redirects() {
        appender.at_leaders(server.make_at_leaders("a", asked.streams)?)
    } else {
        streams::create(&server, "a", asked.streams, (asked.connections.min(64), 4))?;
        appender
    };
    let appender = if asked.producer { appender.with_producers() } else { appender };
    let mut appender = if asked.pinned { appender.pinned() } else { appender };
    let duration = Some(Duration::from_secs_f64(asked.seconds));
    let plan = Plan { depth: asked.depth, rate: asked.rate, duration };
    let load = (asked.connections, plan);
    let (exchanged, reading) =
        streams::measure(&server, &mut appender, load, asked.warm_up_seconds, "appends")?;
    streams::report(&exchanged, "append", &mut run);
    reading.report(exchanged.acknowledged, "append", &mut run);
    if bench.stores() {
        appender.verify(&server, asked.verify_streams, &mut run)?;
    }
    Ok(run)
}

fn describe(asked: &Appends, run: &mut Run) {
    run.setting("streams", asked.streams);
    run.setting("connections", asked.connections);
    run.setting("pinned", asked.pinned);
    run.setting("depth", asked.depth);
    run.setting("payload-bytes", asked.payload_bytes);
    run.setting("warm-up-seconds", asked.warm_up_seconds);
    run.setting("seconds", asked.seconds);
    run.setting("producer", asked.producer);
    if let Some(rate) = asked.rate {
        run.setting("rate", rate);
    }
}
