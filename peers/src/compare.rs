//! Paired runs, A B A B, each in a process and a directory of its own.

use crate::system::{Failure, Kind, SyncMode};
use crate::workload::{Load, Outcome, Work};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What to compare.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A directory on the disk that matters; each run gets an empty one below it
    #[arg(long)]
    dir: PathBuf,
    /// The peers
    #[arg(long, value_enum, default_value = "walrus")]
    against: Vec<Kind>,
    /// Workloads; all of them if none is named
    #[arg(long, value_enum)]
    work: Vec<Work>,
    /// Durabilities; all of them if none is named
    #[arg(long, value_enum)]
    sync: Vec<SyncMode>,
    /// Numbers of threads
    #[arg(long, default_values_t = [1, 10])]
    threads: Vec<usize>,
    /// Seconds of one run
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Pairs of each row
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Where figures.json and figures.md go
    #[arg(long)]
    out: PathBuf,
}

/// One row of the result: the same load on us and on a peer, in turns.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) load: Load,
    pub(crate) peer: Kind,
    pub(crate) ours: Vec<Outcome>,
    pub(crate) theirs: Vec<Outcome>,
    /// Why the row has no figures, if it has none.
    pub(crate) failure: Option<String>,
}

fn or_all<T: clap::ValueEnum>(chosen: &[T]) -> Vec<T> {
    if chosen.is_empty() { T::value_variants().to_vec() } else { chosen.to_vec() }
}

/// The loads in the order in which they run.
fn loads(options: &Options) -> Vec<Load> {
    let mut loads = Vec::new();
    for work in or_all(&options.work) {
        for sync in or_all(&options.sync) {
            for &threads in &options.threads {
                loads.push(Load { work, sync, threads, seconds: options.seconds });
            }
        }
    }
    loads
}

/// Runs everything and writes the results.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    std::fs::create_dir_all(&options.out)?;
    let mut rows = Vec::new();
    let loads = loads(options);
    for (number, &load) in (1..).zip(&loads) {
        for &peer in &options.against {
            eprintln!("row {number} of {}: {load:?} beside {peer:?}", loads.len());
            rows.push(run_row(options, load, peer));
            // After each row: a run that is broken off leaves what it has.
            crate::report::write(&options.out, &rows)?;
        }
    }
    Ok(())
}

fn run_row(options: &Options, load: Load, peer: Kind) -> Row {
    let mut row = Row { load, peer, ours: Vec::new(), theirs: Vec::new(), failure: None };
    for pair in 1..=options.pairs {
        for kind in [Kind::Thalweg, peer] {
            eprintln!("  pair {pair}: {kind:?}");
            match run_process(&options.dir, kind, load) {
                Ok(outcome) if kind == Kind::Thalweg => row.ours.push(outcome),
                Ok(outcome) => row.theirs.push(outcome),
                Err(error) => {
                    eprintln!("  failed: {error}");
                    row.failure = Some(format!("{kind:?}: {error}"));
                    return row;
                }
            }
        }
    }
    row
}

/// One run in a process of its own, so that no system meets what another one left behind.
fn run_process(below: &Path, kind: Kind, load: Load) -> Result<Outcome, Failure> {
    let dir = below.join(format!("thalweg-peers-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["run", "--system", &name(kind), "--work", &name(load.work)])
        .args(["--sync", &name(load.sync), "--threads", &load.threads.to_string()])
        .args(["--seconds", &load.seconds.to_string(), "--dir"])
        .arg(&dir)
        .env("WALRUS_DATA_DIR", &dir)
        .env("WALRUS_QUIET", "1")
        .stderr(Stdio::inherit());
    let output = command.output();
    std::fs::remove_dir_all(&dir)?;
    let output = output?;
    if !output.status.success() {
        return Err(format!("the run ended with {}", output.status).into());
    }
    // A system may print, too: ours is the last line.
    let text = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

/// What a value is called on the command line.
fn name(value: impl clap::ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_owned()
}
