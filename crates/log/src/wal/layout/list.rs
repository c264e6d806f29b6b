//! What a batch says of the one before it: the list of its entries, which may be all that is left of their headers.

use super::{BatchHeader, EntryHeader, Seeds};
use crate::codec::{NUMBER_MAX, put, put_varint, take_varint, u32_at, u64_at};
use crate::options::BLOCK_BYTES;

/// Bytes of a list in front of its entries.
const LIST_FRONT_BYTES: usize = 48;

/// Begins the list of a batch at `position`.
pub(crate) fn begin_list(list: &mut Vec<u8>, header: &BatchHeader, position: u64) {
    let mut front = [0; LIST_FRONT_BYTES];
    put(&mut front, 0, &header.seq.to_le_bytes());
    put(&mut front, 8, &header.durable.to_le_bytes());
    put(&mut front, 16, &header.epoch.to_le_bytes());
    put(&mut front, 24, &header.segment.to_le_bytes());
    put(&mut front, 32, &u32::try_from(position).expect("positions have 32 bits").to_le_bytes());
    put(&mut front, 36, &header.payload_bytes.to_le_bytes());
    put(&mut front, 40, &header.list_bytes.to_le_bytes());
    put(&mut front, 44, &header.entry_count.to_le_bytes());
    list.clear();
    list.extend_from_slice(&front);
}

/// Adds an entry to a list; index 0 is one of which nothing is known, or a note.
#[inline(always)]
pub(crate) fn push_listed(list: &mut Vec<u8>, entry: &EntryHeader) {
    list.extend_from_slice(&entry.subject.to_le_bytes());
    put_varint(list, if entry.is_note() { 0 } else { entry.index });
    put_varint(list, u64::from(entry.group));
    list.push(entry.kind);
    put_varint(list, u64::from(entry.data_bytes));
}

/// Ends a list with its checksum.
pub(crate) fn seal_list(list: &mut Vec<u8>, seeds: &Seeds) {
    let crc = crc32c::crc32c_append(seeds.list, list);
    list.extend_from_slice(&crc.to_le_bytes());
}

/// A batch and its entries, as the batch behind it lists them.
#[derive(Debug)]
pub(crate) struct BatchList {
    pub(crate) header: BatchHeader,
    pub(crate) position: u64,
    entries: Vec<EntryHeader>,
}

impl BatchList {
    /// The list in `bytes` if it was written into a batch of this WAL.
    pub(crate) fn decode(bytes: &[u8], store: u64, wal: u16) -> Option<Self> {
        let (list, crc) = bytes.split_last_chunk()?;
        let (front, mut rest) = list.split_at_checked(LIST_FRONT_BYTES)?;
        let header = BatchHeader {
            wal,
            seq: u64_at(front, 0),
            durable: u64_at(front, 8),
            epoch: u64_at(front, 16),
            segment: u64_at(front, 24),
            payload_bytes: u32_at(front, 36),
            list_bytes: u32_at(front, 40),
            entry_count: u32_at(front, 44),
            note_count: u32_at(front, 44),
        };
        let position = u64::from(u32_at(front, 32));
        let found = crc32c::crc32c_append(Seeds::new(store, wal).list, list);
        let is_possible = u32::from_le_bytes(*crc) == found
            && position.is_multiple_of(BLOCK_BYTES)
            && header.durable < header.seq
            && header.seq.max(header.epoch) <= NUMBER_MAX;
        if !is_possible {
            return None;
        }
        let entries = (0..header.entry_count).map(|_| take_listed(&mut rest));
        let entries = entries.collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Self { header, position, entries })
    }

    /// What is known of an entry without its header.
    pub(crate) fn entry(&self, number: u32) -> Option<&EntryHeader> {
        self.entries.get(number as usize).filter(|entry| entry.index > 0)
    }
}

fn take_listed(rest: &mut &[u8]) -> Option<EntryHeader> {
    let (subject, behind) = rest.split_first_chunk()?;
    *rest = behind;
    let (index, group) = (take_varint(rest)?, take_varint(rest)?);
    let (&kind, behind) = rest.split_first()?;
    *rest = behind;
    let entry = EntryHeader {
        index,
        subject: u64::from_le_bytes(*subject),
        data_bytes: u32::try_from(take_varint(rest)?).ok()?,
        group: u16::try_from(group).ok()?,
        kind,
        ..EntryHeader::default()
    };
    (index <= NUMBER_MAX).then_some(entry)
}
