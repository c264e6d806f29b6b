//! Why a node does not talk to another.

use super::hello::{HELLO_BYTES, PROOF_BYTES, VERSION_MAX, VERSION_MIN};
use crate::identity::NodeNumber;
use std::fmt;
use std::ops::Range;

/// Why a peer was refused. Each says what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is no node, or not known to be one.
    NotANode,
    /// No version is spoken by both.
    Version {
        /// The oldest and newest version of the refused.
        theirs: (u16, u16),
    },
    /// It belongs to another cluster.
    OtherCluster {
        /// Its cluster.
        theirs: u64,
        /// The cluster of the node that refuses.
        ours: u64,
    },
    /// Its groups are other ones.
    GroupCount {
        /// Its number of groups.
        theirs: u16,
        /// The cluster's.
        ours: u16,
    },
    /// It does not know the cluster's secret.
    Secret,
    /// It is a member, and not the one that was dialled.
    OtherNode {
        /// Its number.
        found: NodeNumber,
        /// The number of the one that was dialled.
        wanted: NodeNumber,
    },
    /// It was removed from the cluster.
    Removed {
        /// Its number.
        number: NodeNumber,
    },
    /// Its number belongs to another data directory.
    OtherStore {
        /// The number.
        number: NodeNumber,
    },
    /// Its disk is an older copy of itself: what it promised since is gone.
    OldDisk {
        /// How often it was opened.
        theirs: u64,
        /// How often the cluster has seen it opened.
        known: u64,
    },
    /// It is the node that it talks to.
    Itself,
    /// Its number is not known here yet: it may have joined a moment ago.
    Unknown {
        /// The number.
        number: NodeNumber,
    },
}

/// What a refusal begins with on the wire, where a hello or a welcome has something else.
pub(super) const MAGIC: &[u8; 4] = b"ThNo";

/// Bytes of a refusal on the wire: as many as a hello has.
pub(super) const BYTES: usize = HELLO_BYTES;

/// Where the proof is that the refused was removed: it ends when it hears that, so only a node that knows the secret may say so.
pub(super) const PROOF_PLACE: Range<usize> = 24..24 + PROOF_BYTES;

const _: () = assert!(PROOF_PLACE.end <= BYTES);

impl Refusal {
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let (code, first, second): (u8, u64, u64) = match *self {
            Self::NotANode => (1, 0, 0),
            Self::Version { theirs } => (2, theirs.0.into(), theirs.1.into()),
            Self::OtherCluster { theirs, ours } => (3, theirs, ours),
            Self::GroupCount { theirs, ours } => (4, theirs.into(), ours.into()),
            Self::Secret => (5, 0, 0),
            Self::Removed { number } => (6, number.get().into(), 0),
            Self::OtherStore { number } => (7, number.get().into(), 0),
            Self::OldDisk { theirs, known } => (8, theirs, known),
            Self::Itself => (9, 0, 0),
            Self::OtherNode { found, wanted } => (10, found.get().into(), wanted.get().into()),
            Self::Unknown { number } => (11, number.get().into(), 0),
        };
        let mut out = [0; BYTES];
        out[..4].copy_from_slice(MAGIC);
        out[4] = code;
        out[8..16].copy_from_slice(&first.to_le_bytes());
        out[16..24].copy_from_slice(&second.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let long = |position: usize| {
            u64::from_le_bytes(bytes[position..position + 8].try_into().expect("eight bytes"))
        };
        let (first, second) = (long(8), long(16));
        let number = NodeNumber::new(first as u16);
        let refusal = match bytes[4] {
            1 => Self::NotANode,
            2 => Self::Version { theirs: (first as u16, second as u16) },
            3 => Self::OtherCluster { theirs: first, ours: second },
            4 => Self::GroupCount { theirs: first as u16, ours: second as u16 },
            5 => Self::Secret,
            6 => Self::Removed { number },
            7 => Self::OtherStore { number },
            8 => Self::OldDisk { theirs: first, known: second },
            9 => Self::Itself,
            10 => Self::OtherNode { found: number, wanted: NodeNumber::new(second as u16) },
            11 => Self::Unknown { number },
            _ => return None,
        };
        (bytes[..4] == *MAGIC).then_some(refusal)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANode => f.write_str("the other side is no node of a Thalweg cluster"),
            Self::Version { theirs: (min, max) } => write!(
                f,
                "the node speaks versions {min} to {max} and its peer others (this program: {VERSION_MIN} to \
                 {VERSION_MAX}); upgrade one version at a time"
            ),
            Self::OtherCluster { theirs, ours } => write!(
                f,
                "the node belongs to cluster {theirs:016x}, not to {ours:016x}; a node joins with an empty data \
                 directory"
            ),
            Self::GroupCount { theirs, ours } => write!(
                f,
                "the node has {theirs} groups and the cluster {ours}; a node joins with an empty data directory"
            ),
            Self::Secret => f.write_str(
                "the node does not know the cluster's secret; `thalweg cluster token` prints it on a member",
            ),
            Self::Removed { number } => write!(
                f,
                "node {number} was removed from the cluster; empty its data directory and join anew"
            ),
            Self::OtherStore { number } => write!(
                f,
                "node {number} is another data directory; numbers are never used again, so join with an empty one"
            ),
            Self::OldDisk { theirs, known } => write!(
                f,
                "this data directory is an old copy: it was opened {theirs} times, and the cluster has seen it \
                 opened {known} times; empty it and join in place of the node that was lost"
            ),
            Self::OtherNode { found, wanted } => write!(
                f,
                "node {found} answers at the address of node {wanted}; say where each is reached (setting advertise)"
            ),
            Self::Unknown { number } => {
                write!(f, "node {number} is not known there yet; it is dialled again")
            }
            Self::Itself => f.write_str("the node was told its own address as that of a peer"),
        }
    }
}

impl std::error::Error for Refusal {}
