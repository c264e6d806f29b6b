//! Writes whose sync may take longer, at a pace that keeps the syncs of other files short.
//!
//! With a single sync at the end, the next sync of any other file would wait for all of it. Beside 64 MiB, a
//! write and `fdatasync` of 4 KiB took up to 44 ms on ext4, and up to 1 ms in this way. So written bytes go to
//! the disk after each 256 KiB. Where even a small sync takes long, the pieces grow.
//! `docs/adr/0007-paced-background-writes.md` has the figures.
//!
//! Nothing is durable before the sync that ends the file.

use crate::options::BLOCK_BYTES;
use env::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// The zeroes for one batch may take the disk so long. Without them its `fdatasync` changes metadata, too, and nothing is written
/// beside it.
const BATCH_TIME_MAX: Duration = Duration::from_millis(1);

/// And so many times what a short write takes: a disk that is slow because of the number of writes does not get more of them.
const BATCH_WRITES_MAX: f64 = 4.0;

/// After so many bytes it is known how long they take.
const TIMED_BYTES_MIN: u64 = 4 << 20;

/// The first block of so many bytes is written alone.
const SHORT_WRITE_EVERY: u64 = 1 << 20;

/// When the zeroes of a new segment may end, as the log sees it.
#[derive(Debug, Default)]
pub(crate) struct ZeroesEnd {
    /// Something waits for the segment.
    is_awaited: AtomicBool,
    /// Bytes of a batch, on average, while much is written.
    batch_bytes: AtomicU64,
}

impl ZeroesEnd {
    pub(crate) fn note(&self, is_awaited: bool, batch_bytes: u64) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        self.batch_bytes.store(batch_bytes, Ordering::Relaxed);
    }

    fn is_due(&self, times: &WriteTimes) -> bool {
        let batch_bytes = self.batch_bytes.load(Ordering::Relaxed) as f64;
        let is_costly = || {
            let batch_seconds = batch_bytes * times.byte_seconds();
            batch_seconds > BATCH_TIME_MAX.as_secs_f64()
                && batch_seconds > BATCH_WRITES_MAX * times.short.mean_seconds()
        };
        self.is_awaited.load(Ordering::Relaxed)
            || times.long.bytes >= TIMED_BYTES_MIN && is_costly()
    }
}

/// How long the disk took for some writes past the system's cache.
#[derive(Debug, Default)]
struct Timed {
    count: u32,
    bytes: u64,
    took: Duration,
}

impl Timed {
    fn add(&mut self, bytes: usize, took: Duration) {
        self.count += 1;
        self.bytes += bytes as u64;
        self.took += took;
    }

    fn mean_seconds(&self) -> f64 {
        self.took.as_secs_f64() / f64::from(self.count.max(1))
    }
}

/// How long the zeroes of a file took.
#[derive(Debug, Default)]
struct WriteTimes {
    /// Single blocks.
    short: Timed,
    long: Timed,
}

impl WriteTimes {
    /// What a byte takes beside what each write takes, however short.
    fn byte_seconds(&self) -> f64 {
        let each = self.short.mean_seconds() * f64::from(self.long.count);
        (self.long.took.as_secs_f64() - each) / self.long.bytes.max(1) as f64
    }
}

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

    /// Writes all of `bytes` at `position`, and writes out as it goes. How long it took as far as it was past the system's cache.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn write(
        &mut self,
        file: &dyn File,
        bytes: &[u8],
        position: u64,
    ) -> io::Result<Duration> {
        let mut took = Duration::ZERO;
        let positions = (position..).step_by(UNWRITTEN_BYTES_MIN);
        for (piece, at) in bytes.chunks(UNWRITTEN_BYTES_MIN).zip(positions) {
            if self.is_uncached {
                if let Some(time) = file.write_uncached_at(piece, at)? {
                    took += time;
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
        Ok(took)
    }

    /// Really writes zeroes, so that later writes to the range change no metadata. Once they may end, what is left is only
    /// allocated, if the disk can do that.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn write_zeroes(
        &mut self,
        file: &dyn File,
        length: u64,
        end: &ZeroesEnd,
    ) -> io::Result<()> {
        let (mut at, mut times) = (0, WriteTimes::default());
        while at < length {
            if end.is_due(&times) {
                match file.allocate(length) {
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                    allocated => return allocated,
                }
            }
            let is_short = at.is_multiple_of(SHORT_WRITE_EVERY);
            let piece_bytes = UNWRITTEN_BYTES_MIN as u64;
            let usual = if is_short { BLOCK_BYTES } else { piece_bytes - at % piece_bytes };
            let count = usize::try_from((length - at).min(usual)).expect("a piece is short");
            let took = self.write(file, &ZEROES.0[..count], at)?;
            let timed = if is_short { &mut times.short } else { &mut times.long };
            timed.add(count, took);
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
    use env::{Disk, FileOverlay, MemoryDisk, RealDisk};
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
        Pace::default().write_zeroes(&*file, length, &ZeroesEnd::default()).unwrap();
        assert_eq!(file.len().unwrap(), length);
    }

    #[test]
    fn what_is_awaited_is_whole_at_once_or_is_written() {
        let length = 3 * UNWRITTEN_BYTES_MIN as u64 + 7;
        let unwritten = |file: &dyn File| {
            let (mut pace, worth) = (Pace::default(), ZeroesEnd::default());
            worth.note(true, 0);
            pace.write_zeroes(file, length, &worth).unwrap();
            assert_eq!(file.len().unwrap(), length);
            pace.unwritten_bytes
        };
        assert_eq!(unwritten(&*new_file()), 0, "nothing was written");
        let heap = MemoryDisk::new().memory_file().unwrap();
        assert_eq!(unwritten(&*heap), 7, "it cannot allocate");
    }

    /// A file on a disk that takes so long for each write and for each MiB.
    #[derive(Debug)]
    struct SlowFile {
        below: Arc<dyn File>,
        each: Duration,
        mib: Duration,
        written_bytes: AtomicU64,
    }

    impl FileOverlay for SlowFile {
        fn below(&self) -> &dyn File {
            &*self.below
        }

        fn uncached_time(&self, length: usize) -> Option<Duration> {
            self.written_bytes.fetch_add(length as u64, Ordering::Relaxed);
            Some(self.each + self.mib * u32::try_from(length >> 12).unwrap() / 256)
        }
    }

    /// Whether all zeroes are written for batches of so many KiB.
    fn are_written(batch_kib: u64, (each_micros, mib_micros): (u64, u64)) -> bool {
        let (each, mib) = (Duration::from_micros(each_micros), Duration::from_micros(mib_micros));
        let file = SlowFile { below: new_file(), each, mib, written_bytes: AtomicU64::new(0) };
        let (length, end) = (TIMED_BYTES_MIN * 2 + 4096, ZeroesEnd::default());
        end.note(false, batch_kib << 10);
        Pace::uncached().write_zeroes(&file, length, &end).unwrap();
        assert_eq!(File::len(&file).unwrap(), length);
        let written_bytes = file.written_bytes.into_inner();
        assert!(written_bytes == length || written_bytes < TIMED_BYTES_MIN + (1 << 20));
        written_bytes == length
    }

    #[test]
    fn zeroes_end_where_those_for_a_batch_take_too_long() {
        // 4 ms for a MiB: one is enough for 256 KiB.
        for (batch_kib, is_whole) in [(0, true), (250, true), (262, false), (4096, false)] {
            assert_eq!(are_written(batch_kib, (50, 4000)), is_whole, "{batch_kib} KiB");
        }
        assert!(are_written(1000, (50, 1000)) && !are_written(1050, (50, 1000)));
    }

    #[test]
    fn zeroes_stay_where_each_write_takes_long_however_short_it_is() {
        // 20 ms for five writes of a MiB, as above with 4 ms a MiB; but it is their number.
        assert!(are_written(512, (4000, 400)) && are_written(4096, (4000, 400)));
        assert!(are_written(512, (600, 4000)), "2 ms are no more than four writes");
        assert!(!are_written(1024, (600, 4000)));
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
