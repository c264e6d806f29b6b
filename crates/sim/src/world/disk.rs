//! The disk of a run, and how much room it has.

use crate::dice::Dice;
use env::MemoryDisk;
use log::LogOptions;

/// The least segments that keep room for more than a single deletion. No server has any that small.
const SMALL_DISK_SEGMENT_BYTES: u64 = 256 << 10;

/// A disk, and its room. Of some of its reads it finds nothing in memory: how many, the seed says.
pub(super) fn new(seed: u64, is_small: bool, dice: &mut Dice) -> (MemoryDisk, Option<u64>) {
    let disk = MemoryDisk::new();
    let percent = [0, 1, 10, 60][usize::try_from(seed % 4).expect("an index")];
    disk.forget_cached(percent, seed);
    let room_bytes = is_small.then(|| dice.between(6 << 20, 9 << 20));
    disk.set_capacity(room_bytes);
    (disk, room_bytes)
}

/// Settings that leave a disk its room for deletions.
pub(super) fn options(is_small: bool, mut options: LogOptions) -> LogOptions {
    if is_small {
        options.segment_bytes = options.segment_bytes.max(SMALL_DISK_SEGMENT_BYTES);
        options.wal_bytes_max = options.wal_bytes_max.max(3 * SMALL_DISK_SEGMENT_BYTES);
    }
    options
}
