//! One number from another, for what must look random and repeat.
//!
//! Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (`SplitMix64`).

/// What the state of the generator grows by with each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that the generator gives next in `state`. It is no secret: one gives away all others.
#[must_use]
pub const fn split_mix(state: u64) -> u64 {
    let mixed = state.wrapping_add(STEP);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The same, and the state goes to the next number.
pub const fn split_mix_next(state: &mut u64) -> u64 {
    let number = split_mix(*state);
    *state = state.wrapping_add(STEP);
    number
}
