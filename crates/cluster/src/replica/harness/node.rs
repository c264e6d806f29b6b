//! One node: a replica, its disk with syncs that lag, and its state.

use super::disk::Disk;
use crate::configuration::Configuration;
use crate::entry_bytes::{KIND_NOOP, entry_of_command};
use crate::identity::ReplicaId;
use crate::message::{Body, EntryBytes, GroupMessage, SnapshotPoint};
use crate::replica::{GroupReady, Replica};
use crate::rules::Rules;
use model::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A batch on its way to the disk.
struct Batch {
    number: u64,
    disk: Disk,
    /// It installs a snapshot.
    installs: bool,
}

pub(super) struct Node<R: Rules> {
    pub(super) id: ReplicaId,
    pub(super) replica: Option<Replica<R>>,
    /// As the process sees it.
    pub(super) disk: Disk,
    /// As it is after a crash. `None`: there is nothing of the group.
    pub(super) durable: Option<Disk>,
    batches: VecDeque<Batch>,
    next_batch: u64,
    pub(super) applied: u64,
    pub(super) state: u64,
    /// A snapshot that lies beside the log.
    pub(super) staged: Option<(SnapshotPoint, u64)>,
    /// The least index that each waiting read may be answered with.
    pub(super) reads: BTreeMap<u64, Vec<u64>>,
}

/// What a turn of a node leads to.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) messages: Vec<GroupMessage>,
    /// Index, term, hash of the bytes, and the configuration that it was committed under.
    pub(super) applied: Vec<(u64, u64, u32, Rc<Configuration>)>,
    /// Each read with its answer and the least that it may be.
    pub(super) reads: Vec<(u64, u64)>,
    pub(super) installed: bool,
}

impl<R: Rules> Node<R> {
    pub(super) fn new(id: ReplicaId, durable: Option<Disk>) -> Self {
        let nobody =
            SnapshotPoint { last: Default::default(), configuration: Configuration::default() };
        Self {
            id,
            replica: None,
            disk: Disk::at(nobody, 0),
            durable,
            batches: VecDeque::new(),
            next_batch: 1,
            applied: 0,
            state: 0,
            staged: None,
            reads: BTreeMap::new(),
        }
    }

    pub(super) fn start(&mut self) {
        if let (None, Some(durable)) = (&self.replica, &self.durable) {
            self.disk = durable.clone();
            (self.applied, self.state) = (self.disk.base(), self.disk.state);
            self.replica = Some(Replica::new(self.disk.start(self.id)));
        }
    }

    pub(super) fn crash(&mut self) {
        self.replica = None;
        self.batches.clear();
        self.staged = None;
        self.reads.clear();
    }

    /// Takes all that is ready, into one batch.
    pub(super) fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        self.drain(&mut turn);
        turn
    }

    fn drain(&mut self, turn: &mut Turn) {
        let (mut has_changed, mut installs) = (false, false);
        let before = self.disk.last();
        loop {
            let Some(replica) = self.replica.as_mut() else { return };
            let configuration = Rc::new(replica.configuration().clone());
            let Some(ready) = replica.take_ready(self.next_batch) else { break };
            has_changed |= ready.is_urgent || !ready.append.is_empty();
            installs |= ready.install.is_some();
            self.take(ready, configuration, turn);
        }
        if has_changed || installs || self.disk.last() != before {
            let disk = self.disk.clone();
            if installs {
                // The record that says that the snapshot is in its place shares this batch.
                self.replica.as_mut().expect("it is there").installed(self.next_batch);
            }
            self.batches.push_back(Batch { number: self.next_batch, disk, installs });
            self.next_batch += 1;
        }
    }

    fn take(&mut self, ready: GroupReady, configuration: Rc<Configuration>, turn: &mut Turn) {
        if let Some(point) = ready.install {
            let (staged, state) = self.staged.take().expect("the contents are beside the log");
            assert_eq!(staged, point, "the snapshot is the one that was sent");
            assert!(point.last.index.get() > self.applied, "a snapshot goes back");
            let note = self.disk.note;
            self.disk = Disk { note, ..Disk::at(point.clone(), state) };
            (self.applied, self.state) = (point.last.index.get(), state);
            turn.installed = true;
        }
        if let Some(from) = ready.truncate_from {
            assert!(from.get() > self.applied, "what is applied is truncated");
            self.disk.truncate(from.get());
        }
        for entry in ready.append {
            let time = Timestamp::new(0);
            let noop = || entry_of_command(entry.at, time, KIND_NOOP, &[]);
            self.disk.push(entry.at, entry.bytes.unwrap_or_else(noop));
        }
        if let Some(note) = ready.note {
            self.disk.note = note;
        }
        turn.messages.extend(ready.messages.into_iter().map(|message| self.filled(message)));
        for (read, index) in ready.reads {
            let floors = self.reads.remove(&read).unwrap_or_default();
            turn.reads.extend(floors.into_iter().map(|floor| (index.get(), floor)));
        }
        for read in ready.lost_reads {
            self.reads.remove(&read);
        }
        if let Some(commit) = ready.committed {
            self.apply(commit.upto().get(), &configuration, turn);
        }
    }

    fn apply(&mut self, upto: u64, configuration: &Rc<Configuration>, turn: &mut Turn) {
        for index in self.applied + 1..=upto {
            let (head, bytes) = self.disk.entry(index).expect("what is committed is in the log");
            let durable = self.durable.as_ref().and_then(|disk| disk.term(index));
            assert_eq!(durable, Some(head.at.term.get()), "applied what is not durable");
            let hash = crc32c::crc32c(bytes);
            turn.applied.push((index, head.at.term.get(), hash, Rc::clone(configuration)));
            self.state = self.state.rotate_left(5) ^ u64::from(hash);
        }
        self.applied = upto;
        let replica = self.replica.as_mut().expect("it has just handed out what is committed");
        replica.applied(model::EntryIndex::new(upto));
    }

    /// Fetches the bytes of a message's entries.
    fn filled(&self, mut message: GroupMessage) -> GroupMessage {
        if let Body::Append { entries, .. } = &mut message.body {
            for entry in entries {
                let found = self.disk.entry(entry.at.index.get());
                let (head, bytes) = found.expect("what is sent is in the log");
                assert_eq!(head.at, entry.at, "what is sent is what the library means");
                entry.bytes = EntryBytes::Sent(bytes.clone());
            }
        }
        message
    }

    /// How many batches are on their way.
    pub(super) fn waiting(&self) -> usize {
        self.batches.len()
    }

    /// Lets `count` batches become durable.
    pub(super) fn persist(&mut self, count: usize) -> Turn {
        let mut turn = Turn::default();
        for _ in 0..count {
            let Some(batch) = self.batches.pop_front() else { break };
            self.durable = Some(batch.disk);
            let replica = self.replica.as_mut().expect("only a running node writes");
            let released = replica.persisted(batch.number);
            turn.messages.extend(released.into_iter().map(|message| self.filled(message)));
            turn.installed |= batch.installs;
        }
        if self.replica.is_some() {
            self.drain(&mut turn);
        }
        turn
    }
}
