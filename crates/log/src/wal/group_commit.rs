//! Decides when the WAL is written and synced, and which batches that made durable.
//!
//! # Why
//! One `fdatasync` costs nearly the same for one entry as for a thousand, so every entry that
//! arrives while a sync is in flight shares the next one. There is no timer: the first goes at once.
//!
//! # Driving it
//! No IO and no clock in here. [`GroupCommit::start`] when a batch is handed out to be written,
//! [`GroupCommit::handle_synced`] with the result.
//!
//! # Invariants
//! - `durable < in flight <= last started`.
//! - At most one batch is in flight, so only the last one of a WAL can be torn.
//! - After a failed write or sync nothing becomes durable again: the kernel may have dropped the
//!   dirty pages, so a later success proves nothing about these bytes.
//!
//! # Source
//! Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

use std::fmt;
use std::io;

/// Proof that every entry of a batch, and of all batches before it, is on stable storage.
///
/// Only the group commit makes one, so an acknowledgement that takes a `Durable` cannot be sent
/// early. Not `Clone`: one sync, one proof.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a sync nobody acknowledges has stalled its appends"]
pub struct Durable {
    batch: u64,
}

impl Durable {
    /// Number of the durable batch in its WAL.
    #[must_use]
    pub fn batch(&self) -> u64 {
        self.batch
    }
}

/// The disk refused a write or a sync: the shard is poisoned and acknowledges nothing any more.
#[derive(Debug)]
pub struct SyncFailed {
    /// What the disk said.
    pub error: io::Error,
}

impl fmt::Display for SyncFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the WAL could not be made durable: {}", self.error)
    }
}

impl std::error::Error for SyncFailed {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Syncing { batch: u64 },
    Poisoned,
}

/// Group-commit state of one WAL.
#[derive(Debug)]
pub(crate) struct GroupCommit {
    durable: u64,
    state: State,
}

impl GroupCommit {
    /// Starts after `recovered`, the last batch that recovery has verified and synced.
    pub(crate) fn new(recovered: u64) -> Self {
        Self { durable: recovered, state: State::Idle }
    }

    /// The last durable batch.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a batch may be handed out.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether a write or sync has failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state == State::Poisoned
    }

    /// Hands nothing out any more.
    ///
    /// # Panics
    /// If a batch is in flight.
    pub(crate) fn poison(&mut self) {
        assert!(!matches!(self.state, State::Syncing { .. }), "nobody waits for a batch");
        self.state = State::Poisoned;
    }

    /// Asserts what always holds, given the number of the next batch.
    pub(crate) fn check(&self, batch_next: u64) {
        assert!(self.durable < batch_next, "batch {} is durable before it is made", self.durable);
        if let State::Syncing { batch } = self.state {
            assert!(self.durable < batch, "batch {batch} is in flight and durable");
            assert_eq!(batch + 1, batch_next, "the last batch is the one in flight");
        }
    }

    /// Records that `batch` is being written.
    ///
    /// # Panics
    /// If another one is in flight or `batch` is not a later one.
    pub(crate) fn start(&mut self, batch: u64) {
        assert_eq!(self.state, State::Idle, "one batch in flight at a time");
        assert!(self.durable < batch, "batch {batch} is durable already");
        self.state = State::Syncing { batch };
    }

    /// Takes the result of writing and syncing the batch in flight.
    ///
    /// # Errors
    /// [`SyncFailed`] if it failed; nothing is handed out afterwards.
    ///
    /// # Panics
    /// If nothing was in flight.
    pub(crate) fn handle_synced(&mut self, synced: io::Result<()>) -> Result<Durable, SyncFailed> {
        let State::Syncing { batch } = self.state else {
            panic!("a sync completed in state {:?}", self.state);
        };
        if let Err(error) = synced {
            self.state = State::Poisoned;
            return Err(SyncFailed { error });
        }
        assert!(self.durable < batch);
        self.durable = batch;
        self.state = State::Idle;
        Ok(Durable { batch })
    }
}

/// What tests of the check break.
#[cfg(test)]
impl GroupCommit {
    pub(crate) fn claim(&mut self, batch: u64) {
        self.durable = batch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_durable_when_its_sync_returned() {
        let mut commit = GroupCommit::new(4);
        commit.start(5);
        assert!(!commit.is_idle());
        assert_eq!(commit.durable(), 4);
        assert_eq!(commit.handle_synced(Ok(())).unwrap().batch(), 5);
        assert_eq!(commit.durable(), 5);
        assert!(commit.is_idle());
    }

    #[test]
    fn a_failed_sync_is_final() {
        let mut commit = GroupCommit::new(0);
        commit.start(1);
        assert!(commit.handle_synced(Err(io::Error::other("x"))).is_err());
        assert!(commit.is_poisoned());
        assert!(!commit.is_idle());
    }

    #[test]
    #[should_panic(expected = "one batch in flight")]
    fn two_batches_are_never_in_flight() {
        let mut commit = GroupCommit::new(0);
        commit.start(1);
        commit.start(2);
    }
}
