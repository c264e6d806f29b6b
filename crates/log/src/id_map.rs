//! Hash maps keyed by our own numbers.
//!
//! # Why
//! The log gives out stream ids and row numbers, and no client chooses them. So no client can make them
//! collide on purpose, and SipHash would be most of a lookup's cost. But they may have any regular
//! distance: a stream's id is the index of the entry that made it. A client may make streams over and
//! over, each with the same number of appends. Their ids are then at one stride. A single
//! multiplication (refused) puts ids 227 apart into 70 of 4096 slots; two leave no such stride.
//!
//! For creations in flight the hash of a path is a key. A client could choose paths that collide, but
//! their number is bounded.
//!
//! # Invariants
//! - Keys are integers or a few of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// 2⁶⁴ divided by the golden ratio: odd, and without a pattern in its bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map whose keys are ids.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Spreads an integer over all bits.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdHasher {
    hash: u64,
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u16(&mut self, id: u16) {
        self.write_u64(u64::from(id));
    }

    fn write_u32(&mut self, id: u32) {
        self.write_u64(u64::from(id));
    }

    fn write_u64(&mut self, id: u64) {
        // The table takes its slot from the low bits and its tag from the high ones: each half is
        // made to depend on every bit of the id.
        let product = (id ^ self.hash).wrapping_mul(MULTIPLIER);
        let mixed = (product ^ (product >> 32)).wrapping_mul(MULTIPLIER);
        self.hash = mixed ^ (mixed >> 32);
    }
}

/// The hash of an id, for tables that take it from outside.
#[inline]
pub(crate) fn hash_id(id: u64) -> u64 {
    let mut hasher = IdHasher::default();
    hasher.write_u64(id);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::StreamId;
    use std::hash::BuildHasher;

    /// SegmentTable (of 4096) and tags (of 128) that 4096 ids `stride` apart fall into.
    fn spread(stride: u64) -> (usize, usize) {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let (mut slots, mut tags) = ([false; 4096], [false; 128]);
        for id in 1..=4096 {
            let hash = hasher.hash_one(StreamId::new(id * stride));
            slots[(hash & 4095) as usize] = true;
            tags[(hash >> 57) as usize] = true;
        }
        let count = |filled: &[bool]| filled.iter().filter(|&&is_filled| is_filled).count();
        (count(&slots), count(&tags))
    }

    #[test]
    fn ids_at_any_stride_are_spread() {
        let powers = (0..36).flat_map(|shift| [1 << shift, 3 << shift]);
        for stride in (1..=1000).chain(powers) {
            let (slots, tags) = spread(stride);
            // A random function fills 2588 slots.
            assert!(slots > 2400, "stride {stride}: {slots} slots");
            assert_eq!(tags, 128, "stride {stride}");
        }
    }
}
