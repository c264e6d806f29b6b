//! Answers to writes, `HEAD` and `OPTIONS`.

use super::METHODS;
use crate::{
    date, field,
    http1::{Answer, EVERY_APPEND, Exchange, Length},
    problem::Problem,
};
use stream::{Accepted, Lifetime, Outcome, StreamInfo};
use time::format_description::well_known::Rfc3339;

/// Fields that a browser may send: all that the protocol defines, and those of authentication.
const REQUEST_FIELDS: &str = "Accept, Accept-Encoding, Authorization, Cache-Control, Content-Type, If-Match, If-None-Match, \
    Last-Event-ID, Producer-Epoch, Producer-Id, Producer-Seq, Stream-Closed, Stream-Expires-At, Stream-Fork-Offset, \
    Stream-Fork-Sub-Offset, Stream-Forked-From, Stream-Seq, Stream-SSE-Data-Encoding, Stream-TTL";

/// How long a browser may remember what [`preflight`] said, in seconds.
const PREFLIGHT_MAX_AGE_SECONDS: u64 = 86_400;

/// Answers a write with what came of it. `location` is [`crate::request::CreateRequest::location`]
/// for a `PUT`, else nothing.
pub fn outcome(out: &mut Vec<u8>, exchange: &Exchange<'_>, outcome: &Outcome, location: &str) {
    match outcome {
        Outcome::Appended(accepted) => appended(out, exchange, accepted),
        Outcome::Created(info) => created(out, exchange, info, Some(location)),
        Outcome::Existed(info) => created(out, exchange, info, None),
        Outcome::Deleted | Outcome::Pinned | Outcome::Done => deleted(out, exchange),
        Outcome::Refused(refusal) => Problem::from(refusal).write(out, exchange),
    }
}

/// Answers an accepted append. PROTOCOL §5.2, §5.2.1.
pub fn appended(out: &mut Vec<u8>, exchange: &Exchange<'_>, accepted: &Accepted) {
    // PROTOCOL §5.2.1, "Response Codes": 200 says that a producer's data is new.
    let is_new = accepted.producer.is_some() && !accepted.duplicate && !accepted.close_only;
    let status = if is_new { 200 } else { 204 };
    let mut answer = Answer::start_with(out, exchange, status, EVERY_APPEND);
    answer.offset(field::STREAM_NEXT_OFFSET, accepted.tail);
    if accepted.closed {
        answer.field(field::STREAM_CLOSED, "true");
    }
    if let Some((epoch, seq)) = accepted.producer {
        answer.number(field::PRODUCER_EPOCH, epoch);
        answer.number(field::PRODUCER_SEQ, seq);
    }
    // RFC 9110 §8.6 wants no length on a 204, but HTTP/1.1 clients are in use that wait for a body
    // without it, and none minds a 0 (docs/adr/0011).
    answer.end(Length::Known(0));
}

/// Answers a creation; `location` if the stream is new. PROTOCOL §5.1.
pub fn created(
    out: &mut Vec<u8>,
    exchange: &Exchange<'_>,
    info: &StreamInfo,
    location: Option<&str>,
) {
    let mut answer = Answer::start(out, exchange, if location.is_some() { 201 } else { 200 });
    if let Some(location) = location {
        answer.field(field::LOCATION, location);
    }
    describe(&mut answer, info);
    answer.end(Length::Known(0));
}

/// Answers a deletion. PROTOCOL §5.4.
pub fn deleted(out: &mut Vec<u8>, exchange: &Exchange<'_>) {
    Answer::start(out, exchange, 204).end(Length::None);
}

/// Answers `HEAD`. PROTOCOL §5.5.
pub fn head(out: &mut Vec<u8>, exchange: &Exchange<'_>, info: &StreamInfo) {
    let mut answer = Answer::start(out, exchange, 200);
    describe(&mut answer, info);
    match info.lifetime {
        Lifetime::Forever => {}
        Lifetime::Ttl { seconds } => answer.number(field::STREAM_TTL, seconds),
        Lifetime::ExpiresAt(at) => {
            let text = date::utc(at).format(&Rfc3339).expect("the year is at most 9999");
            answer.field(field::STREAM_EXPIRES_AT, &text);
        }
    }
    // PROTOCOL §5.5, "Caching Guidance"
    answer.field(field::CACHE_CONTROL, "no-store");
    answer.end(Length::None);
}

/// Answers `OPTIONS`.
pub fn preflight(out: &mut Vec<u8>, exchange: &Exchange<'_>) {
    let mut answer = Answer::start(out, exchange, 204);
    answer.field(field::ALLOW, METHODS);
    answer.field("Access-Control-Allow-Methods", METHODS);
    answer.field("Access-Control-Allow-Headers", REQUEST_FIELDS);
    answer.number("Access-Control-Max-Age", PREFLIGHT_MAX_AGE_SECONDS);
    answer.end(Length::None);
}

fn describe(answer: &mut Answer<'_, '_>, info: &StreamInfo) {
    answer.field(field::CONTENT_TYPE, info.content_type.as_str());
    answer.offset(field::STREAM_NEXT_OFFSET, info.tail);
    if info.closed {
        answer.field(field::STREAM_CLOSED, "true");
    }
}
