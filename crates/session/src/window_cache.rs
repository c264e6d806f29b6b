//! The windows of stored bytes that were read last, for the readers that come right behind.
//!
//! Many clients often read the same history at once: a page that is open everywhere, an agent's session after a
//! restart. A window that is not in a chunk file yet is put together from its entries in the write-ahead log, with
//! a read for each. Readers that queue for the same window get the bytes that the first one had read.
//!
//! # Invariants
//! - A stream's bytes at an offset never change, and the id of a stream is never used again: what is kept here is
//!   what a read would find. Whether a stream still exists is decided before, when its answer begins.
//! - At most [`WINDOWS_MAX`] windows are kept, and none beyond the next sweep of the connections.

use bytes::Bytes;
use model::limits::READ_WINDOW_BYTES_MAX;
use model::{ByteOffset, StreamKey};
use std::collections::VecDeque;

/// WindowCache that are kept: 1 MiB for each shard.
const WINDOWS_MAX: usize = 16;

/// The windows that were read last, the latest at the back.
#[derive(Debug, Default)]
pub(crate) struct WindowCache(VecDeque<Window>);

#[derive(Debug)]
struct Window {
    key: StreamKey,
    from: ByteOffset,
    bytes: Bytes,
}

impl WindowCache {
    /// The bytes of `key` from `from` on that a window up to `to` holds, if they are at hand.
    pub(crate) fn get(&self, key: StreamKey, from: ByteOffset, to: ByteOffset) -> Option<Bytes> {
        let window = self.0.iter().find(|window| window.key == key && window.from == from)?;
        let length = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
        Some(window.bytes.slice(..length.min(window.bytes.len())))
    }

    /// Keeps a whole window; shorter ones are not worth it.
    pub(crate) fn put(&mut self, key: StreamKey, from: ByteOffset, bytes: &Bytes) {
        if bytes.len() < READ_WINDOW_BYTES_MAX || self.get(key, from, from).is_some() {
            return;
        }
        if self.0.len() == WINDOWS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Window { key, from, bytes: bytes.clone() });
    }

    /// Lets all of them go.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{GroupId, StreamId};

    fn key(stream: u64) -> StreamKey {
        StreamKey { group: GroupId::new(0), stream: StreamId::new(stream) }
    }

    fn window(byte: u8) -> Bytes {
        vec![byte; READ_WINDOW_BYTES_MAX].into()
    }

    #[test]
    fn a_window_is_found_by_its_stream_and_its_beginning_and_never_longer_than_asked() {
        let (zero, ten) = (ByteOffset::new(0), ByteOffset::new(10));
        let mut windows = WindowCache::default();
        windows.put(key(1), zero, &window(7));
        assert_eq!(windows.get(key(1), zero, ten).unwrap(), [7; 10][..]);
        let all = windows.get(key(1), zero, ByteOffset::new(1 << 30)).unwrap();
        assert_eq!(all.len(), READ_WINDOW_BYTES_MAX);
        assert!(windows.get(key(2), zero, ten).is_none());
        assert!(windows.get(key(1), ten, ByteOffset::new(20)).is_none());
    }

    #[test]
    fn what_was_read_last_is_kept_and_short_windows_are_not() {
        let mut windows = WindowCache::default();
        let zero = ByteOffset::new(0);
        windows.put(key(0), zero, &Bytes::from_static(b"short"));
        assert!(windows.get(key(0), zero, zero).is_none());
        for stream in 0..=WINDOWS_MAX as u64 {
            windows.put(key(stream), zero, &window(1));
            windows.put(key(stream), zero, &window(2));
        }
        assert!(windows.get(key(0), zero, zero).is_none());
        let first = windows.get(key(1), zero, ByteOffset::new(1)).unwrap();
        assert_eq!(first, [1][..], "the same window is kept once");
        windows.clear();
        assert!(windows.get(key(1), zero, zero).is_none());
    }
}
