//! The server's side of HTTP/1.1 without the sockets.
//!
//! Strict where leniency lets two parties of one connection see two different requests (request
//! smuggling): such requests are refused and the connection is closed.
//!
//! Source: RFC 9112, RFC 9110.

mod chunked;
mod head;
mod head_error;
mod head_writer;

pub use crate::head::{BodyFraming, Length, Method};
pub use chunked::{ChunkError, ChunkedDecoder, LAST_CHUNK, Step, put_chunk, put_chunk_head};
pub(crate) use head::{CommonFields, Target, length_of, method_of};
pub use head::{Framing, Head, HeadLimits, HeadReader, HeaderSlots, Version};
pub use head_error::HeadError;
pub use head_writer::{CONTINUE, Exchange, HeadWriter};

#[cfg(test)]
mod tests;
