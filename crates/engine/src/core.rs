//! What all threads of an engine share under one lock: the log, the streams and who is at work.
//!
//! # Invariants
//! - Entries are applied in the order in which they were copied into a batch.
//! - `is_syncing` while a commit runs outside the lock; at most one does.
//! - After a failure nothing is taken, committed or acknowledged.

use crate::command::{Command, Position, frame_bytes, put_frame};
use crate::error::WriteError;
use crate::front::{COMMIT_BYTES, Front, Record};
use crate::locate::GROUP;
use crate::options::{CURSORS_PER_STREAM_MAX, STREAMS_MAX};
use crate::recovery::stream_of;
use crate::streams::{Effect, Streams};
use log::{AppendError, NewEntry, ShardLog, SyncDone, WorkJob};
use model::{EntrySubject, Monotonic, StreamId, StreamKey, Term, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// Scratch memory that is kept between appends.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Background jobs that wait for a worker.
const READY_MAX: usize = 2;

/// How often the log looks at how much is written to it, in milliseconds.
pub(crate) const TICK_MS: u64 = 100;

/// How often a record of the last life is tried before the disk is given up.
const REPLAY_TRIES: u32 = 64;

/// Why an entry did not go into the open batch.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The log below has no room, or has failed.
    Log(AppendError),
    /// The call cannot succeed.
    Call(WriteError),
}

impl From<AppendError> for Refused {
    fn from(error: AppendError) -> Self {
        Self::Log(error)
    }
}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) shard: ShardLog,
    pub(crate) streams: Streams,
    /// Number of the batch that is being filled.
    pub(crate) batch: u64,
    /// Whether it holds an entry.
    pub(crate) has_open: bool,
    pub(crate) is_syncing: bool,
    /// The last batch that somebody waits for.
    pub(crate) awaited: u64,
    /// Where appends are acknowledged without a commit; `None` if each is synced.
    pub(crate) front: Option<Front>,
    /// Whether an entry of the open batch is not in front of the WAL.
    is_front_full: bool,
    pub(crate) failure: Option<Arc<str>>,
    pub(crate) is_closed: bool,
    /// The engine's threads are to end.
    pub(crate) is_stopping: bool,
    pub(crate) ready: VecDeque<WorkJob>,
    /// Background jobs that have ended.
    pub(crate) works_done: u64,
    pub(crate) work_error: Option<String>,
    pub(crate) waiting: Waiting,
    /// When the log last looked at how much is written to it.
    ticked: Monotonic,
    scratch: Scratch,
}

/// Threads that wait on each condition, so that nobody wakes when nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) room: u32,
    pub(crate) workers: u32,
    pub(crate) syncer: bool,
}

#[derive(Debug, Default)]
struct Scratch {
    frame: Vec<u8>,
    command: Vec<u8>,
}

impl Core {
    pub(crate) fn new(shard: ShardLog, streams: Streams) -> Self {
        Self {
            shard,
            streams,
            batch: 1,
            has_open: false,
            is_syncing: false,
            awaited: 0,
            front: None,
            is_front_full: false,
            failure: None,
            is_closed: false,
            is_stopping: false,
            ready: VecDeque::new(),
            works_done: 0,
            work_error: None,
            waiting: Waiting::default(),
            ticked: Monotonic::default(),
            scratch: Scratch::default(),
        }
    }

    /// Whether anything may be written.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        match &self.failure {
            Some(cause) => Err(WriteError::Failed { cause: Arc::clone(cause) }),
            None if self.is_closed => Err(WriteError::Closed),
            None => Ok(()),
        }
    }

    /// The number of a stream that exists.
    pub(crate) fn existing(&self, name: &str) -> Result<usize, Refused> {
        let missing = || Refused::Call(WriteError::NoStream { stream: name.to_owned() });
        self.streams.find(name).ok_or_else(missing)
    }

    /// Copies a batch of entries into the open batch of the log; the id of the first.
    pub(crate) fn append(
        &mut self,
        name: &str,
        entries: &[&[u8]],
        at: Timestamp,
    ) -> Result<u64, Refused> {
        let number = match self.streams.find(name) {
            Some(number) => number,
            None => self.create(name, at)?,
        };
        let first = self.streams.get(number).written;
        put_frame(&mut self.scratch.frame, first.id, entries);
        let crc = crc32c::crc32c(&self.scratch.frame);
        let count = entries.len() as u32;
        self.write(number, Command::Append { first, count, crc }, at)?;
        let offset = first.offset + frame_bytes(entries);
        let written = Position { id: first.id + u64::from(count), offset };
        self.streams.get_mut(number).written = written;
        Ok(first.id)
    }

    fn create(&mut self, name: &str, at: Timestamp) -> Result<usize, Refused> {
        if self.streams.len() >= STREAMS_MAX {
            let error = WriteError::TooMany { what: "streams", count_max: STREAMS_MAX };
            return Err(Refused::Call(error));
        }
        let id = StreamId::new(self.shard.next_index(GROUP).get());
        self.scratch.frame.clear();
        self.push(id, Command::Create { name }, at)?;
        Ok(self.streams.create(id, name))
    }

    /// Copies a trim into the open batch; the stream's new head is `head`.
    pub(crate) fn trim(
        &mut self,
        number: usize,
        head: Position,
        at: Timestamp,
    ) -> Result<(), Refused> {
        self.scratch.frame.clear();
        self.write(number, Command::Trim { head }, at)
    }

    /// Copies a cursor's new place into the open batch.
    pub(crate) fn commit_cursor(
        &mut self,
        number: usize,
        (name, next): (&str, u64),
        at: Timestamp,
    ) -> Result<(), Refused> {
        let stream = self.streams.get(number);
        let tail = stream.written.id;
        if next > tail {
            return Err(Refused::Call(WriteError::PastTail { id: next, tail }));
        }
        let count_max = CURSORS_PER_STREAM_MAX;
        if stream.is_full_of_cursors(name, count_max) {
            return Err(Refused::Call(WriteError::TooMany { what: "cursors", count_max }));
        }
        self.scratch.frame.clear();
        self.write(number, Command::Cursor { name, next }, at)?;
        let index = self.shard.next_index(GROUP).get() - 1;
        self.streams.get_mut(number).put_ahead(name, next, index);
        Ok(())
    }

    fn write(&mut self, number: usize, command: Command<'_>, at: Timestamp) -> Result<(), Refused> {
        self.push(self.streams.get(number).id, command, at)
    }

    /// Copies a command with the frame in the scratch memory into the open batch.
    fn push(
        &mut self,
        stream: StreamId,
        command: Command<'_>,
        at: Timestamp,
    ) -> Result<(), Refused> {
        let Scratch { frame, command: bytes } = &mut self.scratch;
        bytes.clear();
        let kind = command.encode(bytes);
        let term = Term::new(1);
        let subject = EntrySubject::new(stream.get());
        let entry = NewEntry { group: GROUP, term, subject, at, kind, command: bytes, data: frame };
        let pushed = self.shard.append(entry);
        if let (Ok(index), Some(front)) = (&pushed, &mut self.front) {
            let (index, stream) = (index.get(), stream.get());
            let record = Record { index, stream, kind, command: bytes, data: frame };
            // What cannot be written in front is committed instead.
            let is_in_front = front.put(self.batch, &record).unwrap_or(false);
            self.is_front_full |= !is_in_front;
        }
        if frame.capacity() > SCRATCH_BYTES_MAX {
            *frame = Vec::new();
        }
        pushed?;
        self.has_open = true;
        Ok(())
    }

    /// Whether all of the open batch is where an acknowledgement says it is.
    pub(crate) fn is_in_front(&self) -> bool {
        self.front.is_some() && !self.is_front_full
    }

    /// Whether the open batch, if it holds an entry, is to be committed: somebody waits for that, or it is large.
    pub(crate) fn wants_sync(&self) -> bool {
        let is_large = || self.front.as_ref().is_none_or(|front| front.used() >= COMMIT_BYTES);
        !self.is_in_front() || self.awaited >= self.batch || is_large()
    }

    /// The batch is on its way: another one is filled.
    pub(crate) fn next_batch(&mut self) -> u64 {
        self.batch += 1;
        self.has_open = false;
        self.is_front_full = false;
        self.batch - 1
    }

    /// Writes into the log what the last life had only in front of it, before any thread runs.
    pub(crate) fn replay(&mut self, record: &Record<'_>, at: Timestamp) -> Result<(), String> {
        let Record { stream, kind, command, data, .. } = *record;
        let (term, subject) = (Term::new(1), EntrySubject::new(stream));
        let entry = NewEntry { group: GROUP, term, subject, at, kind, command, data };
        for _ in 0..REPLAY_TRIES {
            match self.shard.append(entry) {
                Ok(index) => {
                    assert_eq!(index.get(), record.index, "records continue the log");
                    return Ok(());
                }
                Err(AppendError::Poisoned) => return Err(AppendError::Poisoned.to_string()),
                Err(AppendError::Backpressure | AppendError::DiskFull) => {
                    self.commit_here()?;
                    if let Some(job) = self.poll_work() {
                        let report = self.shard.handle_work(job.run());
                        self.work_error = report.error.map(|error| error.to_string());
                    }
                }
            }
        }
        Err(self.work_error.clone().unwrap_or_else(|| "there is no room in the WAL".to_owned()))
    }

    /// Commits what is open on this thread.
    pub(crate) fn commit_here(&mut self) -> Result<(), String> {
        match self.shard.poll_sync() {
            Some(job) => self.finish(job.run()).map_err(|cause| cause.to_string()),
            None => Ok(()),
        }
    }

    /// Takes the result of a commit and applies its entries.
    pub(crate) fn finish(&mut self, done: SyncDone) -> Result<(), Arc<str>> {
        if let Some(cause) = &self.failure {
            return Err(Arc::clone(cause));
        }
        let batch = self.shard.handle_synced(done).map_err(|failed| failed.to_string())?;
        for entry in batch.entries() {
            let (stream, data) = (stream_of(entry.subject), entry.data.len() as u64);
            match self.streams.apply(stream, entry.kind, &entry.command, data) {
                Effect::Place(placement) => self.shard.place(&entry, placement),
                Effect::Trim(head) => self.shard.trim(StreamKey { group: GROUP, stream }, head),
                Effect::Cursor => self.streams.settle_cursors(stream, entry.index),
                Effect::Nothing => {}
            }
            self.shard.applied(entry.group, entry.index);
        }
        if cfg!(debug_assertions) {
            self.shard.check();
        }
        Ok(())
    }

    /// The next piece of background work.
    pub(crate) fn poll_work(&mut self) -> Option<WorkJob> {
        if self.failure.is_some() {
            return None;
        }
        if self.shard.wants_checkpoint().is_some() {
            self.checkpoint();
        }
        self.shard.poll_work()
    }

    /// Has the log look at how much is written to it, if it is time.
    pub(crate) fn tick(&mut self, now: Monotonic) {
        if now.ms_since(self.ticked) >= TICK_MS {
            self.ticked = now;
            self.shard.tick();
        }
    }

    /// Asks for a checkpoint of everything that was applied.
    pub(crate) fn checkpoint(&mut self) {
        let index = self.shard.applied_index(GROUP);
        self.shard.checkpoint(GROUP, index, Vec::new(), self.streams.rows(index));
    }

    /// Moves work to where a worker finds it; whether one is to be woken.
    pub(crate) fn prepare_work(&mut self) -> bool {
        if self.waiting.workers == 0 || self.ready.len() >= READY_MAX {
            return false;
        }
        let job = self.poll_work();
        let found = job.is_some();
        self.ready.extend(job);
        found
    }
}
