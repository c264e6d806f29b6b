//! What waits for a batch to become durable.

use crate::message::GroupMessage;

/// One of the library's readies, until what it says is durable.
#[derive(Debug)]
pub(super) struct Held {
    /// The library's number of it.
    pub(super) number: u64,
    /// The batch; `None` while a snapshot is being installed.
    pub(super) batch: Option<u64>,
    pub(super) term: u64,
    /// The index of the snapshot that it installs.
    pub(super) snapshot: Option<u64>,
    pub(super) messages: Vec<GroupMessage>,
    /// The first and the last entry that it appends.
    pub(super) entries: Option<(u64, u64)>,
}

impl Held {
    /// Whether it replaces the entry at `index`.
    pub(super) fn replaces(&self, index: u64) -> bool {
        self.entries.is_some_and(|(first, _)| first <= index)
    }
}
