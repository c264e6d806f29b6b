//! The disk of the operating system.

use crate::disk::{DirLock, Disk, File, LockError};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces of a vectored write that need no memory of their own: a commit has five.
const PIECES_FEW: usize = 5;

/// Files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(fs::File);

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
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
        let file = fs::OpenOptions::new()
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
        let mut held = HeldLock(file);
        held.0.set_len(0).map_err(io_error)?;
        writeln!(held.0, "{}", std::process::id()).map_err(io_error)?;
        Ok(DirLock::new(held))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn copy_on_write(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        let magic = u64::try_from(rustix::fs::statfs(dir)?.f_type).unwrap_or(0);
        Ok(COPY_ON_WRITE.into_iter().find(|(known, _)| *known == magic).map(|(_, name)| name))
    }

    fn memory_file(&self) -> io::Result<Arc<dyn File>> {
        let file = rustix::fs::memfd_create("thalweg", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Arc::new(RealFile(file.into())))
    }

    fn allows_threads(&self) -> bool {
        true
    }
}

/// A locked file. It is unlocked when dropped, and not only closed. A child of this process has a copy of every
/// descriptor between its fork and its `exec`, and a lock lasts as long as one of them.
#[derive(Debug)]
struct HeldLock(fs::File);

impl Drop for HeldLock {
    fn drop(&mut self) {
        // A lock that cannot be given back goes with the last descriptor.
        let _ = self.0.unlock();
    }
}

/// File systems that write changed blocks to new places, by the magic numbers of statfs(2).
const COPY_ON_WRITE: [(u64, &str); 3] =
    [(0x9123_683e, "btrfs"), (0x2fc1_2fc1, "ZFS"), (0xca45_1a4e, "bcachefs")];

/// Whether the file has no device behind it: `tmpfs` cannot say what is cached, for all is.
fn is_memory(file: &fs::File) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(TMPFS_MAGIC))
}

/// Alignment of direct reads and writes that every device takes.
const DIRECT_BYTES: usize = 4096;

/// The file once more, past the page cache; `None` where that is not possible.
fn open_direct(file: &fs::File, access: OFlags) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Memory for `length` bytes of a direct read or write, filled up to where they begin.
fn aligned_memory(length: usize) -> Vec<u8> {
    let mut memory: Vec<u8> = Vec::with_capacity(length + DIRECT_BYTES);
    memory.resize(memory.as_ptr().align_offset(DIRECT_BYTES), 0);
    memory
}

/// Writes whole blocks past the page cache; how many bytes were written before that was not possible any more.
fn write_direct(file: &fs::File, bytes: &[u8], position: u64) -> io::Result<usize> {
    let is_between = |place: u64| place.is_multiple_of(DIRECT_BYTES as u64);
    if !is_between(position) || !is_between(bytes.len() as u64) {
        return Ok(0);
    }
    let Some(direct) = open_direct(file, OFlags::WRONLY) else { return Ok(0) };
    let mut memory;
    let aligned = if bytes.as_ptr().align_offset(DIRECT_BYTES) == 0 {
        bytes
    } else {
        memory = aligned_memory(bytes.len());
        let start = memory.len();
        memory.extend_from_slice(bytes);
        &memory[start..]
    };
    let mut written = 0;
    while written < bytes.len() && is_between(written as u64) {
        match rustix::io::pwrite(&direct, &aligned[written..], position + written as u64) {
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => break,
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            count => written += count?,
        }
    }
    Ok(written)
}

/// Reads past the page cache; `None` where that is not possible.
fn read_direct(file: &fs::File, position: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
    let Some(direct) = open_direct(file, OFlags::RDONLY) else { return Ok(None) };
    let skipped = usize::try_from(position % DIRECT_BYTES as u64).expect("below the alignment");
    let wanted = (skipped + length).next_multiple_of(DIRECT_BYTES);
    let mut memory = aligned_memory(wanted);
    let aligned = memory.len();
    memory.resize(aligned + wanted, 0);
    let (buffer, mut filled) = (&mut memory[aligned..], 0);
    let start = position - skipped as u64;
    while filled < skipped + length {
        match rustix::io::pread(&direct, &mut buffer[filled..], start + filled as u64) {
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read?,
        }
    }
    Ok(Some(buffer[skipped..skipped + length].to_vec()))
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            // The C library's `pread` is a cancellation point. In a profile of short single reads it took
            // 16 of 100 samples, and the kernel 46.
            match rustix::io::pread(&self.0, &mut *buffer, position) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn read_stored_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let Some(bytes) = read_direct(&self.0, position, buffer.len())? else {
            // A file system without direct reads. What is in memory and clean is dropped, as far as it can be.
            rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed)?;
            return self.read_exact_at(buffer, position);
        };
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            let mut slices = [io::IoSliceMut::new(buffer)];
            match preadv2(&self.0, &mut slices, position, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if is_memory(&self.0) => {
                    return self.read_at(buffer, position);
                }
                Err(Errno::OPNOTSUPP) => return Err(io::ErrorKind::WouldBlock.into()),
                result => return Ok(result?),
            }
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
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
            match rustix::io::pwritev(&self.0, rest, at) {
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

    fn write_uncached_at(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
        let written = write_direct(&self.0, bytes, position)?;
        self.write_at(&bytes[written..], position + written as u64)?;
        Ok(written == bytes.len())
    }

    fn write_out(&self) -> io::Result<Duration> {
        // `sync_file_range` would not wait, but other files' syncs then do, for longer.
        let start = Instant::now();
        self.sync_data()?;
        Ok(start.elapsed())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| fallocate(&self.0, FallocateFlags::empty(), 0, length))?)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
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
    fn what_is_stored_is_read_at_any_position() {
        let dir = scratch("stored");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
        for (position, length) in [(0, 4096), (1, 1), (4095, 5000), (12_288, 4096), (19_000, 1000)]
        {
            let mut stored = vec![0; length];
            file.read_stored_exact_at(&mut stored, position as u64).unwrap();
            assert_eq!(
                stored,
                bytes[position..position + length],
                "{length} bytes from {position}"
            );
        }
        assert!(file.read_stored_exact_at(&mut [0; 100], 19_990).is_err());
        fs::remove_dir_all(&dir).unwrap();
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
    fn what_is_written_past_the_cache_is_read_and_is_not_in_it() {
        let dir = scratch("uncached");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
        file.write_at(&bytes[..4096], 0).unwrap();
        // From memory that is aligned as blocks are, and from memory that is not.
        let start = bytes.as_ptr().align_offset(DIRECT_BYTES);
        for (from, position) in [(start, 4096_u64), (start + 1, 12_288)] {
            file.write_uncached_at(&bytes[from..from + 8192], position).unwrap();
            let mut read = vec![0; 8192];
            file.read_exact_at(&mut read, position).unwrap();
            assert_eq!(read, bytes[from..from + 8192]);
        }
        assert_eq!(file.len().unwrap(), 20_480);
        let other = RealDisk.create(&dir.join("g")).unwrap();
        let is_uncached = other.write_uncached_at(&bytes[..8192], 0).unwrap();
        if !is_memory(&fs::File::open(&dir).unwrap()) {
            assert!(is_uncached && !other.are_ends_cached(0, 8192), "nothing was kept in memory");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_does_not_end_between_blocks_is_written_all_the_same() {
        let dir = scratch("unaligned");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        for (bytes, position) in [(vec![1; 5000], 0), (vec![2; 4096], 5000)] {
            assert!(!file.write_uncached_at(&bytes, position).unwrap());
        }
        file.write_uncached_at(&[], 4096).unwrap();
        let mut read = vec![9; 9096];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!((&read[..5000], &read[5000..]), (&[1; 5000][..], &[2; 4096][..]));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_allocated_reads_as_zeroes_and_is_there() {
        use std::os::unix::fs::MetadataExt;
        let dir = scratch("allocated");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        file.write_at(b"first", 0).unwrap();
        file.allocate(100_000).unwrap();
        let mut read = [9; 8];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"first\0\0\0");
        file.read_exact_at(&mut read, 99_992).unwrap();
        assert_eq!(read, [0; 8]);
        let metadata = fs::metadata(dir.join("f")).unwrap();
        assert_eq!(metadata.len(), 100_000);
        assert!(metadata.blocks() * 512 >= 100_000, "blocks of its own");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_cached_is_read_without_waiting() {
        let dir = scratch("cached");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        file.write_at(&[7; 9000], 0).unwrap();
        file.sync_data().unwrap();
        let mut bytes = [0; 5];
        file.read_cached_exact_at(&mut bytes, 8995).unwrap();
        assert_eq!(bytes, [7; 5]);
        assert!(file.are_ends_cached(0, 9000), "it was just written");
        let end = file.read_cached_exact_at(&mut bytes, 8996).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_not_cached_is_not_waited_for() {
        let dir = scratch("cold");
        let file = RealDisk.create(&dir.join("f")).unwrap();
        file.write_at(&[7; 64 << 10], 0).unwrap();
        file.sync_data().unwrap();
        rustix::fs::fadvise(file.as_fd().unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        // A file system without a device has nothing to drop.
        if !is_memory(&fs::File::open(dir.join("f")).unwrap()) {
            let cold = file.read_cached_at(&mut [0; 5], 0).unwrap_err();
            assert_eq!(cold.kind(), io::ErrorKind::WouldBlock);
        }
        let mut bytes = [0; 64 << 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert!(file.are_ends_cached(0, 64 << 10), "a read has brought it in");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn written_bytes_that_cannot_be_brought_out_are_an_error() {
        // A device that takes every write and cannot sync.
        let file = RealDisk.open(Path::new("/dev/null")).unwrap();
        file.write_at(b"x", 0).unwrap();
        assert!(file.write_out().is_err());
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

    #[test]
    fn a_lock_is_free_although_a_child_has_a_copy_of_its_descriptor() {
        let dir = scratch("child");
        let file = fs::File::create(dir.join("LOCK")).unwrap();
        file.try_lock().unwrap();
        // What fork gives to a child: another descriptor of the same open file.
        let of_child = file.try_clone().unwrap();
        drop(HeldLock(file));
        RealDisk.lock_dir(&dir.join("LOCK")).unwrap();
        drop(of_child);
        fs::remove_dir_all(&dir).unwrap();
    }
}
