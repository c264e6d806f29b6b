//! The batch that fills while another one is being synced.
//!
//! # Invariants
//! - Entry headers and payload grow in two buffers, written behind one another: one copy per append.
//! - A header is sealed when the batch is closed: only then its place on disk is known.

use crate::entry::NewEntry;
use crate::wal::batch::{
    BATCH_HEADER_BYTES, BatchHeader, BatchPlace, ENTRY_HEADER_BYTES, EntryHeader, batch_bytes,
    entry_header_position, seal_entry_header,
};
use crate::wal::buffers::Buffers;
use bytes::{Bytes, BytesMut};
use model::EntryIndex;

/// Largest header buffer that is kept for reuse.
const HEADER_BUFFER_BYTES_MAX: usize = 8 << 20;

/// A closed batch: what is to be written, without the padding.
#[derive(Debug)]
pub(crate) struct ClosedBatch {
    pub(crate) headers: Bytes,
    pub(crate) payload: Bytes,
}

/// Entries that wait for the next commit.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    headers: BytesMut,
    payload: BytesMut,
    entry_count: u32,
    header_buffers: Buffers,
    payload_buffers: Buffers,
}

impl OpenBatch {
    pub(crate) fn new(batch_bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(batch_bytes_max).expect("a batch fits memory");
        Self {
            headers: BytesMut::new(),
            payload: BytesMut::new(),
            entry_count: 0,
            header_buffers: Buffers::new(HEADER_BUFFER_BYTES_MAX),
            payload_buffers: Buffers::new(bytes_max),
        }
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        let headers =
            if self.headers.is_empty() { 0 } else { entry_header_position(self.entry_count) };
        assert_eq!(self.headers.len(), headers, "one header for the batch and each entry");
        assert!(self.entry_count > 0 || self.payload.is_empty(), "payload belongs to entries");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Bytes on disk if `more` entries with `payload_bytes` joined.
    pub(crate) fn bytes_with(&self, more: u64, payload_bytes: u64) -> u64 {
        batch_bytes(u64::from(self.entry_count) + more, self.payload.len() as u64 + payload_bytes)
    }

    /// Copies an entry in.
    pub(crate) fn push(&mut self, index: EntryIndex, entry: &NewEntry<'_>) {
        if self.headers.is_empty() {
            self.headers.resize(BATCH_HEADER_BYTES, 0);
        }
        let header = EntryHeader {
            index: index.get(),
            term: entry.term.get(),
            stream: entry.stream.get(),
            at: entry.at.get(),
            position: 0,
            command_bytes: u32::try_from(entry.command.len()).expect("checked by the lane"),
            data_bytes: u32::try_from(entry.data.len()).expect("checked by the lane"),
            command_crc: crc32c::crc32c(entry.command),
            data_crc: crc32c::crc32c(entry.data),
            group: entry.group.get(),
            kind: entry.kind,
        };
        self.headers.extend_from_slice(&header.encode());
        self.payload.extend_from_slice(entry.command);
        self.payload.extend_from_slice(entry.data);
        self.entry_count += 1;
    }

    /// Seals the batch for its place on disk and starts an empty one.
    ///
    /// `header` lacks the two sizes; `last` takes the last index of each group.
    pub(crate) fn close(
        &mut self,
        store: u64,
        mut header: BatchHeader,
        last: &mut [u64],
    ) -> ClosedBatch {
        header.entry_count = self.entry_count;
        header.payload_bytes = u32::try_from(self.payload.len()).expect("batches are below 4 GiB");
        self.headers.resize(entry_header_position(self.entry_count), 0);
        self.headers[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode(store));
        let place = BatchPlace { store, segment: header.segment, seq: header.seq };
        let mut position = u32::try_from(self.headers.len()).expect("batches are below 4 GiB");
        let headers = self.headers[BATCH_HEADER_BYTES..].chunks_exact_mut(ENTRY_HEADER_BYTES);
        for (number, bytes) in (0..).zip(headers) {
            seal_entry_header(bytes, place, number, position);
            let entry = EntryHeader::decode(bytes);
            let group_last = &mut last[usize::from(entry.group)];
            assert!(*group_last < entry.index, "indexes of a group rise");
            *group_last = entry.index;
            position = u32::try_from(entry.end()).expect("batches are below 4 GiB");
        }
        self.entry_count = 0;
        let headers = std::mem::replace(&mut self.headers, self.header_buffers.take()).freeze();
        let payload = std::mem::replace(&mut self.payload, self.payload_buffers.take()).freeze();
        ClosedBatch { headers, payload }
    }

    /// Takes written buffers back; they are filled again when nobody reads them any more.
    pub(crate) fn reuse(&mut self, headers: Bytes, payload: Bytes) {
        self.header_buffers.put(headers);
        self.payload_buffers.put(payload);
    }
}
