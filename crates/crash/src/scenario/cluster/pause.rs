//! The node that leads most groups is stopped for up to five seconds, and continues as if nothing had been. It may
//! believe that it leads, and it has requests of clients and of other nodes in its hands.

use super::HARMED;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// The load continues for so long after the pause.
const AFTERWARDS: Duration = Duration::from_millis(800);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(2, 50);
    let dir = options.dir.join("cluster-pause");
    let mut trial = Trial::new(options, report, "cluster-pause", &dir)?;
    let cluster = Cluster::local(&mut trial, &dir)?;
    for _ in 0..cycles {
        let before = Duration::from_millis(trial.numbers.within(200, 1_200));
        let pause = Duration::from_millis(trial.numbers.within(200, 5_000));
        let is_steady = trial.numbers.chance(25);
        let round = trial.round_at(cluster.doors()).expecting(HARMED);
        let during = || -> Outcome<usize> {
            std::thread::sleep(before);
            let (node, _) = cluster.busiest()?;
            cluster.server(node).signal("STOP")?;
            std::thread::sleep(pause);
            cluster.server(node).signal("CONT")?;
            std::thread::sleep(AFTERWARDS);
            Ok(node)
        };
        let node = round.run_either(is_steady, during)?;
        let ended = Instant::now();
        trial.clean()?;
        trial.progress(&format!("node {} stopped for {} ms", node + 1, pause.as_millis()));
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
    }
    Ok(Verdict::Done)
}
