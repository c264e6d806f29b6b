//! Which chunks of a group to copy into one.
//!
//! # Why
//! Each chunk costs a look for each byte that is looked for, and a descriptor while it is read. So there should be few.
//! But each merge copies what it joins, so a byte should not be copied often.
//!
//! # Invariants
//! - A byte is copied into a chunk that is at least four times as large as its own, or twice as large for its last merge.
//! - No merge goes across a chunk that is held.

use crate::chunk::file::ChunkFile;
use crate::options::{LogOptions, MERGE_CHUNKS_MAX, MERGE_CHUNKS_MIN, MERGE_ROWS_MAX};
use std::ops::Range;
use std::sync::Arc;

/// How much larger than its largest source a chunk is, at least.
const GROWTH: u64 = 4;

/// The same of one that is as large as it may be.
const LAST_GROWTH: u64 = 2;

/// Whether two such chunks fit one: of neighbours that are merged, all but one are small.
pub(crate) fn is_small(file: &ChunkFile, options: &LogOptions) -> bool {
    file.header.data_bytes <= options.chunk_bytes_max / 2
}

/// Neighbours that may be merged with each other.
pub(crate) struct Neighbours<'a> {
    pub(crate) files: &'a [Arc<ChunkFile>],
    pub(crate) options: &'a LogOptions,
}

/// Neighbours from a first one on that fit one chunk.
struct Fit {
    end: usize,
    /// Whether the next one does not fit.
    is_full: bool,
    bytes: u64,
    largest_bytes: u64,
}

impl Neighbours<'_> {
    /// The best merge, if one is worth it.
    pub(crate) fn merge(&self) -> Option<Range<usize>> {
        self.full_chunk().or_else(|| self.of_like_size())
    }

    /// Neighbours that make a chunk which is as large as it may be. They may be few: it is their last merge.
    fn full_chunk(&self) -> Option<Range<usize>> {
        (0..self.files.len()).find_map(|start| {
            let fit = self.fit(start, u64::MAX);
            let is_worth_it = fit.is_full && fit.bytes >= LAST_GROWTH * fit.largest_bytes;
            (fit.end - start > 1 && is_worth_it).then_some(start..fit.end)
        })
    }

    /// Neighbours of like size: sizes grow fourfold from class to class, so that each byte is copied
    /// a few times only.
    fn of_like_size(&self) -> Option<Range<usize>> {
        let mut size_max = self.options.seal_bytes.saturating_mul(2);
        while size_max <= self.options.chunk_bytes_max {
            let found = (0..self.files.len()).find_map(|start| {
                let fit = self.fit(start, size_max);
                let is_worth_it = fit.bytes >= GROWTH * fit.largest_bytes;
                let is_enough = fit.end - start >= MERGE_CHUNKS_MIN;
                (is_enough && is_worth_it).then_some(start..fit.end)
            });
            if found.is_some() {
                return found;
            }
            size_max = size_max.saturating_mul(GROWTH);
        }
        None
    }

    /// The neighbours from `start` on with at most `size_max` bytes each that fit one chunk.
    fn fit(&self, start: usize, size_max: u64) -> Fit {
        let (mut bytes, mut rows, mut largest_bytes, mut end) = (0, 0, 0, start);
        while let Some(file) = self.files.get(end).filter(|_| end - start < MERGE_CHUNKS_MAX) {
            let (data_bytes, row_count) =
                (file.header.data_bytes, u64::from(file.header.row_count));
            if bytes + data_bytes > self.options.chunk_bytes_max
                || rows + row_count > MERGE_ROWS_MAX
            {
                return Fit { end, is_full: true, bytes, largest_bytes };
            }
            if data_bytes > size_max {
                break;
            }
            (bytes, rows, end) = (bytes + data_bytes, rows + row_count, end + 1);
            largest_bytes = data_bytes.max(largest_bytes);
        }
        Fit { end, is_full: false, bytes, largest_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::set::tests::chunk;

    const MIB: u64 = 1 << 20;

    /// Neighbours of so many bytes and rows each.
    fn files(sizes: &[(u64, u64)]) -> Vec<Arc<ChunkFile>> {
        let file = |(place, &(bytes, rows)): (usize, &(u64, u64))| {
            let mut file = chunk(place as u64 * 10, 10);
            let header = &mut Arc::get_mut(&mut file).unwrap().header;
            (header.data_bytes, header.row_count) = (bytes, u32::try_from(rows).unwrap());
            file
        };
        sizes.iter().enumerate().map(file).collect()
    }

    fn merge(files: &[Arc<ChunkFile>]) -> Option<Range<usize>> {
        Neighbours { files, options: &LogOptions::default() }.merge()
    }

    /// How many of `chunks` neighbours of `rows` rows each are merged.
    fn merged(chunks: usize, rows: u64) -> usize {
        merge(&files(&vec![(10, rows); chunks])).map_or(0, |range| range.len())
    }

    #[test]
    fn a_merge_takes_chunks_with_a_bounded_number_of_rows() {
        assert_eq!(merged(12, MERGE_ROWS_MAX / 12), 12);
        assert_eq!(merged(12, MERGE_ROWS_MAX / 12 + 1), 11);
        assert_eq!(merged(12, MERGE_ROWS_MAX / 8), 8);
        assert_eq!(merged(12, MERGE_ROWS_MAX / 8 + 1), 7, "more do not fit");
        assert_eq!(merged(7, 10), 0, "so few are not worth it while more fit");
        assert_eq!(merged(12, MERGE_ROWS_MAX), 0);
    }

    #[test]
    fn a_chunk_that_is_nearly_full_is_not_copied_for_a_small_one() {
        let sizes = |of: &[u64]| files(&of.iter().map(|mib| (mib * MIB, 1)).collect::<Vec<_>>());
        assert_eq!(merge(&sizes(&[130, 100, 30])), None);
        assert_eq!(merge(&sizes(&[100, 100, 60])), Some(0..2));
        assert_eq!(merge(&sizes(&[200, 40, 40, 40])), None);
        assert_eq!(merge(&sizes(&[250, 90, 90, 60, 30])), Some(1..4));
        let after = |first: u64| merge(&sizes(&[&[first], &[1; 8][..]].concat()));
        assert_eq!((after(2), after(3), after(40)), (Some(0..9), Some(1..9), Some(1..9)));
    }

    /// Seals of `seal` bytes that are merged as they come; the chunks in the end, and the bytes that merges wrote.
    fn history(seals: u64, seal: u64) -> (Vec<u64>, u64) {
        let (mut sizes, mut copied) = (Vec::new(), 0);
        for _ in 0..seals {
            sizes.push((seal, 100));
            while let Some(range) = merge(&files(&sizes)) {
                let bytes = sizes[range.clone()].iter().map(|(bytes, _)| bytes).sum();
                copied += bytes;
                sizes.splice(range, [(bytes, 100)]);
            }
        }
        (sizes.into_iter().map(|(bytes, _)| bytes).collect(), copied)
    }

    /// Ten gigabytes, in seals that exceed `seal_bytes` by a little, as they do. Chunks of 64 to 190 MiB came of it before: 54
    /// to 160 of them.
    #[test]
    fn merges_of_a_long_history_make_chunks_that_are_nearly_as_large_as_they_may_be() {
        for extra in [1, 4096, MIB, 3 * MIB] {
            let seal = 8 * MIB + extra;
            let seals = 10 * 1024 * MIB / seal;
            let (sizes, copied) = history(seals, seal);
            let full = sizes.iter().filter(|bytes| **bytes * 10 >= 256 * MIB * 9).count() as u64;
            assert!(full >= seals * seal / (256 * MIB) - 2, "{extra}: {full} of {}", sizes.len());
            assert!(sizes.len() <= 40 + 16, "{extra}: {} chunks", sizes.len());
            assert!(
                copied <= 2 * seals * seal,
                "each byte was copied {} times",
                copied / seals / seal
            );
        }
    }
}
