//! Answers of [`crate::face::durable::response`] as text of HTTP/1.1.

use crate::{
    face::durable::response as face,
    http1::{BodyFraming, Exchange, HeadWriter},
    sse::Mode,
};
pub use crate::{
    face::durable::response::{BodyPlan, ReadAnswer},
    http1::status_of,
};
use stream::{Accepted, Outcome, StreamInfo};

/// See [`face::outcome`].
pub fn outcome(out: &mut Vec<u8>, exchange: &Exchange<'_>, outcome: &Outcome, location: &str) {
    face::outcome(&mut HeadWriter::new(out, exchange), outcome, location);
}

/// See [`face::appended`].
pub fn appended(out: &mut Vec<u8>, exchange: &Exchange<'_>, accepted: &Accepted) {
    face::appended(&mut HeadWriter::new(out, exchange), accepted);
}

/// See [`face::deleted`].
pub fn deleted(out: &mut Vec<u8>, exchange: &Exchange<'_>) {
    face::deleted(&mut HeadWriter::new(out, exchange));
}

/// See [`face::metadata`].
pub fn head(out: &mut Vec<u8>, exchange: &Exchange<'_>, info: &StreamInfo) {
    face::metadata(&mut HeadWriter::new(out, exchange), info);
}

/// See [`face::preflight`].
pub fn preflight(out: &mut Vec<u8>, exchange: &Exchange<'_>) {
    face::preflight(&mut HeadWriter::new(out, exchange));
}

/// See [`face::read`].
pub fn read(out: &mut Vec<u8>, exchange: &Exchange<'_>, read: &ReadAnswer<'_>) -> BodyPlan {
    face::read(&mut HeadWriter::new(out, exchange), read)
}

/// See [`face::long_poll_timeout`].
pub fn long_poll_timeout(
    out: &mut Vec<u8>,
    exchange: &Exchange<'_>,
    info: &StreamInfo,
    cursor: u64,
) {
    face::long_poll_timeout(&mut HeadWriter::new(out, exchange), info, cursor);
}

/// See [`face::sse`].
pub fn sse(out: &mut Vec<u8>, exchange: &Exchange<'_>, mode: Mode) -> BodyFraming {
    face::sse(&mut HeadWriter::new(out, exchange), mode)
}
