//! What all links of a shard share: their readiness interface, their tokens, and how long they may take.

use crate::cluster::Peers;
use env::RealRandom;
use mio::{Registry, net::TcpStream};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Where the tokens of accepted links begin, behind those of handshakes; the listener has the one before.
pub(super) const ACCEPTED: usize = (1 << 41) + 1;

/// Where the tokens of dialled links begin.
pub(super) const DIALLED: usize = 1 << 42;

/// Accepted links whose peer has not proved who it is.
pub(super) const STRANGERS_MAX: usize = 32;

/// Bytes of one link that a turn reads at most.
pub(super) const TURN_BYTES: usize = 256 << 10;

/// What one read of a socket takes at most.
pub(super) const READ_BYTES: usize = 64 << 10;

/// How long two nodes may take to make sure of each other. A machine that cannot be reached is dialled again after that.
pub(super) const HELLO_TIMEOUT_MS: u64 = 1500;

/// How often a node says that it is there on a link that is idle.
pub(super) const KEEP_ALIVE_MS: u64 = 500;

/// How long a link may be silent, and how long a peer may take nothing of what is sent.
///
/// A system sends lost bytes again after pauses that grow by two. So a link that was cut for a while would carry
/// nothing for as long again; a new one does at once.
pub(super) const SILENCE_MS: u64 = 2000;

/// How long the links of a node that was removed stay up: it ends as after SIGTERM, and what it has asked for is answered.
pub(super) const REMOVED_MS: u64 = 15_000;

/// How long a link may be silent if its node has asked to join: it says nothing while the cluster decides, and waits for eight seconds.
pub(super) const JOIN_MS: u64 = 10_000;

/// What all links of a shard share.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) peers: Arc<Peers>,
    pub(super) registry: Registry,
    /// This shard, and how many there are.
    pub(super) shard: (u16, u16),
    pub(super) random: RealRandom,
    pub(super) buffer: Vec<u8>,
}

/// Sets what a socket between nodes needs. A link without it is slower, or is given up later, and works.
pub(super) fn prepare(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let silence = Duration::from_millis(SILENCE_MS);
    let _ = socket2::SockRef::from(socket).set_tcp_user_timeout(Some(silence));
}

/// Whether an error of a socket is none: it is not ready yet.
pub(super) fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}
