//! Which nodes of a cluster that grows have joined, and what they know of it.

use super::streams::NODES;
use std::collections::BTreeMap;

/// What a run has of a cluster that grows.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Nodes that are members and may run; the first one always.
    pub(super) joined: [bool; NODES],
    /// Nodes whose directory says that others are members.
    pub(super) knows_others: [bool; NODES],
    /// Calls that nobody waits for but the world, and the node that joins by them.
    pub(super) calls: BTreeMap<u32, Option<usize>>,
    /// Each group has had three voters.
    pub(super) is_grown: bool,
}
