//! The rows of several chunks as one sequence, in order of stream and start.
//!
//! # Invariants
//! - One page of rows of each chunk is in memory.

use crate::chunk::file::ChunkFile;
use crate::chunk::page::Page;
use crate::chunk::row::Row;
use crate::chunk::row_page::Rows;
use crate::read::ReadMode;
use std::io;
use std::sync::Arc;
use std::vec;

/// What comes next.
#[derive(Debug)]
pub(crate) enum NextRow<'a> {
    Row(&'a ChunkFile, Row),
    /// A page of rows is lost; its position.
    Lost(&'a ChunkFile, u64),
}

/// Rows of some chunks.
#[derive(Debug)]
pub(crate) struct MergeRows<'a> {
    cursors: Vec<Cursor<'a>>,
}

#[derive(Debug)]
struct Cursor<'a> {
    chunk: &'a ChunkFile,
    page_next: u32,
    rows: vec::IntoIter<Row>,
}

impl<'a> MergeRows<'a> {
    pub(crate) fn new(chunks: &'a [Arc<ChunkFile>]) -> Self {
        let cursor = |chunk| Cursor { chunk, page_next: 0, rows: Vec::new().into_iter() };
        Self { cursors: chunks.iter().map(|chunk| cursor(&**chunk)).collect() }
    }

    /// The next row; `None` behind the last one.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn next_row(&mut self) -> io::Result<Option<NextRow<'a>>> {
        for cursor in &mut self.cursors {
            if let Some(lost) = cursor.fill()? {
                return Ok(Some(NextRow::Lost(cursor.chunk, lost)));
            }
        }
        let has_row = self.cursors.iter_mut().filter(|cursor| cursor.front().is_some());
        let first = has_row.min_by_key(|cursor| cursor.front().map(Row::key));
        Ok(first.and_then(|cursor| Some(NextRow::Row(cursor.chunk, cursor.rows.next()?))))
    }
}

impl Cursor<'_> {
    fn front(&self) -> Option<&Row> {
        self.rows.as_slice().first()
    }

    /// Reads the next page if there is no row left; returns the position of one that is lost.
    fn fill(&mut self) -> io::Result<Option<u64>> {
        while self.front().is_none() && self.page_next < self.chunk.header.row_pages {
            let number = self.page_next;
            self.page_next += 1;
            let Some(page) = self.chunk.read_page(number, ReadMode::Blocking)? else {
                return Ok(Some(self.chunk.header.layout().page_position(0, number)));
            };
            self.rows = rows(&page);
        }
        Ok(None)
    }
}

fn rows(page: &Page) -> vec::IntoIter<Row> {
    Rows::new(page).collect::<Vec<_>>().into_iter()
}
