//! The server's side of HTTP/1.1 without the sockets.
//!
//! Strict where leniency lets two parties of one connection see two different requests (request
//! smuggling): such requests are refused and the connection is closed.
//!
//! Source: RFC 9112, RFC 9110.

mod answer;
mod chunked;
mod framing;
mod head;

pub use answer::{
    Answer, BodyFraming, CONTINUE, Exchange, LAST_CHUNK, Length, put_chunk, put_chunk_head,
};
pub(crate) use answer::{EVERY_APPEND, put_number};
pub use chunked::{ChunkError, ChunkedDecoder, Step};
pub use head::{Framing, Head, HeadError, HeadLimits, HeadReader, HeaderSlots, Method, Version};

#[cfg(test)]
mod tests;
