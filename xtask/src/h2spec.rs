//! `h2spec`: what RFC 9113 and RFC 7541 demand of a server, asked by a client that is not ours.
//!
//! It is a program in Go, built once at a pinned version. Where Go is not installed it is left out.

use crate::run::{Counts, Failure};
use crate::workspace::Workspace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec";
const VERSION: &str = "v2.2.1+incompatible";

/// Tests in that version, the strict ones included.
const TESTS: u64 = 146;

/// Tests that may fail, each with the sentence that allows it.
const EXCEPTIONS: [&str; 1] = [
    // RFC 9113 §3.4: "A GOAWAY frame MAY be omitted in this case, since an invalid preface indicates that the peer is not using
    // HTTP/2." Both versions are spoken on one address, so what is no preface is answered 400 in HTTP/1.1, and the connection ends.
    "Sends invalid connection preface",
];

/// Runs all of it against a server.
pub(crate) fn run(
    workspace: &Workspace,
    address: SocketAddr,
    is_tls: bool,
) -> Result<Counts, Failure> {
    let Some(program) = program(workspace)? else {
        println!("go is not installed: h2spec is left out");
        return Ok(Counts::default());
    };
    let mut command = Command::new(program);
    command.args(["--strict", "--timeout", "5", "--path", "/v1/stream/none"]);
    command.args(["--port", &address.port().to_string(), "--host", "localhost"]);
    command.args(if is_tls { &["--tls", "--insecure"][..] } else { &[] });
    let output = command.output().map_err(|error| format!("cannot run h2spec: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts =
        judge(&said).map_err(|problem| Failure::new(format!("h2spec: {problem}\n{said}")))?;
    println!("h2spec, {}: {counts}", if is_tls { "over TLS" } else { "by prior knowledge" });
    Ok(counts)
}

/// What its report says: all tests have run, and those that failed may.
fn judge(said: &str) -> Result<Counts, String> {
    let (all, failures) = said.split_once("Failures:").unwrap_or((said, ""));
    let failed: Vec<&str> = failures
        .lines()
        .filter_map(|line| line.trim().strip_prefix("× "))
        .filter_map(|line| line.split_once(": "))
        .map(|(_, name)| name)
        .collect();
    if let Some(name) = failed.iter().find(|name| !EXCEPTIONS.contains(name)) {
        return Err(format!("`{name}` failed"));
    }
    let passed = all.lines().filter(|line| line.contains('✔')).count() as u64;
    if passed + failed.len() as u64 != TESTS {
        return Err(format!("{passed} tests passed of {TESTS}, {} failed", failed.len()));
    }
    Ok(Counts { passed, failed: 0 })
}

/// The program, built if it is not there.
fn program(workspace: &Workspace) -> Result<Option<PathBuf>, Failure> {
    let directory = workspace.target.join("xtask/h2spec").join(VERSION);
    let program = directory.join("h2spec");
    if program.is_file() {
        return Ok(Some(program));
    }
    let mut command = Command::new("go");
    command.args(["install", &format!("{PACKAGE}@{VERSION}")]).env("GOBIN", &directory);
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("cannot run go: {error}"))),
        Ok(output) if output.status.success() => Ok(Some(program)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Failure::new(format!("h2spec cannot be built:\n{said}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(passed: u64, failed: &str) -> String {
        let lines = "✔ 1: Sends a frame\n".repeat(usize::try_from(passed).unwrap());
        format!("{lines}× 2: {failed}\nFailures:\n  × 2: {failed}\n    -> It MUST.\n")
    }

    #[test]
    fn only_what_is_excepted_may_fail() {
        let counts = judge(&report(TESTS - 1, EXCEPTIONS[0])).unwrap();
        assert_eq!(counts, Counts { passed: TESTS - 1, failed: 0 });
        assert!(judge(&report(TESTS - 1, "Sends a DATA frame")).unwrap_err().contains("DATA"));
    }

    #[test]
    fn a_run_of_fewer_tests_is_a_failure() {
        assert!(judge(&report(TESTS - 2, EXCEPTIONS[0])).is_err());
        assert!(judge("").is_err());
    }
}
