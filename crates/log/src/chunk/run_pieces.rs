//! The appends of a run, as a copy takes them one by one.

use crate::chunk::builder::StreamPiece;
use crate::chunk::file::ChunkFile;
use crate::chunk::pieces::{Piece, PieceTable};
use crate::chunk::row::Row;
use crate::entry::AppendBounds;
use crate::read::{ReadError, ReadMode};
use model::{ByteOffset, Timestamp};
use std::io;

/// The appends of a run.
pub(crate) struct RunPieces {
    pub(crate) pieces: Vec<StreamPiece>,
    /// The table that says where they end is lost, so all of them are one.
    pub(crate) is_one: bool,
}

impl RunPieces {
    /// # Errors
    /// Any error of the underlying disk. `None` if the run cannot be copied at all.
    pub(crate) fn of(chunk: &ChunkFile, row: &Row) -> io::Result<Option<Self>> {
        match chunk.table(row, ReadMode::Blocking) {
            Ok(table) => {
                Ok(Some(Self { pieces: row_pieces(row, &table).collect(), is_one: false }))
            }
            Err(ReadError::Io(error)) => Err(error),
            Err(_) => Ok(whole(row).map(|piece| Self { pieces: vec![piece], is_one: true })),
        }
    }
}

/// A run as one append.
fn whole(row: &Row) -> Option<StreamPiece> {
    let body = row.body?;
    let bounds = AppendBounds {
        start: ByteOffset::new(row.start),
        end: ByteOffset::new(row.end()),
        records: u32::try_from(body.records).ok()?,
        at: Timestamp::new(body.last_at),
    };
    let piece = Piece { bounds, mark: body.marks.map(|marks| marks.last) };
    let mark_before = body.marks.map(|marks| marks.before);
    Some(StreamPiece { stream: row.stream, first_record: body.first_record, mark_before, piece })
}

/// The appends of a run with the numbers of their records.
fn row_pieces<'a>(row: &Row, table: &'a [u8]) -> impl Iterator<Item = StreamPiece> + 'a {
    let table = row.columns().and_then(|columns| PieceTable::new(table, columns));
    let (stream, body) = (row.stream, row.body);
    let mut first_record = body.map_or(0, |body| body.first_record);
    let mut mark_before = body.and_then(|body| body.marks).map(|marks| marks.before);
    table.into_iter().flat_map(PieceTable::iter).map(move |piece| {
        let append = StreamPiece { stream, first_record, mark_before, piece };
        first_record += u64::from(piece.bounds.records);
        mark_before = piece.mark;
        append
    })
}
