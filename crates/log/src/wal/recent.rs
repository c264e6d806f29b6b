//! Recently committed bytes, in memory.
//!
//! # What and why
//! Clients often read what was written a moment ago. Its appends lie in the WAL one by one, between those of
//! other streams, and each would cost a read of the file. So the payload of each durable batch is copied into a ring, one
//! copy per batch. A reader takes an append from there by its place in the WAL, which the index of hot appends
//! knows.
//!
//! The written buffers themselves are not kept: they are filled again at once, while they are in the processor's cache. A
//! copy of the WAL's blocks is not kept either: a commit of one append of 256 bytes is a block of 4 KiB.
//!
//! # Driving it
//! [`RecentRing::keep`] for each batch, when its sync has returned and before its entries are placed. [`RecentRing::get`]
//! for each append that is read.
//!
//! # Invariants
//! - Only durable batches are here: their bytes are what was acknowledged.
//! - A place in the ring is a number that only rises. What was written over is known by its number.
//! - The places of a segment's blocks are dropped with its slot, and each block is written once in the life of a
//!   segment. So a position names the bytes of its own batch or none.

use crate::options::{BLOCK_BYTES, RECENT_DATA_PART, RECENT_MEAN_BYTES_MAX};
use crate::wal::batch::DurableBatch;
use std::cell::Cell;
use std::num::NonZeroU64;

/// The first place: larger than any position in a segment, so that no difference of the two is 0.
const PLACE_MIN: u64 = 1 << 32;

/// Bytes that are copied at once. For longer pieces the C library may take an instruction that moves byte by byte, which
/// begins slowly and which profiles count by the byte.
const PIECE_BYTES: usize = 1 << 10;

/// What a position in each block of a segment lacks to its place in the ring. Blocks of batches that were not kept have none;
/// those behind the last that was kept are left out.
#[derive(Debug, Default)]
pub(crate) struct KeptBlocks(Vec<Option<NonZeroU64>>);

impl KeptBlocks {
    /// Sets what `count` blocks from `first` on lack.
    #[inline]
    fn set(&mut self, first: u64, count: u64, lacking: NonZeroU64) {
        let first = usize::try_from(first).expect("segments are bounded");
        assert!(self.0.len() <= first, "a block of a segment is written once");
        if self.0.len() < first {
            self.0.resize(first, None);
        }
        for _ in 0..count {
            self.0.push(Some(lacking));
        }
    }

    fn place(&self, position: u32) -> Option<u64> {
        let block = usize::try_from(u64::from(position) / BLOCK_BYTES).ok()?;
        let lacking = (*self.0.get(block)?)?;
        Some(lacking.get() + u64::from(position))
    }
}

/// Figures of the recently committed bytes that a shard has in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecentStats {
    /// Bytes of memory that they have filled.
    pub held_bytes: u64,
    /// Appends that reads found in memory, since the open.
    pub hits: u64,
    /// Appends of the WAL that reads did not find in memory, since the open.
    pub misses: u64,
    /// Long reads that found their bytes in one piece, since the open.
    pub run_hits: u64,
}

/// The payloads of the batches that were kept last.
#[derive(Debug)]
pub(crate) struct RecentRing {
    /// Empty until something is kept. Its memory is zeroes that the system gives when they are first written.
    bytes: Vec<u8>,
    bytes_max: usize,
    /// The place of the ring's first byte since it was last written over from there.
    lap: u64,
    /// The place behind the last byte that was kept.
    end: u64,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl RecentRing {
    /// A ring of at most `bytes_max` bytes, which takes none yet; one of 0 keeps nothing.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (hits, misses) = (Cell::new(0), Cell::new(0));
        Self { bytes: Vec::new(), bytes_max, lap: PLACE_MIN, end: PLACE_MIN, hits, misses }
    }

    /// Copies the payload of a durable batch, if it is worth it. `blocks` are those of its segment.
    ///
    /// # Panics
    /// If this batch or a later one of the segment was kept before.
    #[inline]
    pub(crate) fn keep(&mut self, batch: &DurableBatch, blocks: &mut KeptBlocks) {
        let payload = &batch.payload[..];
        if payload.len() > self.bytes_max || !is_worth_keeping(batch) {
            return;
        }
        if self.bytes.len() - self.index(self.end) < payload.len() {
            self.begin_lap();
            if self.bytes.is_empty() {
                return;
            }
        }
        let position = batch.place.position;
        let lacking = self.end - (position + batch.headers.len() as u64);
        let lacking = NonZeroU64::new(lacking).expect("places are larger than positions");
        blocks.set(position / BLOCK_BYTES, batch.disk_bytes() / BLOCK_BYTES, lacking);
        let mut at = self.index(self.end);
        for piece in payload.chunks(PIECE_BYTES) {
            self.bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.end += payload.len() as u64;
    }

    /// Writes the ring over from its beginning. The rest of it is given up, with what it holds of the lap before.
    /// If the machine has no room for the ring, nothing is kept from then on.
    #[cold]
    fn begin_lap(&mut self) {
        if self.bytes.is_empty() {
            // An allocation that cannot fail in words would end the process.
            let mut room = Vec::<u8>::new();
            let is_there = room.try_reserve_exact(self.bytes_max).is_ok();
            drop(std::hint::black_box(room));
            self.bytes_max = if is_there { self.bytes_max } else { 0 };
            self.bytes = vec![0; self.bytes_max];
        } else {
            self.lap += self.bytes_max as u64;
            self.end = self.lap;
        }
    }

    /// Where in the ring a place of this lap, or of the one before, is.
    fn index(&self, place: u64) -> usize {
        let from_lap = if place < self.lap { place + self.bytes_max as u64 } else { place };
        usize::try_from(from_lap - self.lap).expect("a ring is in memory")
    }

    /// The bytes of an append at `position` of a segment with these blocks, if they are still here.
    pub(crate) fn get(&self, blocks: &KeptBlocks, position: u32, length: u32) -> Option<&[u8]> {
        let place = blocks.place(position)?;
        if place + (self.bytes_max as u64) < self.end {
            return None;
        }
        let at = self.index(place);
        self.hits.set(self.hits.get() + 1);
        Some(&self.bytes[at..at + length as usize])
    }

    /// Counts appends that are read from the WAL.
    pub(crate) fn note_misses(&self, count: u64) {
        self.misses.set(self.misses.get() + count);
    }

    pub(crate) fn stats(&self) -> RecentStats {
        let held_bytes = (self.end - PLACE_MIN).min(self.bytes.len() as u64);
        let (hits, misses) = (self.hits.get(), self.misses.get());
        RecentStats { held_bytes, hits, misses, run_hits: 0 }
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        let length = self.bytes.len();
        assert!(length == 0 || length == self.bytes_max, "a ring has one length");
        let lap_bytes = self.end.checked_sub(self.lap);
        assert!(lap_bytes.is_some_and(|bytes| bytes <= length as u64), "a ring ends in its lap");
    }
}

/// Whether a batch brings short appends: they cost a read of the file each. Long ones do not need it, and nobody
/// reads commands again.
fn is_worth_keeping(batch: &DurableBatch) -> bool {
    let payload_bytes = batch.payload.len() as u64;
    payload_bytes <= batch.data_bytes * RECENT_DATA_PART
        && payload_bytes <= batch.len() as u64 * RECENT_MEAN_BYTES_MAX
        && payload_bytes > 0
}
