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
//! - `durable < seq`: a batch claims only batches before itself. Within an opening it is the very one before; the first
//!   batch of an opening leaves out a number.
//! - The headers of a batch that fits into one block, or that has no room for their copy, are named by the list in the
//!   batch behind it.

mod list;

pub(crate) use list::{BatchList, begin_list, push_listed, seal_list};

use crate::codec::{NUMBER_MAX, Unsealed, header_is_sealed, put, u16_at, u32_at, u64_at, unseal};
use crate::entry::{DataPlace, Entry, Note};
use crate::newer::{NewerVersion, is_spare, newer_in};
use crate::options::{BLOCK_BYTES, ENTRY_COMMAND_BYTES_MAX, ENTRY_DATA_BYTES_MAX};
use model::{EntryIndex, EntrySubject, GroupId, Term, Timestamp};
use std::ops::Range;

pub(crate) const BATCH_HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_HEADER_BYTES: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"ThBa");
const VERSION: u16 = 1;
/// Bytes of a batch header that are zero.
const BATCH_SPARE: Range<usize> = 56..60;
/// Bytes of an entry header that are zero.
const ENTRY_SPARE: Range<usize> = 58..60;
/// Where an entry header says how many snapshots were installed.
const INSTALLS_AT: usize = 56;
/// What an entry header is if it is no entry of the owner: a note of a replicated group.
const RECORD_NOTE: u8 = 1;

/// Where a batch is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WritePlace {
    pub(crate) slot: u16,
    pub(crate) position: u64,
}

/// The first 64 bytes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) wal: u16,
    pub(crate) segment: u64,
    /// Rises from batch to batch of a WAL; numbers may be left out.
    pub(crate) seq: u64,
    /// The batch before this one that is durable. Those in between were never acknowledged.
    pub(crate) durable: u64,
    /// Which opening of the store wrote it: a group's entries of one epoch are in one WAL.
    pub(crate) epoch: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) entry_count: u32,
    /// Bytes of the list of the batch before; 0 if it has none.
    pub(crate) list_bytes: u32,
    /// How many of its entries, the last ones, are notes. Found by a list alone it is the number of all: any may be one.
    pub(crate) note_count: u32,
}

impl BatchHeader {
    #[inline(always)]
    pub(crate) fn encode(&self, seeds: &Seeds) -> [u8; BATCH_HEADER_BYTES] {
        assert!(self.durable < self.seq, "a batch claims only batches before itself");
        let mut aligned = Aligned([0; BATCH_HEADER_BYTES]);
        let out = &mut aligned.0;
        put(out, 0, &MAGIC.to_le_bytes());
        put(out, 4, &VERSION.to_le_bytes());
        put(out, 6, &self.wal.to_le_bytes());
        put(out, 8, &self.segment.to_le_bytes());
        put(out, 16, &self.seq.to_le_bytes());
        put(out, 24, &self.durable.to_le_bytes());
        put(out, 32, &self.epoch.to_le_bytes());
        put(out, 40, &self.payload_bytes.to_le_bytes());
        put(out, 44, &self.entry_count.to_le_bytes());
        put(out, 48, &self.list_bytes.to_le_bytes());
        put(out, 52, &self.note_count.to_le_bytes());
        let crc = crc32c::crc32c_append(seeds.store, &out[..60]);
        put(out, 60, &crc.to_le_bytes());
        aligned.0
    }

    /// The header in `bytes` if it was written for this very place.
    ///
    /// A stale header is no damaged one: its checksum is right, and repair gives back what a damaged
    /// stale one was. Neither carries this segment's number.
    pub(crate) fn decode(
        bytes: &[u8],
        store: u64,
        wal: u16,
        segment: u64,
    ) -> Option<Unsealed<Self>> {
        // Most blocks are not headers: the magic spares them the checksum.
        let magic_flips = (u32_at(bytes, 0) ^ MAGIC).count_ones();
        if magic_flips > 1 {
            return None;
        }
        unseal(&bytes[..BATCH_HEADER_BYTES], &store.to_le_bytes(), |bytes| {
            Self::decode_fields(bytes, wal, segment)
        })
    }

    /// What a newer version wrote into the header of a batch of this segment, if `bytes` begin with one.
    pub(crate) fn newer_in(bytes: &[u8], store: u64, segment: u64) -> Option<NewerVersion> {
        if u32_at(bytes, 0) != MAGIC || u64_at(bytes, 8) != segment {
            return None;
        }
        let known = (Some(VERSION), BATCH_SPARE);
        newer_in(&bytes[..BATCH_HEADER_BYTES], &store.to_le_bytes(), known)
    }

    fn decode_fields(bytes: &[u8], wal: u16, segment: u64) -> Option<Self> {
        let header = Self {
            wal: u16_at(bytes, 6),
            segment: u64_at(bytes, 8),
            seq: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            payload_bytes: u32_at(bytes, 40),
            entry_count: u32_at(bytes, 44),
            list_bytes: u32_at(bytes, 48),
            note_count: u32_at(bytes, 52),
        };
        let is_ours = u32_at(bytes, 0) == MAGIC && u16_at(bytes, 4) == VERSION;
        let is_here = header.wal == wal && header.segment == segment;
        let is_known = is_spare(bytes, BATCH_SPARE);
        let is_possible = header.durable < header.seq
            && header.seq.max(header.epoch) <= NUMBER_MAX
            && header.note_count <= header.entry_count;
        (is_ours && is_here && is_known && is_possible).then_some(header)
    }

    /// Whether it is the first batch that its opening wrote into this WAL: what it names as durable is older, then.
    pub(crate) fn begins_opening(&self) -> bool {
        self.durable + 1 < self.seq
    }

    /// Bytes from the start of the batch to the start of the next one.
    pub(crate) fn length(&self) -> u64 {
        batch_bytes(u64::from(self.entry_count), self.behind_headers())
    }

    /// Bytes of payload and list.
    fn behind_headers(&self) -> u64 {
        u64::from(self.payload_bytes) + u64::from(self.list_bytes)
    }

    /// Where the list of the batch before starts, from the start of the batch.
    pub(crate) fn list_position(&self) -> u64 {
        entry_header_position(self.entry_count) as u64 + u64::from(self.payload_bytes)
    }

    /// Whether the next batch has to list it: one block may hold all its headers, and their copy if there is one.
    pub(crate) fn needs_list(&self) -> bool {
        self.copy_position().is_none_or(|position| position < BLOCK_BYTES)
    }

    /// Where the second copy of its headers starts, if there was room for one.
    pub(crate) fn copy_position(&self) -> Option<u64> {
        let headers_bytes = entry_header_position(self.entry_count) as u64;
        copy_position(headers_bytes, self.behind_headers())
    }
}

/// Where the second copy of a batch's headers starts: they end with its last block, if that has room for them.
pub(crate) fn copy_position(headers_bytes: u64, behind_headers: u64) -> Option<u64> {
    let end = headers_bytes + behind_headers;
    let position = end.next_multiple_of(BLOCK_BYTES) - headers_bytes;
    (end <= position).then_some(position)
}

/// Bytes that a batch takes in its segment.
pub(crate) fn batch_bytes(entry_count: u64, behind_headers: u64) -> u64 {
    let headers = BATCH_HEADER_BYTES as u64 + entry_count * ENTRY_HEADER_BYTES as u64;
    (headers + behind_headers).next_multiple_of(BLOCK_BYTES)
}

/// Checksums of what all headers and lists of a WAL begin their seeds with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds {
    store: u32,
    list: u32,
}

impl Seeds {
    pub(crate) fn new(store: u64, wal: u16) -> Self {
        let store = crc32c::crc32c(&store.to_le_bytes());
        Self { store, list: crc32c::crc32c_append(store, &u64::from(wal).to_le_bytes()) }
    }
}

/// Bytes at a multiple of eight: a checksum of short ones that are not costs several times more.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// 0 for an entry; [`EntryHeader::note`] makes the others.
    pub(crate) record: u8,
    /// How many snapshots were installed in its group before it was written.
    pub(crate) installs: u16,
}

impl EntryHeader {
    /// The record of a note, when the group's last entry is `last`.
    pub(crate) fn note(group: GroupId, note: &Note, last: u64) -> Self {
        Self {
            index: note.commit.get(),
            term: note.term.get(),
            subject: note.vote,
            at: last,
            group: group.get(),
            record: RECORD_NOTE,
            ..Self::default()
        }
    }

    /// Whether this is a note and no entry.
    pub(crate) fn is_note(&self) -> bool {
        self.record == RECORD_NOTE
    }

    /// What a note says, and the last entry of its group when it was written.
    pub(crate) fn as_note(&self) -> Option<(Note, u64)> {
        let (term, commit) = (Term::new(self.term), EntryIndex::new(self.index));
        self.is_note().then_some((Note { term, vote: self.subject, commit }, self.at))
    }

    /// Writes all but the position and the checksum, which [`seal_entry_header`] adds.
    #[inline(always)]
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
        put(&mut out, 55, &[self.record]);
        put(&mut out, INSTALLS_AT, &self.installs.to_le_bytes());
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
            record: bytes[55],
            installs: u16_at(bytes, INSTALLS_AT),
        }
    }

    /// What a newer version wrote into entry header `number` of a batch, if `bytes` are one.
    pub(crate) fn newer_in(bytes: &[u8], place: BatchPlace, number: u32) -> Option<NewerVersion> {
        let (bytes, seed) = (bytes.first_chunk::<ENTRY_HEADER_BYTES>()?, place.seed(number));
        let header = Self::decode(bytes);
        if !header.is_known() && header_is_sealed(bytes, &seed) {
            return Some(NewerVersion::new(format_args!("a record {}", header.record)));
        }
        newer_in(bytes, &seed, (None, ENTRY_SPARE))
    }

    /// Whether this version knows what it is: a note has nothing behind its header.
    fn is_known(&self) -> bool {
        let is_bare = self.command_bytes == 0 && self.data_bytes == 0;
        self.record == 0 || (self.is_note() && is_bare)
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
                && header.index <= NUMBER_MAX
                && (!header.is_note() || header.at <= NUMBER_MAX)
                && header.is_known()
                && is_spare(bytes, ENTRY_SPARE);
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
    (seeds, batch): (&Seeds, &BatchHeader),
    number: u32,
    position: u32,
) {
    put(bytes, 32, &position.to_le_bytes());
    // The rest of the seed and the header in one piece.
    let mut covered = Aligned([0; 80]);
    put(&mut covered.0, 0, &batch.segment.to_le_bytes());
    put(&mut covered.0, 8, &batch.seq.to_le_bytes());
    put(&mut covered.0, 16, &number.to_le_bytes());
    put(&mut covered.0, 20, &bytes[..60]);
    put(bytes, 60, &crc32c::crc32c_append(seeds.store, &covered.0).to_le_bytes());
}

/// Says in an entry header that is not sealed how many snapshots were installed before.
pub(crate) fn set_installs(bytes: &mut [u8], installs: u16) {
    put(bytes, INSTALLS_AT, &installs.to_le_bytes());
}

/// First byte of the entry header `number`, from the start of the batch.
pub(crate) fn entry_header_position(number: u32) -> usize {
    BATCH_HEADER_BYTES + number as usize * ENTRY_HEADER_BYTES
}

#[cfg(test)]
mod tests;
