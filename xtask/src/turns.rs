//! The longest turns of a shard's loop, each kind of crowd on an empty directory of its own.
//!
//! # Why
//! While a turn lasts, nobody else is served. The time is the processor's, so other load of the machine adds
//! little to it.

use crate::run;
use crate::workspace::Workspace;
use clap::Args;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// No turn of a loop may take longer.
const TURN_US_MAX: u64 = 5_000;

/// What falls due at once, how much of it, and in words.
const CROWDS: [(&str, u64, &str); 7] = [
    ("expiries", 60_000, "streams expire"),
    ("polls", 15_000, "long-polls are answered by one append"),
    ("poll-timeouts", 15_000, "long-polls time out"),
    ("readers", 15_000, "SSE readers get one frame"),
    ("reader-ends", 5_000, "SSE readers end"),
    ("checkpoint", 500_000, "streams are made, and checkpoints taken"),
    ("seal", 300_000, "appends to as many streams are sealed"),
];

/// Which turns to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this crowd
    #[arg(long)]
    only: Option<String>,
}

/// Builds the program, runs it for each crowd, prints a table; fails if a turn was too long.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), String> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--package", "thalweg-counts", "--bin", "thalweg-turns"]);
    build.current_dir(&workspace.root);
    run::check(&mut build, "what is measured does not build").map_err(|f| f.to_string())?;
    let is_wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut too_long = Vec::new();
    println!("{:>10}  what is due at once", "longest");
    for (name, count, words) in CROWDS.into_iter().filter(|(name, ..)| is_wanted(name)) {
        let scratch = workspace.scratch("turns")?;
        let longest_us = longest_us(&workspace.turns_binary(), (name, count), &scratch)?;
        let _ = std::fs::remove_dir_all(&scratch);
        println!("{:>7} us  {name}: {count} {words}", longest_us);
        if longest_us > TURN_US_MAX {
            too_long.push(name);
        }
    }
    if too_long.is_empty() {
        return Ok(());
    }
    Err(format!(
        "turns of more than {TURN_US_MAX} us: {}; cut the work in slices",
        too_long.join(", ")
    ))
}

fn longest_us(program: &Path, (name, count): (&str, u64), dir: &Path) -> Result<u64, String> {
    let mut command = Command::new(program);
    command.args([name, "--count", &count.to_string(), "--dir"]).arg(dir.join("data"));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("{name} ended: {}", output.status));
    }
    let printed: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{name} printed something else: {error}"))?;
    printed["longest_us"][0].as_u64().ok_or_else(|| format!("{name} counted no turn: {printed}"))
}
