//! Every developer command of the workspace: `cargo xtask COMMAND`.
//!
//! CI calls the same commands as a person does; no logic lives in CI's own files. The help of
//! a command says what it checks, and a command that fails says what to do.

mod client_test;
mod conformance;
mod counts;
mod crash;
mod door;
mod fuzz;
mod h2spec;
mod hostile;
mod neighbours;
mod node;
mod peers;
mod python;
mod run;
mod server;
mod sim;
mod test;
mod tidy;
mod turns;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use workspace::Workspace;

const EXAMPLES: &str = "\
While you work:
  cargo xtask tidy            seconds: are the workspace's own rules kept?
  cargo xtask test --quick    formatting, lints, rules and all Rust tests
  cargo test -p thalweg-log   one crate

Before you push, and what CI runs:
  cargo xtask test            all of that, then the release binary against the protocol's
                              conformance suite, the official clients and a short
                              crash loop; fresh seeds in the simulator; the counts of what an
                              operation costs

Against a server of your own:
  cargo xtask conformance --url http://127.0.0.1:4437

A rule is explained where it is checked: xtask/src/tidy/.";

/// The developer commands of Thalweg
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that must hold before a change is merged
    Test {
        /// Leave out what needs the release binary: conformance and client tests
        #[arg(long)]
        quick: bool,
    },
    /// Check the workspace's own rules: arrows between crates, sizes, names, dependencies, prose
    Tidy(tidy::Options),
    /// Run the protocol's conformance suite against the release binary (build it first)
    Conformance {
        /// Test this running server instead of starting one
        #[arg(long, value_name = "URL")]
        url: Option<String>,
    },
    /// Run the suite, curl and openssl over TLS against the release binary (build it first)
    Door,
    /// Run web pages in Chromium against the release binary: many live readers, restarts, foreign pages (build it first)
    Browser,
    /// Run the recipes of docs/proxies.md, by nginx and Caddy, against the release binary (build it first)
    Proxies,
    /// Run a whole node from seeds, with faults, and check what it promises
    Sim(sim::Simulation),
    /// Kill, cut the power, fail the disk under real servers, and verify what they kept
    Crash(crash::Crashes),
    /// Count instructions, allocations, bytes and system calls per operation, against their limits
    Counts(counts::Options),
    /// Measure the longest turns of the loop when very much falls due at once, against their limit
    Turns(turns::Options),
    /// Attack an optimised server for minutes and print what healthy clients noticed
    Hostile,
    /// Run the fuzz targets (nightly toolchain; skipped without one)
    Fuzz(fuzz::Options),
    /// Install the systems that `thalweg bench compare` compares with, into one directory
    Peers(peers::Peers),
    /// Run the official clients against the release binary (build it first)
    ClientTest {
        /// Test this running server instead of starting one
        #[arg(long, value_name = "URL")]
        url: Option<String>,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match Workspace::find().and_then(|workspace| dispatch(&command, &workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: &Command, workspace: &Workspace) -> Result<(), String> {
    match command {
        Command::Test { quick } => test::run(workspace, *quick),
        Command::Tidy(options) => tidy::run(workspace, options),
        Command::Hostile => hostile::run(workspace),
        Command::Fuzz(options) => fuzz::run(workspace, options),
        Command::Sim(simulation) => sim::run(workspace, simulation),
        Command::Crash(crashes) => crash::run(workspace, crashes),
        Command::Counts(options) => counts::run(workspace, options),
        Command::Turns(options) => turns::run(workspace, options),
        Command::Peers(asked) => peers::run(workspace, asked),
        Command::Conformance { url } => report(conformance::run(workspace, url.as_deref())),
        Command::Door => report(door::run(workspace)),
        Command::Browser => report(neighbours::browser(workspace)),
        Command::Proxies => report(neighbours::proxies(workspace)),
        Command::ClientTest { url } => report(client_test::run(workspace, url.as_deref())),
    }
}

fn report(result: Result<run::Counts, run::Failure>) -> Result<(), String> {
    let counts = result.map_err(|failure| failure.to_string())?;
    println!("test result: ok. {counts}");
    Ok(())
}
