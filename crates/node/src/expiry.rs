//! Streams whose lifetime has run out.
//!
//! A lifetime ends by the clock, its end is logged a moment later. A crash between the two may bring
//! the stream back: uses that the log does not know of yet are made up for
//! ([`stream::GroupState::forgive_lost_touches`]). So the answer that a stream has expired waits until
//! the log knows it, too. What was seen gone stays gone.

use crate::{
    Failure, Reply, ShardAnswer, Stamp, Ticket,
    group::Groups,
    step::{Step, View},
};
use model::{StreamKey, StreamPath, Timestamp};
use stream::{Command, Outcome, Refusal};

/// An answer that says that a stream has expired, and waits until the log says so.
#[derive(Debug)]
pub(crate) struct ExpirySteps {
    ticket: Ticket,
    path: StreamPath,
    key: StreamKey,
    refusal: Refusal,
}

impl ExpirySteps {
    /// Begins to refuse a request for what is at `path`. If nothing there has expired, the refusal comes
    /// back: it needs no wait.
    pub(crate) fn begin(
        groups: &Groups,
        now: Stamp,
        (ticket, path): (Ticket, &StreamPath),
        refusal: Refusal,
    ) -> Result<(Self, Step), Refusal> {
        let state = &groups.of_path(path).state;
        let Some(stream) = state.expired_holder(path, now.wall) else { return Err(refusal) };
        let key = StreamKey { group: state.group(), stream };
        let expiry = Self { ticket, path: path.clone(), key, refusal };
        let step = expiry.log(groups);
        Ok((expiry, step))
    }

    fn log(&self, groups: &Groups) -> Step {
        // What is in flight may be the expiry, or an append that keeps the stream alive: a use at
        // the beginning of time changes nothing and comes back after it.
        let command = match groups.is_in_flight(self.key) {
            true => Command::Touch(Timestamp::new(0)),
            false => Command::Expire,
        };
        Step::Propose(self.key.into(), command, Vec::new())
    }

    pub(crate) fn step(&mut self, view: &View<'_>, answer: ShardAnswer) -> Step {
        if let ShardAnswer::Failed(failure) = answer {
            // Whatever became of the expiry, the request itself has changed nothing.
            let failure = match failure {
                Failure::Poisoned { .. } => Failure::Poisoned { applied_unknown: false },
                other => other,
            };
            return Step::Reply(self.ticket, Reply::Failed(failure));
        }
        let (state, now) = (view.state_of(&self.path), view.now.wall);
        if state.is_due(self.key.stream, now) {
            return self.log(view.groups);
        }
        let reply = if state.resolve_id(&self.path, now) == Ok(self.key.stream) {
            // It was used meanwhile and lives on.
            Reply::Failed(Failure::Overloaded)
        } else {
            Reply::Outcome(Outcome::Refused(self.refusal.clone()))
        };
        Step::Reply(self.ticket, reply)
    }
}
