//! The chunks of one group: which holds a byte, what in them is dead, which to merge.
//!
//! # Why
//! There is no index per stream. Rows of a chunk are sorted, so a lookup is one binary search per chunk
//! of the group. An idle stream costs nothing but its rows (32 bytes each).
//!
//! # Invariants
//! - Chunks are sorted by the entries they cover.
//! - `dead_bytes <= data bytes` of each chunk.
//! - Nothing is merged or removed in a group with a damaged chunk: it might be repaired, and a merge
//!   across it would replace it.

use crate::chunk::copy::MergeSource;
use crate::chunk::file::ChunkFile;
use crate::chunk::format::ChunkRow;
use crate::id_map::IdMap;
use crate::options::{LogOptions, MERGE_CHUNKS_MAX, MERGE_CHUNKS_MIN};
use std::sync::Arc;

#[derive(Debug)]
struct SetChunk {
    file: Arc<ChunkFile>,
    data_bytes: u64,
    /// Dead bytes at the front of rows, by row index.
    dead: IdMap<u32, u32>,
    dead_bytes: u64,
}

impl SetChunk {
    fn new(file: Arc<ChunkFile>) -> Self {
        let data_bytes = file.data_bytes();
        Self { file, data_bytes, dead: IdMap::default(), dead_bytes: 0 }
    }

    fn is_dead(&self, row: usize) -> bool {
        let length = self.file.rows[row].length;
        u32::try_from(row).is_ok_and(|row| self.dead.get(&row) == Some(&length))
    }

    /// Marks what lies before `head` in the rows of `stream` as dead.
    fn trim(&mut self, stream: u64, head: u64) {
        for index in self.file.rows_of(stream) {
            let row = &self.file.rows[index];
            let dead = head.saturating_sub(row.start).min(u64::from(row.length)) as u32;
            let number = u32::try_from(index).expect("rows are counted in 32 bits");
            let before = self.dead.get(&number).copied().unwrap_or(0);
            if dead > before {
                self.dead.insert(number, dead);
                self.dead_bytes += u64::from(dead - before);
            }
        }
        assert!(self.dead_bytes <= self.data_bytes);
    }

    fn live_rows_of(&self, stream: u64) -> impl Iterator<Item = &ChunkRow> {
        let rows = self.file.rows_of(stream);
        rows.filter(|&row| !self.is_dead(row)).map(|row| &self.file.rows[row])
    }

    /// More than half of it is dead.
    fn is_wasteful(&self) -> bool {
        self.dead_bytes * 2 > self.data_bytes
    }
}

/// The chunks of one group.
#[derive(Debug, Default)]
pub(crate) struct ChunkSet {
    chunks: Vec<SetChunk>,
    seq_next: u64,
    has_damaged: bool,
}

/// Chunks to copy into one.
#[derive(Debug)]
pub(crate) struct MergePlan {
    pub(crate) sources: Vec<MergeSource>,
    /// Whether it gives back more space than it takes.
    pub(crate) saves: bool,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl ChunkSet {
    /// A set whose next chunk gets the number `seq_next`.
    pub(crate) fn new(seq_next: u64, has_damaged: bool) -> Self {
        Self { chunks: Vec::new(), seq_next, has_damaged }
    }

    /// Asserts what always holds: the order of chunks, their numbers, and how much of them is dead.
    pub(crate) fn check(&self) {
        let order = |chunk: &SetChunk| (chunk.file.header.from, chunk.file.header.seq);
        assert!(self.chunks.is_sorted_by_key(order), "chunks are sorted by what they cover");
        for chunk in &self.chunks {
            let header = &chunk.file.header;
            assert!(
                header.seq < self.seq_next,
                "chunk {} has the number of a later one",
                header.seq
            );
            assert!(header.from <= header.to, "chunk {} covers no range", header.seq);
            assert!(
                chunk.dead_bytes <= chunk.data_bytes,
                "chunk {}: more dead than data",
                header.seq
            );
        }
    }

    /// A number that no chunk has had.
    pub(crate) fn take_seq(&mut self) -> u64 {
        self.seq_next += 1;
        self.seq_next - 1
    }

    /// Adds a chunk.
    pub(crate) fn add(&mut self, file: Arc<ChunkFile>) {
        let chunk = SetChunk::new(file);
        let order = |chunk: &SetChunk| (chunk.file.header.from, chunk.file.header.seq);
        let place = self.chunks.partition_point(|other| order(other) < order(&chunk));
        self.chunks.insert(place, chunk);
    }

    /// Leaves all files as they are from now on: one of them is damaged.
    pub(crate) fn forbid_merges(&mut self) {
        self.has_damaged = true;
    }

    /// Drops chunks that a merge has replaced.
    pub(crate) fn remove(&mut self, seqs: &[u64]) {
        self.chunks.retain(|chunk| !seqs.contains(&chunk.file.header.seq));
    }

    /// The last entry that a chunk covers.
    pub(crate) fn covered(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.file.header.to).max().unwrap_or(0)
    }

    /// The live row that contains byte `at` of `stream`.
    pub(crate) fn find(&self, stream: u64, at: u64) -> Option<(&Arc<ChunkFile>, &ChunkRow)> {
        self.chunks.iter().rev().find_map(|chunk| {
            let row = chunk.file.find(stream, at)?;
            let is_live = chunk.live_rows_of(stream).any(|live| live.start == row.start);
            is_live.then_some((&chunk.file, row))
        })
    }

    /// The first live row of `stream` that starts at `at` or later.
    pub(crate) fn next_row(&self, stream: u64, at: u64) -> Option<(&ChunkFile, &ChunkRow)> {
        let rows = self.chunks.iter().flat_map(|chunk| {
            let rows = chunk.live_rows_of(stream);
            rows.map(|row| (&*chunk.file, row))
        });
        rows.filter(|(_, row)| row.start >= at).min_by_key(|(_, row)| row.start)
    }

    /// Offset after the last live byte of `stream`.
    pub(crate) fn tail(&self, stream: u64) -> Option<u64> {
        let rows = self.chunks.iter().flat_map(|chunk| chunk.live_rows_of(stream));
        rows.map(ChunkRow::end).max()
    }

    /// Marks everything of a stream before `head` as dead; `u64::MAX` for a deleted stream.
    pub(crate) fn trim(&mut self, stream: u64, head: u64) {
        for chunk in &mut self.chunks {
            chunk.trim(stream, head);
        }
    }

    /// Every stream with a row, each once and in order.
    pub(crate) fn streams(&self) -> Vec<u64> {
        let rows = self.chunks.iter().flat_map(|chunk| &chunk.file.rows);
        let mut streams: Vec<u64> = rows.map(|row| row.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// Chunks that are better copied: one that is mostly dead, or small neighbours.
    pub(crate) fn plan_merge(&self, options: &LogOptions) -> Option<MergePlan> {
        if self.has_damaged {
            return None;
        }
        let chunks = self.chunks.iter().enumerate();
        // The cheapest first: on a full disk it makes room for the next.
        let wasteful = chunks
            .filter(|(_, chunk)| chunk.is_wasteful())
            .min_by_key(|(_, chunk)| chunk.data_bytes - chunk.dead_bytes);
        let range = wasteful.map(|(index, _)| index..index + 1);
        Some(self.plan(range.or_else(|| self.small_neighbours(options))?))
    }

    /// Neighbours of like size: sizes grow fourfold from class to class, so that each byte is copied
    /// a few times only.
    fn small_neighbours(&self, options: &LogOptions) -> Option<std::ops::Range<usize>> {
        let mut size_max = options.seal_bytes.saturating_mul(2);
        while size_max <= options.chunk_bytes_max {
            let mut start = 0;
            while start < self.chunks.len() {
                let (mut end, mut bytes) = (start, 0);
                while let Some(chunk) = self.chunks.get(end)
                    && chunk.data_bytes <= size_max
                    && bytes + chunk.data_bytes <= options.chunk_bytes_max
                    && end - start < MERGE_CHUNKS_MAX
                {
                    bytes += chunk.data_bytes;
                    end += 1;
                }
                if end - start >= MERGE_CHUNKS_MIN {
                    return Some(start..end);
                }
                start = end.max(start + 1);
            }
            size_max = size_max.saturating_mul(4);
        }
        None
    }

    fn plan(&self, range: std::ops::Range<usize>) -> MergePlan {
        let chunks = &self.chunks[range];
        let source = |chunk: &SetChunk| {
            let dead = chunk.dead.keys().filter(|&&row| chunk.is_dead(row as usize));
            MergeSource { chunk: Arc::clone(&chunk.file), dead_rows: dead.copied().collect() }
        };
        let headers = || chunks.iter().map(|chunk| chunk.file.header);
        MergePlan {
            sources: chunks.iter().map(source).collect(),
            saves: chunks.iter().any(SetChunk::is_wasteful),
            from: headers().map(|header| header.from).min().expect("a plan has a chunk"),
            to: headers().map(|header| header.to).max().expect("a plan has a chunk"),
        }
    }

    /// Number of chunks, bytes of data, and how many of these are dead.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let sum = |bytes: fn(&SetChunk) -> u64| self.chunks.iter().map(bytes).sum();
        (self.chunks.len() as u64, sum(|chunk| chunk.data_bytes), sum(|chunk| chunk.dead_bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chunk::writer::{ChunkName, ChunkWriter};
    use crate::entry::AppendBounds;
    use env::{Disk, MemoryDisk};
    use model::{ByteOffset, Timestamp};
    use std::path::Path;

    /// A chunk of the entries from `from` on, with one append of `length` bytes of stream 1.
    pub(crate) fn chunk(from: u64, length: u64) -> Arc<ChunkFile> {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new("/c")).unwrap();
        let (store, group, seq, to) = (77, 3, from, from + 10);
        let name = ChunkName { store, group, dir: "/c".into(), seq, from, to };
        let mut writer = ChunkWriter::create(&disk, name).unwrap();
        let (start, end) = (ByteOffset::new(from), ByteOffset::new(from + length));
        let append = AppendBounds { start, end, records: 1, at: Timestamp::new(1) };
        writer.begin_append(1, &append).unwrap();
        writer.write(&vec![b'x'; length as usize]).unwrap();
        Arc::new(ChunkFile::new(writer.finish(&disk).unwrap().unwrap()))
    }

    #[test]
    fn chunks_stand_in_the_order_of_their_entries_however_they_come() {
        let mut set = ChunkSet::new(100, false);
        for from in [20, 0, 30, 10] {
            set.add(chunk(from, 10));
        }
        let froms: Vec<u64> = set.chunks.iter().map(|chunk| chunk.file.header.from).collect();
        assert_eq!(froms, [0, 10, 20, 30]);
    }

    #[test]
    fn the_wasteful_chunk_with_the_least_live_data_is_copied_first() {
        let mut set = ChunkSet::new(100, false);
        set.add(chunk(0, 300));
        set.add(chunk(1_000, 1_000));
        set.chunks[0].trim(1, 180);
        set.chunks[1].trim(1, 1_900);
        let plan = set.plan_merge(&LogOptions::default()).unwrap();
        assert_eq!((plan.from, plan.to, plan.saves), (1_000, 1_010, true));
    }
}
