//! Places that are used again, each with a generation that tells its users apart.

/// Elements by slot number. A freed slot is given out again under the next generation, so that an
/// answer for a connection that is gone never reaches its successor.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// A slot and the generation of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId {
    pub slot: u32,
    pub generation: u32,
}

impl SlotId {
    /// How the node names it in a ticket.
    pub(crate) fn to_exchange(self) -> [u32; 3] {
        [self.slot, self.generation, 0]
    }

    /// The slot and generation that [`Self::to_exchange`] packed.
    pub(crate) fn of_exchange([slot, generation, _]: [u32; 3]) -> Self {
        Self { slot, generation }
    }
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> SlotId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 connections")
        });
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.value = Some(value);
        SlotId { slot, generation: entry.generation }
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Option<T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        self.free.push(id.slot);
        Some(value)
    }

    /// The present user of a slot.
    pub(crate) fn id_of(&self, slot: usize) -> Option<SlotId> {
        let entry = self.entries.get(slot)?;
        let slot = u32::try_from(slot).ok()?;
        entry.value.as_ref().map(|_| SlotId { slot, generation: entry.generation })
    }

    pub(crate) fn ids(&self) -> Vec<SlotId> {
        (0..self.entries.len()).filter_map(|slot| self.id_of(slot)).collect()
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
        let mut slots = Slots::new();
        let old = slots.insert("old");
        assert_eq!(slots.remove(old), Some("old"));
        let new = slots.insert("new");
        assert_eq!(new.slot, old.slot);
        assert!(slots.get_mut(old).is_none() && slots.remove(old).is_none());
        assert_eq!(slots.get_mut(new), Some(&mut "new"));
        assert_eq!(slots.len(), 1);
    }
}
