//! Entries that are all different and can be told again from their number.
//!
//! # Why
//! Identical payloads flatter whoever compresses or caches, and cannot show that entries were swapped.

/// Smallest and largest entry: what Walrus's published runs use.
pub(crate) const BYTES_MIN: u64 = 500;
pub(crate) const BYTES_MAX: u64 = 1024;

/// Writes entry `number` of `stream` into the emptied `out`.
pub(crate) fn fill(out: &mut Vec<u8>, stream: usize, number: u64) {
    let mut state = (number << 8 | stream as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let length = BYTES_MIN + state.rotate_left(17) % (BYTES_MAX - BYTES_MIN + 1);
    out.clear();
    out.extend_from_slice(&(stream as u64).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    while out.len() < length as usize {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length as usize);
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
