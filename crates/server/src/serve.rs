//! `thalweg serve`: recovers, starts everything, waits for the signal to end, stops everything.

use crate::admin::{self, Admin};
use crate::descriptors;
use crate::metrics::NodeMetrics;
use crate::plane::{self, Ended, Plane, StartError};
use crate::preflight::{self, Refusal};
use crate::settings::Settings;
use env::{Clock, RealClock, RealDisk};
use log::OpenError;
use node::Opened;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often the threads are looked at. Until it is noticed that one has ended, its clients wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Why the server could not start, or ended.
#[derive(Debug)]
pub enum ServeError {
    /// The data directory cannot be used.
    Refused(Refusal),
    /// The admin server could not listen.
    Admin {
        /// The address of the setting.
        listen: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The data plane could not start.
    Start(StartError),
    /// The signals that end the process could not be received.
    Signals {
        /// What the system said.
        error: io::Error,
    },
    /// An event loop failed while the server stopped.
    Loop {
        /// What the system said.
        error: io::Error,
    },
    /// A thread ended by itself.
    Thread(Ended),
}

impl ServeError {
    /// What the system said, if it said anything.
    fn of_system(&self) -> Option<&io::Error> {
        match self {
            Self::Admin { error, .. } | Self::Signals { error } | Self::Loop { error } => {
                Some(error)
            }
            Self::Start(
                StartError::System(error)
                | StartError::Listen { error, .. }
                | StartError::Open(OpenError::Io { error, .. }),
            ) => Some(error),
            _ => None,
        }
    }

    fn write_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Admin { listen, error } => {
                write!(f, "cannot listen on {listen} (setting admin_listen): {error}")
            }
            Self::Start(error) => write!(f, "{error}"),
            Self::Signals { error } => write!(f, "cannot receive signals: {error}"),
            Self::Loop { error } => write!(f, "an event loop failed: {error}"),
            Self::Thread(Ended { thread, error: Some(error) }) => {
                write!(f, "the thread {thread} failed, so the server ends: {error}")
            }
            Self::Thread(Ended { thread, error: None }) => {
                write!(f, "the thread {thread} ended by itself, so the server ends")
            }
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_cause(f)?;
        match self.of_system().and_then(descriptors::advice) {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ServeError {}

/// Serves until SIGTERM or SIGINT, or until a thread ends that should not.
///
/// # Errors
/// [`ServeError`] if the server could not start, or one of its threads ended by itself.
pub fn run_serve(settings: &Settings) -> Result<ExitCode, ServeError> {
    descriptors::make_room(settings.connections_max);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shard_count = settings.shard_count(cores);
    preflight::check(&RealDisk, settings, shard_count).map_err(ServeError::Refused)?;
    let metrics = NodeMetrics::new(shard_count, Arc::new(RealClock::new()));
    let signals = Signals::new().map_err(|error| ServeError::Signals { error })?;
    let admin = start_admin(settings, &metrics)?;
    let nodes = recover(settings, shard_count, &metrics)?;
    let mut plane = Plane::start(settings, nodes, &metrics).map_err(ServeError::Start)?;
    metrics.set_recovered();
    tracing::info!(address = %plane.address(), shards = shard_count, "listening");
    if let Some(ended) = signals.wait_or_find(|| plane.find_ended()) {
        return Err(ServeError::Thread(ended));
    }
    tracing::info!("stopping");
    metrics.set_shutting_down();
    plane.stop().map_err(|error| ServeError::Loop { error })?;
    if let Some(admin) = admin {
        admin.stop();
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn recover(
    settings: &Settings,
    shard_count: u16,
    metrics: &NodeMetrics,
) -> Result<Vec<node::ShardCore>, ServeError> {
    let clock = RealClock::new();
    let start = clock.now_monotonic();
    let Opened { shards: nodes, report, damages, stream_count } =
        plane::recover(settings, shard_count).map_err(ServeError::Start)?;
    for damage in &damages {
        metrics.shards()[0].note_damage(damage.kind);
        tracing::error!(%damage, "stored data is damaged; the rest was kept");
    }
    for torn in &report.torn_tails {
        let file = torn.file.display();
        tracing::info!(%file, position = torn.position, "dropped a torn batch, which was never acknowledged");
    }
    tracing::info!(
        data_dir = %settings.data_dir.display(),
        created = report.created,
        streams = stream_count,
        checkpoints = report.checkpoints_restored,
        entries_replayed = report.entries_replayed,
        wal_bytes_read = report.wal_bytes_read,
        damages = damages.len(),
        took_ms = clock.now_monotonic().ms_since(start),
        "recovered"
    );
    Ok(nodes)
}

fn start_admin(settings: &Settings, node: &Arc<NodeMetrics>) -> Result<Option<Admin>, ServeError> {
    let Some(listen) = settings.admin_listen else { return Ok(None) };
    let admin = admin::start(listen, Arc::clone(node))
        .map_err(|error| ServeError::Admin { listen, error })?;
    tracing::info!(address = %admin.address(), "admin server listens");
    Ok(Some(admin))
}

/// The signals that end the process, received from before anything was opened.
struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (terminate, interrupt) = runtime.block_on(async {
            let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            Ok::<_, io::Error>(signals)
        })?;
        Ok(Self { runtime, terminate, interrupt })
    }

    /// Waits for a signal (`None`) or until `find` finds something.
    fn wait_or_find<T>(mut self, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        self.runtime.block_on(async {
            let mut looks = tokio::time::interval(LOOK_INTERVAL);
            loop {
                tokio::select! {
                    _ = self.terminate.recv() => return None,
                    _ = self.interrupt.recv() => return None,
                    _ = looks.tick() => {}
                }
                if let Some(found) = find() {
                    return Some(found);
                }
            }
        })
    }
}
