//! Pages: up to 4096 checked bytes that a chunk has twice.
//!
//! # Why
//! Rows and index are what all runs are found by, so one bad block must not cost them. Each page lies in one
//! block of the disk, with a checksum of its own, and its copy is in another one. To put a flipped bit right
//! would take 32,000 tries and could go wrong: the copy is surer.
//!
//! # Invariants
//! - The checksum is seeded with the chunk's origin and the page's number: a page is good in its place only.
//! - What is written as zero is checked to be zero.
//!
//! # Format
//! `docs/format/chunk.md`.

use crate::codec::{header_is_sealed, put, seal_bytes, u16_at, u32_at, u64_at};

/// A whole page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The length of a shorter one is a multiple of this.
pub(crate) const PAGE_STEP_BYTES: usize = 64;
/// Bytes of rows or index in a whole page.
pub(crate) const PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_FRAME_BYTES;

const PAYLOAD_START: usize = 28;
/// What a page has around its payload.
const PAGE_FRAME_BYTES: usize = PAYLOAD_START + 4;

/// The length of the shortest page with so much payload.
pub(crate) const fn page_bytes_for(payload_bytes: usize) -> usize {
    (PAGE_FRAME_BYTES + payload_bytes).next_multiple_of(PAGE_STEP_BYTES)
}

/// What an intact page holds, without its padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Rows in it; 0 in a page of the index.
    pub(crate) row_count: u16,
    /// Of the first row's run in the file, or of the first byte in the index.
    pub(crate) position: u64,
    pub(crate) payload: Box<[u8]>,
}

impl Page {
    /// The bytes of a page of this length.
    ///
    /// # Panics
    /// If the payload is larger than it holds.
    pub(crate) fn seal(&self, page_bytes: usize, seed: &[u8]) -> Vec<u8> {
        assert!(self.payload.len() + PAGE_FRAME_BYTES <= page_bytes, "a payload fits its page");
        let mut out = vec![0; page_bytes];
        put(&mut out, 0, &(self.payload.len() as u16).to_le_bytes());
        put(&mut out, 2, &self.row_count.to_le_bytes());
        put(&mut out, 8, &self.position.to_le_bytes());
        put(&mut out, PAYLOAD_START, &self.payload);
        seal_bytes(&mut out, seed);
        out
    }

    /// What [`Page::seal`] has sealed; `None` if a bit of it has changed, or if it is another page.
    pub(crate) fn open(bytes: &[u8], seed: &[u8]) -> Option<Self> {
        if bytes.len() < PAGE_FRAME_BYTES || !header_is_sealed(bytes, seed) {
            return None;
        }
        let length = usize::from(u16_at(bytes, 0));
        let (payload, padding) = bytes[PAYLOAD_START..bytes.len() - 4].split_at_checked(length)?;
        let mut spare = bytes[16..PAYLOAD_START].iter().chain(padding);
        if u32_at(bytes, 4) != 0 || spare.any(|&byte| byte != 0) {
            return None;
        }
        Some(Self {
            row_count: u16_at(bytes, 2),
            position: u64_at(bytes, 8),
            payload: payload.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(length: usize) -> Page {
        let payload = (0..length).map(|at| (at % 251) as u8).collect();
        Page { row_count: 7, position: 4711, payload }
    }

    #[test]
    fn pages_of_each_length_come_back() {
        for length in [0, 1, 100, PAYLOAD_BYTES - 1, PAYLOAD_BYTES] {
            let page = page(length);
            for page_bytes in [page_bytes_for(length), PAGE_BYTES] {
                let sealed = page.seal(page_bytes, b"seed");
                assert_eq!(sealed.len(), page_bytes);
                assert_eq!(Page::open(&sealed, b"seed").as_ref(), Some(&page));
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for page_bytes in [page_bytes_for(100), PAGE_BYTES] {
            let sealed = page(100).seal(page_bytes, b"seed");
            for bit in 0..page_bytes * 8 {
                let mut bytes = sealed.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Page::open(&bytes, b"seed"), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_page_of_another_place_is_not_taken() {
        assert_eq!(Page::open(&page(5).seal(PAGE_BYTES, b"seed"), b"seee"), None);
        for length in [0, 3, PAGE_FRAME_BYTES - 1, PAGE_FRAME_BYTES, PAGE_BYTES] {
            assert_eq!(Page::open(&vec![0; length], b"seed"), None);
        }
    }

    #[test]
    fn a_page_with_something_in_its_spare_bytes_is_of_a_newer_version() {
        let spare = (4..8).chain(16..PAYLOAD_START).chain([PAYLOAD_START + 5, PAGE_BYTES - 5]);
        for at in spare {
            let mut bytes = page(5).seal(PAGE_BYTES, b"seed");
            bytes[at] = 1;
            seal_bytes(&mut bytes, b"seed");
            assert_eq!(Page::open(&bytes, b"seed"), None, "byte {at}");
        }
    }

    #[test]
    fn a_length_that_no_page_has_is_refused() {
        for page_bytes in [PAGE_STEP_BYTES, PAGE_BYTES] {
            let mut bytes = page(5).seal(page_bytes, b"seed");
            let longer = (page_bytes - PAGE_FRAME_BYTES + 1) as u16;
            put(&mut bytes, 0, &longer.to_le_bytes());
            seal_bytes(&mut bytes, b"seed");
            assert_eq!(Page::open(&bytes, b"seed"), None);
        }
    }
}
