//! A commit on its way through the disk, and what came back durable.

use crate::options::BLOCK_BYTES;
use crate::wal::batch::{ENTRY_HEADER_BYTES, EntryHeader, copy_position, entry_header_position};
use crate::wal::group_commit::Durable;
use crate::wal::open_batch::ClosedBatch;
use bytes::Bytes;
use env::File;
use model::{EntryIndex, GroupId, StreamId, Term, Timestamp};
use std::fmt;
use std::io;
use std::sync::Arc;

static PADDING: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// Where a batch is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPlace {
    pub(crate) slot: u16,
    pub(crate) position: u64,
}

/// One write and one sync. Run it on any thread and hand the result to `handle_synced`.
#[must_use = "a commit that is not run stalls its shard"]
pub struct SyncJob {
    pub(crate) file: Arc<dyn File>,
    pub(crate) place: BatchPlace,
    pub(crate) batch: ClosedBatch,
}

impl SyncJob {
    /// Writes and syncs the batch. Blocks.
    pub fn run(self) -> SyncDone {
        let ClosedBatch { headers, payload } = &self.batch;
        let length = headers.len() + payload.len();
        // Whole blocks: the page cache need not read a block before it is changed in part.
        let room = length.next_multiple_of(PADDING.len()) - length;
        let has_copy = copy_position(headers.len() as u64, payload.len() as u64).is_some();
        let copy = if has_copy { &headers[..] } else { &[] };
        let padding = &PADDING[..room - copy.len()];
        let pieces: [&[u8]; 4] = [headers, payload, padding, copy];
        let written = self.file.write_pieces_at(&pieces, self.place.position);
        let result = written.and_then(|()| self.file.sync_data());
        SyncDone { result, place: self.place, batch: self.batch }
    }
}

impl fmt::Debug for SyncJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncJob").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Result of a [`SyncJob`].
pub struct SyncDone {
    pub(crate) result: io::Result<()>,
    pub(crate) place: BatchPlace,
    pub(crate) batch: ClosedBatch,
}

impl fmt::Debug for SyncDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncDone").field("result", &self.result).finish_non_exhaustive()
    }
}

/// Entries that one sync made durable, with the proof.
#[derive(Debug)]
pub struct DurableBatch {
    pub(crate) durable: Durable,
    pub(crate) place: BatchPlace,
    pub(crate) headers: Bytes,
    pub(crate) payload: Bytes,
}

impl DurableBatch {
    /// The proof that the entries are on stable storage.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Number of entries; 0 for a durable mark.
    #[must_use]
    pub fn len(&self) -> usize {
        self.headers.len() / ENTRY_HEADER_BYTES - 1
    }

    /// Whether the batch is a durable mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the batch takes on disk, padding included.
    pub(crate) fn disk_bytes(&self) -> u64 {
        ((self.headers.len() + self.payload.len()) as u64).next_multiple_of(BLOCK_BYTES)
    }

    /// The entries in the order of their appends. Commands and data share the batch's memory.
    pub fn entries(&self) -> impl Iterator<Item = DurableEntry> + '_ {
        let count = u32::try_from(self.len()).expect("batches are below 4 GiB");
        (0..count).map(|number| self.entry(number))
    }

    fn entry(&self, number: u32) -> DurableEntry {
        let header = EntryHeader::decode(&self.headers[entry_header_position(number)..]);
        let in_payload = |position: u64| {
            usize::try_from(position).expect("batches are below 4 GiB") - self.headers.len()
        };
        let command = in_payload(u64::from(header.position));
        let data = in_payload(header.data_position());
        DurableEntry {
            group: GroupId::new(header.group),
            index: EntryIndex::new(header.index),
            term: Term::new(header.term),
            stream: StreamId::new(header.stream),
            at: Timestamp::new(header.at),
            kind: header.kind,
            command: self.payload.slice(command..data),
            data: self.payload.slice(data..in_payload(header.end())),
            place: DataPlace {
                slot: self.place.slot,
                position: u32::try_from(self.place.position + header.data_position())
                    .expect("positions in a segment are 32 bits"),
                crc: header.data_crc,
            },
        }
    }
}

/// The place of an entry's data in the WAL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataPlace {
    pub(crate) slot: u16,
    pub(crate) position: u32,
    pub(crate) crc: u32,
}

/// A durable entry.
#[derive(Debug, Clone)]
pub struct DurableEntry {
    /// The group that it belongs to.
    pub group: GroupId,
    /// Its position in the group's log.
    pub index: EntryIndex,
    /// Raft term under which it was written.
    pub term: Term,
    /// The stream that the command is about.
    pub stream: StreamId,
    /// Wall-clock time for `apply`.
    pub at: Timestamp,
    /// Tag of the command.
    pub kind: u8,
    /// The encoded command.
    pub command: Bytes,
    /// Bytes that a stream may take over.
    pub data: Bytes,
    pub(crate) place: DataPlace,
}
