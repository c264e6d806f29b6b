//! Recently committed bytes, in memory.
//!
//! # What and why
//! Clients often read what was written a moment ago. Its appends lie in the WAL one by one, between those of
//! other streams, and each would cost a read of the file. So the payload of each durable batch is copied into a ring, one
//! copy per batch. A reader takes an append from there by its place in the WAL, which the index of hot appends
//! knows. A seal on another thread takes short appends from there, too ([`RecentView`]).
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
//! - A batch is in one piece of the ring. A piece is filled by the shard, alone, and changes no more while a seal has it.
//! - A place in the ring is a number that only rises. What was written over is known by its number.
//! - The places of a segment's blocks are dropped with its slot, and each block is written once in the life of a
//!   segment. So a position names the bytes of its own batch or none.

use crate::options::{BLOCK_BYTES, RECENT_DATA_PART, RECENT_MEAN_BYTES_MAX};
use crate::wal::batch::DurableBatch;
use std::cell::Cell;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

/// The first place, at least: larger than any position in a segment, so that no difference of the two is 0.
const PLACE_MIN: u64 = 1 << 32;

/// Pieces of a ring, with the spare one: at least and at most.
const PIECES_MIN: usize = 4;
const PIECES_MAX: usize = 32;

/// Pieces have so many bytes at least, if there are more than the fewest: any batch of short appends fits.
const PIECE_BYTES_MIN: usize = 4 << 20;

/// Bytes that are copied at once. For longer ones the C library may take an instruction that moves byte by byte, which
/// begins slowly and which profiles count by the byte.
const COPIED_BYTES: usize = 1 << 10;

/// What a position in each block of a segment lacks to its place in the ring. Blocks of batches that were not kept have none;
/// those behind the last that was kept are left out.
#[derive(Debug, Clone, Default)]
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
    /// The piece with a number is the one with its rest by `count`. Each gets its memory when it is first filled.
    pieces: Vec<Arc<Vec<u8>>>,
    /// A piece whose place was taken while a seal had it.
    spare: Option<Arc<Vec<u8>>>,
    shape: Shape,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

/// Where places are.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Pieces in the ring.
    count: u64,
    /// The length of each, at most.
    piece_bytes: u64,
    /// The number of the piece that is filled.
    newest: u64,
}

impl Shape {
    /// The piece of a place and where it is there, unless something else is in its place by now.
    #[inline]
    fn find(self, place: u64) -> Option<(usize, usize)> {
        let number = place / self.piece_bytes;
        let at = usize::try_from(place % self.piece_bytes).expect("a ring is in memory");
        (number + self.count > self.newest).then(|| (self.index(number), at))
    }

    fn index(self, number: u64) -> usize {
        usize::try_from(number % self.count).expect("pieces are few")
    }
}

impl RecentRing {
    /// A ring of at most `bytes_max` bytes, which takes none yet; one of 0 keeps nothing.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let all = (bytes_max / PIECE_BYTES_MIN).clamp(PIECES_MIN, PIECES_MAX);
        let (count, piece_bytes) = ((all - 1) as u64, (bytes_max / all).max(1) as u64);
        // So the first piece is the one behind the last, and a piece with the number 0 has left long ago.
        let newest = PLACE_MIN.div_ceil(piece_bytes).next_multiple_of(count) + 2 * count - 1;
        let shape = Shape { count, piece_bytes, newest };
        let (hits, misses) = (Cell::new(0), Cell::new(0));
        Self { pieces: Vec::new(), spare: None, shape, hits, misses }
    }

    /// Copies the payload of a durable batch, if it is worth it. `blocks` are those of its segment.
    ///
    /// # Panics
    /// If this batch or a later one of the segment was kept before.
    #[inline]
    pub(crate) fn keep(&mut self, batch: &DurableBatch, blocks: &mut Arc<KeptBlocks>) {
        let payload = &batch.payload[..];
        // Each piece is longer than any batch in it: a ring of 0 has pieces of one byte, and takes none.
        if payload.len() as u64 >= self.shape.piece_bytes || !is_worth_keeping(batch) {
            return;
        }
        if !self.has_room(payload.len()) && !self.begin_piece() {
            return;
        }
        let newest = self.shape.index(self.shape.newest);
        let piece =
            Arc::get_mut(&mut self.pieces[newest]).expect("seals get no piece that is filled");
        let place = self.shape.newest * self.shape.piece_bytes + piece.len() as u64;
        let position = batch.place.position;
        let lacking = NonZeroU64::new(place - (position + batch.headers.len() as u64));
        let lacking = lacking.expect("places are larger than positions");
        let count = batch.disk_bytes() / BLOCK_BYTES;
        Arc::make_mut(blocks).set(position / BLOCK_BYTES, count, lacking);
        for part in payload.chunks(COPIED_BYTES) {
            piece.extend_from_slice(part);
        }
    }

    /// The number of the piece that is filled.
    pub(crate) fn newest(&self) -> u64 {
        self.shape.newest
    }

    /// Whether the piece with this number is about to be written over, or was a moment ago. The last quarter of the ring is for what
    /// comes while a seal takes the others.
    pub(crate) fn is_leaving(&self, piece: u64) -> bool {
        let Shape { count, newest, .. } = self.shape;
        (count * 3 / 4..count * 2).contains(&(newest - piece))
    }

    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        let newest = self.pieces.get(self.shape.index(self.shape.newest));
        newest.is_some_and(|piece| (piece.len() + bytes) as u64 <= self.shape.piece_bytes)
    }

    /// Begins with the next piece; whether there is one. The rest of the one before stays free. If seals have too much, or the machine
    /// has no room, what comes now is not kept.
    #[cold]
    fn begin_piece(&mut self) -> bool {
        let index = self.shape.index(self.shape.newest + 1);
        let is_free = |piece: &mut Arc<Vec<u8>>| Arc::get_mut(piece).is_some();
        if index == self.pieces.len() {
            let Some(piece) = self.new_piece() else { return false };
            self.pieces.push(piece);
        } else if !is_free(&mut self.pieces[index]) {
            let other = match self.spare {
                Some(_) => self.spare.take_if(is_free),
                None => self.new_piece(),
            };
            let Some(other) = other else { return false };
            self.spare = Some(std::mem::replace(&mut self.pieces[index], other));
        }
        Arc::get_mut(&mut self.pieces[index]).expect("it is free").clear();
        self.shape.newest += 1;
        true
    }

    /// An allocation that cannot fail in words would end the process.
    fn new_piece(&self) -> Option<Arc<Vec<u8>>> {
        let mut piece = Vec::new();
        piece.try_reserve_exact(usize::try_from(self.shape.piece_bytes).ok()?).ok()?;
        Some(Arc::new(piece))
    }

    /// The bytes of an append at `position` of a segment with these blocks, if they are still here.
    pub(crate) fn get(&self, blocks: &KeptBlocks, position: u32, length: u32) -> Option<&[u8]> {
        let (index, at) = self.shape.find(blocks.place(position)?)?;
        self.hits.set(self.hits.get() + 1);
        Some(&self.pieces[index][at..at + length as usize])
    }

    /// What is here now, for another thread; of the segments with these slots and blocks.
    pub(crate) fn view(&self, kept: HashMap<u16, Arc<KeptBlocks>>) -> RecentView {
        let mut pieces = self.pieces.clone();
        // That one is still filled.
        if let Some(newest) = pieces.get_mut(self.shape.index(self.shape.newest)) {
            *newest = Arc::default();
        }
        RecentView { pieces, kept, shape: self.shape }
    }

    /// Counts appends that are read from the WAL.
    pub(crate) fn note_misses(&self, count: u64) {
        self.misses.set(self.misses.get() + count);
    }

    pub(crate) fn stats(&self) -> RecentStats {
        let held_bytes =
            self.pieces.iter().chain(&self.spare).map(|piece| piece.len() as u64).sum();
        let (hits, misses) = (self.hits.get(), self.misses.get());
        RecentStats { held_bytes, hits, misses, run_hits: 0 }
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        let mut all = self.pieces.iter().chain(&self.spare);
        let is_bounded = all.all(|piece| piece.len() as u64 <= self.shape.piece_bytes);
        assert!(is_bounded, "a piece has more bytes than it may");
        let is_few = self.pieces.len() as u64 <= self.shape.count;
        assert!(is_few, "a ring has too many pieces");
    }
}

/// What a ring had at some time. It does not change, and keeps the memory of the pieces that it has.
#[derive(Debug)]
pub(crate) struct RecentView {
    pieces: Vec<Arc<Vec<u8>>>,
    kept: HashMap<u16, Arc<KeptBlocks>>,
    shape: Shape,
}

impl RecentView {
    /// The bytes of an append, if they were there.
    pub(crate) fn get(&self, slot: u16, position: u32, length: u32) -> Option<&[u8]> {
        let (index, at) = self.shape.find(self.kept.get(&slot)?.place(position)?)?;
        self.pieces[index].get(at..at + length as usize)
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
