//! Finding an append by its record's number or by a time, among the chunks of a group.
//!
//! # How
//! Numbers and times never fall along a stream, and chunks come in the order of their entries. So a few of them
//! are looked into, as in any sorted list. A stream is not in each chunk: where it is not, a filter says so,
//! and the next one is asked. Where data was sealed again beside a damaged chunk there is no order, and all are asked.
//!
//! # Invariants
//! - The answer is that of a walk over all appends that can be read.

use crate::aim::{Aim, PlacedAppend, TimeAim};
use crate::chunk::cold::{ColdLookup, ColdPlace};
use crate::chunk::file::ChunkFile;
use crate::chunk::list::ChunkList;
use crate::chunk::lookup::rows_of;
use crate::chunk::pieces::Goal;
use crate::chunk::row::Row;
use crate::read::{ReadError, ReadMode};
use model::ByteOffset;
use std::io;
use std::sync::Arc;

/// A run and the chunk that it is in.
type Run = (Arc<ChunkFile>, Row);

/// A search for an append that may be in a chunk.
#[derive(Debug, Clone)]
pub(crate) struct ColdSearch {
    pub(crate) lookup: ColdLookup,
    pub(crate) aim: Aim,
    /// What the index of the WAL answers to a time.
    pub(crate) hot: Option<PlacedAppend>,
}

impl ColdSearch {
    /// # Errors
    /// As [`ColdLookup::find`]; `Trimmed` for a record that is not kept. [`ReadError::would_block`] if `mode` must not
    /// wait.
    pub(crate) fn find(&self, mode: ReadMode) -> Result<Option<PlacedAppend>, ReadError> {
        let floor = self.lookup.floor;
        match self.aim {
            Aim::Byte(at) => match self.lookup.find(at.get(), mode)? {
                ColdPlace::Chunk { chunk, row } => chunk.append_at(&row, at.get(), mode).map(Some),
                ColdPlace::Tail => Ok(None),
            },
            Aim::Record(number) => {
                let Some((chunk, row)) = self.first_run(mode)? else { return Ok(None) };
                let first = row.body.map_or(0, |body| body.first_record);
                let Some(number) = number.checked_sub(first) else { return Ok(None) };
                let found = chunk.search(&row, Goal::Record(number), mode)?;
                match found {
                    Some(append) if append.bounds.end.get() <= floor => {
                        Err(ReadError::Trimmed { head: ByteOffset::new(floor) })
                    }
                    found => Ok(found),
                }
            }
            Aim::Time(aim) => {
                let sealed = match self.first_run(mode)? {
                    Some((chunk, row)) => first_kept((&chunk, &row), (aim, floor), mode)?,
                    None => None,
                };
                // Damage apart, what is sealed comes first.
                let both = [sealed, self.hot].into_iter().flatten();
                Ok(both.min_by_key(|append| append.bounds.start))
            }
        }
    }

    /// Whether a run ends before what is looked for.
    fn is_before(&self, row: &Row) -> bool {
        // One of a newer version cannot be read: nothing of it is found.
        let Some(body) = row.body else { return true };
        match self.aim {
            Aim::Byte(at) => row.end() <= at.get(),
            Aim::Record(number) => body.first_record + body.records <= number,
            Aim::Time(aim) => {
                row.end() <= self.lookup.floor
                    || aim.is_behind(body.last_at, body.marks.map(|marks| marks.last))
            }
        }
    }

    /// The first run of the stream that does not end before what is looked for.
    fn first_run(&self, mode: ReadMode) -> Result<Option<Run>, ReadError> {
        let chunks = &*self.lookup.chunks;
        let count = chunks.files().len();
        if mode == ReadMode::Inline && count > ChunkList::INLINE_CHUNKS_MAX {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        if !chunks.is_in_order() {
            return self.first_of_all(mode);
        }
        let mut found = None;
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            let near = chunks.nearest(self.lookup.stream, (middle, low..high), |file| {
                let rows = self.rows_in(file, mode)?;
                Ok((!rows.is_empty()).then_some(rows))
            })?;
            let Some((place, rows)) = near else { break };
            let first = rows.iter().find(|row| !self.is_before(row));
            match first {
                None => low = place + 1,
                Some(row) => {
                    found = Some((Arc::clone(&chunks.files()[place]), *row));
                    if rows.iter().any(|row| self.is_before(row)) {
                        break;
                    }
                    high = place;
                }
            }
        }
        Ok(found)
    }

    /// The stream's runs in a chunk; those on pages that are lost are left out.
    fn rows_in(&self, file: &ChunkFile, mode: ReadMode) -> Result<Vec<Row>, ReadError> {
        let (pages, stream) = (file.pages(mode), self.lookup.stream);
        let mut rows = Vec::new();
        rows_of(&pages, stream, |row| rows.push(row), |_| ())?;
        Ok(rows)
    }

    fn first_of_all(&self, mode: ReadMode) -> Result<Option<Run>, ReadError> {
        let mut found: Option<Run> = None;
        for file in self.lookup.chunks.files() {
            let rows = self.rows_in(file, mode)?;
            for row in rows.into_iter().filter(|row| !self.is_before(row)) {
                if found.as_ref().is_none_or(|(_, found)| row.start < found.start) {
                    found = Some((Arc::clone(file), row));
                }
            }
        }
        Ok(found)
    }
}

/// The first append of a run behind `floor` that is at or after a time.
fn first_kept(
    (chunk, row): (&ChunkFile, &Row),
    (aim, floor): (TimeAim, u64),
    mode: ReadMode,
) -> Result<Option<PlacedAppend>, ReadError> {
    let found = chunk.search(row, Goal::Time(aim), mode)?;
    match found {
        Some(append) if append.bounds.end.get() <= floor => {
            chunk.search(row, Goal::Byte(floor), mode)
        }
        found => Ok(found),
    }
}
