//! Large bodies of JSON are checked on a thread of their own, one per shard.
//!
//! To check and cut JSON costs up to 5 ns per byte. A body of 128 KiB takes half a millisecond, as a turn of the
//! loop may; the largest there is would hold up all other connections for a third of a second. So what is larger
//! goes to the thread, and its connection waits for it as it waits for the node.
//!
//! # Invariants
//! - A body is charged to admission until its check is done, also if its connection is gone by then.
//! - A connection has one check at a time and nothing else meanwhile, so the order of its requests stays.

use super::{
    connection::{Pending, State},
    mailbox::{Mail, Mailbox},
    receive::join,
    shard::Shard,
    slots::SlotId,
    workers::spawn,
};
use protocol::{problem::Problem, request::Request};
use std::io;
use std::sync::{
    Arc,
    atomic::Ordering::Relaxed,
    mpsc::{SyncSender, TrySendError, sync_channel},
};
use std::thread::JoinHandle;

/// Longest JSON that the loop checks itself.
const CHECK_ON_LOOP_BYTES_MAX: usize = 128 << 10;

/// Bodies that wait for the thread at most. Beyond that the loop checks them itself.
const BODIES_MAX: usize = 64;

/// A write and its body, to be checked.
#[derive(Debug)]
pub(crate) struct BodyJob {
    id: SlotId,
    request: Request,
    body: Vec<u8>,
}

/// A write whose body was checked.
#[derive(Debug)]
pub(crate) struct BodyDone {
    id: SlotId,
    body_bytes: usize,
    write: Result<Write, Problem>,
}

/// What the node is asked, and its data.
#[derive(Debug)]
struct Write {
    pending: Pending,
    request: node::Request,
    data: Vec<u8>,
}

impl BodyJob {
    pub(super) fn run(self) -> BodyDone {
        let Self { id, request, body } = self;
        let write = join(request, &body, |pending, request, data| Write {
            pending,
            request,
            data: data.to_vec(),
        });
        BodyDone { id, body_bytes: body.len(), write }
    }
}

/// Starts the thread of one shard. It ends when the sender is dropped.
pub(crate) fn start_bodies(
    shard: model::ShardId,
    mailbox: Arc<Mailbox>,
) -> io::Result<(SyncSender<BodyJob>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel::<BodyJob>(BODIES_MAX);
    let run = move || {
        for job in jobs {
            if mailbox.put_one(Mail::Checked(Box::new(job.run()))).is_err() {
                return;
            }
        }
    };
    Ok((sender, spawn(format!("bodies-{shard}"), run)?))
}

impl Shard {
    /// A request is complete, and its body was collected.
    pub(super) fn finish_collected(&mut self, id: SlotId, request: Request, body: Vec<u8>) {
        let is_long = body.len() > CHECK_ON_LOOP_BYTES_MAX && request.takes_json();
        if !is_long || self.stopping.is_some() {
            return self.finish(id, request, &body);
        }
        self.shared.body_bytes.fetch_add(body.len(), Relaxed);
        self.wait_for(id, Pending::Check);
        match self.workers.bodies.try_send(BodyJob { id, request, body }) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => self.end_check(job.run()),
            Err(TrySendError::Disconnected(_)) => unreachable!("the thread outlives its loop"),
        }
    }

    /// The thread has checked a body.
    pub(super) fn handle_checked(&mut self, done: BodyDone) {
        let id = done.id;
        self.end_check(done);
        self.resume_input(id);
    }

    fn end_check(&mut self, done: BodyDone) {
        let BodyDone { id, body_bytes, write } = done;
        self.shared.body_bytes.fetch_sub(body_bytes, Relaxed);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.state = State::Head;
        match write {
            Ok(Write { pending, request, data }) => {
                self.wait_for(id, pending);
                self.ask_with(id, request, data.into());
            }
            Err(problem) => self.answer_problem(id, &problem),
        }
    }
}
