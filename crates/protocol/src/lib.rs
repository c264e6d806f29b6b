//! HTTP and the Durable Streams Protocol as pure functions.
//!
//! # What
//! The only crate that knows a header name, a status code or a query key. Bytes of a connection
//! come in as slices, and bytes of an answer go out into a caller's buffer. In between are the
//! types of `stream`. There is no socket, no clock, no randomness: `now` and random numbers are
//! arguments.
//!
//! # Layers
//! - Wires: [`http1`] reads heads and bodies and writes heads as text; [`http2`] reads heads that come in fields; [`sse`] is the form of events.
//! - Faces: [`face::durable`] decides what a request asks and what an answer says. A face sees a
//!   wire as [`RequestHead`], as [`HeadSink`], and as errors that it has to answer. A wire sees no
//!   face, which `cargo xtask tidy` checks.
//!
//! # Driving it
//! 1. [`http1::HeadReader::read`] with all bytes that have come, until it yields a [`http1::Head`];
//! 2. [`request::parse`] turns the head into a [`request::Request`] that borrows nothing;
//! 3. the body is taken as the head's [`http1::Framing`] says, chunks through
//!    [`http1::ChunkedDecoder`], and given to the request's `finish`;
//! 4. the node answers; a function of [`face::durable::response`] or
//!    [`problem::Problem::render`] writes the head to a [`http1::HeadWriter`];
//! 5. live answers by server-sent events are encoded by [`events::SseEncoder`], once for all readers.
//!
//! # Invariants
//! - No input panics, and none makes an allocation larger than a limit of [`limits`] allows.
//! - What an answer reflects of a request is checked or escaped first: no CR, LF or control
//!   character can come through it.
//! - An answer never leaves in doubt whether a write was applied, see [`problem`].
//!
//! # Source
//! PROTOCOL §x is the Durable Streams Protocol 1.0, cited by its section numbers of 2026-05.

mod base64;
mod date;
mod decimal;
pub mod encoding;
pub mod face;
mod field;
mod head;
pub mod http1;
pub mod http2;
pub mod limits;
mod scan;
pub mod sse;
mod trace;

pub use date::HttpDate;
pub use face::durable::{
    client, cursor, etag, events, log_line, offset, problem, request, response,
};
pub use field::Field;
pub use head::{
    Authority, BodyFraming, CommonFields, HeadSink, Length, Method, RequestHead, Viewer, Viewers,
};
pub use trace::TraceId;
