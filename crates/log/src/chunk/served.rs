//! A chunk's file as the readers and senders of its bytes have it.
//!
//! Bytes of a block are compared with its checksum once. If the device loses the block later, a sender is the
//! first to meet that. A read that fails here is remembered, so that the chunk compares its blocks again. The next
//! read is then answered with the file and the position.

use env::{File, FileOverlay, is_unreadable};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a read of a chunk's bytes has failed; its open files share it.
#[derive(Debug, Default, Clone)]
pub(crate) struct ReadFailures(Arc<AtomicBool>);

impl ReadFailures {
    /// Whether a read has failed since this was asked last.
    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// A file of the chunk, for reading what was found intact.
    pub(crate) fn watch(&self, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ServedFile { below, failures: self.clone() })
    }
}

#[derive(Debug)]
struct ServedFile {
    below: Arc<dyn File>,
    failures: ReadFailures,
}

impl FileOverlay for ServedFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.below.read_at(buffer, position);
        if read.as_ref().is_err_and(is_unreadable) {
            self.failures.0.store(true, Ordering::Relaxed);
        }
        read
    }
}
