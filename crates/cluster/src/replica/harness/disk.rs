//! What one node's disk holds of the group.

use crate::configuration::{Change, Configuration};
use crate::entry_bytes::{EntryHead, KIND_CHANGE};
use crate::identity::ReplicaId;
use crate::message::{LogPosition, SnapshotPoint};
use crate::replica::{Note, Start};
use crate::terms::Terms;
use bytes::Bytes;
use std::collections::BTreeMap;

/// A checkpoint, the entries behind it, and a note.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) checkpoint: SnapshotPoint,
    /// The state there: a hash of all payloads.
    pub(super) state: u64,
    pub(super) entries: Vec<Bytes>,
    pub(super) note: Note,
}

impl Disk {
    /// As a replica has it that starts from a snapshot.
    pub(super) fn at(checkpoint: SnapshotPoint, state: u64) -> Self {
        let note = Note { term: checkpoint.last.term, vote: None, commit: checkpoint.last.index };
        Self { checkpoint, state, entries: Vec::new(), note }
    }

    pub(super) fn base(&self) -> u64 {
        self.checkpoint.last.index.get()
    }

    pub(super) fn last(&self) -> u64 {
        self.base() + self.entries.len() as u64
    }

    /// An entry behind the checkpoint.
    pub(super) fn entry(&self, index: u64) -> Option<(EntryHead, &Bytes)> {
        let bytes = self.entries.get(index.checked_sub(self.base() + 1)? as usize)?;
        Some((EntryHead::decode(bytes).expect("what was appended is whole"), bytes))
    }

    pub(super) fn term(&self, index: u64) -> Option<u64> {
        if index == self.base() {
            return Some(self.checkpoint.last.term.get());
        }
        self.entry(index).map(|(head, _)| head.at.term.get())
    }

    pub(super) fn push(&mut self, at: LogPosition, bytes: Bytes) {
        assert_eq!(at.index.get(), self.last() + 1, "the owner appends in order");
        let head = EntryHead::decode(&bytes).expect("an entry is whole");
        assert!(head.at == at && head.is_intact(&bytes), "an entry is what was sent");
        self.entries.push(bytes);
    }

    pub(super) fn truncate(&mut self, from: u64) {
        self.entries.truncate((from - self.base() - 1) as usize);
    }

    /// Lets a checkpoint take the place of the entries up to `upto`.
    pub(super) fn compact(&mut self, upto: u64, configuration: Configuration, state: u64) {
        let term = self.term(upto).expect("a checkpoint is of the log");
        self.entries.drain(..(upto - self.base()) as usize);
        self.checkpoint = SnapshotPoint { last: LogPosition::new(upto, term), configuration };
        self.state = state;
    }

    /// What a replica starts with.
    pub(super) fn start(&self, id: ReplicaId) -> Start {
        let mut terms = Terms::new(self.checkpoint.last);
        let mut changes = BTreeMap::new();
        for bytes in &self.entries {
            let head = EntryHead::decode(bytes).expect("what was appended is whole");
            terms.push(head.at, bytes.len() as u32, head.kind == KIND_CHANGE);
            if head.kind == KIND_CHANGE {
                let change = Change::decode(head.command(bytes)).expect("changes are whole");
                changes.insert(head.at.index.get(), change);
            }
        }
        Start {
            id,
            seed: 7,
            configuration: self.checkpoint.configuration.clone(),
            note: self.note,
            terms,
            applied: self.checkpoint.last.index,
            changes,
        }
    }
}
