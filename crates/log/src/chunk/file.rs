//! An open chunk.
//!
//! # Invariants
//! - No byte leaves a chunk before the checksum of its block was compared once in this process.

use crate::chunk::append_table::AppendTable;
use crate::chunk::format::{
    CHUNK_HEADER_BYTES, CHUNK_ROW_BYTES, CONTENT_START, ChunkHeader, ChunkRow, RowSeed,
};
use crate::chunk::writer::WrittenChunk;
use crate::codec::u32_at;
use crate::damage::DamageKind;
use crate::entry::AppendBounds;
use crate::options::CHUNK_BLOCK_BYTES;
use crate::read::ReadError;
use env::{Disk, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// An open, immutable chunk. Jobs share it with the shard.
#[derive(Debug)]
pub(crate) struct ChunkFile {
    pub(crate) header: ChunkHeader,
    /// Sorted by stream and start.
    pub(crate) rows: Vec<ChunkRow>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    /// One bit per block whose checksum was right.
    verified: Vec<AtomicU64>,
    block_crcs: OnceLock<Vec<u8>>,
}

/// What opening a chunk file came to.
#[derive(Debug)]
pub(crate) enum OpenedChunk {
    /// Usable; `found` are positions of rows that are lost and of headers and rows that were
    /// repaired.
    Chunk { chunk: ChunkFile, found: Vec<(DamageKind, u64)> },
    /// Neither the header nor the footer can be read.
    Unreadable,
}

impl ChunkFile {
    pub(crate) fn new(written: WrittenChunk) -> Self {
        let WrittenChunk { header, rows, file, path } = written;
        let words = usize::try_from(header.block_count().div_ceil(64)).expect("fits memory");
        let verified = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { header, rows, file, path, verified, block_crcs: OnceLock::new() }
    }

    /// Opens a chunk by its front header or, if that is damaged, by its footer; if both are, by one
    /// that can be repaired.
    ///
    /// # Errors
    /// As the disk answers; damage is no error.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, store: u64) -> io::Result<OpenedChunk> {
        let file = disk.open(path)?;
        let length = file.len()?;
        if length < CONTENT_START + CHUNK_HEADER_BYTES as u64 {
            return Ok(OpenedChunk::Unreadable);
        }
        let Some((header, repaired_at)) = read_header(&*file, length, store)? else {
            return Ok(OpenedChunk::Unreadable);
        };
        let mut bytes = vec![0; header.row_count as usize * CHUNK_ROW_BYTES];
        file.read_exact_at(&mut bytes, header.content_end)?;
        let mut rows = Vec::new();
        let mut found: Vec<_> =
            repaired_at.map(|at| (DamageKind::HeaderRepaired, at)).into_iter().collect();
        for (number, bytes) in (0..).zip(bytes.chunks_exact(CHUNK_ROW_BYTES)) {
            let at = header.content_end + u64::from(number) * CHUNK_ROW_BYTES as u64;
            let row = ChunkRow::decode(bytes, RowSeed { store, file: header.seq, number });
            let fits = |row: &ChunkRow| row.is_inside(&header) && row.follows(rows.last());
            let Some(row) = row.filter(|row| fits(&row.value)) else {
                found.push((DamageKind::ChunkRow, at));
                continue;
            };
            if row.is_repaired {
                found.push((DamageKind::HeaderRepaired, at));
            }
            rows.push(row.value);
        }
        let path = path.to_owned();
        let chunk = Self::new(WrittenChunk { header, rows, file, path });
        Ok(OpenedChunk::Chunk { chunk, found })
    }

    /// Bytes of run data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.length)).sum()
    }

    /// The rows of one stream, in order of start.
    pub(crate) fn rows_of(&self, stream: u64) -> std::ops::Range<usize> {
        let first = self.rows.partition_point(|row| row.stream < stream);
        let count = self.rows[first..].partition_point(|row| row.stream == stream);
        first..first + count
    }

    /// The row that contains byte `at` of `stream`.
    pub(crate) fn find(&self, stream: u64, at: u64) -> Option<&ChunkRow> {
        let after = self.rows.partition_point(|row| (row.stream, row.start) <= (stream, at));
        let row = self.rows.get(after.checked_sub(1)?)?;
        (row.stream == stream && at < row.end()).then_some(row)
    }

    /// Compares the checksums of the blocks of `length` bytes from `position`, once per block.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] with the position of the first bad block.
    pub(crate) fn verify(&self, position: u64, length: u64) -> Result<(), ReadError> {
        if length == 0 {
            return Ok(());
        }
        let first = (position - CONTENT_START) / CHUNK_BLOCK_BYTES;
        let last = (position - CONTENT_START + length - 1) / CHUNK_BLOCK_BYTES;
        let mut buffer = Vec::new();
        for block in first..=last {
            let index = usize::try_from(block).expect("fits memory");
            let (word, bit) = (&self.verified[index / 64], 1 << (index % 64));
            if word.load(Ordering::Relaxed) & bit != 0 {
                continue;
            }
            let start = CONTENT_START + block * CHUNK_BLOCK_BYTES;
            let length = (self.header.content_end - start).min(CHUNK_BLOCK_BYTES);
            buffer.resize(usize::try_from(length).expect("a block is small"), 0);
            self.file.read_exact_at(&mut buffer, start)?;
            if crc32c::crc32c(&buffer) != u32_at(self.block_crcs()?, index * 4) {
                return Err(self.damaged(start));
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    fn damaged(&self, position: u64) -> ReadError {
        ReadError::Damaged { file: self.path.clone(), position }
    }

    fn block_crcs(&self) -> Result<&Vec<u8>, ReadError> {
        if let Some(crcs) = self.block_crcs.get() {
            return Ok(crcs);
        }
        let length = usize::try_from(self.header.block_count() * 4).expect("fits memory");
        let mut crcs = vec![0; length];
        self.file.read_exact_at(&mut crcs, self.header.blocks_position())?;
        if crc32c::crc32c(&crcs) != self.header.blocks_crc {
            return Err(self.damaged(self.header.blocks_position()));
        }
        Ok(self.block_crcs.get_or_init(|| crcs))
    }

    /// The bytes of a run's append table, verified.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn table(&self, row: &ChunkRow) -> Result<Vec<u8>, ReadError> {
        let (position, length) = (u64::from(row.table_position), u64::from(row.table_length));
        self.verify(position, length)?;
        let mut bytes = vec![0; row.table_length as usize];
        self.file.read_exact_at(&mut bytes, position)?;
        Ok(bytes)
    }

    /// The append of a run that contains byte `at`.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn append_at(&self, row: &ChunkRow, at: u64) -> Result<AppendBounds, ReadError> {
        let bytes = self.table(row)?;
        let found = AppendTable::new(&bytes).and_then(|table| table.find(at));
        found.ok_or_else(|| self.damaged(u64::from(row.table_position)))
    }
}

/// The header, and the position of the copy that had to be repaired to read it.
fn read_header(
    file: &dyn File,
    length: u64,
    store: u64,
) -> io::Result<Option<(ChunkHeader, Option<u64>)>> {
    let mut repaired = None;
    for position in [0, length - CHUNK_HEADER_BYTES as u64] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        file.read_exact_at(&mut bytes, position)?;
        let header = ChunkHeader::decode(&bytes, store);
        let Some(header) = header.filter(|header| header.value.fits(length)) else { continue };
        if !header.is_repaired {
            return Ok(Some((header.value, None)));
        }
        repaired = repaired.or(Some((header.value, Some(position))));
    }
    Ok(repaired)
}

impl ChunkHeader {
    /// Whether it describes a file of `length` bytes.
    fn fits(&self, length: u64) -> bool {
        // Compared before they are added: a number from disk may be any.
        (CONTENT_START..=length).contains(&self.content_end)
            && self.footer_position() + CHUNK_HEADER_BYTES as u64 == length
    }
}

impl ChunkRow {
    /// Whether it stands behind `last` in the order of rows, and does not overlap it.
    fn follows(&self, last: Option<&Self>) -> bool {
        last.is_none_or(|last| (last.stream, last.end()) <= (self.stream, self.start))
    }

    fn is_inside(&self, header: &ChunkHeader) -> bool {
        let ends = [
            u64::from(self.position) + u64::from(self.length),
            u64::from(self.table_position) + u64::from(self.table_length),
        ];
        u64::from(self.position) >= CONTENT_START
            && u64::from(self.table_position) >= CONTENT_START
            && ends.iter().all(|&end| end <= header.content_end)
            && self.start.checked_add(u64::from(self.length)).is_some()
    }
}
