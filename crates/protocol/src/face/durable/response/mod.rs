//! Answers: from what the node says to status and header fields.
//!
//! Each function writes one head to a [`crate::HeadSink`]. Problems are written by
//! [`crate::problem::Problem::render`].

mod read;
mod write;

pub use read::{BodyPlan, Frame, ReadAnswer, TailAge, long_poll_timeout, read, sse};
pub(crate) use write::REQUEST_FIELDS;
pub use write::{
    appended, changed, created, deleted, metadata, outcome, preflight, resolved, trimmed,
};

use crate::head::{CommonFields, common_fields};

/// What an answer carries that pages may see, with the fields of it that scripts may see.
// PROTOCOL §12.7
macro_rules! shown_fields {
    ($exposed:literal) => {
        common_fields! {
            shown: true,
            all: {
                "X-Content-Type-Options" / "x-content-type-options": "nosniff",
                "Cross-Origin-Resource-Policy" / "cross-origin-resource-policy": "cross-origin",
                "Access-Control-Allow-Origin" / "access-control-allow-origin": "*",
            },
            // What a page loads without CORS says no origin, so it is kept from all others.
            listed: {
                "X-Content-Type-Options" / "x-content-type-options": "nosniff",
                "Cross-Origin-Resource-Policy" / "cross-origin-resource-policy": "same-origin",
                "Vary" / "vary": "Origin",
            },
            both: { "Access-Control-Expose-Headers" / "access-control-expose-headers": $exposed },
        }
    };
}

/// What every answer carries, errors and `304` too.
pub(crate) static EVERY_ANSWER: CommonFields = shown_fields!(
    "Content-Encoding, ETag, Location, Producer-Epoch, Producer-Expected-Seq, \
     Producer-Received-Seq, Producer-Seq, Retry-After, Stream-Closed, Stream-Cursor, \
     Stream-Expires-At, Stream-Next-Offset, Stream-SSE-Data-Encoding, Stream-TTL, \
     Stream-Up-To-Date"
);

/// For what no page sees: answers that are kept from pages, and those to programs that no cache keeps.
pub(crate) static NO_SCRIPT: CommonFields = common_fields! {
    shown: false,
    all: {
        "X-Content-Type-Options" / "x-content-type-options": "nosniff",
        "Cross-Origin-Resource-Policy" / "cross-origin-resource-policy": "same-origin",
    },
    listed: {
        "X-Content-Type-Options" / "x-content-type-options": "nosniff",
        "Cross-Origin-Resource-Policy" / "cross-origin-resource-policy": "same-origin",
        "Vary" / "vary": "Origin",
    },
    both: {},
};

/// [`EVERY_ANSWER`] for accepted appends of pages, which are many and carry few fields: 250 bytes less.
pub(crate) static EVERY_APPEND: CommonFields =
    shown_fields!("Producer-Epoch, Producer-Seq, Stream-Closed, Stream-Next-Offset");

/// What scripts may see besides of an answer with numbers of records. Most answers have none.
pub(crate) const EXPOSED_NUMBERS: &str = "Stream-Record-Next, Stream-Record-Start";

/// What scripts may see besides of an answer about where a stream begins, or about a place in it.
pub(crate) const EXPOSED_PLACES: &str = "Stream-Head, Stream-Offset, Stream-Record-First, Stream-Record-Next, \
    Stream-Record-Start, Stream-Retention-Age, Stream-Retention-Bytes, Stream-Retention-Records, Stream-Time";

/// The methods of a stream.
pub(crate) const METHODS: &str = "GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS";
