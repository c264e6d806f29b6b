//! A batch from its first entry to its proof: it fills, is written and synced, and comes back durable.
//!
//! # Why buffers are used again
//! A steady load must not allocate megabytes per commit. A buffer that was frozen for a commit comes
//! back to [`Buffers`]; when the last reader has dropped its slice the memory is filled again.
//!
//! # Invariants
//! - Entry headers and payload grow in two buffers, written behind one another: one copy per append.
//! - A header is sealed when the batch is closed: only then its place on disk is known.
//!
//! # Format
//! `layout`, and the table in `docs/format/wal.md`.

use crate::entry::{DurableEntry, NewEntry};
use crate::options::{BLOCK_BYTES, POOLED_BUFFERS_MAX};
use crate::wal::group_commit::Durable;
use crate::wal::indexed::{FoundEntry, IndexedPart};
use crate::wal::layout::{
    BATCH_HEADER_BYTES, BatchHeader, ENTRY_HEADER_BYTES, EntryHeader, Seeds, WritePlace,
    batch_bytes, begin_list, copy_position, entry_header_position, push_listed, seal_entry_header,
    seal_list, set_installs,
};
use bytes::{Bytes, BytesMut};
use env::File;
use model::EntryIndex;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Largest header buffer that is kept for reuse.
const HEADER_BUFFER_BYTES_MAX: usize = 8 << 20;

static PADDING: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// A closed batch: what is to be written, without the padding.
#[derive(Debug)]
pub(crate) struct ClosedBatch {
    pub(crate) headers: Bytes,
    pub(crate) payload: Bytes,
    /// What the batch before was, if this one has to tell.
    pub(crate) list: Vec<u8>,
    /// How much of the payload is data.
    pub(crate) data_bytes: u64,
    /// What replicated groups have in it.
    pub(crate) indexed: Option<Box<IndexedPart>>,
}

/// Entries that wait for the next commit.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    headers: BytesMut,
    payload: BytesMut,
    entry_count: u32,
    data_bytes: u64,
    header_buffers: Buffers,
    payload_buffers: Buffers,
    seeds: Seeds,
    /// The batch that was closed last, as this one lists it.
    list: Vec<u8>,
    /// A list that was written.
    old_list: Vec<u8>,
    /// What replicated groups have in it.
    indexed: Option<Box<IndexedPart>>,
}

impl OpenBatch {
    /// An empty batch behind the one in `list`.
    pub(crate) fn new(batch_bytes_max: u64, seeds: Seeds, list: Vec<u8>) -> Self {
        let bytes_max = usize::try_from(batch_bytes_max).expect("a batch fits memory");
        Self {
            headers: BytesMut::new(),
            payload: BytesMut::new(),
            entry_count: 0,
            data_bytes: 0,
            header_buffers: Buffers::new(HEADER_BUFFER_BYTES_MAX),
            payload_buffers: Buffers::new(bytes_max),
            seeds,
            list,
            old_list: Vec::new(),
            indexed: None,
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
        self.entry_count == 0 && self.notes().is_empty()
    }

    /// Bytes on disk if `more` entries with `payload_bytes` joined.
    pub(crate) fn bytes_with(&self, more: u64, payload_bytes: u64) -> u64 {
        let count = u64::from(self.entry_count) + self.notes().len() as u64 + more;
        batch_bytes(count, self.payload.len() as u64 + payload_bytes)
    }

    /// The notes that go with it.
    pub(crate) fn notes(&self) -> &[EntryHeader] {
        self.indexed.as_ref().map_or(&[], |indexed| &indexed.notes)
    }

    /// What replicated groups have in it, to add to.
    pub(crate) fn indexed(&mut self) -> &mut IndexedPart {
        self.indexed.get_or_insert_default()
    }

    /// Number that the next entry gets, and where its command begins in the payload.
    pub(crate) fn next_entry(&self) -> (u32, u32) {
        let position = u32::try_from(self.payload.len()).expect("batches are below 4 GiB");
        (self.entry_count, position)
    }

    /// An entry of a replicated group, copied.
    pub(crate) fn entry(&self, number: u32) -> Option<FoundEntry> {
        let entries = &self.indexed.as_ref()?.entries;
        let at = entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        let header = self.headers.get(entry_header_position(number)..)?.first_chunk()?;
        let header = EntryHeader::decode(header);
        let command = entries[at].payload_position as usize;
        let data = command + header.command_bytes as usize;
        let end = data + header.data_bytes as usize;
        let copy = |range| Bytes::copy_from_slice(&self.payload[range]);
        Some((header, copy(command..data), copy(data..end)))
    }

    /// Bytes on disk with the list of the batch before.
    pub(crate) fn bytes_with_list(&self) -> u64 {
        self.bytes_with(0, self.list.len() as u64)
    }

    /// Leaves the list out: there is no room for it.
    pub(crate) fn drop_list(&mut self) {
        self.list.clear();
    }

    /// Copies an entry in.
    pub(crate) fn push(&mut self, index: EntryIndex, entry: &NewEntry<'_>) {
        if self.headers.is_empty() {
            self.headers.resize(BATCH_HEADER_BYTES, 0);
        }
        let header = EntryHeader {
            index: index.get(),
            term: entry.term.get(),
            subject: entry.subject.get(),
            at: entry.at.get(),
            position: 0,
            command_bytes: u32::try_from(entry.command.len()).expect("checked by the WAL"),
            data_bytes: u32::try_from(entry.data.len()).expect("checked by the WAL"),
            command_crc: crc32c::crc32c(entry.command),
            data_crc: crc32c::crc32c(entry.data),
            group: entry.group.get(),
            kind: entry.kind,
            ..EntryHeader::default()
        };
        self.headers.extend_from_slice(&header.encode());
        self.payload.extend_from_slice(entry.command);
        self.payload.extend_from_slice(entry.data);
        self.entry_count += 1;
        self.data_bytes += entry.data.len() as u64;
    }

    /// Says in an entry of the batch how many snapshots were installed in its group before.
    pub(crate) fn set_installs(&mut self, number: u32, installs: u16) {
        if installs > 0 {
            set_installs(&mut self.headers[entry_header_position(number)..], installs);
        }
    }

    /// Seals the batch for its place on disk and starts an empty one.
    ///
    /// `header` lacks the three sizes; `last` takes the last index of each group.
    pub(crate) fn close(
        &mut self,
        (mut header, at): (BatchHeader, u64),
        last: &mut [u64],
    ) -> ClosedBatch {
        let list = std::mem::replace(&mut self.list, std::mem::take(&mut self.old_list));
        header.list_bytes = u32::try_from(list.len()).expect("batches are below 4 GiB");
        let indexed = self.indexed.take();
        let notes = indexed.as_ref().map_or(&[][..], |indexed| &indexed.notes);
        header.note_count = notes.len() as u32;
        header.entry_count = self.entry_count + header.note_count;
        header.payload_bytes = u32::try_from(self.payload.len()).expect("batches are below 4 GiB");
        self.headers.resize(entry_header_position(self.entry_count), 0);
        self.headers[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode(&self.seeds));
        let (sealed, is_listed) = ((&self.seeds, &header), header.needs_list());
        self.list.clear();
        if is_listed {
            begin_list(&mut self.list, &header, at);
        }
        notes.iter().for_each(|note| self.headers.extend_from_slice(&note.encode()));
        let mut position = u32::try_from(self.headers.len()).expect("batches are below 4 GiB");
        let supersedes = indexed.as_ref().is_some_and(|indexed| !indexed.superseded.is_empty());
        let (headers, _) = self.headers[BATCH_HEADER_BYTES..].as_chunks_mut();
        let (headers, notes) = headers.split_at_mut(self.entry_count as usize);
        for (number, bytes) in (0..).zip(headers) {
            seal_entry_header(bytes, sealed, number, position);
            let entry = EntryHeader::decode(bytes);
            let group_last = &mut last[usize::from(entry.group)];
            assert!(*group_last < entry.index || supersedes, "indexes of a group rise");
            *group_last = entry.index;
            position = u32::try_from(entry.end()).expect("batches are below 4 GiB");
            if is_listed {
                push_listed(&mut self.list, &entry);
            }
        }
        for (number, bytes) in (self.entry_count..).zip(notes) {
            seal_entry_header(bytes, sealed, number, position);
            if is_listed {
                push_listed(&mut self.list, &EntryHeader::decode(bytes));
            }
        }
        if is_listed {
            seal_list(&mut self.list, &self.seeds);
        }
        self.entry_count = 0;
        let headers = std::mem::replace(&mut self.headers, self.header_buffers.take()).freeze();
        let payload = std::mem::replace(&mut self.payload, self.payload_buffers.take()).freeze();
        let data_bytes = std::mem::take(&mut self.data_bytes);
        ClosedBatch { headers, payload, list, data_bytes, indexed }
    }

    /// Takes written buffers back; they are filled again when nobody reads them any more.
    pub(crate) fn reuse(&mut self, headers: Bytes, payload: Bytes, list: Vec<u8>) {
        self.header_buffers.put(headers);
        self.payload_buffers.put(payload);
        self.old_list = list;
    }
}

/// What tests of the check break.
#[cfg(test)]
impl OpenBatch {
    pub(crate) fn lose_header(&mut self) {
        self.headers.truncate(self.headers.len() - ENTRY_HEADER_BYTES);
    }
}

/// Buffers that wait for their last reader.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    waiting: VecDeque<Bytes>,
    bytes_max: usize,
}

impl Buffers {
    /// Keeps buffers of up to `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes_max }
    }

    /// An empty buffer, an old one if one is free.
    pub(crate) fn take(&mut self) -> BytesMut {
        let free = self.waiting.iter().position(Bytes::is_unique);
        let buffer = free.and_then(|index| self.waiting.remove(index));
        match buffer.map(Bytes::try_into_mut) {
            Some(Ok(mut buffer)) => {
                buffer.clear();
                buffer
            }
            Some(Err(_)) | None => BytesMut::new(),
        }
    }

    /// Remembers a frozen buffer for later; the oldest makes room.
    pub(crate) fn put(&mut self, buffer: Bytes) {
        if buffer.len() > self.bytes_max {
            return;
        }
        if self.waiting.len() == POOLED_BUFFERS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(buffer);
    }
}

/// One write and one sync. Run it on any thread and hand the result to `handle_synced`.
#[must_use = "a commit that is not run stalls its shard"]
pub struct SyncJob {
    pub(crate) file: Arc<dyn File>,
    pub(crate) place: WritePlace,
    pub(crate) batch: ClosedBatch,
}

impl SyncJob {
    /// Writes and syncs the batch. Blocks.
    pub fn run(self) -> SyncDone {
        let ClosedBatch { headers, payload, list, .. } = &self.batch;
        let length = headers.len() + payload.len() + list.len();
        // Whole blocks: the page cache need not read a block before it is changed in part.
        let room = length.next_multiple_of(PADDING.len()) - length;
        let behind_headers = payload.len() + list.len();
        let has_copy = copy_position(headers.len() as u64, behind_headers as u64).is_some();
        let copy = if has_copy { &headers[..] } else { &[] };
        let padding = &PADDING[..room - copy.len()];
        let pieces: [&[u8]; 5] = [headers, payload, list, padding, copy];
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
    pub(crate) place: WritePlace,
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
    pub(crate) place: WritePlace,
    pub(crate) headers: Bytes,
    pub(crate) payload: Bytes,
    /// Bytes of the list behind the payload.
    pub(crate) list_bytes: usize,
    /// How much of the payload is data.
    pub(crate) data_bytes: u64,
    /// Notes behind its entries.
    pub(crate) note_count: usize,
}

impl DurableBatch {
    /// The proof that the entries are on stable storage.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Number of entries; 0 for a durable mark, and if there are only notes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.headers.len() / ENTRY_HEADER_BYTES - 1 - self.note_count
    }

    /// Whether the batch has no entries: a durable mark, or notes alone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the batch takes on disk, padding included.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let bytes = self.headers.len() + self.payload.len() + self.list_bytes;
        (bytes as u64).next_multiple_of(BLOCK_BYTES)
    }

    /// The entries in the order of their appends. Commands and data share the batch's memory.
    pub fn entries(&self) -> impl Iterator<Item = DurableEntry> + '_ {
        let count = u32::try_from(self.len()).expect("batches are below 4 GiB");
        (0..count).map(|number| self.entry(number))
    }

    fn entry(&self, number: u32) -> DurableEntry {
        let header = self.headers[entry_header_position(number)..].first_chunk();
        let header = EntryHeader::decode(header.expect("a batch holds whole headers"));
        let in_payload = |position: u64| {
            usize::try_from(position).expect("batches are below 4 GiB") - self.headers.len()
        };
        let command = in_payload(u64::from(header.position));
        let data = in_payload(header.data_position());
        let data_bytes = self.payload.slice(data..in_payload(header.end()));
        header.entry((self.payload.slice(command..data), data_bytes), self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reader_is_gone() {
        let mut buffers = Buffers::new(100);
        let mut buffer = BytesMut::with_capacity(64);
        buffer.extend_from_slice(b"abc");
        let memory = buffer.as_ptr();
        let frozen = buffer.freeze();
        let reader = frozen.slice(1..2);
        buffers.put(frozen);
        assert_ne!(buffers.take().as_ptr(), memory);
        drop(reader);
        let again = buffers.take();
        assert_eq!(again.as_ptr(), memory);
        assert!(again.is_empty());
    }

    #[test]
    fn large_buffers_are_given_back_to_the_system() {
        let mut buffers = Buffers::new(2);
        buffers.put(Bytes::from(vec![0; 3]));
        assert!(buffers.waiting.is_empty());
    }
}
