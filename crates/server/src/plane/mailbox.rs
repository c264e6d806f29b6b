//! Messages between the event loops and to them from worker threads.
//!
//! A sender collects its messages for another loop during its own turn and passes them on at the end, all
//! at once. That is one lock and at most one wake for each pair of loops and turn.

use super::asks::Asker;
use crate::reload::{Ask, InForce};
use cluster::{JoinAnswer, MetaCommand};
use log::{SyncDone, WorkDone};
use node::{
    Change, FetchDone, Membership, PeerEvent, ReadDone, Reply, Request, ShardMessage, Ticket,
    TransferDone,
};
use session::CheckDone;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Something for an event loop.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A request of a connection elsewhere for a group here.
    Request { ticket: Ticket, request: Request, data: Vec<u8> },
    /// The answer to a request of a connection here.
    Reply { ticket: Ticket, reply: Reply },
    /// Between the nodes.
    Shard(Box<ShardMessage>),
    /// A stream that is watched here has changed.
    Changed(Change),
    /// Another node has said something to a group here.
    Peer(Box<PeerEvent>),
    /// The WAL thread is done.
    Synced { done: SyncDone, took_ns: u64 },
    /// A background thread is done.
    Worked(WorkDone),
    /// The thread that reads is done with one.
    ReadDone(Box<ReadDone>),
    /// The thread that reads has entries of a replicated group.
    Fetched(Box<FetchDone>),
    /// The thread of snapshots is done with something.
    Transferred(Box<TransferDone>),
    /// A body was checked.
    Checked(Box<CheckDone>),
    /// What is in force from now on, and what is dropped when it counts.
    InForce(Box<InForce>, Option<Arc<Taken>>),
    /// A change of the cluster, for the shard that has its own group.
    Meta { command: Box<MetaCommand>, asker: Asker },
    /// This node is the first one of several from now on.
    Begin(Box<Membership>),
    /// The answer to a node that has asked to join, on a link of this shard.
    JoinAnswer { link: u64, answer: Box<JoinAnswer> },
    /// Stop: no new connections, end what is live, finish what is under way.
    Stop,
}

/// Tells who has asked for a reload that it counts, once all loops have dropped it.
#[derive(Debug)]
pub(crate) struct Taken(Option<Ask>);

impl Taken {
    pub(crate) fn new(ask: Ask) -> Arc<Self> {
        Arc::new(Self(Some(ask)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(ask) = self.0.take() {
            // The caller may have gone.
            let _ = ask.send(Ok(()));
        }
    }
}

/// Where others put mail for one event loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    waker: mio::Waker,
}

impl Mailbox {
    pub(crate) fn new(waker: mio::Waker) -> Arc<Self> {
        Arc::new(Self { mail: Mutex::new(Vec::new()), waker })
    }

    /// Puts all of `batch` in, leaving it empty, and wakes the loop if it had no mail before.
    pub(crate) fn put(&self, batch: &mut Vec<Mail>) -> io::Result<()> {
        let was_empty = {
            let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            let was_empty = mail.is_empty();
            mail.append(batch);
            was_empty
        };
        if was_empty { self.waker.wake() } else { Ok(()) }
    }

    pub(crate) fn put_one(&self, mail: Mail) -> io::Result<()> {
        self.put(&mut vec![mail])
    }

    /// Takes everything that is there; `into` must be empty and its room is used again.
    pub(crate) fn take(&self, into: &mut Vec<Mail>) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *mail, into);
    }
}
