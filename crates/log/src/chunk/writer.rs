//! Makes a chunk file, written aside and renamed when it is durable.
//!
//! # Driving it
//! `create`; per stream in order, `push` for each append of a run; `finish`.
//!
//! # Invariants
//! - Runs come in order of stream and start; an append that does not follow its predecessor begins a
//!   new run, so a hole is never bridged.
//! - Memory is bounded by one buffer and one run's append table.

use crate::chunk::append_table::AppendTableWriter;
use crate::chunk::format::{CONTENT_START, ChunkHeader, ChunkRow, RowSeed, RunCrcs};
use crate::codec::NUMBER_MAX;
use crate::entry::AppendBounds;
use crate::options::{CHUNK_BLOCK_BYTES, COPY_BYTES};
use crate::paced::Pace;
use crate::paths::{remove_if_there, remove_unneeded};
use env::{Disk, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a new chunk is called and covers.
#[derive(Debug, Clone)]
pub(crate) struct ChunkName {
    pub(crate) store: u64,
    pub(crate) group: u16,
    pub(crate) dir: PathBuf,
    pub(crate) seq: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl ChunkName {
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(format!("{:016x}.chunk", self.seq))
    }
}

/// The number in a chunk's file name.
pub(crate) fn parse_chunk_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".chunk")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (digits.len() == 16 && number <= NUMBER_MAX).then_some(number)
}

/// Name under which a chunk is written; left behind only by a crash.
pub(crate) const WRITING_NAME: &str = "writing.tmp";

/// A chunk that is being written.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    name: ChunkName,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
    pace: Pace,
    block_crcs: Vec<u8>,
    block_crc: u32,
    block_bytes: u64,
    rows: Vec<ChunkRow>,
    /// Of each row, in order.
    run_crcs: Vec<RunCrcs>,
    run: Option<ChunkRow>,
    run_crc: u32,
    table: AppendTableWriter,
}

impl ChunkWriter {
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn create(disk: &dyn Disk, name: ChunkName) -> io::Result<Self> {
        let path = name.dir.join(WRITING_NAME);
        remove_if_there(disk, &path)?;
        let file = disk.create(&path)?;
        Ok(Self {
            name,
            file,
            buffer: Vec::with_capacity(COPY_BYTES),
            written: CONTENT_START,
            pace: Pace::default(),
            block_crcs: Vec::new(),
            block_crc: 0,
            block_bytes: 0,
            rows: Vec::new(),
            run_crcs: Vec::new(),
            run: None,
            run_crc: 0,
            table: AppendTableWriter::default(),
        })
    }

    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Offset after the last byte of `stream` that was taken; 0 if there is none.
    pub(crate) fn end_of(&self, stream: u64) -> u64 {
        let last = self.run.as_ref().or(self.rows.last());
        last.filter(|run| run.stream == stream).map_or(0, ChunkRow::end)
    }

    /// Begins an append of `stream`; its data follows by [`ChunkWriter::write`].
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn begin_append(&mut self, stream: u64, append: &AppendBounds) -> io::Result<()> {
        let start = append.start.get();
        let follows = self.run.is_some_and(|run| run.stream == stream && run.end() == start);
        if !follows {
            self.end_run()?;
            if let Some(last) = self.rows.last() {
                let order = (last.stream, last.end()) <= (stream, start) || last.stream < stream;
                assert!(order, "runs come in order");
            }
            let position = to_u32(self.position());
            self.run = Some(ChunkRow {
                stream,
                start,
                length: 0,
                position,
                table_position: 0,
                table_length: 0,
            });
        }
        self.table.push(append);
        let run = self.run.as_mut().expect("a run was begun");
        run.length = to_u32(append.end.get() - run.start);
        Ok(())
    }

    /// Adds bytes of the append that was begun.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.run_crc = crc32c::crc32c_append(self.run_crc, bytes);
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = usize::try_from(CHUNK_BLOCK_BYTES - self.block_bytes).expect("small");
            let (piece, after) = rest.split_at(rest.len().min(room));
            self.block_crc = crc32c::crc32c_append(self.block_crc, piece);
            self.block_bytes += piece.len() as u64;
            if self.block_bytes == CHUNK_BLOCK_BYTES {
                self.end_block();
            }
            rest = after;
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= COPY_BYTES {
            self.drain()?;
        }
        Ok(())
    }

    fn end_block(&mut self) {
        self.block_crcs.extend_from_slice(&self.block_crc.to_le_bytes());
        (self.block_crc, self.block_bytes) = (0, 0);
    }

    fn drain(&mut self) -> io::Result<()> {
        self.pace.write(&*self.file, &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn end_run(&mut self) -> io::Result<()> {
        let Some(mut run) = self.run.take() else { return Ok(()) };
        assert!(!self.table.is_empty());
        assert_eq!(self.position(), u64::from(run.position) + u64::from(run.length));
        let table = self.table.finish();
        run.table_position = to_u32(self.position());
        run.table_length = to_u32(table.len() as u64);
        self.rows.push(run);
        let data = std::mem::take(&mut self.run_crc);
        self.run_crcs.push(RunCrcs { data, table: crc32c::crc32c(&table) });
        self.put(&table)
    }

    /// Makes the chunk durable under its name; `None` if it has no run, then no file is left.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn finish(mut self, disk: &dyn Disk) -> io::Result<Option<WrittenChunk>> {
        self.end_run()?;
        if self.rows.is_empty() {
            disk.remove(&self.name.dir.join(WRITING_NAME))?;
            return Ok(None);
        }
        if self.block_bytes > 0 {
            self.end_block();
        }
        let name = &self.name;
        let header = ChunkHeader {
            group: name.group,
            seq: name.seq,
            from: name.from,
            to: name.to,
            content_end: self.position(),
            row_count: u32::try_from(self.rows.len()).expect("a chunk has fewer than 2^32 runs"),
            blocks_crc: crc32c::crc32c(&self.block_crcs),
        };
        for ((number, row), crcs) in (0..).zip(&self.rows).zip(&self.run_crcs) {
            let seed = RowSeed { store: name.store, file: name.seq, number };
            self.buffer.extend_from_slice(&row.encode(*crcs, seed));
        }
        self.buffer.extend_from_slice(&self.block_crcs);
        assert_eq!(self.position(), header.footer_position());
        self.buffer.extend_from_slice(&header.encode(self.name.store));
        self.drain()?;
        let mut front = [0; CONTENT_START as usize];
        let encoded = header.encode(self.name.store);
        front[..encoded.len()].copy_from_slice(&encoded);
        self.file.write_at(&front, 0)?;
        self.file.sync_all()?;
        let (path, store) = (self.name.path(), self.name.store);
        disk.rename(&self.name.dir.join(WRITING_NAME), &path)?;
        disk.sync_dir(&self.name.dir)?;
        Ok(Some(WrittenChunk { store, header, rows: self.rows, file: self.file, path }))
    }
}

/// A chunk file that has just become durable.
#[derive(Debug)]
pub(crate) struct WrittenChunk {
    pub(crate) store: u64,
    pub(crate) header: ChunkHeader,
    pub(crate) rows: Vec<ChunkRow>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
}

fn to_u32(position: u64) -> u32 {
    u32::try_from(position).expect("positions in a chunk are 32 bits")
}

/// Removes what a crash left half-written.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn remove_half_written(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    remove_unneeded(disk, &dir.join(WRITING_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;
    use model::{ByteOffset, Timestamp};

    fn append(start: u64, length: u64) -> AppendBounds {
        AppendBounds {
            start: ByteOffset::new(start),
            end: ByteOffset::new(start + length),
            records: 2,
            at: Timestamp::new(1_700_000_000_000 + start),
        }
    }

    fn write(disk: &MemoryDisk, appends: &[(u64, AppendBounds, &[u8])]) -> Option<WrittenChunk> {
        let dir = PathBuf::from("/c");
        disk.create_dir_all(&dir).unwrap();
        let name = ChunkName { store: 77, group: 3, dir, seq: 9, from: 10, to: 20 };
        let mut writer = ChunkWriter::create(disk, name).unwrap();
        for (stream, append, data) in appends {
            writer.begin_append(*stream, append).unwrap();
            writer.write(data).unwrap();
        }
        writer.finish(disk).unwrap()
    }

    #[test]
    fn the_bytes_of_a_chunk_never_change() {
        let disk = MemoryDisk::new();
        let appends: [(u64, AppendBounds, &[u8]); 4] = [
            (4, append(0, 3), b"abc"),
            (4, append(3, 2), b"de"),
            (4, append(7, 1), b"g"),
            (6, append(5, 4), b"wxyz"),
        ];
        let chunk = write(&disk, &appends).unwrap();
        assert_eq!(chunk.rows.len(), 3, "the hole in stream 4 splits its run");
        let mut bytes = vec![0; chunk.file.len().unwrap() as usize];
        chunk.file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == include_bytes!("../../testdata/chunk.golden"));
    }

    #[test]
    fn a_chunk_without_data_is_no_file() {
        let disk = MemoryDisk::new();
        assert!(write(&disk, &[]).is_none());
        assert!(disk.paths().is_empty());
    }
}
