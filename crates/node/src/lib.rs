//! One shard: its groups, their log and their state machines, driven by events.
//!
//! # What
//! [`ShardCore`] is the whole of one shard below the sockets. It owns the groups `g` with
//! `g % shard_count == shard`, their [`stream::GroupState`]s and the shard's [`log::ShardLog`]. It
//! turns requests into log entries, applies what is committed, answers, and notifies watchers.
//!
//! # Why it has no IO of its own
//! The same code runs under an event loop with sockets and under a simulator with none. Slow
//! work (a group commit, building a chunk) comes out as a job that another thread runs. Its result
//! comes back as an [`Event`]. Time is an argument.
//!
//! # Driving it
//! 1. [`open`] recovers the data directory and makes one [`ShardCore`] per shard.
//! 2. Call [`ShardCore::handle`] for every event, then drain [`ShardCore::poll_output`] until it is `None`.
//!    Several events may be handled before draining; that is what makes batches.
//! 3. Deliver each [`Output`]: replies to connections, messages to other shards, jobs to
//!    threads. Give job results back as events. Call `handle(Event::Tick)` about every 100 ms.
//! 4. While [`ShardCore::is_behind`], the next turn begins at once, and has one `handle(Event::Continue)`.
//!
//! # Invariants
//! - A command is applied only after its entry is committed, and so durable. Every answer, and all that
//!   a reader sees, is durable (promises 1 and 2 of the architecture).
//! - No answer depends on state that is not durable yet: `apply` alone judges a stream with entries in
//!   flight.
//! - After a failed commit nothing is accepted and nothing is applied any more.

mod again;
mod api;
mod background;
mod check;
mod commit;
mod damage;
mod deferred;
mod drive;
mod durable_mark;
mod expiry;
mod fetch;
mod finder;
mod fork;
mod found;
mod group;
mod group_time;
mod live;
mod locate;
mod lookup;
mod maintenance;
mod membership_file;
mod operation;
mod owner_header;
mod peers;
mod proposed;
mod read;
mod reads;
mod records;
mod recovery;
mod releases;
mod repair;
mod replicated;
mod requests;
mod resolve;
mod retention;
mod role;
mod search;
mod seen;
mod shard;
#[cfg(test)]
mod shard_tests;
mod slices;
mod step;
mod sweep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transfer_job;
mod trim;
mod unpin;
mod write_queue;

pub use api::{
    Change, Event, Failure, Locate, LocateError, Output, PinHolder, ReadDamage, ReadReply,
    ReadRequest, Reply, Request, Resolved, ShardAnswer, ShardCall, ShardMessage, Stamp, Ticket,
};
pub use background::DiskTrouble;
pub use fetch::{FetchDone, FetchJob};
pub use found::{FoundRecord, Search};
pub use lookup::{ReadDone, ReadJob};
pub use membership_file::{
    FoundMembership, MembershipFileError, read_membership, replace_membership,
};
pub use peers::{Membership, MetaStart, PEER_TICK_MS, PeerEvent, ToPeer, to_shards};
pub use recovery::{Opened, open, open_member};
pub use repair::{Losses, StreamLoss};
pub use replicated::{
    CopyState, CopyStatus, TransferCounts, decode_answer, decode_call, decode_reply,
    decode_request, encode_answer, encode_call, encode_reply, encode_request,
};
pub use seen::Seen;
pub use shard::{ShardCore, ShardStats};
pub use slices::SliceLimits;
pub use transfer_job::{TransferDone, TransferJob};
