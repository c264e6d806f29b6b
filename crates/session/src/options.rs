//! The limits of a session, and what all sessions of a process are charged together.

use protocol::{
    request::{Pages, Site},
    response::TailAge,
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The settings that connections, exchanges and live readers keep to.
#[derive(Debug, Clone)]
pub struct Options {
    /// Largest body of one append or create.
    pub append_bytes_max: usize,
    /// Largest request line and headers together.
    pub head_bytes_max: usize,
    /// Most headers in one request.
    pub head_count_max: usize,
    /// Connections open at a time, over all shards.
    pub connections_max: usize,
    /// Bytes of request bodies held in memory at a time, over all shards.
    pub body_bytes_in_flight_max: usize,
    /// How long a head may take from its first to its last byte.
    pub head_timeout_ms: u64,
    /// Slowest body, averaged from its first byte.
    pub body_bytes_per_second_min: u64,
    /// How long a body may be slower.
    pub body_grace_ms: u64,
    /// How long a connection may be idle between two requests.
    pub idle_timeout_ms: u64,
    /// How long a client may take nothing of what waits for it.
    pub write_stall_timeout_ms: u64,
    /// How long a long-poll waits at the tail.
    pub long_poll_timeout_ms: u64,
    /// How often a live reader hears something.
    pub sse_heartbeat_ms: u64,
    /// How long an SSE answer lasts at most.
    pub sse_max_duration_ms: u64,
    /// How long what is under way may take when the server stops.
    pub shutdown_timeout_ms: u64,
    /// Whether text is compressed for clients that accept it.
    pub gzip: bool,
    /// Catch-up answers end at multiples of this offset, for JSON at the end of the append that holds it.
    pub answer_boundary_bytes: u64,
    /// Answers up to this length are given at once; longer ones are queued to move stored bytes.
    pub short_answer_bytes_max: u64,
    /// Bytes that may wait for a live reader; one that is further behind catches up by reading.
    pub live_queue_bytes_max: usize,
    /// Longest JSON that the loop checks itself.
    pub check_on_loop_bytes_max: usize,
    /// Answers of one kind, as those to long-polls that one append woke, that one turn gives.
    pub due_answers_per_turn_max: usize,
    /// Events of a reader that catches up end at multiples of this offset, likewise.
    pub event_boundary_bytes: u64,
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// Streams of HTTP/2 that one connection may have at a time.
    pub http2_streams_max: u32,
    /// Which names the server has and which web pages may change something.
    pub pages: Arc<Pages>,
    /// How long caches may keep an answer that ends at the tail.
    pub tail_age: TailAge,
    /// Which logs are kept of exchanges.
    pub logs: Logs,
    /// Under which URLs clients reach the server.
    pub site: Arc<Site>,
}

impl Default for Options {
    /// What a server has that is given no settings.
    fn default() -> Self {
        Self {
            append_bytes_max: 64 << 20,
            head_bytes_max: 32 << 10,
            head_count_max: 100,
            connections_max: 20_000,
            body_bytes_in_flight_max: 256 << 20,
            head_timeout_ms: 10_000,
            body_bytes_per_second_min: 1024,
            body_grace_ms: 5_000,
            idle_timeout_ms: 75_000,
            write_stall_timeout_ms: 30_000,
            long_poll_timeout_ms: 20_000,
            sse_heartbeat_ms: 15_000,
            sse_max_duration_ms: 60_000,
            shutdown_timeout_ms: 2_000,
            gzip: true,
            answer_boundary_bytes: model::limits::ANSWER_BOUNDARY_BYTES,
            short_answer_bytes_max: 16 << 10,
            live_queue_bytes_max: 64 << 10,
            check_on_loop_bytes_max: 128 << 10,
            due_answers_per_turn_max: 48,
            event_boundary_bytes: 64 << 10,
            http2: true,
            http2_streams_max: 256,
            pages: Arc::default(),
            tail_age: TailAge::RECOMMENDED,
            logs: Logs::default(),
            site: Arc::new(Site::UNKNOWN),
        }
    }
}

/// Which logs are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Logs {
    /// All exchanges.
    pub access: bool,
    /// What was denied, and what takes something away.
    pub audit: bool,
}

impl Logs {
    /// Whether there is any.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.access || self.audit
    }
}

/// What all sessions of one process are charged together.
#[derive(Debug, Default)]
pub struct Admission {
    connections: AtomicUsize,
    body_bytes: AtomicUsize,
}

impl Admission {
    /// One connection more; how many there are then.
    pub(crate) fn add_connection(&self) -> usize {
        self.connections.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn remove_connection(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// So many bytes of bodies more; how many there are then.
    pub(crate) fn charge(&self, bytes: usize) -> usize {
        self.body_bytes.fetch_add(bytes, Relaxed) + bytes
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.body_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Bytes of request bodies that have arrived and are not in a log yet.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_bytes.load(Relaxed)
    }
}
