//! Streams whose lifetime has run out.
//!
//! A lifetime ends by the clock, its end is logged a moment later. A crash between the two may bring
//! the stream back: uses that the log does not know of yet are made up for
//! ([`stream::GroupState::forgive_lost_touches`]). So the answer that a stream has expired waits until the log knows it, too. What was
//! seen gone stays gone.

use crate::{
    Failure, Reply, ShardAnswer, ShardCore, Stamp, Ticket, forks::Suspended, group::ReplyTo,
    shard::Proposal,
};
use model::{StreamKey, StreamPath, Timestamp};
use stream::{Command, Refusal};

/// An answer that says that a stream has expired, and waits until the log says so.
#[derive(Debug)]
pub(crate) struct ExpiryJob {
    ticket: Ticket,
    path: StreamPath,
    key: StreamKey,
    refusal: Refusal,
}

impl ShardCore {
    /// Refuses a request for what is at `path`.
    pub(crate) fn refuse_path(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        path: &StreamPath,
        refusal: Refusal,
    ) {
        let group = path.group(self.group_count);
        let Some(stream) = self.state(group).expired_holder(path, now.wall) else {
            return self.refuse(ticket, refusal);
        };
        let key = StreamKey { group, stream };
        self.log_expiry(now, ExpiryJob { ticket, path: path.clone(), key, refusal });
    }

    fn log_expiry(&mut self, now: Stamp, expiry: ExpiryJob) {
        let StreamKey { group, stream } = expiry.key;
        // What is in flight may be the expiry, or an append that keeps the stream alive: a use at
        // the beginning of time changes nothing and comes back after it.
        let command = match self.is_in_flight(expiry.key) {
            true => Command::Touch(Timestamp::new(0)),
            false => Command::Expire,
        };
        let job = self.suspended.add(Suspended::Expired(expiry));
        let proposal = Proposal { group, stream, command, data: &[] };
        self.propose(now, proposal, ReplyTo::Job(job));
    }

    pub(crate) fn resume_expiry(&mut self, now: Stamp, expiry: ExpiryJob, result: ShardAnswer) {
        let state = self.state(expiry.key.group);
        if let ShardAnswer::Failed(failure) = result {
            // Whatever became of the expiry, the request itself has changed nothing.
            let failure = match failure {
                Failure::Poisoned { .. } => Failure::Poisoned { applied_unknown: false },
                other => other,
            };
            return self.reply(expiry.ticket, Reply::Failed(failure));
        }
        if state.is_due(expiry.key.stream, now.wall) {
            return self.log_expiry(now, expiry);
        }
        if state.resolve_id(&expiry.path, now.wall) == Ok(expiry.key.stream) {
            // It was used meanwhile and lives on.
            return self.reply(expiry.ticket, Reply::Failed(Failure::Overloaded));
        }
        self.refuse(expiry.ticket, expiry.refusal);
    }
}
