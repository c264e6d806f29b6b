//! The log behind blocking calls, for a program that wants durable streams and no server.
//!
//! # Why
//! [`ShardLog`] is made for an event loop. Here one owner appends, waits, reads: each call runs the
//! jobs that it needs on the caller's thread. Streams are numbered by the caller.
//!
//! # Invariants
//! - An append that returned is on stable storage.
//! - Batches are atomic: all appends of a batch are one entry, or none of them is there.
//! - The state machine is small enough to see: per stream the tail and the head.

use crate::checkpoint_rows::{CheckpointRow, CheckpointRows};
use crate::codec::{bytes_at, u64_at};
use crate::damage::{Damage, DamageKind};
use crate::entry::{Entry, NewEntry, Placement};
use crate::options::LogOptions;
use crate::read::{ReadError, Slice};
use crate::recovery::{OpenError, Replay, open};
use crate::shard::ShardLog;
use crate::wal::{AppendError, DurableBatch, SyncFailed};
use bytes::Bytes;
use env::Disk;
use model::{ByteOffset, EntryIndex, GroupId, StreamId, StreamKey, Term, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

const GROUP: GroupId = GroupId::new(0);
const KIND_APPEND: u8 = 1;
const KIND_TRIM: u8 = 2;
/// Background jobs that one call runs at most before it gives up on the disk.
const JOBS_PER_CALL_MAX: usize = 64;

/// Why an embedded log refused a call.
#[derive(Debug)]
pub enum EmbeddedError {
    /// The entry was not taken; nothing has changed.
    Append(AppendError),
    /// The disk failed; the log takes nothing any more. Reopen it.
    Sync(SyncFailed),
    /// Background work failed; the next call tries again.
    Work(io::Error),
    /// There is no byte to return.
    Read(ReadError),
}

impl fmt::Display for EmbeddedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(error) => write!(f, "not appended: {error}"),
            Self::Sync(error) => write!(f, "{error}"),
            Self::Work(error) => write!(f, "background work failed: {error}"),
            Self::Read(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for EmbeddedError {}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StreamEnds {
    head: ByteOffset,
    tail: ByteOffset,
}

#[derive(Debug, Default)]
struct Streams {
    ends: BTreeMap<StreamId, StreamEnds>,
    damages: Vec<Damage>,
}

impl Streams {
    fn apply(
        &mut self,
        kind: u8,
        stream: StreamId,
        command: &[u8],
        bytes: u64,
    ) -> Option<Placement> {
        let ends = self.ends.entry(stream).or_default();
        if kind == KIND_TRIM && command.len() == 8 {
            ends.head = ByteOffset::new(u64_at(command, 0)).min(ends.tail).max(ends.head);
            return None;
        }
        let start = ends.tail;
        ends.tail = start.advance(bytes);
        Some(Placement { stream, start, records: 1 })
    }

    fn rows(&self) -> CheckpointRows {
        let mut rows = CheckpointRows::new();
        for (&stream, ends) in &self.ends {
            let mut row = [0; 16];
            row[..8].copy_from_slice(&ends.head.get().to_le_bytes());
            row[8..].copy_from_slice(&ends.tail.get().to_le_bytes());
            rows.push(stream, stream.get(), &row);
        }
        rows
    }
}

impl Replay for Streams {
    fn restore(
        &mut self,
        _group: GroupId,
        _applied: EntryIndex,
        _header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) {
        for row in rows.filter(|row| row.bytes.len() == 16) {
            let number =
                |position| ByteOffset::new(u64::from_le_bytes(bytes_at(row.bytes, position)));
            self.ends.insert(row.stream, StreamEnds { head: number(0), tail: number(8) });
        }
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Option<Placement> {
        self.apply(entry.kind, entry.stream, entry.command, entry.data.len() as u64)
    }

    fn damaged(&mut self, damage: &Damage) {
        // A lost append leaves a hole: what follows keeps its offsets.
        if let (DamageKind::EntryPayload, Some(stream)) = (damage.kind, damage.stream) {
            let ends = self.ends.entry(stream).or_default();
            ends.tail = ends.tail.advance(damage.lost_bytes);
        }
        self.damages.push(damage.clone());
    }

    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        Some(self.ends.get(&key.stream).map_or(ByteOffset::ZERO, |ends| ends.head))
    }
}

/// A log in one directory with one owner.
#[derive(Debug)]
pub struct EmbeddedLog {
    shard: ShardLog,
    streams: Streams,
}

impl EmbeddedLog {
    /// Opens or makes the log in `dir`. `options.group_count` is taken as 1.
    ///
    /// # Errors
    /// [`OpenError`]: each says what to do.
    ///
    /// # Panics
    /// If `options` are out of proportion.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> Result<Self, OpenError> {
        let mut streams = Streams::default();
        let options = LogOptions { group_count: 1, ..options };
        let mut opened = open(disk, dir, options, 1, &mut streams)?;
        let shard = opened.shards.pop().expect("one shard was asked for");
        Ok(Self { shard, streams })
    }

    /// What was found damaged when the log was opened.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.streams.damages
    }

    /// Appends `data` to `stream` and waits until it is durable; the stream's new tail.
    ///
    /// # Errors
    /// [`EmbeddedError`]; after `Append` the call may be repeated.
    pub fn append(
        &mut self,
        stream: StreamId,
        at: Timestamp,
        data: &[u8],
    ) -> Result<ByteOffset, EmbeddedError> {
        self.write(KIND_APPEND, stream, at, (&[], data))?;
        self.commit()?;
        Ok(self.tail(stream))
    }

    /// Appends several pieces to streams with one sync; the streams' tails afterwards.
    ///
    /// # Errors
    /// As [`EmbeddedLog::append`]. Pieces before the refused one may be durable.
    pub fn append_batch(
        &mut self,
        at: Timestamp,
        pieces: &[(StreamId, &[u8])],
    ) -> Result<Vec<ByteOffset>, EmbeddedError> {
        for (stream, data) in pieces {
            self.write(KIND_APPEND, *stream, at, (&[], data))?;
        }
        self.commit()?;
        Ok(pieces.iter().map(|(stream, _)| self.tail(*stream)).collect())
    }

    /// Drops what `stream` holds before `upto`, durably.
    ///
    /// # Errors
    /// As [`EmbeddedLog::append`].
    pub fn trim(
        &mut self,
        stream: StreamId,
        at: Timestamp,
        upto: ByteOffset,
    ) -> Result<(), EmbeddedError> {
        self.write(KIND_TRIM, stream, at, (&upto.get().to_le_bytes(), &[]))?;
        self.commit()
    }

    /// Offset after the last byte of `stream`; 0 if nothing was ever appended.
    #[must_use]
    pub fn tail(&self, stream: StreamId) -> ByteOffset {
        self.streams.ends.get(&stream).map_or(ByteOffset::ZERO, |ends| ends.tail)
    }

    /// Bytes from `from`: at most `max_bytes`, none only at the tail.
    ///
    /// # Errors
    /// [`EmbeddedError::Read`].
    pub fn read(
        &self,
        stream: StreamId,
        from: ByteOffset,
        max_bytes: usize,
    ) -> Result<Bytes, EmbeddedError> {
        let key = StreamKey { group: GROUP, stream };
        let slice = match self.shard.read(key, from, max_bytes) {
            // The log holds no byte of a stream that is empty or was trimmed to its tail.
            Err(ReadError::NotFound) if from == self.tail(stream) => Slice::Bytes(Bytes::new()),
            other => other.map_err(EmbeddedError::Read)?,
        };
        slice.to_bytes().map_err(|error| EmbeddedError::Read(ReadError::Io(error)))
    }

    /// Marks everything durable and closes the log.
    ///
    /// # Errors
    /// [`EmbeddedError::Sync`] if the mark could not be written; all appends are durable anyway.
    pub fn close(mut self) -> Result<(), EmbeddedError> {
        self.shard.mark_durable();
        self.commit()
    }

    fn write(
        &mut self,
        kind: u8,
        stream: StreamId,
        at: Timestamp,
        (command, data): (&[u8], &[u8]),
    ) -> Result<(), EmbeddedError> {
        let entry = NewEntry { group: GROUP, term: Term::new(1), stream, at, kind, command, data };
        for _ in 0..JOBS_PER_CALL_MAX {
            match self.shard.append(entry) {
                Ok(_) => return Ok(()),
                Err(AppendError::Backpressure) => self.commit()?,
                Err(error @ AppendError::DiskFull) => {
                    self.work_as_far_as_possible()?;
                    if self.shard.append(entry).is_ok() {
                        return Ok(());
                    }
                    return Err(EmbeddedError::Append(error));
                }
                Err(error @ AppendError::Poisoned) => return Err(EmbeddedError::Append(error)),
            }
        }
        Err(EmbeddedError::Append(AppendError::Backpressure))
    }

    fn commit(&mut self) -> Result<(), EmbeddedError> {
        while let Some(job) = self.shard.poll_sync() {
            let batch = self.shard.handle_synced(job.run()).map_err(EmbeddedError::Sync)?;
            self.apply(&batch);
        }
        if let Some(group) = self.shard.wants_checkpoint() {
            let index = self.shard.applied_index(group);
            self.shard.checkpoint(group, index, Vec::new(), self.streams.rows());
        }
        self.work_as_far_as_possible()
    }

    /// Runs background work. What a full disk does not let be done is offered again, merges when chunks have changed:
    /// it changes nothing about what is durable, and whether an append has room the append itself says.
    fn work_as_far_as_possible(&mut self) -> Result<(), EmbeddedError> {
        match self.work() {
            Err(EmbeddedError::Work(error)) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            other => other,
        }
    }

    fn apply(&mut self, batch: &DurableBatch) {
        for entry in batch.entries() {
            let bytes = entry.data.len() as u64;
            match self.streams.apply(entry.kind, entry.stream, &entry.command, bytes) {
                Some(placement) => self.shard.place(&entry, placement),
                None => {
                    let head = self.streams.ends[&entry.stream].head;
                    self.shard.trim(StreamKey { group: GROUP, stream: entry.stream }, head);
                }
            }
            self.shard.applied(entry.group, entry.index);
        }
    }

    fn work(&mut self) -> Result<(), EmbeddedError> {
        for _ in 0..JOBS_PER_CALL_MAX {
            let Some(job) = self.shard.poll_work() else { break };
            let report = self.shard.handle_work(job.run());
            self.streams.damages.extend(report.damages);
            if let Some(error) = report.error.or(report.merge_refusal) {
                return Err(EmbeddedError::Work(error));
            }
        }
        Ok(())
    }
}
