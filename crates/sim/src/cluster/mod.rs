//! Several nodes, the links between them and clients of all, in one thread and from one seed.
//!
//! # What is real and what is not
//! Real: `node`, `log`, `stream` and `cluster`, from a request to its reply, with the frames that links carry. Simulated: disks,
//! clocks, threads, and links. A link loses a suffix of what was sent and then begins again, as TCP does. Clients talk to
//! nodes in values and not in HTTP. They look for the leader themselves.
//!
//! # What must hold
//! - The answers of each stream are linearizable, whichever nodes gave them ([`crate::history`]).
//! - Nothing is acknowledged that less than a majority of disks has on stable storage, at the moment of the answer.
//! - An index of a group has one entry. A term of a group has one leader.
//! - Copies that have applied equally much encode the same checkpoint.
//! - What was refused for certain is nowhere; what was acknowledged is there once.
//! - A cluster that began as one node has three voters of each group in the end.
//! - Once nothing fails any more, every client comes to its end, and every copy to the end of its log: by entries or by a snapshot.
//!   A copy that was damaged has a new id by then, and is as good as the others.
//! - See `forkers` for forks.
//!
//! # Map
//! `plan`: what is run. `world`: the scheduler. `member`: a node. `streams`: what there is. `wires`: the links. `growth`, `joined`: a node alone becomes three. `clients`, `churn`, `forkers`, `nemesis`, `damage`, `hits`: what is asked and what goes wrong. `oracle`: what must hold.

mod calls;
mod churn;
mod clients;
mod damage;
mod forgery;
mod forkers;
mod growth;
mod hits;
mod joined;
mod member;
mod nemesis;
mod oracle;
mod plan;
mod streams;
mod watchers;
mod watches;
mod wires;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

pub use plan::{ClusterFailure, ClusterMutant, ClusterPlan, ClusterReport};

/// Carries a plan out.
///
/// # Errors
/// The first broken promise; a panic of the program counts as one.
pub fn run_cluster(plan: ClusterPlan) -> Result<ClusterReport, Box<ClusterFailure>> {
    let mut world = World::new(plan);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        world.oracle.broken(format!("panic: {text}"));
    }
    match world.oracle.take_violation() {
        Some(what) => Err(Box::new(ClusterFailure { plan, what, at_us: world.now_us })),
        None => Ok(world.report()),
    }
}
