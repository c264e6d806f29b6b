//! The kinds of crashes.

pub(crate) mod kill;
pub(crate) mod power;
