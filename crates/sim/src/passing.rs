//! A token that is in the access file at times.

use crate::dice::Dice;

/// So long after a change some shard may still decide by the rules before it.
const SETTLED_US: u64 = 1_000_000;

/// When the token was in the file. It is at the start.
#[derive(Debug)]
pub(crate) struct Passing {
    pub(crate) dice: Dice,
    changes_us: Vec<u64>,
}

impl Passing {
    pub(crate) fn new(dice: Dice) -> Self {
        Self { dice, changes_us: Vec::new() }
    }

    /// The token comes or goes; whether it is there from now on.
    pub(crate) fn change(&mut self, now_us: u64) -> bool {
        self.changes_us.push(now_us);
        self.changes_us.len().is_multiple_of(2)
    }

    /// Whether all shards knew the token between two moments, `None` if it came or went meanwhile.
    pub(crate) fn is_known(&self, since_us: u64, now_us: u64) -> Option<bool> {
        let is_between = |at_us: &u64| *at_us <= now_us && at_us + SETTLED_US >= since_us;
        let before = self.changes_us.iter().filter(|at_us| **at_us <= since_us).count();
        (!self.changes_us.iter().any(is_between)).then_some(before % 2 == 0)
    }
}
