//! Work that a shard has by itself, in slices: at most one of each kind in a turn of the loop.
//!
//! # Why
//! Thousands of streams may expire at the same moment, and a checkpoint may have a row for each of half a million.
//! Requests of others would wait for all of them.
//!
//! # How
//! [`ShardCore::is_behind`] says that there is a slice to do. The driver of the shard then begins its next turn without
//! waiting for anything, and gives [`crate::Event::Continue`] in it.
//!
//! # Invariants
//! - A checkpoint shows its group at the index at which it was begun. It is given to the log when all its rows are copied:
//!   a crash before that leaves the checkpoint before it.
//! - The expiries of a slice are applied before the next one is looked for. So a batch holds one slice.

use crate::{ShardCore, Stamp};
use log::CheckpointRows;
use model::{EntryIndex, GroupId, StreamKey};

/// What one slice may hold.
#[derive(Debug, Clone, Copy)]
pub struct SliceLimits {
    /// Streams that are looked at because they may have expired. One that has takes up to 4 µs until its end is
    /// applied.
    pub expiries_max: usize,
    /// Rows of a checkpoint. One takes half a microsecond.
    pub rows_max: usize,
}

impl Default for SliceLimits {
    fn default() -> Self {
        Self { expiries_max: 256, rows_max: 1024 }
    }
}

/// How far the expiry of streams is.
#[derive(Debug, Default)]
pub(crate) struct ExpirySlices {
    /// Streams may have expired that nobody has looked at.
    is_due: bool,
    /// Expiries on their way through the log.
    in_flight_count: usize,
    /// The place of the group that is looked at first.
    next_group: usize,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct CheckpointSlices {
    group: GroupId,
    index: EntryIndex,
    header: Vec<u8>,
    rows: CheckpointRows,
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

    /// How many are on their way.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.in_flight_count
    }

    fn is_ready(&self) -> bool {
        self.is_due && self.in_flight_count == 0
    }
}

impl ShardCore {
    /// Sets what one slice may hold; for tests, which have little work.
    pub fn set_slice_limits(&mut self, limits: SliceLimits) {
        self.slice_limits = limits;
    }

    /// Whether there is work for [`crate::Event::Continue`] now.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        (self.expiries.is_ready() || self.checkpoint.is_some()) && !self.log.is_poisoned()
    }

    /// Does one slice of what there is to do.
    pub(crate) fn do_slice(&mut self, now: Stamp) {
        if self.log.is_poisoned() {
            return;
        }
        if self.expiries.is_ready() {
            self.expire_some(now);
        }
        self.copy_rows();
    }

    /// Begins a checkpoint of a group as it is now.
    pub(crate) fn begin_checkpoint(&mut self, group: GroupId) {
        let state = &mut self.groups.get_mut(group).state;
        let (index, header, rows) = (state.applied(), state.encode_header(), CheckpointRows::new());
        state.begin_rows();
        self.checkpoint = Some(CheckpointSlices { group, index, header, rows });
        self.copy_rows();
    }

    fn copy_rows(&mut self) {
        let Some(mut checkpoint) = self.checkpoint.take() else { return };
        let state = &mut self.groups.get_mut(checkpoint.group).state;
        let is_done = state.copy_rows(self.slice_limits.rows_max, |row| {
            checkpoint.rows.push(row.stream, row.path_hash, &row.bytes);
        });
        if is_done {
            let CheckpointSlices { group, index, header, rows } = checkpoint;
            self.log.checkpoint(group, index, header, rows);
        } else {
            self.checkpoint = Some(checkpoint);
        }
    }

    fn expire_some(&mut self, now: Stamp) {
        for key in self.poll_expired(now) {
            if !self.propose_expiry(now, key) {
                // The log has no room: the next tick begins again.
                self.expiries.is_due = false;
            }
        }
    }

    /// Streams that have expired, as many as one slice may look at.
    fn poll_expired(&mut self, now: Stamp) -> Vec<StreamKey> {
        let mut looks_left = self.slice_limits.expiries_max;
        let mut expired = Vec::new();
        let first = self.expiries.next_group;
        let count = self.groups.iter().count();
        for place in (first..first + count).map(|place| place % count) {
            let state = &mut self.groups.at_mut(place).state;
            let group = state.group();
            while let Some(stream) = state.poll_expired(now.wall, &mut looks_left) {
                expired.push(StreamKey { group, stream });
            }
            if looks_left == 0 {
                self.expiries.next_group = (place + 1) % count;
                return expired;
            }
        }
        self.expiries.is_due = false;
        expired
    }
}
