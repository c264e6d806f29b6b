//! Time from start to ready, after no notice and after a clean end.

use super::{Bench, Calls, streams};
use crate::api::MEDIA_TYPE;
use crate::cli::Recovery;
use crate::failure::{Doing, Outcome};
use crate::load::driver::Driver;
use crate::load::exchange::{Plan, exchange};
use crate::progress::Progress;
use crate::report::Run;
use crate::server::Server;
use std::time::{Duration, Instant};
use streams::Appender;

const CONNECTIONS: usize = 64;
const DEPTH: usize = 8;
const PAYLOAD_BYTES: usize = 64;

pub(super) fn run(bench: &Bench, asked: &Recovery) -> Outcome<Run> {
    let mut server = bench.server()?;
    let mut run = bench.start_run("recovery", &server);
    run.setting("streams", asked.streams);
    run.setting("empty", asked.empty);
    streams::create(&server, "r", asked.streams, (CONNECTIONS, DEPTH))?;
    let count = if asked.empty { 0 } else { asked.streams };
    let mut appender = Appender::new(&server, "r", asked.streams, PAYLOAD_BYTES).at_most(count);
    let mut driver = Driver::connect(server.address, CONNECTIONS)?;
    let plan = Plan { depth: DEPTH, rate: None, duration: None };
    let appended = exchange(&mut driver, &mut appender, plan, &mut Progress::start("appends"))?;
    run.check(format!("every append was acknowledged ({count})"), appended.acknowledged == count);
    drop(driver);

    let mut progress = Progress::start("kill -9 and restart");
    server.kill()?;
    look(&mut server, "kill -9", (&appender, asked), &mut run)?;
    progress.show(Instant::now(), 1, "restarts");
    let (took, status) = server.terminate()?;
    run.figure("SIGTERM until exit", took.as_secs_f64() * 1e3, "ms");
    run.check(format!("the server ended with success ({status})"), status.success());
    look(&mut server, "SIGTERM", (&appender, asked), &mut run)?;
    Ok(run)
}

/// Starts the server again; how long until it was ready and until a write was acknowledged, and
/// whether it holds what it held.
fn look(
    server: &mut Server,
    after: &str,
    held: (&Appender, &Recovery),
    run: &mut Run,
) -> Outcome<()> {
    let start = Instant::now();
    let ready = server.restart()?;
    let calls = Calls::new(server)?;
    let path = format!("bench/after/{}", after.replace(' ', ""));
    let first = calls.wait(calls.client.create(&path, MEDIA_TYPE));
    first.doing(|| format!("the first create after {after}"))?;
    let first = start.elapsed();
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    run.figure(format!("ready after {after}"), ms(ready), "ms");
    run.figure(format!("first acknowledgement after {after}"), ms(first), "ms");
    let memory = server.process().and_then(crate::process::Process::memory).unwrap_or_default();
    let mib = memory.peak_bytes as f64 / f64::from(1 << 20);
    run.figure(format!("memory peak at start after {after}"), mib, "MiB");
    let (appender, asked) = held;
    appender.verify(server, asked.verify_streams, run)
}
