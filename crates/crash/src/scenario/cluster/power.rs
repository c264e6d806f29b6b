//! The power of all three nodes goes at once, or that of one alone.
//!
//! Each node has a file system of its own, which is ended without its log. What was not synced is gone; what was
//! acknowledged must be there.

use crate::cluster::{Cluster, Home, NODE_COUNT};
use crate::disk::Disk;
use crate::load::Round;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// Room for what the load keeps, several times over.
const DISK_MIB: u64 = 1024;

/// What nodes may answer between the cut and their end.
const AFTER_THE_CUT: &[&str] =
    &["no-leader", "write-unknown", "storage-failed", "disk-full", "internal"];

/// The load continues for so long on the nodes that have power.
const AFTERWARDS: Duration = Duration::from_millis(1_500);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(2, 30);
    let dir = options.dir.join("cluster-power");
    let mut trial = Trial::new(options, report, "cluster-power", &dir)?;
    let mut disks = Vec::new();
    for node in 1..=NODE_COUNT {
        match Disk::make(&dir, &format!("n{node}"), DISK_MIB) {
            Ok(disk) => disks.push(disk),
            Err(missing) => return Ok(Verdict::Skipped(missing)),
        }
    }
    let homes = disks.iter().map(|disk| Home::local(disk.path().join("data")));
    let mut cluster = Cluster::default();
    cluster.grow(&mut trial, homes)?;
    for cycle in 0..cycles {
        let victims = match cycle % 3 {
            0 | 2 => (0..NODE_COUNT).collect(),
            _ => vec![cluster.busiest()?.0],
        };
        let ended = cut(&mut trial, &mut cluster, &mut disks, &victims)?;
        trial.progress(&format!("power of {} nodes cut", victims.len()));
        trial.clean()?;
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
    }
    for node in cluster.running() {
        cluster.take(node).kill()?;
    }
    Ok(Verdict::Done)
}

/// Cuts the power of some nodes under load and starts them again; when the load ended.
fn cut(
    trial: &mut Trial<'_>,
    cluster: &mut Cluster,
    disks: &mut [Disk],
    victims: &[usize],
) -> Outcome<Instant> {
    let pause = Duration::from_millis(trial.numbers.within(300, 2_000));
    let linger = Duration::from_millis(trial.numbers.within(0, 60));
    let round = trial.round_at(cluster.doors()).expecting(AFTER_THE_CUT).losing_its_disk();
    let is_all = victims.len() == NODE_COUNT;
    round.run(|| -> Outcome<()> {
        std::thread::sleep(pause);
        cut_now(disks, victims, &round)?;
        std::thread::sleep(linger);
        // They may have ended by themselves: their disks are gone.
        victims.iter().for_each(|node| drop(cluster.take(*node).kill()));
        if !is_all {
            std::thread::sleep(AFTERWARDS);
        }
        Ok(())
    })?;
    let ended = Instant::now();
    for node in victims {
        let disk = &mut disks[*node];
        disk.unmount()?;
        disk.check()?;
        disk.mount()?;
    }
    for node in victims {
        cluster.start(*node)?;
    }
    Ok(ended)
}

/// All at once, as far as threads go.
fn cut_now(disks: &[Disk], victims: &[usize], round: &Round<'_>) -> Outcome<()> {
    std::thread::scope(|scope| {
        let cut = |node: &usize| {
            round.doors.fall(*node);
            disks[*node].cut_power()
        };
        let cuts: Vec<_> = victims.iter().map(|node| scope.spawn(move || cut(node))).collect();
        cuts.into_iter().try_for_each(|cut| cut.join().expect("a cut does not panic"))
    })
}
