//! Running a command, and what came of it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// How many tests passed and failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Tests that passed; a check that is not a test counts as one.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
}

impl Counts {
    /// One check that passed.
    pub(crate) const ONE: Self = Self { passed: 1, failed: 0 };

    /// Both together.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed; {} failed", self.passed, self.failed)
    }
}

/// A stage that did not hold.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What is wrong and what to do about it.
    pub(crate) message: String,
    /// The tests that ran all the same. `failed` is at least 1.
    pub(crate) counts: Counts,
}

impl Failure {
    /// A failure of the stage as a whole.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), counts: Counts { passed: 0, failed: 1 } }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.counts)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

/// Runs `command` with its output on ours; it must end with success.
pub(crate) fn check(command: &mut Command, advice: &str) -> Result<Counts, Failure> {
    let status = command.status().map_err(|error| cannot_run(command, &error))?;
    if status.success() { Ok(Counts::ONE) } else { Err(Failure::new(advice)) }
}

/// Runs a command, passes on what it says on standard error, and repeats the lines that `is_finding` picks in the failure.
pub(crate) fn check_and_repeat(
    command: &mut Command,
    advice: &str,
    is_finding: fn(&str) -> bool,
) -> Result<(), Failure> {
    let mut child =
        command.stderr(Stdio::piped()).spawn().map_err(|error| cannot_run(command, &error))?;
    let stderr = child.stderr.take().expect("the output was asked for");
    let mut message = advice.to_owned();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        eprintln!("{line}");
        if is_finding(&line) {
            message.push_str("\n    ");
            message.push_str(line.trim());
        }
    }
    let status = child.wait().map_err(|error| cannot_run(command, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::new(message)) }
}

/// Runs a cargo test command, passes its output on and adds up its result lines.
pub(crate) fn cargo_test(command: &mut Command, advice: &str) -> Result<Counts, Failure> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| cannot_run(command, &error))?;
    let stdout = child.stdout.take().expect("the output was asked for");
    let mut counts = Counts::default();
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        println!("{line}");
        counts = counts.and(result_line(&line).unwrap_or_default());
    }
    let status = child.wait().map_err(|error| cannot_run(command, &error))?;
    if status.success() {
        return Ok(counts);
    }
    let failed = counts.failed.max(1);
    Err(Failure { message: advice.to_owned(), counts: Counts { failed, ..counts } })
}

fn cannot_run(command: &Command, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot run {}: {error}", command.get_program().display()))
}

/// Reads `test result: ok. 38 passed; 0 failed; …`.
fn result_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, numbers) = rest.split_once(". ")?;
    let mut numbers = numbers.split("; ");
    let passed = numbers.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = numbers.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_cargo_are_read() {
        let line =
            "test result: FAILED. 38 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(result_line(line), Some(Counts { passed: 38, failed: 2 }));
        assert_eq!(result_line("test settings::tests::x ... ok"), None);
    }

    #[test]
    fn a_command_that_fails_gives_the_advice() {
        let failure = check(&mut Command::new("false"), "do this").unwrap_err();
        assert_eq!(failure.to_string(), "do this (0 passed; 1 failed)");
    }

    #[test]
    fn a_command_that_is_missing_is_named() {
        let failure = check(&mut Command::new("no-such-command"), "do this").unwrap_err();
        assert!(failure.message.starts_with("cannot run no-such-command"), "{failure}");
    }

    #[test]
    fn what_was_found_is_repeated_at_the_end() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo passing >&2; echo 'seed 7 broke it' >&2; exit 1"]);
        let is_finding = |line: &str| line.contains("broke");
        let failure = check_and_repeat(&mut shell, "look above", is_finding).unwrap_err();
        assert_eq!(failure.message, "look above\n    seed 7 broke it");
    }
}
