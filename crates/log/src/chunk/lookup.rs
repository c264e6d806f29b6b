//! Finding rows in a chunk by its pages: which page may have a row, and which row it is.
//!
//! # Why
//! Rows are not kept in memory. A lookup takes one block of the filter; for a stream that may be there, a
//! few keys; then one page of rows. Where a page is lost in both copies, what it held is found in other
//! ways, or the answer says which page is missing.
//!
//! # How it is driven
//! By a [`PageSource`], which has the pages in memory, or reads them. Nothing here does IO.
//!
//! # Invariants
//! - A row that is in an intact page is found, whatever other pages are lost.
//! - Without an answer from all pages that may hold a byte, the answer is never "no".

use crate::chunk::filter::{FILTER_BLOCK_BYTES, FilterHash};
use crate::chunk::header::{ChunkHeader, KEY_BYTES};
use crate::chunk::page::Page;
use crate::chunk::row::Row;
use crate::chunk::row_page::{Key, Rows, find};
use crate::codec::{u32_at, u64_at};
use std::ops::Range;
use std::sync::Arc;

/// Where the pages of one chunk come from.
pub(crate) trait PageSource {
    /// Why a page could not be read now, although it may be intact.
    type Error;

    fn header(&self) -> &ChunkHeader;

    /// A page, `None` if both copies are lost. Rows in it are sound.
    ///
    /// # Errors
    /// The source's own.
    fn page(&self, number: u32) -> Result<Option<Arc<Page>>, Self::Error>;

    /// The whole filter, if it is in memory.
    fn filter(&self) -> Option<&[u8]> {
        None
    }
}

/// What a chunk knows of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Row(Row),
    /// It does not have the byte.
    Nothing,
    /// It may have it: this row page is lost.
    Lost(u32),
}

/// The row that holds byte `at` of `stream`.
///
/// # Errors
/// As the source answers.
pub(crate) fn find_row<S: PageSource>(source: &S, stream: u64, at: u64) -> Result<Found, S::Error> {
    if !may_have(source, stream)? {
        return Ok(Found::Nothing);
    }
    let target = Key { stream, start: at };
    // Behind the page with the last known key before it there may be lost ones.
    let mut lost = None;
    for page in candidates(source, target)?.rev() {
        match source.page(page)? {
            None => lost = Some(page),
            Some(rows) => {
                let is_before = Rows::new(&rows).next().is_some_and(|row| row.key() <= target);
                if let Some(row) = find(&rows, stream, at) {
                    return Ok(Found::Row(row));
                }
                if is_before {
                    break;
                }
            }
        }
    }
    Ok(lost.map_or(Found::Nothing, Found::Lost))
}

/// The rows of a stream in order, each given to `each`; row pages that are lost and may have some of them go
/// to `lost`.
///
/// # Errors
/// As the source answers.
pub(crate) fn rows_of<S: PageSource>(
    source: &S,
    stream: u64,
    mut each: impl FnMut(Row),
    mut lost: impl FnMut(u32),
) -> Result<(), S::Error> {
    if !may_have(source, stream)? {
        return Ok(());
    }
    let first = candidates(source, Key { stream, start: 0 })?.start;
    for page in first..source.header().row_pages {
        let Some(rows) = source.page(page)? else {
            lost(page);
            continue;
        };
        let mut is_behind = false;
        for row in Rows::new(&rows) {
            is_behind = row.stream > stream;
            if row.stream == stream {
                each(row);
            }
        }
        if is_behind {
            break;
        }
    }
    Ok(())
}

/// Whether the stream may have a row. No page of rows is looked at.
///
/// # Errors
/// As the source answers.
pub(crate) fn may_have<S: PageSource>(source: &S, stream: u64) -> Result<bool, S::Error> {
    let header = source.header();
    if !header.names(stream) {
        return Ok(false);
    }
    let layout = header.layout();
    let hash = FilterHash::of(stream);
    let start = hash.block_start(layout.filter_bytes());
    if let Some(filter) = source.filter() {
        let start = usize::try_from(start).expect("fits memory");
        return Ok(hash.may_be_in(&filter[start..start + FILTER_BLOCK_BYTES]));
    }
    let at = layout.filter_start + start;
    let block = index_bytes(source, at, FILTER_BLOCK_BYTES)?;
    Ok(block.is_none_or(|(page, place)| hash.may_be_in(&page.payload[place])))
}

/// The checksum of a block of content; `None` if its page is lost.
///
/// # Errors
/// As the source answers.
pub(crate) fn block_crc<S: PageSource>(source: &S, block: u64) -> Result<Option<u32>, S::Error> {
    let at = source.header().layout().blocks_start + block * 4;
    let bytes = index_bytes(source, at, 4)?;
    Ok(bytes.map(|(page, place)| u32_at(&page.payload, place.start)))
}

/// Row pages one of which has the row: from the last one with a known key up to `target`, to the last one
/// without a key.
fn candidates<S: PageSource>(source: &S, target: Key) -> Result<Range<u32>, S::Error> {
    let (mut low, mut high) = (0, source.header().row_pages);
    // All pages below `low` begin at or before the target, all from `high` on behind it.
    while low < high {
        let middle = low.midpoint(high);
        match key_between(source, middle, low..high)? {
            None => return Ok(low.saturating_sub(1)..high),
            Some((page, key)) if key <= target => low = page + 1,
            Some((page, _)) => high = page,
        }
    }
    Ok(low.saturating_sub(1)..low)
}

/// The page next to `middle` in `range` whose key is known, and its key.
fn key_between<S: PageSource>(
    source: &S,
    middle: u32,
    range: Range<u32>,
) -> Result<Option<(u32, Key)>, S::Error> {
    for page in (middle..range.end).chain((range.start..middle).rev()) {
        if let Some(key) = key(source, page)? {
            return Ok(Some((page, key)));
        }
    }
    Ok(None)
}

/// The key of a row page, from the index, else from its first row.
fn key<S: PageSource>(source: &S, page: u32) -> Result<Option<Key>, S::Error> {
    let at = u64::from(page) * KEY_BYTES;
    if let Some((index, place)) = index_bytes(source, at, KEY_BYTES as usize)? {
        let at = |offset| u64_at(&index.payload, place.start + offset);
        return Ok(Some(Key { stream: at(0), start: at(8) }));
    }
    let rows = source.page(page)?;
    Ok(rows.and_then(|rows| Rows::new(&rows).next().map(|row| row.key())))
}

/// A page of the index, and a place in its payload.
type IndexPart = (Arc<Page>, Range<usize>);

/// The page that holds `length` bytes of the index at `at`, and their place in it.
fn index_bytes<S: PageSource>(
    source: &S,
    at: u64,
    length: usize,
) -> Result<Option<IndexPart>, S::Error> {
    let (number, place) = source.header().layout().index_place(at);
    let page = source.page(number)?;
    Ok(page
        .filter(|page| page.payload.len() >= place + length)
        .map(|page| (page, place..place + length)))
}
