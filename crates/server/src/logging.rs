//! The log on standard error: text for people or one JSON object per line.
//!
//! An ERROR means that a person must look; a request that fails by its own fault is no log line.
//!
//! # Why a thread of its own
//! Standard error may be a full disk, a pipe whose reader has gone, or one whose reader does not read. A
//! thread that logs must not fail or wait for any of these. So lines go through a bounded queue to one thread that writes
//! them. A line that finds the queue full is lost and counted; the count is logged with the next line that gets
//! through. Errors of writing are ignored: there is nowhere to report them.

use crate::plane;
use crate::settings::{LogFormat, LogLevel};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// Lines that wait for the writing thread at most. A start logs about ten, a failing disk a few per shard.
const LINES_MAX: usize = 1024;

/// How long the end of the process waits for its last lines.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);

/// The way to the thread that writes the log.
#[derive(Debug, Clone)]
pub struct Log {
    jobs: SyncSender<Job>,
    lost: Arc<AtomicU64>,
}

/// What the thread is asked to do.
#[derive(Debug)]
enum Job {
    Write(Vec<u8>),
    /// Say that everything before this is written.
    Flush(SyncSender<()>),
}

/// Sends all events of the process to standard error.
///
/// # Panics
/// If the process logs already, or cannot have a thread: there is one log, started once, in `cli`.
#[must_use]
pub fn start(format: LogFormat, level: LogLevel) -> Log {
    let log = Log::start(io::stderr());
    let writer = log.clone();
    // Other crates' events are about clients, who must not fill the log.
    let ours = tracing_subscriber::filter::filter_fn(|event| event.target().starts_with("thalweg"));
    let builder = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .log_internal_errors(false)
        .with_max_level(filter(level))
        .with_target(false);
    let started = match format {
        LogFormat::Text => builder.finish().with(ours).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().with(ours).try_init(),
    };
    started.expect("the log is started once");
    log
}

impl Log {
    fn start(out: impl Write + Send + 'static) -> Self {
        let (jobs, queue) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lost);
        let run = move || write_lines(&queue, out, &counter);
        plane::spawn("log".to_owned(), run).expect("the system gives a thread to the log");
        Self { jobs, lost }
    }

    /// Waits until all lines so far are written, but no longer than a second.
    pub fn wait_until_written(&self) {
        let (done, wait) = sync_channel(1);
        if self.jobs.try_send(Job::Flush(done)).is_ok() {
            // Not written in time: standard error takes nothing, and the process must end all the same.
            let _ = wait.recv_timeout(FLUSH_WAIT_MAX);
        }
    }

    /// From now on a panic of any thread is logged and aborts the process.
    ///
    /// Without its thread a shard would take connections and never answer. What it had acknowledged is durable,
    /// so to end and be started again is safe.
    pub fn end_process_on_panic(&self) {
        let log = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            report_panic(panic);
            log.wait_until_written();
            std::process::abort();
        }));
    }
}

/// One event is one `write`. It never fails and never waits.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.jobs.try_send(Job::Write(line.to_owned())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_lines(jobs: &Receiver<Job>, mut out: impl Write, lost: &AtomicU64) {
    for job in jobs {
        match job {
            Job::Write(line) => {
                let _ = out.write_all(&line);
                let count = lost.swap(0, Relaxed);
                if count > 0 {
                    tracing::warn!(count, "lines of this log were lost: it was not taken in time");
                }
            }
            Job::Flush(done) => {
                let _ = out.flush();
                let _ = done.send(());
            }
        }
    }
}

fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("without a message");
    let trace = Backtrace::capture();
    let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
    tracing::error!(
        thread = name,
        place,
        panic = message,
        backtrace = trace,
        "a thread panicked, which is a defect of the program: the process ends"
    );
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_before_a_flush_ends() {
        let (mut reader, out) = io::pipe().unwrap();
        let mut log = Log::start(out);
        log.write_all(b"one\n").unwrap();
        log.write_all(b"two\n").unwrap();
        log.wait_until_written();
        let mut read = [0; 8];
        io::Read::read_exact(&mut reader, &mut read).unwrap();
        assert_eq!(&read, b"one\ntwo\n");
    }

    #[test]
    fn lines_beyond_the_queue_are_lost_and_counted() {
        let (_reader, mut out) = io::pipe().unwrap();
        out.write_all(&[b'\n'; 64 << 10]).unwrap();
        let mut log = Log::start(out);
        for _ in 0..LINES_MAX + 10 {
            log.write_all(b"line\n").unwrap();
        }
        // The thread has at most one of them in its hands.
        assert!((9..=10).contains(&log.lost.load(Relaxed)));
    }
}
