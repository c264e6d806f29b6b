//! `thalweg-sim`: runs seeds and prints what was broken.

use clap::Parser;
use env::{Clock, RealClock};
use std::process::ExitCode;
use thalweg_sim::{Failure, FaultKind, Plan, run, shrink};

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
    /// The first of them
    #[arg(long, default_value_t = 0)]
    start: u64,
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
    /// Do not print the steps of a single seed
    #[arg(long)]
    quiet: bool,
    /// Go on after a failure
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
    // A panic of the program is a finding, reported with its seed.
    if cli.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let clock = RealClock::new();
    let begin = clock.now_monotonic();
    let (first, count) = match (cli.seed, cli.minutes) {
        (Some(seed), _) => (seed, 1),
        (None, Some(_)) => (cli.start, u64::MAX - cli.start),
        (None, None) => (cli.start, cli.seeds),
    };
    let mut failed = 0;
    let mut done = 0;
    let mut totals = [0; 4];
    for seed in first..first.saturating_add(count) {
        let elapsed_ms = clock.now_monotonic().ms_since(begin);
        if cli.minutes.is_some_and(|minutes| elapsed_ms >= minutes * 60_000) {
            break;
        }
        done += 1;
        match run(&plan(cli, seed)?) {
            Ok(report) => {
                totals[0] += report.acked_count;
                totals[1] += report.compared_bytes;
                totals[2] += report.simulated_us / 1_000_000;
                totals[3] += report.starts;
                if cli.seed.is_some() {
                    println!("{report:#?}");
                }
            }
            Err(failure) => {
                failed += 1;
                report(cli, *failure);
                if !cli.keep_going {
                    break;
                }
            }
        }
    }
    let [acked, compared, seconds, starts] = totals;
    let real_ms = clock.now_monotonic().ms_since(begin).max(1);
    println!(
        "{done} seeds, {failed} failed; {acked} appends acknowledged, {compared} bytes compared, \
         {starts} starts, {seconds} simulated seconds in {}.{:03} s",
        real_ms / 1000,
        real_ms % 1000
    );
    Ok(failed)
}

fn plan(cli: &Cli, seed: u64) -> Result<Plan, String> {
    let mut plan = Plan::of_seed(seed);
    plan.seconds = cli.seconds.unwrap_or(plan.seconds);
    plan.verbose = cli.seed.is_some() && !cli.quiet && !cli.shrink;
    if let Some(names) = &cli.faults {
        let names = names.iter().filter(|name| *name != "none");
        plan.faults = names.map(|name| fault(name)).collect::<Result<_, _>>()?;
    }
    Ok(plan)
}

fn fault(name: &str) -> Result<FaultKind, String> {
    let found = FaultKind::ALL.iter().find(|kind| kind.name() == name);
    let all: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
    found.copied().ok_or_else(|| format!("{name} is none of {}", all.join(", ")))
}

fn report(cli: &Cli, failure: Failure) {
    eprintln!("{failure}");
    let commit = option_env!("THALWEG_COMMIT").unwrap_or("unknown");
    eprintln!("  commit: {commit}");
    if cli.shrink {
        eprintln!("smaller: {}", shrink(failure));
    }
}
