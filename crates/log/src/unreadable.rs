//! Reads around blocks that the disk cannot read.
//!
//! # Why
//! A block that cannot be read is damage of that block, as a flipped bit is damage of its bytes. Whatever reads it
//! has a checksum to compare, so the block is filled with bytes that no header and no checksum matches. What is
//! around it stays as it is.
//!
//! # Invariants
//! - Only a device that has lost bytes makes damage: no memory, no descriptor or no power are errors.
//! - A read is tried a second time, block by block, and each of these twice: what failed once is no damage, also beside a block
//!   that is lost.

use crate::options::BLOCK_BYTES;
use env::{Disk, File, is_unreadable};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// So often a file is tried to be opened.
const OPENS: u32 = 2;

/// So often a block is tried to be read.
const BLOCK_READS: u32 = 2;

/// The system's number of an error of a device.
const EIO: i32 = 5;

/// What unreadable bytes are taken for. No magic number, and not what the rest of a segment has.
const FILLING: u8 = 0xdb;

/// Opens a file; `None` if the device fails to, twice.
///
/// # Errors
/// Any other error of the underlying disk.
pub(crate) fn open_around(disk: &dyn Disk, path: &Path) -> io::Result<Option<Arc<dyn File>>> {
    for _ in 0..OPENS {
        match disk.open(path) {
            Err(error) if is_unreadable(&error) => {}
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

/// What takes the place of a file that cannot be opened: no block of it can be read.
#[derive(Debug)]
pub(crate) struct UnreadableFile;

fn unreadable<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(EIO))
}

impl File for UnreadableFile {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        unreadable()
    }

    fn read_stored_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        unreadable()
    }

    fn read_cached_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        unreadable()
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        unreadable()
    }

    fn sync_data(&self) -> io::Result<()> {
        unreadable()
    }

    fn sync_all(&self) -> io::Result<()> {
        unreadable()
    }

    fn len(&self) -> io::Result<u64> {
        unreadable()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        unreadable()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The error of a file that cannot be opened.
pub(crate) fn cannot_open(path: &Path) -> io::Error {
    io::Error::other(format!("{} cannot be opened", path.display()))
}

/// Fills `buffer` from `position`; returns the positions of blocks that cannot be read, in order.
///
/// # Errors
/// Any other error of the underlying disk.
pub(crate) fn read_around(
    file: &dyn File,
    buffer: &mut [u8],
    position: u64,
) -> io::Result<Vec<u64>> {
    match file.read_exact_at(buffer, position) {
        Ok(()) => Ok(Vec::new()),
        Err(error) if is_unreadable(&error) => read_blocks(file, buffer, position),
        Err(error) => Err(error),
    }
}

#[cold]
fn read_blocks(file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<Vec<u64>> {
    let mut unreadable = Vec::new();
    let (mut at, end) = (position, position + buffer.len() as u64);
    while at < end {
        let block = at - at % BLOCK_BYTES;
        let next = (block + BLOCK_BYTES).min(end);
        let index = |at: u64| usize::try_from(at - position).expect("inside the buffer");
        let part = &mut buffer[index(at)..index(next)];
        let mut tries = (0..BLOCK_READS).map(|_| file.read_exact_at(part, at));
        let read = tries.find(|read| !matches!(read, Err(error) if is_unreadable(error)));
        match read {
            Some(read) => read?,
            None => {
                part.fill(FILLING);
                unreadable.push(block);
            }
        }
        at = next;
    }
    Ok(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{DiskOperation, MemoryDisk};

    fn file() -> (MemoryDisk, Arc<dyn File>) {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = disk.create(Path::new("/d/f")).unwrap();
        file.write_at(&[1; 3 * 4096], 0).unwrap();
        (disk, file)
    }

    #[test]
    fn blocks_around_an_unreadable_one_are_read() {
        let (disk, file) = file();
        disk.make_unreadable(Path::new("/d/f"), 1);
        let mut bytes = [0; 10_000];
        assert_eq!(read_around(&*file, &mut bytes, 100).unwrap(), [4096]);
        let is_lost = |at: usize| (4096..8192).contains(&(at + 100));
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, if is_lost(at) { FILLING } else { 1 }, "byte {at}");
        }
    }

    #[test]
    fn a_read_that_fails_once_loses_nothing_and_another_error_stays_one() {
        let (disk, file) = file();
        let mut bytes = [0; 8192];
        disk.fail(DiskOperation::Read, 0, 1);
        assert_eq!(read_around(&*file, &mut bytes, 0).unwrap(), []);
        assert_eq!(bytes, [1; 8192]);
        disk.make_unreadable(Path::new("/d/f"), 0);
        // All of it, the lost block twice, and then the other one.
        disk.fail(DiskOperation::Read, 3, 1);
        assert_eq!(read_around(&*file, &mut bytes, 0).unwrap(), [0], "the other one failed once");
        assert_eq!(bytes[4096..], [1; 4096]);
        disk.power_off_after(0);
        assert!(read_around(&*file, &mut bytes, 0).is_err());
    }
}
