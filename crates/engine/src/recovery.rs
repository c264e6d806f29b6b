//! Rebuilds the streams when the log is opened.
//!
//! # Invariants
//! - With every append synced, a hole is damage: it is reported, and all around it is kept.
//! - With syncs postponed, nothing from the first unsynced hole on is taken: neither of the stream
//!   that it hits nor of another one. What is left is what was written up to some moment.
//! - What does not count once never counts again: its indexes are recorded before the first append,
//!   in the same write that ends the last life's `FRONT`.

use crate::command::Command;
use crate::streams::{Effect, Streams};
use crate::synced::{Synced, SyncedTo};
use log::{CheckpointRow, Damage, DamageKind, Entry, NewerVersion, Replay};
use model::{ByteOffset, EntryIndex, EntrySubject, GroupId, Placement, StreamId, StreamKey};
use std::path::Path;

/// Whether all that is known is that bytes of the WAL are missing: if entries are, too, they are
/// reported by their indexes. Headers may be there a second time.
fn is_nameless_hole(damage: &Damage) -> bool {
    let kinds = [
        DamageKind::BatchHeader,
        DamageKind::EntryHeader,
        DamageKind::SegmentMissing,
        DamageKind::HeaderRepaired,
    ];
    damage.entries.is_none() && kinds.contains(&damage.kind)
}

/// The number in the name of a WAL segment.
fn segment(file: &Path) -> Option<u64> {
    let is_wal = file.extension().is_some_and(|extension| extension == "wal");
    let stem = file.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_wal);
    stem.and_then(|stem| u64::from_str_radix(stem, 16).ok())
}

/// The last WAL segment in which the hole of this report may be, if it is a hole of the WAL. It is
/// reported where it may begin, and segments may be recycled up to its end. Missing entries are reported at
/// the batch behind them.
fn last_segment(damage: &Damage) -> Option<u64> {
    let is_hole = damage.kind == DamageKind::EntriesMissing || is_nameless_hole(damage);
    let last_file = damage.last_file.as_deref().unwrap_or(&damage.file);
    if is_hole { segment(last_file) } else { None }
}

/// The state machine while the log is opened.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) streams: Streams,
    pub(crate) damages: Vec<Damage>,
    pub(crate) synced: Synced,
    /// Index that the next entry should have.
    next: u64,
    /// Nothing from here on counts.
    pub(crate) cut: Option<u64>,
}

impl Recovery {
    pub(crate) fn new(synced: Synced) -> Self {
        let (streams, damages) = (Streams::default(), Vec::new());
        Self { streams, damages, synced, next: 1, cut: None }
    }

    /// What is to be recorded now that everything up to `last` is synced, and the damage to report.
    pub(crate) fn finish(mut self, last: u64) -> (Streams, Synced, Vec<Damage>) {
        // A hole of unsynced bytes is no damage, as long as all that was synced is there.
        if self.synced.upto <= SyncedTo::Index(last) && self.damages.iter().any(is_nameless_hole) {
            let ends = self.damages.iter().filter_map(last_segment);
            self.synced.holes = ends.fold(self.synced.holes, u64::max);
        }
        let holes = Some(self.synced.holes);
        self.damages.retain(|damage| !is_nameless_hole(damage) || segment(&damage.file) > holes);
        if let Some(cut) = self.cut {
            self.synced.voids.push(cut..last + 1);
            self.damages.retain(|damage| damage.entries.is_none_or(|(_, to)| to.get() < cut));
        }
        self.synced.upto = SyncedTo::Index(last);
        (self.streams, self.synced, self.damages)
    }

    /// Whether the frame of an append that was never synced is what was written.
    fn is_torn(&self, entry: &Entry<&[u8]>) -> bool {
        let command = Command::decode(entry.kind, entry.command);
        match command {
            Some(Command::Append { crc, .. })
                if SyncedTo::Index(entry.index.get()) > self.synced.upto =>
            {
                crc32c::crc32c(entry.data) != crc
            }
            _ => false,
        }
    }
}

impl Replay for Recovery {
    fn restore(
        &mut self,
        _group: GroupId,
        applied: EntryIndex,
        _header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion> {
        self.next = applied.get() + 1;
        self.synced.voids.retain(|void| void.end > applied.get() + 1);
        for row in rows {
            // A row whose checksum is right and that cannot be read is of a newer program; the log
            // refuses newer formats before this.
            let _ = self.streams.restore(row);
        }
        Ok(())
    }

    fn apply(&mut self, entry: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion> {
        let index = entry.index.get();
        let missing = self.next..index;
        self.next = index + 1;
        if self.cut.is_none() {
            self.cut = self.synced.first_unsynced(missing);
        }
        if self.cut.is_some() || self.synced.is_void(index) {
            return Ok(None);
        }
        if self.is_torn(entry) {
            self.cut = Some(index);
            return Ok(None);
        }
        let (stream, data) = (stream_of(entry.subject), entry.data.len() as u64);
        Ok(match self.streams.apply(stream, entry.kind, entry.command, data) {
            Effect::Place(placement) => Some(placement),
            Effect::Trim(_) | Effect::Cursor | Effect::Nothing => None,
        })
    }

    fn damaged(&mut self, damage: &Damage) {
        let stream = damage.stream.or(damage.subject.map(stream_of));
        let first = damage.entries.map(|(first, _)| first.get());
        let is_void = first.is_some_and(|first| self.synced.is_void(first));
        if damage.kind == DamageKind::EntryPayload
            && let (Some(first), Some(stream), false) = (first, stream, is_void)
        {
            // If no intact entry follows, no other entry reveals what is missing before it.
            let lost = self.synced.first_unsynced(self.next.min(first)..first + 1);
            match self.cut.or(lost) {
                None => self.streams.lose(stream, damage.lost_bytes),
                cut => self.cut = cut,
            }
        }
        if !is_void {
            self.damages.push(Damage { stream, ..damage.clone() });
        }
    }

    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        let stream = self.streams.by_id(key.stream)?;
        Some(ByteOffset::new(stream.head.offset))
    }
}

/// Every entry of an engine is about a stream.
pub(crate) fn stream_of(subject: EntrySubject) -> StreamId {
    StreamId::new(subject.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    #[test]
    fn a_hole_is_remembered_up_to_the_segment_in_which_it_ends() {
        let holes = |damages: &[(DamageKind, &str, Option<&str>)]| {
            let mut recovery = Recovery::new(Synced { upto: SyncedTo::Index(3), ..Synced::all() });
            for (kind, file, last_file) in damages {
                let damage = Damage::at(*kind, file.as_ref(), 0);
                recovery.damaged(&Damage { last_file: last_file.map(Into::into), ..damage });
            }
            let (_, synced, damages) = recovery.finish(100);
            assert!(damages.iter().all(|damage| damage.kind == DamageKind::EntriesMissing));
            synced.holes
        };
        assert_eq!(holes(&[(DamageKind::BatchHeader, "6.wal", None)]), 6);
        let far = (DamageKind::BatchHeader, "6.wal", Some("8.wal"));
        assert_eq!(holes(&[far]), 8);
        let missing = (DamageKind::EntriesMissing, "9.wal", None);
        assert_eq!(holes(&[far, missing]), 9);
        assert_eq!(holes(&[missing]), 0, "without a hole nothing is passed over");
    }

    #[test]
    fn a_lost_last_entry_cuts_off_what_is_missing_before_it() {
        let mut recovery = Recovery::new(Synced { upto: SyncedTo::Index(3), ..Synced::all() });
        recovery.next = 96;
        let index = EntryIndex::new(100);
        recovery.damaged(&Damage {
            group: Some(GroupId::new(0)),
            subject: Some(EntrySubject::new(1)),
            entries: Some((index, index)),
            lost_bytes: 10,
            ..Damage::at(DamageKind::EntryPayload, "1.wal".as_ref(), 0)
        });
        let (_, synced, damages) = recovery.finish(100);
        let voids = vec![Range { start: 96, end: 101 }];
        assert_eq!(synced, Synced { upto: SyncedTo::Index(100), voids, ..Synced::all() });
        assert_eq!(damages, []);
    }
}
