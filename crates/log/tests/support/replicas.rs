//! An owner of replicated groups and the model that it is compared with.
//!
//! # What a crash may leave
//! A batch is whole or gone. If its sync had returned, it is there. If it was never handed to the disk, it is not. If its
//! sync failed, or never returned, both are right, and only the disk knows: the model keeps both states, and the next
//! opening says which one. From then on it is that one for good.

use super::{APPEND, Broken, DELETE, Machine, TRIM, data_dir, small};
use env::MemoryDisk;
use model::{ByteOffset, EntryIndex, EntrySubject, GroupId, StreamId, StreamKey, Term, Timestamp};
use std::collections::BTreeMap;
use thalweg_log::{
    AppendError, DurableEntry, LogOptions, NewEntry, Note, Purpose, RecoveryReport, ReplicaError,
    ShardLog, SyncDone, SyncJob, open,
};

pub const GROUPS: u16 = 3;

/// An entry, as the model remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub term: u64,
    pub stream: u64,
    pub command: Vec<u8>,
    pub data: Vec<u8>,
}

impl Logged {
    /// An append has data. A trim has the new head as its command, and a deletion one byte.
    fn kind(&self) -> u8 {
        match (self.data.is_empty(), self.command.len()) {
            (true, 8) => TRIM,
            (true, 1) => DELETE,
            _ => APPEND,
        }
    }

    pub fn trim(term: u64, stream: u64, upto: u64) -> Self {
        Self { term, stream, command: upto.to_le_bytes().to_vec(), data: Vec::new() }
    }

    pub fn delete(term: u64, stream: u64) -> Self {
        Self { term, stream, command: vec![0], data: Vec::new() }
    }
}

/// What a stream is after some entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    pub head: u64,
    /// From its first byte on, those before the head included.
    pub bytes: Vec<u8>,
    pub is_deleted: bool,
}

/// One group's log, with all entries from the first one on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    pub entries: Vec<Logged>,
    /// Of a replicated group.
    pub note: Option<Note>,
}

impl Log {
    pub fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    pub fn entry(&self, index: u64) -> &Logged {
        &self.entries[index as usize - 1]
    }

    pub fn term_of(&self, index: u64) -> u64 {
        if index == 0 { 0 } else { self.entry(index).term }
    }

    /// The streams after the first `applied` entries.
    pub fn contents(&self, applied: u64) -> BTreeMap<u64, Content> {
        let mut streams: BTreeMap<u64, Content> = BTreeMap::new();
        for logged in &self.entries[..applied as usize] {
            let content = streams.entry(logged.stream).or_default();
            match (logged.kind(), content.is_deleted) {
                (TRIM, _) => {
                    let upto = u64::from_le_bytes(logged.command[..].try_into().unwrap());
                    content.head = upto.clamp(content.head, content.bytes.len() as u64);
                }
                (DELETE, _) => content.is_deleted = true,
                (_, true) => {}
                (_, false) => content.bytes.extend_from_slice(&logged.data),
            }
        }
        streams
    }

    /// How many of its first entries are the same in `other`.
    pub fn common(&self, other: &Self) -> u64 {
        let pairs = self.entries.iter().zip(&other.entries);
        pairs.take_while(|(one, two)| one == two).count() as u64
    }
}

pub type Logs = BTreeMap<u16, Log>;

/// A batch that was closed: what its groups are with it.
#[derive(Debug)]
struct InFlight {
    logs: Logs,
    /// Its job ran: the disk may have it.
    has_run: bool,
    /// Its sync has returned: the disk has it.
    is_synced: bool,
}

/// An open log, and what must be in it.
pub struct World {
    pub disk: MemoryDisk,
    pub shards: Vec<ShardLog>,
    pub machine: Machine,
    pub report: RecoveryReport,
    options: LogOptions,
    /// With all that was appended.
    pub open: Logs,
    /// With what is durable for certain.
    pub durable: Logs,
    /// By shard.
    in_flight: Vec<Option<InFlight>>,
    jobs: Vec<Option<SyncJob>>,
    /// By group: what the owner knows as committed.
    pub committed: BTreeMap<u16, u64>,
}

pub fn group(number: u16) -> GroupId {
    GroupId::new(number)
}

/// Files of a crash test: everything small, and a segment for every few batches.
pub fn options() -> LogOptions {
    LogOptions { group_count: GROUPS, ..small() }
}

impl World {
    pub fn new(disk: &MemoryDisk, shard_count: u16) -> Self {
        Self::with(disk, shard_count, options()).expect("an empty disk")
    }

    pub fn with(disk: &MemoryDisk, shard_count: u16, options: LogOptions) -> Result<Self, Broken> {
        let mut machine = Machine::default();
        let dir = data_dir(disk, options.clone()).map_err(|_| Broken)?;
        let opened = open(dir, shard_count, &mut machine).map_err(|_| Broken)?;
        let logs: Logs = (0..GROUPS).map(|group| (group, Log::default())).collect();
        Ok(Self {
            disk: disk.clone(),
            in_flight: opened.shards.iter().map(|_| None).collect(),
            jobs: opened.shards.iter().map(|_| None).collect(),
            shards: opened.shards,
            report: opened.report,
            machine,
            options,
            open: logs.clone(),
            durable: logs,
            committed: (0..GROUPS).map(|group| (group, 0)).collect(),
        })
    }

    /// A log in another directory of the same lineage.
    pub fn joining(disk: &MemoryDisk, shard_count: u16, lineage: u64) -> Self {
        let options = LogOptions { lineage: Some(lineage), ..options() };
        Self::with(disk, shard_count, options).expect("an empty disk")
    }

    pub fn log(&mut self, of: u16) -> &mut ShardLog {
        let count = self.shards.len();
        &mut self.shards[usize::from(of) % count]
    }

    pub fn is_replicated(&self, of: u16) -> bool {
        self.shards[usize::from(of) % self.shards.len()].is_replicated(group(of))
    }

    /// Makes a group replicated.
    pub fn replicate(&mut self, of: u16, note: Note) -> Result<(), Broken> {
        let last = self.open[&of].last();
        let last_term = Term::new(self.open[&of].term_of(last));
        self.retry((of, 0), |log| log.replicate(group(of), note, last_term))?;
        let note = Note { commit: EntryIndex::new(last), ..note };
        self.open.get_mut(&of).unwrap().note = Some(note);
        Ok(())
    }

    pub fn note(&mut self, of: u16, note: Note) -> Result<(), Broken> {
        self.retry((of, u64::MAX), |log| log.note(group(of), note))?;
        let committed = self.committed.get_mut(&of).unwrap();
        *committed = note.commit.get().max(*committed);
        let note = Note { commit: EntryIndex::new(*committed), ..note };
        self.open.get_mut(&of).unwrap().note = Some(note);
        Ok(())
    }

    /// Appends at `index`; what was there and behind it is superseded.
    pub fn append(&mut self, of: u16, index: u64, logged: Logged) -> Result<(), Broken> {
        let kind = logged.kind();
        let Logged { term, stream, command, data } = &logged;
        let entry = NewEntry {
            group: group(of),
            term: Term::new(*term),
            subject: EntrySubject::new(*stream),
            at: Timestamp::new(1_700_000_000_000 + index),
            kind,
            command,
            data,
        };
        if self.is_replicated(of) {
            let at = EntryIndex::new(index);
            self.retry((of, index - 1), |log| log.append_entry(Purpose::Data, at, entry))?;
        } else {
            let append = |log: &mut ShardLog| log.append(entry).map_err(ReplicaError::Refused);
            let found = self.retry((of, 0), append)?;
            assert_eq!(found.get(), index, "the log counts the entries of a group with one voter");
        }
        let entries = &mut self.open.get_mut(&of).unwrap().entries;
        entries.truncate(index as usize - 1);
        entries.push(logged);
        Ok(())
    }

    /// Runs jobs while the log pushes back, and commits what is durable: what is not committed keeps its segment. Of the
    /// group itself no entry behind `limit` is committed.
    fn retry<T>(
        &mut self,
        (of, limit): (u16, u64),
        mut call: impl FnMut(&mut ShardLog) -> Result<T, ReplicaError>,
    ) -> Result<T, Broken> {
        for _ in 0..1000 {
            match call(self.log(of)) {
                Ok(done) => return Ok(done),
                Err(ReplicaError::Refused(AppendError::Backpressure)) => {
                    self.sync_all()?;
                    for other in 0..GROUPS {
                        if !self.is_replicated(other) {
                            continue;
                        }
                        let most = self.committable(other);
                        let upto = if other == of { most.min(limit) } else { most };
                        self.commit(other, upto.max(self.committed[&other]))?;
                    }
                    self.work()?;
                }
                Err(ReplicaError::Refused(_)) => return Err(Broken),
                Err(error) => panic!("group {of}: {error}"),
            }
        }
        panic!("the log pushes back for ever: {:?}", self.log(of).stats());
    }

    /// Closes a batch of a shard, if none is in flight, and leaves its job aside.
    pub fn close_batch(&mut self, shard: usize) {
        if self.jobs[shard].is_none() {
            self.jobs[shard] = self.shards[shard].poll_sync();
            if self.jobs[shard].is_some() {
                let count = self.shards.len();
                let is_here = |(of, _): &(&u16, &Log)| usize::from(**of) % count == shard;
                let logs = self.open.iter().filter(is_here).map(|(of, log)| (*of, log.clone()));
                let (logs, has_run, is_synced) = (logs.collect(), false, false);
                self.in_flight[shard] = Some(InFlight { logs, has_run, is_synced });
            }
        }
    }

    /// Writes and syncs the batch in flight.
    fn run_batch(&mut self, shard: usize) -> Option<SyncDone> {
        let job = self.jobs[shard].take()?;
        self.in_flight[shard].as_mut().expect("it was closed").has_run = true;
        Some(job.run())
    }

    /// Makes one batch of a shard durable; `false` if there was none.
    pub fn sync(&mut self, shard: usize) -> Result<bool, Broken> {
        self.close_batch(shard);
        let Some(done) = self.run_batch(shard) else { return Ok(false) };
        let batch = self.shards[shard].handle_synced(done).map_err(|_| Broken)?;
        let in_flight = self.in_flight[shard].take().expect("it was closed");
        self.durable.extend(in_flight.logs);
        for entry in batch.entries() {
            let of = entry.group.get();
            if !self.is_replicated(of) {
                // Durable is committed.
                *self.committed.get_mut(&of).unwrap() = entry.index.get();
                self.apply(&entry);
            }
        }
        self.shards[shard].check_all();
        Ok(true)
    }

    pub fn sync_all(&mut self) -> Result<(), Broken> {
        for shard in 0..self.shards.len() {
            while self.sync(shard)? {}
        }
        Ok(())
    }

    /// Lets the batch of a shard reach the disk, and crashes before anybody hears of it.
    pub fn sync_unheard(&mut self, shard: usize) {
        self.close_batch(shard);
        if let Some(done) = self.run_batch(shard) {
            let in_flight = self.in_flight[shard].as_mut().expect("it was closed");
            // Nobody but the log may look at the result. It tells it to people.
            in_flight.is_synced = format!("{done:?}").contains("Ok(())");
        }
    }

    /// From now on the disk may have `new` in the place of a group's log.
    pub fn expect(&mut self, of: u16, new: Log) {
        let shard = usize::from(of) % self.shards.len();
        assert!(self.in_flight[shard].is_none(), "one change at a time");
        self.committed.insert(of, new.last().max(self.committed[&of]));
        let logs = Logs::from([(of, new)]);
        self.in_flight[shard] = Some(InFlight { logs, has_run: true, is_synced: false });
    }

    /// The disk has what was expected, or not.
    pub fn settle(&mut self, of: u16, has_come: bool) {
        let shard = usize::from(of) % self.shards.len();
        let batch = self.in_flight[shard].take().expect("something was expected");
        if has_come {
            self.open.extend(batch.logs.clone());
            self.durable.extend(batch.logs);
        } else {
            let committed = self.log(of).committed_index(group(of)).get();
            self.committed.insert(of, committed);
        }
    }

    /// Takes back what is known of batches in flight: the disk has them or not.
    pub fn doubt(&mut self) {
        self.in_flight.iter_mut().flatten().for_each(|batch| batch.is_synced = false);
    }

    /// Opens what is on a damaged disk, and says what is not as it was.
    pub fn reopen_damaged(self, shard_count: u16) -> (Self, String) {
        let Self { disk, options, durable, committed, shards, .. } = self;
        drop(shards);
        let opened = Self::with(&disk, shard_count, options);
        let world = opened.unwrap_or_else(|_| panic!("a damaged log opens"));
        let told = world.differs(&durable, &committed);
        (world, told)
    }

    /// The last entry that may be committed: it is durable here.
    pub fn committable(&self, of: u16) -> u64 {
        self.open[&of].common(&self.durable[&of])
    }

    /// Learns that entries are committed, and applies them.
    pub fn commit(&mut self, of: u16, upto: u64) -> Result<(), Broken> {
        self.log(of).commit(group(of), EntryIndex::new(upto)).expect("it is in the log");
        let committed = self.committed.get_mut(&of).unwrap();
        *committed = upto.max(*committed);
        self.apply_committed(of)
    }

    /// Applies what is committed, from what the log gives back.
    pub fn apply_committed(&mut self, of: u16) -> Result<(), Broken> {
        loop {
            let applied = self.log(of).applied_index(group(of)).get();
            if applied >= self.committed[&of] {
                return Ok(());
            }
            let from = EntryIndex::new(applied + 1);
            let read = self.log(of).entries(group(of), from, 2000).expect("it is in the log");
            for entry in read.run().map_err(|_| Broken)? {
                if entry.entry().index.get() <= self.committed[&of] {
                    self.apply(entry.durable().expect("what is committed is durable here"));
                }
            }
        }
    }

    fn apply(&mut self, entry: &DurableEntry) {
        let key = StreamKey { group: entry.group, stream: StreamId::new(entry.subject.get()) };
        let what = (key, entry.index, entry.kind);
        let placed = self.machine.apply_one(what, &entry.command, entry.data.len() as u64);
        let ends = self.machine.streams[&key];
        let log = self.log(entry.group.get());
        match placed {
            Some(placement) => log.place(entry, placement),
            None if ends.is_deleted => log.forget(key),
            None => log.trim(key, ByteOffset::new(ends.head)),
        }
        log.applied(entry.group, entry.index);
    }

    pub fn checkpoint(&mut self, of: u16) {
        let at = self.log(of).applied_index(group(of));
        let rows = self.machine.rows(group(of));
        self.log(of).checkpoint(group(of), at, b"header".to_vec(), rows);
    }

    /// Runs background work until there is none.
    pub fn work(&mut self) -> Result<(), Broken> {
        for shard in 0..self.shards.len() {
            for _ in 0..100 {
                if let Some(wanted) = self.shards[shard].wants_checkpoint() {
                    self.checkpoint(wanted.get());
                }
                let Some(job) = self.shards[shard].poll_work() else { break };
                if self.shards[shard].handle_work(job.run()).error.is_some() {
                    return Err(Broken);
                }
            }
            self.shards[shard].check_all();
        }
        Ok(())
    }

    /// Opens what is on the disk, and finds out which batches have arrived.
    pub fn reopen(self, shard_count: u16, place: &str) -> Self {
        let Self { disk, options, durable, in_flight, committed, shards, .. } = self;
        drop(shards);
        let mut world = Self::with(&disk, shard_count, options)
            .unwrap_or_else(|_| panic!("{place}: a crashed log opens"));
        assert_eq!(world.machine.damages, [], "{place}");
        world.durable = durable;
        for batch in in_flight.into_iter().flatten() {
            let mut choices = Vec::new();
            if !batch.is_synced {
                let before = batch.logs.keys().map(|of| (*of, world.durable[of].clone()));
                choices.push(before.collect::<Logs>());
            }
            if batch.has_run {
                choices.push(batch.logs);
            }
            let told: Vec<String> =
                choices.iter().map(|logs| world.differs(logs, &committed)).collect();
            let found = told.iter().position(String::is_empty);
            let found = found.unwrap_or_else(|| panic!("{place}: the disk has {told:#?}"));
            world.durable.extend(choices.swap_remove(found));
        }
        let told = world.differs(&world.durable, &committed);
        assert!(told.is_empty(), "{place}: {told}");
        world.open = world.durable.clone();
        for (of, log) in &world.durable {
            let is_solo = log.note.is_none();
            let found =
                world.shards[usize::from(*of) % world.shards.len()].committed_index(group(*of));
            world.committed.insert(*of, found.get());
            assert!(!is_solo || found.get() == log.last(), "{place}: all of group {of} is applied");
        }
        world.check(place);
        world
    }

    /// What is not as in `logs`, in words; nothing if all is.
    fn differs(&self, logs: &Logs, committed: &BTreeMap<u16, u64>) -> String {
        let told = logs.iter().map(|(of, log)| self.differs_in(*of, log, committed[of]));
        told.collect::<Vec<_>>().join("")
    }

    fn differs_in(&self, of: u16, log: &Log, committed: u64) -> String {
        let shard = &self.shards[usize::from(of) % self.shards.len()];
        let last = shard.last_index(group(of)).get();
        if last != log.last() {
            return format!("group {of}: {last} entries and not {}; ", log.last());
        }
        let note = shard.last_note(group(of));
        if note.map(|note| (note.term, note.vote)) != log.note.map(|note| (note.term, note.vote)) {
            return format!("group {of}: the note {note:?} and not {:?}; ", log.note);
        }
        let found = shard.committed_index(group(of)).get();
        let least = log.note.map_or(log.last(), |note| note.commit.get());
        // A checkpoint, a chunk or a note that was written again may know more.
        if found < least || (log.note.is_some() && found > committed) {
            return format!("group {of}: {found} committed of {least} to {committed}; ");
        }
        match first_difference(shard, of, log) {
            Some(told) => format!("group {of}: {told}; "),
            None => String::new(),
        }
    }

    /// Checks everything that can be asked for.
    pub fn check(&self, place: &str) {
        for (of, log) in &self.open {
            let shard = &self.shards[usize::from(*of) % self.shards.len()];
            assert_eq!(first_difference(shard, *of, log), None, "{place}: group {of}");
            let applied = shard.applied_index(group(*of)).get();
            assert_eq!(applied, self.committed[of], "{place}: what is committed is applied");
            for (stream, content) in log.contents(applied) {
                if content.is_deleted {
                    continue;
                }
                let key = StreamKey { group: group(*of), stream: StreamId::new(stream) };
                let bytes = &content.bytes[content.head as usize..];
                let mut found = Vec::new();
                while found.len() < bytes.len() {
                    let at = ByteOffset::new(content.head + found.len() as u64);
                    let slice = shard.read(key, at, 3000);
                    let slice = slice.unwrap_or_else(|error| panic!("{place}: {key}: {error}"));
                    assert!(!slice.is_empty(), "{place}: {key} ends at {at}");
                    found.extend_from_slice(&slice.to_bytes().expect("it is intact"));
                }
                assert!(found == bytes, "{place}: {key} holds what is committed");
            }
        }
    }
}

/// The first entry, of those that are asked for by index, that is not as in `log`, in words.
fn first_difference(shard: &ShardLog, of: u16, log: &Log) -> Option<String> {
    log.note?;
    let first = shard.first_index(group(of)).map_or(log.last() + 1, EntryIndex::get);
    let term = shard.term_of(group(of), EntryIndex::new(first - 1)).map(Term::get);
    if term != Some(log.term_of(first - 1)) {
        let before = log.term_of(first - 1);
        return Some(format!("{term:?} and not {before} is the term before entry {first}"));
    }
    let mut next = first;
    while next <= log.last() {
        let read = shard.entries(group(of), EntryIndex::new(next), 1000).expect("it is there");
        let found = match read.run() {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        for stored in found {
            let (entry, logged) = (stored.entry(), log.entry(next));
            let (command, data) = (&logged.command[..], &logged.data[..]);
            let is_same = (entry.index.get(), entry.term.get()) == (next, logged.term)
                && (entry.subject.get(), &entry.command[..], &entry.data[..])
                    == (logged.stream, command, data)
                && stored.command_crc == crc32c::crc32c(command)
                && stored.data_crc == crc32c::crc32c(data)
                && shard.term_of(group(of), entry.index) == Some(entry.term);
            if !is_same {
                return Some(format!("{entry:?} and not entry {next} of {}", logged.term));
            }
            next += 1;
        }
    }
    None
}
