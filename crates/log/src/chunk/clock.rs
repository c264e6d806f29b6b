//! A bounded map that forgets what was not used for a while.
//!
//! # Why
//! A list in order of use costs a change of the list for each use. Here a use sets one bit. The hand goes round
//! when there is no room: what was used since it last came by stays one round longer.
//!
//! # Invariants
//! - The weight of all values is at most the bound, unless one alone is heavier.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash};

use crate::id_map::IdHasher;

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    value: V,
    weight: u64,
    is_used: bool,
}

/// Values by key, up to a total weight.
#[derive(Debug)]
pub(crate) struct Clock<K, V> {
    places: HashMap<K, usize, BuildHasherDefault<IdHasher>>,
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    hand: usize,
    weight: u64,
    weight_max: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Clock<K, V> {
    pub(crate) fn new(weight_max: u64) -> Self {
        Self {
            places: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            weight: 0,
            weight_max,
        }
    }

    /// The weight of all values.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn get(&mut self, key: K) -> Option<V> {
        let slot = self.slots[*self.places.get(&key)?].as_mut()?;
        slot.is_used = true;
        Some(slot.value.clone())
    }

    /// Adds a value; returns those that had to go. Drop them where that may take its time.
    #[must_use]
    pub(crate) fn insert(&mut self, key: K, value: V, weight: u64) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(key).into_iter().collect();
        while self.weight + weight > self.weight_max && !self.places.is_empty() {
            gone.extend(self.turn());
        }
        let slot = Some(Slot { key, value, weight, is_used: false });
        let place = self.free.pop().unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[place] = slot;
        }
        self.places.insert(key, place);
        self.weight += weight;
        gone
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let place = self.places.remove(&key)?;
        let slot = self.slots[place].take()?;
        self.free.push(place);
        self.weight -= slot.weight;
        Some(slot.value)
    }

    /// Takes all values.
    pub(crate) fn take_all(&mut self) -> Vec<V> {
        let slots = std::mem::take(&mut self.slots);
        (self.free, self.hand, self.weight) = (Vec::new(), 0, 0);
        self.places.clear();
        slots.into_iter().flatten().map(|slot| slot.value).collect()
    }

    /// Moves the hand by one slot.
    fn turn(&mut self) -> Option<V> {
        self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
        let slot = self.slots[self.hand].as_mut()?;
        if std::mem::take(&mut slot.is_used) {
            return None;
        }
        let key = slot.key;
        self.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(weight_max: u64, keys: std::ops::Range<u64>) -> Clock<u64, u64> {
        let mut clock = Clock::new(weight_max);
        keys.for_each(|key| assert!(clock.insert(key, key * 10, 1).is_empty()));
        clock
    }

    #[test]
    fn what_was_used_stays_and_the_bound_holds() {
        let mut clock = clock(10, 0..10);
        for key in 100..1000 {
            assert_eq!(clock.get(3), Some(30), "used again and again");
            assert_eq!(clock.insert(key, key, 1).len(), 1);
            assert_eq!((clock.weight, clock.places.len()), (10, 10));
        }
        assert_eq!(clock.get(4), None);
        assert!(clock.slots.len() <= 11, "slots are used again");
    }

    #[test]
    fn a_heavy_value_takes_the_place_of_many() {
        let mut clock = clock(10, 0..10);
        assert_eq!(clock.insert(10, 0, 7).len(), 7);
        assert_eq!(clock.insert(11, 0, 100).len(), 4, "alone, it may be heavier than the bound");
        assert_eq!(clock.places.len(), 1);
        assert_eq!(clock.insert(12, 0, 1).len(), 1);
        assert_eq!(clock.weight, 1);
    }

    #[test]
    fn all_values_can_be_taken() {
        let mut clock = clock(10, 0..10);
        assert_eq!(clock.remove(3), Some(30));
        assert_eq!(clock.take_all().len(), 9);
        assert_eq!((clock.weight(), clock.get(4)), (0, None));
        assert!(clock.insert(5, 50, 10).is_empty());
        assert_eq!((clock.weight(), clock.get(5)), (10, Some(50)));
    }

    #[test]
    fn a_key_has_one_value() {
        let mut clock = clock(10, 0..3);
        assert_eq!(clock.insert(1, 5, 4), [10]);
        assert_eq!((clock.get(1), clock.weight), (Some(5), 6));
        assert_eq!(clock.remove(1), Some(5));
        assert_eq!((clock.remove(1), clock.weight), (None, 2));
    }
}
