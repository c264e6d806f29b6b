//! The kinds of crashes.

pub(crate) mod bit_flip;
pub(crate) mod chunks;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod disk_full;
pub(crate) mod fill;
pub(crate) mod history;
pub(crate) mod kill;
pub(crate) mod power;
pub(crate) mod slow_reads;
pub(crate) mod starts;
pub(crate) mod sync_failure;
pub(crate) mod unreadable;
