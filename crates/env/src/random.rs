//! Randomness as an argument, so that a run can be repeated from its seed.

use rustix::rand::{GetRandomFlags, getrandom};

/// A source of random numbers.
pub trait Random: Send {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// Fills `bytes` with random bits.
    fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&random[..piece.len()]);
        }
    }
}

/// The random source of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealRandom;

impl Random for RealRandom {
    /// # Panics
    /// If the kernel has no random source: ids would repeat, so the process must not continue.
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no random numbers: {error}"),
            }
        }
        u64::from_le_bytes(bytes)
    }
}

/// Pseudo-random numbers that repeat from their seed, by [`model::split_mix`]. They are no secrets: each number gives away the next.
#[derive(Debug, Clone)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        self.next_u64() % bound
    }
}

impl Random for SeededRandom {
    fn next_u64(&mut self) -> u64 {
        model::split_mix_next(&mut self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence() {
        let mut first = SeededRandom::new(7);
        let mut second = SeededRandom::new(7);
        assert_eq!(first.next_u64(), second.next_u64());
        assert_ne!(first.next_u64(), SeededRandom::new(8).next_u64());
    }

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut random = SeededRandom::new(0);
        let first = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn every_byte_of_a_buffer_is_filled() {
        let mut bytes = [0; 67];
        SeededRandom::new(1).fill(&mut bytes);
        assert!(bytes[64..].iter().any(|&byte| byte != 0));
    }

    #[test]
    fn the_real_source_does_not_repeat() {
        assert_ne!(RealRandom.next_u64(), RealRandom.next_u64());
    }
}
