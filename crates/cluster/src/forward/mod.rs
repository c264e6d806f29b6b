//! Writes that wait in a group's log, and requests that other nodes answer.
//!
//! # Why it is exact
//! After the answer `no-leader` a client may try again without a thought; after `write-unknown` it may not. So
//! a request counts as *not applied* only if that is certain, and as *unknown* only if nobody can tell any
//! more. Three values share the work: [`Proposals`] at the leader, [`Served`] beside it for requests of other
//! nodes, and [`Forwards`] at the node that the client talks to.

mod forwards;
mod proposals;
mod served;

pub use forwards::{Answered, Forwarded, Forwards, Sending, Verdict};
pub use proposals::{Proposals, Settled};
pub use served::{Arrival, Served};
