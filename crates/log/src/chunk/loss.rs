//! What a damaged chunk has lost, found by a look at all that is in it, and copies of what is left.
//!
//! # Why
//! Merges and reads stop at damage. An operator who accepts a loss wants to see it whole, and then have
//! everything that is intact in a new chunk.

use crate::chunk::builder::StreamPiece;
use crate::chunk::file::ChunkFile;
use crate::chunk::merge_rows::{MergeRows, NextRow};
use crate::chunk::row::Row;
use crate::chunk::run_pieces::RunPieces;
use crate::entry::AppendBounds;
use crate::read::{ReadError, ReadMode};
use model::{ByteOffset, GroupId, StreamId};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A part of a chunk that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkLoss {
    /// The chunk's group.
    pub group: GroupId,
    /// Its file.
    pub file: PathBuf,
    /// What is lost of it.
    pub lost: LostPart,
}

/// What is lost of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostPart {
    /// Both headers: nothing in the file can be read.
    Headers,
    /// Both copies of a page of rows: bytes of streams that nobody can name. The position of the first copy.
    Rows(u64),
    /// Bytes of a stream: one append, or several that follow each other.
    Bytes {
        /// The stream.
        stream: StreamId,
        /// Offset of the first byte.
        from: ByteOffset,
        /// Offset behind the last byte.
        to: ByteOffset,
        /// Where they are in the file.
        position: u64,
    },
    /// Where the appends of a run end. Its bytes are there, and become one append.
    AppendEnds {
        /// The stream.
        stream: StreamId,
        /// Offset of the run's first byte.
        from: ByteOffset,
        /// Offset behind its last byte.
        to: ByteOffset,
        /// Where the list is in the file.
        position: u64,
    },
}

/// Whether the bytes of an append are intact.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn is_intact(chunk: &ChunkFile, row: &Row, piece: &StreamPiece) -> io::Result<bool> {
    let AppendBounds { start, end, .. } = piece.piece.bounds;
    let position = row.position + (start.get() - row.start);
    match chunk.verify(row, (position, end.since(start)), ReadMode::Blocking) {
        Ok(()) => Ok(true),
        Err(ReadError::Io(error)) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Gives all that is lost of a chunk to `each`; of each stream, only what lies at `floor_of` or behind.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn examine(
    chunk: &Arc<ChunkFile>,
    floor_of: impl Fn(u64) -> u64,
    mut each: impl FnMut(LostPart),
) -> io::Result<()> {
    chunk.check_again();
    let mut rows = MergeRows::new(std::slice::from_ref(chunk));
    while let Some(next) = rows.next_row()? {
        match next {
            NextRow::Lost(_, position) => each(LostPart::Rows(position)),
            NextRow::Row(chunk, row) => {
                let floor = floor_of(row.stream);
                if floor < row.end() {
                    examine_run((chunk, &row), floor, &mut each)?;
                }
            }
        }
    }
    Ok(())
}

fn examine_run(
    (chunk, row): (&ChunkFile, &Row),
    floor: u64,
    each: &mut impl FnMut(LostPart),
) -> io::Result<()> {
    let stream = StreamId::new(row.stream);
    let offsets = |from: u64, to: u64| (ByteOffset::new(from), ByteOffset::new(to));
    let Some(run) = RunPieces::of(chunk, row)? else {
        let (from, to) = offsets(row.start, row.end());
        each(LostPart::Bytes { stream, from, to, position: row.position });
        return Ok(());
    };
    if run.is_one {
        let (from, to) = offsets(row.start, row.end());
        each(LostPart::AppendEnds { stream, from, to, position: row.table_position() });
    }
    let mut lost: Option<(ByteOffset, ByteOffset)> = None;
    let mut tell = |lost: Option<(ByteOffset, ByteOffset)>| {
        if let Some((from, to)) = lost {
            let position = row.position + (from.get() - row.start);
            each(LostPart::Bytes { stream, from, to, position });
        }
    };
    for piece in run.pieces {
        let AppendBounds { start, end, .. } = piece.piece.bounds;
        if end.get() <= floor || is_intact(chunk, row, &piece)? {
            tell(lost.take());
        } else {
            lost = Some((lost.map_or(start, |(from, _)| from), end));
        }
    }
    tell(lost);
    Ok(())
}
