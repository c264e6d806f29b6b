//! What replicas of a group say to each other.
//!
//! These are our own values. The library's types exist only in `library`, and its codec is never used:
//! neither wire nor disk has a byte of it.

use crate::configuration::Configuration;
use crate::identity::ReplicaId;
use bytes::Bytes;
use model::{EntryIndex, Term};

/// One message of one replica to another of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMessage {
    /// The sender.
    pub from: ReplicaId,
    /// To whom. Another copy on the same node is somebody else.
    pub to: ReplicaId,
    /// The sender's term; for a pre-vote the term that it asks about.
    pub term: Term,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Asks for a vote, or before an election whether one would be given.
    Ask {
        /// It only asks beforehand: nothing is promised.
        is_pre: bool,
        /// The leader asked for this election, so a recent leader is no reason to refuse.
        is_transfer: bool,
        /// The sender's last entry.
        last: LogPosition,
        /// The last entry that it knows as committed.
        commit: LogPosition,
    },
    /// Answers [`Body::Ask`].
    Vote {
        /// As in the question.
        is_pre: bool,
        /// Whether the vote was given.
        is_granted: bool,
        /// The last entry that the voter knows as committed, if it refused; else index 0.
        commit: LogPosition,
    },
    /// Entries behind one that the receiver should have.
    Append {
        /// The entry before the first one.
        previous: LogPosition,
        /// The last committed entry.
        commit: EntryIndex,
        /// The entries.
        entries: Vec<SentEntry>,
    },
    /// The sender's log is that of the leader up to `index`, and durable.
    Appended {
        /// The last such entry.
        index: EntryIndex,
        /// The last entry that the sender knows as committed.
        commit: EntryIndex,
    },
    /// The sender lacks the entry before those that were sent.
    Rejected {
        /// The entry that it lacks.
        index: EntryIndex,
        /// Where its log may agree with the leader's.
        hint: LogPosition,
        /// The last entry that it knows as committed.
        commit: EntryIndex,
    },
    /// The sender has nothing, and takes nothing but a snapshot: what was on its node before was another copy's.
    Empty,
    /// The sender leads.
    Heartbeat {
        /// The last committed entry that the receiver has.
        commit: EntryIndex,
        /// The read that this confirms, if any: comes back in the answer.
        read: u64,
    },
    /// The sender leads, and more is committed. Nobody answers that.
    Committed {
        /// The last committed entry that the receiver has.
        commit: EntryIndex,
    },
    /// Answers [`Body::Heartbeat`].
    Alive {
        /// The last entry that the sender knows as committed.
        commit: EntryIndex,
        /// The read of the heartbeat.
        read: u64,
    },
    /// The receiver has the contents of this snapshot beside its log: it may take its place now.
    Snapshot(SnapshotPoint),
    /// The receiver shall ask for votes at once.
    Campaign,
}

/// An entry's place and term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    /// The index; 0 before the first entry.
    pub index: EntryIndex,
    /// The term; 0 before the first entry.
    pub term: Term,
}

/// A place in a group's log where a snapshot stands for all before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// The last entry that it covers.
    pub last: LogPosition,
    /// The group's configuration there.
    pub configuration: Configuration,
}

/// One entry of an [`Body::Append`].
///
/// A leader sends only where it is: its owner fetches the bytes, from the open batch or from the log. So
/// no payload passes through the library on the way out, and on the way in it passes as a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentEntry {
    /// Index and term.
    pub at: LogPosition,
    /// Whether the command is a change of the configuration.
    pub is_change: bool,
    /// Its bytes: their number at the sender, the bytes themselves at the receiver.
    pub bytes: EntryBytes,
}

/// The bytes of a [`SentEntry`]: header, command and data, as `docs/format/cluster.md` has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryBytes {
    /// Somebody must fetch them.
    Here(u32),
    /// They came with the message.
    Sent(Bytes),
}

impl EntryBytes {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Here(count) => *count as usize,
            Self::Sent(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LogPosition {
    /// The place of an entry.
    #[must_use]
    pub const fn new(index: u64, term: u64) -> Self {
        Self { index: EntryIndex::new(index), term: Term::new(term) }
    }
}
