//! A disk in memory whose crash loses exactly what a power cut may lose.
//!
//! # Why
//! A test over a real directory can only kill the process, and the page cache survives that. Here
//! written bytes are volatile until [`File::sync_data`] and names until [`Disk::sync_dir`], so a
//! missing sync is found by the first seed that needs it.
//!
//! # Driving it
//! [`MemoryDisk::power_off_after`] makes every operation fail after a count of changes;
//! [`MemoryDisk::crash`] decides what survives and turns the disk on again. Handles and locks from
//! before the crash are dead. Clones share the disk. [`MemoryDisk::make_unreadable`] and
//! [`MemoryDisk::fail`] make a sick disk of it.
//!
//! # Invariants
//! - A sector (512 bytes) is old or new after a crash, never a mixture. If it was being written and the disk
//!   shears sectors ([`MemoryDisk::shear_sectors`]), it may also hold garbage.
//! - Synced bytes under a synced name always survive.
//! - Of the unsynced changes of names a prefix, in the order in which they were made, survives.

mod evicted;
mod faults;
mod heap_file;
mod inode;
mod names;

#[cfg(test)]
mod tests;

pub use faults::DiskOperation;

use crate::disk::{DirLock, Disk, File, LockError};
use crate::random::{Random, SeededRandom};
use faults::{Faults, input_output_error};
use heap_file::HeapFile;
use inode::{CrashMode, Inode, SECTOR_BYTES};
use names::{InodeId, NameChange, Names};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A simulated disk; clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    inodes: BTreeMap<InodeId, Inode>,
    inode_next: InodeId,
    live: Names,
    durable: Names,
    pending: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    /// Counts crashes; a handle or lock of an earlier life is dead.
    life: u64,
    capacity_bytes: Option<u64>,
    copy_on_write: Option<&'static str>,
    syncs_until_failure: Option<u64>,
    /// Syncs answer and do nothing.
    syncs_lie: bool,
    /// A crash may leave garbage in a sector that was being written.
    shears: bool,
    changes_until_off: Option<u64>,
    change_count: u64,
    /// Handles of this life that are open, by file.
    open: BTreeMap<InodeId, u64>,
    removed_count: u64,
    reads: ReadCounts,
    cold: Option<ColdReads>,
    faults: Faults,
}

/// Which reads find their bytes in memory.
#[derive(Debug)]
struct ColdReads {
    percent: u64,
    random: SeededRandom,
}

/// Handles that are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// Of files that have a name.
    pub named: u64,
    /// Of files that were removed or replaced, whose room comes back with the last handle.
    pub removed: u64,
}

/// How often a disk was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Reads that may wait for the device.
    pub waiting: u64,
    /// Reads that take what is in memory, or nothing.
    pub cached: u64,
}

impl ColdReads {
    fn next(&mut self) -> bool {
        self.random.below(100) < self.percent
    }
}

impl State {
    fn close(&mut self, inode: InodeId) {
        if let btree_map::Entry::Occupied(mut count) = self.open.entry(inode) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.changes_until_off == Some(0) {
            return Err(io::Error::other("the simulated disk is off"));
        }
        Ok(())
    }

    fn count_change(&mut self) -> io::Result<()> {
        self.check_power()?;
        self.change_count += 1;
        if let Some(left) = &mut self.changes_until_off {
            *left -= 1;
        }
        Ok(())
    }

    /// Handles and locks die.
    fn end_life(&mut self) {
        self.locks.clear();
        self.life += 1;
        self.open.clear();
        self.syncs_until_failure = None;
        self.changes_until_off = None;
    }

    fn rename(&mut self, change: NameChange) {
        self.live.change(&change);
        self.pending.push(change);
    }

    fn used_bytes(&self) -> u64 {
        let lengths = self.live.files.values().map(|inode| self.inodes[inode].current.len() as u64);
        lengths.sum()
    }

    /// Where changed blocks get new places, these need room.
    fn check_new_place(&self, bytes: u64) -> io::Result<()> {
        let room = || self.capacity_bytes.unwrap_or(u64::MAX).saturating_sub(self.used_bytes());
        let has_room = self.copy_on_write.is_none() || room() >= bytes;
        if has_room { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn inode(&mut self, inode: InodeId) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl MemoryDisk {
    /// An empty disk without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of a test while it held the lock leaves nothing half-changed that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power: unsynced bytes and names are kept, dropped or torn as `random` decides.
    pub fn crash(&self, random: &mut dyn Random) {
        let mut state = self.state();
        let state = &mut *state;
        let mode = match random.next_u64() % 4 {
            0 => CrashMode::DropAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Tear,
        };
        let kept = match mode {
            CrashMode::DropAll => 0,
            CrashMode::KeepAll => state.pending.len(),
            CrashMode::Tear => random.next_u64() as usize % (state.pending.len() + 1),
        };
        for change in &state.pending[..kept] {
            state.durable.change(change);
        }
        state.pending.clear();
        state.live = state.durable.clone();
        let named: BTreeSet<InodeId> = state.live.files.values().copied().collect();
        state.inodes.retain(|inode, _| named.contains(inode));
        for inode in state.inodes.values_mut() {
            inode.crash(mode, state.shears, random);
        }
        state.end_life();
    }

    /// Another disk with what this one has on stable storage: what a loss of power now leaves for certain.
    #[must_use]
    pub fn durable_image(&self) -> Self {
        let state = self.state();
        let names = state.durable.clone();
        let copy = |inode: &InodeId| Some((*inode, state.inodes.get(inode)?.durable_copy()));
        let image = State {
            inodes: names.files.values().filter_map(copy).collect(),
            inode_next: state.inode_next,
            live: names.clone(),
            durable: names,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(image)) }
    }

    /// Ends the process but not the power: everything written stays, handles and locks die.
    pub fn kill_process(&self) {
        self.state().end_life();
    }

    /// After `changes` more writes, syncs and name changes every operation fails; `None`: the power stays on.
    pub fn power_off_after(&self, changes: impl Into<Option<u64>>) {
        self.state().changes_until_off = changes.into();
    }

    /// Whether every operation fails, after [`MemoryDisk::power_off_after`].
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().check_power().is_err()
    }

    /// Writes, syncs and name changes made so far.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.state().change_count
    }

    /// Handles that were not dropped since the last crash or end of a process.
    #[must_use]
    pub fn open_files(&self) -> OpenFiles {
        let state = self.state();
        let mut live: Vec<InodeId> = state.live.files.values().copied().collect();
        live.sort_unstable();
        let mut open = OpenFiles::default();
        for (inode, count) in &state.open {
            let of =
                if live.binary_search(inode).is_ok() { &mut open.named } else { &mut open.removed };
            *of += count;
        }
        open
    }

    /// Files that were removed so far.
    #[must_use]
    pub fn removed_count(&self) -> u64 {
        self.state().removed_count
    }

    /// Reads made so far.
    #[must_use]
    pub fn read_counts(&self) -> ReadCounts {
        self.state().reads
    }

    /// Inverts one bit of a file, in the cache and on stable storage.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, path: &Path, bit: u64) {
        let mut state = self.state();
        let id = state.live.files[path];
        let inode = state.inodes.get_mut(&id).expect("a named inode exists");
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        inode.current[byte] ^= mask;
        if let Some(durable) = inode.durable.get_mut(byte) {
            *durable ^= mask;
        }
    }

    /// The `nth` sync from now (1 is the next) fails and loses what it should have made durable.
    pub fn fail_next_sync(&self, nth: u64) {
        self.state().syncs_until_failure = Some(nth);
    }

    /// Some of what failed syncs have lost is read as it is on stable storage, from now on.
    pub fn evict_lost_writes(&self, random: &mut dyn Random) {
        for inode in self.state().inodes.values_mut() {
            let Inode { lost_writes, current, durable, .. } = inode;
            lost_writes.evict((current, durable), SECTOR_BYTES, random);
        }
    }

    /// From now on syncs succeed without making anything durable, as a disk does that ignores them.
    pub fn lie_about_syncs(&self) {
        self.state().syncs_lie = true;
    }

    /// From now on a crash may leave garbage in sectors that were written and not synced, whatever was in them.
    pub fn shear_sectors(&self) {
        self.state().shears = true;
    }

    /// From now on so many of a hundred reads that must not wait find nothing in memory.
    pub fn forget_cached(&self, percent: u64, seed: u64) {
        self.state().cold = Some(ColdReads { percent, random: SeededRandom::new(seed) });
    }

    /// Writes that would make the files' sum larger than `bytes` fail with `StorageFull`; `None`: there is no limit.
    pub fn set_capacity(&self, bytes: impl Into<Option<u64>>) {
        self.state().capacity_bytes = bytes.into();
    }

    /// The disk reports a file system that writes changed blocks to new places, and needs room for them.
    pub fn set_copy_on_write(&self, file_system: &'static str) {
        self.state().copy_on_write = Some(file_system);
    }

    /// Sum of the lengths of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Every file's path, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state().live.files.keys().cloned().collect()
    }

    /// How many files there are below `dir`.
    #[must_use]
    pub fn file_count(&self, dir: &Path) -> usize {
        let state = self.state();
        let from_here = state.live.files.range(dir.to_path_buf()..);
        from_here.take_while(|(path, _)| path.starts_with(dir)).count()
    }

    /// A block of 4 KiB cannot be read any more, until all of it is written again. It survives crashes. To
    /// write a part of it fails, for the rest would have to be read first.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn make_unreadable(&self, path: &Path, block: u64) {
        let mut state = self.state();
        let id = state.live.files[path];
        let inode = state.inodes.get_mut(&id).expect("a named inode exists");
        inode.unreadable.insert(usize::try_from(block).expect("a block of a file in memory"));
    }

    /// A file can, or cannot, be opened from now on. What has it open keeps it.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn set_openable(&self, path: &Path, is_openable: bool) {
        let mut state = self.state();
        let id = state.live.files[path];
        let inode = state.inodes.get_mut(&id).expect("a named inode exists");
        inode.is_unopenable = !is_openable;
    }

    /// `count` operations of a kind fail, after the next `skip` of them; `None`: all of them, until
    /// [`MemoryDisk::fail_nothing`]. An operation that fails changes nothing.
    pub fn fail(&self, operation: DiskOperation, skip: u64, count: impl Into<Option<u64>>) {
        self.state().faults.set(operation, skip, count.into());
    }

    /// No operation fails any more; blocks that cannot be read stay so.
    pub fn fail_nothing(&self) {
        self.state().faults.clear();
    }

    fn handle(&self, inode: InodeId, state: &mut State) -> Arc<dyn File> {
        *state.open.entry(inode).or_default() += 1;
        Arc::new(MemoryFile { disk: self.clone(), inode, life: state.life })
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        state.check_power()?;
        state.faults.check(DiskOperation::Open)?;
        let inode = *state.live.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        if state.inodes[&inode].is_unopenable {
            return Err(input_output_error());
        }
        Ok(self.handle(inode, &mut state))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        state.count_change()?;
        if state.live.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        if !state.live.dirs.contains(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inode = state.inode_next;
        state.inode_next += 1;
        state.inodes.insert(inode, Inode::default());
        state.rename(NameChange::Link { path: path.to_owned(), inode });
        Ok(self.handle(inode, &mut state))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.count_change()?;
        state.faults.check(DiskOperation::Rename)?;
        if !state.live.files.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.rename(NameChange::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.count_change()?;
        // To find that there is nothing takes no change of the disk.
        if !state.live.files.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.faults.check(DiskOperation::Remove)?;
        state.removed_count += 1;
        state.rename(NameChange::Unlink { path: path.to_owned() });
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        if !self.list(dir)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let mut state = self.state();
        state.count_change()?;
        state.rename(NameChange::RemoveDir { path: dir.to_owned() });
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        state.check_power()?;
        if !state.live.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let paths = state.live.files.keys().chain(&state.live.dirs);
        let names = paths.filter(|path| path.parent() == Some(dir));
        let names = names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.count_change()?;
        let mut missing: Vec<&Path> = dir.ancestors().collect();
        missing.reverse();
        for path in missing {
            if !state.live.dirs.contains(path) {
                state.rename(NameChange::MakeDir { path: path.to_owned() });
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.count_change()?;
        state.faults.check(DiskOperation::SyncDir)?;
        let state = &mut *state;
        let pending = std::mem::take(&mut state.pending);
        for change in pending {
            if change.touches(dir) {
                state.durable.change(&change);
            } else {
                state.pending.push(change);
            }
        }
        Ok(())
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        let mut state = self.state();
        if let Err(error) = state.check_power() {
            return Err(LockError::Io { path: path.to_owned(), error });
        }
        if !state.locks.insert(path.to_owned()) {
            return Err(LockError::Held { path: path.to_owned(), pid: Some(std::process::id()) });
        }
        let (disk, life) = (self.clone(), state.life);
        Ok(DirLock::new(MemoryLock { disk, path: path.to_owned(), life }))
    }

    fn copy_on_write(&self, _dir: &Path) -> io::Result<Option<&'static str>> {
        let state = self.state();
        state.check_power()?;
        Ok(state.copy_on_write)
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state();
        state.check_power()?;
        Ok(state.capacity_bytes.unwrap_or(u64::MAX).saturating_sub(state.used_bytes()))
    }

    fn memory_file(&self) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(HeapFile::default()))
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: MemoryDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    inode: InodeId,
    life: u64,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.close(self.inode);
        }
    }
}

impl MemoryFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        state.check_power()?;
        if state.life != self.life {
            return Err(io::Error::other("this handle is from before the crash"));
        }
        Ok(state)
    }

    fn resize(&self, state: &mut State, length: u64) -> io::Result<()> {
        let old = state.inode(self.inode)?.current.len() as u64;
        let used = state.used_bytes();
        let grown = length.saturating_sub(old);
        if state.capacity_bytes.is_some_and(|capacity| grown > 0 && used + grown > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.inode(self.inode)?.resize(length as usize);
        Ok(())
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        state.reads.waiting += 1;
        state.faults.check(DiskOperation::Read)?;
        state.inode(self.inode)?.read(buffer, position).ok_or_else(input_output_error)
    }

    fn read_stored_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.reads.waiting += 1;
        state.faults.check(DiskOperation::Read)?;
        let read = state.inode(self.inode)?.read_stored(buffer, position);
        let is_whole = read.ok_or_else(input_output_error)? == buffer.len();
        if is_whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        state.reads.cached += 1;
        let is_cold = state.cold.as_mut().is_some_and(ColdReads::next);
        let inode = state.inode(self.inode)?;
        // What cannot be read is not in memory.
        let read = if is_cold { None } else { inode.read(buffer, position) };
        read.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.count_change()?;
        state.check_new_place(bytes.len() as u64)?;
        let end = position + bytes.len() as u64;
        if end > state.inode(self.inode)?.current.len() as u64 {
            self.resize(&mut state, end)?;
        }
        state.inode(self.inode)?.write(bytes, position as usize)
    }

    fn write_pieces_at(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let start = position as usize;
        self.state()?.inode(self.inode)?.begin_write(start..start + length)?;
        let mut at = position;
        for piece in pieces {
            self.write_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state()?;
        state.count_change()?;
        if let Some(left) = &mut state.syncs_until_failure {
            *left -= 1;
            if *left == 0 {
                state.syncs_until_failure = None;
                // The kernel marks the pages clean although they never arrived.
                let inode = state.inode(self.inode)?;
                inode.lost_writes.add(std::mem::take(&mut inode.dirty));
                return Err(io::Error::other("simulated sync failure"));
            }
        }
        if !state.syncs_lie {
            state.inode(self.inode)?.sync();
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.inode(self.inode)?.current.len() as u64)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.count_change()?;
        self.resize(&mut state, length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
