//! The client's side: requests to write and heads of answers to read, as pure functions.
//!
//! # Driving it
//! 1. A function of this module appends one request to a caller's buffer;
//! 2. [`parse_answer`] with all bytes that have come, until it yields an [`AnswerHead`];
//! 3. the body is taken as [`AnswerHead::body`] says, chunks through
//!    [`crate::http1::ChunkedDecoder`].
//!
//! # Invariants
//! - No path, media type or producer id can end its own line.
//! - Every request is complete: what follows it in the buffer is the next request.

mod answer;
mod ask;
#[cfg(test)]
mod tests;

pub use answer::{AnswerBody, AnswerError, AnswerHead, parse_answer};
pub use ask::{
    Target, put_append, put_close, put_create, put_create_for, put_delete, put_head, put_read,
};
