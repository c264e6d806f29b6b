//! Groups with replicas on other nodes: one step of the consensus library per group and turn.
//!
//! # What
//! Messages of peers and ticks come in ([`crate::PeerEvent`]), and requests as everywhere. At the end of a turn each group that
//! something happened to is driven once: its replica says what to append, note, send and apply. All groups of a shard
//! share one batch and one sync.
//!
//! # The order of a turn
//! 1. `hear`: messages of peers, ticks, lost links. `gate`: requests.
//! 2. `turn`: entries and notes into the open batch, messages that need no sync to the peers. This comes before the
//!    batch is given out, so a leader's entries leave before its own sync.
//! 3. When the batch is durable: votes and acknowledgements to the peers, and what is committed by that.
//! 4. `apply`: committed entries, in order. The answer of a proposal goes to its sender if its own entry was committed: same
//!    index and same term. Another term there means that it never will be.
//!
//! # Who answers
//! Writes: only a leader that has applied an entry of its term ([`GroupCopy::is_serving`]). What goes through the log needs no
//! question. What it answers from its state waits until a majority has confirmed that it still leads
//! ([`cluster::Barriers`]). Another node passes a write on (`forward`, `serve`). Reads: any copy, behind the same word of the leader (`elsewhere`). A node without a copy passes everything on,
//! and watches streams at their leader (`watch`). Nothing expires by the clock of a
//! follower.
//!
//! # Invariants
//! - `applied <= committed handed out <= durable here`.
//! - An entry is applied only with its [`cluster::Commit`], and only if index and term are those of the log.
//! - A message whose promise is not durable is held in the replica, not here.
//! - A copy that lost something it had synced takes part in nothing: see [`Halt`]. It comes back under a new id (`renew`).
//! - While a snapshot takes the place of its log, a copy hears nothing, and applies nothing (`transfer`).

mod apply;
mod begin;
mod call_bytes;
mod catch_up;
mod change_bytes;
mod compare;
mod copy;
mod elsewhere;
mod field_bytes;
mod forward;
mod gate;
mod hear;
mod held;
mod leader;
mod leave;
mod line;
mod meta;
mod pass;
mod place;
mod position_bytes;
mod presence;
mod removal;
mod remove;
mod renew;
mod renewed;
mod request_bytes;
mod retire;
mod send;
mod serve;
mod start;
mod status;
mod sweep;
mod transfer;
mod turn;
mod watch;

pub use call_bytes::{decode_answer, decode_call, encode_answer, encode_call};
pub(crate) use copy::{GroupCopy, Halt};
pub(crate) use gate::Gate;
pub(crate) use line::Waiter;
pub use request_bytes::{decode_reply, decode_request, encode_reply, encode_request};
pub(crate) use start::{may_concern, to_copy};
pub use status::{CopyState, CopyStatus};
pub use transfer::TransferCounts;
pub(crate) use transfer::{Rebuilt, Source, Writing};

use crate::{Membership, Stamp};
use cluster::{HEARTBEAT_TICKS, Member, Meta, MetaCommand, NodeNumber};
use model::{GroupId, Monotonic, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How long a request may wait: for a leader, for its confirmation, or for its entry to be committed. Clients begin to
/// give up soon after.
const WAIT_MS_MAX: u64 = 5_000;

/// Ticks between two in which a group is looked after: 200 ms.
const CARE_TICKS: u32 = 4;

/// What a shard has beside the copies of its groups.
#[derive(Debug)]
pub(crate) struct Replication {
    /// Groups that something happened to in this turn.
    touched: VecDeque<GroupId>,
    /// Copies and clients that need room in the log, the first one at the front.
    line: VecDeque<Waiter>,
    /// The time of the last event.
    now: Stamp,
    last_fetch: u64,
    /// The batch with the note of a copy that has lost something, until it is durable.
    retiring: Option<u64>,
    forwarding: forward::Forwarding,
    serving: serve::Serving,
    /// While groups with one voter are left: what they need to become copies.
    beginning: Option<Membership>,
    /// With which copies begin.
    membership: Membership,
    /// This node, as the cluster is to know it.
    own: Option<Member>,
    /// What the cluster knows of itself, as far as this shard has heard.
    meta: Option<Arc<Meta>>,
    /// It was applied here, and the owner of the shard has not asked since.
    is_meta_new: bool,
    /// Changes of the cluster that this shard wants.
    wishes: VecDeque<MetaCommand>,
    /// Ticks since the cluster's own state was last compared with what is so here.
    wish_ticks: u32,
    /// Ticks since the start.
    ticks: u32,
    /// The nodes that hold groups, if these are where they shall be.
    in_place: Option<Vec<NodeNumber>>,
    /// The node that shall lead each group, as soon as somebody has asked.
    leaders_wanted: Option<Arc<BTreeMap<GroupId, NodeNumber>>>,
    /// Ticks since a leadership was last given away so that they spread.
    spread_ticks: u32,
    leave: leave::Leave,
    presence: presence::Presence,
    far: watch::FarWatches,
    sweeps: sweep::Sweeps,
    checks: compare::Checks,
    transfers: transfer::Transfers,
}

impl Replication {
    /// Of this node and this opening of it.
    pub(crate) fn new(membership: &Membership) -> Self {
        let replace_after_ms = membership.meta.as_ref().map_or(0, |meta| meta.replace_after_ms);
        Self {
            touched: VecDeque::new(),
            line: VecDeque::new(),
            now: Stamp { wall: Timestamp::new(0), monotonic: Monotonic::new(0) },
            last_fetch: 0,
            retiring: None,
            forwarding: forward::Forwarding::new((membership.node, membership.opening)),
            serving: serve::Serving::default(),
            beginning: None,
            membership: membership.clone(),
            own: membership.meta.as_ref().map(|meta| meta.own.clone()),
            meta: None,
            is_meta_new: false,
            wishes: VecDeque::new(),
            wish_ticks: 0,
            ticks: 0,
            in_place: None,
            leaders_wanted: None,
            spread_ticks: 0,
            leave: leave::Leave::default(),
            presence: presence::Presence::new(replace_after_ms),
            far: watch::FarWatches::default(),
            sweeps: sweep::Sweeps::default(),
            checks: compare::Checks::default(),
            transfers: transfer::Transfers::new(membership.opening),
        }
    }

    /// Asserts what holds between two turns.
    ///
    /// # Panics
    /// If it is broken.
    pub(crate) fn check(&self) {
        self.forwarding.check();
        self.transfers.check();
    }

    /// Time has passed.
    pub(crate) fn note_time(&mut self, now: Stamp) {
        self.now = now;
    }

    fn note_tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
    }

    /// Whether a group is looked after in this tick: its number says so. If the shards are a multiple of four, all groups of
    /// one are in the same tick.
    fn is_due(&self, id: GroupId) -> bool {
        u32::from(id.get()) % CARE_TICKS == self.ticks % CARE_TICKS
    }

    /// Whether leaders beat in this tick.
    fn is_beat(&self) -> bool {
        self.ticks.is_multiple_of(HEARTBEAT_TICKS)
    }

    fn next_fetch(&mut self) -> u64 {
        self.last_fetch += 1;
        self.last_fetch
    }
}
