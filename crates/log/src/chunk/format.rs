//! The bytes of a chunk's header and rows. The table is in `docs/format/chunk.md`.

use crate::codec::{NUMBER_MAX, Unsealed, put, seal_header, u16_at, u32_at, u64_at, unseal};
use crate::options::CHUNK_BLOCK_BYTES;

pub(crate) const CHUNK_HEADER_BYTES: usize = 128;
pub(crate) const CHUNK_ROW_BYTES: usize = 64;

/// Three varints of an append, and its part of a point and of a block checksum.
const APPEND_BYTES_MAX: u64 = 32;

/// A run's row, the start of its append table, and a point.
const RUN_BYTES_MAX: u64 = 128;

/// The length of a chunk with so many runs and appends and so much data, at most.
pub(crate) fn chunk_bytes_max(runs: u64, appends: u64, data_bytes: u64) -> u64 {
    let ends = CONTENT_START + CHUNK_HEADER_BYTES as u64;
    let checksums = 4 * (1 + data_bytes / CHUNK_BLOCK_BYTES);
    ends + runs * RUN_BYTES_MAX + appends * APPEND_BYTES_MAX + data_bytes + checksums
}
/// Where run data starts: behind the header, aligned to a page.
pub(crate) const CONTENT_START: u64 = 4096;
const MAGIC: u32 = u32::from_le_bytes(*b"ThCh");
const VERSION: u16 = 1;

/// Header and footer of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) group: u16,
    /// Number of the chunk in its group; a higher one was made later.
    pub(crate) seq: u64,
    /// The chunk holds the data of entries `from < index <= to`.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Where runs and append tables end and rows begin.
    pub(crate) content_end: u64,
    pub(crate) row_count: u32,
    /// Checksum of the block checksums, which follow the rows.
    pub(crate) blocks_crc: u32,
}

impl ChunkHeader {
    pub(crate) fn encode(&self, store: u64) -> [u8; CHUNK_HEADER_BYTES] {
        let mut out = [0; CHUNK_HEADER_BYTES];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &VERSION.to_le_bytes());
        put(&mut out, 6, &self.group.to_le_bytes());
        put(&mut out, 8, &self.seq.to_le_bytes());
        put(&mut out, 16, &self.from.to_le_bytes());
        put(&mut out, 24, &self.to.to_le_bytes());
        put(&mut out, 32, &self.content_end.to_le_bytes());
        put(&mut out, 40, &self.row_count.to_le_bytes());
        put(&mut out, 44, &self.blocks_crc.to_le_bytes());
        seal_header(&mut out, &store.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8], store: u64) -> Option<Unsealed<Self>> {
        let bytes = bytes.get(..CHUNK_HEADER_BYTES)?;
        unseal(bytes, &store.to_le_bytes(), Self::decode_fields)
    }

    fn decode_fields(bytes: &[u8]) -> Option<Self> {
        let is_ours = u32_at(bytes, 0) == MAGIC && u16_at(bytes, 4) == VERSION;
        let is_possible = u64_at(bytes, 16).max(u64_at(bytes, 24)) <= NUMBER_MAX;
        (is_ours && is_possible).then(|| Self {
            group: u16_at(bytes, 6),
            seq: u64_at(bytes, 8),
            from: u64_at(bytes, 16),
            to: u64_at(bytes, 24),
            content_end: u64_at(bytes, 32),
            row_count: u32_at(bytes, 40),
            blocks_crc: u32_at(bytes, 44),
        })
    }

    /// Number of checksummed blocks of content; the last one may be short.
    pub(crate) fn block_count(&self) -> u64 {
        (self.content_end - CONTENT_START).div_ceil(CHUNK_BLOCK_BYTES)
    }

    /// The start of the block checksums.
    pub(crate) fn blocks_position(&self) -> u64 {
        self.content_end + u64::from(self.row_count) * CHUNK_ROW_BYTES as u64
    }

    /// The start of the footer.
    pub(crate) fn footer_position(&self) -> u64 {
        self.blocks_position() + self.block_count() * 4
    }
}

/// One run: consecutive bytes of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRow {
    pub(crate) stream: u64,
    /// Stream offset of the first byte.
    pub(crate) start: u64,
    pub(crate) length: u32,
    /// Position of the first byte in the file.
    pub(crate) position: u32,
    pub(crate) table_position: u32,
    pub(crate) table_length: u32,
}

const _: () = assert!(size_of::<ChunkRow>() == 32);

/// Checksums of a run, by which it is judged alone when the block around it is damaged. They stay in
/// the file: a row in memory has no room for what is hardly ever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RunCrcs {
    /// Of the run's bytes.
    pub(crate) data: u32,
    /// Of its append table.
    pub(crate) table: u32,
}

impl ChunkRow {
    /// Stream offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }

    pub(crate) fn encode(&self, crcs: RunCrcs, seed: RowSeed) -> [u8; CHUNK_ROW_BYTES] {
        let mut out = [0; CHUNK_ROW_BYTES];
        put(&mut out, 0, &self.stream.to_le_bytes());
        put(&mut out, 8, &self.start.to_le_bytes());
        put(&mut out, 16, &u64::from(self.length).to_le_bytes());
        put(&mut out, 24, &u64::from(self.position).to_le_bytes());
        put(&mut out, 32, &u64::from(self.table_position).to_le_bytes());
        put(&mut out, 40, &u64::from(self.table_length).to_le_bytes());
        put(&mut out, 48, &crcs.data.to_le_bytes());
        put(&mut out, 52, &crcs.table.to_le_bytes());
        seal_header(&mut out, &seed.bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8], seed: RowSeed) -> Option<Unsealed<(Self, RunCrcs)>> {
        unseal(bytes, &seed.bytes(), Self::decode_fields)
    }

    fn decode_fields(bytes: &[u8]) -> Option<(Self, RunCrcs)> {
        let small = |position| u32::try_from(u64_at(bytes, position)).ok();
        let row = Self {
            stream: u64_at(bytes, 0),
            start: u64_at(bytes, 8),
            length: small(16)?,
            position: small(24)?,
            table_position: small(32)?,
            table_length: small(40)?,
        };
        Some((row, RunCrcs { data: u32_at(bytes, 48), table: u32_at(bytes, 52) }))
    }
}

/// The place of a row: part of its checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSeed {
    pub(crate) store: u64,
    pub(crate) file: u64,
    pub(crate) number: u32,
}

impl RowSeed {
    pub(crate) fn bytes(self) -> [u8; 20] {
        let mut seed = [0; 20];
        put(&mut seed, 0, &self.store.to_le_bytes());
        put(&mut seed, 8, &self.file.to_le_bytes());
        put(&mut seed, 16, &self.number.to_le_bytes());
        seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: ChunkHeader = ChunkHeader {
        group: 3,
        seq: 9,
        from: 10,
        to: 20,
        content_end: 5000,
        row_count: 1,
        blocks_crc: 7,
    };

    #[test]
    fn an_intact_header_of_another_version_or_kind_is_not_ours() {
        for (at, value) in [(0, b'x'), (4, 2)] {
            let mut bytes = HEADER.encode(77);
            bytes[at] = value;
            seal_header(&mut bytes, &77_u64.to_le_bytes());
            assert_eq!(ChunkHeader::decode(&bytes, 77), None, "changed at {at}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_or_row_is_put_right() {
        let seed = RowSeed { store: 77, file: 9, number: 0 };
        let row = ChunkRow {
            stream: 5,
            start: 100,
            length: 10,
            position: 4096,
            table_position: 4106,
            table_length: 40,
        };
        let intact = ChunkHeader::decode(&HEADER.encode(77), 77).unwrap();
        assert_eq!((intact.value, intact.is_repaired), (HEADER, false));
        assert_eq!(ChunkHeader::decode(&HEADER.encode(77), 78), None);
        let crcs = RunCrcs { data: 0x1234_5678, table: 0x9abc_def0 };
        let intact = ChunkRow::decode(&row.encode(crcs, seed), seed).unwrap();
        assert_eq!((intact.value, intact.is_repaired), ((row, crcs), false));
        for bit in 0..CHUNK_HEADER_BYTES * 8 {
            let mut bytes = HEADER.encode(77);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let repaired = ChunkHeader::decode(&bytes, 77).unwrap();
            assert_eq!((repaired.value, repaired.is_repaired), (HEADER, true), "bit {bit}");
        }
        for bit in 0..CHUNK_ROW_BYTES * 8 {
            let mut bytes = row.encode(crcs, seed);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let repaired = ChunkRow::decode(&bytes, seed).unwrap();
            assert_eq!((repaired.value, repaired.is_repaired), ((row, crcs), true), "bit {bit}");
        }
    }
}
