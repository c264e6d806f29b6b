//! The bytes of a WAL batch. The table is in `docs/format/wal.md`.
//!
//! # Why
//! Every entry header is at a fixed place and has its own checksum, and so have its command and its
//! data: a flipped bit costs one entry. A checksum over the whole batch would cost all of them
//! (and a second pass over every byte), so there is none.
//!
//! # Invariants
//! - Header checksums are seeded with the store id and the place (segment, batch): bytes of another
//!   store or of a segment's former life never pass, whatever they say of themselves.
//! - `durable < seq`: a batch claims only batches before itself.

use crate::codec::{NUMBER_MAX, Unsealed, put, seal_header, u16_at, u32_at, u64_at, unseal};
use crate::entry::{DataPlace, Entry};
use crate::options::{BLOCK_BYTES, ENTRY_COMMAND_BYTES_MAX, ENTRY_DATA_BYTES_MAX};
use model::{EntryIndex, EntrySubject, GroupId, Term, Timestamp};

pub(crate) const BATCH_HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_HEADER_BYTES: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"ThBa");
const VERSION: u16 = 1;

/// Where a batch is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WritePlace {
    pub(crate) slot: u16,
    pub(crate) position: u64,
}

/// The first 64 bytes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) lane: u16,
    pub(crate) segment: u64,
    /// Rises from batch to batch of a WAL; numbers may be left out.
    pub(crate) seq: u64,
    /// The batch before this one that is durable. Those in between were never acknowledged.
    pub(crate) durable: u64,
    /// Which opening of the store wrote it: a group's entries of one epoch are in one WAL.
    pub(crate) epoch: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) entry_count: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, store: u64) -> [u8; BATCH_HEADER_BYTES] {
        assert!(self.durable < self.seq, "a batch claims only batches before itself");
        let mut out = [0; BATCH_HEADER_BYTES];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &VERSION.to_le_bytes());
        put(&mut out, 6, &self.lane.to_le_bytes());
        put(&mut out, 8, &self.segment.to_le_bytes());
        put(&mut out, 16, &self.seq.to_le_bytes());
        put(&mut out, 24, &self.durable.to_le_bytes());
        put(&mut out, 32, &self.epoch.to_le_bytes());
        put(&mut out, 40, &self.payload_bytes.to_le_bytes());
        put(&mut out, 44, &self.entry_count.to_le_bytes());
        seal_header(&mut out, &store.to_le_bytes());
        out
    }

    /// The header in `bytes` if it was written for this very place.
    ///
    /// A stale header is no damaged one: its checksum is right, and repair gives back what a damaged
    /// stale one was. Neither carries this segment's number.
    pub(crate) fn decode(
        bytes: &[u8],
        store: u64,
        lane: u16,
        segment: u64,
    ) -> Option<Unsealed<Self>> {
        // Most blocks are not headers: the magic spares them the checksum.
        let magic_flips = (u32_at(bytes, 0) ^ MAGIC).count_ones();
        if magic_flips > 1 {
            return None;
        }
        unseal(&bytes[..BATCH_HEADER_BYTES], &store.to_le_bytes(), |bytes| {
            Self::decode_fields(bytes, lane, segment)
        })
    }

    fn decode_fields(bytes: &[u8], lane: u16, segment: u64) -> Option<Self> {
        let header = Self {
            lane: u16_at(bytes, 6),
            segment: u64_at(bytes, 8),
            seq: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            payload_bytes: u32_at(bytes, 40),
            entry_count: u32_at(bytes, 44),
        };
        let is_ours = u32_at(bytes, 0) == MAGIC && u16_at(bytes, 4) == VERSION;
        let is_here = header.lane == lane && header.segment == segment;
        let is_possible = header.durable < header.seq && header.seq.max(header.epoch) <= NUMBER_MAX;
        (is_ours && is_here && is_possible).then_some(header)
    }

    /// Bytes from the start of the batch to the start of the next one.
    pub(crate) fn length(&self) -> u64 {
        batch_bytes(u64::from(self.entry_count), u64::from(self.payload_bytes))
    }

    /// Where the second copy of its headers starts, if there was room for one.
    pub(crate) fn copy_position(&self) -> Option<u64> {
        let headers_bytes = entry_header_position(self.entry_count) as u64;
        copy_position(headers_bytes, u64::from(self.payload_bytes))
    }
}

/// Where the second copy of a batch's headers starts: they end with its last block, if that has room for them.
pub(crate) fn copy_position(headers_bytes: u64, payload_bytes: u64) -> Option<u64> {
    let end = headers_bytes + payload_bytes;
    let position = end.next_multiple_of(BLOCK_BYTES) - headers_bytes;
    (end <= position).then_some(position)
}

/// Bytes that a batch takes in its segment.
pub(crate) fn batch_bytes(entry_count: u64, payload_bytes: u64) -> u64 {
    let headers = BATCH_HEADER_BYTES as u64 + entry_count * ENTRY_HEADER_BYTES as u64;
    (headers + payload_bytes).next_multiple_of(BLOCK_BYTES)
}

/// The place of an entry header: part of its checksum, so that it is valid nowhere else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPlace {
    pub(crate) store: u64,
    pub(crate) segment: u64,
    pub(crate) seq: u64,
}

impl BatchPlace {
    fn seed(self, number: u32) -> [u8; 28] {
        let mut seed = [0; 28];
        put(&mut seed, 0, &self.store.to_le_bytes());
        put(&mut seed, 8, &self.segment.to_le_bytes());
        put(&mut seed, 16, &self.seq.to_le_bytes());
        put(&mut seed, 24, &number.to_le_bytes());
        seed
    }
}

/// The 64 bytes that describe one entry of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) subject: u64,
    pub(crate) at: u64,
    /// First byte of the command, from the start of the batch; the data follows.
    pub(crate) position: u32,
    pub(crate) command_bytes: u32,
    pub(crate) data_bytes: u32,
    pub(crate) command_crc: u32,
    pub(crate) data_crc: u32,
    pub(crate) group: u16,
    pub(crate) kind: u8,
}

impl EntryHeader {
    /// Writes all but the position and the checksum, which [`seal_entry_header`] adds.
    pub(crate) fn encode(&self) -> [u8; ENTRY_HEADER_BYTES] {
        let mut out = [0; ENTRY_HEADER_BYTES];
        put(&mut out, 0, &self.index.to_le_bytes());
        put(&mut out, 8, &self.term.to_le_bytes());
        put(&mut out, 16, &self.subject.to_le_bytes());
        put(&mut out, 24, &self.at.to_le_bytes());
        put(&mut out, 32, &self.position.to_le_bytes());
        put(&mut out, 36, &self.command_bytes.to_le_bytes());
        put(&mut out, 40, &self.data_bytes.to_le_bytes());
        put(&mut out, 44, &self.command_crc.to_le_bytes());
        put(&mut out, 48, &self.data_crc.to_le_bytes());
        put(&mut out, 52, &self.group.to_le_bytes());
        put(&mut out, 54, &[self.kind]);
        out
    }

    /// The fields, whatever the checksum says.
    pub(crate) fn decode(bytes: &[u8; ENTRY_HEADER_BYTES]) -> Self {
        Self {
            index: u64_at(bytes, 0),
            term: u64_at(bytes, 8),
            subject: u64_at(bytes, 16),
            at: u64_at(bytes, 24),
            position: u32_at(bytes, 32),
            command_bytes: u32_at(bytes, 36),
            data_bytes: u32_at(bytes, 40),
            command_crc: u32_at(bytes, 44),
            data_crc: u32_at(bytes, 48),
            group: u16_at(bytes, 52),
            kind: bytes[54],
        }
    }

    /// The header if it is the one written as `number` of the batch at `place`.
    pub(crate) fn decode_sealed(
        bytes: &[u8],
        place: BatchPlace,
        number: u32,
    ) -> Option<Unsealed<Self>> {
        unseal(&bytes[..ENTRY_HEADER_BYTES], &place.seed(number), |bytes| {
            let header = Self::decode(bytes.first_chunk()?);
            let is_in_bounds = header.command_bytes as usize <= ENTRY_COMMAND_BYTES_MAX
                && header.data_bytes as usize <= ENTRY_DATA_BYTES_MAX
                && header.position as usize >= entry_header_position(number + 1)
                && header.index <= NUMBER_MAX;
            is_in_bounds.then_some(header)
        })
    }

    /// First byte of the data, from the start of the batch.
    pub(crate) fn data_position(&self) -> u64 {
        u64::from(self.position) + u64::from(self.command_bytes)
    }

    /// Byte after the data, from the start of the batch.
    pub(crate) fn end(&self) -> u64 {
        self.data_position() + u64::from(self.data_bytes)
    }

    /// The entry with its command and data, of a batch that was written at `batch`.
    pub(crate) fn entry<B>(&self, (command, data): (B, B), batch: WritePlace) -> Entry<B> {
        let position = batch.position + self.data_position();
        Entry {
            group: GroupId::new(self.group),
            index: EntryIndex::new(self.index),
            term: Term::new(self.term),
            subject: EntrySubject::new(self.subject),
            at: Timestamp::new(self.at),
            kind: self.kind,
            command,
            data,
            place: DataPlace {
                slot: batch.slot,
                position: u32::try_from(position).expect("positions in a segment are 32 bits"),
                crc: self.data_crc,
            },
        }
    }

    /// The command and the data in a whole batch's bytes, if the command is what was written.
    pub(crate) fn payload<'a>(&self, batch: &'a [u8]) -> Option<Payload<'a>> {
        let end = usize::try_from(self.end()).ok()?;
        let data_position = usize::try_from(self.data_position()).ok()?;
        let command = batch.get(self.position as usize..data_position)?;
        let data = batch.get(data_position..end)?;
        let is_data_intact = crc32c::crc32c(data) == self.data_crc;
        let is_command_intact = crc32c::crc32c(command) == self.command_crc;
        is_command_intact.then_some(Payload { command, data, is_data_intact })
    }
}

/// What an entry carries: the command as it was written, and the data as it is on disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) command: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) is_data_intact: bool,
}

/// Adds the position, known only when the batch is closed, and the checksum.
pub(crate) fn seal_entry_header(
    bytes: &mut [u8; ENTRY_HEADER_BYTES],
    place: BatchPlace,
    number: u32,
    position: u32,
) {
    put(bytes, 32, &position.to_le_bytes());
    seal_header(bytes, &place.seed(number));
}

/// First byte of the entry header `number`, from the start of the batch.
pub(crate) fn entry_header_position(number: u32) -> usize {
    BATCH_HEADER_BYTES + number as usize * ENTRY_HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_header() -> BatchHeader {
        BatchHeader {
            lane: 3,
            segment: 5,
            seq: 9,
            durable: 8,
            epoch: 2,
            payload_bytes: 100,
            entry_count: 1,
        }
    }

    fn entry_header() -> EntryHeader {
        EntryHeader {
            index: 7,
            term: 1,
            subject: 4,
            at: 1_700_000_000_000,
            position: 128,
            command_bytes: 1,
            data_bytes: 2,
            command_crc: crc32c::crc32c(b"c"),
            data_crc: crc32c::crc32c(b"dd"),
            group: 6,
            kind: 2,
        }
    }

    fn unsealed<T>(value: T, is_repaired: bool) -> Unsealed<T> {
        Unsealed { value, is_repaired }
    }

    const PLACE: BatchPlace = BatchPlace { store: 77, segment: 5, seq: 9 };

    fn sealed() -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = entry_header().encode();
        seal_entry_header(&mut bytes, PLACE, 0, 128);
        bytes
    }

    #[test]
    fn the_bytes_of_a_batch_never_change() {
        let mut bytes = batch_header().encode(77).to_vec();
        bytes.extend(sealed());
        bytes.extend(b"cdd");
        assert_eq!(bytes, include_bytes!("../../testdata/batch.golden"));
    }

    #[test]
    fn headers_are_valid_only_where_they_were_written() {
        let bytes = batch_header().encode(77);
        assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), Some(unsealed(batch_header(), false)));
        assert_eq!(BatchHeader::decode(&bytes, 78, 3, 5), None);
        assert_eq!(BatchHeader::decode(&bytes, 77, 2, 5), None);
        assert_eq!(BatchHeader::decode(&bytes, 77, 3, 6), None);

        let entry = EntryHeader::decode_sealed(&sealed(), PLACE, 0);
        assert_eq!(entry, Some(unsealed(entry_header(), false)));
        assert_eq!(EntryHeader::decode_sealed(&sealed(), PLACE, 1), None);
        let later = BatchPlace { seq: 10, ..PLACE };
        assert_eq!(EntryHeader::decode_sealed(&sealed(), later, 0), None);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_put_right() {
        for bit in 0..BATCH_HEADER_BYTES * 8 {
            let mut bytes = batch_header().encode(77);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let batch = BatchHeader::decode(&bytes, 77, 3, 5);
            assert_eq!(batch, Some(unsealed(batch_header(), true)), "bit {bit}");
            // Stale ones stay stale.
            assert_eq!(BatchHeader::decode(&bytes, 77, 3, 4), None, "bit {bit}");
            let mut bytes = sealed();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let entry = EntryHeader::decode_sealed(&bytes, PLACE, 0);
            assert_eq!(entry, Some(unsealed(entry_header(), true)), "bit {bit}");
        }
    }

    #[test]
    fn an_intact_batch_header_of_another_kind_or_version_is_refused() {
        for (at, value) in [(0, b'x'), (4, 2)] {
            let mut bytes = batch_header().encode(77);
            bytes[at] = value;
            seal_header(&mut bytes, &77_u64.to_le_bytes());
            assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), None, "changed at {at}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_counted_on_from_are_refused() {
        for (seq, epoch) in [(u64::MAX, 1), (9, u64::MAX)] {
            let bytes = BatchHeader { seq, epoch, ..batch_header() }.encode(77);
            assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), None);
        }
        let mut bytes = EntryHeader { index: u64::MAX, ..entry_header() }.encode();
        seal_entry_header(&mut bytes, PLACE, 0, 128);
        assert_eq!(EntryHeader::decode_sealed(&bytes, PLACE, 0), None);
        assert_eq!(crate::wal::segment::parse_segment_name("ffffffffffffffff.wal"), None);
    }

    #[test]
    fn a_batch_takes_whole_blocks() {
        assert_eq!(batch_bytes(0, 0), 4096);
        assert_eq!(batch_bytes(1, 4096 - 128), 4096);
        assert_eq!(batch_bytes(1, 4096 - 127), 8192);
    }
}
