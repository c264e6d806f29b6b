//! One module for each command, and what they share: where to run and what to read back.

mod appends;
mod bare;
mod bare_hyper;
mod bare_readers;
mod commits;
mod creates;
mod fanout;
mod idle_streams;
mod long_poll;
mod messages;
mod mixed;
mod recent;
mod recovery;
mod replay;
mod shutdown;
mod slow_readers;
mod streams;
mod table;

use crate::api::ApiStyle;
use crate::cli::{Cli, Command, Place};
use crate::compare;
use crate::failure::{Doing, Failure, Outcome};
use crate::keeper::Keeper;
use crate::machine::Machine;
use crate::report::{Report, Run, commit, print};
use crate::server::Server;
use crate::systems::{Places, System, default_peers_directory};
use client::{Client, Timeouts};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Runs what was asked; whether all checks passed.
pub(crate) fn run(cli: Cli) -> Outcome<bool> {
    if let Command::Bare(asked) = cli.command {
        let served = match (asked.hyper, asked.readers) {
            (true, _) => bare_hyper::serve(asked.listen),
            (_, true) => bare_readers::serve(asked.listen, asked.sync_dir.as_deref()),
            _ => bare::serve(asked.listen),
        };
        return served.map(|()| true);
    }
    if let Command::Report(asked) = cli.command {
        return compare::join(&asked).map(|()| true);
    }
    let bench = Bench { place: cli.place, keeper: Keeper::watch()? };
    let runs = match cli.command {
        Command::Table(table) => return table::run(&bench, &table),
        Command::Compare(asked) => return compare::run(&bench, &asked),
        command => vec![bench.run(&command)?],
    };
    bench.finish(runs)
}

/// Where to run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) place: Place,
    pub(crate) keeper: Keeper,
}

impl Bench {
    /// Runs one command and prints what it found.
    pub(crate) fn run(&self, command: &Command) -> Outcome<Run> {
        self.check_style(command)?;
        self.check_place(command)?;
        let run = match command {
            Command::IdleStreams(asked) => idle_streams::run(self, asked),
            Command::Creates(asked) => creates::run(self, asked),
            Command::Appends(asked) => appends::run(self, asked),
            Command::Commits(asked) => commits::run(self, asked),
            Command::Messages(asked) => messages::run(self, asked),
            Command::CreatesVsAppends(asked) => creates::run_versus(self, asked),
            Command::Recovery(asked) => recovery::run(self, asked),
            Command::Shutdown(asked) => shutdown::run(self, asked),
            Command::SlowReaders(asked) => slow_readers::run(self, asked),
            Command::SseFanout(asked) => fanout::run(self, asked),
            Command::Replay(asked) => replay::run(self, asked),
            Command::LongPoll(asked) => long_poll::run(self, asked),
            Command::Recent(asked) => recent::run(self, asked),
            Command::Mixed(asked) => mixed::run(self, asked),
            Command::Bare(_) | Command::Table(_) | Command::Compare(_) | Command::Report(_) => {
                Err(Failure::new("this command is no measurement"))
            }
        };
        let run = run?;
        print(&run.text());
        Ok(run)
    }

    /// Writes the results where it was asked; whether all checks passed.
    fn finish(&self, runs: Vec<Run>) -> Outcome<bool> {
        let report = Report { commit: commit(), machine: self.machine()?, runs };
        print(&format!("commit {}; {}\n", report.commit, report.machine.line()));
        if let Some(path) = &self.place.json {
            let text = serde_json::to_string_pretty(&report).doing(|| "the report".to_owned())?;
            std::fs::write(path, text + "\n")
                .doing(|| format!("cannot write {}", path.display()))?;
        }
        Ok(report.passed())
    }

    pub(crate) fn machine(&self) -> Outcome<Machine> {
        let machine = Machine::look(&self.dir())?;
        if let Some(warning) = machine.warning() {
            eprintln!("warning: {warning}");
        }
        Ok(machine)
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.place.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The server to measure, ready.
    fn server(&self) -> Outcome<Server> {
        let Place { against, url, pid, api_style, .. } = &self.place;
        let Some(url) = url else {
            if self.is_cluster() {
                return Server::start_cluster(*against, &self.places()?, &self.dir(), &self.keeper);
            }
            return Server::start(*against, &self.places()?, &self.dir(), &self.keeper);
        };
        let server = Server::at(url, *pid, *api_style)?;
        server.make_namespace()?;
        Ok(server)
    }

    /// Whether several nodes are to be started.
    fn is_cluster(&self) -> bool {
        self.place.cluster != "1"
    }

    /// Fails if there is nothing to start.
    pub(crate) fn check_installed(&self) -> Outcome<()> {
        self.place.against.check_installed(&self.places()?)
    }

    fn places(&self) -> Outcome<Places> {
        let Place { server_bin, server_arg, peers_dir, .. } = &self.place;
        let own = std::env::current_exe()?;
        Ok(Places {
            thalweg: server_bin.clone().unwrap_or_else(|| own.with_file_name("thalweg")),
            thalweg_flags: server_arg.clone(),
            peers: peers_dir.clone().unwrap_or_else(|| default_peers_directory(&own)),
        })
    }

    /// Whether the target stores what it acknowledges.
    fn stores(&self) -> bool {
        self.place.url.is_some() || self.place.against.stores()
    }

    /// The way that the target is asked.
    fn style(&self) -> ApiStyle {
        match self.place.url {
            Some(_) => self.place.api_style,
            None => self.place.against.style(),
        }
    }

    /// Refuses what would fail at its end: a command that ends servers on one that is not its own, a
    /// process that is not there, results that cannot be written.
    fn check_place(&self, command: &Command) -> Outcome<()> {
        let Place { url, pid, json, against, .. } = &self.place;
        let ends_it = matches!(
            command,
            Command::Recovery(_) | Command::Shutdown(_) | Command::IdleStreams(_)
        );
        if let (Some(url), true) = (url, ends_it) {
            let what = "this command ends the server and starts it again; leave --url out";
            return Err(Failure::new(format!("--url {url}: {what}")));
        }
        // Nodes of Ursula send clients to each other, which only `appends` follows.
        let is_redirected =
            against.style() == ApiStyle::Ursula && matches!(command, Command::Appends(_));
        let is_known = *against == System::Thalweg || is_redirected;
        if self.is_cluster() && (url.is_some() || !is_known || ends_it) {
            let what = "--cluster starts nodes of this server, for commands that do not end it, or of \
                        Ursula for `appends`; leave --url and other systems out";
            return Err(Failure::new(what));
        }
        if let Some(pid) = pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            return Err(Failure::new(format!("--pid {pid}: there is no such process")));
        }
        if let Some(path) = json {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.doing(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Refuses commands that measure servers of the Durable Streams Protocol alone.
    pub(crate) fn check_style(&self, command: &Command) -> Outcome<()> {
        let reads = matches!(
            command,
            Command::SseFanout(_)
                | Command::Replay(_)
                | Command::LongPoll(_)
                | Command::Recent(_)
                | Command::Mixed(_)
        );
        let style = self.style();
        let is_stored =
            matches!(command, Command::Appends(_) | Command::Commits(_) | Command::Messages(_));
        if style == ApiStyle::Durable || is_stored || (reads && style.is_http()) {
            return Ok(());
        }
        if reads {
            return Err(Failure::new(
                "this command reads over HTTP; appends, commits and messages take this system too",
            ));
        }
        Err(Failure::new(
            "this command speaks the Durable Streams Protocol only; appends, commits, messages, \
             sse-fanout, replay, recent, mixed and long-poll speak others too",
        ))
    }

    /// A run of `command` against `server`, still empty.
    fn start_run(&self, command: &str, server: &Server) -> Run {
        let mut run = Run::new(command);
        run.server.clone_from(&server.name);
        server.durability.clone_into(&mut run.durability);
        if self.is_cluster() {
            run.setting("cluster", &self.place.cluster);
        }
        if self.place.url.is_none() && self.place.against != System::Thalweg {
            run.setting("against", self.place.against.key());
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
