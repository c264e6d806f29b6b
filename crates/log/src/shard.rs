//! Shard.
use crate::*;
use model::*;
use std::path::Path;
/// One shard's log.
#[derive(Debug)]
pub struct ShardLog {}
/// Figures of one shard's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of WAL segments, spare ones included.
    pub wal_bytes: u64,
    /// Appends readable from the WAL.
    pub hot_appends: u64,
    /// Their data bytes.
    pub hot_bytes: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of chunk data.
    pub chunk_bytes: u64,
    /// Of these, bytes of deleted or trimmed data.
    pub dead_bytes: u64,
    /// Batches committed since the open.
    pub batches: u64,
    /// Entries committed since the open.
    pub entries: u64,
}
#[allow(unused_variables, missing_docs, reason = "x")]
impl ShardLog {
    /// Index the next entry of `group` will get.
    pub fn next_index(&self, group: GroupId) -> EntryIndex { unimplemented!() }
    pub fn append(&mut self, entry: NewEntry<'_>) -> Result<EntryIndex, AppendError> { unimplemented!() }
    /// Asks for a durable mark: after idling a while, and before a clean shutdown. Then poll_commit.
    pub fn mark_durable(&mut self) { unimplemented!() }
    pub fn poll_commit(&mut self) -> Option<CommitJob> { unimplemented!() }
    pub fn handle_commit(&mut self, done: CommitDone) -> Result<CommittedBatch, CommitFailed> { unimplemented!() }
    pub fn place(&mut self, entry: &CommittedEntry, placement: Placement) { unimplemented!() }
    pub fn applied(&mut self, group: GroupId, index: EntryIndex) { unimplemented!() }
    pub fn read(&self, key: StreamKey, from: ByteOffset, max_bytes: usize) -> Result<Slice, ReadError> { unimplemented!() }
    /// The append that contains byte `at`; `None` at the tail.
    pub fn append_at(&self, key: StreamKey, at: ByteOffset) -> Result<Option<AppendBounds>, ReadError> { unimplemented!() }
    /// End of the first append whose end is `at` or later; `None` if there is none.
    pub fn first_end_at_or_after(&self, key: StreamKey, at: ByteOffset) -> Result<Option<ByteOffset>, ReadError> { unimplemented!() }
    /// First append whose time is `at` or later.
    pub fn tail(&self, key: StreamKey) -> Option<ByteOffset> { unimplemented!() }
    pub fn forget(&mut self, key: StreamKey) { unimplemented!() }
    pub fn trim(&mut self, key: StreamKey, upto: ByteOffset) { unimplemented!() }
    pub fn wants_checkpoint(&mut self) -> Option<GroupId> { unimplemented!() }
    pub fn checkpoint(&mut self, group: GroupId, index: EntryIndex, header: Vec<u8>, rows: CheckpointRows) { unimplemented!() }
    pub fn poll_work(&mut self) -> Option<WorkJob> { unimplemented!() }
    pub fn handle_work(&mut self, done: WorkDone) -> WorkReport { unimplemented!() }
    pub fn stats(&self) -> LogStats { unimplemented!() }
    pub fn is_poisoned(&self) -> bool { unimplemented!() }
}
