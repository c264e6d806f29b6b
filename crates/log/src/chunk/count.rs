//! Counts how much of each chunk has died since the last count.
//!
//! # Why
//! A trim or a delete must not look into hundreds of chunks on the loop. Here they are counted together, on a
//! thread that may wait: a filter answers for most chunks, and one page of rows for the others.

use crate::chunk::file::ChunkFile;
use crate::chunk::floors::{GONE, Rise};
use crate::chunk::list::ChunkList;
use crate::chunk::lookup::rows_of;
use crate::chunk::row::Row;
use crate::read::ReadMode;
use model::GroupId;
use std::io;
use std::sync::Arc;

/// Floors that rose, and the chunks in which bytes died of it.
#[derive(Debug)]
pub(crate) struct CountTask {
    pub(crate) group: GroupId,
    pub(crate) chunks: Arc<ChunkList>,
    pub(crate) rises: Vec<Rise>,
}

/// What has died.
#[derive(Debug, Default)]
pub(crate) struct CountDone {
    /// By chunk number: bytes.
    pub(crate) dead: Vec<(u64, u64)>,
    /// Rows of each stream that is gone.
    pub(crate) gone_rows: Vec<(u64, u32)>,
}

impl Row {
    /// Bytes of the run before a floor.
    pub(crate) fn dead_bytes(&self, floor: u64) -> u64 {
        floor.saturating_sub(self.start).min(u64::from(self.length))
    }
}

impl CountTask {
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn run(&self) -> io::Result<CountDone> {
        let mut done = CountDone::default();
        let mut gone_rows = vec![0; self.rises.len()];
        for file in self.chunks.files() {
            let dead_bytes = self.count_in(file, &mut gone_rows)?;
            if dead_bytes > 0 {
                done.dead.push((file.seq, dead_bytes));
            }
        }
        let counted = self.rises.iter().zip(gone_rows);
        let gone = counted.filter(|(rise, _)| rise.to == GONE);
        done.gone_rows = gone.map(|(rise, rows)| (rise.stream, rows)).collect();
        Ok(done)
    }

    fn count_in(&self, file: &ChunkFile, gone_rows: &mut [u32]) -> io::Result<u64> {
        let mut dead_bytes = 0;
        for (rise, rows) in self.rises.iter().zip(gone_rows) {
            let count = |row: Row| {
                dead_bytes += row.dead_bytes(rise.to) - row.dead_bytes(rise.from);
                *rows += 1;
            };
            rows_of(&file.pages(ReadMode::Blocking), rise.stream, count, |_| ())?;
        }
        Ok(dead_bytes)
    }
}
