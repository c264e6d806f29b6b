//! A hash table that grows in small steps.
//!
//! # Why
//! A table of half a million elements that grows moves all of them at once, which takes a loop 16 ms. This one is in
//! parts. Each part grows alone, and has a few thousand elements at most, whatever the table holds. Refused: two tables
//! of which one moves over step by step. Each lookup would ask both for a while, and the memory of a whole table is taken
//! and given back at once.
//!
//! # How
//! Linear hashing (Litwin 1980). With each [`PART_LEN`] elements more, the next part in turn is split in two by one more bit
//! of the hash. No directory of parts is needed, and elements whose hashes are alike on purpose cause no more splits
//! than others: they only make their own part large.
//!
//! # Driving it
//! As `hashbrown::HashTable`: each call gets the hash, from the caller. The place inside a part is taken from the
//! low bits and the high seven, the part from those from bit 32 on. So all of them must depend on the key.
//!
//! # Invariants
//! - An element is in the part that the bits of its hash name.
//! - A part that has not been split in this round has twice as many hashes as one that has.

use hashbrown::HashTable;

/// Elements for each part. Parts have from half to twice as many, and twice as many just fit a table of 4,096 places.
const PART_LEN: usize = 1_700;

/// A hash table in parts.
#[derive(Debug)]
pub struct PartedTable<T> {
    /// At least one.
    parts: Vec<HashTable<T>>,
    /// Number of parts at the beginning of this round of splits, less one: a mask of bits.
    round_mask: usize,
    len: usize,
}

/// A place in a table, free or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TablePlace {
    part: usize,
    bucket: usize,
}

impl<T> Default for PartedTable<T> {
    fn default() -> Self {
        Self { parts: vec![HashTable::new()], round_mask: 0, len: 0 }
    }
}

impl<T> PartedTable<T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn part_of(&self, hash: u64) -> usize {
        let bits = (hash >> 32) as usize;
        let wide = bits & (2 * self.round_mask + 1);
        if wide < self.parts.len() { wide } else { bits & self.round_mask }
    }

    /// The element with this hash for which `is_it` holds.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.parts[self.part_of(hash)].find(hash, is_it)
    }

    /// As [`PartedTable::find`], to be changed. Its hash must stay the same.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let part = self.part_of(hash);
        self.parts[part].find_mut(hash, is_it)
    }

    /// Adds an element that is not there yet.
    #[inline]
    pub fn insert_unique(&mut self, hash: u64, element: T, hash_of: impl Fn(&T) -> u64) {
        let part = self.part_of(hash);
        self.parts[part].insert_unique(hash, element, &hash_of);
        self.note_inserted(&hash_of);
    }

    #[inline]
    fn note_inserted(&mut self, hash_of: &impl Fn(&T) -> u64) {
        self.len += 1;
        if self.len > self.parts.len() * PART_LEN {
            self.split(hash_of);
        }
    }

    /// Takes the element out for which `is_it` holds.
    #[inline]
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let part = self.part_of(hash);
        let there = self.parts[part].find_entry(hash, is_it).ok()?;
        self.len -= 1;
        Some(there.remove().0)
    }

    /// All elements, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(HashTable::iter)
    }

    /// The element at a place. One that is added may move others.
    pub fn at_mut(&mut self, place: TablePlace) -> Option<&mut T> {
        self.parts.get_mut(place.part)?.get_bucket_mut(place.bucket)
    }

    /// The place that follows; the first one follows the last.
    #[must_use]
    pub fn after(&self, place: TablePlace) -> TablePlace {
        let bucket = place.bucket + 1;
        if self.parts.get(place.part).is_some_and(|part| bucket < part.num_buckets()) {
            return TablePlace { part: place.part, bucket };
        }
        TablePlace { part: (place.part + 1) % self.parts.len(), bucket: 0 }
    }

    /// Splits the next part in turn by one more bit of the hash.
    #[cold]
    #[inline(never)]
    fn split(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let (count, round_count) = (self.parts.len(), self.round_mask + 1);
        let old = std::mem::take(&mut self.parts[count - round_count]);
        let mut stays = HashTable::with_capacity(old.len() / 2);
        let mut goes = HashTable::with_capacity(old.len() / 2);
        for element in old {
            let hash = hash_of(&element);
            let half =
                if (hash >> 32) as usize & round_count == 0 { &mut stays } else { &mut goes };
            half.insert_unique(hash, element, hash_of);
        }
        self.parts[count - round_count] = stays;
        self.parts.push(goes);
        if count + 1 == 2 * round_count {
            self.round_mask = 2 * self.round_mask + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;

    /// Hashes that one insertion may ask for: a part that grows, and one that is split into two of which one grows.
    const STEPS_MAX: u64 = 8_192;

    fn hash(element: &u64) -> u64 {
        let product = u128::from(*element ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        (product as u64) ^ ((product >> 64) as u64)
    }

    fn insert(table: &mut PartedTable<u64>, element: u64) -> u64 {
        let steps = Cell::new(0);
        let hash_of = |element: &u64| {
            steps.set(steps.get() + 1);
            hash(element)
        };
        table.insert_unique(hash(&element), element, hash_of);
        steps.get()
    }

    #[test]
    fn no_insertion_moves_more_than_some_parts() {
        let mut table = PartedTable::default();
        let steps = (0..300_000).map(|element| insert(&mut table, element)).max();
        assert!((1_000..=STEPS_MAX).contains(&steps.unwrap()), "{steps:?} steps");
        assert_eq!(table.len(), 300_000);
        assert!(
            (0..300_000).all(|element| table.find(hash(&element), |it| *it == element).is_some())
        );
        let largest = table.parts.iter().map(HashTable::num_buckets).max();
        assert_eq!(largest, Some(4_096));
    }

    #[test]
    fn elements_with_like_hashes_cause_no_more_splits_than_others() {
        let mut table = PartedTable::default();
        for element in 0..20_000_u64 {
            table.insert_unique(element, element, |element| *element);
        }
        assert_eq!(table.parts.len(), 20_000_usize.div_ceil(PART_LEN));
        assert!((0..20_000).all(|element| table.find(element, |it| *it == element).is_some()));
    }

    #[test]
    fn elements_are_found_and_taken_out() {
        let mut table = PartedTable::default();
        (0..7_500).for_each(|element| _ = insert(&mut table, element));
        let odd = (1..7_500).step_by(2);
        odd.for_each(|key| _ = table.remove(hash(&key), |it| *it == key).unwrap());
        assert!(table.remove(hash(&1), |it| *it == 1).is_none());
        assert_eq!((table.len(), table.iter().count()), (3_750, 3_750));
        assert_eq!(table.find_mut(hash(&8), |it| *it == 8), Some(&mut 8));
    }

    #[test]
    fn every_place_is_come_to() {
        let mut table = PartedTable::default();
        (0..10_000).for_each(|element| _ = insert(&mut table, element));
        let mut place = TablePlace::default();
        let mut seen = HashSet::new();
        loop {
            seen.extend(table.at_mut(place).map(|element| *element));
            place = table.after(place);
            if place == TablePlace::default() {
                break;
            }
        }
        assert_eq!(seen.len(), 10_000);
        let empty = PartedTable::<u64>::default();
        assert_eq!(empty.after(TablePlace::default()), TablePlace::default());
    }
}
