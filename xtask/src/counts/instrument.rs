//! Programs that run another one and count what it does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a report may come after the end of what it is about.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// What can be counted of a process from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instrument {
    /// Instructions, by valgrind's callgrind.
    Callgrind,
    /// Allocations, by valgrind's dhat.
    Dhat,
    /// System calls, by strace.
    Strace,
}

impl Instrument {
    /// What it counts, as the limits call it.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Callgrind => "instructions",
            Self::Dhat => "allocations",
            Self::Strace => "system-calls",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Callgrind | Self::Dhat => "valgrind",
            Self::Strace => "strace",
        }
    }

    /// Whether it can be used here, by a try; says so if not. Some containers refuse to let a process
    /// be watched.
    pub(super) fn is_usable(self, scratch: &Path) -> bool {
        let stem = scratch.join(format!("try-{}", self.what()));
        let words = self.prefix(&stem);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        let has_run = command.status().is_ok_and(|status| status.success());
        let is_usable = has_run && self.count(&stem).is_ok();
        if !is_usable {
            println!("skipped: no {} are counted, {} does not work", self.what(), words[0]);
        }
        is_usable
    }

    /// What to put before a command, for a report below `stem`.
    pub(super) fn prefix(self, stem: &Path) -> Vec<String> {
        let profile = stem.with_extension("profile").display().to_string();
        let report = self.report(stem).display().to_string();
        let words = match self {
            Self::Callgrind => vec![
                "--tool=callgrind".into(),
                format!("--callgrind-out-file={profile}"),
                format!("--log-file={report}"),
            ],
            Self::Dhat => vec![
                "--tool=dhat".into(),
                format!("--dhat-out-file={profile}"),
                format!("--log-file={report}"),
            ],
            // As a grandchild (-D), so that the process that is told to end is the one that is watched.
            Self::Strace => {
                let flags = ["-D", "-f", "-c", "-U", "calls,name", "-o"];
                flags.into_iter().map(str::to_owned).chain([report]).collect()
            }
        };
        [self.program().to_owned()].into_iter().chain(words).collect()
    }

    fn report(self, stem: &Path) -> PathBuf {
        stem.with_extension("report")
    }

    /// The count in the report of a process that has ended.
    pub(super) fn count(self, stem: &Path) -> Result<f64, String> {
        let report = self.report(stem);
        let deadline = Instant::now() + REPORT_TIMEOUT;
        loop {
            let text = std::fs::read_to_string(&report).unwrap_or_default();
            if let Some(count) = self.count_in(&text) {
                return Ok(count);
            }
            if Instant::now() > deadline {
                return Err(format!("{} counted nothing: {text}", self.program()));
            }
            std::thread::sleep(REPORT_INTERVAL);
        }
    }

    fn count_in(self, report: &str) -> Option<f64> {
        let number = |text: &str| text.replace(',', "").parse().ok();
        report.lines().find_map(|line| match self {
            Self::Callgrind => number(line.split_once("Collected : ")?.1.trim()),
            Self::Dhat => number(after(line, "Total: ")?.split(" in ").nth(1)?.split(' ').next()?),
            Self::Strace => number(line.strip_suffix("total")?.trim()),
        })
    }
}

fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.split_once(word).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_reports_are_found() {
        let callgrind = "==7== Events    : Ir\n==7== Collected : 139126504\n==7==";
        assert_eq!(Instrument::Callgrind.count_in(callgrind), Some(139_126_504.0));
        let dhat = "==7== Total:     6,050,400 bytes in 8,863 blocks\n";
        assert_eq!(Instrument::Dhat.count_in(dhat), Some(8_863.0));
        let strace = "    calls syscall\n--------- ----\n     7001 epoll_wait\n     9012 total\n";
        assert_eq!(Instrument::Strace.count_in(strace), Some(9_012.0));
        assert_eq!(Instrument::Strace.count_in("    calls syscall\n"), None);
    }
}
