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
//! # Invariants
//! - The tail that is announced here of a stream never falls.

use super::change_bytes::{put_change, take_change};
use crate::{
    Change, Seen, ShardAnswer, ShardCall, ShardCore, Ticket, live::PeerWatch, proposed::ReplyTo,
};
use bytes::Bytes;
use cluster::Section;
use model::{GroupId, ShardId, StreamId, StreamKey};
use std::collections::BTreeMap;
use stream::Visible;

/// For how long a leader tells of changes after it was asked.
const LEASE_MS: u64 = 3_000;

/// Ticks between two questions: 1 s.
const RENEW_TICKS: u32 = 20;

/// Streams in one question.
const STREAMS_MAX: usize = 1 << 10;

/// What a shard knows of streams that it watches and that are kept elsewhere.
#[derive(Debug, Default)]
pub(super) struct FarWatches {
    seen: BTreeMap<StreamKey, Seen>,
    ticks: u32,
}

impl ShardCore {
    /// A shard of this node watches a stream of a group that is kept elsewhere.
    pub(crate) fn watch_elsewhere(&mut self, shard: ShardId, key: StreamKey) {
        let is_new = self.watchers.of(key).is_empty();
        self.watchers.add(key, shard);
        if is_new {
            return self.ask_to_watch(key.group, vec![(key.stream, None)]);
        }
        if let Some(Seen { tail, next_record, closed }) = self.members().far.seen.get(&key).copied()
        {
            self.notify(shard, Change { key, tail, next_record, closed, gone: false, data: None });
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
        let mut keys = self.watchers.keys();
        keys.retain(|key| self.is_elsewhere(key.group));
        let seen = std::mem::take(&mut self.members().far.seen);
        let known = keys.iter().filter_map(|key| Some((*key, *seen.get(key)?)));
        self.members().far.seen = known.collect();
        for keys in keys.chunk_by(|one, next| one.group == next.group) {
            for keys in keys.chunks(STREAMS_MAX) {
                let streams = keys.iter().map(|key| (key.stream, seen.get(key).copied()));
                self.ask_to_watch(keys[0].group, streams.collect());
            }
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
        let Change { key, tail, next_record, closed, gone, data } = &change;
        let is_here = self.groups.holds(key.group) && !self.is_elsewhere(key.group);
        if is_here || self.watchers.of(*key).is_empty() {
            // The own copy tells of it, or nobody wants to know it any more.
            return;
        }
        let heard = change.seen();
        let seen = &mut self.members().far.seen;
        if *gone {
            seen.remove(key);
        } else if seen.get(key).is_none_or(|seen| seen.is_behind(&heard)) {
            seen.insert(*key, heard);
        } else {
            return;
        }
        let (stream, tail, next_record) = (key.stream, *tail, *next_record);
        let visible = Visible { stream, tail, next_record, closed: *closed, gone: *gone };
        self.announce(*key, visible, data.as_ref());
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
