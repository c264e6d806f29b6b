//! Places that are used again, each with a generation that tells its users apart.

/// Elements by slot number. A freed slot is given out again under the next generation, so that an
/// answer for a connection that is gone never reaches its successor.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Names a connection of a shard, now and forever: a slot, and the generation of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Its place.
    pub slot: u32,
    /// Tells it from earlier ones in the same place.
    pub generation: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, make: impl FnOnce(ConnId) -> T) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 connections")
        });
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let id = ConnId { slot, generation: entry.generation };
        entry.value = Some(make(id));
        id
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&T> {
        let entry = self.entries.get(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        self.free.push(id.slot);
        Some(value)
    }

    /// The present user of a slot.
    pub(crate) fn id_of(&self, slot: usize) -> Option<ConnId> {
        let entry = self.entries.get(slot)?;
        let slot = u32::try_from(slot).ok()?;
        entry.value.as_ref().map(|_| ConnId { slot, generation: entry.generation })
    }

    pub(crate) fn ids(&self) -> Vec<ConnId> {
        (0..self.entries.len()).filter_map(|slot| self.id_of(slot)).collect()
    }

    /// Slots, free ones included.
    pub(crate) fn slot_count(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_does_not_reach_the_next_user_of_its_slot() {
        let mut slab = Slab::new();
        let old = slab.insert(|_| "old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert(|_| "new");
        assert_eq!(new.slot, old.slot);
        assert!(slab.get_mut(old).is_none() && slab.remove(old).is_none());
        assert_eq!(slab.get_mut(new), Some(&mut "new"));
        assert_eq!(slab.len(), 1);
    }
}
