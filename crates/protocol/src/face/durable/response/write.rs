//! Answers to writes, `HEAD` and `OPTIONS`.

use super::{EVERY_ANSWER, EVERY_APPEND, EXPOSED_NUMBERS, EXPOSED_PLACES, METHODS, NO_SCRIPT};
use crate::{
    date,
    face::durable::{etag::ETag, offset, problem::Problem},
    field::Field,
    head::{HeadSink, Length},
};
use model::{ByteOffset, GroupId, StreamKey};
use stream::{Accepted, Keep, Lifetime, Outcome, Retention, StreamInfo};
use time::format_description::well_known::Rfc3339;

/// Fields that a browser may send: all that the protocol defines, and those of authentication.
pub(crate) const REQUEST_FIELDS: &str = "Accept, Accept-Encoding, Authorization, Cache-Control, Content-Type, If-Match, If-None-Match, \
    Last-Event-ID, Producer-Epoch, Producer-Id, Producer-Seq, Stream-Closed, Stream-Expires-At, Stream-Fork-Offset, \
    Stream-Fork-Sub-Offset, Stream-Forked-From, Stream-Record-Match, Stream-Record-Numbers, Stream-Record-Time, \
    Stream-Retention-Age, Stream-Retention-Bytes, Stream-Retention-Records, Stream-Seq, Stream-SSE-Data-Encoding, \
    Stream-TTL, Stream-Trim-Before, Stream-Trim-Before-Record";

/// How long a browser may remember what [`preflight`] said, in seconds.
const PREFLIGHT_MAX_AGE_SECONDS: u64 = 86_400;

/// Answers a write with what came of it. `location` is
/// [`crate::request::CreateRequest::location`] for a `PUT`, else nothing.
pub fn outcome<S: HeadSink + ?Sized>(head: &mut S, outcome: &Outcome, location: &[u8]) {
    match outcome {
        Outcome::Appended(accepted) => appended(head, accepted),
        Outcome::Created(info) => created(head, info, Some(location)),
        Outcome::Existed(info) => created(head, info, None),
        Outcome::Trimmed { head: at, first_record } => trimmed(head, *at, *first_record),
        Outcome::Changed(info) => changed(head, info),
        Outcome::Deleted | Outcome::Pinned { .. } | Outcome::Done => deleted(head),
        Outcome::Refused(refusal) => Problem::from(refusal).render(head),
    }
}

/// Answers an accepted append. No cache keeps the answer, so one to a program has no field for pages. PROTOCOL §5.2, §5.2.1.
pub fn appended<S: HeadSink + ?Sized>(head: &mut S, accepted: &Accepted) {
    // PROTOCOL §5.2.1, "Response Codes": 200 says that a producer's data is new.
    let is_new = accepted.producer.is_some() && !accepted.duplicate && !accepted.close_only;
    let is_page = head.viewers().is_page();
    head.start(if is_new { 200 } else { 204 }, if is_page { &EVERY_APPEND } else { &NO_SCRIPT });
    head.ascii(Field::StreamNextOffset, &offset::render(accepted.tail));
    if accepted.closed {
        head.field(Field::StreamClosed, "true");
    }
    if let Some((start, next)) = accepted.records {
        if is_page {
            head.field(Field::AccessControlExposeHeaders, EXPOSED_NUMBERS);
        }
        head.number(Field::StreamRecordStart, start);
        head.number(Field::StreamRecordNext, next);
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
pub fn created<S: HeadSink + ?Sized>(head: &mut S, info: &StreamInfo, location: Option<&[u8]>) {
    head.start(if location.is_some() { 201 } else { 200 }, &EVERY_ANSWER);
    if let Some(location) = location {
        head.ascii(Field::Location, location);
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
pub fn metadata<S: HeadSink + ?Sized>(head: &mut S, group: GroupId, info: &StreamInfo) {
    head.start(200, &EVERY_ANSWER);
    describe(head, info);
    head.field(Field::AccessControlExposeHeaders, EXPOSED_PLACES);
    head.number(Field::StreamRecordNext, info.next_record);
    put_head(head, info.head, info.first_record);
    put_retention(head, info.retention);
    // For `If-Match`: that of all bytes.
    let stream = StreamKey { group, stream: info.stream };
    let tag = ETag { stream, start: info.head, end: info.tail, closed: info.closed };
    head.ascii(Field::ETag, tag.render(false).as_bytes());
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

/// Answers `HEAD` of a place: the offset and the number of its record, and its time unless it is still to come.
pub fn resolved<S: HeadSink + ?Sized>(
    head: &mut S,
    info: &StreamInfo,
    (at, record): (ByteOffset, u64),
    time: Option<u64>,
) {
    head.start(200, &EVERY_ANSWER);
    describe(head, info);
    head.field(Field::AccessControlExposeHeaders, EXPOSED_PLACES);
    put_head(head, info.head, info.first_record);
    head.ascii(Field::StreamOffset, &offset::render(at));
    head.number(Field::StreamRecordStart, record);
    head.number(Field::StreamRecordNext, info.next_record);
    if let Some(time) = time {
        head.number(Field::StreamTime, time);
    }
    head.field(Field::CacheControl, "no-store");
    head.end(Length::None);
}

/// Answers a trim with where the stream begins.
pub fn trimmed<S: HeadSink + ?Sized>(head: &mut S, at: ByteOffset, first_record: u64) {
    head.start(204, &EVERY_ANSWER);
    head.field(Field::AccessControlExposeHeaders, EXPOSED_PLACES);
    head.ascii(Field::StreamHead, &offset::render(at));
    head.number(Field::StreamRecordFirst, first_record);
    head.end(Length::Known(0));
}

/// Answers a change of settings with what they are now.
pub fn changed<S: HeadSink + ?Sized>(head: &mut S, info: &StreamInfo) {
    head.start(204, &EVERY_ANSWER);
    head.field(Field::AccessControlExposeHeaders, EXPOSED_PLACES);
    put_head(head, info.head, info.first_record);
    put_retention(head, info.retention);
    head.end(Length::Known(0));
}

/// Where the stream begins, unless nothing of it is gone.
fn put_head<S: HeadSink + ?Sized>(head: &mut S, at: ByteOffset, first_record: u64) {
    if at > ByteOffset::ZERO {
        head.ascii(Field::StreamHead, &offset::render(at));
        head.number(Field::StreamRecordFirst, first_record);
    }
}

/// What is kept, as far as the stream says so itself.
fn put_retention<S: HeadSink + ?Sized>(head: &mut S, kept: Retention) {
    let bounds = [
        (Field::StreamRetentionAge, kept.age_seconds),
        (Field::StreamRetentionBytes, kept.bytes),
        (Field::StreamRetentionRecords, kept.records),
    ];
    for (field, keep) in bounds {
        match keep {
            Keep::Default => {}
            Keep::All => head.field(field, "none"),
            Keep::AtLeast(amount) => head.number(field, amount),
        }
    }
}

/// Answers `OPTIONS`; `more` are fields that the page may send besides those that every page may.
pub fn preflight<S: HeadSink + ?Sized>(head: &mut S, more: Option<&str>) {
    head.start(204, &EVERY_ANSWER);
    head.field(Field::Allow, METHODS);
    head.field(Field::AccessControlAllowMethods, METHODS);
    match more {
        None => head.field(Field::AccessControlAllowHeaders, REQUEST_FIELDS),
        Some(more) => {
            head.field(Field::AccessControlAllowHeaders, &format!("{REQUEST_FIELDS}, {more}"));
        }
    }
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
