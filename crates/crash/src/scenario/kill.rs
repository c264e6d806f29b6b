//! `kill -9` at any moment, a start with another number of shards, and everything compared.
//!
//! Some starts are killed themselves, while they recover; some ends are orderly, under load.

use crate::report::Report;
use crate::trial::{Options, Outcome, Trial, Verdict};
use crate::verify::Allowed;
use std::time::Duration;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let cycles = options.cycles(12, 200);
    let mut trial = Trial::new(options, report, "kill", &options.dir.join("kill"))?;
    let mut server = trial.serve()?;
    for _ in 0..cycles {
        let pause = Duration::from_millis(pause_ms(&mut trial));
        let is_orderly = trial.numbers.chance(5);
        let round = trial.round(&server);
        let ended = round.run(|| {
            std::thread::sleep(pause);
            round.expect_death();
            if is_orderly { server.stop() } else { server.kill() }
        });
        ended?;
        trial.clean()?;
        while trial.numbers.chance(15) {
            kill_while_starting(&mut trial)?;
        }
        server = trial.serve()?;
        trial.verify(&server, Allowed::default())?;
        trial.count_cycle(cycles);
    }
    server.stop()?;
    Ok(Verdict::Done)
}

/// Mostly short: the first moments after a start are those that differ.
fn pause_ms(trial: &mut Trial<'_>) -> u64 {
    if trial.numbers.chance(50) {
        trial.numbers.within(0, 150)
    } else {
        trial.numbers.within(150, 1500)
    }
}

fn kill_while_starting(trial: &mut Trial<'_>) -> Outcome<()> {
    let mut child = trial.start.spawn().map_err(|error| format!("cannot start it: {error}"))?;
    std::thread::sleep(Duration::from_millis(trial.numbers.within(0, 120)));
    child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
    Ok(())
}
