//! `thalweg-sim`: runs seeds and prints what was broken.

mod hunt;

use clap::Parser;
use env::{Random, RealClock, RealRandom};
use hunt::{ClusterSum, Hunt};
use std::{ops::Range, process::ExitCode};
use thalweg_sim::{
    ClusterPlan, EnginePlan, Failure, FaultKind, Plan, RUNS_MAX, run, run_cluster, run_engine,
    shrink,
};

/// One of so many seeds runs the engine's world, too.
const ENGINE_SEEDS: u64 = 4;

/// Leaves 40 of 64 random bits: enough never to meet again, and short enough to be typed.
const FRESH_SEED_SHIFT: u32 = 24;

/// Run a whole node from a seed, with faults, and check what it promises
#[derive(Parser)]
#[command(name = "thalweg-sim")]
struct Cli {
    /// Run this seed alone and print every step
    #[arg(long)]
    seed: Option<u64>,
    /// Run this many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them; if it is not given, 0, or with --minutes a random one
    #[arg(long)]
    start: Option<u64>,
    /// Run seeds for this long instead
    #[arg(long)]
    minutes: Option<u64>,
    /// Look for a smaller plan that fails in the same way
    #[arg(long)]
    shrink: bool,
    /// Simulated seconds, instead of what the seed draws
    #[arg(long)]
    seconds: Option<u64>,
    /// Faults, separated by commas (or `none`), instead of what the seed draws
    #[arg(long, value_delimiter = ',')]
    faults: Option<Vec<String>>,
    /// Requests of 100 that go over HTTP/2, instead of what the seed draws
    #[arg(long)]
    http2_percent: Option<u64>,
    /// Whether there is an access file, instead of what the seed draws
    #[arg(long)]
    access: Option<bool>,
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    match go(&cli) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} seeds failed");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn go(cli: &Cli) -> Result<u64, String> {
    if cfg!(panic = "abort") {
        let problem = "this build ends at the first panic, without its seed; build it with `cargo build --profile hunt -p thalweg-sim`";
        return Err(problem.to_owned());
    }
    // A panic of the program is a finding, reported with its seed.
    if cli.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let seeds = seeds(cli);
    if cli.cluster {
        return Ok(hunt_clusters(cli, seeds));
    }
    let mut hunt = Hunt::begin();
    for seed in seeds {
        if cli.minutes.is_some_and(|minutes| hunt.elapsed_ms() >= minutes * 60_000) {
            break;
        }
        let has_held = hold_engine(cli, seed, &mut hunt) && hold_node(cli, seed, &mut hunt)?;
        if !has_held && !cli.keep_going {
            break;
        }
        hunt.report();
    }
    println!("{hunt}");
    Ok(hunt.failed_count())
}

/// Runs a seed of the node's world; whether it held.
fn hold_node(cli: &Cli, seed: u64, hunt: &mut Hunt) -> Result<bool, String> {
    if cli.engine {
        return Ok(true);
    }
    match run(&plan(cli, seed)?) {
        Ok(report) => {
            hunt.held(&report);
            if cli.seed.is_some() {
                println!("{report:#?}");
            }
            Ok(true)
        }
        Err(failure) => {
            hunt.failed(&failure);
            report(cli, *failure);
            Ok(false)
        }
    }
}

/// Runs a seed of the engine's world, if it is its turn; whether it held.
fn hold_engine(cli: &Cli, seed: u64, hunt: &mut Hunt) -> bool {
    let is_due = seed.is_multiple_of(ENGINE_SEEDS) && cli.seed.is_none();
    if !cli.engine && !is_due {
        return true;
    }
    let verbose = cli.seed.is_some() && !cli.quiet;
    match run_engine(EnginePlan { seed, mutant: None, verbose }) {
        Ok(report) => {
            hunt.engine_held(&report);
            true
        }
        Err(failure) => {
            hunt.engine_failed();
            eprintln!("{failure}");
            false
        }
    }
}

/// Runs seeds of the cluster's world. Returns how many of them failed.
fn hunt_clusters(cli: &Cli, seeds: Range<u64>) -> u64 {
    let begin = RealClock::new();
    let verbose = cli.seed.is_some() && !cli.quiet;
    let (mut failed, mut sum) = (0, ClusterSum::default());
    for seed in seeds {
        let is_over = |minutes| begin.cpu_ms() >= minutes * 60_000;
        if cli.minutes.is_some_and(is_over) {
            break;
        }
        match run_cluster(ClusterPlan { seed, mutant: None, verbose }) {
            Ok(report) => sum.add(&report),
            Err(failure) => {
                failed += 1;
                eprintln!("{failure}");
                if !cli.keep_going {
                    break;
                }
            }
        }
    }
    println!("{sum}, {failed} failed, {} CPU s", begin.cpu_ms() / 1000);
    failed
}

/// Which seeds to run. A hunt begins where nobody was before.
fn seeds(cli: &Cli) -> Range<u64> {
    match (cli.seed, cli.minutes, cli.start) {
        (Some(seed), ..) => seed..seed + 1,
        (None, Some(_), None) => {
            let first = RealRandom.next_u64() >> FRESH_SEED_SHIFT;
            println!("first seed: {first}");
            first..u64::MAX
        }
        (None, Some(_), Some(first)) => first..u64::MAX,
        (None, None, first) => {
            let first = first.unwrap_or(0);
            first..first.saturating_add(cli.seeds)
        }
    }
}

fn plan(cli: &Cli, seed: u64) -> Result<Plan, String> {
    let mut plan = Plan::of_seed(seed);
    plan.seconds = cli.seconds.unwrap_or(plan.seconds);
    plan.http2_percent = cli.http2_percent.unwrap_or(plan.http2_percent);
    plan.has_access = cli.access.unwrap_or(plan.has_access);
    plan.verbose = cli.seed.is_some() && !cli.quiet && !cli.shrink;
    if let Some(names) = &cli.faults {
        let names = names.iter().filter(|name| *name != "none");
        plan.faults = names.map(|name| fault(name)).collect::<Result<_, _>>()?;
    }
    Ok(plan)
}

fn fault(name: &str) -> Result<FaultKind, String> {
    let found = FaultKind::all().find(|kind| kind.name() == name);
    let all: Vec<&str> = FaultKind::all().map(FaultKind::name).collect();
    found.ok_or_else(|| format!("{name} is none of {}", all.join(", ")))
}

fn report(cli: &Cli, failure: Failure) {
    eprintln!("{failure}");
    let commit = option_env!("THALWEG_COMMIT").unwrap_or("unknown");
    eprintln!("  commit: {commit}");
    if cli.shrink {
        eprintln!("  looking for a smaller run, at most {RUNS_MAX} runs");
        eprintln!("smaller: {}", shrink(failure));
    }
}
