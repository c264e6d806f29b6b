//! The log on standard error: text for people or one JSON object per line.
//!
//! An ERROR means that a person must look; a request that fails by its own fault is no log line.

use crate::settings::{LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;

/// Sends all events of the process to standard error.
///
/// # Panics
/// If the process logs already: there is one log, started once, in `cli`.
pub fn start(format: LogFormat, level: LogLevel) {
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(filter(level))
        .with_target(false);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.expect("the log is started once");
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
