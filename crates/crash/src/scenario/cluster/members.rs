//! Nodes join and are removed while clients write: there are never less than three. No write is lost, and none at a node that
//! stays waits for longer than an election takes.

use super::HARMED;
use crate::cluster::{Cluster, Home, NODE_COUNT};
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// The load continues for so long after each step.
const AFTERWARDS: Duration = Duration::from_millis(1_000);

/// No writer of a node that stays may wait longer for its next acknowledgement. Groups move, and the machine is busy.
const GAP_MAX: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(1, 20);
    let dir = options.dir.join("cluster-members");
    let mut trial = Trial::new(options, report, "cluster-members", &dir)?;
    let home = |node: usize| Home::below(&dir, node);
    let mut cluster = Cluster::default();
    cluster.grow(&mut trial, (0..NODE_COUNT).map(home))?;
    for cycle in 0..cycles {
        let before = report.answers();
        let new = cluster.prepare(&mut trial, home(cluster.count()))?;
        let is_busiest = trial.numbers.chance(50);
        let running = cluster.running();
        let any = *trial.numbers.pick(&running);
        let round = trial.round_at(cluster.doors()).expecting(HARMED);
        let during = || -> Outcome<usize> {
            std::thread::sleep(AFTERWARDS);
            round.doors.stand(new, cluster.start(new)?);
            cluster.wait_whole()?;
            std::thread::sleep(AFTERWARDS);
            let leaver = if is_busiest { cluster.busiest()?.0 } else { any };
            round.doors.fall(leaver);
            cluster.remove(leaver)?;
            cluster.wait_whole()?;
            std::thread::sleep(AFTERWARDS);
            Ok(leaver)
        };
        let is_steady = cycle % 2 == 0;
        let leaver = round.run_either(is_steady, during)?;
        let ended = Instant::now();
        let (others, own) = round.gaps();
        trial.clean()?;
        trial.progress(&format!(
            "node {} joined, node {} left: {}",
            new + 1,
            leaver + 1,
            report.answers() - before
        ));
        if is_steady {
            let (others, own) = (others.as_millis(), own.as_millis());
            println!("[cluster-members] longest gap {others} ms, of the leaver's clients {own} ms");
        }
        if others > GAP_MAX {
            return Err(format!(
                "a writer of a node that stays waited for {} ms",
                others.as_millis()
            ));
        }
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
    }
    Ok(Verdict::Done)
}
