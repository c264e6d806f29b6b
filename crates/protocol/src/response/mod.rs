//! Answers: from what the node says to status and header fields.
//!
//! Each function appends one head to a caller's buffer. Problems are written by
//! [`crate::problem::Problem::write`].

mod read;
mod write;

pub use read::{BodyPlan, ReadAnswer, long_poll_timeout, read, sse};
pub use write::{appended, created, deleted, head, outcome, preflight};

/// The status of an answer that stands at the start of `out`.
#[must_use]
pub fn status_of(out: &[u8]) -> Option<u16> {
    let digits = out.get(9..12)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The methods of a stream.
pub(crate) const METHODS: &str = "GET, HEAD, PUT, POST, DELETE, OPTIONS";

#[cfg(test)]
mod tests;
