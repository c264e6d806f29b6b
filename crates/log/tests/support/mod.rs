//! A small owner of a log: the state machine, the loop and the model that the tests compare with.

#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses a part of it")]

pub mod replicas;
pub mod snapshots;
pub mod wal;

use env::{Disk, MemoryDisk, SeededRandom};
use model::{
    ByteOffset, EntryIndex, EntrySubject, GroupId, Placement, StreamId, StreamKey, Term, TimeMarks,
    Timestamp,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_log::{
    AppendError, CheckpointRow, CheckpointRows, Damage, DamageKind, DataDir, Entry, LogOptions,
    NewEntry, NewerVersion, OpenError, Owner, Purpose, ReadError, RecoveryReport, Replay, ShardLog,
    SyncJob, WorkJob, open,
};

pub const DIR: &str = "/data";
pub const APPEND: u8 = 1;
pub const TRIM: u8 = 2;
pub const DELETE: u8 = 3;

/// Sizes that make a few appends fill segments, chunks and the WAL. Nothing is kept in memory: reads find what the disk has.
pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        wal_bytes_max: 256 << 10,
        seal_bytes: 8 << 10,
        hot_appends: 8 << 10,
        long_append_bytes: 16 << 10,
        fills_segments: true,
        batch_bytes_max: 8 << 10,
        checkpoint_bytes: 16 << 10,
        chunk_bytes_max: 256 << 10,
        recent_bytes_max: 0,
        read_cache_bytes_max: 0,
        recent_run_bytes_min: 300,
        chunk_files_max: 3,
        chunk_pages_bytes_max: 8 << 10,
        group_count: 3,
        own_group_count: 0,
        lineage: None,
        store: None,
        marks_empty: false,
    }
}

/// Neither batches nor the WAL are ever full, which would let the node do all that there is to do.
pub fn never_full() -> LogOptions {
    LogOptions {
        batch_bytes_max: 1 << 20,
        segment_bytes: 1 << 20,
        wal_bytes_max: 64 << 20,
        checkpoint_bytes: 64 << 20,
        ..small()
    }
}

/// The directory of the tests; its ids are the same in every run.
pub fn data_dir(disk: &MemoryDisk, options: LogOptions) -> Result<DataDir, OpenError> {
    data_dir_on(Arc::new(disk.clone()), options)
}

fn data_dir_on(disk: Arc<dyn Disk>, options: LogOptions) -> Result<DataDir, OpenError> {
    // Another directory of the same lineage has a number of its own.
    let seed = 7 + u64::from(options.lineage.is_some());
    DataDir::open(disk, Path::new(DIR), options, Owner::SERVER, &mut SeededRandom::new(seed))
}

pub fn key(group: u16, stream: u64) -> StreamKey {
    StreamKey { group: GroupId::new(group), stream: StreamId::new(stream) }
}

/// All files with this extension, by name.
pub fn files(disk: &MemoryDisk, extension: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
    disk.paths().into_iter().filter(has).collect()
}

/// The first of them.
pub fn file(disk: &MemoryDisk, extension: &str) -> PathBuf {
    files(disk, extension).swap_remove(0)
}

/// Turns the second copies of headers in a segment to zeroes, as if there had been no room for them, and the lists of
/// the batches before.
pub fn drop_copies(disk: &MemoryDisk, path: &Path) {
    let file = disk.open(path).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    for batch in (0..file.len().unwrap()).step_by(4096) {
        if number(batch) == u64::from(u32::from_le_bytes(*b"ThBa")) {
            let headers = 64 * (1 + number(batch + 44));
            let list = number(batch + 48);
            let used = headers + number(batch + 40) + list;
            file.write_at(&vec![0; list as usize], batch + used - list).unwrap();
            let length = used.next_multiple_of(4096);
            if used + headers <= length {
                let copy = batch + length - headers;
                file.write_at(&vec![0; headers as usize], copy).unwrap();
            }
        }
    }
    file.sync_data().unwrap();
}

/// Flips two bits, which are too many to be put right, where there is neither a second copy nor a list.
pub fn spoil(disk: &MemoryDisk, path: &Path, byte: u64) {
    if path.extension().is_some_and(|extension| extension == "wal") {
        files(disk, "wal").iter().for_each(|path| drop_copies(disk, path));
    }
    flip_two(disk, path, byte);
}

/// Flips two bits of a byte, or flips them back.
pub fn flip_two(disk: &MemoryDisk, path: &Path, byte: u64) {
    disk.flip_bit(path, byte * 8 + 3);
    disk.flip_bit(path, byte * 8 + 4);
}

/// Positions of both copies of the first row page of a chunk: docs/format/chunk.md.
pub fn row_pages(disk: &MemoryDisk, chunk: &Path) -> [u64; 2] {
    let file = disk.open(chunk).unwrap();
    let mut header = [0; 128];
    file.read_exact_at(&mut header, 0).unwrap();
    let content_end = u64::from_le_bytes(header[56..64].try_into().unwrap());
    if u16::from_le_bytes([header[112], header[113]]) < 4096 {
        return [128, content_end.next_multiple_of(64)];
    }
    let first = content_end.next_multiple_of(4096);
    [first, (first + file.len().unwrap() - 128) / 2]
}

/// Damages the first row page of a chunk in both copies.
pub fn spoil_rows(disk: &MemoryDisk, chunk: &Path) {
    row_pages(disk, chunk).iter().for_each(|page| spoil(disk, chunk, page + 30));
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    pub head: u64,
    pub tail: u64,
    pub records: u64,
    pub is_deleted: bool,
    /// The largest record time so far, if there was one.
    pub mark: Option<u64>,
}

/// The command of an append of so many records, and its record time, if it has one.
pub fn with_records(records: u32, time: Option<u64>) -> Vec<u8> {
    let mut command = records.to_le_bytes().to_vec();
    command.extend(time.into_iter().flat_map(u64::to_le_bytes));
    command
}

/// The simplest streams: append, trim, delete.
#[derive(Debug, Default)]
pub struct Machine {
    pub streams: BTreeMap<StreamKey, Ends>,
    pub applied: BTreeMap<GroupId, u64>,
    pub damages: Vec<Damage>,
}

impl Machine {
    pub fn apply_one(
        &mut self,
        (key, index, kind): (StreamKey, EntryIndex, u8),
        command: &[u8],
        bytes: u64,
    ) -> Option<Placement> {
        let applied = self.applied.entry(key.group).or_default();
        assert!(*applied < index.get(), "entries come once and in order");
        *applied = index.get();
        let ends = self.streams.entry(key).or_default();
        match kind {
            TRIM => {
                let upto = u64::from_le_bytes(command.try_into().unwrap());
                ends.head = upto.clamp(ends.head, ends.tail);
                None
            }
            DELETE => {
                ends.is_deleted = true;
                None
            }
            _ if ends.is_deleted => None,
            _ => {
                let start = ByteOffset::new(ends.tail);
                ends.tail += bytes;
                let first_record = ends.records;
                let (records, time) = command.split_at_checked(4).unwrap_or_default();
                let record_count = records.try_into().map_or(1, u32::from_le_bytes);
                ends.records += u64::from(record_count);
                let time = time.try_into().ok().map(u64::from_le_bytes);
                let marks = time.or(ends.mark).map(|time| {
                    let before = ends.mark.unwrap_or(0);
                    TimeMarks { before, upto: before.max(time) }
                });
                ends.mark = marks.map(|marks| marks.upto);
                Some(Placement { stream: key.stream, start, first_record, record_count, marks })
            }
        }
    }

    /// What was damaged, in the order of the reports.
    pub fn kinds(&self) -> Vec<DamageKind> {
        self.damages.iter().map(|damage| damage.kind).collect()
    }

    pub fn rows(&self, group: GroupId) -> CheckpointRows {
        let mut rows = CheckpointRows::new();
        for (key, ends) in self.streams.iter().filter(|(key, _)| key.group == group) {
            let mut row = Vec::new();
            row.extend(ends.head.to_le_bytes());
            row.extend(ends.tail.to_le_bytes());
            row.extend(ends.records.to_le_bytes());
            row.push(u8::from(ends.is_deleted));
            row.extend(ends.mark.into_iter().flat_map(u64::to_le_bytes));
            rows.push(key.stream, model::PathHash::new(key.stream.get() + 1000), &row);
        }
        rows
    }
}

impl Replay for Machine {
    fn restore(
        &mut self,
        group: GroupId,
        applied: EntryIndex,
        header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion> {
        assert_eq!(header, b"header");
        self.applied.insert(group, applied.get());
        for row in rows {
            let number = |at: usize| u64::from_le_bytes(row.bytes[at..at + 8].try_into().unwrap());
            let (head, tail, records) = (number(0), number(8), number(16));
            let is_deleted = row.bytes[24] == 1;
            let mark = row.bytes[25..].try_into().ok().map(u64::from_le_bytes);
            let ends = Ends { head, tail, records, is_deleted, mark };
            self.streams.insert(StreamKey { group, stream: row.stream }, ends);
        }
        Ok(())
    }

    fn apply(&mut self, entry: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion> {
        let key = StreamKey { group: entry.group, stream: StreamId::new(entry.subject.get()) };
        let bytes = entry.data.len() as u64;
        Ok(self.apply_one((key, entry.index, entry.kind), entry.command, bytes))
    }

    fn damaged(&mut self, damage: &Damage) {
        let mut damage = damage.clone();
        damage.stream = damage.stream.or(damage.subject.map(|of| StreamId::new(of.get())));
        // A lost append leaves a hole, so that what follows keeps its offsets.
        let is_lost = damage.kind == DamageKind::EntryPayload;
        if let (true, Some(group), Some(stream)) = (is_lost, damage.group, damage.stream) {
            let ends = self.streams.entry(StreamKey { group, stream }).or_default();
            ends.tail += damage.lost_bytes;
        }
        self.damages.push(damage);
    }

    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        let ends = self.streams.get(&key).copied().unwrap_or_default();
        (!ends.is_deleted).then(|| ByteOffset::new(ends.head))
    }
}

/// Something went wrong on the disk: the node must be opened again.
#[derive(Debug)]
pub struct Broken;

/// An open log with its state machine.
pub struct Node {
    pub shards: Vec<ShardLog>,
    pub machine: Machine,
    pub report: RecoveryReport,
    pub acknowledged: BTreeMap<GroupId, u64>,
    pub work_errors: u32,
    /// The time of the next entries; else it depends on their data.
    pub at: Option<u64>,
    /// Jobs handed out by each shard and not yet run.
    held: Vec<(Option<SyncJob>, Option<WorkJob>)>,
}

impl Node {
    pub fn open(disk: &MemoryDisk, shard_count: u16) -> Result<Self, OpenError> {
        Self::open_with(disk, shard_count, small())
    }

    pub fn open_with(
        disk: &MemoryDisk,
        shard_count: u16,
        options: LogOptions,
    ) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(disk.clone()), shard_count, options)
    }

    pub fn open_on(
        disk: Arc<dyn Disk>,
        shard_count: u16,
        options: LogOptions,
    ) -> Result<Self, OpenError> {
        let mut machine = Machine::default();
        let opened = open(data_dir_on(disk, options)?, shard_count, &mut machine)?;
        let acknowledged = machine.applied.clone();
        let (shards, report) = (opened.shards, opened.report);
        let held = shards.iter().map(|_| (None, None)).collect();
        Ok(Self { shards, machine, report, acknowledged, work_errors: 0, at: None, held })
    }

    pub fn shard(&mut self, group: GroupId) -> &mut ShardLog {
        let count = self.shards.len();
        &mut self.shards[usize::from(group.get()) % count]
    }

    pub fn offer(
        &mut self,
        key: StreamKey,
        kind: u8,
        command: &[u8],
        data: &[u8],
    ) -> Result<EntryIndex, AppendError> {
        let at = Timestamp::new(self.at.unwrap_or(1_700_000_000_000 + data.len() as u64));
        let (group, term) = (key.group, Term::new(1));
        let subject = EntrySubject::new(key.stream.get());
        let purpose = if kind == DELETE { Purpose::Upkeep } else { Purpose::Data };
        let entry = NewEntry { group, term, subject, at, kind, command, data };
        self.shard(group).append_for(purpose, entry)
    }

    /// Appends, running jobs while the log pushes back.
    pub fn write(
        &mut self,
        key: StreamKey,
        kind: u8,
        command: &[u8],
        data: &[u8],
    ) -> Result<(), Broken> {
        for _ in 0..1000 {
            match self.offer(key, kind, command, data) {
                Ok(_) => return Ok(()),
                Err(AppendError::Backpressure) => {
                    self.commit()?;
                    self.work()?;
                }
                Err(AppendError::DiskFull | AppendError::Poisoned) => return Err(Broken),
            }
        }
        panic!("the log pushes back for ever: {:?}", self.shard(key.group).stats());
    }

    pub fn append(&mut self, key: StreamKey, data: &[u8]) -> Result<(), Broken> {
        self.write(key, APPEND, &[], data)
    }

    pub fn trim(&mut self, key: StreamKey, upto: u64) -> Result<(), Broken> {
        self.write(key, TRIM, &upto.to_le_bytes(), &[])
    }

    /// Takes jobs of a shard without running them: what follows overlaps with them.
    pub fn hold_jobs(&mut self, group: GroupId) {
        let index = usize::from(group.get()) % self.shards.len();
        let (commit, work) = &mut self.held[index];
        if commit.is_none() {
            *commit = self.shards[index].poll_sync();
        }
        if work.is_none() {
            *work = self.shards[index].poll_work();
        }
    }

    /// Commits everything that was appended, and applies it.
    pub fn commit(&mut self) -> Result<(), Broken> {
        for index in 0..self.shards.len() {
            loop {
                let held = self.held[index].0.take();
                let Some(job) = held.or_else(|| self.shards[index].poll_sync()) else { break };
                self.commit_one(index, job)?;
            }
            self.shards[index].check_all();
        }
        Ok(())
    }

    fn commit_one(&mut self, index: usize, job: SyncJob) -> Result<(), Broken> {
        let shard = &mut self.shards[index];
        let batch = shard.handle_synced(job.run()).map_err(|_| Broken)?;
        for entry in batch.entries() {
            let key = StreamKey { group: entry.group, stream: StreamId::new(entry.subject.get()) };
            self.acknowledged.insert(entry.group, entry.index.get());
            let what = (key, entry.index, entry.kind);
            let bytes = entry.data.len() as u64;
            let placed = self.machine.apply_one(what, &entry.command, bytes);
            let ends = self.machine.streams[&key];
            match placed {
                Some(placement) => shard.place(&entry, placement),
                None if entry.kind == DELETE => shard.forget(key),
                None if ends.is_deleted => {}
                None => shard.trim(key, ByteOffset::new(ends.head)),
            }
            shard.applied(entry.group, entry.index);
        }
        Ok(())
    }

    /// Runs background work until there is none.
    pub fn work(&mut self) -> Result<(), Broken> {
        for index in 0..self.shards.len() {
            for _ in 0..100 {
                let shard = &mut self.shards[index];
                if let Some(group) = shard.wants_checkpoint() {
                    let at = shard.applied_index(group);
                    shard.checkpoint(group, at, b"header".to_vec(), self.machine.rows(group));
                }
                let held = self.held[index].1.take();
                let Some(job) = held.or_else(|| shard.poll_work()) else { break };
                let report = shard.handle_work(job.run());
                self.machine.damages.extend(report.damages);
                if report.error.is_some() {
                    self.work_errors += 1;
                    return Err(Broken);
                }
            }
            self.shards[index].check_all();
        }
        Ok(())
    }

    /// Runs the next job that is not about segments, and those before it; `false` if there is none.
    pub fn run_job(&mut self) -> bool {
        self.next_job().map(|job| self.finish_job(job)).is_some()
    }

    /// The next job that is not about segments; those before it are run.
    pub fn next_job(&mut self) -> Option<WorkJob> {
        while let Some(job) = self.shards[0].poll_work() {
            if job.group().is_some() {
                return Some(job);
            }
            self.finish_job(job);
        }
        None
    }

    /// Runs a job and takes its result.
    pub fn finish_job(&mut self, job: WorkJob) {
        let report = self.shards[0].handle_work(job.run());
        assert!(report.error.is_none());
        self.machine.damages.extend(report.damages);
    }

    pub fn checkpoint(&mut self, group: GroupId) {
        let index = EntryIndex::new(self.machine.applied.get(&group).copied().unwrap_or(0));
        let rows = self.machine.rows(group);
        self.shard(group).checkpoint(group, index, b"header".to_vec(), rows);
    }

    /// Writes a durable mark on every shard, as a clean stop does.
    pub fn stop(mut self) -> Machine {
        self.shards.iter_mut().for_each(ShardLog::mark_durable);
        self.commit().unwrap();
        self.machine
    }

    /// All retained bytes of a stream, read in windows of `window` bytes.
    pub fn read_all(&mut self, key: StreamKey, window: usize) -> Result<Vec<u8>, ReadError> {
        let ends = self.machine.streams.get(&key).copied().unwrap_or_default();
        let mut out = Vec::new();
        let shard = self.shard(key.group);
        while ends.head + (out.len() as u64) < ends.tail {
            let from = ByteOffset::new(ends.head + out.len() as u64);
            let slice = shard.read(key, from, window)?;
            assert!(slice.len() <= window as u64);
            if slice.is_empty() {
                // The last append is lost: only the state machine knows that it was there.
                return Err(ReadError::NotFound);
            }
            out.extend_from_slice(&slice.to_bytes()?);
        }
        Ok(out)
    }
}
