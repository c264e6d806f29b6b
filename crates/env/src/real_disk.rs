//! The disk of the operating system.

use crate::disk::{DirLock, Disk, File, LockError};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pieces of a vectored write that need no memory of their own: a commit has four.
const PIECES_FEW: usize = 4;

/// Bytes that paced writes leave to the next sync, at least and at most.
const PACE_BYTES_MIN: usize = 256 << 10;
const PACE_BYTES_MAX: usize = 2 << 20;

/// A sync within this much is soon enough for others that wait; one beyond it is worth more bytes.
const PACED_SYNC: Duration = Duration::from_millis(2);

/// Files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    pace: Mutex<Pace>,
}

/// How paced writes to a file go.
#[derive(Debug)]
struct Pace {
    unsynced_bytes: usize,
    /// A sync follows when so many are unsynced.
    sync_bytes: usize,
}

impl Pace {
    fn note_sync(&mut self, took: Duration) {
        self.unsynced_bytes = 0;
        let sync_bytes = if took > PACED_SYNC { self.sync_bytes * 2 } else { self.sync_bytes / 2 };
        self.sync_bytes = sync_bytes.clamp(PACE_BYTES_MIN, PACE_BYTES_MAX);
    }
}

impl RealFile {
    fn new(file: fs::File) -> Self {
        let pace = Pace { unsynced_bytes: 0, sync_bytes: PACE_BYTES_MIN };
        Self { file, pace: Mutex::new(pace) }
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        let io_error = |error| LockError::Io { path: path.to_owned(), error };
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
                return Err(LockError::Held { path: path.to_owned(), pid });
            }
            Err(fs::TryLockError::Error(error)) => return Err(io_error(error)),
        }
        file.set_len(0).map_err(io_error)?;
        writeln!(file, "{}", std::process::id()).map_err(io_error)?;
        Ok(DirLock::new(file))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            // The C library's `pread` is a cancellation point. In a profile of short single reads it took
            // 16 of 100 samples, and the kernel 46.
            match rustix::io::pread(&self.file, &mut *buffer, position) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        let (mut few, mut many) = ([io::IoSlice::new(&[]); PIECES_FEW], Vec::new());
        let mut rest = match few.get_mut(..pieces.len()) {
            Some(few) => few,
            None => {
                many.resize(pieces.len(), io::IoSlice::new(&[]));
                &mut many[..]
            }
        };
        rest.iter_mut().zip(pieces).for_each(|(slice, piece)| *slice = io::IoSlice::new(piece));
        let mut at = position;
        // An empty first slice would make a write of 0 bytes look like a full device.
        io::IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.file, rest, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count as u64;
                    io::IoSlice::advance_slices(&mut rest, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Syncs after every piece. With a single sync at the end, the next sync of any other file would wait
    /// for all of it. Beside 64 MiB, a write and `fdatasync` of 4 KiB took up to 44 ms on ext4, and up
    /// to 1 ms in this way. Where even a small sync takes long, the pieces grow.
    fn write_paced(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let positions = (position..).step_by(PACE_BYTES_MIN);
        for (piece, at) in bytes.chunks(PACE_BYTES_MIN).zip(positions) {
            self.write_at(piece, at)?;
            pace.unsynced_bytes += piece.len();
            if pace.unsynced_bytes >= pace.sync_bytes {
                let start = Instant::now();
                self.sync_data()?;
                pace.note_sync(start.elapsed());
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("thalweg-env-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn pieces_are_written_one_after_the_other() {
        let dir = scratch("pieces");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        file.write_pieces_at(&[b"", b"ab", b"", b"cde"], 3).unwrap();
        file.sync_data().unwrap();
        let mut bytes = [9; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\0\0abcde");
        assert_eq!(
            file.read_exact_at(&mut bytes, 1).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        assert!(RealDisk.free_bytes(&dir).unwrap() > 0);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_paced_write_is_whole() {
        let dir = scratch("paced");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        let length = 2 * PACE_BYTES_MIN + 5;
        let bytes: Vec<u8> = (0..length).map(|number| (number % 251) as u8).collect();
        file.write_paced(&bytes, 7).unwrap();
        file.write_paced(&[], 3).unwrap();
        let mut read = vec![9; bytes.len() + 7];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read[..7], [0; 7]);
        assert_eq!(read[7..], bytes);
        assert_eq!(file.len().unwrap(), read.len() as u64);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_sync_that_fails_in_between_is_reported() {
        // A device that takes every write and cannot sync.
        let file = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        let file = RealFile::new(file);
        file.write_paced(&vec![0; PACE_BYTES_MIN - 1], 0).unwrap();
        assert!(file.write_paced(&[0], PACE_BYTES_MIN as u64 - 1).is_err());
    }

    #[test]
    fn slow_syncs_become_few_and_quick_ones_return() {
        let file = RealFile::new(fs::File::open("/dev/null").unwrap());
        let mut pace = file.pace.lock().unwrap();
        let mut bytes_after = |syncs: usize, took: Duration| {
            (0..syncs).for_each(|_| pace.note_sync(took));
            pace.sync_bytes
        };
        assert_eq!(bytes_after(1, PACED_SYNC), PACE_BYTES_MIN);
        assert_eq!(bytes_after(2, PACED_SYNC * 2), 4 * PACE_BYTES_MIN);
        assert_eq!(bytes_after(1, PACED_SYNC / 2), 2 * PACE_BYTES_MIN);
        assert_eq!(bytes_after(20, PACED_SYNC * 9), PACE_BYTES_MAX);
        assert_eq!(bytes_after(20, Duration::ZERO), PACE_BYTES_MIN);
    }

    #[test]
    fn a_second_lock_names_the_holder() {
        let dir = scratch("lock");
        let held = RealDisk.lock_dir(&dir.join("LOCK")).unwrap();
        match RealDisk.lock_dir(&dir.join("LOCK")) {
            Err(LockError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("a held lock was given away: {other:?}"),
        }
        drop(held);
        RealDisk.lock_dir(&dir.join("LOCK")).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
