//! WALs that no shard writes any more, and segments of others: what becomes of them.

use super::ShardLog;
use super::background::is_free;
use crate::wal::fill::{FillDone, FillWork};
use crate::wal::segment::WalSegment;
use crate::work::Task;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A WAL that no shard writes any more. It is removed when its entries are in chunks and checkpoints.
#[derive(Debug)]
pub(crate) struct DrainedWal {
    pub(crate) dir: PathBuf,
    pub(crate) segments: VecDeque<WalSegment>,
}

impl ShardLog {
    /// Removes the oldest segment of a drained WAL when no shard needs it.
    pub(super) fn poll_drain(&mut self) -> Option<Task> {
        if self.is_draining {
            return None;
        }
        let (groups, slots) = (&self.groups, &self.slots);
        let wal = self.drained.iter_mut().find(|wal| {
            let oldest = wal.segments.front();
            oldest.is_some_and(|oldest| is_free(groups, oldest) && slots.is_unshared(oldest.slot))
        })?;
        let segment = wal.segments.pop_front().expect("it was just looked at");
        self.groups.iter_mut().for_each(|group| group.give_up(&segment));
        self.is_draining = true;
        let old = Arc::clone(self.slots.get(segment.slot));
        Some(Task::Drain(FillWork::Remove { dir: wal.dir.clone(), old, segment }))
    }

    pub(super) fn handle_drain(&mut self, done: FillDone) -> Option<io::Error> {
        self.is_draining = false;
        match done {
            FillDone::Removed { segment } => {
                self.slots.remove_unlinked(segment.slot);
                self.drained.retain(|wal| !wal.segments.is_empty());
                None
            }
            FillDone::Failed { dir, error, kept, .. } => {
                let wal = self.drained.iter_mut().find(|wal| wal.dir == dir);
                if let (Some(wal), Some(segment)) = (wal, kept) {
                    wal.segments.push_front(segment);
                }
                Some(error)
            }
            FillDone::Spare { .. } => panic!("a drained WAL gets no spare segment"),
        }
    }

    /// Releases segments of other WALs that our groups do not need any more.
    pub(crate) fn release_foreign(&mut self) {
        let (groups, slots) = (&mut self.groups, &mut self.slots);
        self.foreign.retain(|segment| {
            let is_needed = !is_free(groups, segment);
            if !is_needed {
                groups.iter_mut().for_each(|group| group.give_up(segment));
                slots.remove(segment.slot);
            }
            is_needed
        });
    }
}
