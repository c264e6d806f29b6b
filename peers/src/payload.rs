//! Entries that all differ and can be made again from their number.
//!
//! # Why
//! Identical payloads flatter systems that compress or cache, and cannot show that entries were swapped.

use std::sync::OnceLock;

/// Smallest and largest entry: what Walrus's published runs use.
pub(crate) const BYTES_MIN: u64 = 500;
pub(crate) const BYTES_MAX: u64 = 1024;

/// Bytes from which entries are cut: far more than an entry, so that neighbours differ all over.
const TABLE_BYTES: usize = 1 << 20;

/// Bytes without a pattern, the same in every process.
fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::with_capacity(TABLE_BYTES);
        while bytes.len() < TABLE_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes
    })
}

/// Writes entry `number` of `stream` into the emptied `out`: both numbers, then a piece of the table.
/// A copy, so that making an entry costs next to nothing beside storing it.
pub(crate) fn fill(out: &mut Vec<u8>, stream: usize, number: u64) {
    let state = (number << 8 | stream as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = (BYTES_MIN + state.rotate_left(17) % (BYTES_MAX - BYTES_MIN + 1)) as usize;
    let start = (state >> 40) as usize % (TABLE_BYTES - BYTES_MAX as usize);
    out.clear();
    out.extend_from_slice(&(stream as u64).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&table()[start..start + length - 16]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_differ_and_repeat() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        fill(&mut one, 1, 7);
        fill(&mut two, 1, 7);
        assert_eq!(one, two);
        fill(&mut two, 2, 7);
        assert_ne!(one, two);
        assert!((BYTES_MIN..=BYTES_MAX).contains(&(one.len() as u64)));
    }
}
