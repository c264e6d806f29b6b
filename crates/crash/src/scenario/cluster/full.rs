//! The disk of one node fills up. What its cluster acknowledges meanwhile is on the other two; when space comes
//! back, so does the node.

use crate::cluster::{Cluster, Home};
use crate::disk::Disk;
use crate::load::Round;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict, wait_until};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const DISK_MIB: u64 = 96;
/// What is freed again.
const BALLAST_BYTES: usize = 56 << 20;
const EXPECTED: &[&str] = &["disk-full", "no-leader", "write-unknown"];
/// The load continues for so long while the disk is full.
const LINGER: Duration = Duration::from_secs(3);
/// Appends that prove that the cluster serves.
const APPENDS_AFTER: u64 = 100;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(1, 5);
    for cycle in 0..cycles {
        let mut options = options.clone();
        options.seed = options.seed.wrapping_add(cycle);
        let dir = options.dir.join(format!("cluster-full-{cycle}"));
        let mut trial = Trial::new(&options, report, "cluster-full", &dir)?;
        let mut disk = match Disk::make(&dir, "small", DISK_MIB) {
            Ok(disk) => disk,
            Err(missing) => return Ok(Verdict::Skipped(missing)),
        };
        one(&mut trial, &dir, disk.path())?;
        trial.count_cycle(cycles);
        disk.unmount()?;
    }
    Ok(Verdict::Done)
}

fn one(trial: &mut Trial<'_>, dir: &Path, small: &Path) -> Outcome<()> {
    let ballast = small.join("ballast");
    std::fs::write(&ballast, vec![1; BALLAST_BYTES]).map_err(|error| error.to_string())?;
    let homes = [dir.join("n1"), small.join("data"), dir.join("n3")].map(Home::local);
    let mut cluster = Cluster::smallest();
    cluster.grow(trial, homes)?;
    let round = trial.round_at(cluster.doors()).expecting(EXPECTED);
    round.run(|| fill_and_free(&cluster, &round, &ballast))?;
    let ended = Instant::now();
    trial.clean()?;
    trial.progress("filled, and with space again");
    cluster.verify(trial, ended)?;
    for node in cluster.running() {
        cluster.take(node).kill()?;
    }
    Ok(())
}

/// Writes until the disk is full, and on for a while; gives the space back, and waits until the node is well.
fn fill_and_free(cluster: &Cluster, round: &Round<'_>, ballast: &Path) -> Outcome<()> {
    let acknowledged = || round.report.acknowledged.load(Ordering::Relaxed);
    wait_until("/readyz tells of a full disk", || {
        let (status, text) = cluster.server(1).readiness()?;
        Ok(status == 503 && text.contains("disk_full"))
    })?;
    let full_at = acknowledged();
    std::thread::sleep(LINGER);
    println!("[cluster-full] {} appends acknowledged beside a full disk", acknowledged() - full_at);
    std::fs::remove_file(ballast).map_err(|error| error.to_string())?;
    let freed_at = acknowledged();
    wait_until("the cluster serves with space again", || {
        Ok(acknowledged() >= freed_at + APPENDS_AFTER && cluster.server(1).readiness()?.0 == 200)
    })
}
