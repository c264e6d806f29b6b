//! The simulator: a whole node from a seed, with faults. `crates/sim` holds all of it; here it is
//! built, with the checks of a debug build, and given its flags.

use crate::run;
use crate::workspace::Workspace;
use clap::Args;
use std::process::Command;

/// What to simulate.
#[derive(Args, Default)]
pub(crate) struct Simulation {
    /// Run this seed alone and print every step
    #[arg(long)]
    seed: Option<u64>,
    /// Run this many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them; if it is not given, 0, or with --minutes a random one
    #[arg(long)]
    start: Option<u64>,
    /// Run seeds for this long instead
    #[arg(long)]
    minutes: Option<u64>,
    /// Simulated seconds, instead of what the seed draws
    #[arg(long)]
    seconds: Option<u64>,
    /// Faults, separated by commas (or `none`), instead of what the seed draws
    #[arg(long)]
    faults: Option<String>,
    /// Requests of 100 that go over HTTP/2, instead of what the seed draws
    #[arg(long)]
    http2_percent: Option<u64>,
    /// Look for a smaller run that fails in the same way
    #[arg(long)]
    shrink: bool,
    /// Do not print the steps of a single seed
    #[arg(long)]
    quiet: bool,
    /// Run the embedded engine alone; otherwise one seed in four runs it, too
    #[arg(long)]
    engine: bool,
    /// Run clusters of nodes instead
    #[arg(long)]
    cluster: bool,
    /// Continue after a failure
    #[arg(long)]
    keep_going: bool,
}

/// Runs the simulator.
pub(crate) fn run(workspace: &Workspace, simulation: &Simulation) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", "thalweg-sim", "--"]);
    command.current_dir(&workspace.root);
    if let Some(commit) = commit(workspace) {
        command.env("THALWEG_COMMIT", commit);
    }
    command.args(simulation.arguments());
    let advice = "a promise was broken; the lines above say by which seed and how to repeat it";
    let checked = run::check_and_repeat(&mut command, advice, is_finding);
    checked.map_err(|failure| failure.to_string())
}

/// Whether the simulator says in this line what was broken, or how to repeat it.
fn is_finding(line: &str) -> bool {
    line.contains("broke a promise") || line.contains("again: ")
}

impl Simulation {
    /// Seeds that nobody has run, for some minutes.
    pub(crate) fn fresh(minutes: u64) -> Self {
        Self { minutes: Some(minutes), ..Self::default() }
    }

    /// The first seeds of clusters: the same ones each time.
    pub(crate) fn clusters(seeds: u64) -> Self {
        Self { cluster: true, seeds: Some(seeds), ..Self::default() }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let numbers = [
            ("--seed", self.seed),
            ("--seeds", self.seeds),
            ("--start", self.start),
            ("--minutes", self.minutes),
            ("--seconds", self.seconds),
            ("--http2-percent", self.http2_percent),
        ];
        for (flag, number) in numbers {
            arguments.extend(number.into_iter().flat_map(|n| [flag.to_owned(), n.to_string()]));
        }
        arguments
            .extend(self.faults.iter().flat_map(|list| ["--faults".to_owned(), list.to_owned()]));
        let switches = [
            ("--shrink", self.shrink),
            ("--quiet", self.quiet),
            ("--engine", self.engine),
            ("--cluster", self.cluster),
            ("--keep-going", self.keep_going),
        ];
        arguments
            .extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(flag, _)| (*flag).into()));
        arguments
    }
}

/// The commit that is built, if this is a checkout.
fn commit(workspace: &Workspace) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.args(["rev-parse", "--short", "HEAD"]).current_dir(&workspace.root).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_passed_on() {
        let simulation = Simulation {
            seed: Some(7),
            seeds: None,
            start: None,
            minutes: None,
            seconds: None,
            http2_percent: None,
            faults: Some("kill".into()),
            shrink: true,
            quiet: false,
            engine: false,
            cluster: false,
            keep_going: false,
        };
        assert_eq!(simulation.arguments(), ["--seed", "7", "--faults", "kill", "--shrink"]);
    }
}
