//! Entries of a replicated group by index: from memory where they are recent, else from the WAL.
//!
//! # Driving it
//! [`crate::ShardLog::entries`] says where they are, and [`EntryRead::run`] reads what is not in memory: on any thread, for it
//! may wait for the disk.
//!
//! # Invariants
//! - An entry is given back only if header, command and data are what was appended under its index and term.

use crate::entry::{DurableEntry, Entry};
use crate::options::BLOCK_BYTES;
use crate::unreadable::read_around;
use crate::wal::layout::{
    BATCH_HEADER_BYTES, BatchHeader, BatchPlace, ENTRY_HEADER_BYTES, EntryHeader, WritePlace,
    entry_header_position,
};
use crate::wal::scan::{WalName, copy_in};
use crate::wal::segment::SegmentFile;
use bytes::{Bytes, BytesMut};
use model::{EntryIndex, GroupId, Term};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// How far the copy of a batch's headers is looked for: a batch with room for one is rarely longer.
const COPY_SEARCH_BYTES: u64 = 16 << 20;

/// An entry of the log, durable or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    entry: DurableEntry,
    /// CRC-32C of the command.
    pub command_crc: u32,
    /// CRC-32C of the data.
    pub data_crc: u32,
    is_durable: bool,
}

impl StoredEntry {
    pub(crate) fn new(
        header: &EntryHeader,
        (command, data): (Bytes, Bytes),
        place: Option<WritePlace>,
    ) -> Self {
        let at = place.unwrap_or(WritePlace { slot: u16::MAX, position: 0 });
        Self {
            entry: header.entry((command, data), at),
            command_crc: header.command_crc,
            data_crc: header.data_crc,
            is_durable: place.is_some(),
        }
    }

    /// What was appended.
    #[must_use]
    pub fn entry(&self) -> &Entry<Bytes> {
        &self.entry
    }

    /// The entry, if it is durable here: only then its data has a place.
    #[must_use]
    pub fn durable(&self) -> Option<&DurableEntry> {
        self.is_durable.then_some(&self.entry)
    }

    fn payload_bytes(&self) -> u64 {
        (self.entry.command.len() + self.entry.data.len()) as u64
    }
}

/// Why an entry cannot be given back.
#[derive(Debug)]
pub enum EntryError {
    /// The group has one voter: its entries are not kept by index.
    NotReplicated,
    /// The log does not have it any more: a checkpoint stands for it.
    Released {
        /// The first entry that the log has.
        first: EntryIndex,
    },
    /// The log does not have it yet.
    BehindTheEnd {
        /// The last entry that the log has.
        last: EntryIndex,
    },
    /// What the disk holds is not what was appended.
    Damaged {
        /// The entry.
        index: EntryIndex,
        /// Its term.
        term: Term,
        /// The segment.
        file: PathBuf,
        /// Where its batch begins.
        position: u64,
    },
    /// The disk has refused a read.
    Io(io::Error),
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReplicated => f.write_str("the group is not replicated"),
            Self::Released { first } => write!(f, "the log begins at entry {first}"),
            Self::BehindTheEnd { last } => write!(f, "the log ends at entry {last}"),
            Self::Damaged { index, term, file, position } => {
                let file = file.display();
                write!(f, "entry {index} of term {term} is damaged, in {file} at {position}")
            }
            Self::Io(error) => write!(f, "the log could not be read: {error}"),
        }
    }
}

impl std::error::Error for EntryError {}

impl From<io::Error> for EntryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An entry that has to be read.
#[derive(Debug)]
pub(crate) struct EntryOnDisk {
    pub(crate) group: GroupId,
    pub(crate) index: EntryIndex,
    pub(crate) term: Term,
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) batch: WritePlace,
    pub(crate) number: u32,
}

/// An entry, or where it is.
#[derive(Debug)]
pub(crate) enum Wanted {
    Here(StoredEntry),
    OnDisk(EntryOnDisk),
}

/// Entries that were asked for, in order.
#[derive(Debug)]
#[must_use = "nothing is read before it is run"]
pub struct EntryRead {
    pub(crate) store: u64,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) bytes_max: u64,
}

impl EntryRead {
    /// Whether all of them are in memory: then to run it takes no time.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.wanted.iter().all(|wanted| matches!(wanted, Wanted::Here(_)))
    }

    /// The entries from the first one on, as far as commands and data fit into the bytes that were asked for, and one at least.
    /// What is behind a damaged entry is left out.
    ///
    /// # Errors
    /// [`EntryError::Damaged`] and [`EntryError::Io`], if the first entry cannot be read.
    pub fn run(self) -> Result<Vec<StoredEntry>, EntryError> {
        let (mut found, mut bytes) = (Vec::<StoredEntry>::new(), 0);
        for wanted in self.wanted {
            let left = self.bytes_max.saturating_sub(bytes);
            let is_first = found.is_empty();
            let read = match wanted {
                Wanted::Here(entry) => Ok(Some(entry)),
                Wanted::OnDisk(entry) => {
                    entry.read(self.store, if is_first { None } else { Some(left) })
                }
            };
            match read {
                Ok(Some(entry)) if is_first || entry.payload_bytes() <= left => {
                    bytes += entry.payload_bytes();
                    found.push(entry);
                }
                Err(error) if is_first => return Err(error),
                _ => break,
            }
        }
        Ok(found)
    }
}

impl EntryOnDisk {
    /// The entry; `None` if it has more than `bytes_max` bytes.
    fn read(&self, store: u64, bytes_max: Option<u64>) -> Result<Option<StoredEntry>, EntryError> {
        let header = self.header(store)?.filter(|header| self.is_it(header));
        let Some(header) = header else { return Err(self.damaged()) };
        let bytes = u64::from(header.command_bytes) + u64::from(header.data_bytes);
        if bytes_max.is_some_and(|max| bytes > max) {
            return Ok(None);
        }
        let mut payload = BytesMut::zeroed(usize::try_from(bytes).expect("below 4 GiB"));
        self.read_at(&mut payload, u64::from(header.position))?;
        let payload = payload.freeze();
        let (command, data) = {
            let command = header.command_bytes as usize;
            (payload.slice(..command), payload.slice(command..))
        };
        let is_intact = crc32c::crc32c(&command) == header.command_crc
            && crc32c::crc32c(&data) == header.data_crc;
        if !is_intact {
            return Err(self.damaged());
        }
        Ok(Some(StoredEntry::new(&header, (command, data), Some(self.batch))))
    }

    /// Its header, or the copy of that.
    fn header(&self, store: u64) -> Result<Option<EntryHeader>, EntryError> {
        let Some(batch) = self.batch_header(store)? else { return Ok(None) };
        let place = BatchPlace { store, segment: self.file.seq, seq: batch.seq };
        for start in [Some(0), batch.copy_position()].into_iter().flatten() {
            let mut header = [0; ENTRY_HEADER_BYTES];
            self.read_at(&mut header, start + entry_header_position(self.number) as u64)?;
            if let Some(header) = EntryHeader::decode_sealed(&header, place, self.number) {
                return Ok(Some(header.value));
            }
        }
        Ok(None)
    }

    /// The header of its batch, or the copy of that.
    fn batch_header(&self, store: u64) -> Result<Option<BatchHeader>, EntryError> {
        let Some(wal) = self.file.wal() else { return Ok(None) };
        let mut bytes = [0; BATCH_HEADER_BYTES];
        self.read_at(&mut bytes, 0)?;
        if let Some(found) = BatchHeader::decode(&bytes, store, wal, self.file.seq) {
            return Ok(Some(found.value));
        }
        // How long the batch is, nobody knows any more.
        let rest = (self.file.capacity - self.batch.position).min(COPY_SEARCH_BYTES);
        let mut block = [0; BLOCK_BYTES as usize];
        for from_batch in (0..rest).step_by(BLOCK_BYTES as usize) {
            self.read_at(&mut block, from_batch)?;
            let copy = copy_in(WalName { store, wal }, &block, self.file.seq);
            if let Some(header) = copy.filter(|it| it.length() == from_batch + BLOCK_BYTES) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn is_it(&self, header: &EntryHeader) -> bool {
        let found = (header.group, header.index, header.term);
        !header.is_note() && found == (self.group.get(), self.index.get(), self.term.get())
    }

    fn read_at(&self, bytes: &mut [u8], from_batch: u64) -> Result<(), EntryError> {
        let position = self.batch.position + from_batch;
        if position + bytes.len() as u64 > self.file.capacity {
            return Err(self.damaged());
        }
        // What cannot be read becomes zeroes, which have another checksum.
        read_around(&*self.file.file, bytes, position)?;
        Ok(())
    }

    fn damaged(&self) -> EntryError {
        let (file, position) = (self.file.path.clone(), self.batch.position);
        EntryError::Damaged { index: self.index, term: self.term, file, position }
    }
}
