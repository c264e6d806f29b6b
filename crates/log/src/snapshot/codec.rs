//! What a receiver has and what an export is, as bytes for another node: `docs/format/snapshot.md`.
//!
//! Frames carry them, and have checksums. What does not decode was written by another version.

use crate::codec::{NUMBER_MAX, u16_at, u32_at, u64_at};
use crate::snapshot::{SnapshotHead, Tails};
use model::{ByteOffset, EntryIndex, GroupId, StreamId, Term};

/// Bytes before the lists of a head.
const HEAD_FIXED_BYTES: usize = 40;

/// Bytes before the list of tails.
const TAILS_FIXED_BYTES: usize = 8;

/// Bytes of a stream and an offset.
const PAIR_BYTES: usize = 16;

fn push_pairs(pairs: &[(StreamId, ByteOffset)], out: &mut Vec<u8>) {
    for (stream, offset) in pairs {
        out.extend_from_slice(&stream.get().to_le_bytes());
        out.extend_from_slice(&offset.get().to_le_bytes());
    }
}

/// Pairs by rising streams; `None` if they are something else.
fn pairs(bytes: &[u8]) -> Option<Vec<(StreamId, ByteOffset)>> {
    let pair = |at: &[u8]| (StreamId::new(u64_at(at, 0)), ByteOffset::new(u64_at(at, 8)));
    let pairs: Vec<_> = bytes.chunks_exact(PAIR_BYTES).map(pair).collect();
    let is_whole = bytes.len().is_multiple_of(PAIR_BYTES);
    let is_rising = pairs.is_sorted_by(|one, two| one.0 < two.0);
    let is_possible = pairs.iter().all(|(_, offset)| offset.get() <= NUMBER_MAX);
    (is_whole && is_rising && is_possible).then_some(pairs)
}

impl Tails {
    /// All of it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TAILS_FIXED_BYTES + self.streams.len() * PAIR_BYTES);
        out.extend_from_slice(&self.sealed.get().to_le_bytes());
        push_pairs(&self.streams, &mut out);
        out
    }

    /// Reads it back; `None` if the bytes are something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_at_checked(TAILS_FIXED_BYTES)?;
        let sealed = u64_at(fixed, 0);
        let streams = pairs(rest)?;
        (sealed <= NUMBER_MAX).then(|| Self { sealed: EntryIndex::new(sealed), streams })
    }
}

impl SnapshotHead {
    /// Bytes of all files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.checkpoint_bytes + self.chunk_bytes.iter().sum::<u64>()
    }

    /// All of it.
    ///
    /// # Panics
    /// If there are 4 Gi chunks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let chunk_count = u32::try_from(self.chunk_bytes.len()).expect("chunks are open files");
        let lists = self.chunk_bytes.len() * 8 + self.trimmed.len() * PAIR_BYTES;
        let mut out = Vec::with_capacity(HEAD_FIXED_BYTES + lists);
        out.extend_from_slice(&self.group.get().to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&chunk_count.to_le_bytes());
        let numbers = [self.index.get(), self.term.get(), self.store, self.checkpoint_bytes];
        for number in numbers.into_iter().chain(self.chunk_bytes.iter().copied()) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        push_pairs(&self.trimmed, &mut out);
        out
    }

    /// Reads it back; `None` if the bytes are something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, lists) = bytes.split_at_checked(HEAD_FIXED_BYTES)?;
        let chunk_count = usize::try_from(u32_at(fixed, 4)).ok()?;
        let (chunks, trimmed) = lists.split_at_checked(chunk_count.checked_mul(8)?)?;
        let head = Self {
            group: GroupId::new(u16_at(fixed, 0)),
            index: EntryIndex::new(u64_at(fixed, 8)),
            term: Term::new(u64_at(fixed, 16)),
            store: u64_at(fixed, 24),
            checkpoint_bytes: u64_at(fixed, 32),
            chunk_bytes: chunks.chunks_exact(8).map(|at| u64_at(at, 0)).collect(),
            trimmed: pairs(trimmed)?,
        };
        let numbers = [head.index.get(), head.term.get(), head.checkpoint_bytes];
        let lengths =
            || std::iter::once(head.checkpoint_bytes).chain(head.chunk_bytes.iter().copied());
        let sum = lengths().try_fold(0_u64, u64::checked_add)?;
        let is_possible = u16_at(fixed, 2) == 0
            && numbers.iter().all(|number| (1..=NUMBER_MAX).contains(number))
            && lengths().all(|length| length > 0)
            && sum <= NUMBER_MAX;
        is_possible.then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SeededRandom;

    fn pair(stream: u64, offset: u64) -> (StreamId, ByteOffset) {
        (StreamId::new(stream), ByteOffset::new(offset))
    }

    fn head() -> SnapshotHead {
        SnapshotHead {
            group: GroupId::new(3),
            index: EntryIndex::new(0x0102),
            term: Term::new(5),
            store: 0xa1a2_a3a4_a5a6_a7a8,
            checkpoint_bytes: 9000,
            chunk_bytes: vec![70_000, 12],
            trimmed: vec![pair(7, 88)],
        }
    }

    #[test]
    fn a_head_keeps_its_bytes_for_ever() {
        let bytes = head().encode();
        let mut golden =
            vec![3, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        golden.extend([0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1]);
        golden.extend([0x28, 0x23, 0, 0, 0, 0, 0, 0, 0x70, 0x11, 1, 0, 0, 0, 0, 0]);
        golden.extend([12, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 88, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, golden);
        assert_eq!(SnapshotHead::decode(&bytes), Some(head()));
        assert_eq!(head().file_bytes(), 79_012);
    }

    #[test]
    fn tails_keep_their_bytes_for_ever() {
        let tails = Tails { sealed: EntryIndex::new(9), streams: vec![pair(2, 3), pair(4, 0)] };
        let bytes = tails.encode();
        assert_eq!(bytes.len(), 40);
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[24], bytes[32]), (9, 2, 3, 4, 0));
        assert_eq!(Tails::decode(&bytes), Some(tails));
    }

    #[test]
    fn what_no_export_has_is_refused() {
        let breaks: [fn(&mut SnapshotHead); 6] = [
            |head| head.index = EntryIndex::new(0),
            |head| head.term = Term::new(0),
            |head| head.checkpoint_bytes = 0,
            |head| head.chunk_bytes[1] = 0,
            |head| head.chunk_bytes = vec![u64::MAX >> 1; 4],
            |head| head.trimmed = vec![pair(7, 1), pair(7, 2)],
        ];
        for damage in breaks {
            let mut head = head();
            damage(&mut head);
            assert_eq!(SnapshotHead::decode(&head.encode()), None, "{head:?}");
        }
        let whole = head().encode();
        for length in (0..whole.len()).filter(|length| *length != whole.len() - PAIR_BYTES) {
            assert_eq!(SnapshotHead::decode(&whole[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn any_bytes_are_something_that_encodes_to_them_or_nothing() {
        let mut random = SeededRandom::new(1);
        let (mut tails_count, mut head_count) = (0, 0);
        for _ in 0..200_000 {
            let mut bytes = vec![0; random.below(160) as usize];
            // Most are 0, so that some make sense.
            for byte in bytes.iter_mut().step_by(8) {
                *byte = if random.below(2) == 0 { 0 } else { random.below(256) as u8 };
            }
            if let Some(tails) = Tails::decode(&bytes) {
                assert_eq!(tails.encode(), bytes);
                tails_count += 1;
            }
            if let Some(head) = SnapshotHead::decode(&bytes) {
                assert_eq!(head.encode(), bytes);
                head_count += 1;
            }
        }
        assert!(tails_count > 100 && head_count > 0, "{tails_count} and {head_count} made sense");
    }
}
