//! What a shard starts from, and what all shards share.

use super::Shard;
use crate::plane::{
    asks::Asks,
    batch_delay::BatchDelay,
    commit_hold::CommitHold,
    doors::{Doors, Listener},
    handshakes::{Handshakes, Limits},
    links::Links,
    mailbox::Mailbox,
    sockets::Sockets,
    sync_place::SyncPlace,
    turn_length::TurnLength,
    workers::Workers,
    yields::Yields,
};
use crate::{cluster::Peers, metrics::ShardMetrics, reload::InForce, settings::Settings, tls::Tls};
use access::Access;
use env::Clock;
use mio::{Poll, net::TcpListener};
use node::{ShardCore, Stamp};
use session::{Admission, Options, Sessions, Site, TailAge};
use std::io;
use std::sync::{Arc, atomic::AtomicUsize};

/// What all shards of the process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub mailboxes: Vec<Arc<Mailbox>>,
    pub admission: Arc<Admission>,
    /// TLS handshakes in progress, over all shards.
    pub handshakes: Arc<AtomicUsize>,
    /// What connections with TLS are made with when the server starts.
    pub tls: Option<Tls>,
    /// What clients may do.
    pub access: Arc<Access>,
    /// Shards that have something left to do before they end.
    pub unfinished: AtomicUsize,
}

/// What a shard starts from.
pub(crate) struct ShardParts {
    pub core: ShardCore,
    pub poll: Poll,
    pub listeners: Vec<Listener>,
    /// The peers of a node, and where they dial it.
    pub peers: Option<(Arc<Peers>, TcpListener)>,
    pub shared: Arc<Shared>,
    pub metrics: Arc<ShardMetrics>,
    pub workers: Workers,
    pub seed: u64,
}

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        mailboxes: Vec<Arc<Mailbox>>,
        in_force: InForce,
    ) -> Arc<Self> {
        let (admission, handshakes) = Default::default();
        let (settings, InForce { tls, access }) = (settings.clone(), in_force);
        let unfinished = AtomicUsize::new(mailboxes.len());
        Arc::new(Self {
            settings,
            clock,
            mailboxes,
            admission,
            handshakes,
            tls,
            access,
            unfinished,
        })
    }
}

impl Shard {
    /// # Errors
    /// If the readiness interface cannot be shared with the sockets.
    pub(crate) fn new(parts: ShardParts) -> io::Result<Self> {
        let ShardParts { mut core, poll, listeners, peers, shared, metrics, workers, seed } = parts;
        let clock = Arc::clone(&shared.clock);
        let now = Stamp { wall: clock.now_wall(), monotonic: clock.now_monotonic() };
        core.begin_clock(now);
        core.begin_catching_up();
        metrics.catching_up.set(core.catching_up() as u64);
        let id = core.shard();
        let shard_count = u16::try_from(shared.mailboxes.len()).expect("shards are u16");
        let of_shard = (id.get(), shard_count);
        let links = |peers| Links::new(peers, poll.registry(), of_shard, now.monotonic);
        let links = peers.map(links).transpose()?.map(Box::new);
        let options = session_options(&shared.settings);
        let admission = Arc::clone(&shared.admission);
        let limits = Limits {
            count_max: shared.settings.tls_handshakes_max,
            timeout_ms: shared.settings.tls_handshake_timeout_ms,
        };
        let handshakes = Handshakes::new(Arc::clone(&shared.handshakes), limits);
        let doors = Doors::new(listeners, handshakes, shared.tls.clone(), now.monotonic);
        Ok(Self {
            id,
            core,
            metrics,
            sockets: Sockets::new(id, poll.registry(), clock)?,
            sessions: Sessions::new(id, options, admission, (now, seed))
                .with_access(Arc::clone(&shared.access)),
            poll,
            doors,
            links,
            asks: Asks::default(),
            now,
            outgoing: shared.mailboxes.iter().map(|_| Vec::new()).collect(),
            incoming: Vec::new(),
            workers,
            syncs_in_flight: 0,
            ends_by: None,
            has_finished: false,
            sync_place: SyncPlace::default(),
            yields: Yields::default(),
            batch_delay: BatchDelay::default(),
            commit_hold: CommitHold::default(),
            turn_length: TurnLength::default(),
            next_tick: now.monotonic,
            next_report: now.monotonic,
            shared,
        })
    }
}

/// The settings that a session keeps to.
fn session_options(settings: &Settings) -> Options {
    Options {
        append_bytes_max: settings.append_bytes_max,
        head_bytes_max: settings.head_bytes_max,
        head_count_max: settings.head_count_max,
        connections_max: settings.connections_max,
        body_bytes_in_flight_max: settings.body_bytes_in_flight_max,
        head_timeout_ms: settings.head_timeout_ms,
        body_bytes_per_second_min: settings.body_bytes_per_second_min,
        body_grace_ms: settings.body_grace_ms,
        idle_timeout_ms: settings.idle_timeout_ms,
        write_stall_timeout_ms: settings.write_stall_timeout_ms,
        long_poll_timeout_ms: settings.long_poll_timeout_ms,
        sse_heartbeat_ms: settings.sse_heartbeat_ms,
        sse_max_duration_ms: settings.sse_max_duration_ms,
        shutdown_timeout_ms: settings.shutdown_timeout_ms,
        gzip: settings.gzip,
        http2: settings.http2,
        http2_streams_max: settings.http2_streams_max,
        pages: Arc::new(crate::access::pages(settings)),
        logs: crate::journal::logs(settings),
        tail_age: TailAge::of_seconds(settings.tail_max_age_s),
        site: Arc::new(Site {
            public_url: settings.public_url.clone(),
            proxies: settings.trusted_proxies.clone(),
        }),
        ..Options::default()
    }
}
