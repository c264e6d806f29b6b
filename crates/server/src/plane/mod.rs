//! The data plane: one event loop per shard, each with its own connections, groups and WAL.
//!
//! # Why our own loop
//! Every request must be parsed, routed, copied into a batch and answered with as few wakes and
//! copies as can be; see `docs/adr/0001-event-loop.md`. The loop is visibly dumb: connections are decided in
//! `session`, streams in `node`, and both are tested without a socket.
//!
//! # Code map
//! - [`shard`]: the loop; [`driver`]: one loop without threads.
//! - [`sockets`]: what its session reads and writes; [`listen`]: sockets for one address.
//! - [`doors`]: what is accepted from them; [`handshakes`]: TLS before there is a session.
//! - [`links`]: sockets of other nodes; [`membership`] and [`asks`]: changes of the cluster.
//! - [`batch_delay`] and [`sync_place`]: when and where commits run;
//!   [`yields`]: when a cluster's loop lets others run; [`back_off`]: for how long what was slow is left alone.
//! - [`mailbox`]: messages between loops; [`workers`]: threads that may block.
//! - [`report`]: what a shard shows to the metrics and the log.

#![expect(
    clippy::disallowed_methods,
    reason = "the server's threads are started here and nowhere else"
)]

mod asks;
mod back_off;
mod batch_delay;
mod commit_hold;
mod doors;
mod driver;
mod handshakes;
mod links;
mod listen;
mod mailbox;
mod membership;
mod report;
mod shard;
mod sockets;
mod sync_place;
mod turn_length;
mod workers;
mod yields;

pub use driver::Driver;

use crate::{
    cluster::Peers,
    journal::Journal,
    metrics::NodeMetrics,
    reload::{Ask, InForce},
    settings::Settings,
};
use asks::Asker;
use doors::Listener;
use env::{Clock, Random, RealDisk, RealRandom};
use log::{LogOptions, OpenError, WorkJob};
use mailbox::{Mail, Mailbox, Taken};
use mio::net::TcpListener;
use model::ShardId;
use node::{Opened, ShardCore, TransferJob};
use shard::{Shard, ShardParts, Shared, WAKE};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use stream::{Keep, Retention};
use workers::Workers;
pub(crate) use workers::spawn;

/// The part of the memory for recent bytes that is for what many clients read of older ones.
const READ_CACHE_PART: u64 = 12;

/// Why the data plane could not start.
#[derive(Debug)]
pub enum StartError {
    /// The data directory was not opened.
    Open(OpenError),
    /// Two settings do not fit each other.
    Settings(String),
    /// The address cannot be listened on.
    Listen {
        /// Key of the setting.
        setting: &'static str,
        /// The address of the setting.
        listen: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// A thread or a readiness interface was refused.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "cannot open the data directory: {error}"),
            Self::Settings(what) => f.write_str(what),
            Self::Listen { setting, listen, error } => {
                write!(f, "cannot listen on {listen} (setting {setting}): {error}")
            }
            Self::System(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// How often the names of nodes are looked up that have no link, and `CLUSTER` is written if it has changed.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The peers of a node and what each shard listens on for them, and the thread that looks after them.
type PeersOfShards = (Vec<Option<(Arc<Peers>, TcpListener)>>, Option<JoinHandle<()>>);

/// Addresses, and whether TLS is spoken there.
type Addresses = Vec<(SocketAddr, bool)>;

/// A running data plane.
#[derive(Debug)]
pub struct Plane {
    addresses: Addresses,
    mailboxes: Vec<Arc<Mailbox>>,
    /// If it is a node of a cluster.
    node: Option<Arc<Peers>>,
    loops: Vec<JoinHandle<io::Result<()>>>,
    workers: Vec<JoinHandle<()>>,
}

/// A thread that ended although it was not told to.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub thread: String,
    /// Why, if it said so.
    pub error: Option<io::Error>,
}

/// Looks whether the addresses of `settings` are free, before anything is opened or made.
///
/// # Errors
/// [`StartError::Listen`] if somebody else listens there.
pub fn check_addresses(settings: &Settings) -> Result<(), StartError> {
    let streams = settings.listen.iter().map(|listen| ("listen", listen.address));
    let peers = settings.peer_listen.map(|address| ("peer_listen", address));
    for (setting, listen) in streams.chain(peers) {
        listen::check(listen).map_err(|error| StartError::Listen { setting, listen, error })?;
    }
    Ok(())
}

/// Opens the data directory of `settings`, whose groups may have copies on other nodes. Damage is reported, not refused.
///
/// # Errors
/// [`StartError`] if the directory cannot be used, or the settings do not fit each other.
pub fn open(
    settings: &Settings,
    (shard_count, copies): (u16, Option<&node::Membership>),
) -> Result<Opened, StartError> {
    let options = log_options(settings)?;
    let (disk, dir) = (Arc::new(RealDisk), &settings.data_dir);
    let opened = match copies {
        None => node::open(disk, &mut RealRandom, dir, options, shard_count),
        Some(copies) => {
            node::open_member((disk, &mut RealRandom), dir, (options, shard_count), copies)
        }
    };
    let mut opened = opened.map_err(StartError::Open)?;
    for shard in &mut opened.shards {
        shard.set_producers_max(settings.producers_per_stream_max);
        shard.set_clock_jump_ms_max(settings.clock_jump_ms_max);
        shard.set_retention(retention(settings));
    }
    Ok(opened)
}

/// What streams keep that do not say so themselves.
fn retention(settings: &Settings) -> Retention {
    let keep = |amount: u64| if amount == 0 { Keep::All } else { Keep::AtLeast(amount) };
    Retention {
        age_seconds: keep(settings.retention_age_seconds),
        bytes: keep(settings.retention_bytes),
        records: keep(settings.retention_records),
    }
}

fn log_options(settings: &Settings) -> Result<LogOptions, StartError> {
    let Settings { segment_bytes, wal_bytes_max, .. } = *settings;
    if !segment_bytes.is_multiple_of(4096) || segment_bytes > 1 << 31 {
        return Err(StartError::Settings(format!(
            "segment_bytes is {segment_bytes}; it must be a multiple of 4096, at most 2 GiB"
        )));
    }
    if wal_bytes_max < 4 * segment_bytes {
        return Err(StartError::Settings(format!(
            "wal_bytes_max is {wal_bytes_max}; it must hold four segments of {segment_bytes} bytes"
        )));
    }
    let read_cache_bytes_max = settings.recent_bytes_max / READ_CACHE_PART;
    Ok(LogOptions {
        segment_bytes,
        wal_bytes_max,
        seal_bytes: settings.seal_bytes,
        chunk_bytes_max: settings.chunk_bytes_max,
        recent_bytes_max: settings.recent_bytes_max - read_cache_bytes_max,
        read_cache_bytes_max,
        chunk_pages_bytes_max: settings.chunk_pages_bytes_max,
        chunk_files_max: settings.chunk_files_max,
        group_count: settings.groups,
        ..LogOptions::default()
    })
}

impl Plane {
    /// Starts one loop per shard.
    ///
    /// # Errors
    /// [`StartError`] if the address or the threads cannot be had.
    pub fn start(
        settings: &Settings,
        nodes: Vec<ShardCore>,
        metrics: &NodeMetrics,
        (in_force, journal): (InForce, Option<&Journal>),
        peers: Option<Arc<Peers>>,
    ) -> Result<Self, StartError> {
        let journal = journal.cloned();
        let (listeners, addresses) = listen_at(settings, nodes.len())?;
        let mut polls = Vec::new();
        let mut mailboxes = Vec::new();
        for _ in &nodes {
            let poll = mio::Poll::new()?;
            mailboxes.push(Mailbox::new(mio::Waker::new(poll.registry(), WAKE)?));
            polls.push(poll);
        }
        let node = peers.clone();
        let (peers, peers_thread) = listen_for_peers(settings, peers, &mailboxes)?;
        let clock = Arc::clone(metrics.clock());
        let shared = Shared::new(settings, clock, mailboxes.clone(), in_force);
        let work = |job: Box<WorkJob>| Mail::Worked(job.run());
        let (segments, segments_thread) = workers::start_work("segments", mailboxes.clone(), work)?;
        let (copies, copies_thread) = workers::start_work("copies", mailboxes.clone(), work)?;
        let mut worker_threads = vec![segments_thread, copies_thread];
        let mut transfers = None;
        if peers.iter().any(Option::is_some) {
            let run = |job: Box<TransferJob>| Mail::Transferred(Box::new(job.run()));
            let (jobs, thread) = workers::start_work("snapshots", mailboxes.clone(), run)?;
            worker_threads.push(thread);
            transfers = Some(jobs);
        }
        worker_threads.extend(peers_thread);
        let mut loops = Vec::new();
        let of_shards = nodes.into_iter().zip(polls).zip(listeners).zip(peers);
        for (place, (((core, poll), listeners), peers)) in of_shards.enumerate() {
            let id = ShardId::new(u16::try_from(place).expect("shards are counted in u16"));
            let clock: Arc<dyn Clock> = Arc::clone(&shared.clock);
            let (syncs, syncs_thread) =
                workers::start_syncs(id, Arc::clone(&mailboxes[place]), clock)?;
            let (checks, checks_thread) = workers::start_checks(id, Arc::clone(&mailboxes[place]))?;
            let (reads, reads_thread) = workers::start_reads(id, Arc::clone(&mailboxes[place]))?;
            worker_threads.extend([syncs_thread, checks_thread, reads_thread]);
            let parts = ShardParts {
                core,
                poll,
                listeners,
                peers,
                shared: Arc::clone(&shared),
                metrics: Arc::clone(&metrics.shards()[place]),
                workers: Workers {
                    syncs,
                    checks,
                    reads,
                    segments: segments.clone(),
                    copies: copies.clone(),
                    transfers: transfers.clone(),
                    journal: journal.clone(),
                },
                seed: RealRandom.next_u64() | 1,
            };
            let shard = Shard::new(parts)?;
            let builder = std::thread::Builder::new().name(format!("shard-{id}"));
            loops.push(builder.spawn(move || shard.run())?);
        }
        Ok(Self { addresses, mailboxes, node, loops, workers: worker_threads })
    }

    /// Whether this is a node of a cluster that was removed from it.
    #[must_use]
    pub fn was_removed(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_removed())
    }

    /// A thread that has ended although nobody called [`Self::stop`], if there is one.
    pub fn find_ended(&mut self) -> Option<Ended> {
        let failed = join_ended(&mut self.loops)
            .map(|(thread, result)| Ended { thread, error: result.and_then(Result::err) });
        failed.or_else(|| {
            join_ended(&mut self.workers).map(|(thread, _)| Ended { thread, error: None })
        })
    }

    /// The addresses that are listened on, in the order of the setting, and whether TLS is spoken there.
    #[must_use]
    pub fn addresses(&self) -> &[(SocketAddr, bool)] {
        &self.addresses
    }

    /// Gives all loops what is in force from now on. `ask` is answered when all of them know it.
    ///
    /// # Errors
    /// If a loop cannot be woken.
    pub fn put_in_force(&self, in_force: &InForce, ask: Option<Ask>) -> io::Result<()> {
        let taken = ask.map(Taken::new);
        let put = |mailbox: &Arc<Mailbox>| {
            mailbox.put_one(Mail::InForce(Box::new(in_force.clone()), taken.clone()))
        };
        self.mailboxes.iter().try_for_each(put)
    }

    /// Stops all loops and waits until they have stopped.
    ///
    /// # Errors
    /// If a loop had failed.
    pub fn stop(self) -> io::Result<()> {
        for mailbox in &self.mailboxes {
            mailbox.put_one(Mail::Stop)?;
        }
        for handle in self.loops {
            handle.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        Ok(())
    }
}

fn listen_on(
    setting: &'static str,
    listen: SocketAddr,
    count: usize,
) -> Result<Vec<TcpListener>, StartError> {
    let sockets = listen::all(listen, count);
    sockets.map_err(|error| StartError::Listen { setting, listen, error })
}

/// What each shard needs for its links, if this is a node; and the thread that looks after all of them.
fn listen_for_peers(
    settings: &Settings,
    peers: Option<Arc<Peers>>,
    mailboxes: &[Arc<Mailbox>],
) -> Result<PeersOfShards, StartError> {
    let (Some(peers), Some(listen)) = (peers, settings.peer_listen) else {
        return Ok((mailboxes.iter().map(|_| None).collect(), None));
    };
    let sockets = listen_on("peer_listen", listen, mailboxes.len())?;
    tracing::info!(address = %listen, "waits for other nodes");
    let (looked_after, mailboxes) = (Arc::clone(&peers), mailboxes.to_vec());
    let thread = spawn("peers".to_owned(), move || {
        loop {
            looked_after.look();
            for ((shard, link), answer) in looked_after.take_answers() {
                let mail = Mail::JoinAnswer { link, answer: Box::new(answer) };
                if mailboxes[usize::from(shard.get())].put_one(mail).is_err() {
                    return;
                }
            }
            for (command, caller) in looked_after.take_asks() {
                let mail = Mail::Meta { command, asker: Asker::Caller(caller) };
                if mailboxes[0].put_one(mail).is_err() {
                    return;
                }
            }
            looked_after.wait(LOOK_INTERVAL);
        }
    })?;
    let of_shards = sockets.into_iter().map(|socket| Some((Arc::clone(&peers), socket)));
    Ok((of_shards.collect(), Some(thread)))
}

/// The listeners of each shard, and their addresses.
fn listen_at(
    settings: &Settings,
    shard_count: usize,
) -> Result<(Vec<Vec<Listener>>, Addresses), StartError> {
    let mut listeners: Vec<Vec<Listener>> = (0..shard_count).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for listen in &settings.listen {
        let is_tls = settings.speaks_tls(listen);
        let listen = listen.address;
        let sockets = listen_on("listen", listen, shard_count)?;
        addresses.push((sockets[0].local_addr()?, is_tls));
        for (of_shard, socket) in listeners.iter_mut().zip(sockets) {
            of_shard.push(Listener { socket, is_tls });
        }
    }
    Ok((listeners, addresses))
}

/// Takes the first of `threads` that has ended: its name and what it returned, unless it panicked.
fn join_ended<T>(threads: &mut Vec<JoinHandle<T>>) -> Option<(String, Option<T>)> {
    let place = threads.iter().position(JoinHandle::is_finished)?;
    let thread = threads.remove(place);
    let name = thread.thread().name().unwrap_or_default().to_owned();
    Some((name, thread.join().ok()))
}
