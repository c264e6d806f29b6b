//! What a replica gives to another one that lacks entries which the log has no more.
//!
//! # Why files without a name
//! The chunk with what the receiver lacks of a chunk here is of no use to this directory. So its file loses its name before
//! the first byte is written, and its room comes back with the last handle, whatever happens.

use crate::checkpoint::{CheckpointFile, LoadedCheckpoint, checkpoint_path};
use crate::chunk::copy::{CopyDone, MergeTask};
use crate::chunk::file::ChunkFile;
use crate::chunk::floors::{FloorsThen, GONE, floor_then};
use crate::chunk::list::ChunkList;
use crate::chunk::pages::ChunkIdentity;
use crate::chunk::row::Row;
use crate::chunk::writer::{ChunkAuthor, ChunkName, ChunkWriter};
use crate::id_map::IdMap;
use crate::paths::{checkpoint_dir, chunk_dir};
use crate::read::{ReadError, ReadMode};
use crate::shard::ShardLog;
use crate::snapshot::coverage::{Coverage, LostRows};
use crate::snapshot::{RowEnds, SnapshotHead, Tails, is_intact};
use crate::store::Store;
use env::File;
use model::{ByteOffset, EntryIndex, GroupId, StreamId, Term};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why there is no export.
#[derive(Debug)]
pub enum ExportError {
    /// The group has one voter.
    NotReplicated,
    /// There is no checkpoint with a term behind what the receiver has: take one first.
    NoCheckpoint,
    /// A newer checkpoint took its place: try again.
    Replaced,
    /// A part of it is damaged here: another replica has to help.
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        position: u64,
    },
    /// The disk has refused.
    Io(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReplicated => f.write_str("the group is not replicated"),
            Self::NoCheckpoint => f.write_str("no checkpoint has what the receiver lacks"),
            Self::Replaced => f.write_str("a newer checkpoint took the place of this one"),
            Self::Damaged { file, position } => {
                write!(f, "{} is damaged at byte {position}", file.display())
            }
            Self::Io(error) => write!(f, "the disk refused: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for ExportError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged { file, position } => Self::Damaged { file, position },
            ReadError::Io(error) => Self::Io(error),
            other => panic!("a chunk was read by its own rows: {other}"),
        }
    }
}

impl From<LostRows> for ExportError {
    fn from(LostRows { file, position }: LostRows) -> Self {
        Self::Damaged { file, position }
    }
}

/// Makes an export. Run it on a thread that may wait for the disk: it reads what is to be sent.
#[derive(Debug)]
#[must_use = "nothing is made before it is run"]
pub struct ExportJob {
    store: Store,
    group: GroupId,
    index: u64,
    chunks: Arc<ChunkList>,
    floors: FloorsThen,
    author: ChunkAuthor,
    /// The first of as many numbers as there are chunks.
    first_number: u64,
    have: Tails,
    ends: RowEnds,
}

/// A checkpoint and chunks, to be read at any pace. Its files stay until it is dropped.
#[derive(Debug)]
pub struct Export {
    /// What it is.
    pub head: SnapshotHead,
    /// Streams of the checkpoint of which bytes are in no chunk here, in order, and up to where. The owner must have trimmed
    /// each of them up to there since, or deleted it: else bytes are lost, and the export is worth nothing.
    pub gone: Vec<(StreamId, ByteOffset)>,
    /// The owner's header of its checkpoint.
    pub header: Vec<u8>,
    files: Vec<ExportFile>,
    /// With the lock of the directory.
    _store: Store,
}

/// A file of an export.
#[derive(Debug)]
pub struct ExportFile {
    source: Source,
    bytes: u64,
}

#[derive(Debug)]
enum Source {
    File(Arc<dyn File>),
    Chunk(Arc<ChunkFile>),
}

impl Export {
    /// The checkpoint, and the chunks in the order of the head.
    #[must_use]
    pub fn files(&self) -> &[ExportFile] {
        &self.files
    }
}

impl ExportFile {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `buffer` from `position`.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        match &self.source {
            Source::File(file) => file.read_exact_at(buffer, position),
            Source::Chunk(chunk) => chunk.file(ReadMode::Blocking)?.read_exact_at(buffer, position),
        }
    }
}

impl ShardLog {
    /// An export of the newest checkpoint of a group, for a replica that has `have`.
    ///
    /// # Errors
    /// [`ExportError::NotReplicated`], [`ExportError::NoCheckpoint`].
    ///
    /// # Panics
    /// If the group belongs to another shard.
    pub fn export(
        &mut self,
        group: GroupId,
        have: Tails,
        ends: RowEnds,
    ) -> Result<ExportJob, ExportError> {
        let store = self.store.clone();
        let epoch = self.wal.epoch();
        let author = ChunkAuthor { lineage: store.lineage, store: store.id, epoch };
        let state = self.group_mut(group);
        if state.replicated.is_none() {
            return Err(ExportError::NotReplicated);
        }
        let index = state.checkpointed();
        if index <= have.sealed.get() {
            return Err(ExportError::NoCheckpoint);
        }
        let (chunks, floors) = state.chunks.now();
        let first_number = state.chunks.take_seqs(chunks.files().len() as u64);
        Ok(ExportJob { store, group, index, chunks, floors, author, first_number, have, ends })
    }
}

/// What the receiver lacks of streams, by offset.
type Wanted = IdMap<u64, Range<u64>>;

/// Streams, and where what is kept of them begins.
type Trimmed = Vec<(StreamId, ByteOffset)>;

/// What of a chunk is wanted.
#[derive(Debug, Default)]
struct Look {
    wanted_bytes: u64,
    /// Streams of which nothing is wanted.
    unwanted: Vec<u64>,
}

impl ExportJob {
    /// # Errors
    /// [`ExportError`], but for [`ExportError::NotReplicated`].
    pub fn run(self) -> Result<Export, ExportError> {
        let dir = checkpoint_dir(&self.store.root, self.group.get());
        let path = checkpoint_path(&dir, self.index);
        let found = CheckpointFile::open(&*self.store.disk, path, self.store.id)?;
        let found = found.ok_or(ExportError::Replaced)?;
        let loaded = found.load()?.ok_or_else(|| damaged(&found.path, 0))?;
        if loaded.term == 0 {
            return Err(ExportError::NoCheckpoint);
        }
        let (mut wanted, mut trimmed) = self.wanted(&loaded)?;
        let gone = self.check_coverage(&wanted)?;
        for (stream, to) in &gone {
            let of = wanted.get_mut(&stream.get()).expect("something of it was wanted");
            of.start = to.get();
            trimmed.push((*stream, *to));
        }
        wanted.retain(|_, of| of.start < of.end);
        // What has gone since reaches further than what was trimmed before.
        trimmed.sort_unstable_by_key(|(stream, to)| (*stream, std::cmp::Reverse(*to)));
        trimmed.dedup_by_key(|(stream, _)| *stream);
        let mut files =
            vec![ExportFile { bytes: loaded.file_bytes(), source: Source::File(found.file) }];
        for (chunk, number) in self.chunks.files().iter().zip(self.first_number..) {
            files.extend(self.part(chunk, number, &wanted)?);
        }
        let head = SnapshotHead {
            group: self.group,
            index: EntryIndex::new(self.index),
            term: Term::new(loaded.term),
            store: self.store.id,
            checkpoint_bytes: files[0].bytes,
            chunk_bytes: files[1..].iter().map(ExportFile::bytes).collect(),
            trimmed,
        };
        let header = loaded.header;
        Ok(Export { head, gone, header, files, _store: self.store })
    }

    /// What the receiver lacks, and what of it was trimmed since.
    fn wanted(&self, loaded: &LoadedCheckpoint) -> Result<(Wanted, Trimmed), ExportError> {
        let (mut wanted, mut trimmed) = (Wanted::default(), Trimmed::new());
        for row in loaded.rows() {
            let ends = (self.ends)(&row).ok_or_else(|| damaged(&loaded.path, 0))?;
            let stream = row.stream.get();
            let lacked = ends.start.max(self.have.of(stream));
            let floor = floor_then(&self.floors, stream).min(ends.end);
            if floor > lacked {
                trimmed.push((row.stream, ByteOffset::new(floor)));
            }
            let from = lacked.max(floor);
            if from < ends.end {
                wanted.insert(stream, from..ends.end);
            }
        }
        Ok((wanted, trimmed))
    }

    /// Streams of which chunks do not hold all that is wanted, and from where on they do: merges have left out what was
    /// trimmed or deleted since.
    fn check_coverage(&self, wanted: &Wanted) -> Result<Trimmed, ExportError> {
        let mut coverage = Coverage::default();
        for chunk in self.chunks.files() {
            let is_wanted = |row: &Row| wanted.get(&row.stream).is_some_and(|of| meets(row, of));
            if let Some(lost) = coverage.add(chunk, is_wanted)? {
                return Err(lost.into());
            }
        }
        coverage.sort();
        let starts = wanted.iter().map(|(&stream, of)| {
            let held_from = coverage.start_to(stream, of.end);
            (held_from > of.start).then(|| (StreamId::new(stream), ByteOffset::new(held_from)))
        });
        let mut gone: Trimmed = starts.flatten().collect();
        gone.sort_unstable();
        Ok(gone)
    }

    /// What is to be sent of a chunk, checked.
    fn part(
        &self,
        chunk: &Arc<ChunkFile>,
        number: u64,
        wanted: &Wanted,
    ) -> Result<Option<ExportFile>, ExportError> {
        let header = &chunk.header;
        let look = look(chunk, wanted)?;
        if look.wanted_bytes == 0 {
            return Ok(None);
        }
        let is_whole = header.from < header.to
            && header.from >= self.have.sealed.get()
            && header.to <= self.index
            && look.wanted_bytes * 2 > header.data_bytes;
        if is_whole && is_intact(chunk)? {
            let bytes = header.layout().file_bytes();
            return Ok(Some(ExportFile { source: Source::Chunk(Arc::clone(chunk)), bytes }));
        }
        self.copy(chunk, number, (wanted, look.unwanted))
    }

    /// A new chunk with what is wanted of one.
    fn copy(
        &self,
        chunk: &Arc<ChunkFile>,
        number: u64,
        (wanted, unwanted): (&Wanted, Vec<u64>),
    ) -> Result<Option<ExportFile>, ExportError> {
        let (group, origin) = (self.group.get(), self.author.origin(number));
        let to = chunk.header.to.min(self.index);
        // What it does not hold it must not name. Nor may one of these lie within another one.
        let named_from = if self.chunks.is_in_order() { chunk.header.from } else { to };
        let from = named_from.max(self.have.sealed.get()).min(to);
        let dir = chunk_dir(&self.store.root, group);
        let name = ChunkName { dir, identity: ChunkIdentity { group, origin, from, to } };
        let mut writer = ChunkWriter::create_nameless(&*self.store.disk, name.clone())?;
        let mut floors: IdMap<u64, u64> = unwanted.into_iter().map(|it| (it, GONE)).collect();
        floors.extend(wanted.iter().map(|(stream, of)| (*stream, of.start)));
        let mut done = CopyDone::default();
        let task = MergeTask {
            name,
            cache: Arc::clone(&self.store.chunk_cache),
            sources: vec![Arc::clone(chunk)],
            floors: Arc::new(floors),
            limits: wanted.iter().map(|(stream, of)| (*stream, of.end)).collect(),
            live_bytes: 0,
            spare_bytes: 0,
            leaves_damage_out: false,
        };
        task.copy_rows(&mut writer, &mut done)?;
        if let Some(damage) = done.damages.first() {
            return Err(damaged(&damage.file, damage.position));
        }
        let written = writer.finish_nameless()?;
        Ok(written.map(|(file, bytes)| ExportFile { source: Source::File(file), bytes }))
    }
}

fn damaged(file: &Path, position: u64) -> ExportError {
    ExportError::Damaged { file: file.to_owned(), position }
}

/// Whether a run has a byte of a range.
fn meets(row: &Row, range: &Range<u64>) -> bool {
    row.end() > range.start && row.start < range.end
}

fn look(chunk: &ChunkFile, wanted: &Wanted) -> io::Result<Look> {
    let mut look = Look::default();
    chunk.check_rows(|row| match wanted.get(&row.stream) {
        Some(range) if meets(&row, range) => {
            look.wanted_bytes += row.end().min(range.end) - row.start.max(range.start);
        }
        Some(_) => {}
        None => look.unwanted.push(row.stream),
    })?;
    Ok(look)
}
