//! Where each entry of a replicated group lies: eight bytes for each, and two numbers for each term.
//!
//! # Invariants
//! - Entries are those behind `base` without a gap; terms never fall along them.
//! - A run of terms is not empty: the next one begins behind it.

use crate::options::BLOCK_BYTES;
use crate::wal::layout::WritePlace;
use std::collections::VecDeque;

/// The slot of what has no place on the disk yet.
const NO_SLOT: u64 = u16::MAX as u64;

/// Blocks of a segment, and entries of a batch, that a place can name.
const PART_BITS: u32 = 24;
const PART_MAX: u64 = (1 << PART_BITS) - 1;

/// The place of an entry: slot, block and number in its batch; or, before its batch is durable, the batch's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryPlace(u64);

/// What a place says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whereabouts {
    /// In a batch that is not durable. Only the low bits of its number are known: [`EntryPlace::is_of`].
    Batch { number: u32 },
    /// In a durable batch.
    Disk { batch: WritePlace, number: u32 },
}

impl EntryPlace {
    /// # Panics
    /// If the batch has 2^24 entries or lies behind 64 GiB: the limits of batches and segments are below.
    fn new(slot: u64, part: u64, number: u32) -> Self {
        assert!(part <= PART_MAX && u64::from(number) <= PART_MAX, "a place has 64 bits");
        Self(slot << (2 * PART_BITS) | part << PART_BITS | u64::from(number))
    }

    /// Entry `number` of the batch `seq`, which is not durable.
    pub(crate) fn in_batch(seq: u64, number: u32) -> Self {
        Self::new(NO_SLOT, seq & PART_MAX, number)
    }

    /// Entry `number` of the batch at `place`.
    pub(crate) fn on_disk(place: WritePlace, number: u32) -> Self {
        Self::new(u64::from(place.slot), place.position / BLOCK_BYTES, number)
    }

    fn part(self) -> u64 {
        self.0 >> PART_BITS & PART_MAX
    }

    /// Whether a batch that is not durable is the one of this number: two at most are not.
    pub(crate) fn is_of(self, seq: u64) -> bool {
        self.part() == seq & PART_MAX
    }

    pub(crate) fn whereabouts(self) -> Whereabouts {
        let number = (self.0 & PART_MAX) as u32;
        match self.0 >> (2 * PART_BITS) {
            NO_SLOT => Whereabouts::Batch { number },
            slot => {
                let position = self.part() * BLOCK_BYTES;
                Whereabouts::Disk { batch: WritePlace { slot: slot as u16, position }, number }
            }
        }
    }
}

/// The entries of one group.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The entry before the first one.
    base: u64,
    base_term: Option<u64>,
    places: VecDeque<EntryPlace>,
    /// First index and term of each run of entries of one term.
    terms: VecDeque<(u64, u64)>,
}

impl Directory {
    /// No entries behind `base`.
    pub(crate) fn new(base: u64, base_term: Option<u64>) -> Self {
        Self { base, base_term, places: VecDeque::new(), terms: VecDeque::new() }
    }

    /// The entry before the first one.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The last entry; `base` if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.base + self.places.len() as u64
    }

    /// The term of an entry, or of `base` if it is known.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.base {
            return self.base_term;
        }
        if index < self.base || index > self.last() {
            return None;
        }
        let behind = self.terms.partition_point(|(first, _)| *first <= index);
        Some(self.terms[behind - 1].1)
    }

    pub(crate) fn place_of(&self, index: u64) -> Option<EntryPlace> {
        let at = index.checked_sub(self.base + 1)?;
        self.places.get(usize::try_from(at).ok()?).copied()
    }

    /// Adds an entry behind the last one.
    pub(crate) fn push(&mut self, term: u64, place: EntryPlace) {
        if self.terms.back().is_none_or(|(_, newest)| *newest != term) {
            self.terms.push_back((self.last() + 1, term));
        }
        self.places.push_back(place);
    }

    /// Drops the entries from `from` on, and hands their places to `dropped`.
    pub(crate) fn truncate(&mut self, from: u64, dropped: impl FnMut(EntryPlace)) {
        let kept = from.saturating_sub(self.base + 1).min(self.places.len() as u64);
        self.places.drain(kept as usize..).for_each(dropped);
        while self.terms.back().is_some_and(|(first, _)| *first > self.base + kept) {
            self.terms.pop_back();
        }
    }

    /// Drops the entries up to `upto`, as far as there are any.
    pub(crate) fn compact(&mut self, upto: u64) {
        let upto = upto.min(self.last());
        if upto <= self.base {
            return;
        }
        let term = self.term_of(upto);
        self.places.drain(..(upto - self.base) as usize);
        (self.base, self.base_term) = (upto, term);
        while self.terms.get(1).is_some_and(|(first, _)| *first <= upto + 1) {
            self.terms.pop_front();
        }
        match self.terms.front_mut() {
            _ if self.places.is_empty() => self.terms.clear(),
            Some((first, _)) => *first = (*first).max(upto + 1),
            None => {}
        }
    }

    /// Learns the place of an entry whose batch is durable now, unless it was superseded meanwhile.
    pub(crate) fn settle(&mut self, index: u64, from: EntryPlace, to: EntryPlace) {
        let at = index.checked_sub(self.base + 1).and_then(|at| usize::try_from(at).ok());
        if let Some(place) = at.and_then(|at| self.places.get_mut(at))
            && *place == from
        {
            *place = to;
        }
    }

    /// Whether the last entry, and with it each one, is in a durable batch.
    pub(crate) fn is_on_disk(&self) -> bool {
        let last = self.places.back().map(|place| place.whereabouts());
        last.is_none_or(|last| matches!(last, Whereabouts::Disk { .. }))
    }

    /// Each entry with its index and place.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, EntryPlace)> + '_ {
        (self.base + 1..).zip(self.places.iter().copied())
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        let mut before = (self.base, self.base_term.unwrap_or(0));
        for (first, term) in &self.terms {
            assert!(
                before.0 < *first && before.1 < *term || before.0 == self.base,
                "runs of terms"
            );
            before = (*first, *term);
        }
        assert!(before.0 <= self.last(), "a run of terms has an entry");
        assert_eq!(self.terms.is_empty(), self.places.is_empty(), "each entry has a term");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u32) -> EntryPlace {
        EntryPlace::on_disk(WritePlace { slot: 3, position: 8192 }, number)
    }

    /// Entries behind 10 of term 3, with these terms.
    fn directory(terms: &[u64]) -> Directory {
        let mut directory = Directory::new(10, Some(3));
        terms.iter().for_each(|term| directory.push(*term, place(*term as u32)));
        directory.check();
        directory
    }

    fn terms_of(directory: &Directory) -> Vec<Option<u64>> {
        directory.check();
        (9..=15).map(|index| directory.term_of(index)).collect()
    }

    #[test]
    fn a_place_says_what_was_put_in() {
        for (slot, block, number) in [(0, 0, 0), (7, 5, 9), (u16::MAX - 1, PART_MAX, 1 << 23)] {
            let place = WritePlace { slot, position: block * BLOCK_BYTES };
            match EntryPlace::on_disk(place, number).whereabouts() {
                Whereabouts::Disk { batch, number: found } => {
                    assert_eq!((batch.slot, batch.position), (slot, block * BLOCK_BYTES));
                    assert_eq!(found, number);
                }
                Whereabouts::Batch { .. } => panic!("it has a place"),
            }
        }
        let open = EntryPlace::in_batch((1 << 40) + 5, 6);
        assert!(open.is_of((1 << 40) + 5) && !open.is_of(4));
        assert!(matches!(open.whereabouts(), Whereabouts::Batch { number: 6 }));
    }

    #[test]
    fn the_term_of_each_entry_is_known_and_of_no_other() {
        let found = terms_of(&directory(&[3, 3, 5, 6]));
        assert_eq!(found, [None, Some(3), Some(3), Some(3), Some(5), Some(6), None]);
    }

    #[test]
    fn a_suffix_is_dropped_and_another_one_added() {
        for from in 9..=16 {
            let mut directory = directory(&[3, 3, 5, 6]);
            let mut dropped = Vec::new();
            directory.truncate(from, |place| dropped.push(place));
            let kept = from.clamp(11, 15) - 1;
            assert_eq!((directory.last(), dropped.len() as u64), (kept, 14 - kept));
            directory.push(7, place(7));
            assert_eq!(directory.term_of(kept + 1), Some(7));
            directory.check();
        }
    }

    #[test]
    fn a_prefix_is_dropped_and_the_term_before_the_first_entry_kept() {
        for upto in 9..=16 {
            let mut directory = directory(&[3, 3, 5, 6]);
            let before = terms_of(&directory);
            directory.compact(upto);
            let base = upto.clamp(10, 14);
            assert_eq!((directory.base(), directory.last()), (base, 14));
            assert_eq!(terms_of(&directory)[(base - 9) as usize..], before[(base - 9) as usize..]);
            directory.push(6, place(8));
            assert_eq!(directory.term_of(15), Some(6));
        }
    }

    #[test]
    fn a_place_is_settled_unless_another_entry_has_taken_it() {
        let mut directory = Directory::new(0, Some(0));
        directory.push(1, EntryPlace::in_batch(5, 0));
        directory.settle(1, EntryPlace::in_batch(4, 0), place(0));
        assert_eq!(directory.place_of(1), Some(EntryPlace::in_batch(5, 0)));
        directory.settle(1, EntryPlace::in_batch(5, 0), place(0));
        directory.settle(2, EntryPlace::in_batch(5, 0), place(0));
        assert_eq!((directory.place_of(1), directory.place_of(2)), (Some(place(0)), None));
    }
}
