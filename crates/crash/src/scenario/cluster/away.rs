//! A node is away while the others take writes. When it is back it fetches what it lacks, and not much more: what comes to its
//! machine is counted from outside.

use super::HARMED;
use crate::cluster::{Cluster, NODE_COUNT};
use crate::net::Net;
use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use std::time::{Duration, Instant};

/// The load continues for so many times as long before the node goes: what it has then must not come again.
const BEFORE_TIMES: u32 = 2;

/// A node may fetch so much for each hundred bytes that were written meanwhile.
const FETCHED_PERCENT_MAX: u64 = 120;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let away = Duration::from_secs(if options.is_short { 10 } else { 300 });
    let cycles = options.cycles(1, 1);
    let net = match Net::make(NODE_COUNT) {
        Ok(net) => net,
        Err(missing) => return Ok(Verdict::Skipped(missing)),
    };
    let dir = options.dir.join("cluster-away");
    let mut trial = Trial::new(options, report, "cluster-away", &dir)?;
    let mut cluster = net.cluster(&mut trial, &dir)?;
    for _ in 0..cycles {
        let (node, _) = cluster.busiest()?;
        let round = trial.round_at(cluster.doors()).expecting(HARMED);
        let written = round.run(|| -> Outcome<u64> {
            std::thread::sleep(BEFORE_TIMES * away);
            round.doors.fall(node);
            cluster.take(node).kill()?;
            let before = payload(&cluster)?;
            std::thread::sleep(away);
            Ok(payload(&cluster)? - before)
        })?;
        let ended = Instant::now();
        trial.clean()?;
        let (before, began) = (net.received(node)?, Instant::now());
        cluster.start(node)?;
        cluster.wait_whole()?;
        let (took, fetched) = (began.elapsed(), net.received(node)? - before);
        println!(
            "[cluster-away] {} s away: {written} bytes of appends were acknowledged meanwhile, {fetched} \
             came to the node in {:.1} s, {} %",
            away.as_secs(),
            took.as_secs_f64(),
            fetched * 100 / written.max(1)
        );
        cluster.verify(&mut trial, ended)?;
        trial.count_cycle(cycles);
        if fetched * 100 > written * FETCHED_PERCENT_MAX {
            return Err(format!("more than {FETCHED_PERCENT_MAX} % were fetched"));
        }
    }
    Ok(Verdict::Done)
}

/// Bytes of appends that the nodes which run have acknowledged.
fn payload(cluster: &Cluster) -> Outcome<u64> {
    let running = cluster.running();
    running.into_iter().map(|node| cluster.server(node).metric("append_bytes_total")).sum()
}
