//! Bounds of snapshots on their way.

/// Snapshots that may leave a shard at once, and as many that may come.
pub(super) const TRANSFERS_MAX: usize = 2;

/// Bytes that are sent, and are not in their place at the other end.
pub(super) const WINDOW_BYTES: u64 = 4 << 20;

/// Bytes of what one end says before its files, at most: 16 bytes for each stream.
pub(super) const FIRST_BYTES_MAX: u64 = 1 << 28;

/// A leader that hears nothing asks after this long, and again after as long.
pub(super) const ASK_MS: u64 = 1_000;

/// An end that hears nothing gives up after this long.
pub(super) const SILENT_MS_MAX: u64 = 30_000;

/// A snapshot that came to nothing is not begun again before this.
pub(super) const REST_MS: u64 = 1_000;

/// A checkpoint that is not there after so long is asked for again.
pub(super) const CHECKPOINT_MS: u64 = 5_000;

/// A message that has not found out so long that a receiver needs nothing is lost.
pub(super) const BARE_MS: u64 = 2_000;
