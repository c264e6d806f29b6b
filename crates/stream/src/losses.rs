//! What damage on disk has taken from a group, and what that means for its streams.
//!
//! # What can be lost
//! - The row of a stream in a checkpoint, or the entry that created it. Its path is still known by
//!   its hash, so the path answers `Damaged` until it is deleted.
//! - An entry of a stream that is there. The stream's state cannot be trusted, so it answers
//!   `Damaged` until it is deleted.
//! - Entries that name no stream any more. No stream that was there then can be trusted.
//! - A creation that names no path any more. Then "not found" would be a guess for every path.
//!
//! # Why apart
//! A group without damage never looks in here but to see that nothing is lost. The rules of the
//! protocol, in the other files, ask this one a few questions.
//!
//! # Invariants
//! - Bytes of a stream that is lost are never given up: forks that nobody remembers may read them.
//! - Two replicas that lost the same write the same header.

use crate::{
    CreateRequest, DecodeError, GroupState, Outcome, Refusal,
    codec::{Reader, Writer},
    create::{self, Wanted},
    record::StreamRecord,
};
use model::{ByteOffset, EntryIndex, PathHash, StreamId, StreamPath};
use std::collections::{BTreeMap, BTreeSet};

/// What a group has lost.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Streams without a record that still hold a path.
    damaged: BTreeMap<PathHash, StreamId>,
    /// Streams of which some entry was lost.
    lost: BTreeSet<StreamId>,
    /// A creation was lost, and its path with it.
    unnamed_creation: bool,
    /// The last applied entry when entries of unknown streams were lost.
    suspect_upto: Option<EntryIndex>,
}

impl Losses {
    /// Whether anything was lost.
    pub(crate) fn is_any(&self) -> bool {
        self.suspect_upto.is_some()
            || self.unnamed_creation
            || !self.lost.is_empty()
            || !self.damaged.is_empty()
    }

    /// Whether an entry of the stream was, or may have been, lost.
    pub(crate) fn is_lost(&self, stream: StreamId) -> bool {
        self.is_suspect(stream) || self.lost.contains(&stream)
    }

    /// Whether the stream was there when entries were lost that nobody can name.
    pub(crate) fn is_suspect(&self, stream: StreamId) -> bool {
        self.suspect_upto.is_some_and(|upto| (1..=upto.get()).contains(&stream.get()))
    }

    /// Whether a creation was, or may have been, lost with its path.
    fn may_lack_a_creation(&self) -> bool {
        self.suspect_upto.is_some() || self.unnamed_creation
    }

    /// The answer for a path that no record has.
    pub(crate) fn missing(&self, path: PathHash) -> Refusal {
        // If a creation may have been lost, "not found" would be a guess.
        let is_damaged = self.damaged.contains_key(&path) || self.may_lack_a_creation();
        if is_damaged { Refusal::Damaged } else { Refusal::NotFound }
    }

    /// A stream without a record gets the path of one that was lost, or takes it from one whose
    /// record makes way. The bytes of the one before stay.
    pub(crate) fn note_path_taken(&mut self, path: PathHash) {
        if let Some(before) = self.damaged.remove(&path) {
            self.note_lost(before);
        }
    }

    /// The record of `stream` made way for another one though it was not deleted.
    pub(crate) fn note_made_way(&mut self, stream: StreamId) {
        self.note_lost(stream);
    }

    /// Only a forged checkpoint names the stream 0, which no entry makes. It is written as the sign of a creation
    /// without a path, so it is kept as that.
    fn note_lost(&mut self, stream: StreamId) {
        if stream.get() == 0 {
            self.unnamed_creation = true;
        } else {
            self.lost.insert(stream);
        }
    }

    /// Frees the path of a stream whose record was lost. Its bytes stay, for its references were
    /// lost too and forks may read them.
    pub(crate) fn free_path(&mut self, stream: StreamId) -> bool {
        let before = self.damaged.len();
        self.damaged.retain(|_, damaged| *damaged != stream);
        let freed = self.damaged.len() < before;
        if freed {
            self.note_lost(stream);
        }
        freed
    }

    fn mark_damaged(&mut self, stream: StreamId, path: PathHash) {
        let before = self.damaged.insert(path, stream);
        if let Some(before) = before.filter(|before| *before != stream) {
            self.note_lost(before);
        }
    }

    fn lose_up_to(&mut self, last: EntryIndex) {
        self.suspect_upto = self.suspect_upto.max((last.get() > 0).then_some(last));
    }

    /// Part of the group's header. A creation that names no path is the stream 0, which no entry
    /// makes; no suspect streams are those up to 0.
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        writer.number(self.damaged.len() as u64);
        for (path, stream) in &self.damaged {
            writer.number(path.get());
            writer.number(stream.get());
        }
        writer.number(self.lost.len() as u64 + u64::from(self.unnamed_creation));
        if self.unnamed_creation {
            writer.number(0);
        }
        for stream in &self.lost {
            writer.number(stream.get());
        }
        writer.number(self.suspect_upto.map_or(0, EntryIndex::get));
    }

    /// Adds what [`Self::encode`] wrote.
    pub(crate) fn restore(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..reader.number()? {
            let (path, stream) = (PathHash::new(reader.number()?), StreamId::new(reader.number()?));
            // A row that is damaged now is of a later stream at the path.
            match self.damaged.get(&path) {
                Some(later) if *later != stream => self.note_made_way(stream),
                _ => self.mark_damaged(stream, path),
            }
        }
        for _ in 0..reader.number()? {
            self.note_lost(StreamId::new(reader.number()?));
        }
        self.lose_up_to(EntryIndex::new(reader.number()?));
        Ok(())
    }
}

/// What recovery found out.
impl GroupState {
    /// Records that the stream's state was lost to damage on disk: its path answers `Damaged` until it
    /// is deleted.
    pub fn mark_damaged(&mut self, stream: StreamId, path: PathHash) {
        self.losses.mark_damaged(stream, path);
    }

    /// Records that the creation of `stream`, logged as the entry of its id, was lost. If the path is another's
    /// at this point of the log, the creation was refused. `true` if it was not.
    pub fn lose_creation(&mut self, stream: StreamId, path: PathHash) -> bool {
        if let Some(holder) = self.streams.find_hash(path)
            && !self.losses.is_lost(holder.id)
        {
            return false;
        }
        if self.losses.damaged.contains_key(&path) {
            // The one that was lost before it, but for a deletion that was lost as well.
            self.losses.note_lost(stream);
            return false;
        }
        self.losses.mark_damaged(stream, path);
        true
    }

    /// Records that an entry of `stream` was lost. The stream's state cannot be trusted, and its path
    /// answers `Damaged` until it is deleted. No later data is placed, since its offset is unknown.
    pub fn lose(&mut self, stream: StreamId) {
        self.losses.note_lost(stream);
    }

    /// Records that `entry` was lost, which named no stream and may have created one. That stream
    /// would have the entry's index, and forks may read its bytes.
    pub fn lose_unnamed(&mut self, entry: EntryIndex) {
        self.losses.unnamed_creation = true;
        self.losses.note_lost(StreamId::new(entry.get()));
    }

    /// Records that the creation logged as `entry` was not carried out. Where something was lost, it may
    /// have been carried out before that: the bytes of the stream that it made stay.
    pub fn note_refused_creation(&mut self, entry: EntryIndex) {
        if self.losses.is_any() {
            self.losses.note_lost(StreamId::new(entry.get()));
        }
    }

    /// Records that entries up to `last` were lost and nobody can tell of which streams; to be called before
    /// what comes behind them is applied. All streams that were there answer `Damaged`, since any of
    /// them may lack an append, and so do unknown paths, since a creation may be lost. Nothing more
    /// is placed in those streams. New ones can be made.
    pub fn lose_up_to(&mut self, last: EntryIndex) {
        self.losses.lose_up_to(last);
    }

    /// Records that the state of one stream was lost and nobody can tell of which: unknown paths answer
    /// `Damaged`, and the bytes of unknown streams stay.
    pub fn lose_one(&mut self) {
        self.losses.unnamed_creation = true;
    }
}

/// What others ask about it.
impl GroupState {
    /// The stream whose state was lost and that had the path with this hash.
    #[must_use]
    pub fn damaged_at(&self, path: PathHash) -> Option<StreamId> {
        self.losses.damaged.get(&path).copied()
    }

    /// The stream whose damage makes `path` answer `Damaged`, so that it can be deleted.
    #[must_use]
    pub fn damaged_stream(&self, path: &StreamPath) -> Option<StreamId> {
        let record = || self.streams.find(path).filter(|record| self.losses.is_lost(record.id));
        self.damaged_at(path.hash()).or_else(|| record().map(|record| record.id))
    }

    /// The first byte of a stream that is needed, or 0 if it may be needed though its state is lost.
    #[must_use]
    pub fn floor_or_lost(&self, stream: StreamId) -> Option<ByteOffset> {
        let losses = &self.losses;
        let lost = losses.is_lost(stream)
            || losses.unnamed_creation
            || losses.damaged.values().any(|damaged| *damaged == stream);
        self.floor(stream).or(lost.then_some(ByteOffset::ZERO))
    }

    /// Whether bytes of a stream that forks read, or that was named, may be gone: entries of it were lost, or all that
    /// was known of it.
    #[must_use]
    pub fn may_lack_bytes(&self, stream: StreamId) -> bool {
        self.losses.is_lost(stream) || self.streams.get(stream).is_none()
    }

    /// Whether a fork at `path` that nobody remembers may hold a reference.
    pub(crate) fn may_lack_a_fork(&self, path: &StreamPath) -> bool {
        self.losses.damaged.contains_key(&path.hash())
            || self.losses.may_lack_a_creation()
            || self.losses.lost.iter().any(|stream| self.streams.get(*stream).is_none())
    }

    /// The answer to a creation at the path of `holder`. A deleted one that lost an entry does not hold it:
    /// what was lost may have been the last reference to it.
    pub(crate) fn judge_holder(
        &self,
        holder: &StreamRecord,
        wanted: Wanted<'_>,
    ) -> Option<Outcome> {
        match (self.losses.is_lost(holder.id), holder.deleted) {
            (true, true) => None,
            (true, false) => Some(Outcome::Refused(Refusal::Damaged)),
            (false, _) => Some(create::judge_existing(holder, wanted)),
        }
    }

    /// The answer to a creation at a path whose stream lost its record, else `None`.
    pub(crate) fn judge_damaged_path(&self, asked: &CreateRequest) -> Option<Outcome> {
        let is_damaged = self.losses.damaged.contains_key(&asked.path.hash());
        is_damaged.then_some(Outcome::Refused(Refusal::Damaged))
    }
}
