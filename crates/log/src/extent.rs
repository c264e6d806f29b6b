//! Stored bytes that are read away from their shard.
//!
//! # Why
//! A loop must not wait for a disk, nor look through megabytes. What it cannot answer at once it hands
//! out as an extent: files and positions, read on any thread. What was found intact there comes back
//! to the log by [`crate::ShardLog::note_extent`].
//!
//! # Invariants
//! - The files of an extent stay open, and a WAL segment is not used again, while the extent is there.

use crate::aim::PlacedAppend;
use crate::chunk::cold::{ColdLookup, ColdPlace};
use crate::chunk::file::ChunkFile;
use crate::chunk::row::Row;
use crate::chunk::search::ColdSearch;
use crate::entry::AppendBounds;
use crate::hot::HotAppend;
use crate::hot_read::{Segments, read_hot};
use crate::read::{ReadError, ReadMode, Slice};
use crate::wal::segment::{SegmentFile, SegmentTable};
use bytes::Bytes;
use model::ByteOffset;
use std::cell::Cell;
use std::sync::Arc;

/// The answer to a read that must not wait.
#[derive(Debug)]
pub enum Read<T> {
    /// It was in memory.
    Ready(T),
    /// A thread that may wait has to read it from these bytes.
    Job(Extent),
}

/// Consecutive stored bytes of one stream: some appends in the WAL, or a run in a chunk.
#[derive(Debug)]
pub struct Extent {
    place: ExtentPlace,
    far_bytes: Cell<u64>,
}

#[derive(Debug)]
enum ExtentPlace {
    Hot {
        appends: Vec<HotAppend>,
        files: ExtentFiles,
    },
    Chunk {
        chunk: Arc<ChunkFile>,
        row: Box<Row>,
    },
    /// A byte whose place has to be looked up first.
    Cold(Box<ColdLookup>),
    /// An append that has to be found first.
    Search(Box<ColdSearch>),
}

/// The segments that hold the appends, by slot.
#[derive(Debug)]
struct ExtentFiles(Vec<(u16, Arc<SegmentFile>)>);

impl Segments for ExtentFiles {
    fn segment(&self, slot: u16) -> &SegmentFile {
        let found = self.0.iter().find(|(known, _)| *known == slot);
        &found.expect("an extent holds the segments of its appends").1
    }

    /// Memory belongs to the shard, which looked there before it handed out the extent.
    fn recent(&self, _: &HotAppend) -> Option<&[u8]> {
        None
    }

    fn cached(&self, _: &HotAppend, _: impl FnOnce(&[u8]) -> bool) -> bool {
        false
    }

    fn read_around(&self, _: &HotAppend, _: ReadMode) -> bool {
        false
    }

    fn note_misses(&self, _: usize) {}
}

// An extent is read on another thread.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Extent>();
};

impl Extent {
    pub(crate) fn hot(appends: &[HotAppend], slots: &SegmentTable) -> Self {
        let mut files: Vec<(u16, Arc<SegmentFile>)> = Vec::new();
        for slot in appends.iter().map(|append| append.fields().slot) {
            if files.iter().all(|(known, _)| *known != slot) {
                files.push((slot, Arc::clone(slots.get(slot))));
            }
        }
        let place = ExtentPlace::Hot { appends: appends.to_vec(), files: ExtentFiles(files) };
        Self { place, far_bytes: Cell::new(0) }
    }

    pub(crate) fn chunk(chunk: Arc<ChunkFile>, row: Row) -> Self {
        Self { place: ExtentPlace::Chunk { chunk, row: Box::new(row) }, far_bytes: Cell::new(0) }
    }

    /// What is in a chunk that has to be found.
    pub(crate) fn cold(lookup: ColdLookup) -> Self {
        Self { place: ExtentPlace::Cold(Box::new(lookup)), far_bytes: Cell::new(0) }
    }

    /// An append that has to be found.
    pub(crate) fn search(search: ColdSearch) -> Self {
        Self { place: ExtentPlace::Search(Box::new(search)), far_bytes: Cell::new(0) }
    }

    /// The append that [`crate::ShardLog::try_find`] looks for; `None` if the stream has none like that.
    ///
    /// # Errors
    /// As [`crate::ShardLog::read`].
    ///
    /// # Panics
    /// If the extent is not the one of a search.
    pub fn found(&self, mode: ReadMode) -> Result<Option<PlacedAppend>, ReadError> {
        let ExtentPlace::Search(search) = &self.place else { panic!("an extent of another read") };
        search.find(mode)
    }

    /// Bytes from `from`, at least one and at most `max_bytes`, checked and in memory.
    ///
    /// # Errors
    /// `Damaged` or `Io`; [`ReadError::would_block`] if `mode` must not wait.
    ///
    /// # Panics
    /// If the extent does not hold byte `from`.
    pub fn read(
        &self,
        from: ByteOffset,
        max_bytes: usize,
        mode: ReadMode,
    ) -> Result<Slice, ReadError> {
        let at = from.get();
        match &self.place {
            ExtentPlace::Hot { appends, files } => {
                let (bytes, far_bytes) =
                    read_hot(&appends[place_of(appends, at)..], at, max_bytes, (files, mode))?;
                self.far_bytes.set(self.far_bytes.get() + far_bytes);
                Ok(Slice::Bytes(bytes))
            }
            ExtentPlace::Chunk { chunk, row } => read_run((chunk, row), (at, max_bytes), mode),
            ExtentPlace::Cold(lookup) => match lookup.find(at, mode)? {
                ColdPlace::Chunk { chunk, row } => read_run((&chunk, &row), (at, max_bytes), mode),
                // The caller knows of more: it is lost.
                ColdPlace::Tail => Err(ReadError::PastTail { tail: from }),
            },
            ExtentPlace::Search(_) => panic!("a search has no bytes yet"),
        }
    }

    /// The append that contains byte `at`.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// As [`Self::read`].
    pub fn append_at(&self, at: ByteOffset, mode: ReadMode) -> Result<AppendBounds, ReadError> {
        match &self.place {
            ExtentPlace::Hot { appends, .. } => Ok(appends[place_of(appends, at.get())].bounds()),
            ExtentPlace::Chunk { chunk, row } => Ok(chunk.append_at(row, at.get(), mode)?.bounds),
            ExtentPlace::Cold(lookup) => match lookup.find(at.get(), mode)? {
                ColdPlace::Chunk { chunk, row } => {
                    Ok(chunk.append_at(&row, at.get(), mode)?.bounds)
                }
                ColdPlace::Tail => Err(ReadError::PastTail { tail: at }),
            },
            ExtentPlace::Search(_) => panic!("a search has no bytes yet"),
        }
    }

    /// Bytes that were read from places far from each other.
    pub(crate) fn far_bytes(&self) -> u64 {
        self.far_bytes.get()
    }

    /// The appends in the WAL that were found intact.
    pub(crate) fn verified(&self) -> impl Iterator<Item = &HotAppend> {
        let appends = match &self.place {
            ExtentPlace::Hot { appends, .. } => &appends[..],
            ExtentPlace::Chunk { .. } | ExtentPlace::Cold(_) | ExtentPlace::Search(_) => &[],
        };
        appends.iter().filter(|append| append.is_verified())
    }
}

/// Checked bytes of a run from `from`, at most so many.
fn read_run(
    (chunk, row): (&ChunkFile, &Row),
    (from, max_bytes): (u64, usize),
    mode: ReadMode,
) -> Result<Slice, ReadError> {
    let (position, length) = row.part(from, max_bytes);
    chunk.verify(row, (position, length), mode)?;
    let mut bytes = vec![0; usize::try_from(length).expect("a slice fits memory")];
    if !mode.fill(&*chunk.file(mode)?, &mut bytes, position)? {
        return Err(chunk.damaged(position));
    }
    Ok(Slice::Bytes(Bytes::from(bytes)))
}

impl Row {
    /// Position and length of at most `max_bytes` from `from`, which is one of its bytes.
    pub(crate) fn part(&self, from: u64, max_bytes: usize) -> (u64, u64) {
        let position = self.position + (from - self.start);
        (position, (self.end() - from).min(max_bytes as u64))
    }
}

/// Index of the append that holds byte `at`.
fn place_of(appends: &[HotAppend], at: u64) -> usize {
    let after = appends.partition_point(|append| append.fields().start <= at);
    let index = after.checked_sub(1).expect("an extent begins at or before what is read of it");
    assert!(at < appends[index].end(), "an extent holds what is read of it");
    index
}
