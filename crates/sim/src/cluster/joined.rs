//! Which nodes of a cluster that grows have joined, and what they know of it.

use super::streams::NODES;
use std::collections::BTreeMap;

/// What a run has of a cluster that grows.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Nodes that are members and may run; the first one always.
    pub(super) joined: [bool; NODES + 1],
    /// Nodes whose directory says that others are members.
    pub(super) knows_others: [bool; NODES + 1],
    /// Calls that nobody waits for but the world, and the node that joins by them.
    pub(super) calls: BTreeMap<u32, Option<usize>>,
    /// The spare node joins as well, so that each group has a node without a copy.
    pub(super) is_wide: bool,
    /// The node whose place the spare one takes.
    pub(super) exchange: Option<Exchange>,
    /// A node that is away for so long is replaced.
    pub(super) replace_after_ms: u64,
    /// Each group has had three voters.
    pub(super) is_grown: bool,
}

/// A node goes for good, and the spare one takes its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) out: usize,
    /// Its disk is lost; else it leaves as it should.
    pub(super) is_lost: bool,
    /// Somebody says that it is gone; else its place is taken when it has been away for long.
    pub(super) is_told: bool,
    /// It runs no more.
    pub(super) is_gone: bool,
}
