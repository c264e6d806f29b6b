//! Chunks that merges leave as they are, because a part of them is damaged.
//!
//! # Why
//! A merge cannot copy what it cannot read, and its chunk would replace all chunks whose range is within its own.
//! So a damaged chunk is no source of a merge, and no merge goes across it: its bytes may still be worth something
//! to an operator. All other chunks of the group are merged as ever.
//!
//! # Invariants
//! - A chunk with lost rows is held until an operator accepts the loss: nobody knows whose rows they were.
//! - A chunk with a damaged run is tried again when half of what it had has died since, for the run may be dead.

use crate::chunk::file::ChunkFile;
use crate::id_map::IdMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The damaged chunks of a group.
#[derive(Debug, Default)]
pub(crate) struct HeldChunks {
    /// By number.
    held: IdMap<u64, Held>,
    /// Files whose headers cannot be read: their ranges are not known.
    pub(crate) unreadable: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
enum Held {
    /// Rows are lost.
    Rows,
    /// A run is damaged; what of the chunk was alive when that was found.
    Run { live_bytes: u64 },
}

impl HeldChunks {
    /// How many chunks are held, unreadable files included.
    pub(crate) fn count(&self) -> u64 {
        (self.held.len() + self.unreadable.len()) as u64
    }

    /// Holds a chunk whose rows are lost.
    pub(crate) fn hold_rows(&mut self, seq: u64) {
        self.held.insert(seq, Held::Rows);
    }

    /// Holds a chunk with a damaged run, of which so much is alive.
    pub(crate) fn hold_run(&mut self, seq: u64, live_bytes: u64) {
        let held = self.held.entry(seq).or_insert(Held::Run { live_bytes });
        if let Held::Run { live_bytes: known } = held {
            *known = live_bytes;
        }
    }

    /// A chunk is gone.
    pub(crate) fn forget(&mut self, seq: u64) {
        self.held.remove(&seq);
    }

    /// Whether a chunk of which so much is alive may be copied alone.
    pub(crate) fn may_copy(&self, seq: u64, live_bytes: u64) -> bool {
        match self.held.get(&seq) {
            None => true,
            Some(Held::Rows) => false,
            Some(Held::Run { live_bytes: then }) => live_bytes < *then && live_bytes * 2 <= *then,
        }
    }

    /// The chunks among `files`, which are in order, that may be merged with each other: runs of neighbours without a
    /// held one. Where a file cannot be read, its range may be wherever something is missing between two others.
    pub(crate) fn neighbourhoods(&self, files: &[Arc<ChunkFile>]) -> Vec<Range<usize>> {
        let (mut found, mut start, mut covered) = (Vec::new(), 0, 0);
        for (index, file) in files.iter().enumerate() {
            let is_held = self.held.contains_key(&file.seq);
            let is_gap = !self.unreadable.is_empty() && file.header.from > covered;
            if is_held || is_gap {
                found.push(start..index);
                start = index + usize::from(is_held);
            }
            covered = file.header.to.max(covered);
        }
        found.push(start..files.len());
        found.retain(|range| range.len() > 1);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::set::tests::chunk;

    /// Chunks of ten entries each, of which those between 20 and 30 are in none.
    fn files() -> Vec<Arc<ChunkFile>> {
        [0, 10, 30, 40, 50].map(|from| chunk(from, 10)).to_vec()
    }

    #[test]
    fn merges_stop_at_a_held_chunk_and_where_a_file_cannot_be_read() {
        let files = files();
        let mut held = HeldChunks::default();
        assert_eq!(held.neighbourhoods(&files), vec![0..5]);
        held.hold_rows(40);
        assert_eq!(held.neighbourhoods(&files), vec![0..3]);
        held.unreadable = vec!["lost.chunk".into()];
        assert_eq!(held.neighbourhoods(&files), vec![0..2]);
        held.forget(40);
        assert_eq!(held.neighbourhoods(&files), vec![0..2, 2..5]);
        assert_eq!(held.count(), 1);
    }

    #[test]
    fn a_chunk_with_a_damaged_run_is_tried_again_when_half_of_it_has_died() {
        let mut held = HeldChunks::default();
        held.hold_run(7, 100);
        assert!(!held.may_copy(7, 100) && !held.may_copy(7, 51));
        assert!(held.may_copy(7, 50) && held.may_copy(8, 100));
        held.hold_run(7, 50);
        assert!(!held.may_copy(7, 26) && held.may_copy(7, 25) && held.may_copy(7, 0));
        held.hold_run(7, 0);
        assert!(!held.may_copy(7, 0), "what is dead was copied, and more is damaged");
        held.hold_rows(7);
        held.hold_run(7, 90);
        assert!(!held.may_copy(7, 0), "whose rows are lost is not known");
    }
}
