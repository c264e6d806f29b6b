//! The chunks of a group in order, and which of them has a byte.
//!
//! # Why
//! There is no index per stream: an idle stream costs nothing but its rows on disk. A lookup asks one chunk
//! after the other, the newest first; a filter answers for nearly all of them. A stream that is written all the time is in hundreds of
//! them. So where there are many chunks, and in order, each look leaves a half of them.
//!
//! # Invariants
//! - Chunks are sorted by the entries they cover.
//! - A thread that serves others looks into a bounded number of chunks.

use crate::chunk::file::ChunkFile;
use crate::chunk::lookup::{Found, find_row, rows_of};
use crate::chunk::row::Row;
use crate::read::{ReadError, ReadMode};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The chunks of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkList {
    files: Vec<Arc<ChunkFile>>,
    has_disorder: bool,
}

/// Where a byte is, seen from the rows of its stream in a chunk.
enum Side {
    /// In this row.
    Here(Row),
    /// In an older chunk.
    Older,
    /// In a newer chunk.
    Newer,
    /// Rows are lost, or the byte is.
    Unknown,
}

/// A run and the chunk that it is in.
pub(crate) type ChunkRun<'a> = (&'a Arc<ChunkFile>, Row);

impl ChunkList {
    /// Chunks that a thread which must not wait looks into: some 50 µs of it.
    pub(crate) const INLINE_CHUNKS_MAX: usize = 64;

    /// Fewer than these are asked one after the other.
    const HALVED_CHUNKS_MIN: usize = 16;

    pub(crate) fn files(&self) -> &[Arc<ChunkFile>] {
        &self.files
    }

    /// Whether what a chunk holds of a stream lies before what the next one holds. Data that was sealed again beside
    /// a damaged chunk is in one that names no range.
    pub(crate) fn is_in_order(&self) -> bool {
        !self.has_disorder
    }

    fn note_order(&mut self) {
        let ranges = self.files.iter().map(|file| (file.header.from, file.header.to));
        let is_in_order = ranges.clone().all(|(from, to)| from < to)
            && ranges.clone().zip(ranges.skip(1)).all(|((_, to), (from, _))| to <= from);
        self.has_disorder = !is_in_order;
    }

    /// Adds a chunk at its place.
    pub(crate) fn add(&mut self, file: Arc<ChunkFile>) {
        let order = |file: &ChunkFile| (file.header.from, file.seq);
        let place = self.files.partition_point(|other| order(other) < order(&file));
        self.files.insert(place, file);
        self.note_order();
    }

    /// Takes chunks out.
    pub(crate) fn remove(&mut self, seqs: &[u64]) -> Vec<Arc<ChunkFile>> {
        let removed = self.files.extract_if(.., |file| seqs.contains(&file.seq)).collect();
        self.note_order();
        removed
    }

    /// Chunks that may have rows of a stream, the newest first, without a look at any page.
    fn of_stream(&self, stream: u64) -> impl Iterator<Item = &Arc<ChunkFile>> {
        self.files.iter().rev().filter(move |file| file.header.names(stream))
    }

    /// What the chunk nearest to `middle` in a range says that may have rows of a stream and has something to say; newer ones come first.
    pub(crate) fn nearest<T>(
        &self,
        stream: u64,
        (middle, range): (usize, Range<usize>),
        mut look: impl FnMut(&ChunkFile) -> Result<Option<T>, ReadError>,
    ) -> Result<Option<(usize, T)>, ReadError> {
        for place in (middle..range.end).chain((range.start..middle).rev()) {
            let file = &self.files[place];
            if file.header.names(stream)
                && let Some(said) = look(file)?
            {
                return Ok(Some((place, said)));
            }
        }
        Ok(None)
    }

    /// The run that holds byte `at` of `stream`.
    ///
    /// # Errors
    /// `Damaged` if only lost rows may have it. [`ReadError::would_block`] if `mode` must not wait.
    pub(crate) fn find(
        &self,
        stream: u64,
        at: u64,
        mode: ReadMode,
    ) -> Result<Option<ChunkRun<'_>>, ReadError> {
        match self.find_by_halves((stream, at), mode) {
            Ok(None) => {}
            Err(error) if !error.would_block() => {}
            found => return found,
        }
        let mut lost = None;
        for (number, file) in self.of_stream(stream).enumerate() {
            if mode == ReadMode::Inline && number >= Self::INLINE_CHUNKS_MAX {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            match find_row(&file.pages(mode), stream, at)? {
                Found::Row(row) => return Ok(Some((file, row))),
                Found::Lost(page) => lost = lost.or(Some(file.lost(page))),
                Found::Nothing => {}
            }
        }
        lost.map_or(Ok(None), Err)
    }

    /// The run that holds a byte, if there are many chunks and nothing is in the way. `None` says nothing.
    fn find_by_halves(
        &self,
        (stream, at): (u64, u64),
        mode: ReadMode,
    ) -> Result<Option<ChunkRun<'_>>, ReadError> {
        let (mut low, mut high) = (0, self.files.len());
        if high < Self::HALVED_CHUNKS_MIN || !self.is_in_order() {
            return Ok(None);
        }
        // What was written last is read most: steps from the newest chunk become longer until one is too old.
        let (mut asked, mut middle, mut step) = (0, high - 1, 1);
        while low < high {
            let found = self.nearest(stream, (middle, low..high), |file| {
                asked += 1;
                if mode == ReadMode::Inline && asked > Self::INLINE_CHUNKS_MAX {
                    return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
                }
                side(file, (stream, at), mode)
            })?;
            match found {
                Some((place, Side::Here(row))) => return Ok(Some((&self.files[place], row))),
                Some((place, Side::Newer)) if place >= middle => low = place + 1,
                // Between the middle and this chunk there is nothing of the stream.
                Some((place, Side::Older)) => high = place.min(middle),
                _ => return Ok(None),
            }
            step *= 2;
            middle = if low > 0 { low.midpoint(high) } else { high.saturating_sub(step) };
        }
        Ok(None)
    }

    /// Each run of `stream` that ends behind `floor`, in no order. Rows that are lost are left out.
    ///
    /// # Errors
    /// As [`ChunkList::find`].
    pub(crate) fn for_each<'a>(
        &'a self,
        (stream, floor): (u64, u64),
        mode: ReadMode,
        mut each: impl FnMut(ChunkRun<'a>),
    ) -> Result<(), ReadError> {
        // It asks all of them, which may be many.
        mode.check_bytes(u64::MAX)?;
        for file in self.of_stream(stream) {
            let live = |row: Row| {
                if row.end() > floor {
                    each((file, row));
                }
            };
            rows_of(&file.pages(mode), stream, live, |_| ())?;
        }
        Ok(())
    }
}

/// Where a byte is, seen from a chunk; `None` if that has nothing of the stream.
fn side(
    file: &ChunkFile,
    (stream, at): (u64, u64),
    mode: ReadMode,
) -> Result<Option<Side>, ReadError> {
    let (mut here, mut is_older, mut is_newer, mut is_lost) = (None, false, false, false);
    let look = |row: Row| {
        is_older |= at < row.start;
        is_newer |= row.end() <= at;
        if row.start <= at && at < row.end() {
            here = Some(row);
        }
    };
    rows_of(&file.pages(mode), stream, look, |_| is_lost = true)?;
    Ok(match (here, is_older, is_newer) {
        (Some(row), ..) => Some(Side::Here(row)),
        _ if is_lost => Some(Side::Unknown),
        (None, false, false) => None,
        (None, true, false) => Some(Side::Older),
        (None, false, true) => Some(Side::Newer),
        (None, true, true) => Some(Side::Unknown),
    })
}
