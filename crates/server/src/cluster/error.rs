//! Why a server is no node of a cluster, in words that say what to do.

use cluster::NodeNumber;
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
            _ => None,
        }
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::OtherDirectory => f.write_str(
                "CLUSTER is of another data directory; remove the file that was copied in, or choose an empty directory",
            ),
            Self::NotJoined { cluster } => write!(
                f,
                "the data directory was made for the cluster {cluster:016x} and has never become a member; choose an \
                 empty one"
            ),
            Self::NeedsPeerListen { number, members } => write!(
                f,
                "the data directory is that of node {number} of {members}, and alone it would serve an old state; say \
                 where the others reach it (setting peer_listen)"
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
