//! One process: its shards, what passes between them, and where the bytes of clients go in and out.
//!
//! The sockets are left out, all else is as in the server: heads are parsed, requests cross shards
//! as messages, answers are rendered, live readers follow changes.

mod answer;
mod exchange;
mod live;
mod receive;
mod shard;

pub(crate) use shard::Shard;

use crate::mutant::Mutant;
use log::{SyncDone, SyncJob, WorkDone, WorkJob};
use model::ShardId;
use node::{Change, Reply, Request, ShardMessage, Ticket};

/// What reaches a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A client's request, whole.
    Raw {
        conn: u32,
        bytes: Vec<u8>,
    },
    /// A client is gone.
    Gone {
        conn: u32,
    },
    /// A long-poll has waited long enough.
    PollDue {
        conn: u32,
    },
    Request {
        ticket: Ticket,
        request: Request,
        data: Vec<u8>,
    },
    Reply {
        ticket: Ticket,
        reply: Reply,
    },
    Shard(Box<ShardMessage>),
    Changed(Change),
    Synced(SyncDone),
    Worked(WorkDone),
    Tick,
}

/// Work for a thread.
#[derive(Debug)]
pub(crate) enum Job {
    Sync(SyncJob),
    Work(WorkJob),
}

/// What a turn of a shard leaves to be done.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) mails: Vec<(ShardId, Mail)>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) answers: Vec<Piece>,
    /// Long-polls that began to wait.
    pub(crate) polls: Vec<u32>,
    /// Connections that were cut in the middle of an answer because stored bytes are damaged.
    pub(crate) cut_by_damage: Vec<u32>,
}

/// Bytes for a client.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) conn: u32,
    pub(crate) bytes: Vec<u8>,
    /// The connection ends after them.
    pub(crate) ends: bool,
}

/// Settings of a shard's connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaneOptions {
    pub(crate) shard_count: u16,
    pub(crate) boundary_bytes: u64,
    pub(crate) sse_event_bytes: u64,
    pub(crate) mutant: Option<Mutant>,
}
