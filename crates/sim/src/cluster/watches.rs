//! What the watchers of a run have heard.

use crate::dice::Dice;
use bytes::Bytes;
use model::StreamKey;
use std::collections::{BTreeMap, BTreeSet};

/// What watchers have heard.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) dice: Dice,
    /// The streams of the run, by key.
    pub(super) streams: BTreeMap<StreamKey, usize>,
    /// By node, opening and stream: the largest tail.
    pub(super) tails: BTreeMap<(usize, u64, StreamKey), u64>,
    /// Bytes that came with changes, by their end.
    pub(super) data: BTreeMap<(StreamKey, u64), BTreeSet<Bytes>>,
    /// Watchers that wait for a deletion.
    pub(super) waiting: BTreeSet<(usize, u64, StreamKey)>,
    /// Streams are being deleted.
    pub(super) may_go: bool,
    pub(super) changes_count: u64,
}

impl Watches {
    pub(super) fn new(dice: Dice) -> Self {
        Self {
            dice,
            streams: BTreeMap::new(),
            tails: BTreeMap::new(),
            data: BTreeMap::new(),
            waiting: BTreeSet::new(),
            may_go: false,
            changes_count: 0,
        }
    }
}
