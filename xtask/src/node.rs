//! Tests in TypeScript: their dependencies, and what vitest says of them.

use crate::run::{Counts, Failure, check};
use crate::workspace::Workspace;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What one run of vitest did.
pub(crate) struct Run {
    /// Tests that passed and failed.
    pub(crate) counts: Counts,
    /// Tests that were not run.
    pub(crate) skipped: u64,
}

/// Installs what `tests/<name>` locks and runs it with `variables` set.
pub(crate) fn vitest(
    workspace: &Workspace,
    name: &str,
    variables: &[(&str, &str)],
) -> Result<Run, Failure> {
    let directory = workspace.root.join("tests").join(name);
    install(&directory)?;
    let report = report_path(workspace, name)?;
    let status = Command::new(directory.join("node_modules/.bin/vitest"))
        .args(["run", "--reporter=dot", "--reporter=json"])
        .arg(format!("--outputFile.json={}", report.display()))
        .current_dir(&directory)
        .envs(variables.iter().copied())
        .status()
        .map_err(|error| format!("cannot run vitest: {error}"))?;
    let text = std::fs::read_to_string(&report)
        .map_err(|error| format!("vitest ended with {status} and wrote no report: {error}"))?;
    let _ = std::fs::remove_file(&report);
    let run = parse_report(&text).ok_or_else(|| "vitest's report has another form".to_owned())?;
    // Errors outside of tests fail the run without failing a test.
    if status.success() || run.counts.failed > 0 {
        return Ok(run);
    }
    Err(Failure {
        message: format!("vitest ended with {status} though no test failed; see above"),
        counts: Counts { failed: 1, ..run.counts },
    })
}

/// `npm ci`, unless what is installed is what the lock file says.
fn install(directory: &Path) -> Result<(), Failure> {
    let lock = std::fs::read(directory.join("package-lock.json"))
        .map_err(|error| format!("cannot read {}'s lock file: {error}", directory.display()))?;
    let stamp = directory.join("node_modules/.installed-lock");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    check(
        Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(directory),
        "npm ci failed; node 20 or later and npm are needed",
    )?;
    std::fs::write(&stamp, lock).map_err(|error| format!("cannot mark the install: {error}"))?;
    Ok(())
}

fn report_path(workspace: &Workspace, name: &str) -> Result<PathBuf, Failure> {
    let directory = workspace.target.join("xtask");
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    Ok(directory.join(format!("{name}-{}.json", std::process::id())))
}

fn parse_report(text: &str) -> Option<Run> {
    let report: Value = serde_json::from_str(text).ok()?;
    let number = |key: &str| report[key].as_u64();
    let suites_failed = number("numFailedTestSuites")?;
    let counts = Counts { passed: number("numPassedTests")?, failed: number("numFailedTests")? };
    // A file that cannot be loaded has no tests to fail.
    let failed =
        if counts.failed == 0 && suites_failed > 0 { suites_failed } else { counts.failed };
    let skipped = number("numPendingTests")? + number("numTodoTests")?;
    Some(Run { counts: Counts { failed, ..counts }, skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_counted() {
        let text = r#"{"numFailedTestSuites":1,"numPassedTests":330,"numFailedTests":2,
            "numPendingTests":30,"numTodoTests":1}"#;
        let run = parse_report(text).unwrap();
        assert_eq!(run.counts, Counts { passed: 330, failed: 2 });
        assert_eq!(run.skipped, 31);
    }

    #[test]
    fn a_file_that_does_not_load_is_a_failure() {
        let text = r#"{"numFailedTestSuites":1,"numPassedTests":0,"numFailedTests":0,
            "numPendingTests":0,"numTodoTests":0}"#;
        assert_eq!(parse_report(text).unwrap().counts.failed, 1);
    }

    #[test]
    fn another_form_is_noticed() {
        assert!(parse_report("{}").is_none());
    }
}
