//! Results: figures with units, checks that passed or not, and what they were measured with.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write;

/// All runs of one call of this program.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The commit of the sources, `+` if they were changed since.
    pub(crate) commit: String,
    pub(crate) machine: Machine,
    pub(crate) runs: Vec<Run>,
}

/// One measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) command: String,
    /// What was asked of it.
    pub(crate) settings: Vec<(String, String)>,
    /// The server under load and its flags.
    pub(crate) server: String,
    /// When the server acknowledges.
    pub(crate) durability: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) checks: Vec<Check>,
}

/// One number.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Cow<'static, str>,
}

/// Something that must hold for the figures to mean anything.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) passed: bool,
}

impl Run {
    pub(crate) fn new(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            settings: Vec::new(),
            server: String::new(),
            durability: String::new(),
            figures: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Adds what was asked.
    pub(crate) fn setting(&mut self, name: &str, value: impl ToString) {
        self.settings.push((name.to_owned(), value.to_string()));
    }

    pub(crate) fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit: unit.into() });
    }

    pub(crate) fn check(&mut self, what: impl Into<String>, passed: bool) {
        self.checks.push(Check { what: what.into(), passed });
    }

    pub(crate) fn value(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    pub(crate) fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }

    /// The run for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}{}\n", self.command, self.asked());
        for Figure { name, value, unit } in &self.figures {
            let _ = writeln!(text, "  {name:<44} {:>14} {unit}", number(*value));
        }
        for Check { what, passed } in &self.checks {
            let _ = writeln!(text, "  {} {what}", if *passed { "ok    " } else { "FAILED" });
        }
        text
    }

    /// The settings as flags.
    pub(crate) fn asked(&self) -> String {
        self.settings.iter().fold(String::new(), |text, (name, value)| match value.as_str() {
            "true" => format!("{text} --{name}"),
            "false" => text,
            _ => format!("{text} --{name} {value}"),
        })
    }
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        self.runs.iter().all(Run::passed)
    }
}

/// A number to about three digits, as people read it.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        small if small >= 0.1 || small == 0.0 => 2,
        _ => 4,
    };
    grouped(&format!("{value:.digits$}"))
}

/// A number in decimal digits, with a comma between thousands.
pub(crate) fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

/// Writes to standard output. Its reader may have closed it early, as `head` does. That is no error:
/// the figures still go to their file.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = std::io::Write::write_all(&mut out, text.as_bytes());
    let _ = std::io::Write::flush(&mut out);
}

/// The commit that is checked out here, for results that are kept.
pub(crate) fn commit() -> String {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_some_and(|files| files.is_empty()) { commit } else { format!("{commit}+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_cut() {
        for (value, wanted) in [
            (1_234_567.8, "1,234,568"),
            (123.4, "123"),
            (-1234.0, "-1,234"),
            (12.34, "12.3"),
            (0.123, "0.12"),
            (0.0123, "0.0123"),
            (0.0, "0.00"),
        ] {
            assert_eq!(number(value), wanted);
        }
        assert_eq!([grouped("50"), grouped("100000")], ["50", "100,000"]);
    }

    #[test]
    fn one_failed_check_fails_the_run() {
        let mut run = Run::new("x");
        run.check("a", true);
        assert!(run.passed());
        run.check("b", false);
        assert!(!run.passed());
        assert!(run.text().contains("FAILED b"));
    }

    #[test]
    fn settings_read_as_they_were_typed() {
        let mut run = Run::new("appends");
        run.setting("streams", 10);
        run.setting("producer", true);
        run.setting("empty", false);
        assert_eq!(run.asked(), " --streams 10 --producer");
    }
}
