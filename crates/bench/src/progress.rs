//! A line on standard error while something takes its time.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// On a terminal the line is rewritten often; in a file each line stays, so there are few.
const INTERVAL_TERMINAL: Duration = Duration::from_millis(500);
const INTERVAL_FILE: Duration = Duration::from_secs(5);

/// Shows how far one step has come.
#[derive(Debug)]
pub(crate) struct Progress {
    step: String,
    start: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn start(step: impl Into<String>) -> Self {
        let now = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        let progress = Self { step: step.into(), start: now, shown: now, is_terminal };
        eprintln!("  {} …", progress.step);
        progress
    }

    /// Shows `count` of something done, when it is time to.
    pub(crate) fn show(&mut self, now: Instant, count: u64, unit: &str) {
        let interval = if self.is_terminal { INTERVAL_TERMINAL } else { INTERVAL_FILE };
        if now.duration_since(self.shown) < interval {
            return;
        }
        self.shown = now;
        let seconds = now.duration_since(self.start).as_secs_f64();
        let rate = count as f64 / seconds;
        let line = format!("  {} {seconds:.0} s: {count} {unit}, {rate:.0}/s", self.step);
        let mut out = std::io::stderr();
        // Nobody may be looking.
        let _ = if self.is_terminal { write!(out, "\r{line}   ") } else { writeln!(out, "{line}") };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal && self.shown > self.start {
            eprintln!();
        }
    }
}
