//! Writes whose sync may take longer, at a pace that keeps the syncs of other files short.
//!
//! With a single sync at the end, the next sync of any other file would wait for all of it. Beside 64 MiB, a
//! write and `fdatasync` of 4 KiB took up to 44 ms on ext4, and up to 1 ms in this way. So written bytes go to
//! the disk after each 256 KiB. Where even a small sync takes long, the pieces grow.
//! `docs/adr/0007-paced-background-writes.md` has the figures.
//!
//! Nothing is durable before the sync that ends the file.

use env::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes that stay with the system's cache, at least and at most.
const UNWRITTEN_BYTES_MIN: usize = 256 << 10;
const UNWRITTEN_BYTES_MAX: usize = 2 << 20;

/// Others can wait for this long. Where one step takes longer, it should be worth more bytes.
const STEP_MAX: Duration = Duration::from_millis(2);

/// As it is written past the cache: from memory that is aligned as blocks are.
#[repr(align(4096))]
struct Zeroes([u8; UNWRITTEN_BYTES_MIN]);

static ZEROES: Zeroes = Zeroes([0; UNWRITTEN_BYTES_MIN]);

/// How the writes to one file go.
#[derive(Debug)]
pub(crate) struct Pace {
    unwritten_bytes: usize,
    /// They are written out when there are so many.
    step_bytes: usize,
    /// Whole blocks go to the disk at once and leave nothing in the system's cache.
    is_uncached: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { unwritten_bytes: 0, step_bytes: UNWRITTEN_BYTES_MIN, is_uncached: false }
    }
}

impl Pace {
    /// For what nobody is likely to read soon.
    pub(crate) fn uncached() -> Self {
        Self { is_uncached: true, ..Self::default() }
    }

    /// Writes all of `bytes` at `position`, and writes out as it goes.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn write(&mut self, file: &dyn File, bytes: &[u8], position: u64) -> io::Result<()> {
        let positions = (position..).step_by(UNWRITTEN_BYTES_MIN);
        for (piece, at) in bytes.chunks(UNWRITTEN_BYTES_MIN).zip(positions) {
            if self.is_uncached {
                if file.write_uncached_at(piece, at)? {
                    continue;
                }
            } else {
                file.write_at(piece, at)?;
            }
            self.unwritten_bytes += piece.len();
            if self.unwritten_bytes >= self.step_bytes {
                self.note_step(file.write_out()?);
            }
        }
        Ok(())
    }

    /// Really writes zeroes, so that later writes to the range change no metadata. Where somebody waits, what is left is only
    /// allocated, if the disk can do that.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn write_zeroes(
        &mut self,
        file: &dyn File,
        length: u64,
        is_awaited: &AtomicBool,
    ) -> io::Result<()> {
        let mut at = 0;
        while at < length {
            if is_awaited.load(Ordering::Relaxed) {
                match file.allocate(length) {
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                    allocated => return allocated,
                }
            }
            let count = usize::try_from(length - at).unwrap_or(usize::MAX).min(ZEROES.0.len());
            self.write(file, &ZEROES.0[..count], at)?;
            at += count as u64;
        }
        Ok(())
    }

    fn note_step(&mut self, took: Duration) {
        self.unwritten_bytes = 0;
        let step_bytes = if took > STEP_MAX { self.step_bytes * 2 } else { self.step_bytes / 2 };
        self.step_bytes = step_bytes.clamp(UNWRITTEN_BYTES_MIN, UNWRITTEN_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Disk, MemoryDisk, RealDisk};
    use std::path::Path;
    use std::sync::Arc;

    fn new_file() -> Arc<dyn File> {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new("/d")).unwrap();
        disk.create(Path::new("/d/f")).unwrap()
    }

    #[test]
    fn a_paced_write_is_whole() {
        let file = new_file();
        let length = 2 * UNWRITTEN_BYTES_MIN + 5;
        let bytes: Vec<u8> = (0..length).map(|number| (number % 251) as u8).collect();
        let mut pace = Pace::default();
        pace.write(&*file, &bytes, 7).unwrap();
        pace.write(&*file, &[], 3).unwrap();
        let mut read = vec![9; bytes.len() + 7];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read[..7], [0; 7]);
        assert_eq!(read[7..], bytes);
        assert_eq!(file.len().unwrap(), read.len() as u64);
    }

    #[test]
    fn what_cannot_go_past_the_cache_is_paced_as_usual() {
        let (file, mut pace) = (new_file(), Pace::uncached());
        pace.write(&*file, &[1; 4096], 0).unwrap();
        assert_eq!(pace.unwritten_bytes, 4096);
        pace.write(&*file, &vec![1; UNWRITTEN_BYTES_MIN], 4096).unwrap();
        assert_eq!((pace.unwritten_bytes, file.len().unwrap()), (0, 4096 + (256 << 10)));
    }

    #[test]
    fn zeroes_are_written_to_the_end() {
        let file = new_file();
        let length = 3 * UNWRITTEN_BYTES_MIN as u64 + 7;
        Pace::default().write_zeroes(&*file, length, &AtomicBool::new(false)).unwrap();
        assert_eq!(file.len().unwrap(), length);
    }

    #[test]
    fn what_is_awaited_is_whole_at_once_or_is_written() {
        let length = 3 * UNWRITTEN_BYTES_MIN as u64 + 7;
        let unwritten = |file: &dyn File| {
            let mut pace = Pace::default();
            pace.write_zeroes(file, length, &AtomicBool::new(true)).unwrap();
            assert_eq!(file.len().unwrap(), length);
            pace.unwritten_bytes
        };
        assert_eq!(unwritten(&*new_file()), 0, "nothing was written");
        let heap = MemoryDisk::new().memory_file().unwrap();
        assert_eq!(unwritten(&*heap), 7, "it cannot allocate");
    }

    #[test]
    fn a_step_that_fails_is_an_error_of_the_write() {
        // A device that takes every write and cannot sync.
        let file = RealDisk.open(Path::new("/dev/null")).unwrap();
        let mut pace = Pace::default();
        pace.write(&*file, &vec![0; UNWRITTEN_BYTES_MIN - 1], 0).unwrap();
        assert!(pace.write(&*file, &[0], UNWRITTEN_BYTES_MIN as u64 - 1).is_err());
    }

    #[test]
    fn slow_steps_become_few_and_quick_ones_return() {
        let mut pace = Pace::default();
        let mut bytes_after = |steps: usize, took: Duration| {
            (0..steps).for_each(|_| pace.note_step(took));
            pace.step_bytes
        };
        assert_eq!(bytes_after(1, STEP_MAX), UNWRITTEN_BYTES_MIN);
        assert_eq!(bytes_after(2, STEP_MAX * 2), 4 * UNWRITTEN_BYTES_MIN);
        assert_eq!(bytes_after(1, STEP_MAX / 2), 2 * UNWRITTEN_BYTES_MIN);
        assert_eq!(bytes_after(20, STEP_MAX * 9), UNWRITTEN_BYTES_MAX);
        assert_eq!(bytes_after(20, Duration::ZERO), UNWRITTEN_BYTES_MIN);
    }
}
