//! The watchers of every stream.
//!
//! A connection belongs to its shard, and this module knows only the shard. So a commit costs one
//! message per watching shard, however many readers it has. Shards of other nodes watch in the same way (`replicated::watch`).

use cluster::NodeNumber;
use log::IdMap;
use model::{GroupId, Monotonic, ShardId, StreamKey};

/// The shards that want to know of changes, by stream.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Shards of this node.
    shards: IdMap<StreamKey, Vec<ShardId>>,
    /// Shards of other nodes.
    peers: IdMap<StreamKey, Vec<PeerWatch>>,
}

/// A shard of another node that watches a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerWatch {
    pub(crate) node: NodeNumber,
    pub(crate) shard: u16,
    /// It asks again before this time, or does not want to know any more.
    pub(crate) until: Monotonic,
}

impl Watchers {
    /// Whether a stream is watched from anywhere.
    #[inline]
    pub(crate) fn has(&self, key: StreamKey) -> bool {
        !self.is_empty() && (self.is_watched_here(key) || self.peers.contains_key(&key))
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.peers.is_empty()
    }

    /// Whether a shard of this node watches a stream.
    pub(crate) fn is_watched_here(&self, key: StreamKey) -> bool {
        self.shards.contains_key(&key)
    }

    pub(crate) fn add(&mut self, key: StreamKey, shard: ShardId) {
        let shards = self.shards.entry(key).or_default();
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }

    pub(crate) fn remove(&mut self, key: StreamKey, shard: ShardId) {
        let Some(shards) = self.shards.get_mut(&key) else { return };
        shards.retain(|known| *known != shard);
        if shards.is_empty() {
            self.shards.remove(&key);
        }
    }

    /// A shard of another node watches a stream, or continues to do so.
    pub(crate) fn add_peer(&mut self, key: StreamKey, watch: PeerWatch) {
        let peers = self.peers.entry(key).or_default();
        peers.retain(|known| (known.node, known.shard) != (watch.node, watch.shard));
        peers.push(watch);
    }

    /// Forgets shards of other nodes that have not asked again.
    pub(crate) fn forget_late(&mut self, now: Monotonic) {
        self.peers.retain(|_, peers| {
            peers.retain(|watch| watch.until > now);
            !peers.is_empty()
        });
    }

    /// The shards of other nodes that watch `key`.
    pub(crate) fn peers_of(&self, key: StreamKey) -> Vec<PeerWatch> {
        self.peers.get(&key).cloned().unwrap_or_default()
    }

    /// The streams of some groups that shards of this node watch.
    pub(crate) fn keys_in(&self, groups: &[GroupId]) -> Vec<StreamKey> {
        if groups.is_empty() {
            return Vec::new();
        }
        self.shards.keys().filter(|key| groups.contains(&key.group)).copied().collect()
    }

    /// The shards that watch `key`, in the order in which they asked.
    pub(crate) fn of(&self, key: StreamKey) -> Vec<ShardId> {
        // Most streams are not watched; an empty Vec does not allocate.
        self.shards.get(&key).cloned().unwrap_or_default()
    }

    /// The streams of a group that are watched from anywhere, in order.
    pub(crate) fn of_group(&self, group: GroupId) -> Vec<StreamKey> {
        let all = self.shards.keys().chain(self.peers.keys());
        let mut keys: Vec<_> = all.filter(|key| key.group == group).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(crate) fn forget(&mut self, key: StreamKey) {
        self.shards.remove(&key);
        self.peers.remove(&key);
    }

    /// Asserts that each stream in the table is watched, by each shard once.
    ///
    /// # Panics
    /// If one is not.
    pub(crate) fn check(&self) {
        for (key, shards) in &self.shards {
            assert!(!shards.is_empty(), "{key:?} is kept without watchers");
            let is_first = |(place, shard): (usize, &ShardId)| !shards[..place].contains(shard);
            assert!(shards.iter().enumerate().all(is_first), "{key:?} is watched twice by a shard");
        }
    }

    pub(crate) fn stream_count(&self) -> u64 {
        self.shards.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{GroupId, StreamId};

    const KEY: StreamKey = StreamKey { group: GroupId::new(0), stream: StreamId::new(1) };

    #[test]
    fn a_shard_watches_once_and_leaves_nothing_behind() {
        let mut watchers = Watchers::default();
        for shard in [2, 1, 2] {
            watchers.add(KEY, ShardId::new(shard));
        }
        watchers.check();
        assert_eq!(watchers.of(KEY), [2, 1].map(ShardId::new));
        watchers.remove(KEY, ShardId::new(2));
        watchers.remove(KEY, ShardId::new(1));
        assert!(watchers.is_empty());
    }

    #[test]
    fn another_node_that_does_not_ask_again_is_forgotten() {
        let mut watchers = Watchers::default();
        let watch = |shard, seconds: u64| PeerWatch {
            node: NodeNumber::new(2),
            shard,
            until: Monotonic::new(seconds * 1_000_000_000),
        };
        for watch in [watch(0, 3), watch(1, 3), watch(0, 4)] {
            watchers.add_peer(KEY, watch);
        }
        watchers.forget_late(Monotonic::new(3_000_000_000));
        assert_eq!(watchers.peers_of(KEY), [watch(0, 4)]);
        assert_eq!(
            (watchers.of_group(KEY.group), watchers.keys_in(&[KEY.group])),
            (vec![KEY], vec![])
        );
        watchers.forget_late(Monotonic::new(4_000_000_000));
        assert!(watchers.is_empty());
    }

    #[test]
    #[should_panic(expected = "without watchers")]
    fn a_stream_that_nobody_watches_is_found() {
        let mut watchers = Watchers::default();
        watchers.shards.insert(KEY, Vec::new());
        watchers.check();
    }

    #[test]
    #[should_panic(expected = "watched twice")]
    fn a_shard_that_watches_twice_is_found() {
        let mut watchers = Watchers::default();
        watchers.shards.insert(KEY, vec![ShardId::new(1); 2]);
        watchers.check();
    }
}
