//! Changes of the cluster that were asked for, and their askers.

use crate::cluster::JoinerLink;
use cluster::{Member, MetaOutcome};
use model::{Monotonic, ShardId};
use node::Ticket;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// The shard of tickets of changes: no server has so many.
pub(super) const ASKS: ShardId = ShardId::new(u16::MAX - 1);

/// The asker of a change of the cluster, for what comes of it.
#[derive(Debug)]
pub(crate) enum Asker {
    /// What does not come true is asked for again.
    Nobody,
    /// A node that is to join.
    Joiner(JoinerLink),
    /// Another thread; it gets `None` if nobody could be asked.
    Caller(oneshot::Sender<Option<MetaOutcome>>),
}

/// A node that wants to join.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) link: u64,
    pub(super) member: Member,
    pub(super) since: Monotonic,
}

/// Changes that were asked for, and their askers.
#[derive(Debug, Default)]
pub(super) struct Asks {
    /// Nodes for which nothing was asked yet.
    pub(super) newcomers: Vec<Newcomer>,
    count: u64,
    open: BTreeMap<u64, Asker>,
}

impl Asks {
    pub(super) fn add(&mut self, asker: Asker) -> Ticket {
        self.count += 1;
        self.open.insert(self.count, asker);
        Ticket { shard: ASKS, exchange: [self.count as u32, (self.count >> 32) as u32, 0] }
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Asker> {
        let [low, high, _] = ticket.exchange.map(u64::from);
        self.open.remove(&(high << 32 | low))
    }
}
