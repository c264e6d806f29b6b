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
//! No IO. [`Dialler::new`] gives the first bytes to send. Both sides are driven with all bytes that have
//! arrived: [`Dialler::handle`] and [`Acceptor::handle`] say how many were used, what to send, and what came of it.
//!
//! # Format
//! `docs/format/cluster.md`.

mod acceptor;
mod dialler;
mod hello;
mod refusal;
#[cfg(test)]
mod tests;

pub use acceptor::Acceptor;
pub use dialler::Dialler;
pub use hello::{Class, HELLO_BYTES, Hello, Secret, VERSION_MAX, VERSION_MIN};
pub use refusal::Refusal;

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
