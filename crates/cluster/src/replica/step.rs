//! What comes in: messages and ticks.
//!
//! The library ends the process over a message that contradicts what it knows. So messages are checked
//! here before it sees them, and a peer that sends such a one is refused in words.

use super::Replica;
use crate::configuration::Change;
use crate::entry_bytes::{EntryHead, KIND_CHANGE};
use crate::library;
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry};
use crate::rules::Rules;
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
    /// It contradicts what this replica knows as committed: one of the two has lost what it had synced.
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

impl<R: Rules> Replica<R> {
    /// Takes a message of another replica.
    ///
    /// # Errors
    /// [`StepRefused`]; the replica is as before.
    pub fn step(&mut self, message: GroupMessage) -> Result<(), StepRefused> {
        if !R::is_addressed(&message, self.id) || message.from == message.to {
            return Err(StepRefused::NotAddressed);
        }
        if self.is_installing && !R::hears_while_installing() {
            return Err(StepRefused::Installing);
        }
        self.flush();
        let changes = self.check(&message)?;
        let message = library::to_library(message);
        // The library refuses answers of replicas that it does not know; they are late.
        let _ = self.raw.step(message);
        self.note_changes(changes);
        self.is_installing |= self.raw.snap().is_some_and(|snapshot| !snapshot.is_empty());
        Ok(())
    }

    /// Lets a tick of the clock pass: 50 ms.
    pub fn tick(&mut self) {
        if self.is_installing && !R::hears_while_installing() {
            return;
        }
        self.flush();
        self.report_overdue();
        if self.would_win_alone_too_early() {
            return;
        }
        R::before_tick(&mut self.raw, self.seed);
        self.raw.tick();
    }

    /// The only voter wins an election at once, and the library demands that its log is durable then.
    pub(super) fn would_win_alone_too_early(&self) -> bool {
        let is_alone = self.configuration.voters == [self.id] && !self.configuration.is_joint();
        is_alone && !self.is_leader() && !self.held.is_empty()
    }

    /// It is about to ask for votes, and waits for its own to be durable.
    fn asks_too_early(&self) -> bool {
        self.raw.raft.state == StateRole::Candidate && !self.held.is_empty()
    }

    fn report_overdue(&mut self) {
        let mut overdue = Vec::new();
        for (to, ticks) in &mut self.snapshots {
            *ticks += 1;
            if R::is_overdue(*ticks) {
                overdue.push(*to);
            }
        }
        overdue.into_iter().for_each(|to| self.snapshot_failed(to));
    }

    /// Keeps the changes of entries that are in the log now.
    fn note_changes(&mut self, changes: Vec<(LogPosition, Change)>) {
        for (at, change) in changes {
            if self.raw.raft.raft_log.match_term(at.index.get(), at.term.get())
                && at.index.get() > self.handed_out
            {
                self.changes.insert(at.index.get(), change);
            }
        }
    }

    /// Checks a message, and returns the changes among its entries.
    fn check(&self, message: &GroupMessage) -> Result<Vec<(LogPosition, Change)>, StepRefused> {
        if message.term.get() == 0 {
            return Err(StepRefused::Malformed("a message has no term"));
        }
        if largest_number(message) > NUMBER_MAX {
            return Err(StepRefused::Malformed("a number is larger than any log is long"));
        }
        let log = &self.raw.raft.raft_log;
        let is_of_this_term = message.term.get() == self.raw.raft.term;
        match &message.body {
            Body::Append { .. } | Body::Heartbeat { .. } | Body::Snapshot(_)
                if is_of_this_term && self.is_leader() =>
            {
                Err(StepRefused::Contradiction("two replicas lead the same term"))
            }
            Body::Append { previous, entries, .. } => {
                self.check_entries(*previous, entries)?;
                check_entry_terms(message, *previous, entries)?;
                changes_of(entries)
            }
            Body::Vote { is_pre: false, is_granted: true, .. } if self.asks_too_early() => {
                // The question goes when the log is durable, and the library wins no election before that.
                Err(StepRefused::Malformed("a vote came before it was asked for"))
            }
            Body::Heartbeat { commit, .. } if commit.get() > log.last_index() => {
                let lost = "the leader knows of entries that this replica had and has not";
                Err(StepRefused::Contradiction(lost))
            }
            Body::Appended { index, .. } if is_of_this_term && index.get() > log.last_index() => {
                Err(StepRefused::Contradiction("a follower acknowledges what was not sent"))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Committed entries never change.
    fn check_entries(
        &self,
        previous: LogPosition,
        entries: &[SentEntry],
    ) -> Result<(), StepRefused> {
        let log = &self.raw.raft.raft_log;
        let positions = std::iter::once(&previous).chain(entries.iter().map(|entry| &entry.at));
        let committed = positions.filter(|at| at.index.get() <= log.committed);
        for at in committed {
            let known = log.term(at.index.get()).ok().filter(|term| *term > 0);
            if known.is_some_and(|known| known != at.term.get()) {
                let why = "a leader has another entry where one is committed";
                return Err(StepRefused::Contradiction(why));
            }
        }
        Ok(())
    }
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
        Body::Snapshot(point) => of(&point.last),
        Body::Campaign => 0,
    };
    inside.max(message.term.get())
}

fn check_entry_terms(
    message: &GroupMessage,
    previous: LogPosition,
    entries: &[SentEntry],
) -> Result<(), StepRefused> {
    let mut last = previous;
    for entry in entries {
        let follows = entry.at.index.get() == last.index.get() + 1 && entry.at.term >= last.term;
        if !follows || entry.at.term > message.term || entry.at.term.get() == 0 {
            return Err(StepRefused::Malformed(
                "the entries of a message do not follow each other",
            ));
        }
        last = entry.at;
    }
    Ok(())
}

fn changes_of(entries: &[SentEntry]) -> Result<Vec<(LogPosition, Change)>, StepRefused> {
    let mut changes = Vec::new();
    for entry in entries {
        let EntryBytes::Sent(bytes) = &entry.bytes else {
            return Err(StepRefused::Malformed("an entry came without its bytes"));
        };
        let head = EntryHead::decode(bytes)
            .map_err(|_| StepRefused::Malformed("an entry's header makes no sense"))?;
        if head.at != entry.at || (head.kind == KIND_CHANGE) != entry.is_change {
            return Err(StepRefused::Malformed("an entry is not what its message says"));
        }
        if entry.is_change {
            if !head.is_intact(bytes) {
                return Err(StepRefused::Malformed("a change was damaged on its way"));
            }
            let change = Change::decode(head.command(bytes));
            let change = change.map_err(|_| StepRefused::Malformed("a change makes no sense"))?;
            changes.push((entry.at, change));
        }
    }
    Ok(changes)
}
