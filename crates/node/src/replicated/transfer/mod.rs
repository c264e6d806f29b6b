//! Snapshots on their way between a group's leader and a replica that lacks entries which the log has no more.
//!
//! # What
//! 1. The leader's library asks for a snapshot. The leader offers, and the receiver says what it has in chunks (`incoming`).
//! 2. The leader exports its newest checkpoint and what the receiver lacks (`outgoing`), and sends both as one row of bytes in
//!    pieces. The receiver writes them, and says how far it is. No more than a window is under way.
//! 3. When all is durable there, the leader's library learns of it, and its message makes the receiver install (`install`).
//!
//! Nothing waits for it: reads and writes of files are jobs, and pieces are small and paced.
//!
//! # What is lost on the way
//! Anything may be. A leader that hears nothing for a while, or has a new link, offers again. The receiver answers where
//! it is, and both continue there. A receiver that has forgotten all says so, and the leader begins again.
//!
//! # Invariants
//! - At most two snapshots leave a shard at once, and at most two come.
//! - A receiver has at most a window of bytes in memory, and a leader one read for each.
//! - The configuration of a snapshot contains its receiver (rule 3 of `cluster`), and the library learns of each end (rule 4).

mod incoming;
mod install;
mod limits;
mod outgoing;
mod pace;
mod rebuilt;
mod source;
mod way;
mod writing;

pub(crate) use rebuilt::Rebuilt;
pub(crate) use source::Source;
pub(crate) use writing::Writing;

use crate::transfer_job::{TransferCame, TransferJob, TransferWork};
use crate::{Output, ShardCore, Stamp, TransferDone};
use cluster::{NodeNumber, ReplicaId, Section, Transfer, TransferSays};
use incoming::Incoming;
use limits::TRANSFERS_MAX;
use model::{GroupId, Monotonic};
use outgoing::Outgoing;
use pace::Pace;
use std::collections::BTreeMap;
use way::{JobOf, Way};

/// The bits of a number of a transfer that count those of one opening.
const NUMBER_BITS: u32 = 40;

/// Snapshots on their way from and to one shard.
#[derive(Debug)]
pub(crate) struct Transfers {
    outgoing: BTreeMap<(GroupId, ReplicaId), Outgoing>,
    incoming: BTreeMap<GroupId, Incoming>,
    /// Those that came to nothing, until then.
    resting: BTreeMap<(GroupId, ReplicaId), Monotonic>,
    jobs: BTreeMap<u64, JobOf>,
    last_job: u64,
    last_number: u64,
    pace: Pace,
    counts: TransferCounts,
}

/// What a shard has done for snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferCounts {
    /// Snapshots that took the place of a log here.
    pub installs: u64,
    /// Bytes of files and heads that were sent.
    pub sent_bytes: u64,
    /// The same, of what came again where the receiver was.
    pub resumed: u64,
}

impl Transfers {
    /// Those of the opening with this number.
    pub(super) fn new(opening: u64) -> Self {
        Self {
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            resting: BTreeMap::new(),
            jobs: BTreeMap::new(),
            last_job: 0,
            last_number: opening << NUMBER_BITS,
            pace: Pace::default(),
            counts: TransferCounts::default(),
        }
    }

    /// How many bytes of a snapshot are here, of how many.
    pub(super) fn progress(&self, group: GroupId) -> Option<(u64, u64)> {
        self.incoming.get(&group).and_then(Incoming::progress)
    }

    /// Asserts the bounds.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self) {
        assert!(self.outgoing.len() <= TRANSFERS_MAX, "too many snapshots leave");
        assert!(self.incoming.len() <= TRANSFERS_MAX, "too many snapshots come");
    }
}

impl ShardCore {
    /// Sets how many bytes of snapshots may leave this shard in a second.
    ///
    /// # Panics
    /// If it is 0.
    pub fn set_transfer_bytes_per_second(&mut self, bytes_per_second: u64) {
        if self.replication.is_some() {
            self.transfers().pace.set(bytes_per_second);
        }
    }

    /// What this shard has done for snapshots.
    #[must_use]
    pub fn transfer_counts(&self) -> TransferCounts {
        self.replication.as_ref().map_or_else(Default::default, |it| it.transfers.counts)
    }

    fn transfers(&mut self) -> &mut Transfers {
        &mut self.members().transfers
    }

    /// Begins a job; its number.
    fn begin_job(&mut self, of: JobOf, work: TransferWork) -> u64 {
        let transfers = self.transfers();
        transfers.last_job += 1;
        let number = transfers.last_job;
        transfers.jobs.insert(number, of);
        self.outputs.push_back(Output::Transfer(Box::new(TransferJob { number, work })));
        number
    }

    fn say_of_transfer(
        &mut self,
        group: GroupId,
        (to, number): (ReplicaId, u64),
        says: TransferSays,
    ) {
        let from = self.copy_mut(group).id();
        let transfer = Transfer { from, to, number, says };
        self.tell(to.node(), Section::Transfer { group, transfer });
    }

    pub(super) fn hear_transfer(
        &mut self,
        now: Stamp,
        from: NodeNumber,
        (group, transfer): (GroupId, Transfer),
    ) {
        if !self.has_copy(group) || transfer.from.node() != from {
            return;
        }
        if !self.copy_mut(group).takes_snapshots_as(transfer.to) {
            return;
        }
        let (peer, number) = (transfer.from, transfer.number);
        if let TransferSays::Offer { is_begun, position } = transfer.says {
            return self.hear_offer(now, Way { group, peer, number }, (is_begun, position));
        }
        let transfers = self.transfers();
        let is_outgoing = |out: &Outgoing| out.number() == number;
        let is_incoming = |coming: &Incoming| coming.is_of(peer, number);
        if transfers.outgoing.get(&(group, peer)).is_some_and(is_outgoing) {
            self.hear_receiver(now, (group, peer), transfer.says);
        } else if transfers.incoming.get(&group).is_some_and(is_incoming) {
            self.hear_sender(now, group, transfer.says);
        }
    }

    pub(crate) fn handle_transferred(&mut self, now: Stamp, done: TransferDone) {
        let of = self.transfers().jobs.remove(&done.number).expect("a job that was given out");
        match (of, done.came) {
            (_, TransferCame::Rebuilt(done, rebuilt)) => self.end_install(now, done, *rebuilt),
            (JobOf::Outgoing(group, to, number), came) => {
                self.note_sender_job((group, to), number, came);
            }
            (JobOf::Incoming(group), came) => self.note_receiver_job(group, done.number, came),
            (JobOf::Nobody, _) => {}
        }
    }

    /// Time has passed.
    pub(super) fn tick_transfers(&mut self, now: Stamp) {
        let monotonic = now.monotonic;
        self.transfers().resting.retain(|_, until| monotonic < *until);
        self.begin_wanted(now);
        let outgoing: Vec<_> = self.transfers().outgoing.keys().copied().collect();
        outgoing.into_iter().for_each(|key| self.tick_outgoing(now, key));
        let incoming: Vec<GroupId> = self.transfers().incoming.keys().copied().collect();
        incoming.into_iter().for_each(|group| self.tick_incoming(now, group));
    }

    /// A node may have lost what was sent to it: both ends find out where they are.
    pub(super) fn ask_again(&mut self, now: Stamp, node: NodeNumber) {
        let outgoing: Vec<_> = self.transfers().outgoing.keys().copied().collect();
        for key in outgoing.into_iter().filter(|(_, to)| to.node() == node) {
            self.ask_receiver(now, key);
        }
    }
}
