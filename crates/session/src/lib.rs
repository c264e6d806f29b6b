//! Connections, exchanges and live readers of one shard: everything between a transport and the node.
//!
//! # Why
//! This crate decides which client is served, when, and with which bytes. Such code is worth a test from a seed.
//! So it holds no socket, no thread and no clock. The server gives it sockets, the simulator short writes and
//! stalls, the counts a still clock. All of them run the same code.
//!
//! # Code map
//! - [`Sessions`]: takes inputs and gives asks. Its module says in which order to call it.
//! - `connection`: one connection and its unsent bytes; `wire`: how requests and answers look on it.
//! - `admit`: which requests are carried out; `gate`: the rules for that.
//! - `receive`: requests from bytes; `check`: requests from large bodies.
//! - `pipeline`: requests behind the present one, asked early and answered in order.
//! - `streams`: connections that carry many exchanges at once, each a connection in here; `carried`: those of one.
//! - `answer`: answers from replies; `body`: answers from stored bytes.
//! - `live` and `sse`: live readers; `members`: those of one stream; `due_answers`: answers that many are due at once.
//! - `fair_queue`: the next reader of stored bytes; `window_cache`: the bytes that were read last.
//! - `timers`: the limits in time; `deadlines`: when the next one is due.
//!
//! # Invariants
//! - Of the crates that ship, this one alone knows the node and the protocol.
//! - All answers go through [`Transport`]; all requests of streams through an [`AskSink`].
//! - Whatever waits for a client is bounded: by [`Options`], or by a constant beside the code.

mod admit;
mod answer;
mod body;
mod carried;
mod check;
mod connection;
mod counts;
mod deadlines;
mod due_answers;
mod fair_queue;
mod gate;
mod journal;
mod live;
mod members;
mod options;
mod pipeline;
mod receive;
mod sessions;
#[cfg(test)]
mod sessions_tests;
mod slab;
mod sse;
mod streams;
mod timers;
mod transport;
mod upload;
mod window_cache;
mod wire;

pub use check::{CheckDone, CheckJob};
pub use counts::Counts;
/// A time as people and HTTP read it; who serves without knowing the protocol needs it, too.
pub use journal::Lines;
pub use protocol::HttpDate;
pub use protocol::log_line::operator_line;
/// Which web pages are let in, and under which URL clients come; who reads the settings needs it.
pub use protocol::request::{Names, Pages, PublicUrl, Sharing, Site};
pub use protocol::response::TailAge;

pub use options::{Admission, Logs, Options};
pub use sessions::{Ask, AskSink, Input, Sessions};
pub use slab::ConnId;
pub use transport::{Close, Peer, Piece, Read, Sent, Transport};
pub use wire::plain_on_tls;
