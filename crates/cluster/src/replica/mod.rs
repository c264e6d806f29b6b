//! One group's copy on this node, as the consensus library sees it.
//!
//! # What
//! A wrapper of the library's node. It has no clock, no IO and no bytes of a log: messages and ticks go in, and what must be
//! appended, synced, sent and applied comes out. [`crate::rules`] says what the library needs around it.
//!
//! # Driving it
//! In a turn of the shard, for each group that something happened to:
//! 1. [`Replica::step`] for each message, [`Replica::tick`] at most once, [`Replica::propose`] for each
//!    request. What `propose` takes must be appended to the group's log at once, at the index that it says.
//! 2. [`Replica::take_ready`] until it is `None`, with the number of the open batch. Truncate, append and
//!    note what it says, into that batch; send its messages; apply what it says is committed, then
//!    [`Replica::applied`].
//! 3. Let the batch be written and synced. [`Replica::persisted`] with its number; send what it releases;
//!    step 2 again, for more may be committed.
//!
//! # Invariants
//! - `applied <= committed handed out <= durable here`, and `compacted <= applied`.
//! - A message that promises something goes when that is durable (rule 11).
//! - What is handed out as committed stays so: no other entry ever has its index.

mod beat;
mod change;
mod check;
mod empty;
#[cfg(test)]
mod harness;
mod heard;
mod held;
mod install;
mod ready;
mod step;

pub use change::ChangeRefused;
pub use check::{Refusals, StepRefused};
pub use ready::{GroupReady, Note, ToAppend};

use self::heard::Heard;
use self::held::Held;
use crate::configuration::{Change, Configuration};
use crate::identity::{NodeNumber, ReplicaId};
use crate::library;
use crate::message::{LogPosition, SnapshotPoint};
use crate::rules::{ELECTION_TICKS, ELECTION_TICKS_END, Enforced, HEARTBEAT_TICKS, Rules};
use crate::terms::Terms;
use bytes::Bytes;
use model::{EntryIndex, Term};
use raft::eraftpb::{Entry, HardState, Message, MessageType};
use raft::{Config, ProgressState, RaftState, RawNode, SnapshotStatus, StateRole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::marker::PhantomData;

/// Bytes of entries in one message to a follower; at least one entry.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;

/// Messages with entries that one follower has not acknowledged: 16 MiB of entries.
const MESSAGES_IN_FLIGHT_MAX: usize = 64;

/// Bytes of proposals that are not committed.
const UNCOMMITTED_BYTES_MAX: u64 = 16 << 20;

/// Marks an entry that its owner has appended already.
const PROPOSED: &[u8] = b"p";

/// What a replica starts with: what recovery has found.
#[derive(Debug)]
pub struct Start {
    /// Its id; a new one if anything that was synced is lost (rule 7).
    pub id: ReplicaId,
    /// Seeds the election timeouts of the group.
    pub seed: u64,
    /// The configuration at `applied`.
    pub configuration: Configuration,
    /// The last durable note.
    pub note: Note,
    /// The log, from the last checkpoint on or earlier.
    pub terms: Terms,
    /// The last applied entry; it is committed.
    pub applied: EntryIndex,
    /// Changes of the configuration behind `applied`, by index.
    pub changes: BTreeMap<u64, Change>,
}

/// Why a proposal was not taken. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotProposed {
    /// Another replica leads, or none.
    NotLeader,
    /// The leadership is being handed over.
    HandingOver,
    /// The group has a new leader whose first entry is not in the log.
    TooEarly,
    /// Too many bytes are not committed.
    TooMuch,
}

/// Why a read cannot be confirmed here and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRead {
    /// Another replica leads, or none.
    NotLeader,
    /// Nothing of this term is committed yet: ask again when something is.
    TooEarly,
}

/// A replica of the group, as its leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Follower {
    /// Which.
    pub id: ReplicaId,
    /// The last entry that it has acknowledged.
    pub matched: EntryIndex,
    /// It was heard in the last 300 to 600 ms.
    pub is_heard: bool,
    /// It waits for a snapshot.
    pub is_installing: bool,
}

/// One group's copy on this node.
pub struct Replica<R: Rules = Enforced> {
    id: ReplicaId,
    seed: u64,
    raw: RawNode<Terms>,
    /// At the last entry that was handed out as committed.
    configuration: Configuration,
    /// Changes in the log that were not handed out as committed.
    changes: BTreeMap<u64, Change>,
    /// Sizes of proposals that the library has not seen.
    proposals: Vec<u32>,
    proposal_bytes: u64,
    /// The last entry that the owner has appended or has in a [`GroupReady`].
    owner_last: u64,
    /// The last entry that was handed out as committed.
    handed_out: u64,
    held: VecDeque<Held>,
    /// The last durable entry that is not reported to the library: it is being replaced.
    untold: Option<u64>,
    durable_term: u64,
    is_installing: bool,
    /// Reads that wait for a quorum.
    reads: BTreeSet<u64>,
    last_read: u64,
    /// Ticks since each snapshot was sent.
    snapshots: BTreeMap<ReplicaId, u32>,
    /// Followers that have said to this leader that they have nothing.
    empty: BTreeSet<ReplicaId>,
    /// Up to where this leader has said to each follower what is committed. A message may be lost: the next append or heartbeat says it again.
    told: BTreeMap<ReplicaId, u64>,
    heard: Heard,
    refusals: Refusals,
    /// The last entry that was in the log when the configuration changed.
    settles_behind: u64,
    _rules: PhantomData<fn() -> R>,
}

impl<R: Rules> fmt::Debug for Replica<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("id", &self.id)
            .field("term", &self.term())
            .field("role", &self.raw.raft.state)
            .field("last", &self.owner_last)
            .field("committed", &self.raw.raft.raft_log.committed)
            .field("applied", &self.raw.raft.raft_log.applied)
            .finish_non_exhaustive()
    }
}

impl<R: Rules> Replica<R> {
    /// A replica that continues where its log ends.
    ///
    /// # Panics
    /// If nobody votes (rule 2), the note has no term, or the parts of `start` contradict each other.
    #[must_use]
    pub fn new(start: Start) -> Self {
        let Start { id, seed, configuration, note, mut terms, applied, changes } = start;
        R::check_start(&configuration);
        let last = terms.last();
        assert!(terms.base().index <= applied && applied <= last.index, "applied is in the log");
        assert!(note.term.get() > 0, "a replica has a term");
        assert!(last.term <= note.term, "an entry is of no later term than the note");
        let commit = note.commit.max(applied).min(last.index);
        let mut hard = HardState::default();
        (hard.term, hard.commit) = (note.term.get(), commit.get());
        hard.vote = note.vote.map_or(0, ReplicaId::bits);
        terms.set_initial(RaftState::new(hard, library::conf_state(&configuration)));
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config(id, applied), terms, &logger);
        Self {
            id,
            seed,
            raw: raw.expect("the limits of the library are constants"),
            configuration,
            changes,
            proposals: Vec::new(),
            proposal_bytes: 0,
            owner_last: last.index.get(),
            handed_out: applied.get(),
            held: VecDeque::new(),
            untold: None,
            durable_term: note.term.get(),
            is_installing: false,
            reads: BTreeSet::new(),
            last_read: 0,
            snapshots: BTreeMap::new(),
            empty: BTreeSet::new(),
            told: BTreeMap::new(),
            heard: Heard::default(),
            refusals: Refusals::default(),
            settles_behind: 0,
            _rules: PhantomData,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// The present term; it may not be durable yet.
    #[must_use]
    pub fn term(&self) -> Term {
        Term::new(self.raw.raft.term)
    }

    /// What it has refused.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Whether it leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether it leads and has applied an entry of its term: its state holds all that was ever acknowledged.
    #[must_use]
    pub fn is_settled_leader(&self) -> bool {
        self.is_leader() && self.raw.raft.apply_to_current_term()
    }

    /// Whether it leads, and has asked another one to take over: it takes no proposals until that one leads, or an election
    /// timeout is over.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    /// The leader, as far as is known here.
    #[must_use]
    pub fn leader(&self) -> Option<ReplicaId> {
        ReplicaId::from_bits(self.raw.raft.leader_id)
    }

    /// The last entry known as committed; it may not be durable here.
    #[must_use]
    pub fn committed(&self) -> EntryIndex {
        EntryIndex::new(self.raw.raft.raft_log.committed)
    }

    /// The last entry of the log.
    #[must_use]
    pub fn last_index(&self) -> EntryIndex {
        EntryIndex::new(self.owner_last)
    }

    /// The term of an entry of the log.
    #[must_use]
    pub fn term_of(&self, index: EntryIndex) -> Option<Term> {
        self.raw.raft.raft_log.term(index.get()).ok().filter(|term| *term > 0).map(Term::new)
    }

    /// The voters and learners at the last entry that was handed out as committed.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Whether a majority of the configuration knows durably that it is committed (rule 12). Until then a lost
    /// disk counts against the configuration before it, too. An entry of any kind settles it.
    ///
    /// Known here is that an entry was proposed by this leader behind the change, and is committed. A replica that
    /// has it got the commit of the change with it or before, and noted that in the same batch.
    #[must_use]
    pub fn is_configuration_settled(&self) -> bool {
        let last = EntryIndex::new(self.handed_out);
        let is_own = self.is_leader() && self.term_of(last) == Some(self.term());
        is_own && R::settles(self.handed_out, self.settles_behind)
    }

    /// Whether a snapshot is being installed: the replica hears nothing until it is durable.
    #[must_use]
    pub fn is_installing(&self) -> bool {
        self.is_installing
    }

    /// The others, as the leader sees them; empty for who does not lead.
    #[must_use]
    pub fn followers(&self) -> Vec<Follower> {
        if !self.is_leader() {
            return Vec::new();
        }
        let term = self.raw.raft.term;
        let others = self.raw.raft.prs().iter().filter(|(id, _)| **id != self.id.bits());
        let mut followers: Vec<Follower> = others
            .filter_map(|(id, progress)| {
                Some(Follower {
                    id: ReplicaId::from_bits(*id)?,
                    matched: EntryIndex::new(progress.matched),
                    is_heard: progress.recent_active || self.heard.has(*id, term),
                    is_installing: progress.state == ProgressState::Snapshot,
                })
            })
            .collect();
        followers.sort_unstable_by_key(|follower| follower.id);
        followers
    }

    /// Takes a proposal of `bytes` bytes, header included. The owner appends it at the index that this
    /// answers, under the present term, before anything else happens to this replica.
    ///
    /// # Errors
    /// [`NotProposed`].
    pub fn propose(&mut self, bytes: u32) -> Result<LogPosition, NotProposed> {
        self.check_propose(bytes)?;
        self.proposals.push(bytes);
        self.proposal_bytes += u64::from(bytes);
        self.owner_last += 1;
        Ok(LogPosition::new(self.owner_last, self.raw.raft.term))
    }

    fn check_propose(&self, bytes: u32) -> Result<(), NotProposed> {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader || raft.prs().get(raft.id).is_none() {
            return Err(NotProposed::NotLeader);
        }
        if raft.lead_transferee.is_some() {
            return Err(NotProposed::HandingOver);
        }
        if self.owner_last != raft.raft_log.last_index() + self.proposals.len() as u64 {
            return Err(NotProposed::TooEarly);
        }
        let unfinished = raft.uncommitted_size() as u64 + self.proposal_bytes;
        if unfinished > 0 && unfinished + u64::from(bytes) > UNCOMMITTED_BYTES_MAX {
            return Err(NotProposed::TooMuch);
        }
        Ok(())
    }

    /// Hands all proposals of this turn to the library in one step. Comes before anything that could end
    /// the leadership: the owner has appended them.
    fn flush(&mut self) {
        if self.proposals.is_empty() {
            return;
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.id.bits();
        let entries: Vec<Entry> = self.proposals.drain(..).map(proposed::<R>).collect();
        message.set_entries(entries.into());
        self.proposal_bytes = 0;
        self.raw.step(message).expect("the leader takes what `check_propose` has admitted");
        assert_eq!(self.raw.raft.raft_log.last_index(), self.owner_last, "each got its index");
    }

    /// Confirms reads: an index comes with [`GroupReady::reads`] when a majority has confirmed that this
    /// replica still leads. What is applied up to there holds all that was acknowledged before this call.
    /// One call serves all reads of a turn. [`GroupReady::lost_reads`] names those that must ask again.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn confirm_read(&mut self) -> Result<u64, NotRead> {
        if !self.is_leader() {
            return Err(NotRead::NotLeader);
        }
        if !R::may_read(&self.raw) {
            return Err(NotRead::TooEarly);
        }
        self.flush();
        self.last_read = R::next_read(self.last_read);
        self.reads.insert(self.last_read);
        self.raw.read_index(library::context(self.last_read).to_vec());
        Ok(self.last_read)
    }

    /// Records that everything up to `index` is applied.
    ///
    /// # Panics
    /// If it was not handed out as committed.
    pub fn applied(&mut self, index: EntryIndex) {
        self.raw.advance_apply_to(index.get());
    }

    /// Forgets entries that the log has released.
    ///
    /// # Panics
    /// If they are not applied.
    pub fn compact(&mut self, upto: EntryIndex) {
        assert!(upto.get() <= self.raw.raft.raft_log.applied, "what is not applied stays");
        self.raw.mut_store().compact(upto);
    }

    /// Asks for votes now, without waiting for the timeout.
    pub fn campaign(&mut self) {
        self.flush();
        if !self.is_installing && !self.would_win_alone_too_early() {
            // A leader, and a replica without a vote, stay what they are.
            let _ = self.raw.campaign();
        }
    }

    /// Hands the leadership over. Proposals are refused until it is done or an election timeout is over.
    pub fn hand_over(&mut self, to: ReplicaId) {
        self.flush();
        if self.is_leader() {
            // A follower's library would pass this on, and nobody listens to that.
            self.raw.transfer_leader(to.bits());
        }
    }

    /// All links with a node are lost: its replicas are asked again where they are (rule 4).
    ///
    /// If the leader was there, it counts as silent for the shortest election timeout.
    pub fn link_lost(&mut self, node: NodeNumber) {
        self.flush();
        for id in self.configuration.replicas().into_iter().filter(|id| id.node() == node) {
            self.raw.report_unreachable(id.bits());
        }
        if !self.is_leader() && self.leader().is_some_and(|leader| leader.node() == node) {
            self.raw.raft.election_elapsed += ELECTION_TICKS;
        }
    }

    /// Followers that can only continue from a snapshot: each until [`Replica::offer_snapshot`] or
    /// [`Replica::snapshot_failed`].
    #[must_use]
    pub fn wanted_snapshots(&self) -> Vec<ReplicaId> {
        if self.is_leader() { self.raw.store().wanted() } else { Vec::new() }
    }

    /// The contents of a snapshot lie ready at `to`: it may take the place of its log. Returns whether that
    /// helps; if not, a newer one does (rule 3).
    pub fn offer_snapshot(&mut self, to: ReplicaId, point: SnapshotPoint) -> bool {
        let may_offer = R::may_offer(&point, to);
        if may_offer {
            self.raw.mut_store().offer(to, point);
        }
        may_offer
    }

    /// The transfer of a snapshot to `to` has failed, before or after it was offered (rule 4).
    pub fn snapshot_failed(&mut self, to: ReplicaId) {
        self.flush();
        self.raw.mut_store().withdraw(to);
        self.snapshots.remove(&to);
        self.raw.report_snapshot(to.bits(), SnapshotStatus::Failure);
    }
}

fn proposed<R: Rules>(bytes: u32) -> Entry {
    Entry { data: R::weight(bytes), context: Bytes::from_static(PROPOSED), ..Entry::default() }
}

fn config(id: ReplicaId, applied: EntryIndex) -> Config {
    Config {
        id: id.bits(),
        applied: applied.get(),
        election_tick: ELECTION_TICKS,
        min_election_tick: ELECTION_TICKS,
        max_election_tick: ELECTION_TICKS_END,
        heartbeat_tick: HEARTBEAT_TICKS as usize,
        check_quorum: true,
        pre_vote: true,
        max_size_per_msg: MESSAGE_BYTES_MAX,
        max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
        max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
        // Followers learn of it with less: see `ready::tell_commits`.
        skip_bcast_commit: true,
        ..Config::default()
    }
}
