//! `thalweg serve`: recovers, starts everything, waits for the signal to end, stops everything.

use crate::access::{self, AccessProblem};
use crate::admin::{self, Admin};
use crate::cluster::{self, ClusterError, Join, Joined};
use crate::descriptors;
use crate::journal::{Journal, JournalProblem};
use crate::metrics::NodeMetrics;
use crate::plane::{self, Ended, Plane, StartError};
use crate::preflight::{self, Refusal};
use crate::reload::{Ask, Asker, Reloads};
use crate::settings::Settings;
use crate::tls::TlsProblem;
use env::{Clock, Disk, RealClock, RealDisk, RealRandom};
use log::{OpenError, RecoveryReport};
use node::Opened;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How often the threads are looked at. Until it is noticed that one has ended, its clients wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How often files are looked at, among these looks: once in a second.
const LOOKS_PER_FILE_LOOK: u32 = 4;

/// Reloads that the admin server may have asked for and that have not begun.
const RELOADS_WAITING_MAX: usize = 4;

/// Why the server could not start, or ended.
#[derive(Debug)]
pub enum ServeError {
    /// The data directory cannot be used.
    Refused(Refusal),
    /// Files of TLS that are wrong, at least one.
    Tls(Vec<TlsProblem>),
    /// There are no rules for access, for at least one reason.
    Access(Vec<AccessProblem>),
    /// The access log or the audit log cannot be written to.
    Journal(JournalProblem),
    /// The admin server could not listen.
    Admin {
        /// The address of the setting.
        listen: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The data plane could not start.
    Start(StartError),
    /// The server cannot be a node of its cluster.
    Cluster(ClusterError),
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
            Self::Cluster(error) => error.of_system(),
            _ => None,
        }
    }

    fn write_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Tls(problems) => {
                let problems: Vec<String> = problems.iter().map(TlsProblem::to_string).collect();
                write!(f, "TLS: {}", problems.join("; "))
            }
            Self::Access(problems) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&problems.join("\n  "))
            }
            Self::Admin { listen, error } => {
                write!(f, "cannot listen on {listen} (setting admin_listen): {error}")
            }
            Self::Journal(problem) => write!(f, "{problem}"),
            Self::Start(error) => write!(f, "{error}"),
            Self::Cluster(error) => write!(f, "{error}"),
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

/// Serves until SIGTERM or SIGINT, until the node is removed from its cluster, or until a thread ends that should not.
///
/// # Errors
/// [`ServeError`] if the server could not start, or one of its threads ended by itself.
pub fn run_serve(settings: &Settings) -> Result<ExitCode, ServeError> {
    descriptors::make_room(settings.connections_max + settings.tls_handshakes_max);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shard_count = settings.shard_count(cores);
    preflight::check(&RealDisk, settings, shard_count).map_err(ServeError::Refused)?;
    let access::Loaded { access, files } = access::load(settings, None);
    let access = Arc::new(access.map_err(ServeError::Access)?);
    let metrics = NodeMetrics::new(shard_count, Arc::new(RealClock::new()));
    let journal = start_journal(settings, &metrics)?;
    let (asker, asks) = mpsc::channel(RELOADS_WAITING_MAX);
    let mut signals = Signals::new(asks).map_err(|error| ServeError::Signals { error })?;
    let admin = start_admin(settings, &metrics, asker)?;
    let access = || (Arc::clone(&access), files.clone());
    let begin = || Reloads::begin(settings, &metrics, access()).map_err(ServeError::Tls);
    // A wrong file is found before the data is read. A certificate of our own needs the data directory.
    let early = if settings.tls_self_signed { None } else { Some(begin()?) };
    plane::check_addresses(settings).map_err(ServeError::Start)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    if !join(settings, (&disk, shard_count), &mut signals)? {
        return Ok(ExitCode::SUCCESS);
    }
    let found = cluster::find(settings, &disk, &mut RealRandom).map_err(ServeError::Cluster)?;
    // A member has as many groups as its cluster.
    let groups = found.group_count().unwrap_or(settings.groups);
    let settings = &Settings { groups, ..settings.clone() };
    let (nodes, report) = recover(settings, (shard_count, found.copies(settings)), &metrics)?;
    let peers = cluster::begin(settings, (disk, found), &report, &mut RealRandom);
    let peers = peers.map_err(ServeError::Cluster)?;
    metrics.set_peers(peers.clone());
    let mut reloads = early.map_or_else(begin, Ok)?;
    let in_force = (reloads.in_force().clone(), journal.as_ref());
    let plane = Plane::start(settings, nodes, &metrics, in_force, peers);
    let mut plane = plane.map_err(ServeError::Start)?;
    metrics.set_recovered();
    for (address, is_tls) in plane.addresses() {
        let scheme = if *is_tls { "https" } else { "http" };
        tracing::info!(%address, url = format!("{scheme}://{address}"), shards = shard_count, "listening");
    }
    access::log(&reloads.in_force().access, settings);
    if let Some(ended) = signals.wait(&mut plane, &mut reloads, journal.as_ref())? {
        return Err(ServeError::Thread(ended));
    }
    tracing::info!("stopping");
    metrics.set_shutting_down();
    plane.stop().map_err(|error| ServeError::Loop { error })?;
    if let Some(journal) = journal {
        journal.wait_until_written();
    }
    if let Some(admin) = admin {
        admin.stop();
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Joins a cluster, if that is asked for. Whether the start continues: a signal may end it.
fn join(
    settings: &Settings,
    (disk, shard_count): (&Arc<dyn Disk>, u16),
    signals: &mut Signals,
) -> Result<bool, ServeError> {
    let begun = Join::begin(settings, &**disk, shard_count, &mut RealRandom);
    let Some(mut join) = begun.map_err(ServeError::Cluster)? else { return Ok(true) };
    loop {
        let joined = join.attempt(settings, disk, &mut RealRandom);
        if joined.map_err(ServeError::Cluster)? == Joined::Yes {
            return Ok(true);
        }
        for _ in 0..LOOKS_PER_FILE_LOOK {
            if matches!(signals.next(), Woken::Stop) {
                return Ok(false);
            }
        }
    }
}

fn start_journal(
    settings: &Settings,
    metrics: &Arc<NodeMetrics>,
) -> Result<Option<Journal>, ServeError> {
    let opened = Journal::open(settings, metrics).map_err(ServeError::Journal)?;
    let Some((journal, run)) = opened else { return Ok(None) };
    let spawned = plane::spawn("journal".to_owned(), run);
    spawned.map_err(|error| ServeError::Start(StartError::System(error)))?;
    Ok(Some(journal))
}

fn recover(
    settings: &Settings,
    (shard_count, copies): (u16, Option<node::Membership>),
    metrics: &NodeMetrics,
) -> Result<(Vec<node::ShardCore>, RecoveryReport), ServeError> {
    let clock = RealClock::new();
    let start = clock.now_monotonic();
    let Opened { shards: nodes, report, damages, stream_count } =
        plane::open(settings, (shard_count, copies.as_ref())).map_err(ServeError::Start)?;
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
    Ok((nodes, report))
}

fn start_admin(
    settings: &Settings,
    node: &Arc<NodeMetrics>,
    reload: Asker,
) -> Result<Option<Admin>, ServeError> {
    let Some(listen) = settings.admin_listen else { return Ok(None) };
    let is_node = settings.peer_listen.is_some();
    let admin = admin::start((listen, is_node), Arc::clone(node), reload)
        .map_err(|error| ServeError::Admin { listen, error })?;
    tracing::info!(address = %admin.address(), "admin server listens");
    Ok(Some(admin))
}

/// The signals that end the process or reload it, received from before anything was opened, and the admin server's asks.
struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    asks: mpsc::Receiver<Ask>,
}

/// What the main thread has woken for.
enum Woken {
    Stop,
    /// Somebody wants a reload, and may wait for its result.
    Reload(Option<Ask>),
    Look,
}

impl Signals {
    fn new(asks: mpsc::Receiver<Ask>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [terminate, interrupt, hangup] =
            runtime.block_on(async { Ok::<_, io::Error>(kinds.map(signal)) })?;
        let (terminate, interrupt, hangup) = (terminate?, interrupt?, hangup?);
        Ok(Self { runtime, terminate, interrupt, hangup, asks })
    }

    /// Waits for a signal to end (`None`), or until a thread has ended; reloads meanwhile.
    fn wait(
        &mut self,
        plane: &mut Plane,
        reloads: &mut Reloads,
        journal: Option<&Journal>,
    ) -> Result<Option<Ended>, ServeError> {
        let mut looks = 0_u32;
        loop {
            let ask = match self.next() {
                Woken::Stop => return Ok(None),
                Woken::Reload(ask) => ask,
                Woken::Look => {
                    if let Some(ended) = plane.find_ended() {
                        return Ok(Some(ended));
                    }
                    if plane.was_removed() {
                        tracing::error!(
                            "this node was removed from its cluster, so it ends; its data is not needed"
                        );
                        return Ok(None);
                    }
                    looks = looks.wrapping_add(1);
                    if !looks.is_multiple_of(LOOKS_PER_FILE_LOOK) || !reloads.look() {
                        continue;
                    }
                    None
                }
            };
            let reloaded = reloads.reload();
            if let Some(journal) = journal {
                journal.reopen();
                journal.note("reload", reloaded.as_ref().err().map(String::as_str));
            }
            match reloaded {
                Ok(in_force) => {
                    let put = plane.put_in_force(&in_force, ask);
                    put.map_err(|error| ServeError::Loop { error })?;
                    tracing::info!("a reload was done: what the files say now is in force");
                }
                // The caller may have gone.
                Err(why) => _ = ask.map(|ask| ask.send(Err(why))),
            }
        }
    }

    fn next(&mut self) -> Woken {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => Woken::Stop,
                _ = self.interrupt.recv() => Woken::Stop,
                _ = self.hangup.recv() => Woken::Reload(None),
                Some(ask) = self.asks.recv() => Woken::Reload(Some(ask)),
                () = tokio::time::sleep(LOOK_INTERVAL) => Woken::Look,
            }
        })
    }
}
