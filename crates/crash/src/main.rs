//! Crashes of every kind on real processes and real files, verified from outside over HTTP.
//!
//! # What
//! A load of many connections writes records that say what they are, and keeps a ledger of what was
//! acknowledged and what is unknown. Then the process is killed, the power is cut, a sync fails, the
//! disk is full or a bit flips. After a restart everything is compared with the ledger.
//!
//! # Driving it
//! `cargo xtask crash` builds what is needed and starts it. Every decision follows from the seed.
//! The exact moment of a kill depends on the machine, so a repeat may need several attempts.

mod cluster;
mod disk;
mod doors;
mod durations;
mod http;
mod ledger;
mod load;
mod net;
mod numbers;
mod record;
mod report;
mod scenario;
mod server;
mod throttle;
mod trial;
mod turns;
mod verify;

use clap::{Parser, ValueEnum};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use trial::{Options, Outcome, Verdict};

#[derive(Parser)]
#[command(
    name = "cargo xtask crash",
    about = "Crash a server in many ways and verify what it kept"
)]
struct Cli {
    /// What happens to the server, or to a node of a cluster
    #[arg(long, value_enum, default_value = "all")]
    scenario: Scenario,
    /// All scenarios of a cluster of three, in place of those of one server
    #[arg(long)]
    cluster: bool,
    /// Cycles of each scenario that has them
    #[arg(long, value_name = "N")]
    cycles: Option<u64>,
    /// About a minute for all scenarios together, three for those of a cluster
    #[arg(long)]
    short: bool,
    /// Leaves data and logs; a long history that an earlier run has left is used again
    #[arg(long)]
    keep: bool,
    /// Decides everything but the moments in time; a new one unless given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The server
    #[arg(long, value_name = "PATH")]
    bin: PathBuf,
    /// Where data and logs go; they are kept when a promise is broken
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Kill,
    Power,
    SyncFailure,
    DiskFull,
    Fill,
    BitFlip,
    Unreadable,
    Chunks,
    Starts,
    SlowReads,
    History,
    Clock,
    ClusterKill,
    ClusterPause,
    ClusterPower,
    ClusterRestart,
    ClusterFull,
    ClusterPartition,
    ClusterLost,
    ClusterMembers,
    ClusterAway,
    ClusterGrow,
    All,
}

type Run = fn(&Options, &Report) -> Outcome<Verdict>;

const OF_ONE: [(Scenario, Run); 12] = [
    (Scenario::Kill, scenario::kill::run),
    (Scenario::Power, scenario::power::run),
    (Scenario::SyncFailure, scenario::sync_failure::run),
    (Scenario::DiskFull, scenario::disk_full::run),
    (Scenario::Fill, scenario::fill::run),
    (Scenario::BitFlip, scenario::bit_flip::run),
    (Scenario::Unreadable, scenario::unreadable::run),
    (Scenario::Chunks, scenario::chunks::run),
    (Scenario::Starts, scenario::starts::run),
    (Scenario::SlowReads, scenario::slow_reads::run),
    (Scenario::History, scenario::history::run),
    (Scenario::Clock, scenario::clock::run),
];

const OF_A_CLUSTER: [(Scenario, Run); 10] = [
    (Scenario::ClusterKill, scenario::cluster::kill::run),
    (Scenario::ClusterPause, scenario::cluster::pause::run),
    (Scenario::ClusterPower, scenario::cluster::power::run),
    (Scenario::ClusterRestart, scenario::cluster::restart::run),
    (Scenario::ClusterFull, scenario::cluster::full::run),
    (Scenario::ClusterPartition, scenario::cluster::partition::run),
    (Scenario::ClusterLost, scenario::cluster::lost::run),
    (Scenario::ClusterMembers, scenario::cluster::members::run),
    (Scenario::ClusterAway, scenario::cluster::away::run),
    (Scenario::ClusterGrow, scenario::cluster::grow::run),
];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let seed = cli.seed.unwrap_or_else(new_seed);
    let options = Options {
        binary: cli.bin.clone(),
        dir: cli.dir.clone(),
        seed,
        cycles: cli.cycles,
        is_short: cli.short,
        is_kept: cli.keep,
    };
    if let Err(error) = std::fs::create_dir_all(&options.dir) {
        eprintln!("error: cannot make {}: {error}", options.dir.display());
        return ExitCode::FAILURE;
    }
    let started = Instant::now();
    let mut broken = 0;
    for (scenario, run) in cli.scenarios() {
        broken += u32::from(!run_one(&cli, &options, scenario, run));
    }
    println!("finished in {:.1} s, seed {seed}", started.elapsed().as_secs_f64());
    if broken > 0 {
        println!("data and logs are kept in {}", options.dir.display());
        return ExitCode::FAILURE;
    }
    if !cli.keep {
        let _ = std::fs::remove_dir_all(&options.dir);
    }
    ExitCode::SUCCESS
}

impl Cli {
    fn scenarios(&self) -> Vec<(Scenario, Run)> {
        match self.scenario {
            Scenario::All if self.cluster => OF_A_CLUSTER.to_vec(),
            Scenario::All => OF_ONE.to_vec(),
            one => {
                let all = OF_ONE.into_iter().chain(OF_A_CLUSTER);
                all.filter(|(scenario, _)| *scenario == one).collect()
            }
        }
    }
}

/// Runs a scenario and prints its result; `true` if all promises were kept.
fn run_one(cli: &Cli, options: &Options, scenario: Scenario, run: Run) -> bool {
    let name = scenario.to_possible_value().expect("no scenario is hidden");
    let name = name.get_name();
    let (report, started) = (Report::default(), Instant::now());
    println!("[{name}] seed {}", options.seed);
    let result = run(options, &report);
    let seconds = started.elapsed().as_secs_f64();
    match result {
        Ok(Verdict::Done) if report.is_clean() => {
            println!("[{name}] ok in {seconds:.1} s: {report}");
            return true;
        }
        Ok(Verdict::Skipped(why)) => {
            println!("[{name}] skipped: {why}");
            return true;
        }
        Ok(Verdict::Done) => println!("[{name}] FAILED after {seconds:.1} s: {report}"),
        Err(what) => println!("[{name}] FAILED after {seconds:.1} s: {what}\n  {report}"),
    }
    for violation in report.violations() {
        println!("[{name}] VIOLATION: {violation}");
    }
    println!("[{name}] repeat with: {}", repeat(cli, options, name));
    false
}

fn repeat(cli: &Cli, options: &Options, name: &str) -> String {
    let cycles = cli.cycles.map_or(String::new(), |cycles| format!(" --cycles {cycles}"));
    let short = if cli.short { " --short" } else { "" };
    format!(
        "cargo xtask crash --scenario {name}{cycles}{short} --seed {} --bin {}",
        options.seed,
        cli.bin.display()
    )
}

fn new_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::from(now.subsec_nanos()) ^ now.as_secs()) % 1_000_000_000
}
