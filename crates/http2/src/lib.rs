//! The server's side of HTTP/2 connections, in memory: bytes in, requests and their streams out.
//!
//! # Why
//! The library `h2` knows frames, compression, flow control and what attackers do with them. It expects an async runtime.
//! Here it gets a pipe of two buffers and wakers that write down who wants to be looked at. A loop polls it by hand, so it
//! needs no runtime, thread, socket or clock. This crate alone names the library (docs/adr/0069).
//!
//! # Driving it
//! 1. [`Connection::receive`] with what has come, then [`Connection::poll`] until it waits;
//! 2. what it accepts is a [`Head`] and a [`Stream`]: read bodies by [`Stream::read`], give back what was used by
//!    [`Stream::release`], answer by [`Stream::answer`] and [`Stream::send`];
//! 3. [`Connection::take_output`] is what the client gets;
//! 4. [`Ready::take`] names connections and streams that something has happened to.
//!
//! # Invariants
//! - A poll gives the library [`limits::INPUT_BYTES_PER_POLL`] at most.
//! - A stream is never given more than it has room for, so the library holds a bounded number of bytes for each connection.

mod answer;
mod connection;
mod head;
pub mod limits;
mod pipe;
mod ready;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;

pub use answer::{Answer, AnswerWriter};
pub use connection::{Connection, Options, Polled};
pub use head::Head;
pub use ready::Ready;
pub use stream::{Data, Gone, Stream, Why};

/// The first line of what a client of HTTP/2 sends.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
