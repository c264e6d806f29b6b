//! Which messages the library may see.
//!
//! The library ends the process over a message that contradicts what it knows: it takes its peers for copies of
//! itself. So each message is checked before it gets there. What a correct peer never sends is refused in
//! words, and counted. `harness/refused.rs` has a row for each check, and `harness/hostile.rs` sends random
//! messages to replicas in every state.
//!
//! # What remains
//! A peer that lies within these bounds can commit what it likes: the links let in only nodes that have the
//! cluster's secret, and consensus of this kind trusts them. But no message ends the process.

use super::Replica;
use crate::configuration::Change;
use crate::entry_bytes::{EntryHead, KIND_CHANGE};
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
use crate::rules::Rules;
use model::EntryIndex;
use raft::StateRole;
use std::fmt;

/// Largest term or index that is believed: the next ones can be counted, and no log comes anywhere near.
const NUMBER_MAX: u64 = u64::MAX >> 2;

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRefused {
    /// It is for another replica, perhaps for one that was here before.
    NotAddressed,
    /// A snapshot is being installed.
    Installing,
    /// It contradicts itself.
    Malformed(&'static str),
    /// It contradicts what this replica knows: one of the two has lost what it had synced, or does not
    /// follow the protocol.
    Contradiction(&'static str),
}

impl fmt::Display for StepRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAddressed => f.write_str("the message is for another replica"),
            Self::Installing => f.write_str("a snapshot is being installed"),
            Self::Malformed(what) | Self::Contradiction(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StepRefused {}

/// How many messages a replica has refused since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals {
    /// For another replica.
    pub not_addressed: u64,
    /// While a snapshot was being installed.
    pub installing: u64,
    /// Contradicting themselves.
    pub malformed: u64,
    /// Contradicting what this replica knows.
    pub contradictions: u64,
    /// Committed changes of the configuration that were impossible, and changed nothing.
    pub impossible_changes: u64,
}

impl Refusals {
    pub(super) fn count(&mut self, refused: &StepRefused) {
        *match refused {
            StepRefused::NotAddressed => &mut self.not_addressed,
            StepRefused::Installing => &mut self.installing,
            StepRefused::Malformed(_) => &mut self.malformed,
            StepRefused::Contradiction(_) => &mut self.contradictions,
        } += 1;
    }
}

fn malformed<T>(why: &'static str) -> Result<T, StepRefused> {
    Err(StepRefused::Malformed(why))
}

fn contradiction<T>(why: &'static str) -> Result<T, StepRefused> {
    Err(StepRefused::Contradiction(why))
}

impl<R: Rules> Replica<R> {
    /// Checks a message, and returns the changes among its entries that the log does not have.
    pub(super) fn check(
        &self,
        message: &GroupMessage,
    ) -> Result<Vec<(LogPosition, Change)>, StepRefused> {
        let mut changes = check_alone(message)?;
        if message.term < self.term() {
            // It is late. The library reads no more than its term.
            return Ok(Vec::new());
        }
        self.check_sender(message)?;
        self.check_against_log(&message.body, message.term.get() == self.raw.raft.term)?;
        let new_from = self.new_from(&message.body);
        changes.retain(|(at, _)| at.index >= new_from);
        Ok(changes)
    }

    /// The first of a message's entries that the log does not have: it, and all behind it, are appended. Those before
    /// it stay what they are.
    fn new_from(&self, body: &Body) -> EntryIndex {
        let log = &self.raw.raft.raft_log;
        let is_new = |at: &LogPosition| !log.match_term(at.index.get(), at.term.get());
        let Body::Append { entries, .. } = body else { return EntryIndex::new(u64::MAX) };
        let first = entries.iter().map(|entry| entry.at).find(is_new);
        first.map_or(EntryIndex::new(u64::MAX), |at| at.index)
    }

    /// A term has one leader.
    fn check_sender(&self, message: &GroupMessage) -> Result<(), StepRefused> {
        let is_leaders = matches!(
            message.body,
            Body::Append { .. }
                | Body::Heartbeat { .. }
                | Body::Committed { .. }
                | Body::Snapshot(_)
        );
        let is_known = message.term == self.term() && self.raw.raft.leader_id != 0;
        if is_leaders && is_known && self.leader() != Some(message.from) {
            return contradiction("two replicas lead the same term");
        }
        Ok(())
    }

    fn check_against_log(&self, body: &Body, is_of_this_term: bool) -> Result<(), StepRefused> {
        let log = &self.raw.raft.raft_log;
        match body {
            Body::Append { previous, entries, .. } => {
                let places = entries.iter().map(|entry| entry.at);
                self.check_committed(std::iter::once(*previous).chain(places))
            }
            Body::Snapshot(point) => self.check_committed(std::iter::once(point.last)),
            Body::Heartbeat { commit, .. } | Body::Committed { commit }
                if commit.get() > log.last_index() =>
            {
                contradiction("the leader knows of entries that this replica had and has not")
            }
            Body::Appended { index, .. } if is_of_this_term && index.get() > log.last_index() => {
                contradiction("a follower acknowledges what was not sent")
            }
            Body::Vote { is_pre, .. } if self.would_win_too_early(*is_pre) => {
                contradiction("a vote came before the log of the replica that asks is durable")
            }
            // A later term makes a leader a follower before it campaigns.
            Body::Campaign if self.is_undurable_alone() => {
                contradiction("the only voter was asked to campaign")
            }
            _ => Ok(()),
        }
    }

    /// Questions go when the log is durable, and the library demands that of the winner of an election.
    fn would_win_too_early(&self, is_pre: bool) -> bool {
        match self.raw.raft.state {
            StateRole::Candidate => !is_pre && self.is_undurable(),
            StateRole::PreCandidate => is_pre && self.would_win_alone_too_early(),
            StateRole::Follower | StateRole::Leader => false,
        }
    }

    /// Committed entries never change.
    fn check_committed(
        &self,
        places: impl Iterator<Item = LogPosition>,
    ) -> Result<(), StepRefused> {
        let log = &self.raw.raft.raft_log;
        for at in places.filter(|at| at.index.get() <= log.committed) {
            let known = log.term(at.index.get()).ok().filter(|term| *term > 0);
            if known.is_some_and(|known| known != at.term.get()) {
                return contradiction("a leader has another entry where one is committed");
            }
        }
        Ok(())
    }
}

/// What can be said of a message without a log. Returns the changes among its entries.
fn check_alone(message: &GroupMessage) -> Result<Vec<(LogPosition, Change)>, StepRefused> {
    if message.term.get() == 0 {
        return malformed("a message has no term");
    }
    if largest_number(message) > NUMBER_MAX {
        return malformed("a number is larger than any log is long");
    }
    match &message.body {
        Body::Append { previous, entries, .. } => {
            if !is_place(*previous) || previous.term > message.term {
                return malformed("entries follow a place that no log has");
            }
            check_order(message, *previous, entries)?;
            changes_of(entries)
        }
        Body::Snapshot(point) => check_snapshot(message, point).map(|()| Vec::new()),
        _ => Ok(Vec::new()),
    }
}

/// Only the place before the first entry has no term.
fn is_place(at: LogPosition) -> bool {
    (at.index.get() == 0) == (at.term.get() == 0)
}

fn check_snapshot(message: &GroupMessage, point: &SnapshotPoint) -> Result<(), StepRefused> {
    if !is_place(point.last) || point.last.index.get() == 0 || point.last.term > message.term {
        return malformed("a snapshot is of a place that no log has");
    }
    if !point.configuration.is_possible() {
        return malformed("a snapshot has an impossible configuration");
    }
    Ok(())
}

/// The largest of a message's terms and indexes.
fn largest_number(message: &GroupMessage) -> u64 {
    let of = |at: &LogPosition| at.index.get().max(at.term.get());
    let inside = match &message.body {
        Body::Ask { last, commit, .. } => of(last).max(of(commit)),
        Body::Vote { commit, .. } => of(commit),
        Body::Append { previous, commit, entries } => {
            // Those in between follow each other.
            let last = entries.last().map_or(0, |entry| of(&entry.at));
            of(previous).max(commit.get()).max(last)
        }
        Body::Appended { index, commit } => index.get().max(commit.get()),
        Body::Rejected { index, hint, commit } => index.get().max(of(hint)).max(commit.get()),
        Body::Heartbeat { commit, .. } | Body::Alive { commit, .. } => commit.get(),
        Body::Committed { commit } => commit.get(),
        Body::Snapshot(point) => of(&point.last),
        Body::Campaign | Body::Empty => 0,
    };
    inside.max(message.term.get())
}

fn check_order(
    message: &GroupMessage,
    previous: LogPosition,
    entries: &[SentEntry],
) -> Result<(), StepRefused> {
    let mut last = previous;
    for entry in entries {
        let follows = entry.at.index.get() == last.index.get() + 1 && entry.at.term >= last.term;
        if !follows || entry.at.term > message.term || entry.at.term.get() == 0 {
            return malformed("the entries of a message do not follow each other");
        }
        last = entry.at;
    }
    Ok(())
}

fn changes_of(entries: &[SentEntry]) -> Result<Vec<(LogPosition, Change)>, StepRefused> {
    let mut changes = Vec::new();
    for entry in entries {
        let EntryBytes::Sent(bytes) = &entry.bytes else {
            return malformed("an entry came without its bytes");
        };
        let Ok(head) = EntryHead::decode(bytes) else {
            return malformed("an entry's header makes no sense");
        };
        if head.at != entry.at || (head.kind == KIND_CHANGE) != entry.is_change {
            return malformed("an entry is not what its message says");
        }
        if entry.is_change {
            if !head.is_intact(bytes) {
                return malformed("a change was damaged on its way");
            }
            let Ok(change) = Change::decode(head.command(bytes)) else {
                return malformed("a change makes no sense");
            };
            changes.push((entry.at, change));
        }
    }
    Ok(changes)
}
