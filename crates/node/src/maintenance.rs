//! What a node does by itself: expiry, checkpoints, retries.

use crate::{Failure, ReadDamage, ShardCore, Stamp};
use log::CheckpointRows;
use model::{GroupId, Monotonic, StreamKey};
use std::collections::HashSet;
use stream::PinToken;

/// Expiries logged per group and tick: what is left over comes with the next.
const PER_TICK_MAX: usize = 256;

/// Damaged places and streams that are remembered, each.
const KNOWN_PLACES_MAX: usize = 4096;

/// A shard without commits for this long marks its last batch durable in the log itself.
const IDLE_MARK_MS: u64 = 1_000;

/// What maintenance keeps between ticks.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    releases: Vec<(StreamKey, PinToken)>,
    last_commit: Monotonic,
    marked: bool,
    /// Damage that background work met and nobody has asked for yet.
    pub(crate) damages: Vec<log::Damage>,
    /// The same of reads, and every place that they have met so far.
    read_damages: Vec<ReadDamage>,
    known_places: HashSet<(String, u64)>,
    damaged_streams: HashSet<StreamKey>,
}

impl Idle {
    pub(crate) fn retry_release(&mut self, source: StreamKey, token: PinToken) {
        self.releases.push((source, token));
    }

    /// Entries were committed: the mark, if there was one, lies before them.
    pub(crate) fn note_sync(&mut self, now: Monotonic) {
        self.last_commit = now;
        self.marked = false;
    }

    /// Remembers damage that a read met.
    pub(crate) fn note_failure(&mut self, key: StreamKey, failure: &Failure) {
        let Failure::Damaged { file, position } = failure else { return };
        self.note_damaged(key);
        if self.note_place(file, *position) {
            let damage = ReadDamage { key, file: file.clone(), position: *position };
            self.read_damages.push(damage);
        }
    }

    /// Remembers a damaged place; `true` if it is new.
    fn note_place(&mut self, file: &str, position: u64) -> bool {
        let known = &mut self.known_places;
        known.len() < KNOWN_PLACES_MAX && known.insert((file.to_owned(), position))
    }

    /// Remembers that bytes of a stream are damaged.
    pub(crate) fn note_damaged(&mut self, key: StreamKey) {
        if self.damaged_streams.len() < KNOWN_PLACES_MAX {
            self.damaged_streams.insert(key);
        }
    }

    /// Whether bytes of a stream are known to be damaged.
    pub(crate) fn has_damage(&self, key: StreamKey) -> bool {
        self.damaged_streams.contains(&key)
    }
}

impl ShardCore {
    pub(crate) fn handle_tick(&mut self, now: Stamp) {
        self.tick_background(now.monotonic);
        self.execute_deferred(now);
        self.give_up_deferred(now);
        if self.log.is_poisoned() {
            return;
        }
        for place in 0..self.groups.len() {
            self.expire_some(now, place);
        }
        for (source, token) in std::mem::take(&mut self.idle.releases) {
            self.start_release(now, source, token);
        }
        self.checkpoint_if_wanted();
        self.mark_if_idle(now);
    }

    fn expire_some(&mut self, now: Stamp, place: usize) {
        let state = &mut self.groups[place].state;
        let group = state.group();
        for stream in state.poll_expired(now.wall, PER_TICK_MAX) {
            self.propose_expiry(now, StreamKey { group, stream });
        }
    }

    pub(crate) fn checkpoint_if_wanted(&mut self) {
        let Some(group) = self.log.wants_checkpoint() else { return };
        self.checkpoint(group);
    }

    fn checkpoint(&mut self, group: GroupId) {
        let state = self.state(group);
        let index = state.applied();
        let header = state.encode_header();
        let mut rows = CheckpointRows::new();
        for row in state.encode_rows() {
            rows.push(row.stream, row.path_hash, &row.bytes);
        }
        self.log.checkpoint(group, index, header, rows);
    }

    fn mark_if_idle(&mut self, now: Stamp) {
        let is_quiet = self.groups.iter().all(|group| group.proposed_count() == 0);
        let idle_ms = now.monotonic.ms_since(self.idle.last_commit);
        if is_quiet && !self.idle.marked && idle_ms >= IDLE_MARK_MS {
            self.log.mark_durable();
            self.idle.marked = true;
        }
    }

    /// Writes the durable mark now; for a clean stop.
    pub fn mark_durable(&mut self) {
        if !self.log.is_poisoned() {
            self.log.mark_durable();
        }
    }

    /// Damage that background work has met since the last call.
    pub fn take_damages(&mut self) -> Vec<log::Damage> {
        std::mem::take(&mut self.idle.damages)
    }

    /// Remembers what recovery found damaged and has reported.
    pub(crate) fn remember_damages(&mut self, damages: &[log::Damage]) {
        for damage in damages {
            self.idle.note_place(&damage.file.display().to_string(), damage.position);
            if let (Some(group), Some(stream)) = (damage.group, damage.stream) {
                self.idle.note_damaged(StreamKey { group, stream });
            }
        }
    }

    /// Damage that reads have met since the last call; each place comes once.
    pub fn take_read_damages(&mut self) -> Vec<ReadDamage> {
        std::mem::take(&mut self.idle.read_damages)
    }

    /// Starts what recovery found undone: references to give back.
    pub(crate) fn resume_releases(&mut self, orphans: Vec<(StreamKey, PinToken)>) {
        self.idle.releases.extend(orphans);
        for group in &self.groups {
            for (token, source) in group.state.duties() {
                self.idle.releases.push((source, token));
            }
        }
    }
}
