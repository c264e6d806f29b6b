//! Proposals of one group that wait to be applied.

use crate::message::LogPosition;
use model::{EntryIndex, Term};
use std::collections::BTreeMap;

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled<T> {
    /// Its own entry is applied.
    Applied(T),
    /// Another entry is committed in its place: it never will be.
    NotApplied(T),
    /// A snapshot covers its place: it may be in there or not.
    Unknown(T),
}

/// Proposals by index and term, each as a `T` that its owner knows it by.
///
/// # Why not by index alone
/// A leader that lost its term and got another one may have proposed twice at one index. Nor does a
/// truncation prove anything: another node may still hold the entry, and lead later. Only a
/// committed entry with another term does.
#[derive(Debug)]
pub struct Proposals<T> {
    waiting: BTreeMap<EntryIndex, Vec<(Term, T)>>,
    count: usize,
}

impl<T> Default for Proposals<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), count: 0 }
    }
}

impl<T> Proposals<T> {
    /// Adds a proposal with its place.
    pub fn add(&mut self, at: LogPosition, proposal: T) {
        self.waiting.entry(at.index).or_default().push((at.term, proposal));
        self.count += 1;
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All that wait, in order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().flatten().map(|(_, proposal)| proposal)
    }

    /// As [`Proposals::iter`], to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.values_mut().flatten().map(|(_, proposal)| proposal)
    }

    /// The committed entry at `at` is applied. Entries come in order.
    ///
    /// # Panics
    /// If a proposal before it waits: an entry was passed over.
    pub fn applied(&mut self, at: LogPosition) -> Vec<Settled<T>> {
        if let Some((first, _)) = self.waiting.first_key_value() {
            assert!(*first >= at.index, "entry {first} was passed over");
        }
        let here = self.waiting.remove(&at.index).unwrap_or_default();
        self.count -= here.len();
        let settle = |(term, proposal)| match term == at.term {
            true => Settled::Applied(proposal),
            false => Settled::NotApplied(proposal),
        };
        here.into_iter().map(settle).collect()
    }

    /// A snapshot took the place of all entries up to `upto`.
    pub fn covered(&mut self, upto: EntryIndex) -> Vec<Settled<T>> {
        let later = self.waiting.split_off(&upto.next());
        let covered = std::mem::replace(&mut self.waiting, later);
        let covered: Vec<_> = covered.into_values().flatten().collect();
        self.count -= covered.len();
        covered.into_iter().map(|(_, proposal)| Settled::Unknown(proposal)).collect()
    }

    /// All that wait: the process acknowledges nothing any more.
    pub fn take_all(&mut self) -> Vec<Settled<T>> {
        self.covered(EntryIndex::new(u64::MAX - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Settled::{Applied, NotApplied, Unknown};

    fn at(index: u64, term: u64) -> LogPosition {
        LogPosition::new(index, term)
    }

    #[test]
    fn a_proposal_is_settled_by_the_entry_at_its_index() {
        let mut proposals = Proposals::default();
        proposals.add(at(5, 2), 'a');
        proposals.add(at(6, 2), 'b');
        assert_eq!(proposals.applied(at(4, 2)), []);
        assert_eq!(proposals.applied(at(5, 2)), [Applied('a')]);
        assert_eq!(proposals.applied(at(6, 3)), [NotApplied('b')]);
        assert!(proposals.is_empty());
    }

    #[test]
    fn two_terms_may_have_proposed_at_one_index() {
        let mut proposals = Proposals::default();
        proposals.add(at(5, 2), 'a');
        proposals.add(at(5, 4), 'b');
        assert_eq!(proposals.len(), 2);
        assert_eq!(proposals.applied(at(5, 2)), [Applied('a'), NotApplied('b')]);
    }

    #[test]
    fn nobody_knows_what_a_snapshot_covers() {
        let mut proposals = Proposals::default();
        for (index, name) in [(5, 'a'), (6, 'b'), (7, 'c')] {
            proposals.add(at(index, 2), name);
        }
        assert_eq!(proposals.covered(EntryIndex::new(6)), [Unknown('a'), Unknown('b')]);
        assert_eq!(proposals.applied(at(7, 2)), [Applied('c')]);
        proposals.add(at(9, 2), 'd');
        assert_eq!(proposals.take_all(), [Unknown('d')]);
    }

    #[test]
    #[should_panic(expected = "was passed over")]
    fn entries_are_applied_one_by_one() {
        let mut proposals = Proposals::default();
        proposals.add(at(5, 2), 'a');
        let _ = proposals.applied(at(6, 2));
    }
}
