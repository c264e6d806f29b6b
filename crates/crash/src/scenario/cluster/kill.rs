//! `kill -9` of the node that leads most groups, under writers on all three. How long the others wait is
//! measured; then everything is compared on each node.
//!
//! Every second cycle has the mixed load in place of the steady writers: that finds more, and measures nothing.

use super::HARMED;
use crate::cluster::Cluster;
use crate::load::Round;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// The load continues for so long after the kill, and again after the start.
const AFTERWARDS: Duration = Duration::from_millis(2_000);

/// No writer of a node that lives on may wait longer for its next acknowledgement.
const GAP_MAX: Duration = Duration::from_secs(1);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(5, 100);
    let dir = options.dir.join("cluster-kill");
    let mut trial = Trial::new(options, report, "cluster-kill", &dir)?;
    let mut cluster = Cluster::local(&mut trial, &dir)?;
    let mut gaps = Vec::new();
    for cycle in 0..cycles {
        let is_steady = cycle % 2 == 0;
        let pause = Duration::from_millis(trial.numbers.within(400, 1_500));
        let round = trial.round_at(cluster.doors()).expecting(HARMED);
        let during = || kill_and_start(&mut cluster, &round, pause);
        let done = round.run_either(is_steady, during);
        let (node, leaders) = done?;
        let ended = Instant::now();
        if is_steady {
            let (others, own) = round.gaps();
            println!(
                "[cluster-kill] node {} led {leaders} groups; longest gap {} ms, of its own clients {} ms",
                node + 1,
                others.as_millis(),
                own.as_millis()
            );
            gaps.push(others);
        }
        trial.clean()?;
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
    }
    for node in cluster.running() {
        cluster.take(node).stop()?;
    }
    judge(gaps)
}

/// Kills the busiest node and starts it again under load; which one, and how many groups it led.
fn kill_and_start(
    cluster: &mut Cluster,
    round: &Round<'_>,
    pause: Duration,
) -> Outcome<(usize, u64)> {
    std::thread::sleep(pause);
    let (node, leaders) = cluster.busiest()?;
    round.doors.fall(node);
    cluster.take(node).kill()?;
    std::thread::sleep(AFTERWARDS);
    let address = cluster.start(node)?;
    round.doors.stand(node, address);
    std::thread::sleep(AFTERWARDS / 2);
    Ok((node, leaders))
}

fn judge(mut gaps: Vec<Duration>) -> Outcome<Verdict> {
    gaps.sort_unstable();
    let Some(longest) = gaps.last() else { return Ok(Verdict::Done) };
    let count = gaps.len();
    let middle = gaps[count / 2];
    println!(
        "[cluster-kill] gaps of {count} kills: half are at most {} ms, the longest is {} ms",
        middle.as_millis(),
        longest.as_millis()
    );
    if *longest < GAP_MAX {
        return Ok(Verdict::Done);
    }
    Err(format!("a writer of a node that lives on waited for {} ms", longest.as_millis()))
}
