//! Entries of a replicated group that are read again: to send them to a follower, or to apply them.

use log::{EntryError, EntryRead, StoredEntry};
use model::GroupId;

/// A read of entries that may wait for the disk.
#[derive(Debug)]
pub struct FetchJob {
    pub(crate) group: GroupId,
    /// What the shard knows it by.
    pub(crate) number: u64,
    pub(crate) read: EntryRead,
}

/// What came of a [`FetchJob`].
#[derive(Debug)]
pub struct FetchDone {
    /// The group.
    pub group: GroupId,
    /// What the shard knows the read by.
    pub number: u64,
    /// The entries, from the first one on; what was superseded meanwhile may be among them.
    pub found: Result<Vec<StoredEntry>, EntryError>,
}

impl FetchJob {
    /// Reads.
    #[must_use]
    pub fn run(self) -> FetchDone {
        FetchDone { group: self.group, number: self.number, found: self.read.run() }
    }
}
