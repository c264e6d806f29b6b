//! A small owner of a log that believes nothing: whatever is replayed, it does not panic.

use env::{Disk, MemoryDisk, Random};
use log::{
    AppendError, CheckpointRow, CheckpointRows, Damage, DamageKind, DataDir, DurableEntry, Entry,
    LogOptions, NewEntry, NewerVersion, Note, OpenError, Owner as DirOwner, Purpose, Replay,
    ReplicaError, ShardLog, open,
};
use model::{
    ByteOffset, EntryIndex, EntrySubject, GroupId, Placement, StreamId, StreamKey, Term, Timestamp,
};

/// The path of the data directory on its disk.
pub(super) const DIR: &str = "/data";
/// The store id: seeds every checksum of a header.
pub(super) const STORE: u64 = 7;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) const APPEND: u8 = 1;
pub(super) const TRIM: u8 = 2;

const GROUPS: u16 = 2;
/// Reads of one stream before it is called endless.
const READS_MAX: usize = 400;
/// Offsets beyond this are damage that passed for a checkpoint.
const OFFSET_MAX: u64 = 1 << 40;

/// Sizes that make a few appends fill segments, chunks and the WAL.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 8 << 10,
        wal_bytes_max: 96 << 10,
        seal_bytes: 4 << 10,
        hot_appends: 300,
        long_append_bytes: 200,
        fills_segments: true,
        batch_bytes_max: 4 << 10,
        checkpoint_bytes: 8 << 10,
        chunk_bytes_max: 64 << 10,
        recent_bytes_max: 4 << 10,
        read_cache_bytes_max: 32 << 10,
        recent_run_bytes_min: 200,
        chunk_files_max: 3,
        chunk_pages_bytes_max: 8 << 10,
        group_count: GROUPS,
        own_group_count: 0,
        lineage: None,
        store: None,
        marks_empty: false,
    }
}

pub(super) fn key(group: u16, stream: u64) -> StreamKey {
    StreamKey { group: GroupId::new(group), stream: StreamId::new(stream) }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) head: u64,
    pub(super) tail: u64,
}

/// Streams that grow and are trimmed.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) streams: BTreeMap<StreamKey, Ends>,
    pub(super) damages: Vec<Damage>,
}

impl Machine {
    fn take(&mut self, key: StreamKey, kind: u8, command: &[u8], bytes: u64) -> Option<Placement> {
        let ends = self.streams.entry(key).or_default();
        if kind == TRIM {
            let upto = command.try_into().map_or(0, u64::from_le_bytes);
            ends.head = upto.clamp(ends.head, ends.tail);
            return None;
        }
        let start = ByteOffset::new(ends.tail);
        ends.tail += bytes;
        // Each byte is a record.
        let (first_record, record_count) = (start.get(), u32::try_from(bytes).unwrap_or(u32::MAX));
        Some(Placement { stream: key.stream, start, first_record, record_count, marks: None })
    }

    fn rows(&self, group: GroupId) -> CheckpointRows {
        let mut rows = CheckpointRows::new();
        for (key, ends) in self.streams.iter().filter(|(key, _)| key.group == group) {
            let row = [ends.head.to_le_bytes(), ends.tail.to_le_bytes()].concat();
            let path = model::PathHash::new(key.stream.get().wrapping_add(1000));
            rows.push(key.stream, path, &row);
        }
        rows
    }
}

impl Replay for Machine {
    fn restore(
        &mut self,
        group: GroupId,
        _applied: EntryIndex,
        _header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion> {
        for row in rows {
            let number = |at| row.bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
            let (Some(head), Some(tail)) = (number(0), number(8)) else { continue };
            if head <= tail && tail <= OFFSET_MAX {
                self.streams.insert(StreamKey { group, stream: row.stream }, Ends { head, tail });
            }
        }
        Ok(())
    }

    fn apply(&mut self, entry: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion> {
        let key = StreamKey { group: entry.group, stream: StreamId::new(entry.subject.get()) };
        Ok(self.take(key, entry.kind, entry.command, entry.data.len() as u64))
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
        Some(ByteOffset::new(self.streams.get(&key).map_or(0, |ends| ends.head)))
    }
}

/// Draws one number again and again, so that the store id is known.
struct Always(u64);

impl Random for Always {
    fn next_u64(&mut self) -> u64 {
        self.0
    }
}

fn append_at(shard: &mut ShardLog, at: EntryIndex, entry: NewEntry<'_>) -> Result<(), AppendError> {
    // The terms of a damaged log may be any.
    let before = EntryIndex::new(at.get() - 1);
    let term = shard.term_of(entry.group, before).unwrap_or(entry.term).max(entry.term);
    match shard.append_entry(Purpose::Data, at, NewEntry { term, ..entry }) {
        Err(ReplicaError::Refused(error)) => Err(error),
        _ => Ok(()),
    }
}

/// An open log.
pub(super) struct Owner {
    pub(super) shards: Vec<ShardLog>,
    pub(super) machine: Machine,
}

impl Owner {
    pub(super) fn open(disk: &MemoryDisk, shard_count: u16) -> Result<Self, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let data_dir =
            DataDir::open(disk, Path::new(DIR), options(), DirOwner::SERVER, &mut Always(STORE))?;
        let mut machine = Machine::default();
        let opened = open(data_dir, shard_count, &mut machine)?;
        Ok(Self { shards: opened.shards, machine })
    }

    pub(super) fn shard(&mut self, group: GroupId) -> &mut ShardLog {
        let count = u16::try_from(self.shards.len()).expect("it was given as one");
        &mut self.shards[usize::from(group.shard(count).get())]
    }

    pub(super) fn write(&mut self, key: StreamKey, kind: u8, command: &[u8], data: &[u8]) {
        let at = Timestamp::new(1_700_000_000_000 + data.len() as u64);
        let (group, term) = (key.group, Term::new(1));
        let subject = EntrySubject::new(key.stream.get());
        for _ in 0..20 {
            let entry = NewEntry { group, term, subject, at, kind, command, data };
            let shard = self.shard(group);
            let appended = if shard.is_replicated(group) {
                let next = EntryIndex::new(shard.last_index(group).get() + 1);
                append_at(shard, next, entry)
            } else {
                shard.append(entry).map(|_| ())
            };
            match appended {
                Err(AppendError::Backpressure) => {
                    self.commit();
                    self.work();
                }
                _ => return,
            }
        }
    }

    /// Makes a group replicated, whose entries so far are applied.
    pub(super) fn replicate(&mut self, group: GroupId) {
        self.commit();
        let note = Note { term: Term::new(2), vote: 7, commit: EntryIndex::new(0) };
        let _ = self.shard(group).replicate(group, note, Term::new(1));
        self.commit();
    }

    /// Appends two entries that a later leader supersedes before they are committed.
    pub(super) fn lose_two(&mut self, key: StreamKey) {
        self.commit();
        let (group, command) = (key.group, &[][..]);
        let (at, subject) = (Timestamp::new(1), EntrySubject::new(key.stream.get()));
        let last = self.shard(group).last_index(group).get();
        let term = self.shard(group).last_note(group).map_or(Term::new(2), |note| note.term);
        for next in [last + 1, last + 2] {
            let data = b"superseded";
            let entry = NewEntry { group, term, subject, at, kind: APPEND, command, data };
            self.retry(group, |shard| append_at(shard, EntryIndex::new(next), entry));
        }
        self.sync();
        let term = Term::new(term.get() + 1);
        let note = Note { term, vote: 8, commit: EntryIndex::new(last) };
        self.retry(group, |shard| shard.note(group, note).map_err(|_| AppendError::Backpressure));
        let entry = NewEntry { group, term, subject, at, kind: TRIM, command, data: &[] };
        self.retry(group, |shard| append_at(shard, EntryIndex::new(last + 1), entry));
        self.commit();
    }

    /// Tries while the log pushes back, and commits nothing.
    fn retry(
        &mut self,
        group: GroupId,
        mut call: impl FnMut(&mut ShardLog) -> Result<(), AppendError>,
    ) {
        for _ in 0..20 {
            if call(self.shard(group)) != Err(AppendError::Backpressure) {
                return;
            }
            self.sync();
            self.work();
        }
    }

    /// Commits and applies everything that was appended.
    pub(super) fn commit(&mut self) {
        self.sync();
        for group in (0..GROUPS).map(GroupId::new) {
            self.commit_replicated(group);
        }
    }

    /// Takes all of a replicated group for committed, and applies it as far as it can be read.
    fn commit_replicated(&mut self, group: GroupId) {
        let count = self.shards.len();
        let index = usize::from(group.get()) % count;
        let shard = &mut self.shards[index];
        let last = shard.last_index(group);
        if shard.is_poisoned() || !shard.is_replicated(group) || shard.commit(group, last).is_err()
        {
            return;
        }
        while self.shards[index].applied_index(group) < last {
            let from = EntryIndex::new(self.shards[index].applied_index(group).get() + 1);
            let Ok(read) = self.shards[index].entries(group, from, 1000) else { return };
            let Ok(entries) = read.run() else { return };
            for entry in entries {
                let Some(entry) = entry.durable() else { return };
                self.apply(index, entry);
            }
        }
    }

    /// Makes everything durable that was appended, and applies what has one voter.
    fn sync(&mut self) {
        for index in 0..self.shards.len() {
            while let Some(job) = self.shards[index].poll_sync() {
                let Ok(batch) = self.shards[index].handle_synced(job.run()) else { break };
                for entry in batch.entries() {
                    if !self.shards[index].is_replicated(entry.group) {
                        self.apply(index, &entry);
                    }
                }
            }
        }
    }

    fn apply(&mut self, index: usize, entry: &DurableEntry) {
        let key = StreamKey { group: entry.group, stream: StreamId::new(entry.subject.get()) };
        let bytes = entry.data.len() as u64;
        let shard = &mut self.shards[index];
        match self.machine.take(key, entry.kind, &entry.command, bytes) {
            Some(placement) => shard.place(entry, placement),
            None => shard.trim(key, ByteOffset::new(self.machine.streams[&key].head)),
        }
        shard.applied(entry.group, entry.index);
    }

    /// Runs background work until there is none, or it fails.
    pub(super) fn work(&mut self) {
        for shard in &mut self.shards {
            for _ in 0..50 {
                if let Some(group) = shard.wants_checkpoint() {
                    let at = shard.applied_index(group);
                    shard.checkpoint(group, at, b"header".to_vec(), self.machine.rows(group));
                }
                let Some(job) = shard.poll_work() else { break };
                let report = shard.handle_work(job.run());
                self.machine.damages.extend(report.damages);
                if report.error.is_some() {
                    break;
                }
            }
        }
    }

    pub(super) fn checkpoint(&mut self, group: GroupId) {
        self.commit();
        let rows = self.machine.rows(group);
        let shard = self.shard(group);
        let at = shard.applied_index(group);
        shard.checkpoint(group, at, b"header".to_vec(), rows);
    }

    /// Appends to every stream; what was appended is there.
    pub(super) fn write_on(&mut self) {
        // What was not known as committed comes first.
        self.commit();
        let keys: Vec<StreamKey> = self.machine.streams.keys().copied().take(16).collect();
        for key in keys {
            let before = self.machine.streams[&key].tail;
            self.write(key, APPEND, b"", b"written after damage");
            self.commit();
            if self.machine.streams[&key].tail == before {
                continue;
            }
            let read = self.shard(key.group).read(key, ByteOffset::new(before), 100);
            let bytes = read.ok().and_then(|slice| slice.to_bytes().ok());
            assert_eq!(bytes.as_deref(), Some(&b"written after damage"[..]), "{key} at {before}");
        }
    }

    /// Reads every entry of replicated groups.
    fn read_entries(&mut self) {
        for group in (0..GROUPS).map(GroupId::new) {
            let shard = self.shard(group);
            let (first, last) = (shard.first_index(group), shard.last_index(group).get());
            for index in first.map_or(last, EntryIndex::get)..=last {
                let index = EntryIndex::new(index);
                let Ok(read) = shard.entries(group, index, 100) else { continue };
                for stored in read.run().unwrap_or_default() {
                    let entry = stored.entry();
                    let crcs = [&entry.command, &entry.data].map(|bytes| crc32c::crc32c(bytes));
                    assert_eq!(crcs, [stored.command_crc, stored.data_crc], "it is checked");
                    assert_eq!(shard.term_of(group, entry.index), Some(entry.term), "and known");
                }
            }
        }
    }

    /// Reads every stream from its head, past whatever cannot be read, and asks for its appends.
    pub(super) fn read_everything(&mut self) {
        self.read_entries();
        let streams: Vec<_> =
            self.machine.streams.iter().map(|(key, ends)| (*key, *ends)).collect();
        for (key, ends) in streams {
            let shard = self.shard(key.group);
            let tail = shard.tail(key).map_or(ends.tail, |tail| tail.get().max(ends.tail));
            let mut at = ends.head;
            for _ in 0..READS_MAX {
                let from = ByteOffset::new(at);
                let _ = (shard.append_at(key, from), shard.first_end_at_or_after(key, from));
                let read = shard.read(key, from, 700).ok().and_then(|slice| slice.to_bytes().ok());
                let length = read.map_or(0, |bytes| bytes.len() as u64);
                assert!(length <= 700, "a read keeps its limit");
                at = at.saturating_add(length.max(61));
                if at > tail.saturating_add(100) {
                    break;
                }
            }
        }
    }

    /// Notes what is committed.
    fn note_commits(&mut self) {
        for group in (0..GROUPS).map(GroupId::new) {
            let shard = self.shard(group);
            if let Some(note) = shard.last_note(group) {
                let commit = shard.committed_index(group);
                let _ = shard.note(group, Note { commit, ..note });
            }
        }
    }

    /// Marks everything durable and closes the log.
    pub(super) fn close(mut self) {
        self.commit();
        self.note_commits();
        self.commit();
        // The mark may need a segment that is not filled yet.
        self.work();
        self.shards.iter_mut().for_each(ShardLog::mark_durable);
        self.commit();
    }
}
