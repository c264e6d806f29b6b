//! A whole chunk in memory: what tools check, and what the tests of this format look at.
//!
//! # Invariants
//! - Any bytes are an image, or none; nothing in them makes a reader panic.

use crate::chunk::header::{CONTENT_START, ChunkHeader, HEADER_BYTES};
use crate::chunk::lookup::PageSource;
use crate::chunk::page::Page;
use crate::chunk::pieces::{Columns, PieceTable};
use crate::chunk::row::Row;
use crate::chunk::row_page::{Rows, is_sound};
use std::convert::Infallible;
use std::sync::Arc;

/// The page with this number in the bytes of one copy; `None` if it is not what was written.
pub(crate) fn open_page(bytes: &[u8], header: &ChunkHeader, number: u32) -> Option<Page> {
    let page = Page::open(bytes, &header.origin.page_seed(number))?;
    let layout = header.layout();
    let is_right = match number.checked_sub(layout.row_pages) {
        None => page.position >= CONTENT_START && is_sound(&page, header.content_end),
        Some(_) => {
            page.row_count == 0
                && page.position < layout.index_bytes
                && layout.index_place(page.position) == (number, 0)
        }
    };
    is_right.then_some(page)
}

/// The bytes of a chunk.
#[derive(Debug)]
pub(crate) struct ChunkImage<'a> {
    pub(crate) header: ChunkHeader,
    bytes: &'a [u8],
}

impl<'a> ChunkImage<'a> {
    /// The chunk of this lineage in `bytes`, by its header or its footer.
    pub(crate) fn open(bytes: &'a [u8], lineage: u64) -> Option<Self> {
        let footer = bytes.len().checked_sub(HEADER_BYTES)?;
        let copies =
            [0, footer].map(|at| ChunkHeader::decode(&bytes[at..], lineage, bytes.len() as u64));
        let intact = copies.iter().flatten().find(|copy| !copy.is_repaired);
        let found = intact.or(copies.iter().flatten().next())?;
        Some(Self { header: found.value, bytes })
    }

    fn copy(&self, copy: u32, number: u32) -> Option<Page> {
        let layout = self.header.layout();
        let length = layout.page_bytes(number) as u64;
        let bytes = self.part((layout.page_position(copy, number), length));
        open_page(bytes, &self.header, number)
    }

    fn part(&self, (position, length): (u64, u64)) -> &'a [u8] {
        let range = usize::try_from(position).ok().zip(usize::try_from(position + length).ok());
        range.and_then(|(start, end)| self.bytes.get(start..end)).unwrap_or_default()
    }

    /// All rows that can be read, in order.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let pages = (0..self.header.row_pages).filter_map(|page| self.page(page).ok().flatten());
        pages.flat_map(|page| Rows::new(&page).collect::<Vec<_>>()).collect()
    }

    /// A run's bytes and its table's.
    pub(crate) fn run(&self, row: &Row) -> (&'a [u8], &'a [u8]) {
        let table = self.part((row.table_position(), u64::from(row.table_length)));
        (self.part((row.position, u64::from(row.length))), table)
    }
}

impl PageSource for ChunkImage<'_> {
    type Error = Infallible;

    fn header(&self) -> &ChunkHeader {
        &self.header
    }

    fn page(&self, number: u32) -> Result<Option<Arc<Page>>, Infallible> {
        Ok(self.copy(0, number).or_else(|| self.copy(1, number)).map(Arc::new))
    }
}

/// What a look at every byte of a chunk has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkCheck {
    /// Positions of headers and pages of which the other copy is intact.
    pub repaired: Vec<u64>,
    /// Positions of pages that are lost: both copies are damaged.
    pub lost_pages: Vec<u64>,
    /// Positions of runs whose bytes or append table are damaged, or that a newer version wrote.
    pub damaged_runs: Vec<u64>,
    /// Runs that can be read.
    pub intact_runs: u64,
    /// Their bytes.
    pub intact_bytes: u64,
}

/// Looks at every byte of a chunk; `None` if neither header nor footer can be read.
///
/// `lineage` is the lineage id of the directory that the chunk belongs to.
#[must_use]
pub fn check_chunk(bytes: &[u8], lineage: u64) -> Option<ChunkCheck> {
    let image = ChunkImage::open(bytes, lineage)?;
    let mut check = ChunkCheck::default();
    image.check_headers(&mut check);
    image.check_pages(&mut check);
    for row in image.rows() {
        if image.is_run_intact(&row) {
            check.intact_runs += 1;
            check.intact_bytes += u64::from(row.length);
        } else {
            check.damaged_runs.push(row.position);
        }
    }
    Some(check)
}

impl ChunkImage<'_> {
    fn check_headers(&self, check: &mut ChunkCheck) {
        for position in [0, self.header.layout().footer_position()] {
            if self.part((position, HEADER_BYTES as u64)) != self.header.encode() {
                check.repaired.push(position);
            }
        }
    }

    fn check_pages(&self, check: &mut ChunkCheck) {
        let layout = self.header.layout();
        for number in 0..layout.page_count() {
            let bad: Vec<u32> = (0..2).filter(|&copy| self.copy(copy, number).is_none()).collect();
            match bad[..] {
                [] => {}
                [copy] => check.repaired.push(layout.page_position(copy, number)),
                _ => check.lost_pages.push(layout.page_position(0, number)),
            }
        }
    }

    fn is_run_intact(&self, row: &Row) -> bool {
        let Some(body) = row.body else { return false };
        let (data, table) = self.run(row);
        let columns = row.columns().expect("a row with a body has columns");
        crc32c::crc32c(data) == body.data_crc
            && crc32c::crc32c(table) == body.table_crc
            && PieceTable::new(table, columns).is_some()
    }
}

impl Row {
    /// Which columns its append table has; `None` if a newer version wrote it.
    pub(crate) fn columns(&self) -> Option<Columns> {
        let body = self.body?;
        let is_each_one_record = body.is_each_one_record;
        Some(Columns { has_marks: body.marks.is_some(), is_each_one_record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::builder::tests::{Wanted, build, wanted};
    use crate::chunk::header::tests::ORIGIN;
    use crate::chunk::lookup::{Found, block_crc, find_row, rows_of};
    use crate::codec::put;

    fn open(bytes: &[u8]) -> ChunkImage<'_> {
        ChunkImage::open(bytes, ORIGIN.lineage).unwrap()
    }

    fn found(image: &ChunkImage<'_>, stream: u64, at: u64) -> Found {
        let Ok(found) = find_row(image, stream, at);
        found
    }

    fn spoil(bytes: &mut [u8], image_of: &[u8], copy: u32, page: u32) {
        let layout = open(image_of).header.layout();
        let position = layout.page_position(copy, page) as usize;
        put(bytes, position, &vec![0xdb; layout.page_bytes(page)]);
    }

    /// Each byte of each run is found, in its row and with its bytes; no other is.
    fn assert_whole(image: &ChunkImage<'_>, wanted: &[Wanted]) {
        let rows = image.rows();
        assert_eq!(rows.len(), wanted.len());
        for (row, wanted) in rows.iter().zip(wanted) {
            assert_eq!((row.stream, row.start), (wanted.stream, wanted.start));
            assert_eq!(image.run(row).0, wanted.data);
            assert!(image.is_run_intact(row));
            for at in [row.start, row.end() - 1] {
                assert_eq!(found(image, row.stream, at), Found::Row(*row));
            }
            let mut of_stream = Vec::new();
            let Ok(()) = rows_of(image, row.stream, |row| of_stream.push(row), |_| panic!());
            let expected = rows.iter().filter(|other| other.stream == row.stream).copied();
            assert_eq!(of_stream, expected.collect::<Vec<_>>());
        }
        let last = rows.last().unwrap();
        for (stream, at) in [(0, 0), (last.stream, last.end()), (last.stream + 1, last.start)] {
            assert_eq!(found(image, stream, at), Found::Nothing);
        }
    }

    #[test]
    fn what_was_written_is_found() {
        for count in [1, 2, 100, 1000] {
            let wanted = wanted(count, count);
            let bytes = build(&wanted);
            let image = open(&bytes);
            assert_whole(&image, &wanted);
            let header = image.header;
            assert_eq!(header.data_bytes, wanted.iter().map(|run| run.data.len() as u64).sum());
            for block in 0..header.block_count() {
                let Ok(crc) = block_crc(&image, block);
                assert_eq!(crc, Some(crc32c::crc32c(image.part(header.block(block)))));
            }
            let check = check_chunk(&bytes, ORIGIN.lineage).unwrap();
            let expected = ChunkCheck {
                intact_runs: count,
                intact_bytes: header.data_bytes,
                ..ChunkCheck::default()
            };
            assert_eq!(check, expected);
        }
    }

    #[test]
    fn either_copy_is_enough() {
        for (count, copy) in [(1, 0), (1, 1), (20, 0), (20, 1), (1000, 0), (1000, 1)] {
            let wanted = wanted(count, 5);
            let bytes = build(&wanted);
            let mut one = bytes.clone();
            let layout = open(&bytes).header.layout();
            assert_eq!(layout.is_small, count < 1000);
            let pages = layout.page_count();
            (0..pages).for_each(|page| spoil(&mut one, &bytes, copy, page));
            let header = if copy == 0 { 0 } else { one.len() - HEADER_BYTES };
            put(&mut one, header, &[0xdb; HEADER_BYTES]);
            assert_whole(&open(&one), &wanted);
            let check = check_chunk(&one, ORIGIN.lineage).unwrap();
            assert_eq!(check.repaired.len(), pages as usize + 1);
            assert_eq!((check.lost_pages.len(), check.intact_runs), (0, count));
        }
    }

    #[test]
    fn a_page_that_is_lost_twice_costs_its_rows_or_nothing() {
        let wanted = wanted(1000, 6);
        let bytes = build(&wanted);
        let whole = open(&bytes);
        let layout = whole.header.layout();
        assert!(layout.row_pages > 5 && layout.index_pages > 0);
        for lost in 0..layout.page_count() {
            let mut damaged = bytes.clone();
            (0..2).for_each(|copy| spoil(&mut damaged, &bytes, copy, lost));
            let image = open(&damaged);
            if lost >= layout.row_pages {
                assert_whole(&image, &wanted);
                continue;
            }
            let page = whole.page(lost).unwrap().unwrap();
            let gone: Vec<Row> = Rows::new(&page).collect();
            for row in whole.rows() {
                let expected =
                    if gone.contains(&row) { Found::Lost(lost) } else { Found::Row(row) };
                assert_eq!(found(&image, row.stream, row.start), expected);
                assert_eq!(found(&image, row.stream, row.end() - 1), expected);
            }
            let check = check_chunk(&damaged, ORIGIN.lineage).unwrap();
            assert_eq!(check.lost_pages, [layout.page_position(0, lost)]);
            assert_eq!(check.intact_runs, 1000 - gone.len() as u64);
        }
    }

    #[test]
    fn without_any_index_rows_are_found_around_lost_pages() {
        let wanted = wanted(1000, 8);
        let bytes = build(&wanted);
        let whole = open(&bytes);
        let layout = whole.header.layout();
        for lost in 0..layout.row_pages {
            let mut damaged = bytes.clone();
            let index = layout.row_pages..layout.page_count();
            for page in index.chain([lost]) {
                (0..2).for_each(|copy| spoil(&mut damaged, &bytes, copy, page));
            }
            let image = open(&damaged);
            let page = whole.page(lost).unwrap().unwrap();
            let gone: Vec<Row> = Rows::new(&page).collect();
            for row in whole.rows() {
                let expected =
                    if gone.contains(&row) { Found::Lost(lost) } else { Found::Row(row) };
                assert_eq!(found(&image, row.stream, row.start), expected);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found_and_costs_one_run_at_most() {
        for (count, step) in [(40, 1), (200, 13)] {
            let bytes = build(&wanted(count, 9));
            let header = open(&bytes).header;
            let layout = header.layout();
            let front_end = if layout.is_small {
                layout.page_position(0, layout.page_count())
            } else {
                HEADER_BYTES as u64
            };
            let is_spare = |at: u64| {
                (front_end..CONTENT_START).contains(&at)
                    || (header.content_end..layout.tail_start).contains(&at)
            };
            for at in (0..bytes.len() as u64).step_by(step).filter(|&at| !is_spare(at)) {
                let mut damaged = bytes.clone();
                damaged[at as usize] ^= 1 << (at % 8);
                let check = check_chunk(&damaged, ORIGIN.lineage).unwrap();
                let in_content = (CONTENT_START..header.content_end).contains(&at);
                let found =
                    (check.damaged_runs.len(), check.repaired.len(), check.lost_pages.len());
                assert_eq!(found, if in_content { (1, 0, 0) } else { (0, 1, 0) }, "byte {at}");
                assert_eq!(check.intact_runs, if in_content { count - 1 } else { count });
            }
        }
    }

    #[test]
    fn a_page_of_another_chunk_or_place_is_not_taken() {
        let bytes = build(&wanted(300, 10));
        let header = open(&bytes).header;
        let page = |number: u32| {
            let layout = header.layout();
            let position = layout.page_position(0, number) as usize;
            &bytes[position..position + layout.page_bytes(number)]
        };
        assert!(open_page(page(0), &header, 0).is_some());
        assert!(open_page(page(1), &header, 0).is_none());
        let mut other = header;
        other.origin.epoch += 1;
        assert!(open_page(page(0), &other, 0).is_none());
    }

    #[test]
    fn short_or_foreign_bytes_are_no_chunk() {
        let bytes = build(&wanted(3, 11));
        for length in [0, 1, 127, 128, 4096, bytes.len() - 1] {
            assert!(ChunkImage::open(&bytes[..length], ORIGIN.lineage).is_none());
        }
        assert!(ChunkImage::open(&bytes, ORIGIN.lineage + 1).is_none());
    }

    #[test]
    fn the_bytes_of_a_chunk_never_change() {
        let bytes = build(&wanted(3, 12));
        assert!(bytes == include_bytes!("../../testdata/chunk.golden"));
    }
}
