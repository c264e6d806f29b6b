//! Work that a shard has by itself, in slices: at most one of each kind in a turn of the loop.
//!
//! # Why
//! Thousands of streams may expire at the same moment, and a checkpoint may have a row for each of half a million.
//! Requests of others would wait for all of them.
//!
//! # How
//! [`crate::ShardCore::is_behind`] says that there is a slice to do. The driver of the shard then begins its next turn without
//! waiting for anything, and gives [`crate::Event::Continue`] in it.
//!
//! # Invariants
//! - A checkpoint shows its group at the index at which it was begun. It is given to the log when all its rows are copied:
//!   a crash before that leaves the checkpoint before it.
//! - The expiries of a slice are applied before the next one is looked for. So a batch holds one slice.

use log::CheckpointRows;
use model::{EntryIndex, GroupId};

/// What one slice may hold.
#[derive(Debug, Clone, Copy)]
pub struct SliceLimits {
    /// Streams that are looked at because they may have expired. One that has takes up to 4 µs until its end is
    /// applied.
    pub expiries_max: usize,
    /// Streams that are looked at because they may keep more than they need to. One may look for four appends, each in
    /// several chunks.
    pub trims_max: usize,
    /// Rows of a checkpoint. One takes half a microsecond.
    pub rows_max: usize,
}

impl Default for SliceLimits {
    fn default() -> Self {
        Self { expiries_max: 256, trims_max: 16, rows_max: 1024 }
    }
}

/// How far the expiry of streams is.
#[derive(Debug, Default)]
pub(crate) struct ExpirySlices {
    /// Streams may have expired that nobody has looked at.
    pub is_due: bool,
    /// Expiries on their way through the log.
    pub in_flight_count: usize,
    /// The place of the group that is looked at first.
    pub next_group: usize,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct CheckpointSlices {
    pub group: GroupId,
    pub index: EntryIndex,
    pub header: Vec<u8>,
    pub rows: CheckpointRows,
}

impl ExpirySlices {
    /// Time has passed.
    pub(crate) fn tick(&mut self) {
        self.is_due = true;
    }

    pub(crate) fn note_proposed(&mut self) {
        self.in_flight_count += 1;
    }

    /// One was applied, or nobody knows its fate.
    pub(crate) fn note_done(&mut self) {
        self.in_flight_count -= 1;
    }

    /// Whether a slice may be looked for.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_due && self.in_flight_count == 0
    }
}
