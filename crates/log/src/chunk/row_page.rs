//! Rows in pages: written one after the other, read a page at a time.
//!
//! # Invariants
//! - Rows are sorted by stream and start, and do not overlap. A row lies in one page.
//! - A page is read by itself: its first row has its stream whole, its header the first run's position.
//!
//! # Format
//! `docs/format/chunk.md`.

use crate::chunk::page::{PAYLOAD_BYTES, Page};
use crate::chunk::row::{ROW_BYTES_MAX, Row};

/// The shortest row takes 18 bytes.
pub(crate) const ROWS_PER_PAGE_MAX: u16 = (PAYLOAD_BYTES / 18) as u16;

const _: () = assert!(ROW_BYTES_MAX <= PAYLOAD_BYTES);

/// What rows are found by: stream and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) stream: u64,
    pub(crate) start: u64,
}

impl Row {
    pub(crate) fn key(&self) -> Key {
        Key { stream: self.stream, start: self.start }
    }

    /// Whether it comes after `last` in the order of rows, and does not overlap it.
    pub(crate) fn follows(&self, last: &Self) -> bool {
        (last.stream, last.end()) <= (self.stream, self.start)
    }
}

/// Fills pages with rows.
#[derive(Debug, Default)]
pub(crate) struct RowPageWriter {
    payload: Vec<u8>,
    row_count: u16,
    first: Option<Row>,
    last_stream: u64,
}

impl RowPageWriter {
    /// Adds a row; returns the page before it, with the key of its first row, if it is full.
    pub(crate) fn push(&mut self, row: &Row) -> Option<(Key, Page)> {
        let mut bytes = Vec::with_capacity(ROW_BYTES_MAX);
        let stream_before = if self.first.is_some() { self.last_stream } else { 0 };
        row.encode(stream_before, &mut bytes);
        let is_full = self.payload.len() + bytes.len() > PAYLOAD_BYTES;
        let full = if is_full { self.finish() } else { None };
        if is_full {
            bytes.clear();
            row.encode(0, &mut bytes);
        }
        self.payload.extend_from_slice(&bytes);
        self.row_count += 1;
        self.first.get_or_insert(*row);
        self.last_stream = row.stream;
        full
    }

    /// The page that was begun, if there is one.
    pub(crate) fn finish(&mut self) -> Option<(Key, Page)> {
        let done = std::mem::take(self);
        let first = done.first?;
        let payload = done.payload.into_boxed_slice();
        Some((first.key(), Page { row_count: done.row_count, position: first.position, payload }))
    }
}

/// Whether a page's rows make sense: their number, their order, and that they end by `content_end`.
pub(crate) fn is_sound(page: &Page, content_end: u64) -> bool {
    let mut rows = Rows::new(page);
    let mut last: Option<Row> = None;
    for row in rows.by_ref() {
        let follows = last.is_none_or(|last| row.follows(&last));
        if !follows || row.end_position() > content_end {
            return false;
        }
        last = Some(row);
    }
    rows.is_at_end() && page.row_count > 0
}

/// The rows of a page in order. They end early where the bytes make no sense.
#[derive(Debug, Clone)]
pub(crate) struct Rows<'a> {
    rest: &'a [u8],
    left: u16,
    stream: u64,
    position: u64,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(page: &'a Page) -> Self {
        let (rest, left) = (&page.payload[..], page.row_count);
        Self { rest, left, stream: 0, position: page.position }
    }

    fn is_at_end(&self) -> bool {
        self.left == 0 && self.rest.is_empty()
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.left == 0 {
            return None;
        }
        let row = Row::decode(&mut self.rest, self.stream, self.position)?;
        self.left -= 1;
        (self.stream, self.position) = (row.stream, row.end_position());
        Some(row)
    }
}

/// The row that holds byte `at` of `stream`.
pub(crate) fn find(page: &Page, stream: u64, at: u64) -> Option<Row> {
    let target = Key { stream, start: at };
    let last = Rows::new(page).take_while(|row| row.key() <= target).last()?;
    (last.stream == stream && at < last.end()).then_some(last)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chunk::row::tests::plain;
    use env::{Random, SeededRandom};

    const CONTENT_END: u64 = 1 << 30;

    /// Rows as a chunk has them: sorted, of streams with holes and gaps, one behind the other.
    pub(crate) fn rows(count: u64, seed: u64) -> Vec<Row> {
        let mut random = SeededRandom::new(seed);
        let (mut stream, mut start, mut position) = (1, 0, 4096);
        let mut rows = Vec::new();
        for _ in 0..count {
            if !random.next_u64().is_multiple_of(3) {
                (stream, start) = (stream + 1 + random.next_u64() % 5, random.next_u64() % 1000);
            }
            let length = 1 + (random.next_u64() % 500) as u32;
            let row = Row { position, ..plain(stream, start, length) };
            start = row.end() + random.next_u64() % 3;
            position = row.end_position();
            rows.push(row);
        }
        rows
    }

    pub(crate) fn pages(rows: &[Row]) -> Vec<(Key, Page)> {
        let mut writer = RowPageWriter::default();
        let mut pages: Vec<_> = rows.iter().filter_map(|row| writer.push(row)).collect();
        pages.extend(writer.finish());
        pages
    }

    #[test]
    fn rows_come_back_from_their_pages() {
        for count in [0, 1, 2, 1000] {
            let rows = rows(count, count);
            let pages = pages(&rows);
            let read: Vec<Row> = pages.iter().flat_map(|(_, page)| Rows::new(page)).collect();
            assert_eq!(read, rows);
            for (key, page) in &pages {
                assert_eq!(Rows::new(page).next().map(|row| row.key()), Some(*key));
                assert!(is_sound(page, CONTENT_END));
                assert!(page.row_count <= ROWS_PER_PAGE_MAX);
            }
        }
        assert!(pages(&rows(1000, 7)).len() < 12, "a row takes about 30 bytes");
    }

    #[test]
    fn a_byte_is_found_in_its_row_alone() {
        let rows = rows(100, 3);
        let (_, page) = &pages(&rows)[0];
        let here: Vec<Row> = Rows::new(page).collect();
        for row in &here {
            for at in [row.start, row.end() - 1] {
                assert_eq!(find(page, row.stream, at), Some(*row));
            }
            let is_another = |at| {
                here.iter().any(|other| {
                    other.stream == row.stream && (other.start..other.end()).contains(&at)
                })
            };
            for at in [row.start.wrapping_sub(1), row.end()] {
                assert_eq!(find(page, row.stream, at).is_some(), is_another(at));
            }
        }
        assert_eq!(find(page, 0, 0), None);
        assert_eq!(find(page, u64::MAX, 0), None);
    }

    #[test]
    fn pages_whose_rows_make_no_sense_are_not_sound() {
        let rows = rows(20, 5);
        let (_, page) = pages(&rows).remove(0);
        let end = rows.last().unwrap().end_position();
        assert!(is_sound(&page, end) && !is_sound(&page, end - 1));
        for row_count in [0, 19, 21] {
            assert!(!is_sound(&Page { row_count, ..page.clone() }, CONTENT_END));
        }
        let (_, page) = pages(&[rows[0], Row { position: 0, ..rows[0] }]).remove(0);
        assert!(!is_sound(&page, CONTENT_END), "the same run twice");
    }
}
