//! What comes in: messages and ticks.

use super::{Replica, StepRefused};
use crate::configuration::Change;
use crate::library;
use crate::message::{Body, GroupMessage, LogPosition};
use crate::rules::Rules;

impl<R: Rules> Replica<R> {
    /// Takes a message of another replica.
    ///
    /// # Errors
    /// [`StepRefused`]; the replica is as before, and the message is counted in [`Replica::refusals`].
    pub fn step(&mut self, message: GroupMessage) -> Result<(), StepRefused> {
        let taken = self.take_message(message);
        if let Err(refused) = &taken {
            self.refusals.count(refused);
        }
        taken
    }

    fn take_message(&mut self, message: GroupMessage) -> Result<(), StepRefused> {
        if !R::is_addressed(&message, self.id) || message.from == message.to {
            return Err(StepRefused::NotAddressed);
        }
        if self.is_installing && !R::hears_while_installing() {
            return Err(StepRefused::Installing);
        }
        if self.note_alive(&message) {
            return Ok(());
        }
        self.flush();
        let changes = self.check(&message)?;
        if message.body == Body::Empty {
            return self.hear_empty(message);
        }
        let wants_no_answer = matches!(message.body, Body::Committed { .. });
        let message = library::to_library(message);
        let said = self.raw.raft.msgs.len();
        // The library refuses answers of replicas that it does not know; they are late.
        let _ = self.raw.step(message);
        if wants_no_answer {
            library::take_back_answers(&mut self.raw.raft.msgs, said);
        }
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
        self.heard.keep(&self.raw.raft);
        self.raw.tick();
    }

    /// The only voter wins an election at once, and the library demands that its log is durable then.
    pub(super) fn would_win_alone_too_early(&self) -> bool {
        !self.is_leader() && self.is_undurable_alone()
    }

    /// It is the only voter, of both configurations if they are joint, and waits for the disk.
    pub(super) fn is_undurable_alone(&self) -> bool {
        self.configuration.is_quorum(|id| id == self.id) && self.is_undurable()
    }

    /// Whether something of its log, its term or its vote waits for the disk.
    pub(super) fn is_undurable(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        !self.held.is_empty() || log.last_index() != log.persisted
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
}
