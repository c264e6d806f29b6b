//! HTTP/1.1 and the Durable Streams Protocol as pure functions.
//!
//! # What
//! The only crate that knows a header name, a status code or a query key. Bytes of a connection
//! come in as slices, bytes of an answer go out into a caller's `Vec<u8>`; in between stand the
//! types of `stream`. No socket, no clock, no randomness: `now` and random numbers are arguments.
//!
//! # Driving it
//! 1. [`http1::HeadReader::read`] with all bytes that have come, until it yields a [`http1::Head`];
//! 2. [`request::parse`] turns the head into a [`request::Request`] that borrows nothing;
//! 3. the body is taken as the head's [`http1::Framing`] says, chunks through
//!    [`http1::ChunkedDecoder`], and given to [`body::prepare`];
//! 4. the node answers; a function of [`response`] or [`problem::Problem::write`] writes the head;
//! 5. live answers by server-sent events are encoded by [`sse::SseEncoder`], once for all readers.
//!
//! # Invariants
//! - No input panics, and none makes an allocation larger than a limit of [`limits`] allows.
//! - What an answer reflects of a request is checked or escaped first: no CR, LF or control
//!   character can come through it.
//! - An answer never leaves in doubt whether a write was applied, see [`problem`].
//!
//! # Source
//! PROTOCOL §x is the Durable Streams Protocol 1.0, cited by its section numbers of 2026-05.

pub mod body;
pub mod client;
pub mod cursor;
mod date;
pub mod encoding;
pub mod etag;
mod field;
pub mod http1;
pub mod limits;
pub mod offset;
pub mod problem;
pub mod request;
pub mod response;
pub mod sse;
mod target;

pub use date::HttpDate;
