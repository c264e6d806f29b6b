//! The watchers of every stream.
//!
//! A connection belongs to its shard, and this module knows only the shard. So a commit costs one
//! message per watching shard, however many readers it has.

use log::IdMap;
use model::{GroupId, ShardId, StreamKey};

/// The shards that want to know of changes, by stream.
#[derive(Debug, Default)]
pub(crate) struct Watchers(IdMap<StreamKey, Vec<ShardId>>);

impl Watchers {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, key: StreamKey, shard: ShardId) {
        let shards = self.0.entry(key).or_default();
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }

    pub(crate) fn remove(&mut self, key: StreamKey, shard: ShardId) {
        let Some(shards) = self.0.get_mut(&key) else { return };
        shards.retain(|known| *known != shard);
        if shards.is_empty() {
            self.0.remove(&key);
        }
    }

    /// The shards that watch `key`, in the order in which they asked.
    pub(crate) fn of(&self, key: StreamKey) -> Vec<ShardId> {
        // Most streams are not watched; an empty Vec does not allocate.
        self.0.get(&key).cloned().unwrap_or_default()
    }

    /// The streams of a group that are watched, in order.
    pub(crate) fn of_group(&self, group: GroupId) -> Vec<StreamKey> {
        let mut keys: Vec<_> = self.0.keys().filter(|key| key.group == group).copied().collect();
        keys.sort_unstable();
        keys
    }

    pub(crate) fn forget(&mut self, key: StreamKey) {
        self.0.remove(&key);
    }

    /// Asserts that each stream in the table is watched, by each shard once.
    ///
    /// # Panics
    /// If one is not.
    pub(crate) fn check(&self) {
        for (key, shards) in &self.0 {
            assert!(!shards.is_empty(), "{key:?} is kept without watchers");
            let is_first = |(place, shard): (usize, &ShardId)| !shards[..place].contains(shard);
            assert!(shards.iter().enumerate().all(is_first), "{key:?} is watched twice by a shard");
        }
    }

    pub(crate) fn stream_count(&self) -> u64 {
        self.0.len() as u64
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
    #[should_panic(expected = "without watchers")]
    fn a_stream_that_nobody_watches_is_found() {
        let mut watchers = Watchers::default();
        watchers.0.insert(KEY, Vec::new());
        watchers.check();
    }

    #[test]
    #[should_panic(expected = "watched twice")]
    fn a_shard_that_watches_twice_is_found() {
        let mut watchers = Watchers::default();
        watchers.0.insert(KEY, vec![ShardId::new(1); 2]);
        watchers.check();
    }
}
