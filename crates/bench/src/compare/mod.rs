//! This server beside others, on the workloads that others published.
//!
//! # How it compares
//! - Every run gets a system of its own on an empty directory. Systems take turns, every other turn
//!   backwards: A B C, C B A. So none always runs behind the same neighbour, whose writes may still
//!   keep the disk busy. The ratio of a pair compares the two runs of one turn, so that slow changes
//!   of the machine hit both. The report shows the median of the ratios and their spread.
//! - A run counts only if all acknowledged data was read back unchanged, and nothing was refused.
//!   Failed runs are listed.
//! - A bare responder is no system: it takes part to show what a workload costs at least, and nobody is ahead of it or behind.
//! - A system that is not installed is left out, and the report says so. A workload leaves out
//!   systems that it does not fit, as live readers do not fit a system without HTTP.
//!
//! # Code map
//! [`workloads`] what is run and [`cases`] with which parameters; [`record`] what came of it; [`pairing`] ratios and verdicts.
//! [`page`] has all figures as Markdown, [`overview`] the page before it, and [`chart`] the plots.

mod cases;
mod chart;
mod overview;
mod page;
mod pairing;
mod record;
mod workloads;

pub(crate) use workloads::Workload;

use crate::cli::{Command, Compare, Place, Report};
use crate::commands::Bench;
use crate::failure::{Doing, Failure, Outcome};
use crate::report::{commit, print};
use crate::systems::System;
use cases::Case;
use record::{Attempt, CaseRecord, Comparison, ContenderRecord, Part};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two runs, so that what one leaves to the disk is not the next one's.
const PAUSE: Duration = Duration::from_millis(500);

/// A load average above this is worth a warning.
const BUSY: f64 = 0.5;

/// A system that takes part, and where it is.
#[derive(Debug, Clone)]
struct Contender {
    key: String,
    label: String,
    system: System,
    place: Place,
}

/// Runs everything that was asked for and writes the report; whether every run of ours passed.
pub(crate) fn run(bench: &Bench, asked: &Compare) -> Outcome<bool> {
    if bench.place.url.is_some() {
        return Err(Failure::new("a comparison starts every system itself; leave --url out"));
    }
    let (contenders, skipped) = contenders(bench, asked)?;
    let cases = cases::cases(asked);
    let dir = bench.dir();
    let mut comparison = Comparison {
        commit: commit(),
        parts: vec![Part {
            date: time::OffsetDateTime::now_utc().date().to_string(),
            machine: bench.machine()?,
            load: load_average(),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        }],
        is_trial: asked.quick,
        pairs: asked.pairs,
        contenders: contenders.iter().map(Contender::record).collect(),
        skipped,
        cases: Vec::new(),
    };
    let runs = cases.iter().flat_map(|case| contenders.iter().map(move |c| c.takes(bench, case)));
    let mut steps = Steps::new(asked.pairs * runs.filter(|takes| *takes).count());
    for case in &cases {
        let mut record = CaseRecord::new(case);
        let fitting = contenders.iter().filter(|contender| contender.takes(bench, case));
        let fitting: Vec<&Contender> = fitting.collect();
        for turn in 0..asked.pairs {
            let attempts = take_turn(turn, &fitting, |contender| {
                steps.show(case, contender);
                // What could not be made once cannot be made again, and may take long to fail.
                if let Some(failure) = record.failure_of(&contender.key) {
                    return Attempt::failed(&contender.key, failure);
                }
                let attempt = attempt(bench, contender, case);
                settle(&dir);
                attempt
            });
            record.turns.push(attempts);
        }
        comparison.note_servers(&record);
        comparison.cases.push(record);
        // After each case, so that an interruption leaves what was measured.
        write(&comparison, &asked.out)?;
    }
    print(&format!("{}\n", asked.out.join(overview::FILE).display()));
    Ok(comparison.ours_passed())
}

/// Writes one report of the figures of several comparisons.
pub(crate) fn join(asked: &Report) -> Outcome<()> {
    let read = |path: &PathBuf| {
        let text = std::fs::read(path).doing(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text)
            .doing(|| format!("{} has no figures of this version of the program", path.display()))
    };
    let comparisons: Vec<Comparison> = asked.figures.iter().map(read).collect::<Outcome<_>>()?;
    write(&Comparison::join(comparisons).map_err(Failure::new)?, &asked.out)?;
    print(&format!("{}\n", asked.out.join(overview::FILE).display()));
    Ok(())
}

/// The systems that take part, this server first, and the skipped ones with reasons.
fn contenders(bench: &Bench, asked: &Compare) -> Outcome<(Vec<Contender>, Vec<String>)> {
    let own = Contender::new(System::Thalweg, bench.place.clone());
    own.bench(bench).check_installed()?;
    let (mut contenders, mut skipped) = (vec![own], Vec::new());
    for system in &asked.peers {
        let place = Place { against: *system, ..bench.place.clone() };
        let mut contender = Contender::new(*system, place);
        if *system == System::Thalweg {
            let other = asked.other_server_bin.clone();
            contender.place.server_bin = other.or(contender.place.server_bin);
            contender.key = "thalweg-other".to_owned();
            contender.label = "Thalweg, the other one".to_owned();
        }
        match contender.bench(bench).check_installed() {
            Ok(()) => contenders.push(contender),
            Err(failure) => {
                eprintln!("left out: {failure}");
                skipped.push(contender.label);
            }
        }
    }
    if contenders.len() == 1 {
        return Err(Failure::new("there is nobody to compare with: no peer is installed"));
    }
    Ok((contenders, skipped))
}

/// Lets each of `contenders` run, the last one first in every other turn; what they did, in their
/// own order.
fn take_turn<C, A>(turn: usize, contenders: &[C], run: impl FnMut(&C) -> A) -> Vec<A> {
    if turn.is_multiple_of(2) {
        return contenders.iter().map(run).collect();
    }
    let mut attempts: Vec<A> = contenders.iter().rev().map(run).collect();
    attempts.reverse();
    attempts
}

fn attempt(bench: &Bench, contender: &Contender, case: &Case) -> Attempt {
    match contender.bench(bench).run(&case.command) {
        Ok(run) => Attempt { contender: contender.key.clone(), run: Some(run), failure: None },
        Err(failure) => {
            eprintln!("error: {}: {failure}", contender.label);
            Attempt::failed(&contender.key, failure.to_string())
        }
    }
}

/// What the machine was busy with before: figures of a busy one are noise.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default();
    if load > BUSY {
        eprintln!("warning: the machine is busy (load {load}): figures will be noise");
    }
    load
}

/// Lets the disk finish what the last run left.
fn settle(dir: &Path) {
    if let Ok(file) = std::fs::File::open(dir) {
        // It is for quiet only; a system without it measures all the same.
        let _ = rustix::fs::syncfs(&file);
    }
    std::thread::sleep(PAUSE);
}

fn write(comparison: &Comparison, out: &Path) -> Outcome<()> {
    std::fs::create_dir_all(out).doing(|| format!("cannot make {}", out.display()))?;
    let mut files = vec![(page::FILE.to_owned(), page::render(comparison))];
    let json = serde_json::to_string_pretty(comparison).doing(|| "the figures".to_owned())?;
    files.push((page::FIGURES.to_owned(), json + "\n"));
    files.extend(overview::render_all(comparison)?);
    files.extend(chart::render_all(comparison)?);
    for (name, text) in files {
        let path = out.join(name);
        std::fs::write(&path, text).doing(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

impl Contender {
    fn new(system: System, place: Place) -> Self {
        Self { key: system.key(), label: system.label().to_owned(), system, place }
    }

    /// Its place as that of a run.
    fn bench(&self, bench: &Bench) -> Bench {
        Bench { place: self.place.clone(), keeper: bench.keeper.clone() }
    }

    /// Whether it can be measured with `case` at all.
    fn takes(&self, bench: &Bench, case: &Case) -> bool {
        let is_read = matches!(
            case.command,
            Command::SseFanout(_) | Command::Replay(_) | Command::LongPoll(_)
        );
        let is_append = matches!(
            case.command,
            Command::Appends(_) | Command::Commits(_) | Command::Messages(_)
        );
        let fits = match self.system {
            System::Bare | System::BareHyper => matches!(case.command, Command::Appends(_)),
            System::BareReaders => is_read,
            System::BareSynced => is_read || is_append,
            _ => true,
        };
        fits && self.bench(bench).check_style(&case.command).is_ok()
    }

    fn record(&self) -> ContenderRecord {
        ContenderRecord {
            key: self.key.clone(),
            label: self.label.clone(),
            durability: self.system.durability().to_owned(),
            server: String::new(),
            is_yardstick: !self.system.stores(),
        }
    }
}

/// How far the whole comparison has come.
#[derive(Debug)]
struct Steps {
    done: usize,
    total: usize,
    start: Instant,
}

impl Steps {
    fn new(total: usize) -> Self {
        Self { done: 0, total, start: Instant::now() }
    }

    fn show(&mut self, case: &Case, contender: &Contender) {
        let left = match self.done {
            0 => String::new(),
            done => {
                let each = self.start.elapsed().as_secs_f64() / done as f64;
                format!(", about {:.0} min left", each * (self.total - done) as f64 / 60.0)
            }
        };
        self.done += 1;
        let (done, total) = (self.done, self.total);
        let (workload, label) = (case.workload.key(), &contender.label);
        eprintln!("[{done} of {total}{left}] {workload}, {}: {label}", case.name);
    }
}

#[cfg(test)]
mod tests {
    use super::take_turn;

    #[test]
    fn every_other_turn_goes_backwards_and_is_kept_in_order() {
        let mut runs = Vec::new();
        for turn in 0..3 {
            let kept = take_turn(turn, &["a", "b", "c"], |name| {
                runs.push(*name);
                *name
            });
            assert_eq!(kept, ["a", "b", "c"]);
        }
        assert_eq!(runs.concat(), "abccbaabc");
    }
}
