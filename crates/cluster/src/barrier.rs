//! Which reads may be answered: those behind whose beginning everything acknowledged is applied.
//!
//! # How
//! A read that comes asks the group's leader up to where its log was committed, once a majority has confirmed
//! that it leads. Then the read waits until so much is applied where it is answered. All reads that a
//! group gets in one turn share one question.
//!
//! # Driving it
//! [`Barriers::add`] for each read. [`Barriers::ask`] once a turn: if it is `Some`, ask the leader, here or over
//! a link, with that number. [`Barriers::confirmed`] or [`Barriers::lost`] with the answer.
//! [`Barriers::applied`] when the group has applied more.
//!
//! # Invariants
//! - A read waits for a question that was asked after it came. Joining one that is under way would let
//!   a commit pass that was acknowledged in between.
//! - A question that is lost is asked again with another number, or a later one that is under way serves its reads, too.
//! - Reads are returned in the order in which they came, as long as one leader answers: what it has committed only grows.

use model::EntryIndex;
use std::collections::BTreeMap;

/// The reads of one group that wait, each as a `W` that its owner knows it by.
#[derive(Debug)]
pub struct Barriers<W> {
    new: Vec<W>,
    asked: BTreeMap<u64, Vec<W>>,
    /// By the index that must be applied.
    confirmed: BTreeMap<EntryIndex, Vec<W>>,
    last: u64,
}

impl<W> Default for Barriers<W> {
    fn default() -> Self {
        Self { new: Vec::new(), asked: BTreeMap::new(), confirmed: BTreeMap::new(), last: 0 }
    }
}

impl<W> Barriers<W> {
    /// Barriers whose questions have the numbers behind `last`. A process that asks other nodes uses none that an earlier
    /// one may have used: an answer to that would be taken for one to this.
    #[must_use]
    pub fn behind(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// The number of the last question.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Adds a read.
    pub fn add(&mut self, waiter: W) {
        self.new.push(waiter);
    }

    /// Whether no read waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.asked.is_empty() && self.confirmed.is_empty()
    }

    /// Reads that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        let in_lists = |lists: Vec<&Vec<W>>| lists.iter().map(|list| list.len()).sum::<usize>();
        self.new.len()
            + in_lists(self.asked.values().collect())
            + in_lists(self.confirmed.values().collect())
    }

    /// Whether there are reads for which nobody was asked.
    #[must_use]
    pub fn wants_to_ask(&self) -> bool {
        !self.new.is_empty()
    }

    /// Whether a question is under way.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The number of a question for all reads that came since the last one.
    pub fn ask(&mut self) -> Option<u64> {
        if self.new.is_empty() {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        self.asked.insert(self.last, std::mem::take(&mut self.new));
        Some(self.last)
    }

    /// The leader has answered. Reads that may be answered at once, for `applied` is the last applied
    /// entry here, are returned. What is true of a question is true of all that were asked before it.
    pub fn confirmed(&mut self, number: u64, at: EntryIndex, applied: EntryIndex) -> Vec<W> {
        if !self.asked.contains_key(&number) {
            return Vec::new();
        }
        let later = self.asked.split_off(&number.wrapping_add(1));
        let asked = std::mem::replace(&mut self.asked, later);
        let waiters = asked.into_values().flatten();
        if at <= applied {
            return waiters.collect();
        }
        self.confirmed.entry(at).or_default().extend(waiters);
        Vec::new()
    }

    /// The question was lost, with its leader or its link: its reads wait for the next one.
    pub fn lost(&mut self, number: u64) {
        let Some(waiters) = self.asked.remove(&number) else { return };
        let next = self.asked.range_mut(number..).next().map(|(_, next)| next);
        next.unwrap_or(&mut self.new).splice(..0, waiters);
    }

    /// All questions that are under way were lost.
    pub fn lost_all(&mut self) {
        let asked = std::mem::take(&mut self.asked).into_values().flatten();
        self.new.splice(..0, asked);
    }

    /// More is applied. Reads that may be answered now are returned.
    pub fn applied(&mut self, applied: EntryIndex) -> Vec<W> {
        let later = self.confirmed.split_off(&applied.next());
        std::mem::replace(&mut self.confirmed, later).into_values().flatten().collect()
    }

    /// Removes the reads that `is_over` names: their clients are gone, or have waited too long.
    pub fn remove(&mut self, mut is_over: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut removed = Vec::new();
        let lists = self.confirmed.values_mut().chain(self.asked.values_mut());
        for waiters in lists.chain([&mut self.new]) {
            removed.extend(waiters.extract_if(.., |waiter| is_over(waiter)));
        }
        self.confirmed.retain(|_, waiters| !waiters.is_empty());
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> EntryIndex {
        EntryIndex::new(index)
    }

    #[test]
    fn reads_of_one_turn_share_a_question_and_later_ones_do_not() {
        let mut barriers = Barriers::default();
        barriers.add('a');
        barriers.add('b');
        let first = barriers.ask().unwrap();
        assert_eq!(barriers.ask(), None);
        barriers.add('c');
        let second = barriers.ask().unwrap();
        assert_eq!(barriers.confirmed(first, at(5), at(5)), ['a', 'b']);
        assert_eq!(barriers.len(), 1);
        assert_eq!(barriers.confirmed(second, at(6), at(9)), ['c']);
        assert!(barriers.is_empty());
    }

    #[test]
    fn a_confirmed_read_waits_until_so_much_is_applied() {
        let mut barriers = Barriers::default();
        for (waiter, index) in [('a', 7), ('b', 5), ('c', 6)] {
            barriers.add(waiter);
            let number = barriers.ask().unwrap();
            assert_eq!(barriers.confirmed(number, at(index), at(4)), []);
        }
        assert_eq!(barriers.applied(at(4)), []);
        assert_eq!(barriers.applied(at(6)), ['b', 'c']);
        assert_eq!(barriers.applied(at(7)), ['a']);
    }

    #[test]
    fn a_lost_question_is_asked_with_another_number() {
        let mut barriers = Barriers::default();
        barriers.add('a');
        let first = barriers.ask().unwrap();
        barriers.lost(first);
        assert!(barriers.wants_to_ask());
        let second = barriers.ask().unwrap();
        assert_ne!(first, second);
        assert_eq!(barriers.confirmed(first, at(1), at(9)), []);
        barriers.lost_all();
        assert_eq!(barriers.confirmed(second, at(1), at(9)), []);
        assert_eq!(barriers.len(), 1);
    }

    #[test]
    fn reads_whose_clients_are_gone_are_removed_wherever_they_wait() {
        let mut barriers = Barriers::default();
        barriers.add('a');
        let number = barriers.ask().unwrap();
        assert_eq!(barriers.confirmed(number, at(9), at(1)), []);
        barriers.add('b');
        let _ = barriers.ask();
        barriers.add('c');
        assert_eq!(barriers.remove(|waiter| *waiter != 'b'), ['a', 'c']);
        assert_eq!(barriers.len(), 1);
    }

    /// Two questions under way, of `a` and of `b`, and `c` that has none; the numbers of the questions.
    fn three() -> (Barriers<char>, u64, u64) {
        let mut barriers = Barriers::default();
        barriers.add('a');
        let first = barriers.ask().unwrap();
        barriers.add('b');
        let second = barriers.ask().unwrap();
        barriers.add('c');
        (barriers, first, second)
    }

    #[test]
    fn reads_are_returned_in_the_order_in_which_they_came() {
        let (mut barriers, first, second) = three();
        assert_eq!(barriers.confirmed(second, at(5), at(5)), ['a', 'b'], "it is later than both");
        assert_eq!(barriers.confirmed(first, at(5), at(5)), []);
        let (mut barriers, first, second) = three();
        barriers.lost(first);
        assert_eq!(
            barriers.confirmed(second, at(5), at(5)),
            ['a', 'b'],
            "a waits for the next one"
        );
        let (mut barriers, _, second) = three();
        barriers.lost(second);
        barriers.lost_all();
        let all = barriers.ask().unwrap();
        assert_eq!(barriers.confirmed(all, at(5), at(5)), ['a', 'b', 'c']);
        let (mut barriers, first, _) = three();
        assert_eq!(barriers.confirmed(first, at(7), at(5)), []);
        assert_eq!(barriers.remove(|_| true), ['a', 'b', 'c']);
    }
}
