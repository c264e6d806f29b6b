//! What opening a log does for replicated groups: a look at all headers first, and what is left when committed entries are
//! applied.

use super::{Rebuild, RebuiltWal, entry_damage};
use crate::damage::{Damage, DamageKind};
use crate::directory::{Directory, EntryPlace, Whereabouts};
use crate::group::Group;
use crate::group::replicated::{KEEP_NONE, Replicated};
use crate::open_error::{OpenError, at};
use crate::survey::{BatchAt, GroupStart, Survey};
use crate::wal::layout::EntryHeader;
use crate::wal::scan::place_damage;
use crate::wal::segment::SegmentFile;
use model::GroupId;

impl Rebuild<'_> {
    /// Looks at all headers first, if a group may be replicated.
    pub(super) fn survey(&mut self, order: &[(usize, usize)]) -> Result<(), OpenError> {
        let start = |(group, term): (&Group, &u64)| GroupStart {
            checkpointed: group.checkpointed(),
            checkpoint_term: *term,
            covered: group.chunks.covered().max(group.checkpointed()),
            installs: group.installs,
        };
        let starts: Vec<_> = self.groups.iter().zip(&self.checkpoint_terms).map(start).collect();
        let batch_at = |&(wal, number): &(usize, usize)| {
            let RebuiltWal { wal, scanned, files, first_slot, .. } = &self.wals[wal];
            let batch = &scanned.live[number];
            let slot = first_slot + batch.segment() as u16;
            BatchAt { batch, file: &files[batch.segment()], slot, wal: *wal }
        };
        let survey = Survey::of(self.store.id, order.iter().map(batch_at), &starts);
        self.survey = survey.map_err(|(file, error)| at(&file.path)(error))?;
        Ok(())
    }

    /// Whether an entry of a replicated group is not applied now: it was superseded, or it is not known as committed. One
    /// that may still commit must be intact.
    pub(super) fn is_left_out(
        &mut self,
        file: &SegmentFile,
        position: u64,
        (header, place): (&EntryHeader, EntryPlace),
        bytes: &[u8],
    ) -> bool {
        let Some(group) = self.survey.group(header.group) else { return false };
        let (is_dead, committed) = (group.is_dead(place), group.committed());
        let is_left = !is_dead && header.index > committed;
        if is_left && header.payload(bytes).is_none_or(|payload| !payload.is_data_intact) {
            let at = position + u64::from(header.position);
            let damage = place_damage(DamageKind::UncommittedEntry, file, at);
            self.damaged(&entry_damage(header, damage));
        }
        is_dead || header.index > committed
    }

    /// Whether an entry is of a replicated group, and not known as committed.
    pub(super) fn is_uncommitted(&self, header: &EntryHeader) -> bool {
        self.survey.group(header.group).is_some_and(|group| header.index > group.committed())
    }

    /// Gives replicated groups their entries, notes and commits.
    pub(crate) fn finish_replicated(&mut self) {
        for (number, surveyed) in std::mem::take(&mut self.survey).into_groups() {
            let id = GroupId::new(number);
            let dir = self.store.root.join("wal");
            if let Some((first, last)) = surveyed.missing() {
                self.report_missing(number, (first, last + 1), (&dir, 0));
            }
            if surveyed.note.is_none() {
                let damage = Damage::at(DamageKind::NoteMissing, &dir, 0);
                self.damaged(&Damage { group: Some(id), ..damage });
            }
            let (mut directory, installs) = (surveyed.directory(), surveyed.installs());
            self.pin_entries(number, &directory);
            let group = &mut self.groups[usize::from(number)];
            let committed = surveyed.committed().max(group.applied());
            if directory.last() < committed || committed < directory.base() {
                // Entries at the end are lost, and were reported. A log has no gap: those behind one are lost with it.
                directory = Directory::new(committed, None);
            }
            group.next = directory.last() + 1;
            group.installs = installs;
            group.replicated = Some(Box::new(Replicated {
                directory,
                committed,
                note: surveyed.note.map(|(note, _)| note),
                note_slot: surveyed.note.map(|(_, slot)| slot),
                is_noted: false,
                durable_commit: committed,
                dropped_at: 0,
                keep_from: KEEP_NONE,
            }));
        }
    }

    /// Tells the segments which entries of a replicated group are alive in them.
    fn pin_entries(&mut self, group: u16, directory: &Directory) {
        let group = usize::from(group);
        for (index, place) in directory.places() {
            let Whereabouts::Disk { batch, .. } = place.whereabouts() else { continue };
            let holds = |wal: &&mut RebuiltWal| wal.first_slot <= batch.slot;
            let wal = self.wals.iter_mut().rev().find(holds).expect("slots begin at 0");
            let last = &mut wal.last[usize::from(batch.slot - wal.first_slot)][group];
            *last = index.max(*last);
        }
    }
}
