//! Makes a chunk file, written aside and renamed when it is durable.
//!
//! # Driving it
//! `create`; per stream in order, `begin_append` and `write` for each append; `finish`.
//!
//! # Invariants
//! - Memory is bounded by a few buffers, one run's append table, and the rows (`builder`).
//! - The header at the front is written last: a file without it was never whole.

use crate::chunk::behind::WriteBehind;
use crate::chunk::builder::{ChunkBuilder, StreamPiece};
use crate::chunk::header::{CONTENT_START, ChunkHeader, Origin};
use crate::chunk::pages::ChunkIdentity;
use crate::options::{BLOCK_BYTES, COPY_BYTES};
use crate::paced::Pace;
use crate::paths::{parse_numbered, remove_if_there, remove_unneeded};
use env::{Disk, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a new chunk is called and covers.
#[derive(Debug, Clone)]
pub(crate) struct ChunkName {
    pub(crate) dir: PathBuf,
    pub(crate) identity: ChunkIdentity,
}

/// Which directory's chunks a program writes, in which opening of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkAuthor {
    pub(crate) lineage: u64,
    pub(crate) store: u64,
    pub(crate) epoch: u64,
}

impl ChunkAuthor {
    /// Origin of a chunk with this local number.
    pub(crate) fn origin(self, number: u64) -> Origin {
        Origin { lineage: self.lineage, store: self.store, epoch: self.epoch, number }
    }
}

impl ChunkName {
    /// The local number; a chunk that is written here has it as its origin's, too.
    pub(crate) fn seq(&self) -> u64 {
        self.identity.origin.number
    }

    pub(crate) fn path(&self) -> PathBuf {
        chunk_path(&self.dir, self.seq())
    }
}

pub(crate) fn chunk_path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{seq:016x}.chunk"))
}

/// The number in a chunk's file name.
pub(crate) fn parse_chunk_name(name: &str) -> Option<u64> {
    parse_numbered(name, ".chunk")
}

/// Name under which a chunk is written; left behind only by a crash.
pub(crate) const WRITING_NAME: &str = "writing.tmp";

/// How the name ends that a chunk for another replica has for a moment.
const NAMELESS_SUFFIX: &str = ".export";

/// A chunk that is shorter is not worth a thread.
const BEHIND_BYTES_MIN: u64 = 8 * COPY_BYTES as u64;

/// A chunk that is being written.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    name: ChunkName,
    file: Arc<dyn File>,
    builder: ChunkBuilder,
    /// Position in the file behind what is written or begun.
    written: u64,
    behind: WriteBehind,
}

impl ChunkWriter {
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn create(disk: &dyn Disk, name: ChunkName) -> io::Result<Self> {
        let path = name.dir.join(WRITING_NAME);
        remove_if_there(disk, &path)?;
        let file = disk.create(&path)?;
        Ok(Self::new(name, file))
    }

    /// A chunk for somebody else: its file has no name, and goes with its last handle.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn create_nameless(disk: &dyn Disk, name: ChunkName) -> io::Result<Self> {
        let path = name.dir.join(format!("{:016x}{NAMELESS_SUFFIX}", name.seq()));
        let file = disk.create(&path)?;
        remove_if_there(disk, &path)?;
        Ok(Self::new(name, file))
    }

    fn new(name: ChunkName, file: Arc<dyn File>) -> Self {
        let behind = WriteBehind::new(Arc::clone(&file), Pace::default(), false);
        Self { name, file, builder: ChunkBuilder::default(), written: CONTENT_START, behind }
    }

    /// Its data stays out of the system's cache. If it may become longer than some pieces, a thread writes them, where the disk allows
    /// that.
    pub(crate) fn uncached(self, disk: &dyn Disk, bytes_max: u64) -> Self {
        let wants_thread = bytes_max >= BEHIND_BYTES_MIN && disk.allows_threads();
        let file = Arc::clone(&self.file);
        Self { behind: WriteBehind::new(file, Pace::uncached(), wants_thread), ..self }
    }

    /// Offset after the last byte of `stream` that was taken; 0 if there is none.
    pub(crate) fn end_of(&self, stream: u64) -> u64 {
        self.builder.end_of(stream)
    }

    /// Begins an append; its data follows by [`ChunkWriter::write`].
    pub(crate) fn begin_append(&mut self, append: &StreamPiece) {
        self.builder.begin(append);
    }

    /// Adds bytes of the append that was begun.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.builder.write(bytes);
        let buffered = self.builder.buffered().len();
        // What is written past the cache has to end between two blocks.
        if buffered >= COPY_BYTES {
            self.drain(buffered - buffered % BLOCK_BYTES as usize)
        } else {
            Ok(())
        }
    }

    /// Begins to write the first `count` of the buffered bytes.
    fn drain(&mut self, count: usize) -> io::Result<()> {
        let memory = self.behind.memory()?;
        let bytes = self.builder.take(count, memory);
        self.begin(bytes);
        Ok(())
    }

    /// Makes the chunk durable under its name; `None` if it has no run, then no file is left.
    ///
    /// # Errors
    /// Any error of the underlying disk. A file may have the chunk's name then, which nobody needs: the next try has
    /// another name.
    pub(crate) fn finish(mut self, disk: &dyn Disk) -> io::Result<Option<WrittenChunk>> {
        let Some(header) = self.write_pages()? else {
            disk.remove(&self.name.dir.join(WRITING_NAME))?;
            return Ok(None);
        };
        self.file.sync_all()?;
        let (path, seq) = (self.name.path(), self.name.seq());
        disk.rename(&self.name.dir.join(WRITING_NAME), &path)?;
        disk.sync_dir(&self.name.dir)?;
        Ok(Some(WrittenChunk { header, seq, file: self.file, path }))
    }

    /// The whole file, and its length; `None` if it has no run.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn finish_nameless(mut self) -> io::Result<Option<(Arc<dyn File>, u64)>> {
        let header = self.write_pages()?;
        Ok(header.map(|header| (self.file, header.layout().file_bytes())))
    }

    /// Writes all that is not written yet, the header last.
    fn write_pages(&mut self) -> io::Result<Option<ChunkHeader>> {
        let Some(pages) = self.builder.finish(self.name.identity) else { return Ok(None) };
        self.drain(self.builder.buffered().len())?;
        let header = pages.header;
        let mut buffer = Vec::with_capacity(COPY_BYTES);
        for page in pages.tail() {
            buffer.extend_from_slice(&page);
            if buffer.len() >= COPY_BYTES {
                let memory = self.behind.memory()?;
                self.begin(std::mem::replace(&mut buffer, memory));
            }
        }
        assert_eq!(self.written + buffer.len() as u64, header.layout().footer_position());
        buffer.extend_from_slice(&pages.footer());
        self.begin(buffer);
        self.behind.end()?;
        self.file.write_at(&pages.front(), 0)?;
        Ok(Some(header))
    }

    fn begin(&mut self, bytes: Vec<u8>) {
        let position = self.written;
        self.written += bytes.len() as u64;
        self.behind.begin(bytes, position);
    }
}

/// A chunk file that has just become durable.
#[derive(Debug)]
pub(crate) struct WrittenChunk {
    pub(crate) header: ChunkHeader,
    pub(crate) seq: u64,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
}

/// Removes what a crash left half-written.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn remove_half_written(disk: &dyn Disk, dir: &Path, names: &[String]) -> io::Result<()> {
    let is_left = |name: &&String| *name == WRITING_NAME || name.ends_with(NAMELESS_SUFFIX);
    names.iter().filter(is_left).try_for_each(|name| remove_unneeded(disk, &dir.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::builder::tests::{IDENTITY, wanted, write_all};
    use env::{MemoryDisk, RealDisk};

    fn write(disk: &MemoryDisk, runs: u64) -> Option<WrittenChunk> {
        let dir = PathBuf::from("/c");
        disk.create_dir_all(&dir).unwrap();
        let name = ChunkName { dir, identity: IDENTITY };
        let mut writer = ChunkWriter::create(disk, name).unwrap();
        write_all(&wanted(runs, 12), &mut writer);
        writer.finish(disk).unwrap()
    }

    #[test]
    fn the_file_has_the_bytes_that_the_builder_makes() {
        let disk = MemoryDisk::new();
        let chunk = write(&disk, 3).unwrap();
        let mut bytes = vec![0; chunk.file.len().unwrap() as usize];
        chunk.file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == include_bytes!("../../testdata/chunk.golden"));
        assert_eq!(disk.paths(), [PathBuf::from("/c/0000000000000009.chunk")]);
    }

    #[test]
    fn past_the_cache_it_has_the_same_bytes() {
        let dir = PathBuf::from(format!("/tmp/thalweg-uncached-{}", std::process::id()));
        RealDisk.create_dir_all(&dir).unwrap();
        let name = ChunkName { dir: dir.clone(), identity: IDENTITY };
        let mut writer =
            ChunkWriter::create(&RealDisk, name).unwrap().uncached(&RealDisk, BEHIND_BYTES_MIN);
        let runs = 30_000;
        write_all(&wanted(runs, 12), &mut writer);
        let uncached = writer.finish(&RealDisk).unwrap().unwrap();
        let usual = write(&MemoryDisk::new(), runs).unwrap();
        RealDisk.remove(&uncached.path).unwrap();
        RealDisk.remove_dir(&dir).unwrap();
        let [uncached, usual] = [uncached, usual].map(|chunk| {
            let mut bytes = vec![0; chunk.file.len().unwrap() as usize];
            chunk.file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        });
        assert!(usual.len() > 2 * COPY_BYTES, "it is written in several steps");
        assert!(uncached == usual);
    }

    #[test]
    fn a_chunk_without_data_is_no_file() {
        let disk = MemoryDisk::new();
        assert!(write(&disk, 0).is_none());
        assert!(disk.paths().is_empty());
    }
}
