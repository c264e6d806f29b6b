//! What a replica says that it has, before it gets a snapshot.

use crate::chunk::floors::{FloorsThen, floor_then};
use crate::chunk::list::ChunkList;
use crate::shard::ShardLog;
use crate::snapshot::coverage::Coverage;
use crate::store::Store;
use model::{ByteOffset, EntryIndex, GroupId, StreamId};
use std::io;
use std::sync::Arc;

/// Up to where a replica has each stream in chunks. What is only in its WAL does not count: that goes when a snapshot comes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tails {
    /// No chunk names a later entry. A chunk that comes and names an earlier one would take the place of those that do, and lack what they have.
    pub sealed: EntryIndex,
    /// In order of the streams. Others it does not have.
    pub streams: Vec<(StreamId, ByteOffset)>,
}

impl Tails {
    /// Where what a replica lacks of a stream begins.
    pub(crate) fn of(&self, stream: u64) -> u64 {
        let found = self.streams.binary_search_by_key(&stream, |(stream, _)| stream.get());
        found.map_or(0, |at| self.streams[at].1.get())
    }
}

/// Looks at the rows of all chunks of a group. Run it on a thread that may wait for the disk.
#[derive(Debug)]
#[must_use = "nothing is read before it is run"]
pub struct TailsJob {
    /// With the lock of the directory.
    _store: Store,
    sealed: u64,
    chunks: Arc<ChunkList>,
    floors: FloorsThen,
    /// What begins behind the floor of its stream is not known to be all that is kept of it.
    may_lack_beginnings: bool,
}

impl ShardLog {
    /// What this replica has of a group.
    ///
    /// # Panics
    /// If the group belongs to another shard.
    pub fn tails(&mut self, group: GroupId) -> TailsJob {
        let store = self.store.clone();
        let group = self.group_mut(group);
        let (chunks, floors) = group.chunks.now();
        let may_lack_beginnings = group.sifting.is_some();
        // A start finds entries in the log that a merge has left out of the chunks.
        let sealed = group.sealed().max(group.chunks.covered());
        TailsJob { _store: store, sealed, chunks, floors, may_lack_beginnings }
    }
}

impl TailsJob {
    /// A stream's tail is where the first gap begins, so what damage has cost comes again. Where a chunk has lost rows,
    /// nobody knows what it holds: then the replica has nothing.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub fn run(self) -> io::Result<Tails> {
        let mut coverage = Coverage::default();
        for chunk in self.chunks.files() {
            let is_kept = |stream, end| end > floor_then(&self.floors, stream);
            if coverage.add(chunk, |row| is_kept(row.stream, row.end()))?.is_some() {
                return Ok(Tails::default());
            }
        }
        coverage.sort();
        let tail = |(stream, first): (u64, u64)| {
            let floor = floor_then(&self.floors, stream);
            let from = if self.may_lack_beginnings { floor } else { floor.max(first) };
            (StreamId::new(stream), ByteOffset::new(coverage.end_from(stream, from)))
        };
        let streams = coverage.streams().map(tail).collect();
        Ok(Tails { sealed: EntryIndex::new(self.sealed), streams })
    }
}
