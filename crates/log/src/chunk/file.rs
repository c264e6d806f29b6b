//! An open chunk.
//!
//! # Invariants
//! - No byte leaves a chunk before the checksum of its block was compared once in this process. Where a
//!   block is damaged, the checksum of the run decides: damage of one stream costs no other.

use crate::chunk::append_table::AppendTable;
use crate::chunk::format::{
    CHUNK_HEADER_BYTES, CHUNK_ROW_BYTES, CONTENT_START, ChunkHeader, ChunkRow, RowSeed, RunCrcs,
};
use crate::chunk::served::ServedFile;
use crate::chunk::writer::WrittenChunk;
use crate::codec::u32_at;
use crate::damage::DamageKind;
use crate::entry::AppendBounds;
use crate::options::CHUNK_BLOCK_BYTES;
use crate::read::{ReadError, ReadMode};
use crate::unreadable::{open_around, read_around};
use env::{Disk, File};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An open, immutable chunk. Jobs share it with the shard.
#[derive(Debug)]
pub(crate) struct ChunkFile {
    store: u64,
    pub(crate) header: ChunkHeader,
    /// Sorted by stream and start.
    pub(crate) rows: Vec<ChunkRow>,
    pub(crate) file: Arc<dyn File>,
    /// The same, for the senders of its bytes.
    pub(crate) served: Arc<ServedFile>,
    pub(crate) path: PathBuf,
    /// One bit per block whose checksum was right.
    verified: Vec<AtomicU64>,
    block_crcs: OnceLock<Vec<u8>>,
    /// Parts of runs in damaged blocks, by position, and whether they are intact all the same.
    judged: Mutex<BTreeMap<u64, bool>>,
}

/// What opening a chunk file came to.
#[derive(Debug)]
pub(crate) enum OpenedChunk {
    /// Usable; `found` are positions of rows that are lost and of headers and rows that were
    /// repaired.
    Chunk { chunk: Box<ChunkFile>, found: Vec<(DamageKind, u64)> },
    /// Neither the header nor the footer can be read.
    Unreadable,
}

impl ChunkFile {
    pub(crate) fn new(written: WrittenChunk) -> Self {
        let WrittenChunk { store, header, rows, file, path } = written;
        let words = usize::try_from(header.block_count().div_ceil(64)).expect("fits memory");
        let verified = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (block_crcs, judged) = (OnceLock::new(), Mutex::default());
        let served = ServedFile::new(Arc::clone(&file));
        Self { store, header, rows, file, served, path, verified, block_crcs, judged }
    }

    /// Opens a chunk by its front header or, if that is damaged, by its footer; if both are, by one
    /// that can be repaired.
    ///
    /// # Errors
    /// Any error of the underlying disk; damage is no error.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, store: u64) -> io::Result<OpenedChunk> {
        let Some(file) = open_around(disk, path)? else { return Ok(OpenedChunk::Unreadable) };
        let length = file.len()?;
        if length < CONTENT_START + CHUNK_HEADER_BYTES as u64 {
            return Ok(OpenedChunk::Unreadable);
        }
        let Some((header, repaired_at)) = read_header(&*file, length, store)? else {
            return Ok(OpenedChunk::Unreadable);
        };
        let mut bytes = vec![0; header.row_count as usize * CHUNK_ROW_BYTES];
        read_around(&*file, &mut bytes, header.content_end)?;
        let mut rows = Vec::new();
        let mut found: Vec<_> =
            repaired_at.map(|at| (DamageKind::HeaderRepaired, at)).into_iter().collect();
        for (number, bytes) in (0..).zip(bytes.chunks_exact(CHUNK_ROW_BYTES)) {
            let at = header.content_end + u64::from(number) * CHUNK_ROW_BYTES as u64;
            let row = ChunkRow::decode(bytes, RowSeed { store, file: header.seq, number });
            let fits = |row: &ChunkRow| row.is_inside(&header) && row.follows(rows.last());
            let Some(row) = row.filter(|row| fits(&row.value.0)) else {
                found.push((DamageKind::ChunkRow, at));
                continue;
            };
            if row.is_repaired {
                found.push((DamageKind::HeaderRepaired, at));
            }
            rows.push(row.value.0);
        }
        let path = path.to_owned();
        let chunk = Box::new(Self::new(WrittenChunk { store, header, rows, file, path }));
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

    /// Compares the checksums of the blocks of `length` bytes from `position` of the run that `row`
    /// describes, once per block. Where one is wrong the run's own checksum decides.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] with the position of the first bad block. A read that must not wait leaves the
    /// judgement of a damaged block to one that may.
    pub(crate) fn verify(
        &self,
        row: &ChunkRow,
        (position, length): (u64, u64),
        mode: ReadMode,
    ) -> Result<(), ReadError> {
        if length == 0 {
            return Ok(());
        }
        if self.served.take_failed() {
            self.check_again();
        }
        let first = (position - CONTENT_START) / CHUNK_BLOCK_BYTES;
        let last = (position - CONTENT_START + length - 1) / CHUNK_BLOCK_BYTES;
        for block in first..=last {
            if !self.is_block_intact(block, mode)? && !self.is_part_intact(row, position, mode)? {
                return Err(self.damaged(CONTENT_START + block * CHUNK_BLOCK_BYTES));
            }
        }
        Ok(())
    }

    /// Forgets what was found intact: it is read and compared again.
    pub(crate) fn check_again(&self) {
        self.verified.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn is_block_intact(&self, block: u64, mode: ReadMode) -> Result<bool, ReadError> {
        let index = usize::try_from(block).expect("fits memory");
        let (word, bit) = (&self.verified[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(true);
        }
        let start = CONTENT_START + block * CHUNK_BLOCK_BYTES;
        let length = (self.header.content_end - start).min(CHUNK_BLOCK_BYTES);
        let wanted = match self.block_crcs(mode) {
            Ok(crcs) => u32_at(crcs, index * 4),
            // The table of checksums is damaged: that of the run decides.
            Err(ReadError::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_intact = self.crc_of(start, length, mode)? == wanted;
        if is_intact {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(is_intact)
    }

    /// Whether the part of the run that holds `position`, its bytes or its table, is intact although a
    /// block around it is not. Each part is judged once.
    fn is_part_intact(
        &self,
        row: &ChunkRow,
        position: u64,
        mode: ReadMode,
    ) -> Result<bool, ReadError> {
        // To look the row up and to check all of its run takes long.
        mode.check_bytes(u64::MAX)?;
        let is_table = position >= u64::from(row.table_position);
        let (start, length) = match is_table {
            true => (u64::from(row.table_position), u64::from(row.table_length)),
            false => (u64::from(row.position), u64::from(row.length)),
        };
        let judged =
            self.judged.lock().unwrap_or_else(PoisonError::into_inner).get(&start).copied();
        if let Some(is_intact) = judged {
            return Ok(is_intact);
        }
        let crcs = self.run_crcs(row)?.filter(|crcs| *crcs != RunCrcs::default());
        let wanted = crcs.map(|crcs| if is_table { crcs.table } else { crcs.data });
        let is_intact = wanted == Some(self.crc_of(start, length, mode)?);
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).insert(start, is_intact);
        Ok(is_intact)
    }

    /// The checksums in the row of a run; `None` if the row is damaged by now.
    fn run_crcs(&self, row: &ChunkRow) -> Result<Option<RunCrcs>, ReadError> {
        let mut bytes = [0; CHUNK_ROW_BYTES];
        for number in 0..self.header.row_count {
            let at = self.header.content_end + u64::from(number) * CHUNK_ROW_BYTES as u64;
            read_around(&*self.file, &mut bytes, at)?;
            let seed = RowSeed { store: self.store, file: self.header.seq, number };
            match ChunkRow::decode(&bytes, seed) {
                Some(found) if found.value.0 == *row => return Ok(Some(found.value.1)),
                _ => {}
            }
        }
        Ok(None)
    }

    fn crc_of(&self, start: u64, length: u64, mode: ReadMode) -> io::Result<u32> {
        let (mut crc, mut at, end) = (0, start, start + length);
        let mut buffer = Vec::new();
        while at < end {
            buffer.resize(usize::try_from((end - at).min(CHUNK_BLOCK_BYTES)).expect("small"), 0);
            mode.fill(&*self.file, &mut buffer, at)?;
            crc = crc32c::crc32c_append(crc, &buffer);
            at += buffer.len() as u64;
        }
        Ok(crc)
    }

    pub(crate) fn damaged(&self, position: u64) -> ReadError {
        ReadError::Damaged { file: self.path.clone(), position }
    }

    fn block_crcs(&self, mode: ReadMode) -> Result<&Vec<u8>, ReadError> {
        if let Some(crcs) = self.block_crcs.get() {
            return Ok(crcs);
        }
        let length = usize::try_from(self.header.block_count() * 4).expect("fits memory");
        let mut crcs = vec![0; length];
        mode.fill(&*self.file, &mut crcs, self.header.blocks_position())?;
        if crc32c::crc32c(&crcs) != self.header.blocks_crc {
            return Err(self.damaged(self.header.blocks_position()));
        }
        Ok(self.block_crcs.get_or_init(|| crcs))
    }

    /// The bytes of a run's append table, verified.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn table(&self, row: &ChunkRow, mode: ReadMode) -> Result<Vec<u8>, ReadError> {
        let (position, length) = (u64::from(row.table_position), u64::from(row.table_length));
        mode.check_bytes(length)?;
        self.verify(row, (position, length), mode)?;
        let mut bytes = vec![0; row.table_length as usize];
        let is_whole = mode.fill(&*self.file, &mut bytes, position)?;
        if is_whole { Ok(bytes) } else { Err(self.damaged(position)) }
    }

    /// The append of a run that contains byte `at`.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn append_at(
        &self,
        row: &ChunkRow,
        at: u64,
        mode: ReadMode,
    ) -> Result<AppendBounds, ReadError> {
        let bytes = self.table(row, mode)?;
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
        read_around(file, &mut bytes, position)?;
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
    /// Whether it follows `last` in the order of rows, and does not overlap it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::writer::{ChunkName, ChunkWriter};
    use env::MemoryDisk;
    use model::{ByteOffset, Timestamp};

    const STORE: u64 = 77;

    /// Three streams of one append each, all in one block.
    fn small(disk: &MemoryDisk) -> PathBuf {
        let dir = PathBuf::from("/c");
        disk.create_dir_all(&dir).unwrap();
        let name = ChunkName { store: STORE, group: 3, dir, seq: 9, from: 10, to: 20 };
        let mut writer = ChunkWriter::create(disk, name).unwrap();
        for stream in 1..=3 {
            let (start, end) = (ByteOffset::ZERO, ByteOffset::new(100));
            let append = AppendBounds { start, end, records: 1, at: Timestamp::new(1) };
            writer.begin_append(stream, &append).unwrap();
            writer.write(&[stream as u8; 100]).unwrap();
        }
        writer.finish(disk).unwrap().unwrap().path
    }

    fn open_with_damage(disk: &MemoryDisk, path: &Path) -> (ChunkFile, Vec<(DamageKind, u64)>) {
        match ChunkFile::open(disk, path, STORE).unwrap() {
            OpenedChunk::Chunk { chunk, found } => (*chunk, found),
            OpenedChunk::Unreadable => panic!("the header is intact"),
        }
    }

    fn open(disk: &MemoryDisk, path: &Path) -> ChunkFile {
        open_with_damage(disk, path).0
    }

    /// Which of the rows give their bytes, and which their table.
    fn readable(chunk: &ChunkFile) -> Vec<(bool, bool)> {
        let data = |row: &ChunkRow| (u64::from(row.position), u64::from(row.length));
        let rows = chunk.rows.iter();
        let mode = ReadMode::Blocking;
        let is_whole =
            |row| (chunk.verify(row, data(row), mode).is_ok(), chunk.table(row, mode).is_ok());
        rows.map(is_whole).collect()
    }

    #[test]
    fn damage_of_a_run_or_table_costs_that_one_of_its_block() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let row = open(&disk, &path).rows[1];
        for (position, lost) in [(row.position, (false, true)), (row.table_position, (true, false))]
        {
            disk.flip_bit(&path, u64::from(position) * 8 + 8);
            let chunk = open(&disk, &path);
            let expected = [(true, true), lost, (true, true)];
            assert_eq!(readable(&chunk), expected);
            assert_eq!(readable(&chunk), expected, "judged once, and the same then");
            disk.flip_bit(&path, u64::from(position) * 8 + 8);
        }
        assert_eq!(readable(&open(&disk, &path)), [(true, true); 3]);
    }

    #[test]
    fn a_damaged_table_of_block_checksums_costs_no_run() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let position = open(&disk, &path).header.blocks_position();
        disk.flip_bit(&path, position * 8);
        let chunk = open(&disk, &path);
        assert_eq!(readable(&chunk), [(true, true); 3]);
        disk.flip_bit(&path, u64::from(chunk.rows[1].position) * 8);
        let expected = [(true, true), (false, true), (true, true)];
        assert_eq!(readable(&open(&disk, &path)), expected, "runs are judged by themselves");
    }

    #[test]
    fn a_file_too_short_for_a_chunk_is_unreadable_and_no_error() {
        for length in [0, 1, CONTENT_START, CONTENT_START + CHUNK_HEADER_BYTES as u64 - 1] {
            let disk = MemoryDisk::new();
            let path = small(&disk);
            disk.open(&path).unwrap().set_len(length).unwrap();
            let opened = ChunkFile::open(&disk, &path, STORE).unwrap();
            assert!(matches!(opened, OpenedChunk::Unreadable), "{length} bytes");
        }
    }

    #[test]
    fn damage_of_a_row_is_told_with_its_position() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let third = open(&disk, &path).header.content_end + 2 * CHUNK_ROW_BYTES as u64;
        for (bytes, kind) in [(1, DamageKind::HeaderRepaired), (8, DamageKind::ChunkRow)] {
            (0..bytes).for_each(|byte| disk.flip_bit(&path, (third + byte) * 8));
            assert_eq!(open_with_damage(&disk, &path).1, [(kind, third)]);
            (0..bytes).for_each(|byte| disk.flip_bit(&path, (third + byte) * 8));
        }
    }

    #[test]
    fn an_intact_row_that_does_not_fit_its_chunk_is_lost() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let ChunkFile { header, rows, .. } = open(&disk, &path);
        let seed = RowSeed { store: STORE, file: header.seq, number: 1 };
        let second = header.content_end + CHUNK_ROW_BYTES as u64;
        let position = u32::try_from(header.content_end).unwrap();
        for row in [ChunkRow { position, ..rows[1] }, ChunkRow { stream: 1, ..rows[1] }] {
            let bytes = row.encode(RunCrcs { data: 0, table: 0 }, seed);
            disk.open(&path).unwrap().write_at(&bytes, second).unwrap();
            assert_eq!(open_with_damage(&disk, &path).1, [(DamageKind::ChunkRow, second)]);
        }
    }

    #[test]
    fn rows_come_in_order_and_do_not_overlap() {
        let disk = MemoryDisk::new();
        let first = open(&disk, &small(&disk)).rows[0];
        let row = |stream, start| ChunkRow { stream, start, length: 10, ..first };
        let follows = |(stream, start)| row(stream, start).follows(Some(&row(2, 100)));
        assert!([(2, 110), (2, 111), (3, 0)].into_iter().all(follows));
        assert!(![(2, 109), (2, 100), (2, 0), (1, 110)].into_iter().any(follows));
        assert!(row(1, 0).follows(None));
    }

    #[test]
    fn a_chunk_from_before_runs_had_checksums_opens_and_damage_costs_its_block() {
        let disk = MemoryDisk::new();
        let path = PathBuf::from("/c/old.chunk");
        disk.create_dir_all(Path::new("/c")).unwrap();
        let bytes = include_bytes!("../../testdata/chunk-without-run-checksums.golden");
        disk.create(&path).unwrap().write_at(bytes, 0).unwrap();
        assert_eq!(readable(&open(&disk, &path)), [(true, true); 3]);
        disk.flip_bit(&path, CONTENT_START * 8);
        assert_eq!(readable(&open(&disk, &path)), [(false, false); 3]);
    }
}
