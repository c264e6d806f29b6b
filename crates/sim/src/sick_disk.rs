//! A disk under a defect, which changes or hides its errors.

use crate::mutant::Mutant;
use env::{DirLock, Disk, File, FileOverlay, LockError, MemoryDisk, is_unreadable};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const BLOCK_BYTES: u64 = 4096;

/// What a defect writes again before each write.
const REWRITTEN_BYTES: u64 = 16 * BLOCK_BYTES;

/// Blocks that failed once, by the path that the file had when it was opened.
type Failed = Arc<Mutex<BTreeSet<(PathBuf, u64)>>>;

/// A rename of a chunk, which is undone for a while.
#[derive(Debug, Default)]
struct Rename {
    names: Option<(PathBuf, PathBuf)>,
    /// Files that were removed since.
    removals: u32,
    is_undone: bool,
}

type Late = Arc<Mutex<Rename>>;

/// The removal at which it is undone: only a crash inside the job shows that.
const UNDONE_AT: u32 = 1;

/// A disk in memory with a [`Mutant`] between it and the log.
#[derive(Debug)]
pub(crate) struct SickDisk {
    below: MemoryDisk,
    mutant: Mutant,
    failed: Failed,
    late: Late,
    /// What stays open, or could not be opened.
    files: Mutex<SickFiles>,
}

#[derive(Debug, Default)]
struct SickFiles {
    open: Vec<Arc<dyn File>>,
    unopened: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct SickFile {
    disk: MemoryDisk,
    late: Late,
    below: Arc<dyn File>,
    path: PathBuf,
    mutant: Mutant,
    failed: Failed,
}

impl SickDisk {
    pub(crate) fn new(below: MemoryDisk, mutant: Mutant) -> Self {
        let (failed, late, files) = (Failed::default(), Late::default(), Mutex::default());
        Self { below, mutant, failed, late, files }
    }

    fn wrap(&self, path: &Path, below: Arc<dyn File>) -> Arc<dyn File> {
        let (path, failed) = (path.to_owned(), Arc::clone(&self.failed));
        let (disk, late) = (self.below.clone(), Arc::clone(&self.late));
        Arc::new(SickFile { disk, late, below, path, mutant: self.mutant, failed })
    }

    fn open_below(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mutant == Mutant::StickyOpens && files.unopened.contains(path) {
            const EIO: i32 = 5;
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let opened = self.below.open(path);
        match (&opened, self.mutant) {
            (Err(error), Mutant::StickyOpens) if is_unreadable(error) => {
                files.unopened.insert(path.to_owned());
            }
            // The second attempt hears no more of the device.
            (Err(error), Mutant::BrittleSegments)
                if is_unreadable(error)
                    && is_segment(path)
                    && !files.unopened.insert(path.to_owned()) =>
            {
                return Err(any_error());
            }
            (Ok(file), Mutant::KeptFiles) => files.open.push(Arc::clone(file)),
            _ => {}
        }
        opened
    }

    /// What the log hears of a name that could not be given or made durable.
    fn brittle_name(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::BrittleSyncs => {
                Err(any_error())
            }
            result => result,
        }
    }

    /// Whether a block of a file of this directory cannot be read.
    fn has_unreadable(&self, dir: &Path) -> bool {
        self.below.list(dir).into_iter().flatten().any(|name| {
            let Ok(file) = self.below.open(&dir.join(name)) else { return false };
            let length = usize::try_from(file.len().unwrap_or(0)).expect("it is in memory");
            file.read_exact_at(&mut vec![0; length], 0).is_err_and(|error| is_unreadable(&error))
        })
    }

    fn brittle<T>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::BrittleNames => {
                Err(any_error())
            }
            result => result,
        }
    }

    /// What the log hears of a change of names.
    fn answer(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::SwallowedErrors => Ok(()),
            result => result,
        }
    }
}

/// Does what is late.
fn catch_up(disk: &MemoryDisk, late: &Late) -> io::Result<()> {
    let late = std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner));
    late.names.filter(|_| late.is_undone).map_or(Ok(()), |(from, to)| disk.rename(&from, &to))
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "wal")
}

fn any_error() -> io::Error {
    io::Error::other("any error")
}

impl SickFile {
    fn is_zeroed(&self) -> bool {
        self.mutant == Mutant::ZeroedReads && self.path.starts_with("/data/chunks")
    }

    fn rewrite_before(&self, position: u64) -> io::Result<()> {
        let start = position.saturating_sub(REWRITTEN_BYTES);
        let mut bytes = vec![0; usize::try_from(position - start).expect("few blocks")];
        if bytes.is_empty() {
            return Ok(());
        }
        self.below.read_exact_at(&mut bytes, start)?;
        self.below.write_at(&bytes, start)
    }
}

impl FileOverlay for SickFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        catch_up(&self.disk, &self.late)?;
        let first = position / BLOCK_BYTES;
        let last = (position + buffer.len() as u64).div_ceil(BLOCK_BYTES);
        let block = |number: u64| (self.path.clone(), number);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.range(block(first)..block(last)).next().is_some() {
            const EIO: i32 = 5;
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let read = self.below.read_at(buffer, position);
        match read {
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::BrittleReads => {
                Err(any_error())
            }
            Err(error) if is_unreadable(&error) && self.is_zeroed() => {
                buffer.fill(0);
                Ok(buffer.len())
            }
            Err(error) if is_unreadable(&error) && self.mutant == Mutant::StickyReads => {
                failed.extend((first..last).map(block));
                Err(error)
            }
            read => read,
        }
    }

    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        catch_up(&self.disk, &self.late)?;
        if self.mutant == Mutant::RewrittenBlocks && self.path.starts_with("/data/wal") {
            self.rewrite_before(position)?;
        }
        // Headers, payload, list, padding and copy.
        if let (Mutant::LostLists, [headers, payload, list, padding, copy]) = (self.mutant, pieces)
        {
            let zeroes = vec![0; list.len()];
            return self
                .below
                .write_pieces_at(&[headers, payload, &zeroes, padding, copy], position);
        }
        self.below.write_pieces_at(pieces, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.below.sync_data();
        if self.mutant == Mutant::RetriedSync {
            synced.or_else(|_| self.below.sync_data())
        } else {
            synced
        }
    }
}

impl Disk for SickDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        catch_up(&self.below, &self.late)?;
        Ok(self.wrap(path, self.brittle(self.open_below(path))?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        catch_up(&self.below, &self.late)?;
        Ok(self.wrap(path, self.below.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        catch_up(&self.below, &self.late)?;
        let is_chunk = to.extension().is_some_and(|extension| extension == "chunk");
        if is_chunk && self.mutant == Mutant::LateRename {
            let names = Some((from.to_owned(), to.to_owned()));
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            *late = Rename { names, ..Rename::default() };
        }
        self.answer(self.brittle_name(self.below.rename(from, to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let is_chunk = path.extension().is_some_and(|extension| extension == "chunk");
        if is_chunk && self.mutant == Mutant::KeptChunks {
            return Ok(());
        }
        let is_half_written = path.extension().is_some_and(|extension| extension == "tmp");
        if is_half_written
            && self.mutant == Mutant::BrittleLeftovers
            && self.has_unreadable(path.parent().expect("a file is in a directory"))
        {
            return Err(any_error());
        }
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.removals += 1;
        if late.removals == UNDONE_AT
            && let Some((from, to)) = late.names.clone()
        {
            self.below.rename(&to, &from)?;
            late.is_undone = true;
        }
        self.answer(self.brittle(self.below.remove(path)))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.below.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        catch_up(&self.below, &self.late)?;
        self.below.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let is_undone = self.late.lock().unwrap_or_else(PoisonError::into_inner).is_undone;
        if is_undone {
            catch_up(&self.below, &self.late)?;
        }
        self.answer(self.brittle_name(self.below.sync_dir(dir)))
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        self.below.lock_dir(path)
    }

    fn copy_on_write(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        self.below.copy_on_write(dir)
    }

    fn memory_file(&self) -> io::Result<Arc<dyn File>> {
        self.below.memory_file()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        if self.mutant == Mutant::NoReserve {
            return Ok(u64::MAX);
        }
        if self.mutant == Mutant::NoMerges && dir.starts_with("/data/chunks") {
            return Ok(0);
        }
        self.below.free_bytes(dir)
    }
}
