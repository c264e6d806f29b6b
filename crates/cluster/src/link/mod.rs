//! How two nodes make sure of each other before the first frame.
//!
//! # What
//! A link is dialled by its sender and used one way. The dialler says hello; the acceptor checks who that is,
//! says hello and proves that it knows the cluster's secret; the dialler proves it, too; the acceptor
//! welcomes it. Each proof is an HMAC-SHA-256 over both hellos, so an old proof is worth
//! nothing. A refusal says why, in words, before the link is closed.
//!
//! The bytes behind are not encrypted: a network that others can read or change needs TLS between the nodes.
//!
//! # Driving it
//! No IO. [`Outbound`] and [`Inbound`] are the two ends, from bytes to sections. Below them are the handshakes.
//! [`Dialler::new`] gives the first bytes to send. Both sides are driven with all bytes that have
//! arrived: [`Dialler::handle`] and [`Acceptor::handle`] say how many were used, what to send, and what came of it.
//!
//! # Format
//! `docs/format/cluster.md`.

mod acceptor;
mod dialler;
#[cfg(test)]
mod ends_tests;
mod hello;
mod inbound;
mod outbound;
mod refusal;
#[cfg(test)]
mod tests;

pub use acceptor::Acceptor;
pub use dialler::Dialler;
pub use hello::{Class, HELLO_BYTES, Hello, Secret, VERSION_MAX, VERSION_MIN};
pub use inbound::{Heard, Inbound};
pub use outbound::{OUTBOX_BYTES_MAX, Outbound};
pub use refusal::Refusal;

use crate::frame::FrameError;
use std::fmt;

/// Why a link is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// One of the two does not talk to the other.
    Refused(Refusal),
    /// What came is no frame.
    Frame(FrameError),
    /// The peer takes less than it is sent.
    Slow {
        /// Bytes that wait.
        bytes: usize,
    },
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Frame(error) => error.fmt(f),
            Self::Slow { bytes } => write!(f, "the node takes nothing, and {bytes} bytes wait"),
        }
    }
}

impl std::error::Error for LinkError {}

/// What came of the bytes that have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More bytes must arrive.
    More,
    /// The peer is who it says it is. Frames follow.
    Up(Box<Hello>),
    /// It was refused, or refuses: close the link when everything is sent.
    Refused(Refusal),
}

/// What to do after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Bytes that were used, from the front.
    pub used: usize,
    /// Bytes to send.
    pub send: Vec<u8>,
    /// What came of it.
    pub progress: Progress,
}

impl Step {
    fn more() -> Self {
        Self { used: 0, send: Vec::new(), progress: Progress::More }
    }

    fn refused(used: usize, send: Vec<u8>, refusal: Refusal) -> Self {
        Self { used, send, progress: Progress::Refused(refusal) }
    }
}
