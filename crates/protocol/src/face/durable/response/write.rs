//! Answers to writes, `HEAD` and `OPTIONS`.

use super::{EVERY_ANSWER, EVERY_APPEND, METHODS};
use crate::{
    date,
    face::durable::{offset, problem::Problem},
    field::Field,
    head::{HeadSink, Length},
};
use stream::{Accepted, Lifetime, Outcome, StreamInfo};
use time::format_description::well_known::Rfc3339;

/// Fields that a browser may send: all that the protocol defines, and those of authentication.
const REQUEST_FIELDS: &str = "Accept, Accept-Encoding, Authorization, Cache-Control, Content-Type, If-Match, If-None-Match, \
    Last-Event-ID, Producer-Epoch, Producer-Id, Producer-Seq, Stream-Closed, Stream-Expires-At, Stream-Fork-Offset, \
    Stream-Fork-Sub-Offset, Stream-Forked-From, Stream-Seq, Stream-SSE-Data-Encoding, Stream-TTL";

/// How long a browser may remember what [`preflight`] said, in seconds.
const PREFLIGHT_MAX_AGE_SECONDS: u64 = 86_400;

/// Answers a write with what came of it. `location` is
/// [`crate::request::CreateRequest::location`] for a `PUT`, else nothing.
pub fn outcome<S: HeadSink + ?Sized>(head: &mut S, outcome: &Outcome, location: &str) {
    match outcome {
        Outcome::Appended(accepted) => appended(head, accepted),
        Outcome::Created(info) => created(head, info, Some(location)),
        Outcome::Existed(info) => created(head, info, None),
        Outcome::Deleted | Outcome::Pinned | Outcome::Done => deleted(head),
        Outcome::Refused(refusal) => Problem::from(refusal).render(head),
    }
}

/// Answers an accepted append. PROTOCOL §5.2, §5.2.1.
pub fn appended<S: HeadSink + ?Sized>(head: &mut S, accepted: &Accepted) {
    // PROTOCOL §5.2.1, "Response Codes": 200 says that a producer's data is new.
    let is_new = accepted.producer.is_some() && !accepted.duplicate && !accepted.close_only;
    head.start(if is_new { 200 } else { 204 }, &EVERY_APPEND);
    head.ascii(Field::StreamNextOffset, &offset::render(accepted.tail));
    if accepted.closed {
        head.field(Field::StreamClosed, "true");
    }
    if let Some((epoch, seq)) = accepted.producer {
        head.number(Field::ProducerEpoch, epoch);
        head.number(Field::ProducerSeq, seq);
    }
    // RFC 9110 §8.6 wants no length on a 204, but HTTP/1.1 clients are in use that wait for a body
    // without it, and none minds a 0 (docs/adr/0011).
    head.end(Length::Known(0));
}

/// Answers a creation; `location` if the stream is new. PROTOCOL §5.1.
pub fn created<S: HeadSink + ?Sized>(head: &mut S, info: &StreamInfo, location: Option<&str>) {
    head.start(if location.is_some() { 201 } else { 200 }, &EVERY_ANSWER);
    if let Some(location) = location {
        head.field(Field::Location, location);
    }
    describe(head, info);
    head.end(Length::Known(0));
}

/// Answers a deletion. PROTOCOL §5.4.
pub fn deleted<S: HeadSink + ?Sized>(head: &mut S) {
    head.start(204, &EVERY_ANSWER);
    head.end(Length::None);
}

/// Answers `HEAD`. PROTOCOL §5.5.
pub fn metadata<S: HeadSink + ?Sized>(head: &mut S, info: &StreamInfo) {
    head.start(200, &EVERY_ANSWER);
    describe(head, info);
    match info.lifetime {
        Lifetime::Forever => {}
        Lifetime::Ttl { seconds } => head.number(Field::StreamTtl, seconds),
        Lifetime::ExpiresAt(at) => {
            let text = date::utc(at).format(&Rfc3339).expect("the year is at most 9999");
            head.field(Field::StreamExpiresAt, &text);
        }
    }
    // PROTOCOL §5.5, "Caching Guidance"
    head.field(Field::CacheControl, "no-store");
    head.end(Length::None);
}

/// Answers `OPTIONS`.
pub fn preflight<S: HeadSink + ?Sized>(head: &mut S) {
    head.start(204, &EVERY_ANSWER);
    head.field(Field::Allow, METHODS);
    head.field(Field::AccessControlAllowMethods, METHODS);
    head.field(Field::AccessControlAllowHeaders, REQUEST_FIELDS);
    head.number(Field::AccessControlMaxAge, PREFLIGHT_MAX_AGE_SECONDS);
    head.end(Length::None);
}

fn describe<S: HeadSink + ?Sized>(head: &mut S, info: &StreamInfo) {
    head.field(Field::ContentType, info.content_type.as_str());
    head.ascii(Field::StreamNextOffset, &offset::render(info.tail));
    if info.closed {
        head.field(Field::StreamClosed, "true");
    }
}
