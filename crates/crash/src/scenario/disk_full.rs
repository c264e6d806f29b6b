//! The disk fills up: writes are refused with 507 and change nothing, while reads continue. When
//! space comes back, so does the service.

use crate::disk::Disk;
use crate::report::Report;
use crate::server::Server;
use crate::trial::{Options, Outcome, Trial, Verdict, wait_until};
use crate::verify::Allowed;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const DISK_MIB: u64 = 64;
/// What is freed again.
const BALLAST_BYTES: usize = 44 << 20;
const EXPECTED: &[&str] = &["disk-full"];
/// The load continues for so long while the disk is full.
const LINGER: Duration = Duration::from_millis(1500);
/// Appends that prove that the service is back.
const APPENDS_AFTER: u64 = 20;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(1, 5);
    for cycle in 0..cycles {
        let mut disk = match Disk::make(&options.dir, &format!("full-{cycle}"), DISK_MIB) {
            Ok(disk) => disk,
            Err(missing) => return Ok(Verdict::Skipped(missing)),
        };
        let mut options = options.clone();
        options.seed = options.seed.wrapping_add(cycle);
        let mut trial = Trial::new(&options, report, "disk-full", &disk.path().join("data"))?;
        one(&mut trial, &disk.path().join("ballast"))?;
        trial.count_cycle(cycles);
        disk.unmount()?;
    }
    Ok(Verdict::Done)
}

fn one(trial: &mut Trial<'_>, ballast: &Path) -> Outcome<()> {
    std::fs::write(ballast, vec![1; BALLAST_BYTES]).map_err(|error| error.to_string())?;
    let small = "--shards=1 --segment-bytes=1MiB --wal-bytes-max=4MiB --seal-bytes=64KiB";
    trial.start.flags = small.split(' ').map(str::to_owned).collect();
    let server = trial.start.serve()?;
    let told = with_load(trial, &server, || {
        let told = wait_until("/readyz tells of a full disk", || {
            let (status, text) = server.readiness()?;
            Ok(status == 503 && text.contains("disk_full"))
        });
        std::thread::sleep(LINGER);
        told
    });
    told?;
    trial.progress("full");
    let full = Allowed { read_only: true, unsettled: true, ..Allowed::default() };
    trial.verify(&server, full)?;

    std::fs::remove_file(ballast).map_err(|error| error.to_string())?;
    let acknowledged = &trial.report.acknowledged;
    let before = acknowledged.load(Ordering::Relaxed);
    let back = with_load(trial, &server, || {
        wait_until("the service returns", || {
            Ok(acknowledged.load(Ordering::Relaxed) >= before + APPENDS_AFTER)
        })
    });
    back?;
    trial.progress("writing again");
    server.kill()?;
    let server = trial.start.serve()?;
    // It may be full again: a start on a full disk serves reads.
    trial.verify(&server, Allowed { read_only: true, ..Allowed::default() })?;
    server.kill()
}

fn with_load(
    trial: &mut Trial<'_>,
    server: &Server,
    during: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    let round = trial.round(server).expecting(EXPECTED);
    let result = round.run(during);
    result.and_then(|()| trial.clean())
}
