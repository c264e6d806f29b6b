//! Places in a WAL by the names of its fields: docs/format/wal.md.

/// Batches start at multiples of it; a small one takes one.
pub const BLOCK_BYTES: u64 = 4096;
/// A header of a batch, or of an entry.
pub const HEADER_BYTES: u64 = 64;

/// Fields of a batch header, from the start of its batch.
pub const MAGIC: u64 = 0;
pub const SEGMENT: u64 = 8;
pub const BATCH_NUMBER: u64 = 16;
pub const DURABLE: u64 = 24;
pub const PAYLOAD_BYTES: u64 = 40;
pub const ENTRY_COUNT: u64 = 44;
pub const CHECKSUM: u64 = 60;

/// Fields of an entry header, from its start.
pub const TERM: u64 = 8;

/// Where the batch starts that has so many of one block each before it.
pub const fn batch(number: u64) -> u64 {
    number * BLOCK_BYTES
}

/// The header of an entry, from the start of its batch.
pub const fn entry_header(number: u64) -> u64 {
    HEADER_BYTES + number * HEADER_BYTES
}

/// The commands and data of a batch with so many entries, from its start.
pub const fn payload(entry_count: u64) -> u64 {
    entry_header(entry_count)
}
