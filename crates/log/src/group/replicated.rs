//! What the log knows of a group with more than one replica: its entries by index, its note, what is committed.
//!
//! # Invariants
//! - `applied <= committed <= last`, and `base <= checkpointed`: what may still be superseded is in the directory.

use crate::directory::{Directory, EntryPlace};
use crate::entry::Note;
use crate::wal::indexed::IndexedEntry;
use crate::wal::layout::WritePlace;

/// Entries, note and commit of a replicated group.
#[derive(Debug)]
pub(crate) struct Replicated {
    pub(crate) directory: Directory,
    pub(crate) committed: u64,
    /// What was noted last; `None` if it is lost.
    pub(crate) note: Option<Note>,
    /// The segment of the newest note that is durable: it may not be given up.
    pub(crate) note_slot: Option<u16>,
    /// Whether this opening has noted it: then no segment of an earlier one is needed for it.
    pub(crate) is_noted: bool,
    /// A start after a power loss would know this much as committed, at least.
    pub(crate) durable_commit: u64,
    /// What was committed when something was dropped last that was stored.
    pub(crate) dropped_at: u64,
    /// Entries from here on are kept for others while the WAL has room.
    pub(crate) keep_from: u64,
}

/// Nobody needs an entry.
pub(crate) const KEEP_NONE: u64 = u64::MAX;

impl Replicated {
    /// Learns the place of an entry that became durable in the batch `seq`.
    pub(crate) fn settle(&mut self, entry: &IndexedEntry, seq: u64, place: WritePlace) {
        let from = EntryPlace::in_batch(seq, entry.number);
        let to = EntryPlace::on_disk(place, entry.number);
        self.directory.settle(entry.index, from, to);
    }

    /// Asserts what always holds of a group that has applied entries up to `applied` and gives out `next`.
    pub(super) fn check(&self, applied: u64, next: u64) {
        self.directory.check();
        let Self { directory, committed, .. } = self;
        let (last, base) = (directory.last(), directory.base());
        assert!(
            applied <= *committed && *committed <= last && last + 1 == next,
            "applied {applied}, committed {committed}, last {last}, next {next}"
        );
        assert!(base <= *committed, "the log begins at {base}, and {committed} is committed");
    }
}
