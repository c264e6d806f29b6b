//! Everything that must hold before a change is merged, in the order in which it fails soonest.

use crate::run::{Counts, Failure, cargo_test, check};
use crate::workspace::Workspace;
use crate::{client_test, conformance, counts, crash, door, neighbours, sim, tidy};
use std::process::Command;
use std::time::Instant;

/// One stage: its name and what it does.
struct Stage {
    name: &'static str,
    run: fn(&Workspace) -> Result<Counts, Failure>,
    /// Whether it needs the release binary, or takes minutes: left out of a quick run.
    slow: bool,
}

/// The stage without which no other release stage means anything.
const BUILD: &str = "release build";

/// Characters of the bar of the longest stage.
const BAR_LENGTH: f64 = 40.0;

/// How long fresh seeds are simulated, after the fixed ones among the tests.
const FRESH_SEEDS_MINUTES: u64 = 2;

/// Clusters: about a minute, always the same. Fresh ones are behind `cargo xtask sim --cluster`: what they find is seldom of the change
/// that is tested.
const CLUSTER_SEEDS: u64 = 400;

const STAGES: [Stage; 14] = [
    Stage { name: "format", run: format, slow: false },
    Stage { name: "tidy", run: tidy_stage, slow: false },
    Stage { name: "lints", run: lints, slow: false },
    Stage { name: "docs", run: docs, slow: false },
    Stage { name: "tests", run: tests, slow: false },
    Stage { name: BUILD, run: release_build, slow: true },
    Stage { name: "conformance", run: |ws| conformance::run(ws, None), slow: true },
    Stage { name: "door", run: door::run, slow: true },
    Stage { name: "browser", run: neighbours::browser, slow: true },
    Stage { name: "proxies", run: neighbours::proxies, slow: true },
    Stage { name: "client", run: |ws| client_test::run(ws, None), slow: true },
    Stage { name: "counts", run: counts_stage, slow: true },
    Stage { name: "crashes", run: crashes, slow: true },
    Stage { name: "simulation", run: simulation, slow: true },
];

/// Runs all stages, or with `quick` those without the release binary. A stage that fails does not
/// stop the others: one run shows everything.
pub(crate) fn run(workspace: &Workspace, quick: bool) -> Result<(), String> {
    let started = Instant::now();
    let stages: Vec<&Stage> = STAGES.iter().filter(|stage| !(quick && stage.slow)).collect();
    let mut total = Counts::default();
    let mut failures = Vec::new();
    let mut rows = Vec::new();
    for (at, stage) in stages.iter().enumerate() {
        let label = format!("[{}/{}] {}", at + 1, stages.len(), stage.name);
        println!("\n{label}");
        let stage_started = Instant::now();
        // An older binary would answer for code that it was not built from.
        let result = if stage.slow && failures.iter().any(|(name, _)| *name == BUILD) {
            Err(Failure::new("not run, because the release build failed"))
        } else {
            (stage.run)(workspace)
        };
        let seconds = stage_started.elapsed().as_secs_f64();
        rows.push(Row { name: stage.name, seconds, is_ok: result.is_ok() });
        match result {
            Ok(counts) => {
                total = total.and(counts);
                println!("{label} ok in {seconds:.1} s");
            }
            Err(failure) => {
                total = total.and(failure.counts);
                println!("{label} FAILED after {seconds:.1} s\n{failure}");
                failures.push((stage.name, failure.message));
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("\n{}\n{}", table(&rows), closing_line(total, seconds));
    verdict(&failures)
}

/// What one stage came to.
struct Row {
    name: &'static str,
    seconds: f64,
    is_ok: bool,
}

/// Minutes per stage, longest bars for the longest stages.
fn table(rows: &[Row]) -> String {
    let longest = rows.iter().map(|row| row.seconds).fold(1.0, f64::max);
    let mut text = format!("{:<14} {:>7}", "stage", "minutes");
    for Row { name, seconds, is_ok } in rows {
        let bar = "#".repeat((seconds / longest * BAR_LENGTH).round() as usize);
        let verdict = if *is_ok { "" } else { " FAILED" };
        let line = format!("\n{name:<14} {:>7.1} {bar}{verdict}", seconds / 60.0);
        text.push_str(line.trim_end());
    }
    text
}

/// Says once more at the end what failed: the lines where it happened are far above.
fn verdict(failures: &[(&str, String)]) -> Result<(), String> {
    let lines = failures.iter().map(|(name, message)| format!("\n  {name}: {message}"));
    if failures.is_empty() { Ok(()) } else { Err(format!("failed:{}", lines.collect::<String>())) }
}

fn closing_line(total: Counts, seconds: f64) -> String {
    let verdict = if total.failed == 0 { "ok" } else { "FAILED" };
    format!("test result: {verdict}. {total}; finished in {seconds:.1} s")
}

fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&workspace.root);
    command
}

fn format(workspace: &Workspace) -> Result<Counts, Failure> {
    let advice = "run `cargo fmt --all`, and the same in fuzz/";
    let all = check(cargo(workspace).args(["fmt", "--all", "--check"]), advice)?;
    // The programs of the fuzzer are a workspace of their own.
    let mut fuzz = cargo(workspace);
    fuzz.current_dir(workspace.root.join("fuzz")).args(["fmt", "--check"]);
    Ok(all.and(check(&mut fuzz, advice)?))
}

fn tidy_stage(workspace: &Workspace) -> Result<Counts, Failure> {
    as_one(tidy::run(workspace, &tidy::Options::default()))
}

fn lints(workspace: &Workspace) -> Result<Counts, Failure> {
    check(
        cargo(workspace).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        "correct the lints above; what is refused on purpose, and why, is in clippy.toml",
    )
}

/// Links between pages of the code's documentation that lead nowhere, above all.
fn docs(workspace: &Workspace) -> Result<Counts, Failure> {
    check(
        cargo(workspace)
            .args(["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"])
            // Private items are documented, so that links to them lead somewhere.
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"),
        "correct the documentation named above",
    )
}

fn tests(workspace: &Workspace) -> Result<Counts, Failure> {
    cargo_test(cargo(workspace).args(["test", "--workspace", "--no-fail-fast"]), "tests failed")
}

fn release_build(workspace: &Workspace) -> Result<Counts, Failure> {
    check(cargo(workspace).args(["build", "--release"]), "the release build failed")
}

fn counts_stage(workspace: &Workspace) -> Result<Counts, Failure> {
    as_one(counts::run(workspace, &counts::Options::default()))
}

fn crashes(workspace: &Workspace) -> Result<Counts, Failure> {
    crash::run(workspace, &crash::Crashes::short())?;
    let clusters = crash::Crashes::of_clusters();
    as_one(clusters.iter().try_for_each(|crashes| crash::run(workspace, crashes)))
}

fn simulation(workspace: &Workspace) -> Result<Counts, Failure> {
    sim::run(workspace, &sim::Simulation::fresh(FRESH_SEEDS_MINUTES))?;
    as_one(sim::run(workspace, &sim::Simulation::clusters(CLUSTER_SEEDS)))
}

/// A command that does not count what it checks counts as one check.
fn as_one(result: Result<(), String>) -> Result<Counts, Failure> {
    result.map(|()| Counts::ONE).map_err(Failure::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_many_passed_and_failed() {
        assert_eq!(
            closing_line(Counts { passed: 400, failed: 0 }, 61.25),
            "test result: ok. 400 passed; 0 failed; finished in 61.2 s"
        );
        assert!(closing_line(Counts { passed: 1, failed: 2 }, 0.0).contains("FAILED"));
    }

    #[test]
    fn a_table_shows_where_the_time_went() {
        let row = |name, seconds, is_ok| Row { name, seconds, is_ok };
        let rows = [row("tests", 600.0, true), row("counts", 300.0, false), row("tidy", 1.0, true)];
        let hashes = |count: usize| "#".repeat(count);
        assert_eq!(
            table(&rows),
            format!(
                "stage          minutes\n\
                 tests             10.0 {}\n\
                 counts             5.0 {} FAILED\n\
                 tidy               0.0",
                hashes(40),
                hashes(20)
            )
        );
    }

    #[test]
    fn the_end_repeats_what_failed_and_why() {
        assert_eq!(verdict(&[]), Ok(()));
        let failures = [("counts", "read is dearer".to_owned()), ("tidy", "a name".to_owned())];
        let said = verdict(&failures).unwrap_err();
        assert_eq!(said, "failed:\n  counts: read is dearer\n  tidy: a name");
    }

    #[test]
    fn quick_leaves_out_what_needs_the_release_binary() {
        let quick: Vec<&str> =
            STAGES.iter().filter(|stage| !stage.slow).map(|stage| stage.name).collect();
        assert_eq!(quick, ["format", "tidy", "lints", "docs", "tests"]);
    }
}
