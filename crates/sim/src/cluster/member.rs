//! One node: its shards, its disk and its clocks.

use crate::dice::Dice;
use cluster::{NodeNumber, ReplicaId};
use env::MemoryDisk;
use log::{LogOptions, OpenError, SyncDone, SyncJob, WorkDone, WorkJob};
use model::{GroupId, Monotonic, ShardId, Timestamp};
use node::{
    Change, CopyStatus, Event, FetchDone, FetchJob, Membership, Output, PeerEvent, ReadDone,
    ReadJob, Reply, Request, ShardCore, ShardMessage, SliceLimits, Stamp, Ticket, ToPeer,
    TransferCounts, TransferDone, TransferJob,
};
use std::path::Path;
use std::sync::Arc;

pub(super) const DIR: &str = "/data";

/// The wall clock at the beginning.
const START_MS: u64 = 1_700_000_000_000;

/// Something for a shard.
#[derive(Debug)]
pub(super) enum Mail {
    Request { ticket: Ticket, request: Request, data: Vec<u8> },
    Peer(PeerEvent),
    Shard(Box<ShardMessage>),
    Synced(SyncDone),
    Worked(WorkDone),
    ReadDone(Box<ReadDone>),
    Fetched(Box<FetchDone>),
    Begin(Box<Membership>),
    Transferred(Box<TransferDone>),
    Tick,
}

/// Work for a thread.
#[derive(Debug)]
pub(super) enum Job {
    Sync(SyncJob),
    Work(Box<WorkJob>),
    Read(Box<ReadJob>),
    Fetch(Box<FetchJob>),
    Transfer(Box<TransferJob>),
}

impl Job {
    pub(super) fn run(self) -> Mail {
        match self {
            Self::Sync(job) => Mail::Synced(job.run()),
            Self::Work(job) => Mail::Worked(job.run()),
            Self::Read(job) => Mail::ReadDone(Box::new(job.run())),
            Self::Fetch(job) => Mail::Fetched(Box::new(job.run())),
            Self::Transfer(job) => Mail::Transferred(Box::new(job.run())),
        }
    }
}

/// What a turn leads to.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) replies: Vec<(Ticket, Reply)>,
    pub(super) mails: Vec<(usize, Mail)>,
    pub(super) jobs: Vec<(usize, Job)>,
    pub(super) said: Vec<ToPeer>,
    pub(super) changes: Vec<Change>,
    pub(super) is_behind: bool,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) number: usize,
    pub(super) disk: MemoryDisk,
    /// Empty while it is down.
    pub(super) shards: Vec<ShardCore>,
    pub(super) shard_count: u16,
    pub(super) life: u64,
    /// Its turns in all lives.
    turn_count: u64,
    pub(super) inbox: Vec<(usize, Mail)>,
    pub(super) is_turn_due: bool,
    pub(super) paused_until_us: u64,
    pub(super) slow_until_us: u64,
    /// When its patience is over: its process is about to end.
    pub(super) ends_by_us: Option<u64>,
    pub(super) skew_ms: u64,
    /// Of earlier lives.
    pub(super) counts: TransferCounts,
}

pub(super) fn node_number(number: usize) -> NodeNumber {
    NodeNumber::new(u16::try_from(number + 1).expect("few nodes"))
}

pub(super) fn membership(number: usize, (node_count, seed): (usize, u64)) -> Membership {
    let voters = (0..node_count).map(|node| ReplicaId::new(node_number(node), 1)).collect();
    Membership { node: node_number(number), voters, opening: 1, seed, meta: None }
}

impl Member {
    pub(super) fn new(number: usize, shard_count: u16, skew_ms: u64) -> Self {
        Self {
            number,
            disk: MemoryDisk::new(),
            shards: Vec::new(),
            shard_count,
            life: 0,
            turn_count: 0,
            inbox: Vec::new(),
            is_turn_due: false,
            paused_until_us: 0,
            slow_until_us: 0,
            ends_by_us: None,
            skew_ms,
            counts: TransferCounts::default(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Its copies of groups.
    pub(super) fn copies(&self) -> impl Iterator<Item = CopyStatus> {
        self.shards.iter().flat_map(ShardCore::copies)
    }

    /// Its copy of a group: no node has two of one.
    pub(super) fn copy_of(&self, group: GroupId) -> Option<CopyStatus> {
        self.copies().find(|copy| copy.group == group)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.shards.iter().any(|shard| shard.poison().is_some())
    }

    pub(super) fn stamp(&self, now_us: u64) -> Stamp {
        let wall = Timestamp::new(START_MS + self.skew_ms + now_us / 1000);
        Stamp { wall, monotonic: Monotonic::new((now_us + 1) * 1000) }
    }

    pub(super) fn start(
        &mut self,
        dice: &mut Dice,
        options: LogOptions,
        membership: &Membership,
    ) -> Result<(), OpenError> {
        let disk = Arc::new(self.disk.clone());
        let with = (options, self.shard_count);
        let membership = &Membership { opening: self.life + 1, ..membership.clone() };
        let opened = node::open_member((disk, dice), Path::new(DIR), with, membership)?;
        self.shards = opened.shards;
        // Some nodes take many turns for what others copy in one: other things happen in between.
        let rows_max = [1024, 1, 4][(self.number + self.life as usize) % 3];
        let limits = SliceLimits { rows_max, ..SliceLimits::default() };
        self.shards.iter_mut().for_each(|shard| shard.set_slice_limits(limits));
        self.life += 1;
        Ok(())
    }

    /// What was done for snapshots.
    pub(super) fn transfer_counts(&self) -> TransferCounts {
        let add = |sum: TransferCounts, more: TransferCounts| TransferCounts {
            installs: sum.installs + more.installs,
            sent_bytes: sum.sent_bytes + more.sent_bytes,
            resumed: sum.resumed + more.resumed,
        };
        self.shards.iter().map(ShardCore::transfer_counts).fold(self.counts, add)
    }

    /// The process is asked to end.
    pub(super) fn begin_end(&mut self, by_us: u64) {
        self.ends_by_us = Some(by_us);
        self.shards.iter_mut().for_each(ShardCore::begin_end);
    }

    /// Whether it was asked to end, and does so now.
    pub(super) fn may_end(&self, now_us: u64) -> bool {
        self.ends_by_us
            .is_some_and(|by_us| now_us >= by_us || self.shards.iter().all(ShardCore::may_end))
    }

    /// The process ends; the disk is as the caller leaves it.
    pub(super) fn end(&mut self) {
        self.counts = self.transfer_counts();
        self.shards.clear();
        self.inbox.clear();
        self.life += 1;
        self.paused_until_us = 0;
        self.ends_by_us = None;
    }

    /// Takes everything that has come, then drains the shards.
    pub(super) fn turn(&mut self, now_us: u64) -> Turn {
        let now = self.stamp(now_us);
        let mut turn = Turn::default();
        // As a loop does that looks for more before it commits.
        let may_hold = self.turn_count % 4 < 2;
        self.turn_count += 1;
        for (shard, mail) in std::mem::take(&mut self.inbox) {
            give(&mut self.shards[shard], now, mail);
        }
        for (number, shard) in self.shards.iter_mut().enumerate() {
            if shard.is_behind() {
                shard.handle(now, Event::Continue);
            }
            drain((number, shard), may_hold, &mut turn);
            turn.is_behind |= shard.is_behind() || holds_commit(shard, may_hold);
        }
        turn
    }
}

fn give(shard: &mut ShardCore, now: Stamp, mail: Mail) {
    match mail {
        Mail::Request { ticket, request, data } => {
            shard.handle(now, Event::Request { ticket, request, data: &data });
        }
        Mail::Peer(event) => shard.handle(now, Event::Peer(Box::new(event))),
        Mail::Shard(message) => shard.handle(now, Event::Shard(message)),
        Mail::Synced(done) => shard.handle(now, Event::Synced(done)),
        Mail::Worked(done) => shard.handle(now, Event::Worked(done)),
        Mail::ReadDone(done) => shard.handle(now, Event::ReadDone(done)),
        Mail::Fetched(done) => shard.handle(now, Event::Fetched(done)),
        Mail::Begin(membership) => shard.begin_membership(now, *membership),
        Mail::Transferred(done) => shard.handle(now, Event::Transferred(done)),
        Mail::Tick => shard.handle(now, Event::Tick),
    }
}

/// Whether a commit waits for the next turn, if it may.
fn holds_commit(shard: &ShardCore, may_hold: bool) -> bool {
    may_hold && shard.has_uncommitted()
}

fn next_output(shard: &mut ShardCore, may_hold: bool) -> Option<Output> {
    let before_commit = shard.poll_before_commit();
    if before_commit.is_some() || holds_commit(shard, may_hold) {
        return before_commit;
    }
    shard.poll_output()
}

fn drain((number, shard): (usize, &mut ShardCore), may_hold: bool, turn: &mut Turn) {
    let place = |to: ShardId| usize::from(to.get());
    while let Some(output) = next_output(shard, may_hold) {
        match output {
            Output::Reply { ticket, reply } => turn.replies.push((ticket, reply)),
            Output::Shard { to, message } => turn.mails.push((place(to), Mail::Shard(message))),
            Output::Changed { change, .. } => turn.changes.push(change),
            Output::Sync(job) => turn.jobs.push((number, Job::Sync(job))),
            Output::Work(job) => turn.jobs.push((number, Job::Work(job))),
            Output::Read(job) => turn.jobs.push((number, Job::Read(job))),
            Output::Fetch(job) => turn.jobs.push((number, Job::Fetch(job))),
            Output::Transfer(job) => turn.jobs.push((number, Job::Transfer(job))),
            Output::Peer(said) => turn.said.push(*said),
        }
    }
    if !holds_commit(shard, may_hold) {
        shard.check();
    }
}
