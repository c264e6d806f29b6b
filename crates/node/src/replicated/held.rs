//! Requests that wait for a leader, or for the word of a majority.

use crate::{Request, ShardCall, Ticket, proposed::ReplyTo};
use cluster::NodeNumber;
use model::{Monotonic, PathHash, StreamPath};
use std::collections::BTreeMap;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) since: Monotonic,
    pub(super) what: HeldRequest,
}

#[derive(Debug)]
pub(super) enum HeldRequest {
    Client {
        ticket: Ticket,
        request: Request,
        data: Vec<u8>,
    },
    Call {
        reply_to: ReplyTo,
        call: ShardCall,
    },
    /// Nobody: what the leader has committed is to be applied here.
    CatchUp,
    /// Reads on another node.
    Barrier {
        node: NodeNumber,
        number: u64,
    },
}

impl Held {
    pub(super) fn bytes(&self) -> usize {
        match &self.what {
            HeldRequest::Client { data, .. } => data.len(),
            HeldRequest::Call { .. } | HeldRequest::CatchUp | HeldRequest::Barrier { .. } => 0,
        }
    }

    /// Whether any copy may answer it that has applied enough.
    pub(super) fn is_read(&self) -> bool {
        match &self.what {
            HeldRequest::Client { request, .. } => request.is_read(),
            HeldRequest::Call { call, .. } => {
                matches!(call, ShardCall::Locate(..) | ShardCall::Find(..))
            }
            HeldRequest::CatchUp => true,
            HeldRequest::Barrier { .. } => false,
        }
    }

    /// The path to which a client writes.
    pub(super) fn written_path(&self) -> Option<&StreamPath> {
        match &self.what {
            HeldRequest::Client { request, .. } => request.written_path(),
            _ => None,
        }
    }
}

/// How many writes of clients wait, by the hash of their path.
#[derive(Debug, Default)]
pub(super) struct HeldWrites(BTreeMap<PathHash, usize>);

impl HeldWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, path: Option<&StreamPath>) -> bool {
        !self.is_empty() && path.is_some_and(|path| self.0.contains_key(&path.hash()))
    }

    pub(super) fn add(&mut self, held: &Held) {
        if let Some(path) = held.written_path() {
            *self.0.entry(path.hash()).or_insert(0) += 1;
        }
    }

    pub(super) fn remove(&mut self, held: &Held) {
        let Some(path) = held.written_path() else { return };
        let count = self.0.get_mut(&path.hash()).expect("a write that waits is counted");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&path.hash());
        }
    }
}
