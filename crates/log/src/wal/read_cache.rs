//! Pieces of the log that many reads need, in memory.
//!
//! # What and why
//! What has left the ring of recent bytes ([`crate::wal::recent`]) is read from the WAL, where a stream's appends lie between those of
//! others. Each costs a call of the system, about as much as copying 8 KiB. Clients that come back together read streams that were
//! written together. So what one of them reads from a piece of the log lies between what the others are about to read. A piece
//! that many reads went to is read once, as a whole.
//!
//! # Driving it
//! [`ReadCache::find`] for an append that is not in the ring. [`ReadCache::note_read`] when the file was read for it. If that says so,
//! [`ReadCache::load`]. [`ReadCache::forget`] before a segment is written or leaves the table.
//!
//! # Invariants
//! - A piece is what its file has: nothing is loaded of a segment that is being written, and each block is written once in the life of
//!   a segment.
//! - Whether the bytes of an append are what was acknowledged, its checksum says, as if the file had been read.

use crate::id_map::hash_id;
use crate::read::ReadMode;
use env::File;

/// Size of a piece, unless the bound is too small for some of them: to read it takes some 30 µs of the loop.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// Pieces that the bound holds at least.
const PIECES_MIN: u64 = 4;

/// Blocks of files and memory: a piece begins with one.
const PIECE_ALIGN: u64 = 4096;

/// Reads of a piece cost as much as the whole of it when there was one for so many bytes.
const BYTES_PER_READ: u64 = 16 << 10;

/// Pieces of which reads are counted. A collision costs a piece too few.
const COUNTED: usize = 512;

/// The place of a piece: the slot of its segment, and its number in there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PieceAt {
    slot: u16,
    number: u32,
}

#[derive(Debug)]
struct Piece {
    at: PieceAt,
    bytes: Vec<u8>,
    /// When it was last used, in finds.
    used: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    at: PieceAt,
    reads: u32,
}

/// The pieces of a shard.
#[derive(Debug)]
pub(crate) struct ReadCache {
    piece_bytes: u64,
    pieces_max: usize,
    pieces: Vec<Piece>,
    counted: Vec<Option<Counted>>,
    /// Finds so far.
    now: u64,
    hits: u64,
}

impl ReadCache {
    /// Pieces that take at most `bytes_max` together.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let piece_bytes = PIECE_BYTES_MAX.min(bytes_max / PIECES_MIN / PIECE_ALIGN * PIECE_ALIGN);
        let pieces_max = bytes_max.checked_div(piece_bytes).unwrap_or(0);
        Self {
            piece_bytes,
            pieces_max: usize::try_from(pieces_max).expect("the bound of memory fits memory"),
            pieces: Vec::new(),
            counted: Vec::new(),
            now: 0,
            hits: 0,
        }
    }

    fn at(&self, slot: u16, position: u32) -> PieceAt {
        let number = u64::from(position) / self.piece_bytes;
        PieceAt { slot, number: u32::try_from(number).expect("less than the position") }
    }

    /// The `length` bytes at `position` of a segment, if one piece has them.
    pub(crate) fn find(&mut self, slot: u16, position: u32, length: u32) -> Option<&[u8]> {
        if self.pieces.is_empty() {
            return None;
        }
        let at = self.at(slot, position);
        let piece = self.pieces.iter_mut().find(|piece| piece.at == at)?;
        let start = usize::try_from(u64::from(position) % self.piece_bytes).expect("in memory");
        let bytes = piece.bytes.get(start..start + length as usize)?;
        self.now += 1;
        self.hits += 1;
        piece.used = self.now;
        Some(bytes)
    }

    /// Counts a read at `position` of a segment; whether its piece is worth loading now.
    pub(crate) fn note_read(&mut self, slot: u16, position: u32) -> bool {
        if self.pieces_max == 0 {
            return false;
        }
        if self.counted.is_empty() {
            self.counted = vec![None; COUNTED];
        }
        let at = self.at(slot, position);
        let hash = hash_id(u64::from(at.slot) << 32 | u64::from(at.number));
        let place = usize::try_from(hash % COUNTED as u64).expect("less than the count");
        let counted = &mut self.counted[place];
        let before = counted.filter(|counted| counted.at == at).map_or(0, |counted| counted.reads);
        let is_worth_it = u64::from(before + 1) * BYTES_PER_READ >= self.piece_bytes;
        let reads = if is_worth_it { 0 } else { before + 1 };
        *counted = Some(Counted { at, reads });
        is_worth_it
    }

    /// Reads the piece at `position` of a segment of so many bytes, which is not being written. The one that was not used for longest
    /// makes place.
    pub(crate) fn load(
        &mut self,
        (slot, position): (u16, u32),
        (file, capacity): (&dyn File, u64),
        mode: ReadMode,
    ) {
        let at = self.at(slot, position);
        if self.pieces.iter().any(|piece| piece.at == at) {
            return;
        }
        let start = u64::from(at.number) * self.piece_bytes;
        let length = self.piece_bytes.min(capacity.saturating_sub(start));
        let mut bytes = if self.pieces.len() < self.pieces_max {
            Vec::new()
        } else {
            let oldest = (0..self.pieces.len()).min_by_key(|index| self.pieces[*index].used);
            self.pieces.swap_remove(oldest.expect("there is a piece")).bytes
        };
        bytes.resize(usize::try_from(length).expect("a piece fits memory"), 0);
        // What cannot be read whole, or not without waiting, is read append by append as before.
        if mode.fill(file, &mut bytes, start).is_ok_and(|is_whole| is_whole) {
            self.now += 1;
            self.pieces.push(Piece { at, bytes, used: self.now });
        }
    }

    /// Gives up what it has of a segment.
    pub(crate) fn forget(&mut self, slot: u16) {
        self.pieces.retain(|piece| piece.at.slot != slot);
        let is_of = |counted: &Counted| counted.at.slot == slot;
        self.counted
            .iter_mut()
            .filter(|counted| counted.as_ref().is_some_and(is_of))
            .for_each(|counted| *counted = None);
    }

    /// Bytes of memory that pieces take.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// Appends that were found.
    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        assert!(self.pieces.len() <= self.pieces_max, "pieces keep to their bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Disk, MemoryDisk};
    use std::path::Path;
    use std::sync::Arc;

    const PIECE: usize = 32 << 10;

    /// The file of a segment of two pieces and a half, each byte of which says in which piece it is; and its length.
    fn segment() -> (Arc<dyn File>, u64) {
        let (disk, path) = (MemoryDisk::new(), Path::new("/d/segment"));
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = disk.create(path).unwrap();
        let bytes: Vec<u8> = (0..5 * PIECE / 2).map(|at| (at / PIECE) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        (file, bytes.len() as u64)
    }

    fn cache() -> ReadCache {
        ReadCache::new(PIECES_MIN * PIECE as u64)
    }

    fn load(cache: &mut ReadCache, slot: u16, position: usize) {
        let (file, capacity) = segment();
        cache.load((slot, position as u32), (&*file, capacity), ReadMode::Inline);
        cache.check();
    }

    #[test]
    fn a_piece_has_the_bytes_of_its_file() {
        let mut cache = cache();
        assert!(cache.find(3, 0, 1).is_none());
        load(&mut cache, 3, PIECE + 77);
        load(&mut cache, 3, 2 * PIECE);
        assert_eq!(cache.find(3, PIECE as u32, 2).unwrap(), [1; 2]);
        assert_eq!(cache.find(3, 2 * PIECE as u32 - 2, 2).unwrap(), [1; 2]);
        assert_eq!(cache.find(3, 5 * PIECE as u32 / 2 - 1, 1).unwrap(), [2]);
        // In no piece, of another segment, in two pieces, and behind the end.
        for (slot, position, length) in
            [(3, PIECE - 1, 1), (4, PIECE, 1), (3, 2 * PIECE - 1, 2), (3, 5 * PIECE / 2 - 1, 2)]
        {
            assert!(cache.find(slot, position as u32, length).is_none(), "{slot} {position}");
        }
        assert_eq!((cache.hits(), cache.held_bytes()), (3, 3 * PIECE as u64 / 2));
    }

    #[test]
    fn a_piece_is_worth_it_when_single_reads_have_cost_as_much() {
        let mut cache = cache();
        let reads = PIECE as u64 / BYTES_PER_READ;
        for _ in 0..3 {
            for read in 1..=reads {
                // Reads of other pieces do not count.
                assert_eq!(cache.note_read(3, 5), read == reads);
                assert_eq!(cache.note_read(3, PIECE as u32), read == reads);
                assert_eq!(cache.note_read(4, 5), read == reads);
            }
        }
    }

    #[test]
    fn the_piece_that_was_used_least_recently_makes_place() {
        let mut cache = cache();
        for slot in 0..PIECES_MIN as u16 {
            load(&mut cache, slot, 0);
        }
        assert!(cache.find(0, 0, 1).is_some());
        load(&mut cache, 100, 0);
        load(&mut cache, 100, 0);
        let kept: Vec<u16> = (0..=100).filter(|slot| cache.find(*slot, 0, 1).is_some()).collect();
        assert_eq!(kept, [0, 2, 3, 100]);
        assert_eq!(cache.held_bytes(), PIECES_MIN * PIECE as u64);
    }

    #[test]
    fn what_a_segment_had_is_forgotten_with_it() {
        let mut cache = cache();
        load(&mut cache, 3, 0);
        load(&mut cache, 4, 0);
        let reads = PIECE as u64 / BYTES_PER_READ;
        (1..reads).for_each(|_| assert!(!cache.note_read(3, 0)));
        cache.forget(3);
        assert!(cache.find(3, 0, 1).is_none() && cache.find(4, 0, 1).is_some());
        assert!(!cache.note_read(3, 0), "its reads are forgotten, too");
    }

    #[test]
    fn what_cannot_be_read_whole_is_no_piece() {
        let (file, capacity) = segment();
        file.set_len(PIECE as u64 + 10).unwrap();
        let mut cache = cache();
        cache.load((3, PIECE as u32), (&*file, capacity), ReadMode::Inline);
        assert!(cache.find(3, PIECE as u32, 1).is_none());
        assert_eq!(cache.held_bytes(), 0);
        cache.load((3, 0), (&*file, capacity), ReadMode::Inline);
        assert!(cache.find(3, 0, 1).is_some());
    }

    #[test]
    fn without_a_bound_there_are_none() {
        let mut cache = ReadCache::new(0);
        assert!((0..1000).all(|_| !cache.note_read(3, 0)));
    }
}
