//! What must be true around the library for it to be safe and live: one rule, one function.
//!
//! The library asserts much and explains little. Each rule below was found by leaving it out: the harness
//! in `replica/harness` has a mutant for each, and shows what breaks. A mutant is another implementation of
//! [`Rules`], so no switch is in the code that ships.
//!
//! | rule | without it |
//! |---|---|
//! | 1 a leader that a change removed steps down at once | the library panics at its next acknowledgement |
//! | 2 a replica starts with a configuration | no change is ever possible |
//! | 3 a snapshot is offered only to who is in its configuration | the receiver ignores it for ever |
//! | 4 each snapshot that was sent is reported, a silent one as failed | the follower stays paused for ever |
//! | 5 a replica that installs a snapshot hears nothing | it panics: unapplied entries are gone |
//! | 6 election timeouts come from the seed | one seed gives two histories |
//! | 7 a message for another incarnation is dropped | promises of a lost log are kept by nobody |
//! | 8 a read has a number of its own, and waits for the first commit of the term | reads are stale, or never answered |
//! | 9 changes are joint, and are left by whoever planned them | two changes may overlap |
//! | 10 entries weigh what they weigh | a follower has an unbounded number of bytes under way |
//! | 11 what a message promises is durable before it goes | a vote or an entry is forgotten that others count on |
//! | 12 a change is done when an entry behind it is committed | a disk is lost, nobody remembers that the change was committed, and the old voters are asked for ever |
//! | 13 entries that were replaced on their way to the disk are not reported as durable | if a later leader brings the first ones back, they count as durable while the disk has those in between |

use crate::configuration::Configuration;
use crate::identity::ReplicaId;
use crate::message::{Body, GroupMessage, SnapshotPoint};
use crate::terms::{Terms, weight};
use bytes::Bytes;
use model::split_mix;
use raft::eraftpb::ConfChangeTransition;
use raft::{RawNode, StateRole};

/// Ticks of silence after which a follower asks for votes: 300 ms, at 50 ms a tick.
pub(crate) const ELECTION_TICKS: usize = 6;

/// One tick more than the longest such silence: 600 ms.
pub(crate) const ELECTION_TICKS_END: usize = 12;

/// Ticks between two heartbeats: 100 ms.
pub const HEARTBEAT_TICKS: u32 = 2;

/// Ticks after which a sent snapshot counts as failed: 30 s. Its contents are there before it is sent.
pub(crate) const SNAPSHOT_TICKS_MAX: u32 = 600;

/// The rules, each overridden by one mutant and by nothing else.
pub trait Rules {
    /// Rule 1: called after each change was applied.
    fn after_change(raw: &mut RawNode<Terms>) {
        let (id, term) = (raw.raft.id, raw.raft.term);
        let is_unseated = !raw.raft.prs().conf().voters().contains(id);
        if raw.raft.state == StateRole::Leader && is_unseated {
            raw.raft.become_follower(term, 0);
        }
    }

    /// Rule 2.
    ///
    /// # Panics
    /// If nobody votes.
    fn check_start(configuration: &Configuration) {
        assert!(!configuration.voters.is_empty(), "a replica starts with a configuration");
    }

    /// Rule 3: whether this snapshot helps that replica.
    fn may_offer(point: &SnapshotPoint, to: ReplicaId) -> bool {
        point.configuration.contains(to)
    }

    /// Rule 4: whether a snapshot sent `ticks` ago has failed.
    fn is_overdue(ticks: u32) -> bool {
        ticks >= SNAPSHOT_TICKS_MAX
    }

    /// Rule 5: whether a replica hears something while it installs a snapshot.
    fn hears_while_installing() -> bool {
        false
    }

    /// Rule 6: called before each tick.
    fn before_tick(raw: &mut RawNode<Terms>, seed: u64) {
        let span = (ELECTION_TICKS_END - ELECTION_TICKS) as u64;
        let drawn = split_mix(split_mix(seed ^ raw.raft.id) ^ raw.raft.term) % span;
        raw.raft.set_randomized_election_timeout(ELECTION_TICKS + drawn as usize);
    }

    /// Rule 7.
    fn is_addressed(message: &GroupMessage, id: ReplicaId) -> bool {
        message.to == id
    }

    /// Rule 8: the number of the read behind `last`.
    fn next_read(last: u64) -> u64 {
        last + 1
    }

    /// Rule 8: whether the library would answer a read now.
    fn may_read(raw: &RawNode<Terms>) -> bool {
        raw.raft.commit_to_current_term()
    }

    /// Rule 9.
    fn transition() -> ConfChangeTransition {
        ConfChangeTransition::Explicit
    }

    /// Rule 10: what stands for an entry's bytes in a leader's library.
    fn weight(bytes: u32) -> Bytes {
        weight(bytes)
    }

    /// Rule 11: whether a message may go before this turn's batch is durable. `durable_term` is the last term that
    /// is durable here.
    ///
    /// A leader's appends may: its own voice counts only after its sync. But its term must be durable. The
    /// only voter of a group elects itself without asking; without this it could give one place in one term
    /// to two entries. Answers to heartbeats promise nothing but the term, so a slow disk does not silence
    /// a follower.
    fn may_go(message: &GroupMessage, durable_term: u64) -> bool {
        let promises_only_its_term = matches!(
            message.body,
            Body::Append { .. }
                | Body::Heartbeat { .. }
                | Body::Committed { .. }
                | Body::Alive { .. }
                | Body::Snapshot(_)
                | Body::Campaign
        );
        promises_only_its_term && message.term.get() <= durable_term
    }

    /// Rule 12: whether an entry at `committed` shows that a change is known that was applied when the log
    /// ended at `change`.
    fn settles(committed: u64, change: u64) -> bool {
        committed > change
    }

    /// Rule 13: whether entries are reported as durable, if others that replace some of them are on their way.
    fn may_tell(is_replaced: bool) -> bool {
        !is_replaced
    }
}

/// The rules as they ship.
#[derive(Debug)]
pub struct Enforced;

impl Rules for Enforced {}
