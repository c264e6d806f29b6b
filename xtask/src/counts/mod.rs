//! What an operation costs, in counts: instructions, allocations, bytes written, system calls. They are
//! compared with the limits that are committed.
//!
//! # Why
//! Times cannot be a gate: a machine that others use is slower by half within a minute. Counts of one
//! thread with a still clock repeat to some percent, wherever they are taken.
//!
//! # How
//! `crates/counts` holds the work. Each workload is run twice, with few and with many operations; the
//! difference is divided by the difference in operations, so what a process does once costs nothing.
//! A count that cannot be taken here, because its tool is missing or refused, is left out and said to be.

mod files;
mod instrument;
mod limits;
mod measure;

use crate::run;
use crate::workspace::Workspace;
use clap::Args;
use limits::{Limit, Limits, Verdict};
use measure::Counted;
use std::process::Command;

/// The file of the limits, from the root of the workspace.
const LIMITS: &str = "crates/counts/limits.txt";

/// What to do with the counts.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Make what is counted now the limit
    #[arg(long)]
    write: bool,
    /// Keep the profiles (for `callgrind_annotate`) and say where
    #[arg(long)]
    keep: bool,
    /// Print the files that one append runs through, and nothing else
    #[arg(long)]
    files: bool,
}

/// Counts, and compares with the limits.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), String> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--package", "thalweg-server"]);
    build.args(["--package", "thalweg-counts", "--bin", "thalweg", "--bin", "thalweg-counts"]);
    build.current_dir(&workspace.root);
    run::check(&mut build, "what is counted does not build").map_err(|f| f.to_string())?;
    let scratch = workspace.scratch("counts")?;
    if options.files {
        return files::count(workspace, &scratch).map_err(|failure| failure.message);
    }
    let counted = measure::all(workspace, &scratch).map_err(|failure| failure.to_string())?;
    // Where callgrind does not work there is nothing to tell files by.
    if counted.iter().any(Counted::is_instructions) {
        files::print(workspace, &scratch).map_err(|failure| failure.message)?;
    }
    if options.keep {
        println!("the profiles are in {}", scratch.display());
    } else {
        let _ = std::fs::remove_dir_all(&scratch);
    }
    let file = workspace.root.join(LIMITS);
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let limits = Limits::parse(&text)?;
    if options.write {
        let text = limits.updated(&counted).render();
        return std::fs::write(&file, text).map_err(|error| format!("cannot write it: {error}"));
    }
    compare(&limits, &counted)
}

/// Prints a table; fails if anything costs more than its limit.
fn compare(limits: &Limits, counted: &[Counted]) -> Result<(), String> {
    let (mut over, mut under) = (Vec::new(), 0);
    println!("{:14} {:15} {:>10} {:>10}  verdict", "workload", "per operation", "counted", "limit");
    for count in counted {
        let limit = limits.of(count.workload, count.what);
        let verdict = limit.map_or(Verdict::Over, |limit| limit.judge(count.value));
        let shown = limit.map_or("none".to_owned(), Limit::shown);
        let name = format!("{:14} {:15}", count.workload, count.what);
        println!("{name} {:>10} {shown:>10}  {verdict}", limits::shown(count.value));
        match verdict {
            Verdict::Over => over.push(format!("{} {}", count.workload, count.what)),
            Verdict::Under => under += 1,
            Verdict::Within => {}
        }
    }
    let missing = limits.missing_in(counted);
    if missing > 0 {
        println!("{missing} limits were not checked: their tools do not work here");
    }
    if under > 0 {
        println!("{under} counts have fallen: keep that with `cargo xtask counts --write`");
    }
    if over.is_empty() {
        return Ok(());
    }
    Err(format!(
        "dearer than {LIMITS} allows: {}; make it cheaper, or, if it is worth its cost, say why in the \
         commit that raises the limit with `cargo xtask counts --write`",
        over.join(", ")
    ))
}
