//! One data directory with everything that is known of it.

use crate::doors::Doors;
use crate::http::PATIENCE;
use crate::ledger::{Ledger, lock};
use crate::load::Round;
use crate::numbers::Numbers;
use crate::report::{Report, add};
use crate::server::{LOCAL, Server, Start};
use crate::verify::{Allowed, Damaged, Verification};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Settings that make segments, chunks and checkpoints turn over in seconds.
pub(crate) const SMALL: [&str; 3] =
    ["--segment-bytes=1MiB", "--wal-bytes-max=8MiB", "--seal-bytes=64KiB"];

/// What the command line asks for.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) binary: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    pub(crate) cycles: Option<u64>,
    pub(crate) is_short: bool,
    /// Whether data is left for another run.
    pub(crate) is_kept: bool,
}

impl Options {
    /// How many cycles a scenario runs: what was asked for, or one of these.
    pub(crate) fn cycles(&self, short: u64, long: u64) -> u64 {
        self.cycles.unwrap_or(if self.is_short { short } else { long })
    }
}

/// How a scenario ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// What it needs is missing here.
    Skipped(String),
}

/// Why a scenario could not continue: a broken promise, unless it is the machine's fault.
pub(crate) type Outcome<T> = Result<T, String>;

/// One data directory with everything that is known of it.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    pub(crate) report: &'a Report,
    pub(crate) ledger: Ledger,
    pub(crate) numbers: Numbers,
    pub(crate) start: Start,
    name: &'static str,
    round: u64,
    started: Instant,
    progress_at: Instant,
}

impl<'a> Trial<'a> {
    /// A trial on an empty directory below `dir`; `data` is where the server shall write.
    pub(crate) fn new(
        options: &Options,
        report: &'a Report,
        name: &'static str,
        data: &Path,
    ) -> Outcome<Self> {
        std::fs::create_dir_all(data)
            .map_err(|e| format!("cannot make {}: {e}", data.display()))?;
        let scenario = name.bytes().fold(0, |sum, byte| sum * 31 + u64::from(byte));
        let start = Start {
            binary: options.binary.clone(),
            data: data.to_owned(),
            log: options.dir.join(format!("{name}.log")),
            flags: Vec::new(),
            under: Vec::new(),
            host: LOCAL.to_owned(),
        };
        Ok(Self {
            report,
            ledger: Ledger::new(options.seed),
            numbers: Numbers::of(options.seed, &[scenario]),
            start,
            name,
            round: 0,
            started: Instant::now(),
            progress_at: Instant::now(),
        })
    }

    /// Starts the server with a number of shards and sizes of its own.
    pub(crate) fn serve(&mut self) -> Outcome<Server> {
        let shards = self.numbers.within(1, 5);
        self.start.flags = vec![format!("--shards={shards}")];
        if self.numbers.chance(75) {
            self.start.flags.extend(SMALL.map(str::to_owned));
        }
        self.start.serve()
    }

    /// A round of load on `server`.
    pub(crate) fn round(&mut self, server: &Server) -> Round<'_> {
        self.round_at(Doors::new([server.address]))
    }

    /// A round of load on several servers.
    pub(crate) fn round_at(&mut self, doors: Doors) -> Round<'_> {
        self.round += 1;
        Round::new(&self.ledger, self.report, doors, self.round)
    }

    /// Compares everything; which streams were damaged.
    ///
    /// # Errors
    /// If anything contradicts.
    pub(crate) fn verify(&mut self, server: &Server, allowed: Allowed) -> Outcome<Damaged> {
        self.round += 1;
        let verification = Verification {
            ledger: &self.ledger,
            report: self.report,
            address: server.address,
            number: self.round,
            allowed,
        };
        let damaged = verification.run();
        self.clean()?;
        Ok(damaged)
    }

    /// Prints the progress of a long cycle.
    pub(crate) fn progress(&self, what: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        println!("[{}] {what} after {seconds:.1} s", self.name);
    }

    /// A cycle is over.
    pub(crate) fn count_cycle(&mut self, of: u64) {
        add(&self.report.cycles, 1);
        let done = self.report.cycles.load(Ordering::Relaxed);
        if self.progress_at.elapsed() > Duration::from_secs(5) || done == of {
            self.progress_at = Instant::now();
            println!("[{}] {done} of {of}: {}", self.name, self.report);
        }
    }

    /// How many streams may show one append: its own and all forks of it.
    pub(crate) fn family_max(&self) -> usize {
        1 + self.ledger.all().iter().filter(|stream| lock(stream).fork.is_some()).count()
    }

    /// Whether nothing contradicts so far.
    pub(crate) fn clean(&self) -> Outcome<()> {
        if self.report.is_clean() { Ok(()) } else { Err("a promise is broken".to_owned()) }
    }
}

/// Does something while another thread does something else, until it is asked to stop; what came of both.
///
/// # Errors
/// Those of either, and of the work first.
pub(crate) fn beside<T, U: Send>(
    other: impl FnOnce(&AtomicBool) -> Outcome<U> + Send,
    work: impl FnOnce() -> Outcome<T>,
) -> Outcome<(T, U)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| other(&stop));
        let done = work();
        stop.store(true, Ordering::SeqCst);
        let other = other.join().expect("the other thread does not panic");
        Ok((done?, other?))
    })
}

/// Does something for each part, each in a thread of its own; what came of them, in order.
///
/// # Errors
/// Those of the first part that has any.
pub(crate) fn in_threads<P: Send, T: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

/// Asks again and again until the answer is yes.
///
/// # Errors
/// If it stays no for longer than anything may take.
pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    wait_for(what, PATIENCE, is_so)
}

/// The same, with another patience.
///
/// # Errors
/// If it stays no for so long.
pub(crate) fn wait_for(
    what: &str,
    patience: Duration,
    mut is_so: impl FnMut() -> Outcome<bool>,
) -> Outcome<()> {
    let deadline = Instant::now() + patience;
    while !is_so()? {
        if Instant::now() > deadline {
            return Err(format!("waited in vain: {what}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
