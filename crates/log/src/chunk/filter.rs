//! The filter of a chunk: which streams have no row in it, without a look at rows.
//!
//! # Why
//! A lookup asks the chunks of a group from the newest to the oldest, hundreds of them, and one has the
//! byte. Ten bits for each row let it pass over 99 of 100 others.
//!
//! # How
//! A split block Bloom filter, as Parquet has it: a hash chooses 32 bytes, and one bit in each of their eight
//! words.
//!
//! # Invariants
//! - A stream that has a row is never passed over. A filter of ones passes over nothing.
//!
//! # Format
//! `docs/format/chunk.md`.

use crate::codec::{put, u32_at};

/// Bytes that one stream's bits are in.
pub(crate) const FILTER_BLOCK_BYTES: usize = 32;
const BITS_PER_ROW: u64 = 10;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Bytes of the filter of a chunk with so many rows.
pub(crate) fn filter_bytes(row_count: u32) -> u64 {
    let block_bits = FILTER_BLOCK_BYTES as u64 * 8;
    (u64::from(row_count) * BITS_PER_ROW).div_ceil(block_bits) * FILTER_BLOCK_BYTES as u64
}

/// Where a stream's bits are: the same in all filters but for the number of blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterHash(u64);

impl FilterHash {
    pub(crate) fn of(stream: u64) -> Self {
        let mix = |value: u64| {
            let product = value.wrapping_mul(MULTIPLIER);
            product ^ (product >> 32)
        };
        Self(mix(mix(stream)))
    }

    /// Position of the block in a filter of `filter_bytes`.
    pub(crate) fn block_start(self, filter_bytes: u64) -> u64 {
        let blocks = filter_bytes / FILTER_BLOCK_BYTES as u64;
        (((self.0 >> 32) * blocks) >> 32) * FILTER_BLOCK_BYTES as u64
    }

    fn bits(self) -> [u32; 8] {
        SALTS.map(|salt| 1 << ((self.0 as u32).wrapping_mul(salt) >> 27))
    }

    /// Whether a stream with this hash may have a row, by its block.
    pub(crate) fn may_be_in(self, block: &[u8]) -> bool {
        let words = (0..FILTER_BLOCK_BYTES).step_by(4).map(|at| u32_at(block, at));
        words.zip(self.bits()).all(|(word, bit)| word & bit != 0)
    }
}

/// Makes a filter of streams, which come sorted.
#[derive(Debug)]
pub(crate) struct Filter {
    bytes: Vec<u8>,
}

impl Filter {
    pub(crate) fn new(row_count: u32) -> Self {
        let length = usize::try_from(filter_bytes(row_count)).expect("a filter fits memory");
        Self { bytes: vec![0; length] }
    }

    pub(crate) fn add(&mut self, stream: u64) {
        let hash = FilterHash::of(stream);
        let start = hash.block_start(self.bytes.len() as u64) as usize;
        for (at, bit) in (start..).step_by(4).zip(hash.bits()) {
            let word = u32_at(&self.bytes, at) | bit;
            put(&mut self.bytes, at, &word.to_le_bytes());
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(streams: impl Iterator<Item = u64> + Clone) -> Vec<u8> {
        let mut filter = Filter::new(streams.clone().count() as u32);
        streams.for_each(|stream| filter.add(stream));
        filter.into_bytes()
    }

    fn may_have(filter: &[u8], stream: u64) -> bool {
        let hash = FilterHash::of(stream);
        let start = hash.block_start(filter.len() as u64) as usize;
        hash.may_be_in(&filter[start..start + FILTER_BLOCK_BYTES])
    }

    #[test]
    fn no_stream_that_is_there_is_passed_over_and_nearly_all_others_are() {
        for (count, stride) in [(1, 1), (25, 1), (26, 3), (1000, 1), (1000, 64), (20_000, 227)] {
            let streams = (1..=count).map(|number| number * stride);
            let filter = filter(streams.clone());
            assert!(streams.clone().all(|stream| may_have(&filter, stream)));
            let others = (1..=10_000).map(|number| (count + number) * stride);
            let passed = others.filter(|&stream| may_have(&filter, stream)).count();
            assert!(passed < 300, "{passed} of 10,000 pass beside {count} at {stride}");
        }
    }

    #[test]
    fn the_bits_of_a_stream_never_change() {
        let filter = filter([1_u64, 2, 4711].into_iter());
        let expected = [
            0x0000_2204,
            0x2401_0000,
            0x0010_0006,
            0x0080_0280,
            0x0000_6400,
            0x8000_0401,
            0x1048_0000,
            0x0208_8000,
        ];
        let words: Vec<u32> = (0..32).step_by(4).map(|at| u32_at(&filter, at)).collect();
        assert_eq!((filter.len(), &words[..]), (32, &expected[..]), "{words:08x?}");
    }

    #[test]
    fn a_filter_of_ones_passes_over_nothing() {
        assert!((0..1000).all(|stream| may_have(&[0xff; 64], stream)));
    }
}
