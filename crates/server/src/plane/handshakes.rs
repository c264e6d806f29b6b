//! Connections whose TLS handshake is not done: a state of their own, before there is a session of them.
//!
//! # Why
//! A full handshake costs as much as ten requests, and anybody may ask for one. So they are bounded in number, in time
//! and in steps per turn, and requests keep most of the loop.
//!
//! # Invariants
//! - A place that is ready is in the queue once.
//! - The count of all shards is what their places hold together.

use crate::tls::{Handshake, Step, Tls, TlsStream};
use mio::{Interest, Registry, Token, net::TcpStream};
use model::{Monotonic, Timestamp};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Steps that one turn takes: 0.3 to 0.4 ms with keys of elliptic curves.
const STEPS_PER_TURN_MAX: usize = 4;

/// Where the tokens of places begin, behind those of all connections.
const TOKENS: usize = 1 << 40;

/// A client that has said nothing for so long gives its place to another one when all are taken.
const SILENT_MS_MAX: u64 = 1_000;

/// The same for one that has begun and does not continue: several round trips of a slow network.
const SLOW_MS_MAX: u64 = 3_000;

/// What one shard has under way.
#[derive(Debug)]
pub(super) struct Handshakes {
    places: Vec<Option<Place>>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    all: Arc<AtomicUsize>,
    limits: Limits,
    pub(super) counts: HandshakeCounts,
}

/// How many may be under way over all shards, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) count_max: usize,
    pub(super) timeout_ms: u64,
}

/// Handshakes that have ended, by how.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HandshakeCounts {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) timed_out: u64,
    pub(super) evicted: u64,
    pub(super) plain: u64,
}

#[derive(Debug)]
struct Place {
    socket: TcpStream,
    handshake: Handshake,
    address: SocketAddr,
    since: Monotonic,
    is_ready: bool,
}

/// A connection whose handshake is done.
pub(super) struct Arrived {
    pub(super) socket: TcpStream,
    pub(super) stream: TlsStream,
    pub(super) address: SocketAddr,
}

impl Handshakes {
    pub(super) fn new(all: Arc<AtomicUsize>, limits: Limits) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            all,
            limits,
            counts: HandshakeCounts::default(),
        }
    }

    /// The place that a token names.
    pub(super) fn place_of(token: Token) -> Option<usize> {
        (TOKENS..2 * TOKENS).contains(&token.0).then(|| token.0 - TOKENS)
    }

    /// Whether another one may begin. If not, a client that keeps silent or dawdles may lose its place.
    pub(super) fn has_room(&mut self, registry: &Registry, now: Monotonic) -> bool {
        self.all.load(Relaxed) < self.limits.count_max || self.evict(registry, now)
    }

    /// Begins one.
    ///
    /// # Errors
    /// If the readiness interface refuses the socket.
    pub(super) fn begin(
        &mut self,
        registry: &Registry,
        tls: &Tls,
        (mut socket, address): (TcpStream, SocketAddr),
        now: Monotonic,
    ) -> io::Result<()> {
        let Some(handshake) = Handshake::new(tls) else { return Ok(()) };
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = registry.register(&mut socket, Token(TOKENS + at), interest) {
            self.free.push(at);
            return Err(error);
        }
        self.all.fetch_add(1, Relaxed);
        self.places[at] = Some(Place { socket, handshake, address, since: now, is_ready: false });
        Ok(())
    }

    /// A client may have sent something, or takes bytes again.
    pub(super) fn note_ready(&mut self, at: usize) {
        if let Some(Some(place)) = self.places.get_mut(at)
            && !std::mem::replace(&mut place.is_ready, true)
        {
            self.ready.push_back(at);
        }
    }

    /// Whether there are steps for the next turn.
    pub(super) fn is_behind(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes steps, as many as a turn has room for, and gives those that are done to `arrived`.
    pub(super) fn run(
        &mut self,
        registry: &Registry,
        buffer: &mut [u8],
        now: Timestamp,
        arrived: &mut Vec<Arrived>,
    ) {
        for _ in 0..STEPS_PER_TURN_MAX {
            let Some(at) = self.ready.pop_front() else { return };
            let Some(place) = self.places[at].as_mut() else { continue };
            place.is_ready = false;
            match place.handshake.step(&mut place.socket, buffer) {
                Step::Pending => {}
                Step::Again => self.note_ready(at),
                Step::Done => {
                    self.counts.done += 1;
                    let Some(place) = self.take(at, registry) else { continue };
                    let Place { socket, handshake, address, .. } = place;
                    arrived.push(Arrived { socket, stream: handshake.into_stream(), address });
                }
                Step::Plain => {
                    self.counts.plain += 1;
                    if let Some(mut place) = self.take(at, registry) {
                        // Read on and thrown away by the kernel; most clients show what came before the reset.
                        let _ = place.socket.write(&session::plain_on_tls(now));
                    }
                }
                Step::Failed => {
                    self.counts.failed += 1;
                    self.take(at, registry);
                }
            }
        }
    }

    /// Ends those that take too long.
    pub(super) fn end_late(&mut self, registry: &Registry, now: Monotonic) {
        for at in 0..self.places.len() {
            let is_late = |place: &Place| now.ms_since(place.since) >= self.limits.timeout_ms;
            if self.places[at].as_ref().is_some_and(is_late) {
                self.counts.timed_out += 1;
                self.take(at, registry);
            }
        }
    }

    /// Ends all.
    pub(super) fn end_all(&mut self, registry: &Registry) {
        (0..self.places.len()).for_each(|at| drop(self.take(at, registry)));
    }

    /// How many are under way here.
    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Ends the oldest of those that take too long while others wait; whether there was one.
    fn evict(&mut self, registry: &Registry, now: Monotonic) -> bool {
        let slow = self.places.iter().enumerate().filter_map(|(at, place)| {
            let place = place.as_ref()?;
            let least_ms = if place.handshake.is_silent() { SILENT_MS_MAX } else { SLOW_MS_MAX };
            (now.ms_since(place.since) >= least_ms).then_some((place.since, at))
        });
        let Some((_, at)) = slow.min() else { return false };
        self.counts.evicted += 1;
        self.take(at, registry).is_some()
    }

    fn take(&mut self, at: usize, registry: &Registry) -> Option<Place> {
        let mut place = self.places[at].take()?;
        if place.is_ready {
            self.ready.retain(|other| *other != at);
        }
        self.free.push(at);
        self.all.fetch_sub(1, Relaxed);
        let _ = registry.deregister(&mut place.socket);
        Some(place)
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.count(), Relaxed);
    }
}
