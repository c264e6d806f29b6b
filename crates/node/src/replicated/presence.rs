//! Which members the leader of the cluster's own group hears. One that was away for long gives its places to others.
//!
//! # How
//! Each member has a copy of that group, so its leader hears all of them. A member that is away long enough gets no replicas
//! where enough others are there. Nothing of that is remembered: when the member is heard again, it gets its places back.
//!
//! # Invariants
//! - A leader knows nothing of the time before it led: to a new one nobody was away for long. But a member that has no
//!   places gets none until it is heard. Else each new leader would first undo what the last one did.

use cluster::{Follower, Meta, NodeNumber};
use model::{GroupId, Monotonic};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Presence {
    /// 0 replaces nobody.
    replace_after_ms: u64,
    /// Since when the group is led here.
    since: Option<Monotonic>,
    /// When each member was heard last.
    heard: BTreeMap<NodeNumber, Monotonic>,
}

impl Presence {
    pub(super) fn new(replace_after_ms: u64) -> Self {
        Self { replace_after_ms, ..Self::default() }
    }

    /// The group is led elsewhere.
    pub(super) fn rest(&mut self) {
        self.since = None;
        self.heard.clear();
    }

    /// The group is led here, and these are its other replicas.
    pub(super) fn note(&mut self, now: Monotonic, followers: &[Follower]) {
        self.since.get_or_insert(now);
        let heard = followers.iter().filter(|follower| follower.is_heard);
        self.heard.extend(heard.map(|follower| (follower.id.node(), now)));
    }

    /// The members of `holders` that get replicas. `own` is the node itself.
    pub(super) fn holders(
        &self,
        (now, own): (Monotonic, NodeNumber),
        meta: &Meta,
        mut holders: Vec<NodeNumber>,
    ) -> Vec<NodeNumber> {
        let Some(since) = self.since.filter(|_| self.replace_after_ms > 0) else { return holders };
        let is_placed = |node: &NodeNumber| {
            (0..=meta.group_count()).any(|group| meta.target(GroupId::new(group)).contains(node))
        };
        let is_there = |node: &NodeNumber| {
            let heard = self.heard.get(node);
            let away_ms = now.ms_since(*heard.unwrap_or(&since));
            let is_known = heard.is_some() || is_placed(node);
            *node == own || (is_known && away_ms < self.replace_after_ms)
        };
        let there: Vec<NodeNumber> = holders.iter().copied().filter(is_there).collect();
        if there.len() >= usize::from(meta.replication()) {
            holders = there;
        }
        holders
    }
}
