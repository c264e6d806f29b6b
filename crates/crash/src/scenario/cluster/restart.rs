//! All three nodes are restarted one after the other, by SIGTERM, while clients write and read. An orderly end hands
//! over what the node leads, and its clients go elsewhere when an answer says so. Those that have one request under way at a time get
//! no answer but success, and one to each request. Others have several under way, and what follows an answer that ends its connection is counted.

use super::HARMED;
use crate::cluster::{Cluster, NODE_COUNT};
use crate::load::Round;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// The load continues for so long between two restarts.
const BETWEEN: Duration = Duration::from_millis(500);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(1, 10);
    let dir = options.dir.join("cluster-restart");
    let mut trial = Trial::new(options, report, "cluster-restart", &dir)?;
    let mut cluster = Cluster::local(&mut trial, &dir)?;
    for cycle in 0..cycles {
        let before = report.answers();
        let round = trial.round_at(cluster.doors()).expecting(HARMED);
        let during = || restart_all(&mut cluster, &round);
        let is_steady = cycle % 2 == 0;
        round.run_either(is_steady, during)?;
        let ended = Instant::now();
        let (others, own) = round.gaps();
        let answers = report.answers() - before;
        println!(
            "[cluster-restart] all three restarted: {answers}; longest gap {} ms",
            others.max(own).as_millis()
        );
        if is_steady && !answers.are_all_acknowledged() {
            report.violation(format!("nodes ended in order, and not all was answered: {answers}"));
        }
        trial.clean()?;
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
    }
    Ok(Verdict::Done)
}

fn restart_all(cluster: &mut Cluster, round: &Round<'_>) -> Outcome<()> {
    for node in 0..NODE_COUNT {
        std::thread::sleep(BETWEEN);
        round.doors.fall(node);
        cluster.take(node).stop()?;
        let address = cluster.start(node)?;
        round.doors.stand(node, address);
        cluster.wait_whole()?;
    }
    std::thread::sleep(BETWEEN);
    Ok(())
}
