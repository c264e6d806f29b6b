//! An orderly end: each shard finishes what is under way, marks its log and closes, in its own time.
//! The others continue meanwhile. See `Shard::run` of the server.

use super::{Act, World};
use crate::{
    fault::{End, FaultKind},
    plane::Mail,
};

/// How long a shard waits before it looks again whether everybody has gone.
const RECHECK_US: u64 = 5_000;

/// The longest that a process runs which is stopped as soon as it has started.
const SOON_US: u64 = 50_000;

impl World {
    /// Sometimes a process is stopped at once: other shards' segments are still needed then, and
    /// nothing of what recovery replayed is in a checkpoint.
    pub(super) fn may_stop_soon(&mut self) {
        if self.has_fault(FaultKind::Stop) && !self.is_ending && self.fault_dice.percent(25) {
            let wait = self.fault_dice.below(SOON_US);
            self.after(wait, Act::Stop);
        }
    }

    /// Nobody new is served; the shards close one after the other.
    pub(crate) fn begin_stop(&mut self) {
        let Some(process) = self.process.as_mut().filter(|process| !process.is_stopping) else {
            return;
        };
        process.is_stopping = true;
        let (life, count) = (process.life, process.shards.len());
        self.note(format_args!("stop of life {life}"));
        let longest_us = *self.fault_dice.pick(&[2_000, 200_000, 5_000_000]);
        for shard in 0..count {
            let wait = self.fault_dice.below(longest_us);
            self.after(wait, Act::Close { life, shard });
        }
    }

    pub(super) fn close_shard(&mut self, life: u64, shard: usize) {
        let now = self.clock.stamp();
        let Some(process) = self.process.as_mut().filter(|process| process.life == life) else {
            return;
        };
        let Some(open) = &process.shards[shard] else { return };
        if !open.is_stopping {
            self.deliver(life, shard, Mail::Stop);
            return self.after(RECHECK_US, Act::Close { life, shard });
        }
        if !open.is_finished(now) {
            return self.after(RECHECK_US, Act::Close { life, shard });
        }
        let Some(closed) = process.shards[shard].take() else { return };
        closed.close();
        let is_last = process.open_shards().next().is_none();
        self.note(format_args!("shard {shard} of life {life} closed"));
        self.lose_connections(|lost| lost == shard);
        if is_last {
            // Background jobs may be under way: the process ends in the middle of them.
            self.end_process(End::Kill);
        }
    }
}
