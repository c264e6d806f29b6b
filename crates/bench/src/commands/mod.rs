//! One module for each command, and what they share: where to run and what to read back.

mod appends;
mod bare;
mod creates;
mod fanout;
mod idle_streams;
mod long_poll;
mod recovery;
mod replay;
mod shutdown;
mod slow_readers;
mod streams;
mod table;

use crate::cli::{Against, Cli, Command, Place};
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Machine;
use crate::report::{Report, Run, commit};
use crate::server::Server;
use client::{Client, Timeouts};
use std::path::PathBuf;

/// What every stream of the benchmarks holds: it goes out as it is by every way of reading.
pub(crate) const MEDIA_TYPE: &str = "text/plain";

/// Runs what was asked; whether all checks passed.
pub(crate) fn run(cli: Cli) -> Outcome<bool> {
    let bench = Bench { place: cli.place };
    let runs = match cli.command {
        Command::Bare => return bare::serve().map(|()| true),
        Command::Table(table) => return table::run(&bench, &table),
        command => vec![bench.run(&command)?],
    };
    bench.finish(runs)
}

/// Where to run.
#[derive(Debug)]
pub(crate) struct Bench {
    place: Place,
}

impl Bench {
    /// Runs one command and prints what it found.
    fn run(&self, command: &Command) -> Outcome<Run> {
        let run = match command {
            Command::IdleStreams(asked) => idle_streams::run(self, asked),
            Command::Creates(asked) => creates::run(self, asked),
            Command::Appends(asked) => appends::run(self, asked),
            Command::CreatesVsAppends(asked) => creates::run_versus(self, asked),
            Command::Recovery(asked) => recovery::run(self, asked),
            Command::Shutdown(asked) => shutdown::run(self, asked),
            Command::SlowReaders(asked) => slow_readers::run(self, asked),
            Command::SseFanout(asked) => fanout::run(self, asked),
            Command::Replay(asked) => replay::run(self, asked),
            Command::LongPoll(asked) => long_poll::run(self, asked),
            Command::Bare | Command::Table(_) => {
                Err(Failure::new("this command is no measurement"))
            }
        };
        let run = run?;
        print!("{}", run.text());
        Ok(run)
    }

    /// Writes the results where it was asked; whether all checks passed.
    fn finish(&self, runs: Vec<Run>) -> Outcome<bool> {
        let report = Report { commit: commit(), machine: self.machine()?, runs };
        println!("commit {}; {}", report.commit, report.machine.line());
        if let Some(path) = &self.place.json {
            let text = serde_json::to_string_pretty(&report).doing(|| "the report".to_owned())?;
            std::fs::write(path, text + "\n")
                .doing(|| format!("cannot write {}", path.display()))?;
        }
        Ok(report.passed())
    }

    fn machine(&self) -> Outcome<Machine> {
        let machine = Machine::look(&self.dir())?;
        if let Some(warning) = machine.warning() {
            eprintln!("warning: {warning}");
        }
        Ok(machine)
    }

    fn dir(&self) -> PathBuf {
        self.place.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The server to measure, ready.
    fn server(&self) -> Outcome<Server> {
        let Place { server_bin, server_arg, against, url, pid, .. } = &self.place;
        match (url, against) {
            (Some(url), _) => Server::at(url, *pid),
            (None, Against::Bare) => Server::start_bare(&self.dir()),
            (None, Against::Server) => {
                let beside = || std::env::current_exe().map(|own| own.with_file_name("thalweg"));
                let binary = server_bin.clone().map_or_else(beside, Ok)?;
                Server::start(&binary, &self.dir(), server_arg)
            }
        }
    }

    /// Whether the target stores what it acknowledges.
    fn stores(&self) -> bool {
        self.place.url.is_some() || self.place.against == Against::Server
    }

    /// A run of `command` against `server`, still empty.
    fn start_run(&self, command: &str, server: &Server) -> Run {
        let mut run = Run::new(command);
        run.server.clone_from(&server.name);
        server.durability.clone_into(&mut run.durability);
        if !self.stores() {
            run.setting("against", "bare");
        }
        run
    }
}

/// Runs calls of the client, which are few, to their end.
pub(crate) struct Calls {
    runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
}

impl Calls {
    pub(crate) fn new(server: &Server) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, client: Client::new(server.address, Timeouts::default()) })
    }

    pub(crate) fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }
}
