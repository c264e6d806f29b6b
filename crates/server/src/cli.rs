//! The command line: what the user typed becomes settings and one call.
//!
//! Exit codes: 0 done, 1 the server or a command failed, 2 the command line or a setting is wrong, 3 `repair` has found
//! damage and changed nothing.

#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where environment and settings file enter the process"
)]

use crate::cluster::CommandError;
use crate::repair::{self, Outcome};
use crate::settings::{self, Effective, Environment, Flags};
use crate::{cluster, logging, serve, token};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

const ABOUT: &str = "Durable streams over plain HTTP: append, read from any offset, tail live";

const EXAMPLES: &str = "\
Try it:
  thalweg serve
  curl -X PUT http://127.0.0.1:4437/v1/stream/hello -H 'Content-Type: text/plain'
  curl http://127.0.0.1:4437/v1/stream/hello -H 'Content-Type: text/plain' -d 'first line'
  curl http://127.0.0.1:4437/v1/stream/hello
  curl -N 'http://127.0.0.1:4437/v1/stream/hello?offset=-1&live=sse'

Is it well?
  curl http://127.0.0.1:4440/readyz
  curl http://127.0.0.1:4440/metrics

What next:
  thalweg config > thalweg.toml            all settings with their meaning, as a file
  thalweg serve --config thalweg.toml      start from that file
  thalweg serve --help                     every setting, its range, default and variable";

/// What `thalweg bench` becomes.
/// The version, and the commit where it is known.
const VERSION: &str = env!("THALWEG_VERSION");

const BENCH_PROGRAM: &str = "thalweg-bench";

const SETTINGS_HELP: &str = "\
A flag wins over an environment variable, a variable over the file, the file over the default.
Durations are in milliseconds; sizes are bytes or take a suffix, as in 64MiB.
`thalweg config` takes the same flags and prints what would be in force, and why.";

const REPAIR_HELP: &str = "\
Give it the settings with which the server is started: it opens the data directory in the same way.
It reads all chunk files, says which of them are damaged and which streams lack which bytes, and ends
with code 3 if there are any. Without --accept-loss it changes nothing that a start does not change.";

/// `thalweg` and what follows it.
#[derive(Parser)]
#[command(name = "thalweg", version = VERSION, about = ABOUT, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve streams until SIGTERM or SIGINT
    #[command(after_help = SETTINGS_HELP)]
    Serve(Flags),
    /// Print the effective settings and where each comes from, as a settings file
    #[command(after_help = SETTINGS_HELP)]
    Config(Flags),
    /// Show what damaged files have lost, and accept it; the server must not run
    #[command(after_help = REPAIR_HELP)]
    Repair {
        /// Copy what is intact of the damaged files, and let the rest go
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        flags: Flags,
    },
    /// Make, list and remove tokens of an access file; check it; sign URLs
    #[command(subcommand)]
    Token(token::Command),
    /// Ask a node of a cluster
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Measure this server, and others beside it; `thalweg bench --help` says how
    #[command(disable_help_flag = true)]
    Bench {
        /// What `thalweg-bench` takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Print the version
    Version,
}

/// Runs the command of this process.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(flags) => with_settings(&flags, serve),
        Command::Config(flags) => with_settings(&flags, |effective| {
            for warning in &effective.warnings {
                complain(&format!("warning: {warning}"));
            }
            print(&settings::render(effective))
        }),
        Command::Repair { accept_loss, flags } => {
            with_settings(&flags, |effective| repair(effective, accept_loss))
        }
        Command::Token(command) => match token::run(&command) {
            Ok(text) => print(&text),
            Err(error) => {
                complain(&format!("error: {error}"));
                ExitCode::from(2)
            }
        },
        Command::Cluster(cluster::Command::Token(flags)) => {
            with_settings(&flags, |effective| match cluster::token(&effective.settings) {
                Ok(text) => print(&text),
                Err(error) => fail(&error),
            })
        }
        Command::Cluster(cluster::Command::Ask(ask)) => match cluster::ask(&ask, &mut put) {
            Ok(()) => ExitCode::SUCCESS,
            Err(CommandError::Print(error)) if error.kind() == ErrorKind::BrokenPipe => {
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error),
        },
        Command::Bench { arguments } => bench(&arguments),
        Command::Version => print(&format!("thalweg {VERSION}\n")),
    }
}

fn with_settings(flags: &Flags, run: impl FnOnce(&Effective) -> ExitCode) -> ExitCode {
    let environment = Environment::new(std::env::vars_os());
    match settings::load(flags, &environment, &|path| std::fs::read_to_string(path)) {
        Ok(effective) => run(&effective),
        Err(problems) => {
            for problem in problems {
                complain(&format!("error: {problem}"));
            }
            ExitCode::from(2)
        }
    }
}

fn serve(effective: &Effective) -> ExitCode {
    let log = logging::start(effective.settings.log_format, effective.settings.log_level);
    log.end_process_on_panic();
    for warning in &effective.warnings {
        tracing::warn!("{warning}");
    }
    let code = serve::run_serve(&effective.settings).unwrap_or_else(|error| {
        tracing::error!("{error}");
        ExitCode::FAILURE
    });
    log.wait_until_written();
    code
}

fn repair(effective: &Effective, accepts_loss: bool) -> ExitCode {
    let settings = &effective.settings;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shard_count = settings.shard_count(cores);
    let mut say = |text: &str| _ = print(text);
    match repair::repair(settings, shard_count, accepts_loss, &mut say) {
        Ok(Outcome::Whole) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(3),
        Err(error) => {
            complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Becomes the program beside this one that measures, as git becomes its commands: the server does
/// not carry a load generator, and is not imported by one.
fn bench(arguments: &[OsString]) -> ExitCode {
    let program = std::env::current_exe().map(|own| own.with_file_name(BENCH_PROGRAM));
    let program = program.unwrap_or_else(|_| BENCH_PROGRAM.into());
    if !program.is_file() {
        complain(&format!(
            "error: there is no {}\n  build it with `cargo build --release -p thalweg-bench`, or put \
             it beside this program",
            program.display()
        ));
        return ExitCode::from(2);
    }
    let error = std::process::Command::new(&program).args(arguments).exec();
    complain(&format!("error: cannot run {}: {error}", program.display()));
    ExitCode::FAILURE
}

/// Prints to standard output. A reader that went away, as with `| head`, is no failure.
fn print(text: &str) -> ExitCode {
    match put(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(&format!("cannot print all of it: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Says why a command has failed.
fn fail(error: &dyn Display) -> ExitCode {
    complain(&format!("error: {error}"));
    ExitCode::FAILURE
}

/// Prints a line to standard error. Where nobody takes it, the exit code must do.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::command().find_subcommand("serve").is_some());
    }

    #[test]
    fn settings_are_flags_of_serve() {
        let cli = Cli::try_parse_from(["thalweg", "serve", "--shards", "2", "--gzip=off"]).unwrap();
        let Command::Serve(flags) = cli.command else { panic!("`serve` was typed") };
        assert_eq!(flags.values["shards"], "2");
        assert_eq!(flags.values["gzip"], "off");
    }

    #[test]
    fn help_names_default_variable_and_key_of_every_setting() {
        let mut command = Cli::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_long_help().to_string();
        for setting in settings::TABLE {
            assert!(help.contains(&format!("--{} ", setting.flag())), "{}", setting.key);
            assert!(help.contains(&setting.variable()), "{}", setting.key);
        }
    }
}
