//! Memory, disk and descriptors of streams that nobody uses.

use super::{Bench, streams};
use crate::cli::IdleStreams;
use crate::failure::{Failure, Outcome};
use crate::report::Run;
use std::time::Duration;

/// Created before anything is measured, over as many connections: what these and the first writes take is no stream's.
const WARM_UP_STREAMS: u64 = 1024;

const MIB: f64 = (1 << 20) as f64;

pub(super) fn run(bench: &Bench, asked: &IdleStreams) -> Outcome<Run> {
    let mut server = bench.server()?;
    let mut run = bench.start_run("idle-streams", &server);
    run.setting("streams", asked.streams);
    run.setting("connections", asked.connections);
    run.setting("depth", asked.depth);
    let no_process = || Failure::new("the server's process cannot be measured");
    let process = server.process().ok_or_else(no_process)?;
    let settle = Duration::from_secs(asked.settle_seconds);

    let out = (asked.connections, asked.depth);
    streams::create(&server, "first", WARM_UP_STREAMS, out)?;
    let disk_before = server.settled_disk_bytes(settle)?;
    let before = process.memory().ok_or_else(no_process)?;
    let descriptors_before = process.open_descriptors().unwrap_or_default();
    let created = streams::create(&server, "idle", asked.streams, out)?;
    streams::report(&created, "create", &mut run);
    let peak = process.memory().ok_or_else(no_process)?.peak_bytes;
    let disk_settled = server.settled_disk_bytes(settle)?;
    let disk_parts = server.disk_parts()?;
    let after = process.memory().ok_or_else(no_process)?;
    let descriptors_after = process.open_descriptors().unwrap_or_default();

    // A clean end writes what a checkpoint would; what a new start makes of it counts too.
    let (took, status) = server.terminate()?;
    let disk_ended = server.disk_bytes()?;
    let ready = server.restart()?;
    let process = server.process().ok_or_else(no_process)?;
    let restarted = process.memory().ok_or_else(no_process)?;

    let each = |bytes: u64, base: u64| (bytes as f64 - base as f64) / asked.streams as f64;
    run.figure("memory before", before.resident_bytes as f64 / MIB, "MiB");
    run.figure("memory after", after.resident_bytes as f64 / MIB, "MiB");
    run.figure("memory peak while creating", peak as f64 / MIB, "MiB");
    run.figure("memory per stream", each(after.resident_bytes, before.resident_bytes), "B");
    let again = each(restarted.resident_bytes, before.resident_bytes);
    run.figure("memory per stream after restart", again, "B");
    run.figure("descriptors before", descriptors_before as f64, "");
    run.figure("descriptors after", descriptors_after as f64, "");
    run.figure("disk before", disk_before as f64 / MIB, "MiB");
    run.figure("disk after settling", disk_settled as f64 / MIB, "MiB");
    for (name, bytes) in disk_parts {
        run.figure(format!("disk after settling, {name}"), bytes as f64 / MIB, "MiB");
    }
    run.figure("disk per stream", each(disk_settled, disk_before), "B");
    run.figure("disk per stream after a clean end", each(disk_ended, disk_before), "B");
    run.figure("restart until ready", ready.as_secs_f64() * 1e3, "ms");
    run.figure("SIGTERM until exit", took.as_secs_f64() * 1e3, "ms");
    run.check(format!("the server ended with success ({status})"), status.success());
    let few = descriptors_after <= descriptors_before + 64;
    run.check("descriptors do not grow with streams", few);
    Ok(run)
}
