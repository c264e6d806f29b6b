//! Every choice of a run, drawn from its seed.

use env::{Random, SeededRandom};

/// A seeded source of choices.
#[derive(Debug)]
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        // Neighbouring seeds must not begin alike.
        random.next_u64();
        Self(random)
    }

    /// A source of its own: what one part draws does not move the choices of another.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.below(bound) }
    }

    /// A number in `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).expect("an index")]
    }

    /// A waiting time in microseconds: mostly near `typical`, now and then far longer.
    pub(crate) fn delay_us(&mut self, typical: u64) -> u64 {
        match self.below(100) {
            0..2 => self.below(typical * 50),
            2..20 => self.below(typical * 4),
            _ => self.below(typical),
        }
    }
}

impl Random for Dice {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
