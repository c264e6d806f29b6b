//! A small client of durable streams over HTTP/1.1.
//!
//! # What
//! Create, append, read, long-poll, follow by server-sent events, close, delete and head, each one
//! call that ends within a limit in time. It never repeats a request by itself: a program that
//! measures or verifies must know what was sent. It is no full client with retries.
//!
//! # Driving it
//! A [`Client`] for one server inside any tokio runtime. Connections are kept and used again; as
//! many are open as calls were in progress at a time, at most [`IDLE_CONNECTIONS_MAX`] are kept.
//!
//! # Invariants
//! - Names of headers and queries are in `protocol::client`; this crate has sockets and time.
//! - A connection goes back among the idle ones only after a whole answer that allows it.
//! - No answer grows beyond [`BODY_BYTES_MAX`], no event beyond [`EVENT_BYTES_MAX`].

mod calls;
mod connection;
mod error;
mod events;
mod follow;

pub use calls::{Client, Page, StreamState, Timeouts};
pub use error::ClientError;
pub use events::{Event, EventReader};
pub use follow::{Follow, Progress};
pub use model::ReadFrom;
pub use stream::Producer;

/// Longest body of an answer that is taken. A catch-up answer has about 4 MiB.
pub const BODY_BYTES_MAX: u64 = 256 << 20;

/// Longest event that is taken: an append of the largest size, in base64.
pub const EVENT_BYTES_MAX: usize = 2 << 30;

/// Connections that are kept for later calls.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
