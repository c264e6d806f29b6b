//! One process: its shards, what passes between them, and where the bytes of clients go in and out.
//!
//! Sessions, nodes and logs are those of the server. Sockets and threads are left out: a connection is
//! [`wires`], which cuts reads and writes short as the seed says, and a job takes as long as the seed says.

mod disorder;
mod frame_mutants;
mod shard;
mod wires;

pub(crate) use shard::Shard;

use crate::{dice::Dice, mutant::Mutant};
use access::Access;
use log::{SyncDone, SyncJob, WorkDone, WorkJob};
use model::ShardId;
use node::{Change, ReadDone, ReadJob, Reply, Request, ShardMessage, SliceLimits, Ticket};
use session::{CheckDone, CheckJob, Options};
use std::sync::Arc;

/// What reaches a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A client connects.
    Open {
        wire: u32,
    },
    /// Bytes of a client.
    Bytes {
        wire: u32,
        bytes: Vec<u8>,
    },
    /// A client sends no more, and still reads.
    HalfClosed {
        wire: u32,
    },
    /// A client is gone.
    Gone {
        wire: u32,
    },
    /// A client takes bytes again.
    Writable {
        wire: u32,
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
    Checked(Box<CheckDone>),
    ReadDone(Box<ReadDone>),
    Tick,
    /// The access file has changed.
    Access(Arc<Access>),
    /// The session was left with work.
    Again,
    Stop,
}

/// Work for a thread.
#[derive(Debug)]
pub(crate) enum Job {
    Sync(SyncJob),
    Work(Box<WorkJob>),
    Check(Box<CheckJob>),
    Read(Box<ReadJob>),
}

/// What a turn of a shard leaves to be done.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) mails: Vec<(ShardId, Mail)>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) answers: Vec<Piece>,
    /// Clients that take no more for now.
    pub(crate) stalled: Vec<u32>,
    /// There is work left for the next turn.
    pub(crate) is_behind: bool,
}

/// Bytes for a client.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) wire: u32,
    pub(crate) bytes: Vec<u8>,
    /// The connection ends after them.
    pub(crate) ends: bool,
    /// It was cut in the middle of an answer because stored bytes are damaged.
    pub(crate) by_damage: bool,
}

/// Settings of a shard's connections.
#[derive(Debug, Clone)]
pub(crate) struct PlaneOptions {
    pub(crate) shard_count: u16,
    pub(crate) sessions: Options,
    pub(crate) slices: SliceLimits,
    /// The rules, if not everybody may do everything.
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) mutant: Option<Mutant>,
}

/// Slices so short that little work takes many of them.
pub(crate) fn slice_limits(dice: &mut Dice, sessions: &mut Options) -> SliceLimits {
    let expiries_max = *dice.pick(&[1, 1, 3, 256]);
    sessions.due_answers_per_turn_max = *dice.pick(&[1, 256, 256, 256]);
    let trims_max = *dice.pick(&[1, 2, 16]);
    SliceLimits { expiries_max, trims_max, rows_max: *dice.pick(&[1, 1, 2, 1024]) }
}

/// Settings that make little data and little time reach every limit.
pub(crate) fn session_options(dice: &mut Dice) -> Options {
    let pick = |dice: &mut Dice, from: &[u64]| *dice.pick(from);
    let size = |number: u64| usize::try_from(number).expect("a small number");
    Options {
        answer_boundary_bytes: pick(dice, &[2 << 10, 16 << 10, 4 << 20]),
        event_boundary_bytes: pick(dice, &[1 << 10, 64 << 10]),
        short_answer_bytes_max: pick(dice, &[0, 500, 16 << 10]),
        live_queue_bytes_max: size(pick(dice, &[200, 2_000, 64 << 10])),
        check_on_loop_bytes_max: size(pick(dice, &[50, 200, 128 << 10])),
        long_poll_timeout_ms: dice.between(500, 8_000),
        sse_heartbeat_ms: pick(dice, &[700, 3_000, 15_000]),
        sse_max_duration_ms: pick(dice, &[1_500, 8_000, 60_000]),
        idle_timeout_ms: pick(dice, &[1_000, 10_000, 75_000]),
        head_timeout_ms: pick(dice, &[600, 10_000]),
        body_grace_ms: pick(dice, &[600, 5_000]),
        write_stall_timeout_ms: pick(dice, &[1_000, 30_000]),
        connections_max: size(pick(dice, &[6, 20_000, 20_000])),
        body_bytes_in_flight_max: size(pick(dice, &[160_000, 256 << 20])),
        ..Options::default()
    }
}
