//! What proves that an entry is committed: the only voter's disk, or what [`crate::Replica`] hands out.

use log::{DurableEntry, Entry};
use model::{EntryIndex, Term, Timestamp};

/// Term of a group that has had only one voter.
const FIRST_TERM: Term = Term::new(1);

/// The only voter of a group: what is durable here is committed.
#[derive(Debug)]
pub struct Solo {
    term: Term,
    committed: EntryIndex,
}

impl Solo {
    /// The only voter of a group whose log is empty.
    #[must_use]
    pub fn first() -> Self {
        Self { term: FIRST_TERM, committed: EntryIndex::new(0) }
    }

    /// The term under which new entries are written.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The last committed entry.
    #[must_use]
    pub fn committed(&self) -> EntryIndex {
        self.committed
    }

    /// Learns that the group's log is durable here up to `upto`, and says what is committed now.
    ///
    /// # Panics
    /// If `upto` was durable before: a sync was counted twice, or came out of order.
    pub fn durable(&mut self, upto: EntryIndex) -> Commit {
        assert!(upto > self.committed, "entry {upto} becomes durable a second time");
        self.committed = upto;
        Commit { upto }
    }
}

/// Every entry of one group up to an index is committed. Only [`Solo`] and [`crate::Replica`] make one.
#[derive(Debug)]
#[must_use = "a commit that nobody applies has stalled its group"]
pub struct Commit {
    upto: EntryIndex,
}

impl Commit {
    /// What the consensus library says of a group with several voters.
    pub(crate) fn of_replica(upto: EntryIndex) -> Self {
        Self { upto }
    }

    /// The last committed entry.
    #[must_use]
    pub fn upto(&self) -> EntryIndex {
        self.upto
    }

    /// The proof for one entry of the group.
    ///
    /// # Panics
    /// If the entry is not committed.
    pub fn entry<E: LogEntry>(&self, entry: E) -> Committed<E> {
        let index = entry.index();
        assert!(index <= self.upto, "entry {index} is durable here, but not committed");
        Committed(entry)
    }
}

/// A committed entry. Only a [`Commit`] makes one.
#[derive(Debug)]
pub struct Committed<E>(E);

impl<E> Committed<E> {
    /// The entry.
    pub fn get(&self) -> &E {
        &self.0
    }
}

/// An entry that the log proves to be durable.
pub trait LogEntry {
    /// Its position in the group's log.
    fn index(&self) -> EntryIndex;

    /// Wall-clock time for `apply`.
    fn at(&self) -> Timestamp;
}

/// An entry that a sync has made durable.
impl LogEntry for DurableEntry {
    fn index(&self) -> EntryIndex {
        self.index
    }

    fn at(&self) -> Timestamp {
        self.at
    }
}

/// An entry that recovery has found on disk.
impl LogEntry for &Entry<&[u8]> {
    fn index(&self) -> EntryIndex {
        self.index
    }

    fn at(&self) -> Timestamp {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// An entry of a log.
    #[derive(Debug)]
    struct Logged(u64);

    impl LogEntry for Logged {
        fn index(&self) -> EntryIndex {
            EntryIndex::new(self.0)
        }

        fn at(&self) -> Timestamp {
            Timestamp::new(7)
        }
    }

    #[test]
    fn the_only_voter_commits_what_is_durable() {
        let mut role = Solo::first();
        let commit = role.durable(EntryIndex::new(2));
        for index in 1..=2 {
            assert_eq!(commit.entry(Logged(index)).get().index(), EntryIndex::new(index));
        }
        assert_eq!(role.committed(), EntryIndex::new(2));
    }

    #[test]
    #[should_panic(expected = "not committed")]
    fn what_is_beyond_the_commit_has_no_proof() {
        let commit = Solo::first().durable(EntryIndex::new(2));
        let _ = commit.entry(Logged(3));
    }

    #[test]
    #[should_panic(expected = "a second time")]
    fn nothing_becomes_durable_twice() {
        let mut role = Solo::first();
        let _ = role.durable(EntryIndex::new(2));
        let _ = role.durable(EntryIndex::new(2));
    }
}
