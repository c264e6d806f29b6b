//! The fuzz targets: each decoder and parser against any bytes.
//!
//! The fuzzer needs a nightly toolchain and `cargo-fuzz`. Without nightly the targets
//! are skipped with a message; a missing `cargo-fuzz` is installed. New inputs of the fuzzer stay in
//! the target directory; the committed corpus is only read. The tests of the crate `fuzz` run that corpus without a fuzzer.

use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long one target runs by default.
const SECONDS: u64 = 120;
/// Largest single allocation, in MiB: an input of some kilobytes must not ask for more.
const ALLOCATION_MIB_MAX: u32 = 64;
/// Longest input.
const INPUT_BYTES_MAX: u32 = 4096;
/// An input that takes longer hangs.
const INPUT_SECONDS_MAX: u32 = 10;

/// What to fuzz, and for how long.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Options {
    /// Run this target alone
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Seconds for each target; 120 by default
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Only write the first inputs of every target to fuzz/corpus
    #[arg(long, conflicts_with_all = ["target", "seconds"])]
    write_corpus: bool,
}

impl Options {
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(SECONDS)
    }
}

/// Fuzzes, one target after the other.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), String> {
    if options.write_corpus {
        return write_corpus(workspace);
    }
    let targets = targets(workspace, options.target.as_deref())?;
    if !succeeds(Command::new("cargo").args(["+nightly", "--version"])) {
        println!(
            "fuzz: skipped, there is no nightly toolchain; `rustup toolchain install nightly`"
        );
        return Ok(());
    }
    if !succeeds(Command::new("cargo").args(["+nightly", "fuzz", "--version"])) {
        let mut install = Command::new("cargo");
        check(install.args(["+nightly", "install", "--locked", "cargo-fuzz"]), "cargo-fuzz")?;
    }
    let mut failed = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        println!("\n[{}/{}] {target}, {} s", at + 1, targets.len(), options.seconds());
        // A target that fails does not stop the others: one run shows everything.
        if let Err(problem) = fuzz(workspace, target, options) {
            println!("{problem}");
            failed.push(target.as_str());
        }
    }
    println!("\nfuzz: {} of {} targets found nothing", targets.len() - failed.len(), targets.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// The names of all targets, or the one that was asked for.
fn targets(workspace: &Workspace, only: Option<&str>) -> Result<Vec<String>, String> {
    let dir = workspace.root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".rs").map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    match only {
        None => Ok(names),
        Some(name) if names.iter().any(|known| known == name) => Ok(vec![name.to_owned()]),
        Some(name) => Err(format!("there is no target {name}; take one of {}", names.join(", "))),
    }
}

fn fuzz(workspace: &Workspace, target: &str, options: &Options) -> Result<(), String> {
    let found = made_dir(&workspace.target.join("fuzz/corpus").join(target))?;
    let artifacts = made_dir(&workspace.target.join("fuzz/artifacts").join(target))?;
    let mut command = cargo_fuzz(workspace);
    command.args(["run", target, "--target-dir"]).arg(workspace.target.join("fuzz"));
    // New inputs go to the first directory; the second is only read.
    command.arg(&found).arg(workspace.root.join("fuzz/corpus").join(target)).arg("--");
    command.args([
        format!("-artifact_prefix={}/", artifacts.display()),
        format!("-max_total_time={}", options.seconds()),
        format!("-max_len={INPUT_BYTES_MAX}"),
        format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
    ]);
    check(
        &mut command,
        &format!("target {target}: the input is named above, keep it in the corpus"),
    )
}

fn cargo_fuzz(workspace: &Workspace) -> Command {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz"]).current_dir(&workspace.root);
    // The toolchain under which this program runs must not be that of the fuzzer.
    command.env_remove("RUSTUP_TOOLCHAIN");
    // The search for leaks stops all threads with ptrace, which hangs in some containers.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    command
}

fn write_corpus(workspace: &Workspace) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", "thalweg-fuzz", "--example", "write_corpus"]);
    check(command.current_dir(&workspace.root), "the corpus was not written")
}

fn made_dir(path: &Path) -> Result<PathBuf, String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.to_owned())
}

fn succeeds(command: &mut Command) -> bool {
    command.env_remove("RUSTUP_TOOLCHAIN");
    command.output().is_ok_and(|output| output.status.success())
}

fn check(command: &mut Command, advice: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{advice} ({status})")),
        Err(error) => Err(format!("{advice}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_found_and_no_other() {
        let workspace = Workspace::find().unwrap();
        let all = targets(&workspace, None).unwrap();
        assert!(all.iter().any(|name| name == "http1_head"), "{all:?}");
        assert_eq!(targets(&workspace, Some("json")).unwrap(), ["json"]);
        assert!(targets(&workspace, Some("jason")).unwrap_err().contains("json"));
    }

    #[test]
    fn every_target_has_a_committed_corpus() {
        let workspace = Workspace::find().unwrap();
        for target in targets(&workspace, None).unwrap() {
            let dir = workspace.root.join("fuzz/corpus").join(&target);
            assert!(std::fs::read_dir(dir).is_ok_and(|mut dir| dir.next().is_some()), "{target}");
        }
    }
}
