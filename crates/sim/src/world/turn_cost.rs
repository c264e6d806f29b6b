//! What a turn costs in simulated time.
//!
//! Work takes no time unless the plan says so. Then a change of the disk takes milliseconds, as on a slow disk. A read, an answer
//! or an entry of the log takes a hundredth of that. The shard is busy for as long, and a turn beyond the bound breaks a
//! promise. A read of bytes that the log has just found in memory does not wait. It takes 0.8 µs on a real machine, whatever the
//! disk; here it takes six times that.

use crate::plane::{Outbox, Shard};
use env::{MemoryDisk, ReadCounts};

/// A write, a sync, or a change of names.
const CHANGE_US: u64 = 5_000;
const READ_US: u64 = 50;
const PROBE_US: u64 = 5;
const ANSWER_US: u64 = 50;
const ENTRY_US: u64 = 20;

/// What a shard has done so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnWork {
    reads: ReadCounts,
    changes: u64,
    in_flight: u64,
}

impl TurnWork {
    pub(super) fn so_far(disk: &MemoryDisk, shard: &Shard) -> Self {
        Self {
            reads: disk.read_counts(),
            changes: disk.change_count(),
            in_flight: shard.core.stats().in_flight_count,
        }
    }
}

/// A turn under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnBegun {
    pub(super) mails: usize,
    pub(super) work: TurnWork,
}

impl TurnBegun {
    /// What the turn has taken until `now`.
    pub(super) fn cost_us(&self, now: &TurnWork, out: &Outbox) -> u64 {
        let then = &self.work;
        let entries = now.in_flight.saturating_sub(then.in_flight);
        (now.changes - then.changes) * CHANGE_US
            + (now.reads.waiting - then.reads.waiting) * READ_US
            + (now.reads.cached - then.reads.cached) * PROBE_US
            + out.answers.len() as u64 * ANSWER_US
            + entries * ENTRY_US
    }
}
