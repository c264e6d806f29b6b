//! WAL.
use bytes::Bytes;
use model::*;
/// Why an entry was not taken. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendError {
    /// There is no room on the disk. Retry after background work made some.
    DiskFull,
    /// A write or sync failed: the shard takes nothing any more.
    Poisoned,
    /// Call `poll_commit` and `poll_work`, hand their results back, then retry.
    Backpressure,
}
/// Proof.
#[derive(Debug, PartialEq, Eq)]
pub struct Durable { upto: u64 }
impl Durable {
    /// batch.
    pub fn batch(&self) -> u64 { self.upto }
}
/// One write and one sync.
#[derive(Debug)]
#[must_use = "a job that is not run stalls its shard"]
pub struct CommitJob {}
impl CommitJob {
    /// Writes and syncs; blocks.
    pub fn run(self) -> CommitDone { unimplemented!() }
}
/// Result of a [`CommitJob`].
#[derive(Debug)]
pub struct CommitDone {}
/// The shard is poisoned.
#[derive(Debug)]
pub struct CommitFailed {
    /// What the disk said.
    pub error: std::io::Error,
}
/// Durable entries.
#[derive(Debug)]
pub struct CommittedBatch {}
impl CommittedBatch {
    /// The proof.
    pub fn durable(&self) -> &Durable { unimplemented!() }
    /// Number of entries; 0 for a durable mark.
    pub fn len(&self) -> usize { unimplemented!() }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool { self.len() == 0 }
    /// The entries in the order of their appends.
    pub fn entries(&self) -> impl Iterator<Item = CommittedEntry> + '_ { std::iter::empty() }
}
/// One durable entry.
#[derive(Debug, Clone)]
pub struct CommittedEntry {
    /// The group that it belongs to.
    pub group: GroupId,
    /// Its position in the group's log.
    pub index: EntryIndex,
    /// Raft term under which it was written.
    pub term: Term,
    /// The stream that the command is about.
    pub stream: StreamId,
    /// Wall-clock time for `apply`.
    pub at: Timestamp,
    /// Tag of the command.
    pub kind: u8,
    /// The encoded command.
    pub command: Bytes,
    /// The data.
    pub data: Bytes,
}
