//! The way back: a batch is durable, its entries are applied and answered.

use crate::{
    Change, DiskTrouble, Failure, Reply, Seen, ShardAnswer, ShardCore, Stamp,
    group::Group,
    proposed::{Proposed, ReplyTo},
    role::Role,
};
use cluster::Committed;
use log::{DurableEntry, SyncDone};
use model::{ByteOffset, StreamKey};
use stream::{Applied, Effect, LoggedCommand, Outcome, StreamInfo, Visible};

/// Changes carry their bytes up to this size; readers fetch larger ones in windows.
const SHARED_BYTES_MAX: usize = model::limits::READ_WINDOW_BYTES_MAX;

impl ShardCore {
    pub(crate) fn handle_synced(&mut self, now: Stamp, done: SyncDone) {
        match self.log.handle_synced(done) {
            Ok(batch) => {
                if !batch.is_empty() {
                    self.durable_mark.note_sync(now.monotonic);
                }
                for entry in batch.entries() {
                    self.note_durable(now, entry);
                }
                if self.replication.is_some() {
                    self.note_persisted(batch.durable().batch());
                }
                if !self.write_queue.is_empty() {
                    self.execute_deferred(now);
                }
            }
            Err(failed) => {
                self.poison = Some((DiskTrouble::of(&failed.error), failed.error.to_string()));
                self.fail_all(now);
            }
        }
    }

    /// The disk failed under entries whose fate nobody knows: they are answered so.
    fn fail_all(&mut self, now: Stamp) {
        let proposed = self.groups.iter_mut().flat_map(Group::abandon_proposed).collect::<Vec<_>>();
        self.execute_deferred(now);
        for proposed in proposed {
            self.fail(now, proposed.reply_to, Failure::Poisoned { applied_unknown: true });
        }
        self.fail_held(now);
    }

    /// Learns that an entry is durable here. With one voter it is committed by that, and applied.
    fn note_durable(&mut self, now: Stamp, entry: DurableEntry) {
        let group = self.groups.get_mut(entry.group);
        match &mut group.role {
            Role::Solo(solo) => {
                let committed = solo.durable(entry.index).entry(entry);
                let proposed = group.take_proposed(committed.get().index);
                self.apply_entry(now, &committed, proposed);
            }
            Role::Replicated(copy) => copy.note_durable(entry),
        }
    }

    /// Applies the next entry of a group: the command `proposed`.
    pub(crate) fn apply_entry(
        &mut self,
        now: Stamp,
        committed: &Committed<DurableEntry>,
        proposed: Proposed,
    ) {
        let entry = committed.get();
        let group = self.groups.get_mut(entry.group);
        let Proposed { subject, command, reply_to, .. } = proposed;
        let logged = LoggedCommand { subject, command, data_bytes: entry.data.len() as u64 };
        let applied = group.apply(committed, logged);
        if let Some(placement) = applied.placement {
            self.log.place(entry, placement);
        }
        self.log.applied(entry.group, entry.index);
        if self.retention.is_on || applied.outcome.brings_bounds() {
            self.note_retention(now, entry.group, &applied);
        }
        self.follow_up(now, entry, &applied);
        self.deliver(now, reply_to, applied.outcome);
    }

    fn follow_up(&mut self, now: Stamp, entry: &DurableEntry, applied: &Applied) {
        let key = |stream| StreamKey { group: entry.group, stream };
        if let Some(visible) = applied.visible
            && self.watchers.has(key(visible.stream))
        {
            let Visible { tail, next_record, closed, gone, .. } = visible;
            let is_shared = !entry.data.is_empty() && entry.data.len() <= SHARED_BYTES_MAX;
            let (key, data) = (key(visible.stream), is_shared.then(|| entry.data.clone()));
            self.announce(&Change { key, tail, next_record, closed, gone, data });
        }
        match applied.effect {
            None => {}
            Some(Effect::Forget(stream)) => self.log.forget(key(stream)),
            Some(Effect::Trim(stream, to)) => self.log.trim(key(stream), to),
            Some(Effect::ForgetFork { stream, source, token }) => {
                self.log.forget(key(stream));
                // It is pending in the state: who takes charge of the group finds it.
                if self.groups.get(entry.group).role.is_in_charge() {
                    self.releases.add(source, token);
                    self.release_due(now);
                }
            }
        }
    }

    /// Tells the shards and the nodes that watch a stream how it is now, perhaps with the data behind which it is so.
    pub(crate) fn announce(&mut self, change: &Change) {
        let peers = self.watchers.peers_of(change.key);
        if !peers.is_empty() {
            self.announce_to_peers(&peers, change);
        }
        for shard in self.watchers.of(change.key) {
            self.notify(shard, change.clone());
        }
        if change.gone {
            self.watchers.forget(change.key);
        }
    }

    /// Answers the sender of a command.
    #[inline]
    fn deliver(&mut self, now: Stamp, reply_to: ReplyTo, outcome: Outcome) {
        match reply_to {
            ReplyTo::Client(ticket) => self.reply(ticket, Reply::Outcome(outcome)),
            _ => self.give(now, reply_to, ShardAnswer::Outcome(outcome)),
        }
    }

    /// Answers the sender of a command whose fate nobody knows.
    pub(crate) fn fail(&mut self, now: Stamp, reply_to: ReplyTo, failure: Failure) {
        match reply_to {
            ReplyTo::Client(ticket) => self.reply(ticket, Reply::Failed(failure)),
            _ => self.give(now, reply_to, ShardAnswer::Failed(failure)),
        }
    }
}

impl Change {
    /// The present state of a stream; `None` for one that is gone.
    pub(crate) fn present(key: StreamKey, info: Option<&StreamInfo>) -> Self {
        Self {
            key,
            tail: info.map_or(ByteOffset::ZERO, |info| info.tail),
            next_record: info.map_or(0, |info| info.next_record),
            closed: info.is_some_and(|info| info.closed),
            gone: info.is_none(),
            data: None,
        }
    }

    /// What a node knows of the stream that has heard of this.
    pub(crate) fn seen(&self) -> Seen {
        Seen { tail: self.tail, next_record: self.next_record, closed: self.closed }
    }

    /// Where [`Change::data`] starts in the stream, if it came along.
    #[must_use]
    pub fn data_start(&self) -> Option<ByteOffset> {
        let data = self.data.as_ref()?;
        Some(ByteOffset::new(self.tail.get() - data.len() as u64))
    }
}
