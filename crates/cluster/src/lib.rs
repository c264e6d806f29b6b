//! Consensus: what of a group's log is committed.
//!
//! # What
//! *Durable* means that an entry is on stable storage here. *Committed* means that no crash and no
//! election takes it back. The log proves the first; only this crate proves the second, by
//! [`Committed`]. A state machine applies committed entries and no others.
//!
//! # Why the two are apart
//! With one voter an entry commits when it is durable. With three it may be durable here long
//! before a majority has it, or never commit at all. Code that treats the two as one works until
//! the second voter joins.
//!
//! # Driving it
//! A group with one voter has a [`Solo`]. Call [`Solo::durable`] when entries of the group are on stable
//! storage: after a sync, and for what recovery finds. A group with several voters has a [`Replica`], which says in
//! [`GroupReady::committed`] what is committed. The [`Commit`] of either turns the entries that it covers into committed ones.
//!
//! # Several voters
//! These parts are whole and tested. `node` drives the replicas; no server has links yet:
//! - `replica` ([`Replica`]): one group's copy on a node, around the consensus library. `rules` has what that needs, `terms`
//!   what it may know of the log, `library` the way between its values and ours.
//! - `configuration`, `placement`: who votes, and the next step to who shall. `meta`: members and targets.
//! - `link`, `frame`: how nodes make sure of each other, and what they send then.
//! - `join`: how a node becomes a member.
//! - `report`, `digest`: what nodes tell each other for operators. `call`: who may change something at the admin port.
//! - `barrier`, `forward`: reads that wait for the leader's word, and requests that wait for their answer.
//!
//! # Invariants
//! - `committed` never falls.
//! - A group with one voter runs no consensus code: its role is two numbers.
//! - Groups commit independently: nothing orders the entries of two groups.

mod barrier;
mod call;
mod codec;
mod configuration;
mod digest;
mod entry_bytes;
mod forward;
mod frame;
mod identity;
mod join;
mod library;
mod link;
mod message;
mod meta;
mod placement;
mod replica;
mod report;
mod role;
mod rules;
mod terms;

pub use barrier::Barriers;
pub use call::{AdminCall, CALL_CLOCK_MS_MAX, CALLS_MAX, CallProof, CallRefused, Calls};
pub use codec::DecodeError;
pub use configuration::{Change, Configuration, Part, REPLICAS_MAX};
pub use digest::{CheckReport, StateDigest};
pub use entry_bytes::{
    ENTRY_HEAD_BYTES, EntryHead, KIND_CHANGE, KIND_CHECK, KIND_META, KIND_NOOP, entry_of_command,
};
pub use forward::{
    Answered, Arrival, Forwarded, Forwards, Proposals, Sending, Served, Settled, Verdict,
};
pub use frame::{
    Confirmation, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, Outbox, PIECE_BYTES_MAX,
    Parts, SECTION_BYTES_MAX, Section, Transfer, TransferEnd, TransferSays,
};
pub use identity::{NodeNumber, ReplicaId};
pub use join::{JoinAnswer, JoinError, JoinQuestion, Joiner, Joining};
pub use link::{
    Acceptor, Class, Dialler, HELLO_BYTES, Heard, Hello, Inbound, LinkError, OUTBOX_BYTES_MAX,
    Outbound, Progress, Refusal, Secret, Step, VERSION_MAX, VERSION_MIN,
};
pub use message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
pub use meta::{
    ADDRESS_BYTES_MAX, MEMBERS_MAX, MEMBERSHIP_BYTES_MAX, Member, MemberState, Membership,
    MembershipError, Meta, MetaCommand, MetaOutcome, MetaRefusal, REPLICATION_DEFAULT,
};
pub use placement::{
    CAUGHT_UP_ENTRIES, GroupView, PlacementStep, groups_lost_without, groups_stopped_by_leaving,
    leaders_wanted, next_step, targets,
};
pub use replica::{
    ChangeRefused, Follower, GroupReady, NotProposed, NotRead, Note, Refusals, Replica, Start,
    StepRefused, ToAppend,
};
pub use report::{GroupReport, PROGRAM_BYTES_MAX, Report};
pub use role::{Commit, Committed, LogEntry, Solo};
pub use rules::HEARTBEAT_TICKS;
pub use terms::Terms;
