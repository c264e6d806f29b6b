//! Header and footer of a chunk, and where everything in the file is.
//!
//! # Invariants
//! - The header alone says where each page is: a reader needs no other pointer.
//! - Numbers from disk are compared before they are added or multiplied.
//! - Copies of a page are in blocks that are no neighbours, unless all content is in the second one.
//!
//! # Format
//! `docs/format/chunk.md`.

use crate::chunk::filter::filter_bytes;
use crate::chunk::page::{PAGE_BYTES, PAGE_STEP_BYTES, PAYLOAD_BYTES, page_bytes_for};
use crate::chunk::row_page::ROWS_PER_PAGE_MAX;
use crate::codec::{NUMBER_MAX, Unsealed, put, seal_header, u16_at, u32_at, u64_at, unseal};
use crate::newer::{NewerVersion, is_spare, newer_in};
use crate::options::{BLOCK_BYTES, CHUNK_BLOCK_BYTES};

pub(crate) const HEADER_BYTES: usize = 128;
/// Where the first run begins.
pub(crate) const CONTENT_START: u64 = BLOCK_BYTES;
/// Bytes of a key: stream and start of a page's first row.
pub(crate) const KEY_BYTES: u64 = 16;

const MAGIC: u32 = u32::from_le_bytes(*b"ThCh");
const VERSION: u16 = 2;
const SPARE: std::ops::Range<usize> = 114..124;
/// No chunk is larger: merges and appends end far below.
const CONTENT_END_MAX: u64 = 1 << 40;
const PAGE: u64 = PAGE_BYTES as u64;
/// Room for pages behind the header.
pub(crate) const FRONT_BYTES: usize = CONTENT_START as usize - HEADER_BYTES;
/// What precedes the filter, and the filter itself, are whole multiples of this.
const ALIGNED_BYTES: u64 = 32;

const _: () = assert!(PAYLOAD_BYTES.is_multiple_of(ALIGNED_BYTES as usize));

/// Under which names the bytes of a chunk were written first; every checksum is seeded with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) lineage: u64,
    pub(crate) store: u64,
    /// Which opening of the store.
    pub(crate) epoch: u64,
    /// Number of the chunk in its group.
    pub(crate) number: u64,
}

impl Origin {
    /// The seed of a page's checksum.
    pub(crate) fn page_seed(self, page: u32) -> [u8; 36] {
        let mut seed = [0; 36];
        put(&mut seed, 0, &self.lineage.to_le_bytes());
        put(&mut seed, 8, &self.store.to_le_bytes());
        put(&mut seed, 16, &self.epoch.to_le_bytes());
        put(&mut seed, 24, &self.number.to_le_bytes());
        put(&mut seed, 32, &page.to_le_bytes());
        seed
    }
}

/// Header and footer of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) group: u16,
    pub(crate) origin: Origin,
    /// The chunk holds the data of entries `from < index <= to`.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Where runs and append tables end.
    pub(crate) content_end: u64,
    /// Bytes of all runs.
    pub(crate) data_bytes: u64,
    pub(crate) row_count: u32,
    pub(crate) row_pages: u32,
    pub(crate) first_stream: u64,
    pub(crate) last_stream: u64,
    /// Earliest and latest arrival, milliseconds.
    pub(crate) first_at: u64,
    pub(crate) last_at: u64,
    /// Length of a row page: that of a whole page, or less if the chunk is small.
    pub(crate) row_page_bytes: u16,
}

impl ChunkHeader {
    /// Whether it may have rows of a stream, by the numbers of its first and last one.
    pub(crate) fn names(&self, stream: u64) -> bool {
        (self.first_stream..=self.last_stream).contains(&stream)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let Origin { lineage, store, epoch, number } = self.origin;
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &VERSION.to_le_bytes());
        put(&mut out, 6, &self.group.to_le_bytes());
        let numbers = [lineage, store, epoch, number, self.from, self.to, self.content_end];
        for (at, value) in (8..).step_by(8).zip(numbers) {
            put(&mut out, at, &value.to_le_bytes());
        }
        put(&mut out, 64, &self.data_bytes.to_le_bytes());
        put(&mut out, 72, &self.row_count.to_le_bytes());
        put(&mut out, 76, &self.row_pages.to_le_bytes());
        let bounds = [self.first_stream, self.last_stream, self.first_at, self.last_at];
        for (at, value) in (80..).step_by(8).zip(bounds) {
            put(&mut out, at, &value.to_le_bytes());
        }
        put(&mut out, 112, &self.row_page_bytes.to_le_bytes());
        seal_header(&mut out, &lineage.to_le_bytes());
        out
    }

    /// The header in `bytes`, which is one of a file of this lineage and of this length.
    pub(crate) fn decode(bytes: &[u8], lineage: u64, file_bytes: u64) -> Option<Unsealed<Self>> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        unseal(bytes, &lineage.to_le_bytes(), |bytes| {
            let header = Self::decode_fields(bytes)?;
            let fits = header.layout().file_bytes() == file_bytes;
            (header.origin.lineage == lineage && fits).then_some(header)
        })
    }

    /// What a newer version wrote into a header of this lineage, if `bytes` are one.
    pub(crate) fn newer_in(bytes: &[u8], lineage: u64) -> Option<NewerVersion> {
        let bytes = bytes.get(..HEADER_BYTES).filter(|bytes| u32_at(bytes, 0) == MAGIC)?;
        newer_in(bytes, &lineage.to_le_bytes(), (Some(VERSION), SPARE))
    }

    fn decode_fields(bytes: &[u8]) -> Option<Self> {
        let is_ours = u32_at(bytes, 0) == MAGIC && u16_at(bytes, 4) == VERSION;
        if !is_ours || !is_spare(bytes, SPARE) {
            return None;
        }
        let header = Self {
            group: u16_at(bytes, 6),
            origin: Origin {
                lineage: u64_at(bytes, 8),
                store: u64_at(bytes, 16),
                epoch: u64_at(bytes, 24),
                number: u64_at(bytes, 32),
            },
            from: u64_at(bytes, 40),
            to: u64_at(bytes, 48),
            content_end: u64_at(bytes, 56),
            data_bytes: u64_at(bytes, 64),
            row_count: u32_at(bytes, 72),
            row_pages: u32_at(bytes, 76),
            first_stream: u64_at(bytes, 80),
            last_stream: u64_at(bytes, 88),
            first_at: u64_at(bytes, 96),
            last_at: u64_at(bytes, 104),
            row_page_bytes: u16_at(bytes, 112),
        };
        header.is_possible().then_some(header)
    }

    fn is_possible(&self) -> bool {
        let (rows, pages) = (u64::from(self.row_count), u64::from(self.row_pages));
        let rows_max = pages * u64::from(ROWS_PER_PAGE_MAX);
        let content = CONTENT_START..=CONTENT_END_MAX;
        self.from <= self.to
            && self.to.max(self.origin.number).max(self.origin.epoch) <= NUMBER_MAX
            && content.contains(&self.content_end)
            && self.data_bytes <= self.content_end - CONTENT_START
            && pages > 0
            && (pages..=rows_max).contains(&rows)
            && self.first_stream <= self.last_stream
            && self.first_at <= self.last_at
            && (usize::from(self.row_page_bytes) == PAGE_BYTES || self.may_be_small())
    }

    /// Whether the only row page and the only index page fit behind the header.
    fn may_be_small(&self) -> bool {
        let row_page_bytes = usize::from(self.row_page_bytes);
        let layout = self.layout();
        let is_page = row_page_bytes > 0 && row_page_bytes.is_multiple_of(PAGE_STEP_BYTES);
        is_page
            && (layout.row_pages, layout.index_pages) == (1, 1)
            && row_page_bytes + small_index_page_bytes(layout.index_bytes) <= FRONT_BYTES
    }

    /// The same chunk with pages as short as they can be, if its only row page has so much payload and both fit
    /// behind the header.
    #[must_use]
    pub(crate) fn shortened(self, row_payload_bytes: usize) -> Self {
        let row_page_bytes = u16::try_from(page_bytes_for(row_payload_bytes)).expect("a page");
        let small = Self { row_page_bytes, ..self };
        if small.may_be_small() { small } else { self }
    }

    fn is_small(&self) -> bool {
        usize::from(self.row_page_bytes) < PAGE_BYTES
    }

    /// Where pages are.
    pub(crate) fn layout(&self) -> Layout {
        let keys_bytes = (u64::from(self.row_pages) * KEY_BYTES).next_multiple_of(ALIGNED_BYTES);
        let blocks_start = keys_bytes + filter_bytes(self.row_count);
        let index_bytes = blocks_start + self.block_count() * 4;
        let index_pages = index_bytes.div_ceil(PAYLOAD_BYTES as u64);
        let index_pages = u32::try_from(index_pages).expect("bounded by rows and content");
        let is_small = self.is_small();
        let step = if is_small { PAGE_STEP_BYTES as u64 } else { PAGE };
        let index_page_bytes =
            if is_small { small_index_page_bytes(index_bytes) } else { PAGE_BYTES };
        Layout {
            is_small,
            tail_start: self.content_end.next_multiple_of(step),
            row_pages: self.row_pages,
            index_pages,
            page_bytes: (usize::from(self.row_page_bytes), index_page_bytes),
            filter_start: keys_bytes,
            blocks_start,
            index_bytes,
        }
    }

    /// Number of checksummed blocks of content; the last one may be short.
    pub(crate) fn block_count(&self) -> u64 {
        (self.content_end - CONTENT_START).div_ceil(CHUNK_BLOCK_BYTES)
    }

    /// Position and length of a block of content.
    pub(crate) fn block(&self, number: u64) -> (u64, u64) {
        let start = CONTENT_START + number * CHUNK_BLOCK_BYTES;
        (start, (self.content_end - start).min(CHUNK_BLOCK_BYTES))
    }
}

/// The length of the only index page of a small chunk.
fn small_index_page_bytes(index_bytes: u64) -> usize {
    page_bytes_for(usize::try_from(index_bytes).expect("an index fits memory"))
}

/// Where the pages of a chunk are, and what is in its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The first copies of its pages are behind the header.
    pub(crate) is_small: bool,
    /// Where pages behind the content begin.
    pub(crate) tail_start: u64,
    pub(crate) row_pages: u32,
    pub(crate) index_pages: u32,
    /// The length of a row page and of an index page.
    page_bytes: (usize, usize),
    /// Positions inside the index, which begins with the keys.
    pub(crate) filter_start: u64,
    pub(crate) blocks_start: u64,
    pub(crate) index_bytes: u64,
}

impl Layout {
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.blocks_start - self.filter_start
    }

    pub(crate) fn page_count(&self) -> u32 {
        self.row_pages + self.index_pages
    }

    pub(crate) fn page_bytes(&self, page: u32) -> usize {
        if page < self.row_pages { self.page_bytes.0 } else { self.page_bytes.1 }
    }

    /// Position in the file of a copy, 0 or 1, of a page.
    pub(crate) fn page_position(&self, copy: u32, page: u32) -> u64 {
        let start = match (copy, self.is_small) {
            (0, true) => HEADER_BYTES as u64,
            (0, false) | (_, true) => self.tail_start,
            (_, false) => self.tail_start + self.place_in_copy(self.page_count()),
        };
        start + self.place_in_copy(page)
    }

    /// Bytes of one copy that come before a page.
    fn place_in_copy(&self, page: u32) -> u64 {
        let rows = u64::from(page.min(self.row_pages)) * self.page_bytes.0 as u64;
        rows + u64::from(page.saturating_sub(self.row_pages)) * self.page_bytes.1 as u64
    }

    pub(crate) fn footer_position(&self) -> u64 {
        self.page_position(1, self.page_count())
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.footer_position() + HEADER_BYTES as u64
    }

    /// The page that holds byte `at` of the index, and its place in the payload.
    pub(crate) fn index_place(&self, at: u64) -> (u32, usize) {
        let payload = PAYLOAD_BYTES as u64;
        let page = u32::try_from(at / payload).expect("inside the index");
        (self.row_pages + page, (at % payload) as usize)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const ORIGIN: Origin = Origin { lineage: 77, store: 78, epoch: 3, number: 9 };

    const HEADER: ChunkHeader = ChunkHeader {
        group: 3,
        origin: ORIGIN,
        from: 10,
        to: 20,
        content_end: 5000,
        data_bytes: 800,
        row_count: 2,
        row_pages: 1,
        first_stream: 4,
        last_stream: 6,
        first_at: 100,
        last_at: 200,
        row_page_bytes: 4096,
    };

    fn decode(bytes: &[u8]) -> Option<Unsealed<ChunkHeader>> {
        ChunkHeader::decode(bytes, 77, HEADER.layout().file_bytes())
    }

    #[test]
    fn a_header_comes_back_and_any_one_flipped_bit_is_put_right() {
        let intact = decode(&HEADER.encode()).unwrap();
        assert_eq!((intact.value, intact.is_repaired), (HEADER, false));
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = HEADER.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let repaired = decode(&bytes).unwrap();
            assert_eq!((repaired.value, repaired.is_repaired), (HEADER, true), "bit {bit}");
        }
    }

    #[test]
    fn a_header_of_another_lineage_or_of_a_file_of_another_length_is_not_ours() {
        let file_bytes = HEADER.layout().file_bytes();
        assert_eq!(ChunkHeader::decode(&HEADER.encode(), 76, file_bytes), None);
        assert_eq!(ChunkHeader::decode(&HEADER.encode(), 77, file_bytes - 1), None);
        assert_eq!(ChunkHeader::decode(&HEADER.encode()[1..], 77, file_bytes), None);
    }

    #[test]
    fn an_intact_header_of_another_kind_or_version_is_not_ours() {
        for at in [0, 4, 5].into_iter().chain(SPARE) {
            let mut bytes = HEADER.encode();
            bytes[at] ^= 1;
            seal_header(&mut bytes, &77_u64.to_le_bytes());
            assert_eq!(decode(&bytes), None, "changed at {at}");
        }
    }

    #[test]
    fn a_header_that_is_impossible_is_refused() {
        let impossible = [
            ChunkHeader { from: 21, ..HEADER },
            ChunkHeader { to: NUMBER_MAX + 1, ..HEADER },
            ChunkHeader { origin: Origin { epoch: u64::MAX, ..ORIGIN }, ..HEADER },
            ChunkHeader { content_end: CONTENT_START - 1, ..HEADER },
            ChunkHeader { content_end: u64::MAX, ..HEADER },
            ChunkHeader { data_bytes: 5000, ..HEADER },
            ChunkHeader { row_count: 0, ..HEADER },
            ChunkHeader { row_count: u32::MAX, ..HEADER },
            ChunkHeader { row_pages: 0, ..HEADER },
            ChunkHeader { row_pages: 3, ..HEADER },
            ChunkHeader { first_stream: 7, ..HEADER },
            ChunkHeader { first_at: 201, ..HEADER },
            ChunkHeader { row_page_bytes: 0, ..HEADER },
            ChunkHeader { row_page_bytes: 100, ..HEADER },
            ChunkHeader { row_page_bytes: 4096 + 64, ..HEADER },
            ChunkHeader { row_page_bytes: 3968 - 64, ..HEADER },
            ChunkHeader { row_page_bytes: 128, row_pages: 2, ..HEADER },
        ];
        for (number, header) in impossible.iter().enumerate() {
            assert!(!header.is_possible(), "impossible header {number}");
            assert_eq!(ChunkHeader::decode_fields(&header.encode()), None);
        }
    }

    #[test]
    fn copies_of_a_page_lie_in_blocks_that_are_no_neighbours() {
        for (row_count, row_pages, content_end) in [(1, 1, 4097), (500, 4, 1 << 28), (225, 1, 5000)]
        {
            let layout = ChunkHeader { row_count, row_pages, content_end, ..HEADER }.layout();
            for page in 0..layout.page_count() {
                let copies = [0, 1].map(|copy| layout.page_position(copy, page));
                assert!(copies.iter().all(|position| position.is_multiple_of(BLOCK_BYTES)));
                assert!(copies[1] - copies[0] >= 2 * BLOCK_BYTES);
            }
            assert!(layout.page_position(0, 0) >= content_end);
            let (last, _) = layout.index_place(layout.index_bytes - 1);
            assert_eq!(last + 1, layout.page_count());
        }
    }

    #[test]
    fn a_small_chunk_has_its_first_copies_behind_the_header() {
        let header = HEADER.shortened(100);
        assert_eq!(header.row_page_bytes, 192);
        let layout = header.layout();
        // 32 bytes of keys, 32 of a filter, a checksum, and 32 around them.
        let places = |copy| [0, 1].map(|page| layout.page_position(copy, page));
        assert_eq!((places(0), places(1)), ([128, 320], [5056, 5248]));
        assert_eq!([0, 1].map(|page| layout.page_bytes(page)), [192, 128]);
        assert_eq!((layout.footer_position(), layout.file_bytes()), (5376, 5504));
        let decoded = ChunkHeader::decode(&header.encode(), 77, 5504).unwrap();
        assert_eq!(decoded.value, header);
    }

    #[test]
    fn a_chunk_is_small_while_its_pages_fit_behind_the_header() {
        // The index page takes 128 bytes, the page around a payload 32.
        let fitting = FRONT_BYTES - 128 - 32;
        assert!(HEADER.shortened(fitting).layout().is_small);
        assert_eq!(HEADER.shortened(fitting + 1), HEADER);
        for large in
            [ChunkHeader { row_pages: 2, ..HEADER }, ChunkHeader { content_end: 1 << 30, ..HEADER }]
        {
            assert_eq!(large.shortened(100), large);
        }
    }
}
