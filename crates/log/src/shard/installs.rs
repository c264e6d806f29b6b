//! Snapshots that take the place of a group's log: what of it is the shard's.
//!
//! # Driving it
//! 1. [`ShardLog::begin_install`]; the files of the [`Install`] are written elsewhere. The group lives on meanwhile.
//! 2. [`ShardLog::finish_install`]: the group is frozen, and takes no entry. The next job of the shard's background work checks
//!    all that was received, and commits. Its report says what has come of it.

use crate::checkpoint::empty_checkpoint;
use crate::shard::ShardLog;
use crate::snapshot::{
    Install, InstallDone, InstallError, InstallTask, Installed, Installing, RowEnds, SnapshotHead,
};
use model::{EntryIndex, GroupId, Term};

impl ShardLog {
    /// Begins to receive a snapshot. The group lives on meanwhile.
    ///
    /// # Errors
    /// [`InstallError::NotReplicated`], [`InstallError::NotNewer`], [`InstallError::Busy`], [`InstallError::TooMany`].
    ///
    /// # Panics
    /// If the group belongs to another shard.
    pub fn begin_install(&mut self, head: SnapshotHead) -> Result<Install, InstallError> {
        self.check_install(&head)?;
        let store = self.store.clone();
        let group = self.group_mut(head.group);
        if group.install.is_some() {
            return Err(InstallError::Busy);
        }
        let installs = group.installs.checked_add(1).ok_or(InstallError::TooMany)?;
        let first_number = group.chunks.take_seqs(head.chunk_bytes.len() as u64);
        group.install = Some(Installing::Open);
        Ok(Install::new(store, head, (installs, first_number)))
    }

    fn check_install(&self, head: &SnapshotHead) -> Result<(), InstallError> {
        let replicated = self.group(head.group).replicated.as_deref();
        let noted = replicated.filter(|it| it.note.is_some() && it.note_slot.is_some());
        let replicated = noted.ok_or(InstallError::NotReplicated)?;
        if head.index.get() <= replicated.committed {
            let committed = EntryIndex::new(replicated.committed);
            return Err(InstallError::NotNewer { committed });
        }
        Ok(())
    }

    /// Has the group begin again without streams and entries, as if a snapshot of nothing was installed. Its index is behind all
    /// that is known here as committed, and `header` is the owner's of the checkpoint. It is for a replica that takes part in nothing.
    ///
    /// # Errors
    /// As those of [`ShardLog::begin_install`] and [`ShardLog::finish_install`].
    ///
    /// # Panics
    /// As [`ShardLog::begin_install`].
    pub fn empty(
        &mut self,
        group: GroupId,
        term: Term,
        header: Vec<u8>,
    ) -> Result<(), InstallError> {
        let index = self.committed_index(group).next();
        let checkpoint = empty_checkpoint(self.store.id, (group, index, term), header);
        let head = SnapshotHead {
            group,
            index,
            term,
            store: self.store.id,
            checkpoint_bytes: checkpoint.len() as u64,
            chunk_bytes: Vec::new(),
            trimmed: Vec::new(),
        };
        let install = self.begin_install(head)?.with_checkpoint(checkpoint);
        self.finish_install(install, |_| None).map_err(|refused| {
            let (install, error) = *refused;
            self.abort_install(install);
            error
        })
    }

    /// Gives up a snapshot whose files did not come. They go when the next one comes, or with the next start.
    pub fn abort_install(&mut self, install: Install) {
        self.group_mut(install.head.group).install = None;
        drop(install);
    }

    /// Installs a snapshot of which all files are finished. The group takes no entries until the report of a job names it.
    ///
    /// # Errors
    /// [`InstallError::NotNewer`], [`InstallError::Unsynced`]. The snapshot comes back.
    pub fn finish_install(
        &mut self,
        install: Install,
        ends: RowEnds,
    ) -> Result<(), Box<(Install, InstallError)>> {
        let of = install.head.group;
        let is_settled = |log: &Self| {
            let directory = log.group(of).replicated.as_ref().map(|it| &it.directory);
            directory.is_none_or(|directory| directory.is_on_disk())
        };
        let checked = self.check_install(&install.head);
        let checked = checked
            .and_then(|()| if is_settled(self) { Ok(()) } else { Err(InstallError::Unsynced) });
        if let Err(error) = checked {
            return Err(Box::new((install, error)));
        }
        let chunk_count = install.head.chunk_bytes.len() as u64;
        let first_number = self.group_mut(of).chunks.take_seqs(chunk_count);
        let task = InstallTask::new(install, first_number, ends);
        self.group_mut(of).install = Some(Installing::Ready(Box::new(task)));
        self.is_work_due.set(true);
        Ok(())
    }

    /// Takes the place of a group's log, now that a snapshot is durable in it.
    pub(super) fn take_installed(&mut self, done: InstallDone) -> Installed {
        let InstallDone { installed, chunks, floors } = done;
        let group = self.group_mut(installed.group);
        let place = (installed.index.get(), installed.term.get());
        let hot = group.begin_behind(place, installed.bytes());
        group.chunks.begin_behind(floors);
        chunks.into_iter().for_each(|chunk| group.chunks.add(chunk, 0));
        group.merge_may_help = true;
        let (id, note) = (group.id, group.replicated.as_ref().and_then(|it| it.note));
        self.spent.push(Box::new(hot));
        self.wal.forget_group(id.get());
        let drained = self.drained.iter_mut().flat_map(|wal| &mut wal.segments);
        drained.chain(&mut self.foreign).for_each(|segment| segment.supersede(id.get(), 1));
        if let Some(note) = note {
            // Without it the old one counts, which promises the same.
            self.are_notes_due |= self.put_note(id, note).is_err();
        }
        self.is_count_due = true;
        self.release_foreign();
        installed
    }
}
