//! The first of two passes over the WALs of a store with replicated groups: which entries are alive, and what is committed.
//!
//! # Why
//! In a group with one voter each entry of a live batch is committed, and one pass applies it. In a replicated group a later entry
//! may have taken the place of an earlier one, and the last entries may never commit. That is known only when all headers
//! were read. So this pass reads headers alone, and the second one applies what is alive and committed.
//!
//! # Why notes end a log
//! Segments of several WALs are given up in no order, if the number of shards has changed. So an entry may be left that
//! another one, in a segment that is gone, had superseded. A note says what the last entry was when it was written, and the
//! newest note is never given up: what is behind its last entry is dead. What a checkpoint covers is not looked for in
//! front of a place where something may be gone.
//!
//! # Why records are counted by snapshots
//! A snapshot takes the place of the whole log, whatever that has behind it. Each record says how many of them came before it,
//! and so does the checkpoint that a snapshot becomes. What was written before the last one is dead, wherever it lies.
//!
//! # Invariants
//! - What this pass says depends only on the files.

use crate::directory::{Directory, EntryPlace};
use crate::entry::Note;
use crate::wal::layout::{BatchPlace, EntryHeader, WritePlace, entry_header_position};
use crate::wal::scan::{FoundBatch, LiveBatch, entry_header, read_batch, read_headless};
use crate::wal::segment::SegmentFile;
use model::EntryIndex;
use std::collections::{BTreeMap, HashSet};
use std::io;

/// A live batch, and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchAt<'a> {
    pub(crate) batch: &'a LiveBatch,
    pub(crate) file: &'a SegmentFile,
    pub(crate) slot: u16,
    pub(crate) wal: u16,
}

/// What is known of a group before a WAL is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupStart {
    pub(crate) checkpointed: u64,
    /// The term of that entry; 0 if the group had one voter then.
    pub(crate) checkpoint_term: u64,
    /// The last entry that a chunk or a checkpoint covers: it was committed.
    pub(crate) covered: u64,
    /// How many snapshots were installed: what was written before the last one is dead.
    pub(crate) installs: u16,
}

/// An entry that no later one has superseded so far.
#[derive(Debug, Clone, Copy)]
struct Alive {
    index: u64,
    term: u64,
    place: EntryPlace,
}

/// What the headers say of one group.
#[derive(Debug)]
pub(crate) struct SurveyedGroup {
    start: GroupStart,
    /// The newest note, and the slot of its segment.
    pub(crate) note: Option<(Note, u16)>,
    /// The last entry when the newest note was written, as far as it was not superseded since.
    noted_last: u64,
    commit: u64,
    /// In order of their indexes. Where some are missing, these were superseded and are gone, or they are lost.
    alive: Vec<Alive>,
    dead: HashSet<EntryPlace>,
    /// The WAL of its last record, and the opening that wrote that.
    written: (u16, u64),
}

impl SurveyedGroup {
    fn new(start: GroupStart) -> Self {
        Self {
            start,
            note: None,
            noted_last: 0,
            commit: start.covered,
            alive: Vec::new(),
            dead: HashSet::new(),
            written: (u16::MAX, 0),
        }
    }

    fn is_replicated(&self) -> bool {
        self.note.is_some() || self.start.checkpoint_term > 0
    }

    fn last(&self) -> u64 {
        self.alive.last().map_or(0, |entry| entry.index).max(self.start.covered)
    }

    /// The last entry that is known as committed.
    pub(crate) fn committed(&self) -> u64 {
        self.commit.min(self.last())
    }

    /// How many snapshots were installed.
    pub(crate) fn installs(&self) -> u16 {
        self.start.installs
    }

    /// Whether another entry, or a snapshot, has taken the place of this one.
    pub(crate) fn is_dead(&self, place: EntryPlace) -> bool {
        self.dead.contains(&place)
    }

    /// The first and last entries that a note tells of and no WAL has, if there are any.
    pub(crate) fn missing(&self) -> Option<(u64, u64)> {
        let first = self.last() + 1;
        (first <= self.noted_last).then_some((first, self.noted_last))
    }

    /// Takes a record of the WAL and the opening in `written`. Each opening begins with a note. So between this record and
    /// the last one nothing is gone if both are of one WAL and no opening is left out.
    fn take(&mut self, header: &EntryHeader, place: EntryPlace, slot: u16, written: (u16, u64)) {
        let (wal, epoch) = self.written;
        if written.0 != wal || written.1 > epoch + 1 {
            let checkpointed = self.start.checkpointed;
            let covered = self.alive.partition_point(|entry| entry.index <= checkpointed);
            self.alive.drain(..covered);
        }
        self.written = written;
        if header.installs > self.start.installs {
            // A checkpoint is lost, which was reported.
            self.truncate(0);
            self.start.installs = header.installs;
        }
        let is_older = header.installs < self.start.installs;
        match header.as_note() {
            // What the replica has promised, it has promised. Of the entries a snapshot says what counts.
            Some((note, _)) if is_older => {
                self.note = Some((Note { commit: EntryIndex::new(self.commit), ..note }, slot));
            }
            None if is_older => _ = self.dead.insert(place),
            Some((note, last)) => {
                self.truncate(last + 1);
                self.note = Some((note, slot));
                self.noted_last = last;
                self.commit = self.commit.max(note.commit.get());
            }
            None => {
                self.truncate(header.index);
                self.noted_last = self.noted_last.min(header.index);
                self.alive.push(Alive { index: header.index, term: header.term, place });
            }
        }
    }

    /// The entries from `from` on are dead.
    fn truncate(&mut self, from: u64) {
        while let Some(entry) = self.alive.pop_if(|entry| entry.index >= from) {
            self.dead.insert(entry.place);
        }
    }

    /// The entries from the checkpoint on, and those before it that follow each other up to there.
    pub(crate) fn directory(&self) -> Directory {
        let GroupStart { checkpointed, checkpoint_term, .. } = self.start;
        let follows = |pair: &[Alive]| pair[0].index + 1 == pair[1].index;
        let count = self.alive.windows(2).rev().take_while(|pair| follows(pair)).count() + 1;
        let (_, mut entries) = self.alive.split_at(self.alive.len().saturating_sub(count));
        if entries.last().is_none_or(|last| last.index < checkpointed) {
            entries = &[];
        }
        let base = entries.first().map_or(checkpointed, |first| first.index - 1);
        // Before a group is replicated all its entries are of the first term.
        let is_first = checkpointed > 0 && checkpoint_term == 0;
        let (base_term, skipped) = match base {
            0 => (Some(0), 0),
            _ if base == checkpointed => {
                (Some(if is_first { FIRST_TERM } else { checkpoint_term }), 0)
            }
            // Nobody knows the term of the entry before the first one. So the first one takes its part.
            _ => (None, 1),
        };
        let mut directory = Directory::new(base, base_term);
        entries.iter().for_each(|entry| directory.push(entry.term, entry.place));
        directory.compact(base + skipped);
        directory
    }
}

/// The term of all entries of a group that has had one voter only.
const FIRST_TERM: u64 = 1;

/// What the headers say of all replicated groups.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    groups: BTreeMap<u16, SurveyedGroup>,
}

impl Survey {
    /// Reads the headers of live batches, which come in the order in which they were written. `starts`: of each group.
    ///
    /// # Errors
    /// If a file cannot be read; damage is no error.
    pub(crate) fn of<'a>(
        store: u64,
        batches: impl Iterator<Item = BatchAt<'a>> + Clone,
        starts: &[GroupStart],
    ) -> Result<Self, (&'a SegmentFile, io::Error)> {
        let mut survey = Self::default();
        let has_notes = |at: BatchAt<'_>| match at.batch {
            LiveBatch::Whole(found) => found.header.note_count > 0,
            LiveBatch::Headless { .. } => true,
        };
        let is_replicated = starts.iter().any(|start| start.checkpoint_term > 0);
        if !is_replicated && !batches.clone().any(has_notes) {
            return Ok(survey);
        }
        for (group, start) in (0..).zip(starts) {
            survey.groups.insert(group, SurveyedGroup::new(*start));
        }
        for at in batches {
            survey.take(store, at).map_err(|error| (at.file, error))?;
        }
        survey.groups.retain(|_, group| group.is_replicated());
        Ok(survey)
    }

    /// What is known of a group, if it is replicated.
    pub(crate) fn group(&self, group: u16) -> Option<&SurveyedGroup> {
        self.groups.get(&group)
    }

    /// All that are, in order.
    pub(crate) fn into_groups(self) -> impl Iterator<Item = (u16, SurveyedGroup)> {
        self.groups.into_iter()
    }

    fn take(&mut self, store: u64, at: BatchAt<'_>) -> io::Result<()> {
        let (position, headers) = match at.batch {
            LiveBatch::Whole(found) => (found.position, read_headers(store, at.file, found)?),
            &LiveBatch::Headless { position, seq, .. } => {
                let place = BatchPlace { store, segment: at.file.seq, seq };
                let (bytes, count) = read_headless(at.file, position, place)?;
                (position, decode_all((&bytes, None), place, count))
            }
        };
        let place = WritePlace { slot: at.slot, position };
        for (number, header) in (0..).zip(headers) {
            let group = header.as_ref().and_then(|header| self.groups.get_mut(&header.group));
            if let (Some(header), Some(group)) = (header, group) {
                let written = (at.wal, at.batch.epoch());
                group.take(&header, EntryPlace::on_disk(place, number), at.slot, written);
            }
        }
        Ok(())
    }
}

fn decode_all(
    bytes: (&[u8], Option<u64>),
    place: BatchPlace,
    count: u32,
) -> Vec<Option<EntryHeader>> {
    (0..count).map(|number| Some(entry_header(bytes, place, number)?.value)).collect()
}

/// The entry headers of a batch. Its payload is read only if one of them must be looked for in the copy.
fn read_headers(
    store: u64,
    file: &SegmentFile,
    found: &FoundBatch,
) -> io::Result<Vec<Option<EntryHeader>>> {
    let header = &found.header;
    let place = BatchPlace { store, segment: file.seq, seq: header.seq };
    let mut bytes = vec![0; entry_header_position(header.entry_count)];
    crate::unreadable::read_around(&*file.file, &mut bytes, found.position)?;
    let is_intact = |header: &Option<EntryHeader>| header.is_some();
    let headers: Vec<Option<EntryHeader>> = (0..header.entry_count)
        .map(|number| {
            let at = bytes.get(entry_header_position(number)..)?;
            let found = EntryHeader::decode_sealed(at, place, number)?;
            (!found.is_repaired).then_some(found.value)
        })
        .collect();
    if headers.iter().all(is_intact) {
        return Ok(headers);
    }
    let (bytes, _) = read_batch(file, found)?;
    Ok(decode_all((&bytes, header.copy_position()), place, header.entry_count))
}
