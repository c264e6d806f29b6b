//! A chunk's file as the senders of its bytes have it.
//!
//! Bytes of a block are compared with its checksum once. If the device loses the block later, a sender is the
//! first to meet that. A read that fails here is remembered, so that the chunk compares its blocks again. The next
//! read is then answered with the file and the position.

use env::{File, FileOverlay, is_unreadable};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file of a chunk, for reading what was found intact.
#[derive(Debug)]
pub(crate) struct ServedFile {
    below: Arc<dyn File>,
    has_failed: AtomicBool,
}

impl ServedFile {
    pub(crate) fn new(below: Arc<dyn File>) -> Arc<Self> {
        Arc::new(Self { below, has_failed: AtomicBool::new(false) })
    }

    /// Whether a read has failed since this was asked last.
    pub(crate) fn take_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) && self.has_failed.swap(false, Ordering::Relaxed)
    }
}

impl FileOverlay for ServedFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.below.read_at(buffer, position);
        if read.as_ref().is_err_and(is_unreadable) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        read
    }
}
