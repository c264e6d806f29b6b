//! Answers: from what the node says to status and header fields.
//!
//! Each function writes one head to a [`crate::HeadSink`]. Problems are written by
//! [`crate::problem::Problem::render`].

mod read;
mod write;

pub use read::{BodyPlan, Frame, ReadAnswer, long_poll_timeout, read, sse};
pub use write::{appended, created, deleted, metadata, outcome, preflight};

use crate::head::{CommonFields, common_fields};

/// What every answer carries, errors and `304` too, and the fields of it that scripts may see.
// PROTOCOL §12.7
pub(crate) const EVERY_ANSWER: CommonFields = common_fields! {
    "X-Content-Type-Options" / "x-content-type-options": "nosniff",
    "Cross-Origin-Resource-Policy" / "cross-origin-resource-policy": "cross-origin",
    "Access-Control-Allow-Origin" / "access-control-allow-origin": "*",
    "Access-Control-Expose-Headers" / "access-control-expose-headers":
        "Content-Encoding, ETag, Location, Producer-Epoch, Producer-Expected-Seq, \
         Producer-Received-Seq, Producer-Seq, Retry-After, Stream-Closed, Stream-Cursor, \
         Stream-Expires-At, Stream-Next-Offset, Stream-SSE-Data-Encoding, Stream-TTL, \
         Stream-Up-To-Date",
};

/// [`EVERY_ANSWER`] for accepted appends, which are many and carry few fields: 250 bytes less.
pub(crate) const EVERY_APPEND: CommonFields = common_fields! {
    "X-Content-Type-Options" / "x-content-type-options": "nosniff",
    "Cross-Origin-Resource-Policy" / "cross-origin-resource-policy": "cross-origin",
    "Access-Control-Allow-Origin" / "access-control-allow-origin": "*",
    "Access-Control-Expose-Headers" / "access-control-expose-headers":
        "Producer-Epoch, Producer-Seq, Stream-Closed, Stream-Next-Offset",
};

/// The methods of a stream.
pub(crate) const METHODS: &str = "GET, HEAD, PUT, POST, DELETE, OPTIONS";
