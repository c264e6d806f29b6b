//! A whole node in one thread, from one seed.
//!
//! # What
//! [`run()`] builds a node on a simulated disk and clock. Clients of every kind talk to it in raw HTTP
//! while faults are injected. Every answer is compared with what was promised before. A run is a
//! pure function of its [`Plan`]: the same plan gives the same trace to the byte.
//!
//! # What is real and what is not
//! Real: `session`, `node`, `log`, `stream` and `protocol`, from the bytes of a request to the bytes of
//! its answer. Simulated: the disk, the clocks, the threads (jobs run later, in any order), the messages
//! between shards (delayed, in order for each pair), and the wires of connections. The server's socket
//! loop is not here; [`plane`] takes its place.
//!
//! # Map
//! - `world`: the scheduler; `fault`: what goes wrong and when.
//! - `plane`: drives the sessions as the server's loop does; `mutant`: deliberate defects.
//! - `clients`: the clients; `wire`, `events`, `frames`: their side of HTTP.
//! - `sick_disk`: errors of a disk that do not reach the log.
//! - `oracle`: what must hold; `history`: whether some order explains all answers of a stream.
//! - `cluster`: several nodes and the links between them, in a world of its own ([`run_cluster`]).
//! - `engine`: a world of its own for the embedded engine ([`run_engine`]).
//! - `shrink`: a smaller plan that fails in the same way.
//!
//! # Invariants
//! - No choice comes from anywhere but the seed.
//! - A run ends: in simulated time, and with every client answered.

mod clients;
mod clock;
mod cluster;
mod damage;
mod dice;
mod engine;
mod events;
mod fault;
mod frames;
mod history;
mod mutant;
mod oracle;
mod passing;
mod plan;
mod plane;
mod process;
mod rules;
mod run;
mod shrink;
mod sick_disk;
mod trace;
mod wire;
mod witnesses;
mod world;

pub use self::cluster::{ClusterFailure, ClusterMutant, ClusterPlan, ClusterReport, run_cluster};
pub use self::engine::{EngineFailure, EngineMutant, EnginePlan, EngineReport, run_engine};
pub use fault::FaultKind;
pub use mutant::Mutant;
pub use oracle::{Rule, Violation};
pub use plan::Plan;
pub use run::{Failure, Report, run};
pub use shrink::{RUNS_MAX, shrink};
