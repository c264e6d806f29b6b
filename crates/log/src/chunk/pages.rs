//! Makes the pages of a chunk: rows as they come, the index at the end.
//!
//! # Driving it
//! `push` each row in order; `finish` gives the header and all pages.
//!
//! # Invariants
//! - Memory is what the rows take, some 30 bytes each, and one filter.

use crate::chunk::filter::Filter;
use crate::chunk::header::{CONTENT_START, ChunkHeader, HEADER_BYTES, KEY_BYTES, Origin};
use crate::chunk::page::{PAGE_BYTES, PAYLOAD_BYTES, Page};
use crate::chunk::row::Row;
use crate::chunk::row_page::{Key, RowPageWriter, Rows};
use crate::codec::put;

/// What a chunk is, besides its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkIdentity {
    pub(crate) group: u16,
    pub(crate) origin: Origin,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Rows of a chunk that is being made.
#[derive(Debug, Default)]
pub(crate) struct PagesWriter {
    rows: RowPageWriter,
    full: Vec<(Key, Page)>,
    row_count: u32,
    data_bytes: u64,
    first: Option<Row>,
    last: Option<Row>,
    /// Earliest and latest arrival.
    times: Option<(u64, u64)>,
}

impl PagesWriter {
    /// Adds a row of this version.
    ///
    /// # Panics
    /// If it does not follow the last one.
    pub(crate) fn push(&mut self, row: Row) {
        assert!(self.last.is_none_or(|last| row.follows(&last)), "runs come in order");
        let body = row.body.expect("only rows of this version are written");
        self.full.extend(self.rows.push(&row));
        self.row_count = self.row_count.checked_add(1).expect("a chunk has fewer than 2^32 runs");
        self.data_bytes += u64::from(row.length);
        let times = self.times.unwrap_or((body.first_at, body.last_at));
        self.times = Some((times.0.min(body.first_at), times.1.max(body.last_at)));
        self.first.get_or_insert(row);
        self.last = Some(row);
    }

    /// The row that was added last.
    pub(crate) fn last(&self) -> Option<&Row> {
        self.last.as_ref()
    }

    /// Header and pages of a chunk whose content ends at `content_end` and has these block checksums; `None`
    /// if there is no row.
    ///
    /// # Panics
    /// If the checksums are not those of so much content.
    pub(crate) fn finish(
        mut self,
        identity: ChunkIdentity,
        content_end: u64,
        block_crcs: &[u8],
    ) -> Option<ChunkPages> {
        let (first, last) = (self.first?, self.last?);
        self.full.extend(self.rows.finish());
        let (first_at, last_at) = self.times?;
        let ChunkIdentity { group, origin, from, to } = identity;
        let header = ChunkHeader {
            group,
            origin,
            from,
            to,
            content_end,
            data_bytes: self.data_bytes,
            row_count: self.row_count,
            row_pages: u32::try_from(self.full.len()).expect("fewer pages than rows"),
            first_stream: first.stream,
            last_stream: last.stream,
            first_at,
            last_at,
            row_page_bytes: PAGE_BYTES as u16,
        };
        let header = match &self.full[..] {
            [(_, only)] => header.shortened(only.payload.len()),
            _ => header,
        };
        let index = index(&header, &self.full, block_crcs);
        Some(ChunkPages { header, rows: self.full, index })
    }
}

/// The bytes of the index.
fn index(header: &ChunkHeader, rows: &[(Key, Page)], block_crcs: &[u8]) -> Vec<u8> {
    let layout = header.layout();
    let mut out = vec![0; usize::try_from(layout.index_bytes).expect("an index fits memory")];
    let mut filter = Filter::new(header.row_count);
    for (at, (key, page)) in (0..).step_by(KEY_BYTES as usize).zip(rows) {
        put(&mut out, at, &key.stream.to_le_bytes());
        put(&mut out, at + 8, &key.start.to_le_bytes());
        Rows::new(page).for_each(|row| filter.add(row.stream));
    }
    put(&mut out, layout.filter_start as usize, &filter.into_bytes());
    assert_eq!(block_crcs.len() as u64, header.block_count() * 4, "a checksum for each block");
    put(&mut out, layout.blocks_start as usize, block_crcs);
    out
}

/// The pages of a finished chunk.
#[derive(Debug)]
pub(crate) struct ChunkPages {
    pub(crate) header: ChunkHeader,
    rows: Vec<(Key, Page)>,
    index: Vec<u8>,
}

impl ChunkPages {
    /// The bytes from the header to the content.
    pub(crate) fn front(&self) -> Vec<u8> {
        let mut out = self.header.encode().to_vec();
        if self.header.layout().is_small {
            self.sealed().for_each(|page| out.extend_from_slice(&page));
        }
        assert!(out.len() <= CONTENT_START as usize, "what is in front of the content fits there");
        out.resize(CONTENT_START as usize, 0);
        out
    }

    /// The bytes of the pages behind the content, in order.
    pub(crate) fn tail(&self) -> impl Iterator<Item = Vec<u8>> {
        let copies = if self.header.layout().is_small { 1 } else { 2 };
        (0..copies).flat_map(|_| self.sealed())
    }

    /// The bytes of the footer.
    pub(crate) fn footer(&self) -> [u8; HEADER_BYTES] {
        self.header.encode()
    }

    fn sealed(&self) -> impl Iterator<Item = Vec<u8>> {
        let rows = self.rows.iter().map(|(_, page)| page.clone());
        let starts = (0..).step_by(PAYLOAD_BYTES);
        let parts = starts.zip(self.index.chunks(PAYLOAD_BYTES));
        let index =
            parts.map(|(position, part)| Page { row_count: 0, position, payload: part.into() });
        let (origin, layout) = (self.header.origin, self.header.layout());
        (0..).zip(rows.chain(index)).map(move |(number, page)| {
            page.seal(layout.page_bytes(number), &origin.page_seed(number))
        })
    }
}
