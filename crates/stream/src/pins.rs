//! The references that forks hold on a stream, and the first byte that they need.
//!
//! # Invariants
//! - A reference is counted once, however often it is taken.
//! - The first byte that is needed is found without a look at all references: a stream may have very many.

use crate::PinToken;
use model::{ByteOffset, StreamPath};
use std::collections::BTreeMap;

/// A fork that holds a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// The first byte that it needs.
    pub from: ByteOffset,
    pub fork_path: StreamPath,
}

/// The references on one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins {
    by_token: BTreeMap<PinToken, Pinned>,
    /// How many forks need the bytes from an offset on.
    counts: BTreeMap<ByteOffset, u32>,
}

impl Pins {
    pub(crate) const fn new() -> Self {
        Self { by_token: BTreeMap::new(), counts: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PinToken, &Pinned)> {
        self.by_token.iter()
    }

    pub(crate) fn path(&self, token: PinToken) -> Option<&StreamPath> {
        self.by_token.get(&token).map(|pinned| &pinned.fork_path)
    }

    pub(crate) fn holds(&self, token: PinToken) -> bool {
        self.by_token.contains_key(&token)
    }

    /// Takes a reference, unless it is taken.
    pub(crate) fn add(&mut self, token: PinToken, pinned: Pinned) {
        if !self.holds(token) {
            *self.counts.entry(pinned.from).or_default() += 1;
            self.by_token.insert(token, pinned);
        }
    }

    /// Gives a reference back, if it is taken.
    pub(crate) fn remove(&mut self, token: PinToken) {
        let Some(pinned) = self.by_token.remove(&token) else { return };
        let count = self.counts.get_mut(&pinned.from).expect("each reference is counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&pinned.from);
        }
    }

    /// The first byte that a fork needs.
    pub(crate) fn first_needed(&self) -> Option<ByteOffset> {
        self.counts.keys().next().copied()
    }

    /// Asserts that each reference is counted.
    ///
    /// # Panics
    /// If one is not.
    pub(crate) fn check(&self) {
        let mut counts = BTreeMap::new();
        for pinned in self.by_token.values() {
            *counts.entry(pinned.from).or_default() += 1;
        }
        assert_eq!(counts, self.counts, "references on a stream are miscounted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{GroupId, Term};

    #[test]
    fn the_first_byte_needed_is_that_of_the_references_that_are_left() {
        let mut pins = Pins::new();
        let token = |nonce| PinToken { fork_group: GroupId::new(1), term: Term::new(1), nonce };
        let pinned =
            |from| Pinned { from: ByteOffset::new(from), fork_path: StreamPath::new("f").unwrap() };
        assert_eq!(pins.first_needed(), None);
        for (nonce, from) in [(1, 9), (2, 5), (3, 5), (2, 0)] {
            pins.add(token(nonce), pinned(from));
            pins.check();
        }
        let mut needed = Vec::new();
        for nonce in [2, 2, 3, 7, 1] {
            pins.remove(token(nonce));
            pins.check();
            needed.push(pins.first_needed().map(ByteOffset::get));
        }
        assert_eq!(needed, [Some(5), Some(5), Some(9), Some(9), None]);
    }
}
