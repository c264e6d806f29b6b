//! Streams that are watched here and kept elsewhere.
//!
//! # How
//! A session asks the shard of the group, as everywhere. Where the group has no copy, that shard asks the group's
//! leader ([`crate::ShardCall::Watch`]) and says what it knows of each stream. The leader answers with the streams of which
//! it knows something else, and from then on sends each change ([`Section::Changed`]).
//!
//! # What is lost
//! A change that is lost with a link or a leader costs a second at most: the question is repeated each second, and its
//! answer has what is missing. A leader that has not heard the question for [`LEASE_MS`] sends nothing more.
//!
//! # Own copies
//! A copy that does not know a stream may be behind: it does not say that the stream is gone, and its leader is asked as well. When the
//! copy knows the stream, or leads, it says how that is, and tells of changes from then on. A change may come twice then, and an
//! older one behind a newer one: who watches looks at the tail.

use super::change_bytes::{put_change, take_change};
use crate::{
    Change, Seen, ShardAnswer, ShardCall, ShardCore, Ticket, live::PeerWatch, proposed::ReplyTo,
};
use bytes::Bytes;
use cluster::Section;
use model::{GroupId, ShardId, StreamId, StreamKey};
use std::collections::BTreeMap;

/// For how long a leader tells of changes after it was asked.
const LEASE_MS: u64 = 3_000;

/// Ticks between two questions: 1 s.
const RENEW_TICKS: u32 = 20;

/// Streams in one question.
const STREAMS_MAX: usize = 1 << 10;

/// The streams for which a shard asks leaders, and what it knows of them.
#[derive(Debug, Default)]
pub(super) struct FarWatches {
    seen: BTreeMap<StreamKey, Option<Seen>>,
    ticks: u32,
}

impl ShardCore {
    /// Whether only the leader elsewhere can tell of a stream.
    pub(crate) fn is_watched_elsewhere(&self, key: StreamKey) -> bool {
        let group = self.groups.get(key.group);
        let may_be_behind = || !group.role.is_in_charge() && group.state.info(key.stream).is_none();
        self.replication.is_some() && (self.is_elsewhere(key.group) || may_be_behind())
    }

    /// A shard of this node watches a stream of which only the leader elsewhere can tell.
    pub(crate) fn watch_elsewhere(&mut self, shard: ShardId, key: StreamKey) {
        self.watchers.add(key, shard);
        match self.members().far.seen.get(&key).copied() {
            None => {
                self.members().far.seen.insert(key, None);
                self.ask_to_watch(key.group, vec![(key.stream, None)]);
            }
            // The answer is for all who watch.
            Some(None) => {}
            Some(Some(Seen { tail, next_record, closed })) => {
                let (gone, data) = (false, None);
                self.notify(shard, Change { key, tail, next_record, closed, gone, data });
            }
        }
    }

    /// Asks the leader of a group to tell of changes. A question that nobody answers is asked again with the next ones.
    fn ask_to_watch(&mut self, group: GroupId, streams: Vec<(StreamId, Option<Seen>)>) {
        let at = (group, self.members().now.monotonic);
        let call = ShardCall::Watch { group, streams };
        // One that finds no room comes again as well.
        let _ = self.forward_call(at, ReplyTo::Watchers, call);
    }

    /// Asks again for all that is watched, and forgets what is watched no more.
    pub(super) fn renew_watches(&mut self) {
        let ticks = &mut self.members().far.ticks;
        *ticks += 1;
        if *ticks < RENEW_TICKS {
            return;
        }
        *ticks = 0;
        let now = self.members().now.monotonic;
        self.watchers.forget_late(now);
        let before = std::mem::take(&mut self.members().far.seen);
        // All that is watched in groups that are elsewhere, and of the others what was asked for before. The own copies tell of the rest.
        let mut groups = self.replicated_groups();
        groups.retain(|id| self.is_elsewhere(*id));
        let mut keys = self.watchers.keys_in(&groups);
        let others = before.keys().filter(|key| !groups.contains(&key.group));
        keys.extend(others.filter(|key| self.watchers.is_watched_here(**key)));
        keys.sort_unstable();
        let (far, near): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|key| self.is_watched_elsewhere(*key));
        let far: Vec<(StreamKey, Option<Seen>)> =
            far.into_iter().map(|key| (key, before.get(&key).copied().flatten())).collect();
        self.members().far.seen = far.iter().copied().collect();
        for streams in far.chunk_by(|(one, _), (next, _)| one.group == next.group) {
            for streams in streams.chunks(STREAMS_MAX) {
                let asked = streams.iter().map(|(key, seen)| (key.stream, *seen));
                self.ask_to_watch(streams[0].0.group, asked.collect());
            }
        }
        for key in near {
            let info = self.groups.get(key.group).state.info(key.stream);
            self.announce(&Change::present(key, info.as_ref()));
        }
    }

    /// The leader has answered.
    pub(crate) fn hear_watched(&mut self, answer: ShardAnswer) {
        if let ShardAnswer::Watched(changes) = answer {
            changes.into_iter().for_each(|change| self.hear_change(change));
        }
    }

    /// A leader tells of a change.
    pub(super) fn hear_changed(&mut self, mut payload: Bytes) {
        if let Some(change) = take_change(&mut payload).filter(|_| payload.is_empty()) {
            self.hear_change(change);
        }
    }

    fn hear_change(&mut self, change: Change) {
        let heard = change.seen();
        // Otherwise nobody wants to know it any more, or the own copy tells of it.
        let Some(seen) = self.members().far.seen.get_mut(&change.key) else { return };
        if change.gone || seen.is_none_or(|seen| seen.is_behind(&heard)) {
            *seen = Some(heard);
            self.announce(&change);
        }
    }

    /// Another node watches streams of a group that is led here: what it does not know of them.
    pub(crate) fn watch_for_peer(
        &mut self,
        ticket: Ticket,
        group: GroupId,
        streams: &[(StreamId, Option<Seen>)],
    ) -> ShardAnswer {
        let until = self.members().now.monotonic.plus_ms(LEASE_MS);
        let own = self.members().forwarding.node;
        let asker = self.members().serving.asker(ticket).filter(|(node, _)| *node != own);
        let mut changes = Vec::new();
        for (stream, seen) in streams {
            let key = StreamKey { group, stream: *stream };
            let change = Change::present(key, self.groups.get(group).state.info(*stream).as_ref());
            if let Some((node, shard)) = asker.filter(|_| !change.gone) {
                self.watchers.add_peer(key, PeerWatch { node, shard, until });
            }
            if change.gone || seen.is_none_or(|seen| seen.is_behind(&change.seen())) {
                changes.push(change);
            }
        }
        ShardAnswer::Watched(changes)
    }

    /// Tells the nodes that watch a stream how it is now.
    #[cold]
    pub(crate) fn announce_to_peers(&mut self, peers: &[PeerWatch], change: &Change) {
        let mut payload = Vec::new();
        put_change(change, &mut payload);
        let payload = Bytes::from(payload);
        for PeerWatch { node, shard, .. } in peers {
            self.tell(*node, Section::Changed { shard: *shard, payload: payload.clone() });
        }
    }
}
