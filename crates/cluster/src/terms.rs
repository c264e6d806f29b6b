//! What the library may know of a group's log: index, term and size of each entry, never its bytes.
//!
//! # Why a copy
//! The library owns its storage, and a shard's log belongs to the shard. So each replica keeps these
//! few bytes per entry itself: four, and two numbers for each term. It notes an entry when it hands
//! it out to be appended, or promises that it will be. The alternative, one log shared through a lock,
//! would put a lock on the way of every append.
//!
//! # How sizes reach the library
//! It limits messages and unfinished proposals by the length of an entry's data. So a leader's entries
//! carry slices of one array of zeroes with the length that the real bytes have. No page of the array is ever touched.
//!
//! # Invariants
//! - Entries are those from `base + 1` on without a gap; terms never fall.
//! - A run is not empty: the next one begins behind it.

use crate::message::{LogPosition, SnapshotPoint};
use crate::{identity::ReplicaId, library};
use bytes::Bytes;
use model::EntryIndex;
use raft::eraftpb::{Entry, EntryType, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Sizes above this count as this: it is more than what may be under way to one follower.
const SIZE_MAX: u32 = 16 << 20;

static ZEROES: [u8; SIZE_MAX as usize] = [0; SIZE_MAX as usize];

/// Marks a change of the configuration in a size.
const CHANGE: u32 = 1 << 31;

/// `bytes` zeroes that take no memory.
pub(crate) fn weight(bytes: u32) -> Bytes {
    Bytes::from_static(&ZEROES[..bytes.min(SIZE_MAX) as usize])
}

/// Index, term and size of the entries of one group.
#[derive(Debug)]
pub struct Terms {
    /// The entry before the first one.
    base: LogPosition,
    /// First index and term of each run of entries of one term.
    runs: VecDeque<(u64, u64)>,
    /// Bytes of each entry; the highest bit marks a change.
    sizes: VecDeque<u32>,
    /// What the library starts with.
    initial: RaftState,
    /// Snapshots that lie ready beside the log of a follower.
    offers: BTreeMap<ReplicaId, SnapshotPoint>,
    /// Followers that need one.
    wanted: RefCell<BTreeSet<u64>>,
}

impl Terms {
    /// An empty log behind `base`.
    #[must_use]
    pub fn new(base: LogPosition) -> Self {
        Self {
            base,
            runs: VecDeque::new(),
            sizes: VecDeque::new(),
            initial: RaftState::default(),
            offers: BTreeMap::new(),
            wanted: RefCell::default(),
        }
    }

    /// The last entry; `base` if there is none.
    #[must_use]
    pub fn last(&self) -> LogPosition {
        let last = self.last_index_number();
        let term = self.runs.back().map_or(self.base.term.get(), |(_, term)| *term);
        LogPosition::new(last, term)
    }

    /// The entry before the first one.
    #[must_use]
    pub fn base(&self) -> LogPosition {
        self.base
    }

    /// The term of an entry, of `base` too; `None` for what the log does not have.
    #[must_use]
    pub fn term_of(&self, index: EntryIndex) -> Option<u64> {
        let index = index.get();
        if index == self.base.index.get() {
            return Some(self.base.term.get());
        }
        if index < self.base.index.get() || index > self.last_index_number() {
            return None;
        }
        let behind = self.runs.partition_point(|(first, _)| *first <= index);
        Some(self.runs[behind - 1].1)
    }

    /// Adds an entry of `bytes` bytes.
    ///
    /// # Panics
    /// If it does not follow the last one, or its term is lower.
    pub fn push(&mut self, at: LogPosition, bytes: u32, is_change: bool) {
        let (last, index, term) = (self.last(), at.index.get(), at.term.get());
        assert_eq!(index, last.index.get() + 1, "an entry follows the last one");
        assert!(term >= last.term.get(), "terms never fall within a log");
        if self.runs.back().is_none_or(|(_, newest)| *newest != term) {
            self.runs.push_back((index, term));
        }
        self.sizes.push_back(bytes.min(SIZE_MAX) | if is_change { CHANGE } else { 0 });
    }

    /// Forgets the entries from `from` on.
    ///
    /// # Panics
    /// If `from` is not behind `base`.
    pub fn truncate(&mut self, from: EntryIndex) {
        let (from, base) = (from.get(), self.base.index.get());
        assert!(from > base, "entry {from} is in a snapshot");
        self.sizes.truncate((from - base - 1) as usize);
        while self.runs.back().is_some_and(|(first, _)| *first >= from) {
            self.runs.pop_back();
        }
    }

    /// Forgets the entries up to `upto`: a checkpoint covers them and their segments were released.
    ///
    /// # Panics
    /// If the log does not have that entry.
    pub fn compact(&mut self, upto: EntryIndex) {
        if upto <= self.base.index {
            return;
        }
        let term = self.term_of(upto).expect("only entries of the log are released");
        self.sizes.drain(..(upto.get() - self.base.index.get()) as usize);
        self.base = LogPosition::new(upto.get(), term);
        while self.runs.get(1).is_some_and(|(first, _)| *first <= upto.get() + 1) {
            self.runs.pop_front();
        }
        match self.runs.front_mut() {
            _ if self.sizes.is_empty() => self.runs.clear(),
            Some((first, _)) => *first = (*first).max(upto.get() + 1),
            None => {}
        }
    }

    /// Whether an entry is a change of the configuration.
    pub(crate) fn is_change(&self, index: u64) -> bool {
        index
            .checked_sub(self.base.index.get() + 1)
            .and_then(|at| self.sizes.get(at as usize))
            .is_some_and(|size| size & CHANGE > 0)
    }

    /// What the library starts with.
    pub(crate) fn set_initial(&mut self, state: RaftState) {
        self.initial = state;
    }

    /// A snapshot lies ready beside a follower's log.
    pub(crate) fn offer(&mut self, to: ReplicaId, snapshot: SnapshotPoint) {
        self.offers.insert(to, snapshot);
    }

    /// It does not any more.
    pub(crate) fn withdraw(&mut self, to: ReplicaId) {
        self.offers.remove(&to);
        self.wanted.borrow_mut().remove(&to.bits());
    }

    /// Withdraws everything: the log has a new leader.
    pub(crate) fn withdraw_all(&mut self) {
        self.offers.clear();
        self.wanted.borrow_mut().clear();
    }

    /// Followers that need a snapshot, each once until it is withdrawn.
    pub(crate) fn wanted(&self) -> Vec<ReplicaId> {
        self.wanted.borrow().iter().filter_map(|bits| ReplicaId::from_bits(*bits)).collect()
    }

    fn last_index_number(&self) -> u64 {
        self.base.index.get() + self.sizes.len() as u64
    }

    fn entry(&self, index: u64) -> Entry {
        let size = self.sizes[(index - self.base.index.get() - 1) as usize];
        let term = self.term_of(EntryIndex::new(index)).expect("the entry is in the log");
        let data = weight(size & !CHANGE);
        let mut entry = Entry { index, term, data, ..Entry::default() };
        if size & CHANGE > 0 {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
        }
        entry
    }
}

impl Storage for Terms {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.base.index.get() {
            return Err(Error::Store(StorageError::Compacted));
        }
        let (max, mut taken) = (max_size.into().unwrap_or(u64::MAX), 0);
        let fits = |entry: &Entry| {
            let is_first = taken == 0;
            taken += entry.data.len() as u64 + 1;
            is_first || taken <= max
        };
        Ok((low..high).map(|index| self.entry(index)).take_while(fits).collect())
    }

    fn term(&self, index: u64) -> Result<u64> {
        let missing = if index < self.base.index.get() {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        };
        self.term_of(EntryIndex::new(index)).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.index.get() + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last_index_number())
    }

    fn snapshot(&self, _request_index: u64, to: u64) -> Result<Snapshot> {
        let offer = ReplicaId::from_bits(to).and_then(|id| self.offers.get(&id));
        match offer {
            Some(point) => Ok(library::snapshot(point)),
            None => {
                self.wanted.borrow_mut().insert(to);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log behind entry 10 of term 3, with these terms.
    fn log(terms: &[u64]) -> Terms {
        let mut log = Terms::new(LogPosition::new(10, 3));
        for (index, term) in (11..).zip(terms) {
            log.push(LogPosition::new(index, *term), 100, false);
        }
        log
    }

    fn terms_of(log: &Terms) -> Vec<Option<u64>> {
        (9..=16).map(|index| log.term_of(EntryIndex::new(index))).collect()
    }

    #[test]
    fn the_term_of_each_entry_is_known_and_of_no_other() {
        let found = terms_of(&log(&[3, 3, 5, 6]));
        assert_eq!(found, [None, Some(3), Some(3), Some(3), Some(5), Some(6), None, None]);
        assert_eq!(log(&[3, 3, 5, 6]).last(), LogPosition::new(14, 6));
        assert_eq!(log(&[]).last(), LogPosition::new(10, 3));
    }

    #[test]
    fn a_truncated_log_goes_on_with_another_term() {
        let mut log = log(&[3, 3, 5, 6]);
        log.truncate(EntryIndex::new(12));
        log.push(LogPosition::new(12, 7), 1, true);
        assert_eq!(terms_of(&log)[1..5], [Some(3), Some(3), Some(7), None]);
        assert!(log.is_change(12) && !log.is_change(11) && !log.is_change(10));
    }

    #[test]
    fn a_compacted_log_keeps_the_term_before_its_first_entry() {
        for upto in 10..=14 {
            let mut log = log(&[3, 3, 5, 6]);
            let term = log.term_of(EntryIndex::new(upto));
            log.compact(EntryIndex::new(upto));
            assert_eq!(Some(log.base().term.get()), term);
            assert_eq!(log.last(), LogPosition::new(14, 6));
            assert_eq!(log.first_index(), Ok(upto + 1));
            log.push(LogPosition::new(15, 6), 1, false);
            assert_eq!(log.term_of(EntryIndex::new(15)), Some(6));
            log.truncate(EntryIndex::new(upto + 1));
            assert_eq!(log.last(), log.base());
        }
    }

    #[test]
    fn entries_are_handed_out_up_to_a_size_and_at_least_one() {
        let log = log(&[3, 3, 5, 6]);
        let count = |max| log.entries(11, 15, max, GetEntriesContext::empty(false)).unwrap().len();
        assert_eq!((count(0), count(101), count(202), count(1000)), (1, 1, 2, 4));
        let all = log.entries(11, 15, None, GetEntriesContext::empty(false)).unwrap();
        assert!(all.iter().all(|entry| entry.data.len() == 100));
        assert!(log.entries(10, 12, None, GetEntriesContext::empty(false)).is_err());
    }
}
