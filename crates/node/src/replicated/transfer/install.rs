//! A snapshot that is here takes the place of a group's log and state.
//!
//! # Order
//! 1. The leader's library says so by a message. The copy is frozen: its replica hears nothing, and its log takes nothing.
//! 2. A job of the log checks all that has come and commits it (`docs/format/snapshot.md`).
//! 3. Another job makes a state of the checkpoint. Until it is there the old state answers from the old log.
//! 4. In one step the log and the state become new, the message reaches the library, and the copy thaws. What the replica has
//!    to say of it waits for the next sync, as for any entry.
//!
//! # What waits
//! Commands of this node that the snapshot covers: nobody can tell whether they are in there. Later ones wait on. Reads
//! that were confirmed up to there are answered. Watchers of a stream learn where it ends now, or that it is gone.

use super::incoming::Stage;
use super::rebuilt::Rebuilt;
use super::rebuilt::row_ends;
use super::way::JobOf;
use crate::replicated::copy::settled_proposal;
use crate::transfer_job::TransferWork;
use crate::{Change, Failure, ShardCore, Stamp};
use cluster::{Body, GroupMessage};
use log::{InstallError, WorkDone};
use model::{EntryIndex, GroupId};
use stream::{GroupState, StreamInfo};

impl ShardCore {
    /// A leader's message of a snapshot.
    pub(in crate::replicated) fn hear_snapshot(&mut self, group: GroupId, message: GroupMessage) {
        let Body::Snapshot(point) = &message.body else { unreachable!("the caller has looked") };
        let last = point.last;
        let copy = self.copy_mut(group);
        if copy.is_running() && !copy.replica.would_install(&message) {
            // It is refused, or is about what is here.
            let _ = copy.replica.step(message);
            return self.touch_group(group);
        }
        let Some(coming) = self.transfers().incoming.get_mut(&group) else { return };
        let Stage::Whole(install) = &coming.stage else { return };
        if (install.head.index, install.head.term) == (last.index, last.term) {
            coming.message = Some(message);
            self.touch_group(group);
        }
    }

    /// Installs a snapshot that is here and that the leader has spoken of, as soon as nothing of the group is on its way to the disk.
    pub(in crate::replicated) fn install_if_ready(&mut self, group: GroupId) {
        let Some(coming) = self.transfers().incoming.get_mut(&group) else { return };
        let Some(message) = coming.message.take_if(|_| matches!(coming.stage, Stage::Whole(_)))
        else {
            return;
        };
        let copy = self.copy_mut(group);
        if copy.would_begin_with(&message) {
            return self.install(group, message);
        }
        if !copy.is_running() {
            return self.put_message_back(group, message);
        }
        if !copy.replica.would_install(&message) {
            let _ = copy.replica.step(message);
            self.touch_group(group);
            return self.abort_incoming(group);
        }
        self.install(group, message);
    }

    fn install(&mut self, group: GroupId, message: GroupMessage) {
        let coming = self.transfers().incoming.get_mut(&group).expect("it is there");
        let Stage::Whole(install) = std::mem::replace(&mut coming.stage, Stage::Frozen) else {
            unreachable!("it was just looked at")
        };
        let Err(refused) = self.log.finish_install(*install, row_ends) else {
            self.copy_mut(group).frozen = Some(message);
            return;
        };
        let (install, error) = *refused;
        let coming = self.transfers().incoming.get_mut(&group).expect("it is there");
        coming.stage = Stage::Whole(Box::new(install));
        match error {
            InstallError::Unsynced => self.put_message_back(group, message),
            _ => self.lose_incoming(group),
        }
    }

    fn put_message_back(&mut self, group: GroupId, message: GroupMessage) {
        let coming = self.transfers().incoming.get_mut(&group).expect("it is there");
        coming.message = Some(message);
    }

    /// A piece of background work is done. `None`: it was an install, and comes back when its state is made.
    pub(crate) fn take_install(&mut self, done: WorkDone) -> Option<WorkDone> {
        if self.replication.is_none() || done.installed().is_none() {
            return Some(done);
        }
        self.begin_job(JobOf::Nobody, TransferWork::Rebuild(done));
        None
    }

    /// The state of an installed snapshot is made: it and the log take the place of what was here.
    pub(super) fn end_install(&mut self, now: Stamp, done: WorkDone, rebuilt: Rebuilt) {
        let installed = done.installed().expect("a snapshot was installed");
        let (group, index) = (installed.group, installed.index);
        let Rebuilt { state, configuration, meta, last } = rebuilt;
        let of = self.groups.get_mut(group);
        let before = std::mem::replace(&mut of.state, state);
        of.meta = meta.or(of.meta.take());
        of.role.copy_mut().expect("the group is replicated").configuration = configuration;
        self.checkpoint.take_if(|checkpoint| checkpoint.group == group);
        self.members().checks.stop(group);
        self.time.follow(last);
        self.handle_work_done(now, done);
        self.transfers().incoming.remove(&group);
        self.transfers().counts.installs += 1;
        self.begin_behind(now, group, index);
        let is_emptied = self.note_emptied(group);
        if !is_emptied {
            self.tell_watchers(group, &before);
        }
        if self.meta_group() == Some(group) {
            self.publish_meta();
        }
        self.begin_job(JobOf::Nobody, TransferWork::Drop(Box::new(before)));
        let copy = self.copy_mut(group);
        if copy.is_empty_handed() {
            // Nobody hears of it before the log says that the copy is not out any more.
            self.note_installed(group);
        } else if let Some(message) = copy.frozen.take().filter(|_| copy.halt.is_none()) {
            let taken = copy.replica.step(message);
            assert!(taken.is_ok() && copy.replica.is_installing(), "group {group}: {taken:?}");
        }
        self.touch_group(group);
    }

    /// What waits at the group learns that all up to `index` is applied.
    fn begin_behind(&mut self, now: Stamp, id: GroupId, index: EntryIndex) {
        let group = self.groups.get_mut(id);
        let copy = group.role.copy_mut().expect("the group is replicated");
        copy.begin_behind(index);
        let covered: Vec<_> =
            copy.proposals.covered(index).into_iter().map(settled_proposal).collect();
        for own in &covered {
            group.finish_in_flight(own.proposed.subject);
        }
        for own in covered {
            self.fail(now, own.proposed.reply_to, Failure::Unknown);
        }
        let copy = self.copy_mut(id);
        let held = copy.barriers.applied(index);
        copy.note_released(&held);
        self.release(id, held);
    }

    fn tell_watchers(&mut self, group: GroupId, before: &GroupState) {
        for key in self.watchers.of_group(group) {
            let info = self.groups.get(group).state.info(key.stream);
            let (old, is_gone) = (before.info(key.stream), info.is_none());
            let Some(info) = info.or_else(|| old.clone()) else { continue };
            let place = |info: &StreamInfo| (info.tail, info.closed);
            if !is_gone && old.is_some_and(|old| place(&old) == place(&info)) {
                continue;
            }
            self.announce(&Change { gone: is_gone, ..Change::present(key, Some(&info)) });
        }
    }

    /// The log has refused a snapshot: nothing has changed. Nobody has heard of it.
    pub(crate) fn note_install_refused(&mut self, group: GroupId, error: &InstallError) {
        if self.note_emptied(group) {
            // The next tick tries again.
            return;
        }
        let copy = self.copy_mut(group);
        copy.frozen = None;
        // Then what is here is not what it says that it has.
        copy.has_nothing |= matches!(error, InstallError::Missing { .. });
        let coming = self.transfers().incoming.get_mut(&group).expect("it was being installed");
        coming.stage = Stage::Understanding;
        self.lose_incoming(group);
        self.touch_group(group);
    }
}
