//! Measures Thalweg's embedded engine beside Walrus and RocksDB's WAL, on Walrus's own workloads.
//!
//! `docs/measuring.md` says how to run it.

mod compare;
mod payload;
mod report;
#[cfg(feature = "rocksdb")]
mod rocks;
mod system;
mod thalweg;
mod walrus;
mod workload;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Embedded engines beside one another
#[derive(Debug, Parser)]
enum Cli {
    /// Run workloads on us and on peers in turns, and write the figures
    Compare(compare::Options),
    /// Run one workload on one system and print its figures as JSON
    Run {
        /// The system
        #[arg(long, value_enum)]
        system: system::Kind,
        #[command(flatten)]
        load: workload::Load,
        /// An empty directory; for Walrus also the variable WALRUS_DATA_DIR
        #[arg(long)]
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli::Compare(options) => compare::run(&options),
        Cli::Run { system, load, dir } => workload::run(system, load, &dir)
            .and_then(|outcome| Ok(serde_json::to_string(&outcome)?))
            .map(|outcome| println!("{outcome}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
