//! A file that is written through a mapping if it can be mapped.
//!
//! # Why
//! A mapping is the page cache, too, without a system call, which costs ten times as much as all the
//! rest of an append. A page that cannot be read back from a broken disk ends the process (SIGBUS),
//! which loses nothing that was acknowledged. A simulated file is written by `write_pieces_at`.
//!
//! # Invariants
//! - The file has its full length before the first write: nothing is written behind its end.

use env::File;
use mmap_io::{MemoryMappedFile, MmapMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file: Arc<dyn File>,
    /// Made by the first write; `None` if the file cannot be mapped.
    mapping: OnceLock<Option<MemoryMappedFile>>,
}

impl MappedFile {
    pub(crate) fn new(path: &Path, file: Arc<dyn File>) -> Self {
        Self { path: path.to_owned(), file, mapping: OnceLock::new() }
    }

    fn mapping(&self) -> Option<&MemoryMappedFile> {
        let map = || {
            let owned = self.file.as_fd()?.try_clone_to_owned().ok()?;
            MemoryMappedFile::from_file(owned.into(), MmapMode::ReadWrite, &self.path).ok()
        };
        self.mapping.get_or_init(map).as_ref()
    }

    /// Writes `pieces` one after the other from `position`.
    ///
    /// # Errors
    /// As the file answers.
    pub(crate) fn write_pieces(&self, pieces: &[&[u8]], position: u64) -> io::Result<()> {
        let Some(mapping) = self.mapping() else {
            return self.file.write_pieces_at(pieces, position);
        };
        let mut at = position;
        for piece in pieces {
            mapping.update_region(at, piece).map_err(io::Error::other)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}
