//! What a session needs from the outside: bytes in and out of connections.
//!
//! The server has sockets behind it, the simulator short writes and stalls from a seed. A connection is named
//! by the id that [`crate::Sessions::open`] gave it.

use crate::slab::ConnId;
use access::Client;
use env::File;
use node::Failure;
use protocol::request::{Scheme, Site, Way};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The connections of one shard, as their session sees them.
pub trait Transport {
    /// Reads what has arrived into `buffer`.
    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Read;

    /// Writes `pieces`, in order, as far as the connection takes them. After a short write the driver gives
    /// [`crate::Input::Writable`] as soon as there is room again.
    fn write(&mut self, conn: ConnId, pieces: &[Piece<'_>]) -> Sent;

    /// Whether file ranges may be written; `false` where bytes are encrypted on their way.
    fn takes_files(&self, conn: ConnId) -> bool;

    /// Closes a connection, or its writing half.
    fn close(&mut self, conn: ConnId, how: Close);

    /// Whether bytes that were written still wait here for the client to take them.
    fn has_unsent(&self, conn: ConnId) -> bool;

    /// How long the present turn of the loop has taken, in nanoseconds. A session compares it with its limits
    /// and decides nothing else by it.
    fn turn_ns(&self) -> u64;
}

/// The other end of a connection, as far as its transport knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address; that of the nearest proxy, if there is one.
    pub address: IpAddr,
    /// Whether bytes are encrypted on their way.
    pub is_tls: bool,
    /// The names in its certificate, which was verified; empty without one.
    pub names: Arc<[String]>,
}

impl Peer {
    /// What the rules are asked about.
    pub(crate) fn client(&self) -> Client<'_> {
        Client { address: self.address, is_forwarded: false, names: &self.names }
    }

    /// How its requests come to the server.
    #[inline]
    pub(crate) fn way<'s>(&self, site: &'s Site) -> Way<'s> {
        let scheme = if self.is_tls { Scheme::Https } else { Scheme::Http };
        Way { scheme, address: self.address, site }
    }
}

impl Default for Peer {
    /// Somebody on this machine, in plain.
    fn default() -> Self {
        Self { address: Ipv4Addr::LOCALHOST.into(), is_tls: false, names: [].into() }
    }
}

/// What one read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, at least one. There may be more.
    Bytes(usize),
    /// So many bytes, at least one, and no more now. [`crate::Input::Readable`] follows with the next, or with the
    /// end.
    Last(usize),
    /// Nothing now; [`crate::Input::Readable`] follows.
    Nothing,
    /// The client sends no more.
    End,
    /// The connection is broken.
    Broken,
}

/// What one write sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes of all pieces together; less than they have means that there is no room now.
    Bytes(u64),
    /// The connection is broken.
    Broken,
}

/// Bytes to be sent.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// A range of a file. It is the last piece, and comes only where the transport takes files.
    File {
        /// The file.
        file: &'a dyn File,
        /// Where the range starts.
        position: u64,
        /// How long it is.
        bytes: u64,
    },
}

/// How a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Close {
    /// Nothing more is written; what the client still sends is read past.
    Writes,
    /// All of it. The id is not used again after this.
    Whole,
    /// All of it, in the middle of an answer whose head has promised more: its bytes cannot be read.
    Cut(Failure),
}

impl Piece<'_> {
    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }
}
