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
//! Each group has a [`Role`]. Call [`Role::durable`] when entries of the group are on stable
//! storage: after a sync, and for what recovery finds. The [`Commit`] that it returns turns the
//! entries that it covers into committed ones.
//!
//! # Invariants
//! - `committed` never falls.
//! - A group with one voter runs no consensus code: its role is two numbers.
//! - Groups commit independently: nothing orders the entries of two groups.

mod role;

pub use role::{Commit, Committed, LogEntry, Role, Solo};
