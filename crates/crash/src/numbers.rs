//! A sequence of numbers from a seed.

use env::{Random, SeededRandom};

/// The sequence.
#[derive(Debug, Clone)]
pub(crate) struct Numbers(SeededRandom);

impl Numbers {
    /// The sequence that belongs to `parts` under `seed`, whatever else was drawn.
    pub(crate) fn of(seed: u64, parts: &[u64]) -> Self {
        let mut numbers = Self(SeededRandom::new(seed));
        for part in parts {
            numbers = Self(SeededRandom::new(numbers.next() ^ part));
        }
        numbers
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `from..to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        assert!(from < to, "a range holds something");
        from + self.next() % (to - from)
    }

    /// An index below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0, count as u64)).expect("below a usize")
    }

    /// True `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of `choices`.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_parts_does_not_depend_on_other_draws() {
        let (mut one, mut same) = (Numbers::of(7, &[1, 2]), Numbers::of(7, &[1, 2]));
        assert_eq!(one.bytes(20), same.bytes(20));
        assert_ne!(Numbers::of(7, &[1, 2]).next(), Numbers::of(7, &[2, 1]).next());
        assert_ne!(Numbers::of(7, &[1, 2]).next(), Numbers::of(8, &[1, 2]).next());
    }

    #[test]
    fn a_range_is_kept() {
        let mut numbers = Numbers::of(1, &[]);
        assert!((0..1000).all(|_| (3..6).contains(&numbers.within(3, 6))));
    }
}
