//! How much of the disk one shard's WAL may take, and what it leaves to others.
//!
//! # Why
//! Data leaves the WAL for a chunk, which needs room before the WAL gives any back. So the WAL takes no
//! more of what is free than it leaves: all that is hot always fits into chunks. Some room stays free
//! for good: a full disk is emptied through the log. What needs room leaves some to what frees more, in this
//! order: segments for data, seals, segments for upkeep, checkpoints.
//!
//! # Invariants
//! - Nothing is kept at hand unless the disk has less room than the bound of the settings.
//! - `segment_bytes <= LogOptions::segment_bytes` and `wal_bytes_max <= LogOptions::wal_bytes_max`, with
//!   equality where the disk has much room.

use crate::options::{BLOCK_BYTES, FIRST_SEGMENT_BYTES_MAX, LogOptions};
use env::Disk;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

/// A shard keeps less ready than this part of what is free, so that idle segments do not fill a small disk.
const READY_PART: u64 = 32;

/// Bytes of the segments at hand that only upkeep may take: so many single deletes are logged while the next
/// segment is made.
const UPKEEP_BYTES_MAX: u64 = 64 * BLOCK_BYTES;

/// The part of a segment that is kept for upkeep, if segments are small.
const UPKEEP_PART: u64 = 16;

/// What a segment for upkeep holds, in multiples of what is kept at hand, where segments are large.
const UPKEEP_SEGMENT_FACTOR: u64 = 4;

/// Segments for upkeep of each shard that the disk always has room for, unless others fill it. A process that begins
/// needs one for each of its shards.
const UPKEEP_SEGMENTS: u64 = 2;

/// What a chunk adds to the entries of a segment, as a part of it, at most.
const CHUNK_PART: u64 = 8;

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It brings data or state.
    Data,
    /// It frees space, or keeps the log in order. A full disk takes it: room is kept for it.
    Upkeep,
}

/// The room of a WAL, as of the last look at the disk.
#[derive(Debug)]
pub(crate) struct WalRoom {
    shard_count: u64,
    /// Of the settings.
    segment_bytes_max: u64,
    wal_bytes_limit: u64,
    seal_bytes: u64,
    /// What an unprivileged process may still write, as of the last look.
    free_bytes: u64,
    /// Size of the largest checkpoint.
    checkpoint_bytes: u64,
    /// Usual size of a segment now.
    pub(crate) segment_bytes: u64,
    /// Most bytes of the WAL now.
    pub(crate) wal_bytes_max: u64,
    /// What data leaves at hand now: nothing on a disk with much room, where the next segment is made in time.
    pub(crate) kept_at_hand_bytes: u64,
}

impl WalRoom {
    pub(crate) fn new(options: &LogOptions, shard_count: u16) -> Self {
        Self {
            shard_count: u64::from(shard_count),
            segment_bytes_max: options.segment_bytes,
            wal_bytes_limit: options.wal_bytes_max,
            seal_bytes: options.seal_bytes,
            free_bytes: u64::MAX,
            checkpoint_bytes: 0,
            segment_bytes: options.segment_bytes,
            wal_bytes_max: options.wal_bytes_max,
            kept_at_hand_bytes: 0,
        }
    }

    /// Learns what is free, beside a WAL of `wal_bytes`, and the size of the largest checkpoint.
    pub(crate) fn note(&mut self, wal_bytes: u64, free_bytes: u64, checkpoint_bytes: u64) {
        (self.free_bytes, self.checkpoint_bytes) = (free_bytes, checkpoint_bytes);
        let usable = free_bytes.saturating_sub(self.kept_by_data());
        // With all shards at their bound, their WALs take as much as they leave.
        let fair = wal_bytes.saturating_add(usable) / (self.shard_count + 1);
        self.wal_bytes_max = fair.min(self.wal_bytes_limit);
        let ready = (usable / (READY_PART * self.shard_count)).max(self.segment_bytes_min());
        // Powers of two: of sizes that change with every write no segment could be used again.
        let is_much = ready >= self.segment_bytes_max;
        self.segment_bytes = if is_much { self.segment_bytes_max } else { 1 << ready.ilog2() };
        self.kept_at_hand_bytes = if self.is_tight() { self.upkeep_bytes() } else { 0 };
    }

    /// Whether segments that hold so much use more than half of the bound.
    pub(crate) fn is_half_used(&self, used_bytes: u64) -> bool {
        used_bytes * 2 > self.wal_bytes_max
    }

    /// Whether the disk has less room than the bound of the settings.
    pub(crate) fn is_tight(&self) -> bool {
        self.wal_bytes_max < self.wal_bytes_limit
    }

    /// What an unprivileged process may still write, as of the last look.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// What a segment for data leaves free: a seal comes before the room of its segments returns.
    pub(crate) fn kept_by_data(&self) -> u64 {
        self.seal_bytes.max(self.segment_bytes_min()) + self.kept_by_seals()
    }

    /// What a seal leaves free.
    pub(crate) fn kept_by_seals(&self) -> u64 {
        let segments = UPKEEP_SEGMENTS * self.shard_count;
        self.kept_by_upkeep() + segments * self.upkeep_segment(0).usual_bytes
    }

    /// What a segment for upkeep leaves free: a checkpoint lets segments go, and needs its own bytes for a moment.
    pub(crate) fn kept_by_upkeep(&self) -> u64 {
        self.checkpoint_bytes
    }

    /// The least that a segment for data holds.
    pub(crate) fn segment_bytes_min(&self) -> u64 {
        self.segment_bytes_max.min(FIRST_SEGMENT_BYTES_MAX)
    }

    /// Bytes of the segments at hand that only upkeep may take.
    pub(crate) fn upkeep_bytes(&self) -> u64 {
        self.upkeep_part().min(UPKEEP_BYTES_MAX)
    }

    fn upkeep_part(&self) -> u64 {
        (self.segment_bytes_max / UPKEEP_PART / BLOCK_BYTES * BLOCK_BYTES).max(BLOCK_BYTES)
    }

    /// Whether a segment of this size is worth being used again.
    pub(crate) fn is_usual(&self, capacity: u64) -> bool {
        let most = self.segment_bytes.saturating_mul(2).min(self.segment_bytes_max);
        (self.segment_bytes.div_ceil(2)..=most).contains(&capacity)
    }

    /// Whether a WAL with `used_bytes` and few `hot_bytes` is worth being made shorter: it is a large part of the room,
    /// and little has to be copied for that.
    pub(crate) fn is_waste(&self, used_bytes: u64, hot_bytes: u64) -> bool {
        let room = used_bytes.saturating_add(self.free_bytes) / (READY_PART * self.shard_count);
        used_bytes > room && hot_bytes < used_bytes / 4
    }

    /// The size of a segment for data, for an append of `wanted_bytes` that waits or 0. `usual_bytes` are preferred.
    /// `unsealed_bytes` is what has to fit into chunks beside what comes into it.
    pub(crate) fn data_segment(
        &self,
        usual_bytes: u64,
        wanted_bytes: u64,
        unsealed_bytes: u64,
    ) -> SegmentSize {
        let least = self.segment_bytes_min().max(wanted_bytes);
        SegmentSize {
            usual_bytes: usual_bytes.max(least),
            least_bytes: least,
            kept_free_bytes: self.kept_by_data(),
            // Nobody here knows what the other shards have to seal: as much.
            kept_beside_seals: self.kept_by_seals() + self.shard_count * unsealed_bytes,
            sealed_times: self.shard_count,
            purpose: Purpose::Data,
        }
    }

    /// The size of a segment that only upkeep uses: it may take the last room.
    pub(crate) fn upkeep_segment(&self, wanted_bytes: u64) -> SegmentSize {
        let least = self.upkeep_bytes().max(wanted_bytes);
        let usual = UPKEEP_SEGMENT_FACTOR * self.upkeep_bytes();
        SegmentSize {
            usual_bytes: usual.min(self.upkeep_part()).max(least),
            least_bytes: least,
            kept_free_bytes: self.kept_by_upkeep(),
            kept_beside_seals: 0,
            sealed_times: 0,
            purpose: Purpose::Upkeep,
        }
    }
}

/// How large a segment shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentSize {
    pub(crate) usual_bytes: u64,
    /// What it must hold, if the disk has no room for the usual.
    pub(crate) least_bytes: u64,
    /// What it leaves free.
    pub(crate) kept_free_bytes: u64,
    /// What it leaves free beside the chunks of its own data, if that is more.
    kept_beside_seals: u64,
    /// How often its length is kept for these chunks.
    sealed_times: u64,
    pub(crate) purpose: Purpose,
}

impl SegmentSize {
    /// What has to be free for a segment of `bytes`.
    fn needed_bytes(&self, bytes: u64) -> u64 {
        let chunks = self.sealed_times * (bytes + bytes / CHUNK_PART);
        bytes.saturating_add(self.kept_free_bytes.max(self.kept_beside_seals + chunks))
    }

    /// The size that the disk of `dir` has room for.
    ///
    /// # Errors
    /// `StorageFull` with a [`NoRoom`], or what the disk answers.
    pub(crate) fn choose(&self, disk: &dyn Disk, dir: &Path) -> io::Result<u64> {
        let free_bytes = disk.free_bytes(dir)?;
        let sizes = [self.usual_bytes, self.least_bytes];
        sizes.into_iter().find(|bytes| free_bytes >= self.needed_bytes(*bytes)).ok_or_else(|| {
            let needed_bytes = self.needed_bytes(self.least_bytes);
            NoRoom { what: "the write-ahead log", needed_bytes, free_bytes }.into()
        })
    }
}

/// The disk has less room than a piece of work needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// What needs the room.
    pub what: &'static str,
    /// Bytes that have to be free for it.
    pub needed_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, needed_bytes, free_bytes } = self;
        write!(f, "{what} needs {needed_bytes} free bytes, and {free_bytes} are free")
    }
}

impl Error for NoRoom {}

/// Whether an error says that there is no room, on the disk or in the quota of the user.
#[must_use]
pub fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<NoRoom> for io::Error {
    fn from(no_room: NoRoom) -> Self {
        Self::new(io::ErrorKind::StorageFull, no_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;

    const MIB: u64 = 1 << 20;

    fn room(shard_count: u16, wal_mib: u64, free_mib: u64) -> WalRoom {
        let mut room = WalRoom::new(&LogOptions::default(), shard_count);
        // 8 MiB for a seal, 1 MiB for a checkpoint, 2 MiB for the upkeep of each shard.
        room.note(wal_mib * MIB, free_mib * MIB, MIB);
        room
    }

    #[test]
    fn a_large_disk_leaves_the_settings_as_they_are() {
        for room in [room(1, 100, 1 << 20), room(4, 100, 1 << 20), room(1, 0, u64::MAX >> 20)] {
            assert_eq!((room.segment_bytes, room.wal_bytes_max), (64 * MIB, 1024 * MIB));
        }
    }

    #[test]
    fn all_shards_together_take_no_more_than_they_leave() {
        assert_eq!(room(1, 100, 211).wal_bytes_max, 150 * MIB);
        // At the bound: three WALs of 100 MiB each leave 300 MiB, and 15 MiB that are kept.
        assert_eq!(room(3, 100, 315).wal_bytes_max, 100 * MIB);
        assert_eq!(room(1, 10, 11).wal_bytes_max, 5 * MIB, "what is kept free is no room");
    }

    #[test]
    fn less_is_kept_ready_on_a_small_disk() {
        assert_eq!(room(1, 0, 208).segment_bytes, 4 * MIB);
        assert_eq!(room(2, 0, 208).segment_bytes, 2 * MIB);
        assert_eq!(room(1, 0, 3).segment_bytes, MIB, "never less than the first segment");
    }

    #[test]
    fn a_segment_takes_the_last_room_only_for_upkeep() {
        let disk = MemoryDisk::new();
        let room = room(1, 0, 100);
        let choose = |size: SegmentSize, free: u64| {
            disk.set_capacity(free);
            size.choose(&disk, Path::new("/")).ok()
        };
        let data = room.data_segment(16 * MIB, 2 * MIB, MIB);
        // Its own chunks take 18 MiB, those of what is hot 1 MiB, and 3 MiB are kept besides.
        assert_eq!(choose(data, 38 * MIB), Some(16 * MIB));
        assert_eq!(choose(data, 38 * MIB - 1), Some(2 * MIB));
        assert_eq!(choose(data, 13 * MIB - 1), None, "a seal of 8 MiB, and 3 MiB");
        let upkeep = room.upkeep_segment(0);
        assert_eq!(choose(upkeep, 2 * MIB), Some(MIB));
        assert_eq!(choose(upkeep, 2 * MIB - 1), Some(256 << 10));
        assert_eq!(choose(upkeep, MIB + (256 << 10) - 1), None);
    }

    #[test]
    fn what_seals_leave_holds_two_segments_for_upkeep_of_each_shard() {
        let disk = MemoryDisk::new();
        let room = room(5, 0, 0);
        let mut free_bytes = room.kept_by_seals();
        for _ in 0..2 * 5 {
            disk.set_capacity(free_bytes);
            free_bytes -= room.upkeep_segment(0).choose(&disk, Path::new("/")).unwrap();
        }
        assert_eq!(free_bytes, room.kept_by_upkeep());
    }

    #[test]
    fn a_refusal_says_what_is_needed_and_what_is_free() {
        let disk = MemoryDisk::new();
        disk.set_capacity(7);
        let refused = room(1, 0, 0).data_segment(0, 0, 0).choose(&disk, Path::new("/"));
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let text = "the write-ahead log needs 12582912 free bytes, and 7 are free";
        assert_eq!(error.to_string(), text);
    }
}
