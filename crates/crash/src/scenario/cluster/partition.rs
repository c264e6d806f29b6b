//! Links between nodes are cut, in one direction or in both, and heal again. Each node has a machine of its own; clients reach
//! all of them all the time. Nobody hears that a packet is lost.

use super::HARMED;
use crate::cluster::{Cluster, NODE_COUNT};
use crate::net::Net;
use crate::numbers::Numbers;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// The load continues for so long after links are whole again.
const AFTERWARDS: Duration = Duration::from_millis(1_500);

/// A link that is cut is noticed within such a time.
const SEEN: Duration = Duration::from_millis(4_000);

/// Which links are cut, as seen from the node that leads most groups.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// It hears nobody, and nobody hears it.
    Alone,
    /// It hears nobody.
    Deaf,
    /// Nobody hears it.
    Mute,
    /// Another node and it do not hear each other. The third one hears both.
    Pair,
    /// The same in one direction.
    OneWay,
}

const CUTS: [Cut; 5] = [Cut::Alone, Cut::Deaf, Cut::Mute, Cut::Pair, Cut::OneWay];

impl Cut {
    /// What is lost: from which node to which.
    fn links(self, busiest: usize, numbers: &mut Numbers) -> Vec<(usize, usize)> {
        let others = (0..NODE_COUNT).filter(|node| *node != busiest).collect::<Vec<_>>();
        let other = *numbers.pick(&others);
        let from = others.iter().map(|other| (*other, busiest));
        let to = others.iter().map(|other| (busiest, *other));
        match self {
            Self::Alone => from.chain(to).collect(),
            Self::Deaf => from.collect(),
            Self::Mute => to.collect(),
            Self::Pair => vec![(busiest, other), (other, busiest)],
            Self::OneWay if numbers.chance(50) => vec![(busiest, other)],
            Self::OneWay => vec![(other, busiest)],
        }
    }
}

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(5, 100);
    let net = match Net::make(NODE_COUNT) {
        Ok(net) => net,
        Err(missing) => return Ok(Verdict::Skipped(missing)),
    };
    let dir = options.dir.join("cluster-partition");
    let mut trial = Trial::new(options, report, "cluster-partition", &dir)?;
    let cluster = net.cluster(&mut trial, &dir)?;
    for cycle in 0..cycles {
        let cut = CUTS[cycle as usize % CUTS.len()];
        let before = Duration::from_millis(trial.numbers.within(200, 1_200));
        let length = Duration::from_millis(trial.numbers.within(300, 8_000));
        let is_steady = trial.numbers.chance(50);
        let mut numbers = trial.numbers.clone();
        let round = trial.round_at(cluster.doors()).expecting(HARMED);
        let during = || -> Outcome<()> {
            std::thread::sleep(before);
            let (busiest, _) = cluster.busiest()?;
            // Its clients may wait for as long as the cut lasts.
            round.doors.fall(busiest);
            let links = cut.links(busiest, &mut numbers);
            links.iter().try_for_each(|(from, to)| net.cut(*from, *to))?;
            std::thread::sleep(length);
            if length > SEEN {
                all_see(&cluster, &links)?;
            }
            net.heal()?;
            round.doors.stand(busiest, cluster.server(busiest).address);
            std::thread::sleep(AFTERWARDS);
            Ok(())
        };
        round.run_either(is_steady, during)?;
        let ended = Instant::now();
        let (others, own) = round.gaps();
        trial.clean()?;
        let gaps = match is_steady {
            true => format!(
                ": longest gap of others {} ms, of its clients {} ms",
                others.as_millis(),
                own.as_millis()
            ),
            false => String::new(),
        };
        trial.progress(&format!("{cut:?} for {} ms{gaps}", length.as_millis()));
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
    }
    Ok(Verdict::Done)
}

/// Both ends of each link that is cut must have noticed it.
fn all_see(cluster: &Cluster, links: &[(usize, usize)]) -> Outcome<()> {
    for (node, other) in links.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]) {
        let status = cluster.status(node)?;
        if status["nodes"][other]["up"] != false {
            let (node, other) = (node + 1, other + 1);
            return Err(format!(
                "node {node} has not noticed that its link to node {other} is cut"
            ));
        }
    }
    Ok(())
}
