//! Tests in Python: their dependencies in an environment of their own, and what `unittest` says of them.

use crate::run::{Counts, Failure};
use crate::workspace::Workspace;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs `tests/python` with `variables` set; leaves it out where there is no Python that can make environments.
pub(crate) fn run(workspace: &Workspace, variables: &[(&str, &str)]) -> Result<Counts, Failure> {
    let Some(python) = environment(workspace)? else {
        println!("there is no python3 with venv: the tests in Python are left out");
        return Ok(Counts::default());
    };
    println!("official Python client");
    let mut command = Command::new(python);
    command.args(["-m", "unittest", "-b", "test_client"]);
    command.current_dir(workspace.root.join("tests/python")).envs(variables.iter().copied());
    let output = output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let ran = ran(&said).unwrap_or(0);
    if output.status.success() && ran > 0 {
        return Ok(Counts { passed: ran, failed: 0 });
    }
    let message = format!("the tests in Python failed:\n{said}");
    Err(Failure { message, counts: Counts { passed: 0, failed: 1 } })
}

/// How many tests `unittest` says that it has run.
fn ran(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("Ran "))?;
    line.split(' ').next()?.parse().ok()
}

/// The interpreter of an environment that has what `requirements.txt` names.
fn environment(workspace: &Workspace) -> Result<Option<PathBuf>, Failure> {
    let wanted = workspace.root.join("tests/python/requirements.txt");
    let wanted_text = std::fs::read_to_string(&wanted)
        .map_err(|error| format!("cannot read {}: {error}", wanted.display()))?;
    let directory = workspace.root.join("target/xtask/python");
    let (python, stamp) = (directory.join("bin/python"), directory.join("installed.txt"));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted_text) {
        return Ok(Some(python));
    }
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    let installed = output(command.arg(&wanted))?;
    if !installed.status.success() {
        let said = String::from_utf8_lossy(&installed.stderr);
        return Err(Failure::new(format!("cannot install {}:\n{said}", wanted.display())));
    }
    std::fs::write(&stamp, wanted_text)
        .map_err(|error| format!("cannot mark the installation: {error}"))?;
    Ok(Some(python))
}

fn output(command: &mut Command) -> Result<Output, Failure> {
    command.output().map_err(|error| Failure::new(format!("cannot run python: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_tests_is_read_from_what_unittest_says() {
        assert_eq!(ran("....\n-----\nRan 4 tests in 0.354s\n\nOK\n"), Some(4));
        assert_eq!(ran("Traceback (most recent call last):\n"), None);
    }
}
