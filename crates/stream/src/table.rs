//! The streams of one group, found by id and by path.
//!
//! # Why two open tables
//! A node holds up to millions of streams, most of them idle. Records are boxed so that the tables
//! hold small slots and grow without moving records. The path is stored once, in the record. The path
//! table holds only its hash and the id. That is 8 + 16 bytes of slots a stream. Both tables grow in
//! parts, so that no creation waits until half a million slots have moved.
//!
//! # Invariants
//! - Every record is in both tables under its own id and path.
//! - Iteration is by rising id: the order of a hash table never leaves this file.

use crate::record::StreamRecord;
use model::{PartedTable, PathHash, StreamId, StreamPath, TablePlace};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
struct PathSlot {
    hash: PathHash,
    stream: StreamId,
}

#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    by_id: PartedTable<Box<StreamRecord>>,
    by_path: PartedTable<PathSlot>,
    /// Copies all records as they were when it began.
    copy: Option<Box<Copying>>,
    /// The number of the last copy.
    copy_number: u8,
}

/// A copy of all records under way: see [`crate::GroupState::begin_rows`].
#[derive(Debug)]
pub(crate) struct Copying {
    /// Records of the beginning that are not copied.
    pub left_count: usize,
    /// The place that is looked at next. A table that grows moves its records: then some are found in another round.
    pub next_place: TablePlace,
    /// Copied before a change, and not taken out.
    pub early: Vec<StreamRecord>,
    /// What is to come out and has not; only in debug builds.
    pub expected: Option<BTreeMap<StreamId, StreamRecord>>,
}

/// Ids are entry indexes, so they may be regularly spaced: both halves of a wide product take part.
fn hash_id(stream: StreamId) -> u64 {
    const ODD: u64 = 0xa076_1d64_78bd_642f;
    let product = u128::from(stream.get() ^ 0x9e37_79b9_7f4a_7c15) * u128::from(ODD);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The low bits of a path's hash name its group, so they are the same for all paths of a group.
fn hash_slot(hash: PathHash) -> u64 {
    hash.get().rotate_right(16)
}

impl StreamTable {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn get(&self, stream: StreamId) -> Option<&StreamRecord> {
        self.by_id.find(hash_id(stream), |record| record.id == stream).map(|record| &**record)
    }

    pub(crate) fn get_mut(&mut self, stream: StreamId) -> Option<&mut StreamRecord> {
        let record = self.by_id.find_mut(hash_id(stream), |record| record.id == stream)?;
        if let Some(copy) = &mut self.copy {
            copy_before_change(copy, self.copy_number, record);
        }
        Some(record)
    }

    /// A copy of all records begins.
    ///
    /// # Panics
    /// If another is under way.
    pub(crate) fn begin_copy(&mut self, expected: Option<BTreeMap<StreamId, StreamRecord>>) {
        // Each copy gives its number to all records. So none has that of the one before the last.
        assert!(self.copy.is_none(), "a copy begins before another has ended");
        self.copy_number = self.copy_number.wrapping_add(1);
        let (left_count, next_place, early) = (self.len(), TablePlace::default(), Vec::new());
        self.copy = Some(Box::new(Copying { left_count, next_place, early, expected }));
    }

    pub(crate) fn take_copy(&mut self) -> Option<Box<Copying>> {
        self.copy.take()
    }

    pub(crate) fn put_copy(&mut self, copy: Box<Copying>) {
        self.copy = Some(copy);
    }

    pub(crate) fn copy_number(&self) -> u8 {
        self.copy_number
    }

    /// The place of a record, or none, that follows; the first one follows the last.
    pub(crate) fn after(&self, place: TablePlace) -> TablePlace {
        self.by_id.after(place)
    }

    /// The record at a place, to be marked as copied.
    pub(crate) fn at_mut(&mut self, place: TablePlace) -> Option<&mut StreamRecord> {
        self.by_id.at_mut(place).map(|record| &mut **record)
    }

    pub(crate) fn find(&self, path: &StreamPath) -> Option<&StreamRecord> {
        let hash = path.hash();
        let mut found = None;
        self.by_path.find(hash_slot(hash), |slot| {
            if slot.hash == hash {
                found = self.get(slot.stream).filter(|record| record.path == *path);
            }
            found.is_some()
        });
        found
    }

    /// A record whose path has this hash.
    pub(crate) fn find_hash(&self, hash: PathHash) -> Option<&StreamRecord> {
        let found = self.by_path.find(hash_slot(hash), |slot| slot.hash == hash);
        found.and_then(|slot| self.get(slot.stream))
    }

    /// Adds a record.
    ///
    /// # Panics
    /// If its id or path is taken: the caller has looked.
    pub(crate) fn insert(&mut self, mut record: StreamRecord) {
        assert!(self.get(record.id).is_none(), "stream id {} is used twice", record.id);
        assert!(self.find(&record.path).is_none(), "path {:?} is used twice", record.path);
        // A copy that is under way began before it.
        record.copied_in = self.copy_number;
        let slot = PathSlot { hash: record.path.hash(), stream: record.id };
        self.by_path.insert_unique(hash_slot(slot.hash), slot, |slot| hash_slot(slot.hash));
        self.by_id.insert_unique(hash_id(record.id), Box::new(record), |r| hash_id(r.id));
    }

    pub(crate) fn remove(&mut self, stream: StreamId) -> Option<StreamRecord> {
        let mut record = self.by_id.remove(hash_id(stream), |record| record.id == stream)?;
        if let Some(copy) = &mut self.copy {
            copy_before_change(copy, self.copy_number, &mut record);
        }
        self.by_path.remove(hash_slot(record.path.hash()), |slot| slot.stream == stream);
        Some(*record)
    }

    /// Asserts that both tables hold the same number of streams.
    pub(crate) fn check_sizes(&self) {
        assert_eq!(self.by_id.len(), self.by_path.len(), "the tables hold different streams");
    }

    /// Asserts that each record that is not copied is still counted.
    pub(crate) fn check_copy(&self) {
        let Some(copy) = &self.copy else { return };
        let records = self.by_id.iter();
        let left_count = records.filter(|record| record.copied_in != self.copy_number).count();
        assert_eq!(left_count, copy.left_count, "rows to copy are miscounted");
    }

    /// Asserts that every record is found by its path.
    pub(crate) fn check_paths(&self) {
        for record in self.by_id.iter() {
            let found = self.find(&record.path).map(|found| found.id);
            assert_eq!(found, Some(record.id), "{:?} is not found", record.path);
        }
    }

    /// All records by rising id.
    pub(crate) fn sorted(&self) -> Vec<&StreamRecord> {
        let mut records: Vec<&StreamRecord> = self.by_id.iter().map(|record| &**record).collect();
        records.sort_unstable_by_key(|record| record.id);
        records
    }
}

#[cold]
fn copy_before_change(copy: &mut Copying, number: u8, record: &mut StreamRecord) {
    if record.copied_in != number {
        record.copied_in = number;
        copy.left_count -= 1;
        copy.early.push(record.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Lifetime, expiries::Noted};
    use model::{ByteOffset, Timestamp};
    use std::collections::BTreeSet;

    #[test]
    fn a_removed_record_leaves_no_slot_behind() {
        let mut table = StreamTable::default();
        let record = |id: u64| StreamRecord {
            id: StreamId::new(id),
            path: StreamPath::new(&id.to_string()).unwrap(),
            known_type: 2,
            other_type: None,
            layout: Layout::Bytes,
            lifetime: Lifetime::Forever.into(),
            head: ByteOffset::ZERO,
            tail: ByteOffset::ZERO,
            next_record: 0,
            created_at: Timestamp::new(0).into(),
            written_at: Timestamp::new(0).into(),
            closed: false,
            deleted: false,
            noted: Noted::NEVER,
            copied_in: 0,
            extra: None,
        };
        (1..=100).for_each(|id| table.insert(record(id)));
        (1..=99).for_each(|id| _ = table.remove(StreamId::new(id)).unwrap());
        assert_eq!((table.by_id.len(), table.by_path.len()), (1, 1));
        assert!(table.find(&StreamPath::new("100").unwrap()).is_some());
    }

    #[test]
    fn regularly_spaced_ids_spread_over_the_slots() {
        for spacing in [1, 2, 64, 227, 1000, 4096] {
            let slots: BTreeSet<u64> =
                (0..1000).map(|n| hash_id(StreamId::new(n * spacing)) % 4096).collect();
            // 1000 balls into 4096 bins hit 886 of them on average.
            assert!(slots.len() > 700, "spacing {spacing} hits {} slots", slots.len());
        }
    }
}
