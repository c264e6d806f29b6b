//! What the writer does for replicated groups: entries at a given index, notes, and both by index before they are on the
//! disk.

use super::{AppendError, ShardWal};
use crate::directory::{EntryPlace, Whereabouts};
use crate::entry::NewEntry;
use crate::wal::indexed::{FoundEntry, IndexedEntry};
use crate::wal::layout::EntryHeader;
use crate::wal::room::Purpose;
use model::EntryIndex;

impl ShardWal {
    /// As [`ShardWal::append`], for an entry of a replicated group in which so many snapshots were installed. `supersedes`:
    /// older ones from this index on are dead.
    ///
    /// # Errors
    /// [`AppendError`]; nothing has changed then.
    pub(crate) fn append_indexed(
        &mut self,
        index: EntryIndex,
        supersedes: bool,
        installs: u16,
        (purpose, entry): (Purpose, &NewEntry<'_>),
    ) -> Result<EntryPlace, AppendError> {
        let (number, payload_position) = self.batch.next_entry();
        self.append(index, (purpose, entry))?;
        self.batch.set_installs(number, installs);
        let (group, index) = (entry.group.get(), index.get());
        let indexed = self.batch.indexed();
        indexed.entries.push(IndexedEntry { group, index, number, payload_position });
        if supersedes {
            indexed.superseded.push((group, index));
        }
        Ok(EntryPlace::in_batch(self.batch_next, number))
    }

    /// Adds a note to the open batch, in place of an earlier one of its group.
    ///
    /// # Errors
    /// [`AppendError`]; nothing has changed then.
    pub(crate) fn note(&mut self, note: EntryHeader) -> Result<(), AppendError> {
        if self.commit.is_poisoned() {
            return Err(AppendError::Poisoned);
        }
        let is_same = |known: &EntryHeader| known.group == note.group;
        if let Some(at) = self.batch.notes().iter().position(is_same) {
            self.batch.indexed().notes[at] = note;
            return Ok(());
        }
        self.check_room(Purpose::Upkeep, 0)?;
        self.batch.indexed().notes.push(note);
        Ok(())
    }

    /// Groups that have a note in the open batch.
    pub(crate) fn noted(&self) -> impl Iterator<Item = u16> + '_ {
        self.batch.notes().iter().map(|note| note.group)
    }

    /// Number that the open batch will have.
    pub(crate) fn open_batch(&self) -> u64 {
        self.batch_next
    }

    /// An entry that is in memory.
    pub(crate) fn entry_in_memory(&self, place: EntryPlace) -> Option<FoundEntry> {
        match place.whereabouts() {
            Whereabouts::Batch { number } if place.is_of(self.batch_next) => {
                self.batch.entry(number)
            }
            Whereabouts::Batch { number } => self.indexed.in_flight(|seq| place.is_of(seq), number),
            Whereabouts::Disk { batch, number } => self.indexed.recent(batch, number),
        }
    }

    /// Forgets what is in memory of a segment that is given up.
    pub(crate) fn forget_indexed(&mut self, slot: u16) {
        self.indexed.forget(slot);
    }

    /// Learns that all entries of a group are dead.
    pub(crate) fn forget_group(&mut self, group: u16) {
        let active = self.active.as_mut().map(|active| &mut active.segment);
        let segments = self.retired.iter_mut().chain(active);
        segments.for_each(|segment| segment.supersede(group, 1));
    }

    /// Learns that the entries of a group from `from` on are dead in all segments behind which nothing was written since.
    pub(crate) fn supersede(&mut self, active_slot: u16, group: u16, from: u64) {
        let active = self.active.as_mut().map(|active| &mut active.segment);
        let older = self.retired.iter_mut().chain(active);
        for segment in older.filter(|segment| segment.slot != active_slot) {
            segment.supersede(group, from);
        }
    }
}
