//! A node and its disk are gone for good, and nobody says so. A new node joins, and the cluster puts it in the lost one's place.
//! Then another node is killed: the others have everything.

use super::HARMED;
use crate::cluster::{Cluster, Home, NODE_COUNT};
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// Nobody waits ten minutes here.
const REPLACE: &str = "--replace-after-seconds=3";

/// The load continues for so long after each step.
const AFTERWARDS: Duration = Duration::from_millis(1_500);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(1, 10);
    let dir = options.dir.join("cluster-lost");
    let mut trial = Trial::new(options, report, "cluster-lost", &dir)?;
    let home = |node: usize| Home::below(&dir, node);
    let mut cluster = Cluster::with(&[REPLACE]);
    cluster.grow(&mut trial, (0..NODE_COUNT).map(home))?;
    for _ in 0..cycles {
        let (lost, _) = cluster.busiest()?;
        let (took, ended) = replace(&mut trial, &mut cluster, lost, home)?;
        trial.progress(&format!(
            "node {} lost; all groups have three voters {:.1} s after the new node began",
            lost + 1,
            took.as_secs_f64()
        ));
        cluster.verify(&mut trial, ended)?;
        // The new node is the last one.
        let mut old = cluster.running();
        old.pop();
        let second = *trial.numbers.pick(&old);
        let ended = kill_second(&mut trial, &mut cluster, second)?;
        cluster.compare(&mut trial, ended)?;
        cluster.start(second)?;
        cluster.wait_whole()?;
        // A cluster has so many members at a time.
        cluster.remove_lost(lost)?;
        trial.count_cycle(cycles);
    }
    Ok(Verdict::Done)
}

/// Loses a node under load, and lets a new one join; how long it took until all groups had three voters, and when the load
/// ended.
fn replace(
    trial: &mut Trial<'_>,
    cluster: &mut Cluster,
    lost: usize,
    home: impl Fn(usize) -> Home,
) -> Outcome<(Duration, Instant)> {
    let new = cluster.prepare(trial, home(cluster.count()))?;
    let round = trial.round_at(cluster.doors()).expecting(HARMED);
    let took = round.run(|| -> Outcome<Duration> {
        std::thread::sleep(AFTERWARDS);
        round.doors.fall(lost);
        cluster.take(lost).kill()?;
        let data = cluster.data(lost);
        std::fs::remove_dir_all(data).map_err(|error| format!("{}: {error}", data.display()))?;
        std::thread::sleep(AFTERWARDS);
        let began = Instant::now();
        round.doors.stand(new, cluster.start(new)?);
        cluster.wait_whole()?;
        let took = began.elapsed();
        std::thread::sleep(AFTERWARDS);
        Ok(took)
    })?;
    let ended = Instant::now();
    trial.clean()?;
    Ok((took, ended))
}

fn kill_second(trial: &mut Trial<'_>, cluster: &mut Cluster, second: usize) -> Outcome<Instant> {
    let round = trial.round_at(cluster.doors()).expecting(HARMED);
    round.run(|| -> Outcome<()> {
        std::thread::sleep(AFTERWARDS);
        round.doors.fall(second);
        cluster.take(second).kill()?;
        std::thread::sleep(2 * AFTERWARDS);
        Ok(())
    })?;
    let ended = Instant::now();
    trial.clean()?;
    Ok(ended)
}
