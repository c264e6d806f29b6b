//! The bare disk: what a write and its `fdatasync` take without any server.

use crate::latency::Latencies;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

pub(crate) const BLOCK_BYTES: usize = 4096;

/// Writes go round a file of about this size.
const FILE_BYTES: usize = 32 << 20;
const PLACES_MAX: usize = 200;

/// A file whose blocks have all been written once, as those of a log that uses its segments again: a
/// sync then has no block to allocate. It has no name: however this program ends, nothing stays of it.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    file: File,
    /// What each write writes: whole blocks.
    block: Vec<u8>,
    file_bytes: u64,
    written: u64,
    /// Where the next bytes go.
    next: u64,
}

impl WrittenFile {
    /// A file below `dir` for writes of `bytes`, rounded up to whole blocks.
    pub(crate) fn make(dir: &Path, bytes: usize) -> Result<Self> {
        let block = vec![7; bytes.next_multiple_of(BLOCK_BYTES)];
        let places = (FILE_BYTES / block.len()).clamp(4, PLACES_MAX) as u64;
        let path = dir.join(format!("thalweg-bench-disk-{}", std::process::id()));
        let mut open = File::options();
        let file = open.read(true).write(true).create(true).truncate(true).open(&path)?;
        std::fs::remove_file(&path)?;
        for place in 0..places {
            file.write_all_at(&vec![0; block.len()], place * block.len() as u64)?;
        }
        file.sync_all()?;
        let file_bytes = places * block.len() as u64;
        Ok(Self { file, block, file_bytes, written: 0, next: 0 })
    }

    /// Writes and syncs `count` times, one after the other.
    pub(crate) fn write(&mut self, count: u64, latencies: &mut Latencies) -> Result<()> {
        for _ in 0..count {
            let start = Instant::now();
            self.write_one()?;
            latencies.record(start.elapsed());
        }
        Ok(())
    }

    /// Writes and syncs the next blocks.
    pub(crate) fn write_one(&mut self) -> Result<()> {
        // No two writes are alike.
        self.block[..8].copy_from_slice(&self.written.to_le_bytes());
        self.written += 1;
        let at = self.take_place(self.block.len());
        self.file.write_all_at(&self.block, at)?;
        self.file.sync_data()
    }

    /// Writes `bytes` and zeroes up to whole blocks behind what was written last, and syncs.
    ///
    /// # Panics
    /// If they are longer than the file.
    pub(crate) fn write_bytes(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let at = self.take_place(bytes.len());
        self.file.write_all_at(bytes, at)?;
        self.file.sync_data()
    }

    /// The place of the next `length` bytes: behind the last ones, or at the beginning.
    fn take_place(&mut self, length: usize) -> u64 {
        let (length, file_bytes) = (length as u64, self.file_bytes);
        assert!(length <= file_bytes, "{length} bytes for a file of {file_bytes}");
        let at = if self.next + length > file_bytes { 0 } else { self.next };
        self.next = at + length;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_stay_in_what_was_written() {
        let mut file = WrittenFile::make(&std::env::temp_dir(), 5000).unwrap();
        let length = file.file.metadata().unwrap().len();
        assert_eq!((length, file.block.len()), (200 * 8192, 8192));
        let mut latencies = Latencies::new();
        file.write(203, &mut latencies).unwrap();
        assert_eq!(latencies.count(), 203);
        assert_eq!(file.file.metadata().unwrap().len(), length);
        let mut file = WrittenFile::make(&std::env::temp_dir(), 5000).unwrap();
        for turn in 0..5 {
            let mut bytes = vec![turn; 500_000];
            file.write_bytes(&mut bytes).unwrap();
            let mut found = vec![1; 503_808];
            // The fourth does not fit behind the third.
            let at = [0, 503_808, 1_007_616, 0, 503_808][usize::from(turn)];
            file.file.read_exact_at(&mut found, at).unwrap();
            assert_eq!(found, bytes);
        }
        assert_eq!(file.file.metadata().unwrap().len(), length);
    }
}
