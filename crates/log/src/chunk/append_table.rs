//! Where the appends of a run begin, how many records they hold and when they were made.
//!
//! # Format
//! `append_count u32, page_count u32`, then per page of up to 256 appends a point
//! `start u64, records_before u64, first_at u64, position u32`, then the pages: per append three
//! varints `length, records, zigzag(at - at of the append before)`, the first difference of a page
//! being from `first_at`. Positions count from the first page. No checksum of its own: the table is
//! part of the chunk's checksummed content.
//!
//! # Invariants
//! - Points are sorted by start; a page is decoded only from its own point.

use crate::codec::{put_varint, take_varint, u32_at, u64_at, unzigzag, zigzag};
use crate::entry::AppendBounds;
use model::{ByteOffset, Timestamp};

const PAGE_APPENDS: u32 = 256;
const HEADER_BYTES: usize = 8;
const POINT_BYTES: usize = 28;

/// Builds the table of one run.
#[derive(Debug, Default)]
pub(crate) struct AppendTableWriter {
    points: Vec<u8>,
    pages: Vec<u8>,
    append_count: u32,
    page_count: u32,
    records: u64,
    at_last: u64,
}

impl AppendTableWriter {
    pub(crate) fn push(&mut self, append: &AppendBounds) {
        let at = append.at.get();
        if self.append_count.is_multiple_of(PAGE_APPENDS) {
            let position =
                u32::try_from(self.pages.len()).expect("a table is smaller than a chunk");
            self.points.extend_from_slice(&append.start.get().to_le_bytes());
            self.points.extend_from_slice(&self.records.to_le_bytes());
            self.points.extend_from_slice(&at.to_le_bytes());
            self.points.extend_from_slice(&position.to_le_bytes());
            self.page_count += 1;
            self.at_last = at;
        }
        put_varint(&mut self.pages, append.end.since(append.start));
        put_varint(&mut self.pages, u64::from(append.records));
        put_varint(&mut self.pages, zigzag(at.wrapping_sub(self.at_last) as i64));
        self.at_last = at;
        self.records += u64::from(append.records);
        self.append_count += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.append_count == 0
    }

    /// The table's bytes; the writer is empty afterwards.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let done = std::mem::take(self);
        let mut out = Vec::with_capacity(HEADER_BYTES + done.points.len() + done.pages.len());
        out.extend_from_slice(&done.append_count.to_le_bytes());
        out.extend_from_slice(&done.page_count.to_le_bytes());
        out.extend_from_slice(&done.points);
        out.extend_from_slice(&done.pages);
        out
    }
}

/// Reads a table; `None` wherever the bytes make no sense.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendTable<'a> {
    points: &'a [u8],
    pages: &'a [u8],
}

impl<'a> AppendTable<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES {
            return None;
        }
        let points_bytes = (u32_at(bytes, 4) as usize).checked_mul(POINT_BYTES)?;
        let rest = &bytes[HEADER_BYTES..];
        if points_bytes == 0 || points_bytes > rest.len() {
            return None;
        }
        let (points, pages) = rest.split_at(points_bytes);
        Some(Self { points, pages })
    }

    fn page_count(&self) -> usize {
        self.points.len() / POINT_BYTES
    }

    fn page_start(&self, page: usize) -> u64 {
        u64_at(self.points, page * POINT_BYTES)
    }

    fn page_bytes(&self, page: usize) -> Option<&'a [u8]> {
        let position = |page| u32_at(self.points, page * POINT_BYTES + 24) as usize;
        let end = if page + 1 < self.page_count() { position(page + 1) } else { self.pages.len() };
        self.pages.get(position(page)..end)
    }

    /// The append that contains byte `at`.
    pub(crate) fn find(&self, at: u64) -> Option<AppendBounds> {
        let (mut low, mut high) = (0, self.page_count());
        while low < high {
            let middle = low.midpoint(high);
            if self.page_start(middle) <= at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let page = low.checked_sub(1)?;
        self.page(page)?.find(|append| at < append.end.get())
    }

    fn page(&self, page: usize) -> Option<PageAppends<'a>> {
        Some(PageAppends {
            rest: self.page_bytes(page)?,
            start: self.page_start(page),
            at: u64_at(self.points, page * POINT_BYTES + 16),
        })
    }

    /// All appends in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = AppendBounds> + 'a {
        (0..self.page_count()).filter_map(move |page| self.page(page)).flatten()
    }
}

struct PageAppends<'a> {
    rest: &'a [u8],
    start: u64,
    at: u64,
}

impl Iterator for PageAppends<'_> {
    type Item = AppendBounds;

    fn next(&mut self) -> Option<AppendBounds> {
        let length = take_varint(&mut self.rest)?;
        let records = u32::try_from(take_varint(&mut self.rest)?).ok()?;
        let difference = unzigzag(take_varint(&mut self.rest)?);
        let (start, end) = (self.start, self.start.checked_add(length)?);
        self.at = self.at.wrapping_add(difference as u64);
        self.start = end;
        Some(AppendBounds {
            start: ByteOffset::new(start),
            end: ByteOffset::new(end),
            records,
            at: Timestamp::new(self.at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appends(count: u64) -> Vec<AppendBounds> {
        let bounds = |number: u64| AppendBounds {
            start: ByteOffset::new(1000 + number * 10),
            end: ByteOffset::new(1000 + number * 10 + 10),
            records: number as u32,
            // A clock that jumps back now and then.
            at: Timestamp::new(1_700_000_000_000 + number * 5 - (number % 7) * 100),
        };
        (0..count).map(bounds).collect()
    }

    fn table(appends: &[AppendBounds]) -> Vec<u8> {
        let mut writer = AppendTableWriter::default();
        appends.iter().for_each(|append| writer.push(append));
        writer.finish()
    }

    #[test]
    fn every_append_is_found_by_its_first_and_last_byte() {
        let appends = appends(1000);
        let bytes = table(&appends);
        let table = AppendTable::new(&bytes).unwrap();
        assert_eq!(table.iter().collect::<Vec<_>>(), appends);
        for append in &appends {
            assert_eq!(table.find(append.start.get()), Some(*append));
            assert_eq!(table.find(append.end.get() - 1), Some(*append));
        }
        assert_eq!(table.find(999), None);
        assert_eq!(table.find(11_000), None);
    }

    #[test]
    fn senseless_bytes_are_refused() {
        assert!(AppendTable::new(&[]).is_none());
        assert!(AppendTable::new(&[1, 0, 0, 0, 9, 0, 0, 0]).is_none());
        let bytes = table(&appends(10));
        for length in 0..bytes.len() {
            if let Some(table) = AppendTable::new(&bytes[..length]) {
                let _ = table.find(1050);
                assert!(table.iter().count() <= 10);
            }
        }
    }
}
