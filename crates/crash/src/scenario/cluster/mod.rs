//! The kinds of crashes of a cluster of three.

pub(crate) mod away;
pub(crate) mod full;
pub(crate) mod grow;
pub(crate) mod kill;
pub(crate) mod lost;
pub(crate) mod members;
pub(crate) mod partition;
pub(crate) mod pause;
pub(crate) mod power;
pub(crate) mod restart;

/// What a node may answer while another one is harmed: for certain not applied, or nobody can tell.
const HARMED: &[&str] = &["no-leader", "write-unknown"];
