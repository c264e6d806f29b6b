//! Batch buffers that are used again.
//!
//! # Why
//! A steady load must not allocate megabytes per commit. A buffer that was frozen for a commit comes
//! back here; when the last reader has dropped its slice the memory is filled again.

use crate::options::POOLED_BUFFERS_MAX;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Buffers that wait for their last reader.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    waiting: VecDeque<Bytes>,
    bytes_max: usize,
}

impl Buffers {
    /// Keeps buffers of up to `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes_max }
    }

    /// An empty buffer, an old one if one is free.
    pub(crate) fn take(&mut self) -> BytesMut {
        let free = self.waiting.iter().position(Bytes::is_unique);
        let buffer = free.and_then(|index| self.waiting.remove(index));
        match buffer.map(Bytes::try_into_mut) {
            Some(Ok(mut buffer)) => {
                buffer.clear();
                buffer
            }
            Some(Err(_)) | None => BytesMut::new(),
        }
    }

    /// Remembers a frozen buffer for later; the oldest makes room.
    pub(crate) fn put(&mut self, buffer: Bytes) {
        if buffer.len() > self.bytes_max {
            return;
        }
        if self.waiting.len() == POOLED_BUFFERS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reader_is_gone() {
        let mut buffers = Buffers::new(100);
        let mut buffer = BytesMut::with_capacity(64);
        buffer.extend_from_slice(b"abc");
        let memory = buffer.as_ptr();
        let frozen = buffer.freeze();
        let reader = frozen.slice(1..2);
        buffers.put(frozen);
        assert_ne!(buffers.take().as_ptr(), memory);
        drop(reader);
        let again = buffers.take();
        assert_eq!(again.as_ptr(), memory);
        assert!(again.is_empty());
    }

    #[test]
    fn large_buffers_are_given_back_to_the_system() {
        let mut buffers = Buffers::new(2);
        buffers.put(Bytes::from(vec![0; 3]));
        assert!(buffers.waiting.is_empty());
    }
}
