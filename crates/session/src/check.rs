//! Large bodies of JSON are checked beside the loop.
//!
//! Checking and cutting JSON costs up to 5 ns per byte. A body of 128 KiB takes half a millisecond, which a turn of
//! the loop may take. The largest one would hold up all other connections for a third of a second. So a larger body
//! becomes a job, and its connection waits for it as it waits for the node.
//!
//! # Invariants
//! - A body is charged to admission until its check is done, also if its connection is gone by then.
//! - A connection has one check at a time and nothing else meanwhile, so the order of its requests stays.

use crate::{
    connection::State,
    pipeline::Touch,
    receive::{Write, join},
    sessions::Step,
    slab::ConnId,
    transport::Transport,
};
use access::Authorized;
use protocol::{problem::Problem, request::Request};
use std::borrow::Cow;

/// A write and its body, to be checked on any thread.
#[derive(Debug)]
pub struct CheckJob {
    id: ConnId,
    request: Authorized<Request>,
    body: Vec<u8>,
}

/// A write whose body was checked.
#[derive(Debug)]
pub struct CheckDone {
    id: ConnId,
    body_bytes: usize,
    write: Result<Write<'static>, Problem>,
}

impl CheckJob {
    /// Checks the body and brings it into its stored form.
    #[must_use]
    pub fn run(self) -> CheckDone {
        let Self { id, request, body } = self;
        let body_bytes = body.len();
        CheckDone { id, body_bytes, write: join(request, Cow::Owned(body)) }
    }
}

impl<T: Transport> Step<'_, T> {
    /// A request is complete, and its body was collected.
    pub(crate) fn finish_collected(
        &mut self,
        id: ConnId,
        request: Authorized<Request>,
        body: Vec<u8>,
    ) {
        let is_long =
            body.len() > self.state.options.check_on_loop_bytes_max && request.takes_json();
        if !is_long || self.state.stopping.is_some() {
            return self.finish(id, request, Cow::Owned(body));
        }
        self.state.admission.charge(body.len());
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.begin_exchange(Touch::of(&request));
            if let Some(entry) = &mut connection.entry {
                entry.body_bytes = body.len() as u64;
            }
        }
        self.wait_for(id, crate::connection::Pending::Check);
        self.state.checks.push_back(CheckJob { id, request, body });
    }

    /// A body has been checked.
    pub(crate) fn handle_checked(&mut self, done: CheckDone) {
        let CheckDone { id, body_bytes, write } = done;
        self.state.admission.release(body_bytes);
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.state = State::Head;
        connection.is_blocked = false;
        self.ask_write(id, write);
        self.resume_input(id);
    }
}
