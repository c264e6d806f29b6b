//! Watchers: nodes that tell of changes of streams, whether they keep them or not.
//!
//! # What must hold
//! In the end each watcher has heard of the last byte. Bytes that came with a change are those of
//! the stream there. When a stream is deleted, its watchers hear so.

use super::streams::STREAMS;
use super::world::World;
use model::{ShardId, StreamKey};
use node::{Change, Request, Ticket};

/// So many of 100 reads are followed by a watch at the same node.
const WATCHES_PERCENT: u64 = 15;

/// The shard of each node that watches.
const WATCHER: ShardId = ShardId::new(0);

impl World {
    /// Has a node watch a stream that was read there, now and then.
    pub(super) fn watch(&mut self, node: usize, stream: usize, key: StreamKey) {
        self.watches.streams.insert(key, stream);
        let place = (node, self.members[node].life, key);
        let is_new = !self.watches.tails.contains_key(&place);
        if self.members[node].is_up() && is_new && self.watches.dice.percent(WATCHES_PERCENT) {
            self.watches.tails.insert(place, 0);
            self.watches.waiting.insert(place);
            let ticket = Ticket { shard: WATCHER, exchange: [0; 3] };
            self.ask_shard(node, key.group, ticket, (Request::Watch { key }, Vec::new()));
        }
    }

    /// A node tells of changes.
    pub(super) fn hear_changes(&mut self, node: usize, changes: Vec<Change>) {
        let life = self.members[node].life;
        for Change { key, tail, gone, data, .. } in changes {
            let place = (node, life, key);
            self.note(format_args!("{node} hears of {key:?}: {tail}, gone: {gone}"));
            self.watches.changes_count += 1;
            if gone {
                self.watches.waiting.remove(&place);
            }
            if gone && !self.watches.may_go {
                self.oracle.broken(format!("node {node} says that {key:?} is gone"));
            }
            let Some(known) = self.watches.tails.get_mut(&place) else { continue };
            *known = tail.get().max(*known);
            if let Some(data) = data {
                self.watches.data.entry((key, tail.get())).or_default().insert(data);
            }
        }
    }

    /// A watcher that has not heard of all bytes.
    pub(super) fn deaf_watcher(&self) -> Option<String> {
        let is_deaf = |((node, life, key), tail): &(&(usize, u64, StreamKey), &u64)| {
            let stream = self.watches.streams[key];
            self.is_life(*node, *life) && **tail != self.contents[stream].len() as u64
        };
        let ((node, _, key), tail) = self.watches.tails.iter().find(is_deaf)?;
        let bytes = self.contents[self.watches.streams[key]].len();
        Some(format!("node {node} heard of {tail} of {bytes} bytes of {key:?}"))
    }

    /// Whether each watcher has heard that its stream is gone.
    pub(super) fn unaware_watcher(&self) -> Option<String> {
        let is_unaware = |(node, life, _): &&(usize, u64, StreamKey)| self.is_life(*node, *life);
        let (node, _, key) = self.watches.waiting.iter().find(is_unaware)?;
        Some(format!("node {node} did not hear that {key:?} is gone"))
    }

    /// Bytes that came with changes are those of the streams.
    pub(super) fn check_changes(&mut self) {
        assert!(self.watches.streams.len() <= STREAMS, "a stream has two keys");
        for ((key, end), all) in &self.watches.data {
            let content = &self.contents[self.watches.streams[key]];
            for data in all {
                let start = (*end as usize).checked_sub(data.len());
                let is_there = start.and_then(|start| content.get(start..*end as usize));
                if is_there != Some(&data[..]) {
                    let what = format!("a change of {key:?} at {end} brought other bytes");
                    return self.oracle.broken(what);
                }
            }
        }
    }
}
