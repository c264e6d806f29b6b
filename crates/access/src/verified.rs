//! JWTs that one shard has verified, by the hash of their text.
//!
//! # How
//! Two generations of a table: a new entry goes to the young one. When that is full it becomes the old one, and the old
//! one is forgotten. A use brings an entry back to the young table. That is close to "least recently used" and needs no
//! list.

use crate::{
    limits::{VERIFICATIONS_PER_TURN_MAX, VERIFIED_MAX},
    principal::Principal,
};
use std::collections::HashMap;
use std::sync::Arc;

/// What one shard knows of tokens, and how many it may still verify in this turn.
#[derive(Debug)]
pub struct Verified {
    young: HashMap<[u8; 32], Arc<Principal>>,
    old: HashMap<[u8; 32], Arc<Principal>>,
    /// Of the rules by which they were verified.
    generation: u64,
    left_count: u32,
    young_max: usize,
}

impl Default for Verified {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            generation: 0,
            left_count: VERIFICATIONS_PER_TURN_MAX,
            young_max: VERIFIED_MAX / 2,
        }
    }
}

impl Verified {
    /// A turn of the loop begins.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.left_count = VERIFICATIONS_PER_TURN_MAX;
    }

    /// How many tokens are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The rules are those of `generation`: what others have verified counts no more.
    pub(crate) fn use_rules(&mut self, generation: u64) {
        if self.generation != generation {
            self.young.clear();
            self.old.clear();
            self.generation = generation;
        }
    }

    pub(crate) fn get(&mut self, hash: &[u8; 32]) -> Option<Arc<Principal>> {
        if let Some(known) = self.young.get(hash) {
            return Some(Arc::clone(known));
        }
        let known = self.old.remove(hash)?;
        self.put(*hash, Arc::clone(&known));
        Some(known)
    }

    pub(crate) fn put(&mut self, hash: [u8; 32], principal: Arc<Principal>) {
        if self.young.len() >= self.young_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, principal);
    }

    /// Takes one verification of this turn; `false` if it has none left.
    pub(crate) fn take_verification(&mut self) -> bool {
        let has_one = self.left_count > 0;
        self.left_count = self.left_count.saturating_sub(1);
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> [u8; 32] {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn what_is_used_stays_and_the_table_is_bounded() {
        let anyone = Arc::new(crate::access::anybody(0));
        let mut verified = Verified { young_max: 10, ..Verified::default() };
        verified.put(key(0), Arc::clone(&anyone));
        for number in 1..1_000 {
            verified.put(key(number), Arc::clone(&anyone));
            assert!(verified.get(&key(0)).is_some(), "used all the time");
            assert!(verified.count() <= 20);
        }
        assert!(verified.get(&key(1)).is_none());
        verified.use_rules(1);
        assert!(verified.get(&key(0)).is_none(), "new rules");
    }

    #[test]
    fn a_turn_verifies_a_few() {
        let mut verified = Verified::default();
        let taken = (0..100).filter(|_| verified.take_verification()).count();
        assert_eq!(taken, VERIFICATIONS_PER_TURN_MAX as usize);
        verified.begin_turn();
        assert!(verified.take_verification());
    }
}
