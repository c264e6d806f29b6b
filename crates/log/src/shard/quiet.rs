//! What waits for a quiet log, and up to where: merges that save no space, and seals of long appends.

use super::ShardLog;
use crate::group::Group;
use crate::options::{ALL_WAITING_CHUNKS_MAX, WAITING_CHUNKS_MAX};

/// The part of its bound that the log has of one group when that is set apart for a seal.
const APART_PART: u64 = 8;

/// What may have to be sealed before the oldest segment can go, in sixteenths of the log's bound.
const FIRST_SEALS_SIXTEENTHS: u64 = 3;

impl ShardLog {
    /// Looks at how much is written; for about every 100 ms. While it is much, merges that save no space and seals of long appends
    /// wait, up to a bound.
    pub fn tick(&mut self) {
        if self.load.tick(self.batch_bytes, self.store.options.seal_bytes) {
            for group in self.groups.iter_mut().filter(|group| group.chunks.waiting() > 0) {
                group.merge_may_help = true;
            }
            self.is_work_due.set(true);
        }
        // What waits for long becomes two chunks: segments of the first are free before the second is written.
        let much = self.store.options.wal_bytes_max / APART_PART;
        let has_much = |group: &&mut Group| group.hot_totals().bytes >= much;
        self.groups.iter_mut().filter(has_much).for_each(Group::set_apart);
        self.note_backlog();
    }

    /// Whether what waits for a quiet log may wait now: [`ShardLog::tick`] is to be called.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.load.is_heavy()
    }

    /// How many small chunks a group must have for a merge that saves no space.
    pub(super) fn small_chunks_to_merge(&self) -> usize {
        let waiting: usize = self.groups.iter().map(|group| group.chunks.waiting()).sum();
        let may_wait = self.load.is_heavy() && !self.is_out_of_room;
        if may_wait && waiting < ALL_WAITING_CHUNKS_MAX { WAITING_CHUNKS_MAX } else { 0 }
    }

    /// Remembers until the log is quiet that so much is to be sealed. The next segments have to last until the oldest can go, for
    /// which each group is sealed that has something in it. Nothing waits but in a burst: groups are not gone through otherwise.
    pub(super) fn note_backlog(&mut self) {
        if !self.load.is_burst() {
            return;
        }
        let first_bytes: u64 = self.groups.iter().map(|group| group.hot.next_bytes()).sum();
        let much = self.store.options.wal_bytes_max / 16 * FIRST_SEALS_SIXTEENTHS;
        if first_bytes > much || self.wal.room().is_half_used(self.wal.used_bytes()) {
            self.load.note_backlog();
        }
    }
}
