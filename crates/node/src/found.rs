//! A question for a record, and the record that answers it.

use log::{Aim, PlacedAppend};
use model::ByteOffset;

/// A question for a record among the bytes that one stream stores.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Which one. By time it is the first of an append.
    pub aim: Aim,
    /// Records are JSON messages; else each append is one.
    pub json: bool,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its first byte.
    pub at: ByteOffset,
    /// Its number.
    pub number: u64,
    /// The append that brought it.
    pub append: PlacedAppend,
}

impl FoundRecord {
    /// The first one of an append.
    pub(crate) fn first_of(append: PlacedAppend) -> Self {
        Self { at: append.bounds.start, number: append.first_record, append }
    }

    /// The largest record time up to its append; its arrival if the stream had no record times then.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.append.mark.unwrap_or(self.append.bounds.at.get())
    }
}

impl Search {
    /// The record, if the append alone tells.
    pub(crate) fn without_scan(&self, append: PlacedAppend) -> Option<FoundRecord> {
        let is_first = match self.aim {
            Aim::Byte(at) => at == append.bounds.start,
            Aim::Record(number) => number == append.first_record,
            Aim::Time(_) => true,
        };
        let is_alone = !self.json || append.bounds.records <= 1;
        (is_first || is_alone).then(|| FoundRecord::first_of(append))
    }
}
