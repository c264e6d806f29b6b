//! What goes wrong on a disk in memory besides crashes: blocks that cannot be read, operations that fail.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// An operation that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOperation {
    /// A read of a file that may wait.
    Read,
    /// Opening a file that exists.
    Open,
    /// Giving a file another name.
    Rename,
    /// Removing a file.
    Remove,
    /// Making the names of a directory durable.
    SyncDir,
}

/// What a disk fails to read at once.
const BLOCK_BYTES: usize = 4096;

/// Which operations of a kind fail: after `skip` more, `count` of them, or all.
#[derive(Debug, Clone, Copy)]
struct Failure {
    skip: u64,
    count: Option<u64>,
}

/// Operations that will fail.
#[derive(Debug, Default)]
pub(super) struct Faults(BTreeMap<DiskOperation, Failure>);

impl Faults {
    /// After `skip` more operations of a kind, `count` of them fail, or all.
    pub(super) fn set(&mut self, operation: DiskOperation, skip: u64, count: Option<u64>) {
        self.0.remove(&operation);
        if count != Some(0) {
            self.0.insert(operation, Failure { skip, count });
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the operation that begins now fails.
    pub(super) fn check(&mut self, operation: DiskOperation) -> io::Result<()> {
        let Some(failure) = self.0.get_mut(&operation) else { return Ok(()) };
        if failure.skip > 0 {
            failure.skip -= 1;
            return Ok(());
        }
        if let Some(count) = &mut failure.count {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&operation);
            }
        }
        Err(input_output_error())
    }
}

/// What the kernel answers when a device fails to read or write.
pub(super) fn input_output_error() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

/// The blocks of which `range` has a byte.
pub(super) fn touched(range: Range<usize>) -> Range<usize> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

/// The blocks of which `range` has all bytes.
pub(super) fn covered(range: Range<usize>) -> Range<usize> {
    range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES
}
