//! A snapshot takes the place of a group's log.
//!
//! # Driving it
//! An [`Install`] may go to another thread: [`Install::prepare`], then each file is written. A job of the shard's background
//! work checks all that was received, and commits.
//!
//! # Invariants
//! - One commit point: the checkpoint has its name. All else was durable before, or follows from it.
//! - Nothing is committed that is not whole. Each byte is compared with its checksum. Each byte that a row of the
//!   checkpoint names is in a chunk, unless the sender has trimmed it.
//! - Once the checkpoint may have its name, the job is offered again until all is done: nobody knows what a crash would leave.

use crate::checkpoint::{CheckpointFile, CheckpointTask, LoadedCheckpoint, checkpoint_path};
use crate::checkpoint_rows::{CheckpointRow, CheckpointRows};
use crate::chunk::file::{ChunkFile, OpenedChunk};
use crate::chunk::floors::GONE;
use crate::chunk::list::ChunkList;
use crate::chunk::writer::chunk_path;
use crate::id_map::IdMap;
use crate::paced::Pace;
use crate::paths::{checkpoint_dir, chunk_dir};
use crate::snapshot::coverage::Coverage;
use crate::snapshot::parts::{part_path, received_checkpoint, remove_parts, rename_part};
use crate::snapshot::sift::remove_asides;
use crate::snapshot::{RowEnds, SnapshotHead, is_intact};
use crate::store::Store;
use crate::unreadable::cannot_open;
use crate::wal::room::NoRoom;
use env::{Disk, File};
use model::{ByteOffset, EntryIndex, GroupId, StreamId, Term};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a snapshot is not installed. Nothing has changed.
#[derive(Debug)]
pub enum InstallError {
    /// The group has one voter, or what its replica has promised is not durable yet.
    NotReplicated,
    /// The replica has as much already.
    NotNewer {
        /// The last entry that it knows as committed.
        committed: EntryIndex,
    },
    /// Another one is on its way.
    Busy,
    /// Entries of the group are not durable yet: sync first.
    Unsynced,
    /// The group has had so many that they cannot be counted any more: the replica needs another directory.
    TooMany,
    /// A file is not what the sender has: it is damaged, or of something else.
    Damaged {
        /// The file.
        file: PathBuf,
    },
    /// Bytes of a stream are neither here nor in the snapshot. Ask for one as if there was nothing here.
    Missing {
        /// The stream.
        stream: StreamId,
        /// The first byte.
        from: ByteOffset,
    },
    /// The disk has refused.
    Io(io::Error),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReplicated => f.write_str("the group has no durable note"),
            Self::NotNewer { committed } => {
                write!(f, "the replica has all entries up to {committed} already")
            }
            Self::Busy => f.write_str("another snapshot of the group is on its way"),
            Self::Unsynced => f.write_str("entries of the group are not durable yet"),
            Self::TooMany => f.write_str("the group has had too many snapshots"),
            Self::Damaged { file } => {
                write!(f, "{} is not what the sender has", file.display())
            }
            Self::Missing { stream, from } => {
                write!(f, "the bytes of stream {stream} from {from} on are missing")
            }
            Self::Io(error) => write!(f, "the disk refused: {error}"),
        }
    }
}

impl std::error::Error for InstallError {}

impl From<io::Error> for InstallError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a group knows of a snapshot that is on its way.
#[derive(Debug)]
pub(crate) enum Installing {
    /// Its files come.
    Open,
    /// All are there.
    Ready(Box<InstallTask>),
    /// A job has them.
    Running,
}

/// A snapshot whose files are written.
#[derive(Debug)]
pub struct Install {
    /// What the sender has said.
    pub head: SnapshotHead,
    /// With the lock of the directory.
    store: Store,
    dir: PathBuf,
    /// Snapshots of the group, this one included.
    installs: u16,
    /// The number of its first chunk; the others follow.
    first_number: u64,
    /// The bytes of the checkpoint, if they do not come from elsewhere.
    own_checkpoint: Option<Vec<u8>>,
}

/// A file of a snapshot that is written from its first byte to its last.
#[derive(Debug)]
pub struct InstallFile {
    file: Arc<dyn File>,
    pace: Pace,
    written: u64,
    bytes: u64,
}

/// A snapshot that was installed: the owner begins again with its rows.
#[derive(Debug)]
pub struct Installed {
    /// The group.
    pub group: GroupId,
    /// The last entry that it covers.
    pub index: EntryIndex,
    /// The term of that entry.
    pub term: Term,
    checkpoint: LoadedCheckpoint,
}

impl Installed {
    /// Length of the checkpoint.
    pub(crate) fn bytes(&self) -> u64 {
        self.checkpoint.file_bytes()
    }

    /// The owner's header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.checkpoint.header
    }

    /// The rows, in order of their streams.
    pub fn rows(&self) -> impl Iterator<Item = CheckpointRow<'_>> {
        self.checkpoint.rows()
    }
}

impl Install {
    pub(crate) fn new(
        store: Store,
        head: SnapshotHead,
        (installs, first_number): (u16, u64),
    ) -> Self {
        let dir = chunk_dir(&store.root, head.group.get());
        Self { head, store, dir, installs, first_number, own_checkpoint: None }
    }

    /// The same with a checkpoint that the job writes, and no other file.
    pub(crate) fn with_checkpoint(self, bytes: Vec<u8>) -> Self {
        Self { own_checkpoint: Some(bytes), ..self }
    }

    fn write_own(&self) -> Result<(), InstallError> {
        let Some(bytes) = &self.own_checkpoint else { return Ok(()) };
        self.prepare()?;
        let mut file = self.create(0)?;
        file.write(bytes)?;
        Ok(file.finish()?)
    }

    /// Removes what is left of earlier ones. Run it before a file is made.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub fn prepare(&self) -> io::Result<()> {
        remove_parts(&*self.store.disk, &self.dir)
    }

    /// Makes the file for a file of the export, by its number there.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    ///
    /// # Panics
    /// If the export has none with this number.
    pub fn create(&self, number: usize) -> io::Result<InstallFile> {
        let (path, bytes) = match number.checked_sub(1) {
            None => (received_checkpoint(&self.dir), self.head.checkpoint_bytes),
            Some(chunk) => {
                let number = self.first_number + chunk as u64;
                (part_path(&self.dir, number, self.installs), self.head.chunk_bytes[chunk])
            }
        };
        let file = self.store.disk.create(&path)?;
        Ok(InstallFile { file, pace: Pace::default(), written: 0, bytes })
    }
}

impl InstallFile {
    /// How many bytes are there.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// `InvalidData` if the file would be longer than the sender has said, or any error of the underlying disk.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > self.bytes - self.written {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.pace.write(&*self.file, bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// `UnexpectedEof` if something is missing, or any error of the underlying disk.
    pub fn finish(self) -> io::Result<()> {
        if self.written < self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.sync_all()
    }
}

/// How far an install is.
#[derive(Debug)]
enum Stage {
    Check,
    /// All is there and whole: the checkpoint may have its name.
    Commit(Box<Checked>),
}

#[derive(Debug)]
struct Checked {
    checkpoint: CheckpointTask,
    loaded: LoadedCheckpoint,
    floors: Vec<(u64, u64)>,
}

/// Checks what was received, and commits it.
#[derive(Debug)]
pub(crate) struct InstallTask {
    install: Install,
    ends: RowEnds,
    /// The number that its first chunk gets: a higher one than that of any chunk which is here.
    first_number: u64,
    /// Those of the group when it begins.
    pub(crate) chunks: Arc<ChunkList>,
    stage: Stage,
}

/// What an install has come to.
#[derive(Debug)]
pub(crate) enum InstallEnd {
    Done(Box<InstallDone>),
    Refused(InstallError),
    /// It may have been committed: it must be tried again.
    Again(Box<InstallTask>, io::Error),
}

#[derive(Debug)]
pub(crate) struct InstallDone {
    pub(crate) installed: Installed,
    pub(crate) chunks: Vec<Arc<ChunkFile>>,
    /// Where what is kept of streams begins.
    pub(crate) floors: Vec<(u64, u64)>,
}

impl InstallTask {
    /// The snapshot's chunks get the numbers from `first_number` on.
    pub(crate) fn new(install: Install, first_number: u64, ends: RowEnds) -> Self {
        Self { install, ends, first_number, chunks: Arc::default(), stage: Stage::Check }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.install.head.group
    }

    pub(crate) fn run(mut self: Box<Self>, disk: &dyn Disk) -> InstallEnd {
        let checked = match std::mem::replace(&mut self.stage, Stage::Check) {
            Stage::Commit(checked) => checked,
            Stage::Check => {
                let ready = self.install.write_own().and_then(|()| self.renumber(disk));
                match ready.and_then(|()| self.check(disk)) {
                    Ok(checked) => Box::new(checked),
                    Err(error) => return InstallEnd::Refused(error),
                }
            }
        };
        match self.commit(&checked.checkpoint, disk) {
            Ok(chunks) => {
                let Checked { loaded: checkpoint, floors, .. } = *checked;
                let SnapshotHead { group, index, term, .. } = self.install.head;
                let installed = Installed { group, index, term, checkpoint };
                InstallEnd::Done(Box::new(InstallDone { installed, chunks, floors }))
            }
            Err(error) => {
                self.stage = Stage::Commit(checked);
                InstallEnd::Again(self, error)
            }
        }
    }

    /// Gives the parts their numbers. What was sealed and merged while they came has lower ones, so no start takes it for
    /// what has replaced them.
    fn renumber(&mut self, disk: &dyn Disk) -> Result<(), InstallError> {
        let Install { dir, installs, .. } = &self.install;
        for (number, new) in self.numbers().zip(self.first_number..) {
            disk.rename(&part_path(dir, number, *installs), &part_path(dir, new, *installs))?;
        }
        self.install.first_number = self.first_number;
        Ok(())
    }

    /// Looks at every byte, and whether all are there. Then all are durable.
    fn check(&self, disk: &dyn Disk) -> Result<Checked, InstallError> {
        let Install { head, store, dir, installs, .. } = &self.install;
        let path = received_checkpoint(dir);
        let other = || InstallError::Damaged { file: received_checkpoint(dir) };
        let received = CheckpointFile::open(disk, path, head.store)?.ok_or_else(other)?;
        let loaded = received.load()?.ok_or_else(other)?;
        let found = (loaded.group, loaded.index, loaded.term);
        if found != (head.group.get(), head.index, head.term.get()) {
            return Err(other());
        }
        let floors = self.check_chunks(&loaded)?;
        let mut rows = CheckpointRows::new();
        loaded.rows().for_each(|row| rows.push(row.stream, row.path_hash, row.bytes));
        let checkpoint = CheckpointTask {
            store: store.id,
            dir: checkpoint_dir(&store.root, head.group.get()),
            group: head.group,
            index: head.index,
            term: head.term.get(),
            installs: *installs,
            header: loaded.header.clone(),
            rows,
        };
        let (needed_bytes, free_bytes) = (checkpoint.bytes(), disk.free_bytes(&store.root)?);
        if free_bytes < needed_bytes {
            let what = "a checkpoint";
            return Err(io::Error::from(NoRoom { what, needed_bytes, free_bytes }).into());
        }
        disk.sync_dir(dir)?;
        Ok(Checked { checkpoint, loaded, floors })
    }

    /// Numbers of the chunks.
    fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let Install { head, first_number, .. } = &self.install;
        (*first_number..).take(head.chunk_bytes.len())
    }

    /// Whether all chunks are whole, and hold what the rows name; where what is kept of each stream begins.
    fn check_chunks(&self, loaded: &LoadedCheckpoint) -> Result<Vec<(u64, u64)>, InstallError> {
        let Install { head, dir, installs, .. } = &self.install;
        let mut coverage = Coverage::default();
        for chunk in self.chunks.files() {
            // What is lost there may be in the others.
            coverage.add(chunk, |_| true)?;
        }
        for number in self.numbers() {
            let file = part_path(dir, number, *installs);
            let chunk = self.open(number, file.clone())?;
            let chunk = chunk.filter(|it| {
                it.header.group == head.group.get() && it.header.to <= head.index.get()
            });
            let Some(chunk) = chunk else { return Err(InstallError::Damaged { file }) };
            coverage.add(&chunk, |_| true)?;
            if !is_intact(&chunk)? {
                return Err(InstallError::Damaged { file });
            }
        }
        coverage.sort();
        let starts = self.check_rows(loaded, &coverage)?;
        let start = |stream: u64| starts.get(&stream).copied().unwrap_or(GONE);
        let floors = coverage.streams().map(|(stream, _)| (stream, start(stream)));
        Ok(floors.filter(|(_, floor)| *floor > 0).collect())
    }

    /// Whether each byte that a row names is there; where the streams begin.
    fn check_rows(
        &self,
        loaded: &LoadedCheckpoint,
        coverage: &Coverage,
    ) -> Result<IdMap<u64, u64>, InstallError> {
        let trimmed: IdMap<u64, u64> =
            self.install.head.trimmed.iter().map(|(it, at)| (it.get(), at.get())).collect();
        let mut starts = IdMap::default();
        for row in loaded.rows() {
            let file = || received_checkpoint(&self.install.dir);
            let ends = (self.ends)(&row).ok_or_else(|| InstallError::Damaged { file: file() })?;
            let stream = row.stream.get();
            let floor = trimmed.get(&stream).copied().unwrap_or(0).max(ends.start);
            let end = coverage.end_from(stream, floor);
            if end < ends.end {
                let (stream, from) = (row.stream, ByteOffset::new(end));
                return Err(InstallError::Missing { stream, from });
            }
            // Of one that keeps nothing all is dead up to its tail, and not what is appended to it later.
            starts.insert(stream, ends.start);
        }
        Ok(starts)
    }

    fn open(&self, number: u64, path: PathBuf) -> io::Result<Option<ChunkFile>> {
        let store = &self.install.store;
        let opened = ChunkFile::open(&store.chunk_cache, (&path, number), store.lineage)?;
        Ok(match opened {
            OpenedChunk::Chunk { chunk, repaired: None } => Some(*chunk),
            OpenedChunk::Chunk { .. } | OpenedChunk::Unreadable | OpenedChunk::Newer(_) => None,
        })
    }

    /// The commit point, and what follows from it. May be done more than once.
    fn commit(
        &self,
        checkpoint: &CheckpointTask,
        disk: &dyn Disk,
    ) -> io::Result<Vec<Arc<ChunkFile>>> {
        let Install { dir, installs, .. } = &self.install;
        let named = checkpoint_path(&checkpoint.dir, checkpoint.index.get());
        checkpoint.publish(disk, &named)?;
        self.numbers().try_for_each(|number| rename_part(disk, dir, (number, *installs)))?;
        disk.sync_dir(dir)?;
        let mut chunks = Vec::new();
        for number in self.numbers() {
            let path = chunk_path(dir, number);
            let opened = self.open(number, path.clone())?;
            chunks.push(Arc::new(opened.ok_or_else(|| cannot_open(&path))?));
        }
        // What is left of them takes room and nothing else: it goes with a later checkpoint, and with the next start.
        let _ = checkpoint.remove_older(disk);
        let _ = remove_asides(disk, dir, *installs);
        let _ = disk.remove(&received_checkpoint(dir));
        Ok(chunks)
    }
}
