//! Why a server is no node of a cluster, in words that say what to do.

use cluster::{JoinError, NodeNumber};
use log::OpenError;
use node::MembershipFileError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server cannot be a node, or why there is no token.
#[derive(Debug)]
pub enum ClusterError {
    /// `CLUSTER` cannot be believed.
    File(MembershipFileError),
    /// The data directory cannot be looked at, made, or counted.
    Open(OpenError),
    /// What was given to join with is no token. It is not shown: there may be a secret in it.
    Token,
    /// The node does not join.
    Join(JoinError),
    /// The cluster could not be asked.
    NotReached {
        /// Where.
        address: String,
        /// Why not, as far as it is known.
        why: String,
        /// For how long it was asked again.
        seconds: u64,
    },
    /// The token is of another cluster than the data directory.
    OtherCluster {
        /// That of the token.
        token: u64,
        /// That of the directory.
        cluster: u64,
    },
    /// `CLUSTER` is of another data directory.
    OtherDirectory,
    /// The data directory belongs to a cluster, and has never become a member.
    NotJoined {
        /// That cluster.
        cluster: u64,
    },
    /// The data directory has other members, and there is no address for them.
    NeedsPeerListen {
        /// Number of this node.
        number: NodeNumber,
        /// Members of its cluster.
        members: usize,
    },
    /// The data directory is that of a node that was removed.
    WasRemoved {
        /// Its number.
        number: NodeNumber,
    },
    /// Others cannot dial the address that is listened on.
    NeedsAdvertise {
        /// That address.
        listen: SocketAddr,
    },
    /// The write-ahead log was opened less often than peers have seen.
    OldLog {
        /// How often it was opened.
        opened: u64,
        /// How often it was opened when peers saw it.
        seen: u64,
    },
    /// The directory is no node's.
    NoNode {
        /// The directory.
        dir: PathBuf,
    },
    /// The secret cannot be used. The sentence begins with the file's name.
    Secret {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// `CLUSTER` cannot be written.
    Write {
        /// The directory.
        dir: PathBuf,
        /// What the disk said.
        error: io::Error,
    },
}

impl ClusterError {
    /// What the system said, if it said anything.
    #[must_use]
    pub fn of_system(&self) -> Option<&io::Error> {
        match self {
            Self::File(MembershipFileError::Io { error, .. }) | Self::Write { error, .. } => {
                Some(error)
            }
            Self::Open(OpenError::Io { error, .. }) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Open(error) => write!(f, "cannot open the data directory: {error}"),
            Self::Token => f.write_str(
                "the setting join is no token: `thalweg cluster token` prints one, thalweg1:CLUSTER:SECRET@HOST:PORT",
            ),
            Self::Join(error) => write!(f, "cannot join: {error}"),
            Self::NotReached { address, why, seconds } => write!(
                f,
                "cannot join: {address} was asked for {seconds} s, and the last answer was: {why}; start that node, or take a \
                 token of another one (setting join)"
            ),
            Self::OtherCluster { token, cluster } => write!(
                f,
                "the token is of the cluster {token:016x}, and the data directory is of the cluster {cluster:016x}; join with \
                 an empty one"
            ),
            Self::OtherDirectory => f.write_str(
                "CLUSTER is of another data directory; remove the file that was copied in, or choose an empty directory",
            ),
            Self::NotJoined { cluster } => write!(
                f,
                "the data directory was made for the cluster {cluster:016x} and has never become a member; start it with \
                 a token of that cluster (setting join), or choose an empty one"
            ),
            Self::NeedsPeerListen { number, members } => write!(
                f,
                "the data directory is that of node {number} of {members}, and alone it would serve an old state; say \
                 where the others reach it (setting peer_listen)"
            ),
            Self::WasRemoved { number } => write!(
                f,
                "the data directory is that of node {number}, which was removed from its cluster; join with an empty \
                 one and a token of the cluster (setting join)"
            ),
            Self::NeedsAdvertise { listen } => write!(
                f,
                "other nodes cannot dial {listen}; say by which name or address they reach this one (setting \
                 advertise), or listen on one address (setting peer_listen)"
            ),
            Self::OldLog { opened, seen } => write!(
                f,
                "the write-ahead log was opened {opened} times, and other nodes have seen it opened {seen} times: it is \
                 an old copy, and what it promised since is lost; empty the directory and join again"
            ),
            Self::NoNode { dir } => write!(
                f,
                "{} is not the data directory of a node; start it once with --peer-listen ADDRESS",
                dir.display()
            ),
            Self::Secret { file, what } => write!(f, "{} {what}", file.display()),
            Self::Write { dir, error } => {
                write!(f, "cannot write CLUSTER in {}: {error}", dir.display())
            }
        }
    }
}

impl std::error::Error for ClusterError {}
