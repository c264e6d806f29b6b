//! Batches whose entries are asked for by index: those of replicated groups, in memory for a while.
//!
//! # Why
//! A leader sends an entry before its own sync, and again to who has missed it a moment ago. So the open batch, the one in
//! flight and the last durable ones answer without a read. A batch without an entry of a replicated group leaves
//! nothing here and costs nothing.
//!
//! # Invariants
//! - What is here is what was appended: a batch is frozen before it is kept.
//! - At most [`RECENT_BATCHES_MAX`] batches and [`RECENT_BYTES_MAX`] bytes are kept, and the last one whatever its size.

use crate::wal::layout::{EntryHeader, WritePlace, entry_header_position};
use bytes::Bytes;
use std::collections::VecDeque;

/// Most durable batches that are kept: a follower that is a few turns late finds its entries.
const RECENT_BATCHES_MAX: usize = 64;

/// Most bytes of them.
const RECENT_BYTES_MAX: usize = 4 << 20;

/// An entry of a replicated group in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexedEntry {
    pub(crate) group: u16,
    pub(crate) index: u64,
    /// Its number in the batch.
    pub(crate) number: u32,
    /// Where its command begins in the batch's payload.
    pub(crate) payload_position: u32,
}

/// What replicated groups have in a batch.
#[derive(Debug, Default)]
pub(crate) struct IndexedPart {
    pub(crate) entries: Vec<IndexedEntry>,
    /// One of each group at most, with the last one that was set.
    pub(crate) notes: Vec<EntryHeader>,
    /// Groups, and the entries from which on older ones are superseded.
    pub(crate) superseded: Vec<(u16, u64)>,
}

/// A closed batch in memory.
#[derive(Debug)]
struct IndexedBatch {
    seq: u64,
    place: WritePlace,
    headers: Bytes,
    payload: Bytes,
}

/// The header of an entry, its command and its data.
pub(crate) type FoundEntry = (EntryHeader, Bytes, Bytes);

impl IndexedBatch {
    fn bytes(&self) -> usize {
        self.headers.len() + self.payload.len()
    }

    fn entry(&self, number: u32) -> FoundEntry {
        let header = self.headers[entry_header_position(number)..].first_chunk();
        let header = EntryHeader::decode(header.expect("a batch holds whole headers"));
        let in_payload = |position: u64| {
            usize::try_from(position).expect("batches are below 4 GiB") - self.headers.len()
        };
        let (data, end) = (in_payload(header.data_position()), in_payload(header.end()));
        let command = in_payload(u64::from(header.position));
        (header, self.payload.slice(command..data), self.payload.slice(data..end))
    }
}

/// The batch in flight, and the last durable ones.
#[derive(Debug, Default)]
pub(crate) struct IndexedBatches {
    in_flight: Option<IndexedBatch>,
    recent: VecDeque<IndexedBatch>,
    bytes: usize,
}

impl IndexedBatches {
    /// A batch goes to the disk.
    pub(crate) fn start(&mut self, seq: u64, place: WritePlace, headers: Bytes, payload: Bytes) {
        self.in_flight = Some(IndexedBatch { seq, place, headers, payload });
    }

    /// It is durable.
    pub(crate) fn finish(&mut self) {
        let Some(batch) = self.in_flight.take() else { return };
        self.bytes += batch.bytes();
        self.recent.push_back(batch);
        while self.recent.len() > 1
            && (self.recent.len() > RECENT_BATCHES_MAX || self.bytes > RECENT_BYTES_MAX)
        {
            let oldest = self.recent.pop_front().expect("there are several");
            self.bytes -= oldest.bytes();
        }
    }

    /// An entry of the batch with these low bits of its number, if it is in flight.
    pub(crate) fn in_flight(&self, is_it: impl Fn(u64) -> bool, number: u32) -> Option<FoundEntry> {
        self.in_flight.as_ref().filter(|batch| is_it(batch.seq)).map(|batch| batch.entry(number))
    }

    /// An entry of a durable batch, if it is still here.
    pub(crate) fn recent(&self, place: WritePlace, number: u32) -> Option<FoundEntry> {
        let is_it = |batch: &&IndexedBatch| {
            batch.place.slot == place.slot && batch.place.position == place.position
        };
        self.recent.iter().rev().find(is_it).map(|batch| batch.entry(number))
    }

    /// Forgets the batches of a segment, whose slot may get another file.
    pub(crate) fn forget(&mut self, slot: u16) {
        self.recent.retain(|batch| batch.place.slot != slot);
        self.bytes = self.recent.iter().map(IndexedBatch::bytes).sum();
    }
}
