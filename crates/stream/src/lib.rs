//! The one domain model of a durable stream: commands in, outcomes out.
//!
//! # What
//! [`GroupState`] is the state machine of one group: all its streams, their producers, forks and
//! lifetimes. [`GroupState::apply`] takes a [`Command`] that the group's log has committed and
//! returns what came of it. [`GroupState::check_create`] and [`GroupState::check_append`] answer
//! beforehand whether a command would be refused, so that refusals need no log entry. They change
//! nothing.
//!
//! # Why it is pure
//! Every replica applies the same entries and must reach the same state, today and when the log is
//! replayed after a crash. So there is no IO, no clock and no randomness in here. The time of a
//! command is part of its entry, and ids come from entry indexes. No result depends on the order of a
//! hash map. Expiry depends on reads, which no log records. So it is decided outside and arrives as
//! [`Command::Expire`].
//!
//! # Driving it
//! 1. `check_create` or `check_append` when a request arrives and nothing of that stream is in flight;
//! 2. `encode` the command into a log entry, commit it;
//! 3. `decode` and `apply` in index order;
//! 4. hand the [`Applied::placement`] to the log and perform the [`Effect`]s;
//! 5. in debug builds, [`GroupState::check`] at the end of each turn.
//!
//! # Invariants
//! - `apply` never panics on bytes that `decode` accepted.
//! - A stream's `head <= tail`; a closed stream's tail never moves; neither does a deleted one's.
//! - A refused command changes nothing.
//!
//! # Source
//! The Durable Streams Protocol, cited as PROTOCOL §x.

mod append;
mod check;
mod checkpoint;
mod codec;
mod command;
mod command_codec;
mod condition;
mod create;
mod expiries;
mod fork;
mod fork_codec;
mod forward_codec;
mod group;
#[cfg(test)]
mod group_tests;
mod layout;
mod lifetime;
mod losses;
pub mod messages;
mod outcome;
mod pins;
mod producer;
mod query;
mod record;
mod register;
mod retention;
mod row_copy;
mod table;
mod times;
mod trim;

pub use checkpoint::{CheckpointError, StreamRow, kept_bytes};
pub use codec::{DecodeError, Newer};
pub use command::{
    Append, AppendType, Change, Command, CommandKind, Create, Producer, Subject, Trim,
};
pub use condition::{CONDITION_STATES_MAX, Condition, EndState};
pub use create::{CreateCheck, CreateRequest};
pub use fork::{ForkPoint, ForkRequest, Lineage, Pin, PinToken, Span};
pub use group::{Applied, Effect, GroupState, LoggedCommand, Visible};
pub use layout::Layout;
pub use lifetime::Lifetime;
pub use outcome::{Accepted, ConfigField, Outcome, Refusal};
pub use query::Stored;
pub use record::{ContentType, StreamInfo};
pub use retention::{Keep, Retention, RetentionChange};
pub use times::RecordTime;
