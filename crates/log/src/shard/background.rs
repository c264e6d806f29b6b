//! Which background work a shard has, and what its results change.

use crate::checkpoint::CheckpointTask;
use crate::chunk::copy::CopyDone;
use crate::chunk::count::{CountDone, CountTask};
use crate::group::{Group, seal::SealsBefore, seal::hot_chunk_bytes};
use crate::options::{MANY_SEGMENTS, MERGE_CHUNKS_MIN};
use crate::shard::ShardLog;
use crate::snapshot::{InstallEnd, Installing};
use crate::wal::fill::FillWork;
use crate::wal::room::is_no_room;
use crate::wal::segment::WalSegment;
use crate::work::{CopyEnd, Spent, Task, TaskDone, WorkDone, WorkReport};
use model::GroupId;
use std::io;
use std::sync::Arc;

/// Most groups that are checkpointed only so that a segment can be used again.
const CHEAP_GROUPS_MAX: usize = 8;

/// Segments that the disk has room for after a merge that saves no space.
const SPARE_SEGMENTS: u64 = 2;

/// The part of a segment that these may have to seal for it.
const CHEAP_PART: u64 = 4;

/// Jobs of other groups that go before one whose last job failed.
const JOBS_AFTER_FAILURE: u8 = 8;

/// The same where there is no room: what failed may be what makes some.
const JOBS_WITHOUT_ROOM: u8 = 1;

/// What `look` finds among the groups whose last job did not fail, or else among the others. A group that is about to begin behind a
/// snapshot gets no job before that.
fn in_turn<T>(mut look: impl FnMut(&dyn Fn(&Group) -> bool) -> Option<T>) -> Option<T> {
    let mut look_at =
        |waits| look(&|group| (group.jobs_to_wait > 0) == waits && !group.is_frozen());
    look_at(false).or_else(|| look_at(true))
}

pub(super) fn is_free(groups: &[Group], segment: &WalSegment) -> bool {
    !groups.iter().any(|group| group.pins(segment) || group.holds_note(segment))
}

impl ShardLog {
    /// A group whose checkpoint would shorten recovery or free WAL segments, in turn.
    ///
    /// Answer with [`ShardLog::checkpoint`] or [`ShardLog::refuse_checkpoint`]; until then the same group may be named again.
    pub fn wants_checkpoint(&mut self) -> Option<GroupId> {
        if self.is_poisoned() {
            return None;
        }
        let is_long = self.is_wal_long();
        let oldest = self.wal.oldest().filter(|oldest| is_long || self.is_cheap_to_free(oldest));
        let wants = |group: &Group| {
            let is_large = group.bytes_since_checkpoint >= self.store.options.checkpoint_bytes
                && group.applied() > group.checkpointed();
            let drained = self.drained.iter().flat_map(|wal| &wal.segments);
            let mut old = oldest.into_iter().chain(drained).chain(&self.foreign);
            let has_reason = is_large || old.any(|segment| group.could_unpin(segment));
            has_reason && !group.has_long_appends(self.waiting_mean)
        };
        let count = self.groups.len();
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let index = in_turn.into_iter().find(|&index| {
            let group = &self.groups[index];
            group.pending.is_none() && !group.is_busy && wants(group)
        })?;
        self.turn = index + 1;
        Some(self.groups[index].id)
    }

    /// Whether the WAL takes too much of its bound or of the disk, or something waits for room in it.
    fn is_wal_long(&self) -> bool {
        let (room, used_bytes) = (self.wal.room(), self.wal.used_bytes());
        let hot_bytes = self.groups.iter().map(|group| group.hot_totals().bytes).sum();
        room.is_half_used(used_bytes)
            || self.wal.retired_count() > MANY_SEGMENTS
            // Spare segments may fill the bound and all be too small for what waits.
            || self.wal.is_waiting()
            || self.wal.is_disk_full()
            || room.is_waste(used_bytes, hot_bytes)
    }

    /// Learns how much of the disk is free; seals and checkpoints need some of it.
    pub(crate) fn look_at_room(&mut self, free_bytes: Option<u64>) {
        let Some(free_bytes) = free_bytes else { return };
        let checkpoint_bytes = self.groups.iter().map(|group| group.checkpoint_bytes).max();
        self.wal.note_room(free_bytes, checkpoint_bytes.unwrap_or(0));
    }

    /// Whether so little data keeps a segment that moving it costs less than the zeroes of another one.
    fn is_cheap_to_free(&self, segment: &WalSegment) -> bool {
        let pinning = || self.groups.iter().filter(|group| group.pins(segment));
        let hot_bytes: u64 = pinning().map(|group| group.hot_totals().bytes).sum();
        segment.capacity == self.store.options.segment_bytes
            && hot_bytes * CHEAP_PART <= segment.capacity
            && pinning().count() <= CHEAP_GROUPS_MAX
    }

    /// Has the disk looked at again if an entry waits for room: where nothing can leave the WAL, no job would. What keeps it may
    /// be entries that are not committed, and these wait for a note.
    pub fn look_if_waiting(&mut self) {
        if self.wal.is_waiting() && self.spent.is_empty() {
            self.spent.push(Box::new(()));
            self.is_work_due.set(true);
        }
    }

    /// Whether a group is to be sealed where there is room.
    fn is_due(&self, group: &Group) -> bool {
        let options = &self.store.options;
        group.wants_seal(options, self.waiting_mean) || group.is_leaving(options, &self.slots)
    }

    /// Looks whether there is something to seal.
    pub(super) fn note_seal(&self, group: GroupId) {
        self.note_work(self.is_due(self.group(group)));
    }

    /// Looks whether seals of long appends may still wait. The load, the disk and the last job say so.
    pub(super) fn look_what_waits(&mut self) {
        if self.is_work_due.get() {
            self.note_backlog();
        }
        let may_wait = self.load.is_burst() && !self.is_out_of_room && !self.wal.room().is_tight();
        let mean = if may_wait { self.store.options.long_append_bytes } else { u64::MAX };
        let before = std::mem::replace(&mut self.waiting_mean, mean);
        self.note_work(before != mean);
    }

    /// Looks for background work that can start now.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        self.poll_free()
            .or_else(|| self.poll_fill())
            .or_else(|| self.poll_drain())
            .or_else(|| self.poll_group())
    }

    /// Whether a segment that our groups need no more is still used elsewhere, by another shard or by a
    /// read: nobody says here when that ends.
    pub(super) fn waits_for_others(&self) -> bool {
        let drained = self.drained.iter().filter_map(|wal| wal.segments.front());
        let mut oldest = self.wal.oldest().into_iter().chain(drained);
        oldest.any(|oldest| is_free(&self.groups, oldest) && !self.slots.is_unshared(oldest.slot))
    }

    /// Offers merges again that were refused for want of room. They ask for room before they write: now and then,
    /// as once in some seconds, costs nothing.
    pub fn retry_merges(&mut self) {
        self.groups.iter_mut().for_each(|group| group.merge_may_help = true);
        self.is_work_due.set(true);
    }

    fn poll_free(&mut self) -> Option<Task> {
        let unlinked = self.slots.take_unlinked();
        if !unlinked.is_empty() {
            return Some(Task::Free(Box::new(unlinked)));
        }
        let spent = self.groups.iter_mut().find_map(|group| group.hot.take_spent());
        let spent = spent.map(|spent| Box::new(spent) as Spent).or_else(|| self.spent.pop())?;
        Some(Task::Free(spent))
    }

    fn poll_fill(&mut self) -> Option<Task> {
        let keeps = self.groups.iter().any(Group::keeps_entries) && !self.is_wal_long();
        let groups = &self.groups;
        let is_kept =
            |segment: &WalSegment| keeps && groups.iter().any(|group| group.keeps(segment));
        let is_spent = |segment: &WalSegment| is_free(groups, segment) && !is_kept(segment);
        let are_notes_due = self.are_notes_due;
        let is_stuck = |segment: &WalSegment| {
            let waits = |group: &Group| group.waits_for_log(segment, are_notes_due);
            groups.iter().any(waits)
        };
        let is_tight = self.wal.room().is_tight();
        let hot_bytes = || hot_chunk_bytes(groups, is_tight);
        let work = self.wal.poll_fill(&self.slots, is_spent, is_stuck, hot_bytes)?;
        if let FillWork::Recycle { segment, .. } | FillWork::Remove { segment, .. } = &work {
            self.groups.iter_mut().for_each(|group| group.give_up(segment));
            self.wal.forget_indexed(segment.slot);
        }
        Some(Task::Fill(work))
    }

    /// A checkpoint that waits, data that is to be sealed, or chunks to merge, in this order. But a log that is short
    /// of room all the time merges, too: a lookup asks one chunk after the other, and there must not be ever more of them.
    fn poll_group(&mut self) -> Option<Task> {
        if self.is_busy {
            return None;
        }
        // A checkpoint that nothing holds up takes least for what it gives. Then what is dead in chunks gives its room back
        // without taking any.
        let install = self.ready_install(false);
        let is_turn = !std::mem::replace(&mut self.has_just_sifted, false) && install.is_none();
        let sift = if is_turn { self.sift_task() } else { None };
        self.has_just_sifted = sift.is_some();
        let install = install.or(sift);
        let is_short = self.is_out_of_room && install.is_none();
        let ready = if is_short { self.ready_checkpoint() } else { None };
        let is_merge_due = self.seals_since_merge >= MERGE_CHUNKS_MIN || self.is_out_of_room;
        let merge = || if is_merge_due { self.count_or_merge() } else { None };
        let (index, task) = install
            .or(ready)
            .or_else(merge)
            .or_else(|| self.checkpoint_or_seal())
            .or_else(|| self.count_or_merge())
            .or_else(|| self.sift_task())
            .or_else(|| self.ready_install(true))?;
        self.is_busy = true;
        self.groups[index].begin_job();
        Some(task)
    }

    fn sift_task(&mut self) -> Option<(usize, Task)> {
        self.next_sift().map(|(index, task)| (index, Task::Sift(task)))
    }

    /// A snapshot that is there: its group waits for nothing else, and no other job of the group comes before it.
    fn ready_install(&mut self, waits: bool) -> Option<(usize, Task)> {
        let is_ready = |group: &Group| matches!(group.install, Some(Installing::Ready(_)));
        let groups = self.groups.iter_mut().enumerate();
        let mut ready = groups.filter(|(_, group)| is_ready(group));
        let (index, group) = ready.find(|(_, group)| (group.jobs_to_wait > 0) == waits)?;
        let Some(Installing::Ready(mut task)) = group.install.replace(Installing::Running) else {
            panic!("it was looked at");
        };
        task.chunks = Arc::clone(group.chunks.list());
        Some((index, Task::Install(task)))
    }

    fn end_install(&mut self, (of, end): (GroupId, InstallEnd), report: &mut WorkReport) {
        let error = match &end {
            InstallEnd::Again(_, error) => Some(error),
            InstallEnd::Done(_) | InstallEnd::Refused(_) => None,
        };
        let group = self.end_group_job(of, error);
        group.end_job();
        group.install = None;
        match end {
            InstallEnd::Again(task, error) => {
                group.install = Some(Installing::Ready(task));
                report.error = Some(error);
            }
            InstallEnd::Refused(error) => report.installed = Some(Err((of, error))),
            InstallEnd::Done(done) => report.installed = Some(Ok(self.take_installed(*done))),
        }
    }

    /// The smallest checkpoint that waits for nothing more, of a group whose last job did not fail.
    fn ready_checkpoint(&mut self) -> Option<(usize, Task)> {
        let groups = self.groups.iter_mut().enumerate();
        let is_turn = |group: &Group| group.jobs_to_wait == 0 && !group.is_frozen();
        let in_turn = groups.filter(|(_, group)| is_turn(group) && group.is_ready());
        let bytes = |group: &Group| group.pending.as_ref().map(CheckpointTask::bytes);
        let (index, group) = in_turn.min_by_key(|(_, group)| bytes(group))?;
        Some((index, Task::Checkpoint(group.pending.take()?)))
    }

    fn checkpoint_or_seal(&mut self) -> Option<(usize, Task)> {
        let index =
            if self.is_out_of_room { self.least_to_write()? } else { self.next_to_write()? };
        let group = &mut self.groups[index];
        if group.is_ready() {
            return group.pending.take().map(|checkpoint| (index, Task::Checkpoint(checkpoint)));
        }
        let kept_free_bytes = self.kept_by_seal(index);
        let is_uncached = self.load.is_flood;
        let group = &mut self.groups[index];
        self.seals_since_merge += 1;
        let seal = group.start_seal(&self.store, self.wal.epoch(), (&self.slots, is_uncached));
        Some((index, Task::Seal(seal, kept_free_bytes)))
    }

    /// The group of a checkpoint that waits, or the largest to seal: where all are due all the time, none waits forever.
    /// One whose last job failed comes after the others.
    fn next_to_write(&self) -> Option<usize> {
        in_turn(|is_turn| {
            let groups = self.groups.iter().enumerate().filter(|(_, group)| is_turn(group));
            let checkpoint = groups.clone().find(|(_, group)| group.pending.is_some());
            let due = groups.filter(|(_, group)| self.is_due(group));
            let seal = || due.max_by_key(|(_, group)| group.hot_totals().bytes);
            checkpoint.or_else(seal).map(|(index, _)| index)
        })
    }

    /// What the seal of a group leaves free. Seals of groups that keep the oldest segment may take the room of upkeep, if
    /// all of them fit into less than what the segment gives back. What the log may still take meanwhile counts, too, if
    /// one of them has to seal it. Each seal leaves the room of the others.
    fn kept_by_seal(&self, index: usize) -> u64 {
        let (room, sealed) = (self.wal.room(), &self.groups[index]);
        let Some(oldest) = self.wal.oldest().filter(|oldest| sealed.pins(oldest)) else {
            return room.kept_by_seals();
        };
        let others = self.groups.iter().filter(|group| group.id != sealed.id && group.pins(oldest));
        let others = others.map(|group| group.seals_before(oldest, false));
        let seals = others.fold(sealed.seals_before(oldest, true), SealsBefore::plus);
        let more_bytes = if seals.may_grow { self.wal.data_room() } else { 0 };
        let needed_bytes = seals.bytes.saturating_add(more_bytes);
        let kept_bytes = room.kept_by_upkeep();
        let has_room = needed_bytes.saturating_add(kept_bytes) <= room.free_bytes();
        if has_room && needed_bytes <= oldest.capacity {
            kept_bytes + seals.bytes - sealed.next_seal_bytes_max()
        } else {
            room.kept_by_seals()
        }
    }

    /// The group whose next seal or checkpoint needs the least room. A checkpoint comes first: it lets a segment go. One
    /// that failed is tried again before any seal.
    fn least_to_write(&self) -> Option<usize> {
        let options = &self.store.options;
        let groups = self.groups.iter().enumerate().filter(|(_, group)| !group.is_frozen());
        let due = groups.filter_map(|(index, group)| {
            let (hot_bytes, waits) = (group.hot_totals().bytes, group.jobs_to_wait);
            match &group.pending {
                Some(task) if group.is_ready() => Some((0, waits, task.bytes(), index)),
                Some(_) => Some((1, waits, hot_bytes, index)),
                None => group.wants_seal(options, u64::MAX).then_some((1, waits, hot_bytes, index)),
            }
        });
        due.min().map(|(_, _, _, index)| index)
    }

    /// What died is counted before a merge is planned. Where more dies all the time, they take turns.
    fn count_or_merge(&mut self) -> Option<(usize, Task)> {
        let count = if self.has_just_counted { None } else { self.count() };
        self.has_just_counted = count.is_some();
        count.or_else(|| self.merge()).or_else(|| self.count()).or_else(|| self.remove())
    }

    fn remove(&mut self) -> Option<(usize, Task)> {
        let store = &self.store;
        in_turn(|is_turn| {
            let groups = self.groups.iter_mut().enumerate();
            let mut groups = groups.filter(|(_, group)| is_turn(group));
            groups
                .find_map(|(index, group)| Some((index, Task::Remove(group.start_removal(store)?))))
        })
    }

    fn count(&mut self) -> Option<(usize, Task)> {
        if !self.is_count_due {
            return None;
        }
        let found = self.count_in_turn();
        self.is_count_due = found.is_some();
        found
    }

    fn count_in_turn(&mut self) -> Option<(usize, Task)> {
        in_turn(|is_turn| {
            let groups = self.groups.iter_mut().enumerate();
            let mut groups = groups.filter(|(_, group)| is_turn(group));
            groups.find_map(|(index, group)| {
                let task = group.chunks.start_count(group.id)?;
                Some((index, Task::Count(task)))
            })
        })
    }

    fn merge(&mut self) -> Option<(usize, Task)> {
        self.seals_since_merge = 0;
        self.note_drops();
        let (store, epoch) = (&self.store, self.wal.epoch());
        let spare_bytes = SPARE_SEGMENTS * self.wal.room().segment_bytes;
        let small_min = self.small_chunks_to_merge();
        in_turn(|is_turn| {
            let mut groups = self.groups.iter_mut().enumerate();
            groups.find_map(|(index, group)| {
                if !group.merge_may_help || !group.may_merge() || !is_turn(group) {
                    return None;
                }
                let task = group.start_merge(store, epoch, (spare_bytes, small_min))?;
                Some((index, Task::Merge(task)))
            })
        })
    }

    /// Takes the result of a piece of background work.
    pub fn handle_work(&mut self, done: WorkDone) -> WorkReport {
        let mut report = WorkReport::default();
        self.is_work_due.set(true);
        match *done.done {
            TaskDone::Fill(done) => report.error = self.wal.handle_fill(&mut self.slots, done),
            TaskDone::Drain(done) => report.error = self.handle_drain(done),
            TaskDone::Seal(task, CopyEnd { result, left }) => {
                self.note_group_job(result.as_ref().err());
                let group = self
                    .end_group_job(GroupId::new(task.name.identity.group), result.as_ref().err());
                group.leftovers.add(left);
                match take_copy(&mut report, result) {
                    Some(done) => group.finish_seal(task, done),
                    None => group.fail_seal(task),
                }
                group.end_job();
            }
            TaskDone::Merge(task, CopyEnd { result, left }) => {
                let failed = result.as_ref().map_or_else(Some, |done| done.removal.error.as_ref());
                let group = self.end_group_job(GroupId::new(task.name.identity.group), failed);
                group.leftovers.add(left);
                match take_copy(&mut report, result) {
                    Some(mut done) => {
                        report.error = done.removal.error.take();
                        group.finish_merge(task, done);
                    }
                    None => {
                        report.merge_refusal = report.error.take_if(|error| is_no_room(error));
                        group.merge_may_help |= report.error.is_some();
                    }
                }
                group.end_job();
            }
            TaskDone::Free => {}
            TaskDone::Install(group, end) => self.end_install((group, end), &mut report),
            TaskDone::Sift(task, result) => self.end_sift((task, result), &mut report),
            TaskDone::Count(task, result) => self.end_count((task, result), &mut report),
            TaskDone::Remove(task, done) => {
                let group = self.end_group_job(task.group, done.error.as_ref());
                group.merge_may_help = true;
                group.leftovers.add(done.left);
                group.end_job();
                report.error = done.error;
            }
            TaskDone::Checkpoint(task, result) => {
                self.note_group_job(result.as_ref().err());
                let group = self.end_group_job(task.group, result.as_ref().err());
                group.end_job();
                match result {
                    Ok(()) => {
                        group.set_checkpointed(task.index.get());
                        report.checkpointed = Some(task.group);
                        self.release_foreign();
                    }
                    Err(error) => {
                        group.pending.get_or_insert(task);
                        report.error = Some(error);
                    }
                }
            }
        }
        self.look_at_room(done.free_bytes);
        self.renew_due_notes();
        report
    }

    fn end_count(
        &mut self,
        (task, result): (CountTask, io::Result<CountDone>),
        report: &mut WorkReport,
    ) {
        self.is_count_due = true;
        let group = self.end_group_job(task.group, result.as_ref().err());
        report.is_count = true;
        let counted = result.map_err(|error| report.error = Some(error)).ok();
        group.merge_may_help |= group.chunks.finish_count(task, counted);
        group.end_job();
    }

    /// Learns how a seal or checkpoint ended. Where nothing can leave the WAL, it has no room for data either.
    fn note_group_job(&mut self, error: Option<&io::Error>) {
        // Any other error does not say how much room there is.
        self.is_out_of_room = error.is_some_and(|error| is_no_room(error) || self.is_out_of_room);
        if self.is_out_of_room && self.wal.is_waiting() {
            self.wal.set_disk_full();
        }
    }

    pub(super) fn end_group_job(
        &mut self,
        group: GroupId,
        error: Option<&io::Error>,
    ) -> &mut Group {
        assert!(self.is_busy, "a job ended that was never started");
        self.is_busy = false;
        // A disk that is full is full for all.
        let has_failed = error.is_some_and(|error| !is_no_room(error));
        for other in &mut self.groups {
            other.jobs_to_wait = other.jobs_to_wait.saturating_sub(1);
        }
        let is_short = self.is_out_of_room || self.wal.is_disk_full();
        let waits = if is_short { JOBS_WITHOUT_ROOM } else { JOBS_AFTER_FAILURE };
        let group = self.group_mut(group);
        group.jobs_to_wait = if has_failed { waits } else { 0 };
        group
    }
}

fn take_copy(report: &mut WorkReport, result: io::Result<CopyDone>) -> Option<CopyDone> {
    match result {
        Ok(done) => {
            report.damages.extend_from_slice(&done.damages);
            Some(done)
        }
        Err(error) => {
            report.error = Some(error);
            None
        }
    }
}
