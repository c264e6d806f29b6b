//! The access log and the audit log: files that a thread of its own writes.
//!
//! # Why a thread of its own
//! A file may be on a full disk, or a pipe that nobody reads. No loop may wait for that. So lines go through a bounded queue. A
//! loop that finds it full keeps its lines, and loses those that it has no room for. All lost lines are counted.
//!
//! # Invariants
//! - Nobody waits for a log but the end of the process, for a second at most.
//! - A log that cannot be opened refuses a start. Later it keeps the file that it had, and an error says so.

use crate::metrics::NodeMetrics;
use crate::settings::{LogTo, Settings};
use env::OperatorLog;
use session::{Lines, Logs, operator_line};
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Jobs that wait for the thread. Each is at most half a megabyte of lines.
const JOBS_MAX: usize = 32;

/// How long the end of the process waits for its last lines.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);

/// The way to the thread that writes both logs.
#[derive(Debug, Clone)]
pub struct Journal {
    jobs: SyncSender<Job>,
    metrics: Arc<NodeMetrics>,
}

/// A log that cannot be opened.
#[derive(Debug)]
pub struct JournalProblem {
    /// The setting that names it.
    pub setting: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

/// What the thread is asked to do.
#[derive(Debug)]
enum Job {
    Write(Lines),
    Reopen,
    /// Say that everything before this is written.
    Flush(SyncSender<()>),
}

/// Where the lines of one log go.
#[derive(Debug)]
struct Out {
    setting: &'static str,
    to: LogTo,
    file: Option<OperatorLog>,
    /// The last lines were lost, which was said.
    is_failing: bool,
}

impl fmt::Display for JournalProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, path, error } = self;
        write!(f, "cannot write to {} (setting {setting}): {error}", path.display())
    }
}

/// Which logs are kept.
pub(crate) fn logs(settings: &Settings) -> Logs {
    let is_kept = |to: &LogTo| *to != LogTo::Off;
    Logs { access: is_kept(&settings.access_log), audit: is_kept(&settings.audit_log) }
}

impl Journal {
    /// Opens the logs that are kept; `None` if none is. The thread that writes them runs what comes with it, which ends when
    /// nobody has the way to it any more.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn open(
        settings: &Settings,
        metrics: &Arc<NodeMetrics>,
    ) -> Result<Option<(Self, impl FnOnce() + Send + 'static)>, JournalProblem> {
        if !logs(settings).is_any() {
            return Ok(None);
        }
        let outs = [
            Out::open("access_log", &settings.access_log)?,
            Out::open("audit_log", &settings.audit_log)?,
        ];
        let (jobs, queue) = sync_channel(JOBS_MAX);
        let of_thread = Arc::clone(metrics);
        let run = move || run(&queue, outs, &of_thread);
        Ok(Some((Self { jobs, metrics: Arc::clone(metrics) }, run)))
    }

    /// Gives lines to the thread.
    ///
    /// # Errors
    /// The lines, if it is behind.
    pub fn write(&self, lines: Lines) -> Result<(), Lines> {
        match self.jobs.try_send(Job::Write(lines)) {
            Err(TrySendError::Full(Job::Write(lines))) => Err(lines),
            _ => Ok(()),
        }
    }

    /// Notes what an operator has done in the audit log.
    pub fn note(&self, event: &str, problem: Option<&str>) {
        let audit = operator_line(self.metrics.clock().now_wall(), event, problem);
        if self.write(Lines { access: String::new(), audit }).is_err() {
            self.metrics.log_lines_full.add(1);
        }
    }

    /// Opens the files again: a tool may have renamed them.
    pub fn reopen(&self) {
        if self.jobs.try_send(Job::Reopen).is_err() {
            tracing::error!(
                "the logs were not opened again: their thread is behind; reload once more"
            );
        }
    }

    /// Waits until all lines so far are written, but no longer than a second.
    pub fn wait_until_written(&self) {
        let (done, wait) = sync_channel(1);
        if self.jobs.try_send(Job::Flush(done)).is_ok() {
            // What is not written in time is lost: the process must end all the same.
            let _ = wait.recv_timeout(FLUSH_WAIT_MAX);
        }
    }
}

fn run(jobs: &Receiver<Job>, outs: [Out; 2], metrics: &NodeMetrics) {
    let [mut access, mut audit] = outs;
    for job in jobs {
        match job {
            Job::Write(lines) => {
                metrics
                    .log_lines_unwritten
                    .add(access.write(&lines.access) + audit.write(&lines.audit));
            }
            Job::Reopen => [&mut access, &mut audit].into_iter().for_each(Out::reopen),
            Job::Flush(done) => {
                // The caller may have waited for long enough.
                let _ = done.send(());
            }
        }
    }
}

impl Out {
    fn open(setting: &'static str, to: &LogTo) -> Result<Self, JournalProblem> {
        let file = match to {
            LogTo::File(path) => Some(OperatorLog::open(path).map_err(|error| JournalProblem {
                setting,
                path: path.clone(),
                error,
            })?),
            LogTo::Off | LogTo::Stderr => None,
        };
        Ok(Self { setting, to: to.clone(), file, is_failing: false })
    }

    fn reopen(&mut self) {
        let LogTo::File(path) = &self.to else { return };
        match OperatorLog::open(path) {
            Ok(file) => self.file = Some(file),
            Err(error) => {
                let (setting, file) = (self.setting, path.display());
                tracing::error!(setting, %file, %error, "a log was not opened again: the file that it had stays");
            }
        }
    }

    /// Writes lines; how many were lost.
    fn write(&mut self, lines: &str) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        let written = match (&self.to, &mut self.file) {
            (LogTo::File(_), Some(file)) => file.append(lines),
            (LogTo::Stderr, _) => {
                // Standard error has nobody to tell.
                let _ = io::stderr().write_all(lines.as_bytes());
                Ok(())
            }
            _ => Ok(()),
        };
        match written {
            Ok(()) => {
                self.is_failing = false;
                0
            }
            Err((error, lost)) => {
                if !self.is_failing {
                    let setting = self.setting;
                    tracing::error!(setting, %error, "lines of a log are lost; no request waits for them");
                }
                self.is_failing = true;
                lost
            }
        }
    }
}
