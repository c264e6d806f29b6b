//! The segments that a WAL fills next: which are made, of what size, and which are used again.
//!
//! # Driving it
//! `poll_fill`, run the work on another thread, `handle_fill`. One change of files at a time.
//!
//! # Invariants
//! - A new segment is behind all others, and its number was never used.
//! - A segment is given up only when nothing needs it: no group, no other shard and no read.

use super::{ALL_BYTES, ShardWal};
use crate::options::BLOCK_BYTES;
use crate::wal::fill::{FillDone, FillWork};
use crate::wal::room::{Purpose, SegmentSize, is_no_room};
use crate::wal::segment::{SegmentFile, SegmentTable, WalSegment};
use std::io;
use std::sync::{Arc, atomic::Ordering};

/// How many times larger than the one before it a segment is, until they have their usual size.
const SEGMENT_GROWTH: u64 = 4;

impl ShardWal {
    /// The next change of the WAL's files. `is_free` tells whether a segment's entries are all
    /// elsewhere, `is_stuck` whether they cannot be before the log has taken more. `hot_bytes` tells the bytes of the
    /// chunks of all that is hot.
    pub(crate) fn poll_fill(
        &mut self,
        slots: &SegmentTable,
        is_free: impl Fn(&WalSegment) -> bool,
        is_stuck: impl Fn(&WalSegment) -> bool,
        hot_bytes: impl Fn() -> u64,
    ) -> Option<FillWork> {
        if self.is_filling || self.commit.is_poisoned() {
            return None;
        }
        let is_stuck = self.retired.front().is_none_or(is_stuck);
        let work = self
            .release_oldest(slots, is_free)
            .or_else(|| self.create_segment(is_stuck, hot_bytes))?;
        self.is_filling = true;
        Some(work)
    }

    fn release_oldest(
        &mut self,
        slots: &SegmentTable,
        is_free: impl Fn(&WalSegment) -> bool,
    ) -> Option<FillWork> {
        let oldest = self.retired.front()?;
        if !is_free(oldest) || !slots.is_unshared(oldest.slot) {
            return None;
        }
        let is_in_bound = self.wal_bytes() <= self.room.wal_bytes_max;
        let segment = self.retired.pop_front()?;
        let old = Arc::clone(slots.get(segment.slot));
        let dir = self.identity.dir.clone();
        // One more than are made: the next one is often wanted before the next is free.
        let is_useful = self.room.is_usual(segment.capacity)
            && is_in_bound
            && self.spare_bytes() <= self.room.segment_bytes
            && self.wanted_bytes <= segment.capacity;
        Some(if is_useful {
            FillWork::Recycle { dir, seq: self.segment_next, old, segment }
        } else {
            FillWork::Remove { dir, old, segment }
        })
    }

    fn create_segment(&self, is_stuck: bool, hot_bytes: impl Fn() -> u64) -> Option<FillWork> {
        let upkeep_bytes = self.room.upkeep_bytes().max(self.wanted_upkeep_bytes);
        let size = if self.disk_is_full && !self.has_room(upkeep_bytes) {
            self.room.upkeep_segment(self.wanted_upkeep_bytes)
        } else {
            self.spare_size(is_stuck, hot_bytes)?
        };
        self.note_awaited();
        let (dir, is_awaited) = (self.identity.dir.clone(), Arc::clone(&self.is_awaited));
        Some(FillWork::Create { dir, seq: self.segment_next, size, is_awaited })
    }

    /// Says whether the segment that is being filled is awaited, or needs no zeroes. With half of the bound used, seals are better not
    /// outrun: writes then wait for the zeroes, a tenth of a second, and not for seals of all groups. On a disk with little room
    /// only what is written is sure to be there.
    pub(super) fn note_awaited(&self) {
        let has_room = !self.room.is_tight() && !self.disk_is_full;
        let is_awaited = self.is_waiting() && !self.room.is_half_used(self.used_bytes());
        let is_awaited = has_room && (is_awaited || !self.options.fills_segments);
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    /// The size of the next segment for data, if one is wanted and the bound allows it. If nothing can leave the WAL
    /// before it takes more, it does.
    fn spare_size(&self, is_stuck: bool, hot_bytes: impl Fn() -> u64) -> Option<SegmentSize> {
        if !self.wants_spare() && !self.is_waiting() {
            return None;
        }
        let left_bytes = self.room.wal_bytes_max.saturating_sub(self.wal_bytes());
        let unsealed_bytes = hot_bytes() + self.data_room();
        let mut size =
            self.room.data_segment(self.next_capacity(), self.wanted_bytes, unsealed_bytes);
        if size.usual_bytes > left_bytes && self.room.wal_bytes_max < self.options.wal_bytes_max {
            size.usual_bytes = size.least_bytes;
        }
        if size.usual_bytes <= left_bytes {
            return Some(size);
        }
        // When nothing else is left to wait for, the bound is passed by what one append needs, and by no more.
        size.usual_bytes = size.least_bytes;
        let is_last = is_stuck && (self.is_waiting() || !self.has_room(BLOCK_BYTES));
        is_last.then_some(size)
    }

    /// Size of the next segment. A process begins with a small one, and the zeroes of one of the usual size take longer
    /// than commits need to fill that: so sizes grow.
    fn next_capacity(&self) -> u64 {
        let usual = self.room.segment_bytes;
        let active = self.active.as_ref().map(|active| &active.segment);
        let newest = self.spares.back().or(active).or(self.retired.back());
        newest.map_or(usual, |newest| (newest.capacity * SEGMENT_GROWTH).min(usual))
    }

    /// Takes the result of a change of files; the error, if any, comes back to be reported.
    pub(crate) fn handle_fill(
        &mut self,
        slots: &mut SegmentTable,
        done: FillDone,
    ) -> Option<io::Error> {
        self.is_filling = false;
        match done {
            FillDone::Spare { file, replaced, purpose } => {
                if let Some(segment) = replaced {
                    slots.remove(segment.slot);
                }
                self.add_spare(slots, file, purpose);
                None
            }
            FillDone::Removed { segment } => {
                slots.remove_unlinked(segment.slot);
                None
            }
            FillDone::Failed { error, kept, purpose, .. } => {
                if let Some(segment) = kept {
                    self.retired.push_front(segment);
                }
                match purpose {
                    Purpose::Data => self.disk_is_full = is_no_room(&error),
                    Purpose::Upkeep => self.has_no_last_room = is_no_room(&error),
                }
                Some(error)
            }
        }
    }

    /// Adds a filled segment behind all others.
    pub(crate) fn add_spare(
        &mut self,
        slots: &mut SegmentTable,
        file: SegmentFile,
        purpose: Purpose,
    ) {
        assert!(file.seq >= self.segment_next, "segment numbers rise");
        self.segment_next = file.seq + 1;
        self.has_no_last_room = false;
        if purpose == Purpose::Data {
            self.disk_is_full = false;
            self.kept_bytes = self.room.kept_at_hand_bytes;
            if file.capacity >= self.wanted_bytes {
                self.wanted_bytes = 0;
            }
        } else {
            self.kept_bytes = ALL_BYTES;
        }
        if file.capacity >= self.wanted_upkeep_bytes {
            self.wanted_upkeep_bytes = 0;
        }
        let capacity = file.capacity;
        let slot = slots.insert(Arc::new(file));
        let last = vec![0; usize::from(self.options.group_total())].into_boxed_slice();
        self.spares.push_back(WalSegment { slot, capacity, last });
    }
}
