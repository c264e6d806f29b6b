//! What a shard does by itself: expiry, checkpoints, retries, background work.

use crate::{
    DiskTrouble, ReadDamage, ShardCore, Stamp,
    group::Group,
    operation::Operation,
    owner_header::{OwnerHeader, configuration_part, meta_part},
    proposed::ReplyTo,
    replicated::GroupCopy,
    shard::Proposal,
    slices::{CheckpointSlices, SliceLimits},
    step::Target,
    trim::TrimSteps,
};
use log::{CheckpointRows, WorkDone, WorkJob};
use model::{GroupId, Monotonic, StreamKey, Timestamp};
use std::io;
use stream::{Applied, Command, Outcome, PinToken, Retention};

impl ShardCore {
    pub(crate) fn handle_tick(&mut self, now: Stamp) {
        self.tick_background(now.monotonic);
        self.execute_deferred(now);
        self.give_up_deferred(now);
        if self.log.is_poisoned() {
            return;
        }
        self.expiries.tick();
        self.retention.tick(now.wall);
        self.do_slice(now);
        self.log_producers_max();
        if self.durable_mark.is_time_due(now.monotonic) {
            self.log_time();
        }
        self.releases.tick();
        self.release_due(now);
        self.checkpoint_if_wanted();
        self.mark_if_idle(now);
    }

    /// Tells groups how many producers to remember, if their logs say otherwise.
    fn log_producers_max(&mut self) {
        let count = self.producers_max;
        let differs =
            |group: &&Group| group.state.producers_max() != count && group.may_log_for_itself();
        let differing = self.groups.iter().filter(differs);
        let groups: Vec<GroupId> = differing.map(|group| group.state.group()).collect();
        for group in groups {
            self.propose_producers_max(group);
        }
    }

    fn propose_producers_max(&mut self, group: GroupId) {
        let to = Target { group, stream: None };
        let command = Command::KeepProducers(self.producers_max);
        // One that finds no room is proposed again by a later tick.
        let _ = self.propose(Proposal { to, command, data: &[] }, ReplyTo::Nobody);
    }

    /// Logs an entry that changes nothing and has a time. Without streams nobody asks for it.
    fn log_time(&mut self) {
        let has_streams = |group: &&Group| group.state.stream_count() > 0;
        let is_free = |group: &&Group| group.may_log_for_itself();
        let group = self.groups.iter().find(has_streams).filter(is_free);
        if let Some(group) = group.map(|group| group.state.group()) {
            self.propose_producers_max(group);
        }
    }

    /// Sets how far ahead of its course the wall clock may be until it is believed no more; 0 for any distance.
    pub fn set_clock_jump_ms_max(&mut self, jump_ms_max: u64) {
        self.time.set_jump_ms_max(jump_ms_max);
    }

    /// Takes a first reading of the clocks: from here on the wall clock is compared with its course. To be called
    /// when the shard's loop begins, so that a jump before its first request is noticed.
    pub fn begin_clock(&mut self, now: Stamp) {
        self.time.read(now);
    }

    /// By how much the wall clock is ahead of its course and not believed; 0 if it is believed. Nothing expires
    /// meanwhile.
    #[must_use]
    pub fn clock_ahead_ms(&self) -> u64 {
        self.time.ahead_ms()
    }

    /// Believes the wall clock as it is, because an operator says that it is right.
    pub fn confirm_clock(&mut self, now: Stamp) {
        self.time.confirm(now);
        self.log_time();
    }

    fn checkpoint_if_wanted(&mut self) {
        if self.checkpoint.is_some() {
            return;
        }
        let may = |group: &Group| group.role.copy().is_none_or(GroupCopy::may_checkpoint);
        for _ in 0..self.groups.iter().count() {
            let Some(group) = self.log.wants_checkpoint() else { return };
            if self.copies_rows(group) {
                return self.hurry_check(group);
            }
            if may(self.groups.get(group)) {
                return self.begin_checkpoint(group);
            }
            self.log.refuse_checkpoint(group);
        }
    }

    fn mark_if_idle(&mut self, now: Stamp) {
        let is_quiet = self.groups.iter().all(|group| group.proposed_count() == 0);
        if is_quiet && self.durable_mark.is_due(now.monotonic) {
            self.log.mark_durable();
            self.durable_mark.note_marked();
        }
    }

    /// Writes the durable mark now; for a clean stop.
    pub fn mark_durable(&mut self) {
        if !self.log.is_poisoned() {
            self.log.mark_durable();
        }
    }

    /// Damage that background work has met since the last call.
    pub fn take_damages(&mut self) -> Vec<log::Damage> {
        std::mem::take(&mut self.damage.damages)
    }

    /// Damage that reads have met since the last call; each place comes once.
    pub fn take_read_damages(&mut self) -> Vec<ReadDamage> {
        self.damage.take_read_damages()
    }

    /// Starts what recovery found undone: references to give back.
    pub(crate) fn resume_releases(&mut self, orphans: Vec<(StreamKey, PinToken)>) {
        let pending = self.groups.iter().flat_map(|group| group.state.pending_unpins());
        let pending = pending.map(|(token, source)| (source, token));
        for (source, token) in orphans.into_iter().chain(pending) {
            self.releases.retry(source, token);
        }
    }

    pub(crate) fn poll_work(&mut self) -> Option<WorkJob> {
        if self.background.is_blocked() || self.is_retiring() { None } else { self.log.poll_work() }
    }

    pub(crate) fn handle_worked(&mut self, now: Stamp, done: WorkDone) {
        if let Some(done) = self.take_install(done) {
            self.handle_work_done(now, done);
        }
    }

    pub(crate) fn handle_work_done(&mut self, now: Stamp, done: WorkDone) {
        let report = self.log.handle_work(done);
        if let Some(Err((group, error))) = &report.installed {
            self.note_install_refused(*group, error);
        }
        if let Some(group) = report.sifted {
            self.note_sifted(group);
        }
        if let Some(group) = report.checkpointed {
            self.note_checkpointed(group);
        }
        match report.merge_refusal {
            // Says nothing about how the disk takes what is smaller.
            Some(error) => self.background.note_merge_refusal(now.monotonic, error),
            None => self.background.note(now.monotonic, report.error.as_ref()),
        }
        self.damage.note_met(report.damages, &self.groups);
        if !report.is_count {
            // Not at the next tick: writes may wait for all groups to have had theirs.
            self.checkpoint_if_wanted();
        }
        self.execute_deferred(now);
        self.try_first_in_line();
    }

    /// Background work gets its time.
    pub(crate) fn tick_background(&mut self, now: Monotonic) {
        self.background.tick(now);
        self.log.tick();
        self.log.look_if_waiting();
        if self.background.wants_merge_retry(now) {
            self.log.retry_merges();
        }
    }

    /// Why chunks are not merged, once when that begins: there is no room for it on the disk.
    pub fn take_merge_refusal(&mut self) -> Option<&io::Error> {
        self.background.take_merge_refusal()
    }

    /// What has no room on the disk: bytes that it needs, and bytes that were free.
    #[must_use]
    pub fn disk_room(&self) -> Option<(u64, u64)> {
        self.background.no_room().map(|room| (room.needed_bytes, room.free_bytes))
    }

    /// Why background work has stopped, if it has, and the error in words.
    #[must_use]
    pub fn disk_trouble(&self) -> Option<(DiskTrouble, &str)> {
        self.background.trouble()
    }
}

/// Work in slices.
impl ShardCore {
    /// Sets what one slice may hold; for tests, which have little work.
    pub fn set_slice_limits(&mut self, limits: SliceLimits) {
        self.slice_limits = limits;
    }

    /// Whether there is work for [`crate::Event::Continue`] now.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let has_slice = self.expiries.is_ready()
            || self.retention.is_ready()
            || self.checkpoint.is_some()
            || self.is_checking();
        has_slice && !self.log.is_poisoned()
    }

    /// Does one slice of what there is to do.
    pub(crate) fn do_slice(&mut self, now: Stamp) {
        if self.log.is_poisoned() {
            return;
        }
        if self.expiries.is_ready() {
            self.expire_some(now);
        }
        if self.retention.is_ready() {
            self.trim_some(now);
        }
        self.copy_rows();
        self.digest_rows();
    }

    /// Begins a checkpoint of a group as it is now.
    pub(crate) fn begin_checkpoint(&mut self, group: GroupId) {
        let header = self.owner_header(group);
        let state = &mut self.groups.get_mut(group).state;
        let (index, rows) = (state.applied(), CheckpointRows::new());
        state.begin_rows();
        self.checkpoint = Some(CheckpointSlices { group, index, header, rows });
        self.copy_rows();
    }

    /// What the owners of a group keep in the header of a checkpoint of it.
    pub(crate) fn owner_header(&self, group: GroupId) -> Vec<u8> {
        let Group { state, role, meta, .. } = self.groups.get(group);
        let cluster = role.copy().map(|copy| configuration_part(&copy.configuration));
        let meta = meta.as_ref().map(|meta| meta_part(meta));
        let (cluster, meta) = (cluster.as_deref(), meta.as_deref());
        OwnerHeader { streams: &state.encode_header(), cluster, meta }.encode()
    }

    fn copy_rows(&mut self) {
        let Some(mut checkpoint) = self.checkpoint.take() else { return };
        let state = &mut self.groups.get_mut(checkpoint.group).state;
        let is_done = state.copy_rows(self.slice_limits.rows_max, |row| {
            checkpoint.rows.push(row.stream, row.path_hash, &row.bytes);
        });
        if is_done {
            let CheckpointSlices { group, index, header, rows } = checkpoint;
            let is_copy = self.groups.get(group).role.copy().map(GroupCopy::may_checkpoint);
            // A snapshot may be taking the place of log and state.
            if is_copy != Some(false) {
                self.log.checkpoint(group, index, header, rows);
            }
            if is_copy.is_some() {
                // The entry of a check may wait for it.
                self.touch_group(group);
            }
        } else {
            self.checkpoint = Some(checkpoint);
        }
    }

    fn expire_some(&mut self, now: Stamp) {
        for key in self.poll_expired(now) {
            if !self.propose_expiry(now, key) {
                // The log has no room: the next tick begins again.
                self.expiries.is_due = false;
            }
        }
    }

    /// Streams that have expired, as many as one slice may look at.
    fn poll_expired(&mut self, now: Stamp) -> Vec<StreamKey> {
        let mut looks_left = self.slice_limits.expiries_max;
        let mut expired = Vec::new();
        let first = self.expiries.next_group;
        let count = self.groups.iter().count();
        for place in (first..first + count).map(|place| place % count) {
            let Group { state, role, .. } = self.groups.at_mut(place);
            if !role.is_in_charge() {
                continue;
            }
            let group = state.group();
            while let Some(stream) = state.poll_expired(now.wall, &mut looks_left) {
                expired.push(StreamKey { group, stream });
            }
            if looks_left == 0 {
                self.expiries.next_group = (place + 1) % count;
                return expired;
            }
        }
        self.expiries.is_due = false;
        expired
    }
}

/// What streams need not keep.
impl ShardCore {
    /// Sets what a stream keeps that does not say so itself. It holds for data that is there, too.
    pub fn set_retention(&mut self, defaults: Retention) {
        self.retention.defaults = defaults;
        self.put_down_all();
    }

    /// Puts down all streams that have bounds.
    pub(crate) fn put_down_all(&mut self) {
        self.retention.is_on |= self.retention.defaults.is_bounded();
        for group in self.groups.iter() {
            let id = group.state.group();
            for info in group.state.infos() {
                self.retention.is_on |= info.retention.is_bounded();
                // At the start no time is known: what is larger than its bounds is due at once.
                if let Some(due) = self.retention.due_of(&info, Timestamp::new(0)) {
                    self.retention.put_down(StreamKey { group: id, stream: info.stream }, due);
                }
            }
        }
    }

    /// An entry was applied: its stream may have bounds.
    #[cold]
    pub(crate) fn note_retention(&mut self, now: Stamp, group: GroupId, applied: &Applied) {
        let stream = match &applied.outcome {
            Outcome::Created(info) | Outcome::Changed(info) => info.stream,
            Outcome::Appended(accepted) => accepted.stream,
            _ => match applied.visible {
                Some(visible) => visible.stream,
                None => return,
            },
        };
        let key = StreamKey { group, stream };
        let Some(info) = self.groups.get(group).state.info(stream) else {
            return self.retention.forget(key);
        };
        self.retention.is_on |= info.retention.is_bounded();
        if let Some(due) = self.retention.due_of(&info, now.wall) {
            self.retention.put_down(key, due);
        }
    }

    /// Looks at some streams that may have more than they need to keep.
    fn trim_some(&mut self, now: Stamp) {
        for _ in 0..self.slice_limits.trims_max {
            let Some(key) = self.retention.take_due(now.wall) else {
                self.retention.is_due = false;
                return;
            };
            let Group { state, role, .. } = self.groups.get(key.group);
            if !role.is_in_charge() {
                // The node that takes charge of the group puts all its streams down.
                continue;
            }
            let Some(info) = state.info(key.stream) else { continue };
            let kept = info.retention.or(self.retention.defaults);
            let mut trim = TrimSteps::for_retention(key, info, kept, now.wall);
            self.retention.in_flight_count += 1;
            let step = trim.begin();
            self.drive(now, Operation::Trim(Box::new(trim)), step);
        }
    }

    /// Trims that were logged because a stream need not keep more.
    #[must_use]
    pub fn retention_trims(&self) -> u64 {
        self.retention.trims
    }
}
