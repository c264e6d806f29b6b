//! The first byte that is kept of each trimmed stream, and which streams are gone.
//!
//! # Why
//! Reads and merges ask for it, and nobody keeps a list of dead rows. A merge on another thread sees the floors
//! as they were when it began; what changes meanwhile is kept beside them, so nothing is copied.
//!
//! # Invariants
//! - A floor never falls.
//! - Each rise is handed out once, to be counted in the chunks. A stream that is gone is remembered
//!   until no chunk has rows of it.

use crate::id_map::IdMap;
use std::sync::Arc;

/// The floor of a stream of which nothing is kept.
pub(crate) const GONE: u64 = u64::MAX;

/// A floor that rose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rise {
    pub(crate) stream: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Floors as they were at one moment.
pub(crate) type FloorsThen = Arc<IdMap<u64, u64>>;

/// The floor of a stream among those of one moment.
pub(crate) fn floor_then(floors: &IdMap<u64, u64>, stream: u64) -> u64 {
    floors.get(&stream).copied().unwrap_or(0)
}

/// The floors of a group's streams.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    /// Shared with a merge that is under way.
    settled: FloorsThen,
    /// What differs from `settled` by now; 0 if the stream has no floor any more.
    changed: IdMap<u64, u64>,
    /// Rows that chunks have of streams that are gone.
    gone_rows: IdMap<u64, u32>,
    rises: Vec<Rise>,
}

impl Floors {
    /// Where what is kept of a stream begins; [`GONE`] if nothing is.
    pub(crate) fn of(&self, stream: u64) -> u64 {
        let changed = self.changed.get(&stream).copied();
        changed.unwrap_or_else(|| floor_then(&self.settled, stream))
    }

    /// Raises a floor, unless it is as high already.
    pub(crate) fn raise(&mut self, stream: u64, to: u64) {
        let from = self.of(stream);
        if from < to {
            self.set(stream, to);
            self.rises.push(Rise { stream, from, to });
        }
    }

    /// Learns a floor at the start, where its rows are counted already.
    pub(crate) fn restore(&mut self, stream: u64, to: u64, gone_rows: u32) {
        if to == GONE {
            *self.gone_rows.entry(stream).or_default() += gone_rows;
        }
        self.set(stream, to);
    }

    fn set(&mut self, stream: u64, floor: u64) {
        match Arc::get_mut(&mut self.settled) {
            Some(settled) if self.changed.is_empty() => {
                match floor {
                    0 => settled.remove(&stream),
                    _ => settled.insert(stream, floor),
                };
            }
            _ => _ = self.changed.insert(stream, floor),
        }
    }

    /// Whether rises wait to be counted.
    pub(crate) fn has_rises(&self) -> bool {
        !self.rises.is_empty()
    }

    pub(crate) fn take_rises(&mut self) -> Vec<Rise> {
        std::mem::take(&mut self.rises)
    }

    /// Takes rises back that could not be counted.
    pub(crate) fn give_back(&mut self, mut rises: Vec<Rise>) {
        rises.append(&mut self.rises);
        self.rises = rises;
    }

    /// The floors as they are now, for another thread.
    pub(crate) fn now(&mut self) -> FloorsThen {
        self.settle();
        Arc::clone(&self.settled)
    }

    /// Takes over what changed while a merge had the floors.
    pub(crate) fn settle(&mut self) {
        let Some(settled) = Arc::get_mut(&mut self.settled) else { return };
        for (stream, floor) in self.changed.drain() {
            match floor {
                0 => settled.remove(&stream),
                _ => settled.insert(stream, floor),
            };
        }
    }

    /// Learns how many rows chunks have of a stream that is gone.
    pub(crate) fn note_gone_rows(&mut self, stream: u64, rows: u32) {
        if rows == 0 {
            self.set(stream, 0);
        } else {
            self.gone_rows.insert(stream, rows);
        }
    }

    /// Learns that so many of them were left out of a merge.
    pub(crate) fn note_left_out(&mut self, stream: u64, rows: u32) {
        let Some(left) = self.gone_rows.get_mut(&stream) else { return };
        *left = left.saturating_sub(rows);
        if *left == 0 {
            self.gone_rows.remove(&stream);
            self.set(stream, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_rise_and_each_rise_is_handed_out_once() {
        let mut floors = Floors::default();
        floors.raise(5, 100);
        floors.raise(5, 50);
        floors.raise(5, 120);
        floors.raise(7, GONE);
        assert_eq!((floors.of(5), floors.of(6), floors.of(7)), (120, 0, GONE));
        let rise = |stream, from, to| Rise { stream, from, to };
        let rises = [rise(5, 0, 100), rise(5, 100, 120), rise(7, 0, GONE)];
        assert_eq!(floors.take_rises(), rises);
        assert!(!floors.has_rises());
        floors.raise(5, 130);
        floors.give_back(rises.to_vec());
        assert_eq!(floors.take_rises(), [&rises[..], &[rise(5, 120, 130)]].concat());
    }

    #[test]
    fn a_merge_sees_the_floors_of_its_beginning() {
        let mut floors = Floors::default();
        floors.raise(5, 100);
        let then = floors.now();
        floors.raise(5, 200);
        floors.raise(6, 10);
        assert_eq!((floor_then(&then, 5), floor_then(&then, 6)), (100, 0));
        assert_eq!((floors.of(5), floors.of(6)), (200, 10));
        drop(then);
        floors.settle();
        let then = floors.now();
        assert_eq!((floor_then(&then, 5), floor_then(&then, 6)), (200, 10));
    }

    #[test]
    fn a_stream_that_is_gone_is_remembered_while_a_chunk_has_rows_of_it() {
        let mut floors = Floors::default();
        for stream in [5, 6] {
            floors.raise(stream, GONE);
        }
        let then = floors.now();
        floors.note_gone_rows(5, 3);
        floors.note_gone_rows(6, 0);
        assert_eq!((floors.of(5), floors.of(6)), (GONE, 0));
        drop(then);
        floors.note_left_out(5, 2);
        assert_eq!(floors.of(5), GONE);
        floors.note_left_out(5, 1);
        assert_eq!(floors.of(5), 0);
        floors.settle();
        assert!(floors.now().is_empty() && floors.gone_rows.is_empty());
    }
}
