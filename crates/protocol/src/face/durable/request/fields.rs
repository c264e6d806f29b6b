//! What a head is made of: the path of a stream, and the fields that routes ask for.

use crate::{
    face::durable::problem::{Code, Problem, detail::quote},
    field::{
        self, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH,
        LAST_EVENT_ID, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, STREAM_CLOSED, STREAM_EXPIRES_AT,
        STREAM_FORK_OFFSET, STREAM_FORK_SUB_OFFSET, STREAM_FORKED_FROM, STREAM_RECORD_MATCH,
        STREAM_RECORD_NUMBERS, STREAM_RECORD_TIME, STREAM_RETENTION_AGE, STREAM_RETENTION_BYTES,
        STREAM_RETENTION_RECORDS, STREAM_SEQ, STREAM_SSE_DATA_ENCODING, STREAM_TRIM_BEFORE,
        STREAM_TRIM_BEFORE_RECORD, STREAM_TTL,
    },
    scan,
};
use model::{PathError, StreamPath, Timestamp};
use std::borrow::Cow;
use std::str::Utf8Error;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Where streams are mounted.
pub(crate) const MOUNT: &str = "/v1/stream/";

/// First segment of the paths of subscriptions. PROTOCOL §6.
const SUBSCRIPTIONS: &str = "__ds";

/// What first segments begin with that are kept for the server.
const RESERVED: &str = "__";

/// Those that clients may use all the same: the protocol's test page keeps them.
const SHARED: [&str; 2] = ["__registry__", "__presence__"];

/// The stream that an undecoded URL path names; `None` if it lies outside the mount.
///
/// It is percent-decoded exactly once; `%2F` is a slash like any other, so `a%2Fb` and `a/b` are
/// one stream (docs/adr/0010).
pub(crate) fn stream_path(path: &str) -> Option<Result<StreamPath, Problem>> {
    let encoded = path.strip_prefix(MOUNT).filter(|rest| !rest.is_empty())?;
    Some(decode_path(encoded))
}

fn decode_path(encoded: &str) -> Result<StreamPath, Problem> {
    let invalid = |why: &str| {
        Problem::with_detail(
            Code::InvalidPath,
            format!("The stream path {} {why}.", quote(encoded.as_bytes())),
        )
    };
    let decoded = percent_decode(encoded).ok_or_else(|| {
        invalid("has a `%` that two hexadecimal digits do not follow, or is not UTF-8")
    })?;
    if decoded.starts_with(RESERVED) {
        let first = decoded.split_once('/').map_or(&*decoded, |(first, _)| first);
        if first == SUBSCRIPTIONS {
            return Err(Problem::new(Code::Reserved));
        }
        if !SHARED.contains(&first) {
            return Err(invalid("begins with `__`, which is kept for the server"));
        }
    }
    StreamPath::new(&decoded).map_err(|error| match error {
        PathError::Empty => invalid("is empty"),
        PathError::TooLong { length_bytes } => invalid(&format!(
            "has {length_bytes} bytes; at most {} are possible",
            model::limits::PATH_BYTES_MAX
        )),
        PathError::Control { position } => {
            invalid(&format!("has a control character at byte {position}"))
        }
        PathError::DotSegment { position } => {
            invalid(&format!("has a `.` or `..` segment at byte {position}"))
        }
    })
}

/// Decodes percent escapes; `None` for a bad escape or bytes that are not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !scan::any(text.as_bytes(), |byte| byte == b'%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            other => other,
        });
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// A time before 1970 is as good as its beginning: long over.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let ms = at.unix_timestamp_nanos().div_euclid(1_000_000).max(0);
    u64::try_from(ms).ok().map(Timestamp::new)
}

/// The fields of a request, found in one pass.
#[derive(Debug, Default)]
pub(crate) struct Fields<'b> {
    pub(crate) content_type: Option<&'b str>,
    pub(crate) content_encoding: Option<&'b str>,
    pub(crate) stream_closed: Option<&'b str>,
    pub(crate) stream_ttl: Option<&'b str>,
    pub(crate) stream_expires_at: Option<&'b str>,
    pub(crate) stream_seq: Option<&'b str>,
    pub(crate) forked_from: Option<&'b str>,
    pub(crate) fork_offset: Option<&'b str>,
    pub(crate) fork_sub_offset: Option<&'b str>,
    pub(crate) producer_id: Option<&'b str>,
    pub(crate) producer_epoch: Option<&'b str>,
    pub(crate) producer_seq: Option<&'b str>,
    pub(crate) sse_data_encoding: Option<&'b str>,
    pub(crate) last_event_id: Option<&'b str>,
    pub(crate) record_match: Option<&'b str>,
    pub(crate) record_numbers: Option<&'b str>,
    pub(crate) record_time: Option<&'b str>,
    pub(crate) retention_age: Option<&'b str>,
    pub(crate) retention_bytes: Option<&'b str>,
    pub(crate) retention_records: Option<&'b str>,
    pub(crate) trim_before: Option<&'b str>,
    pub(crate) trim_before_record: Option<&'b str>,
    /// Lists, which may lawfully come in several lines: a second line makes them unusable, and
    /// that is the same as absent.
    pub(crate) if_none_match: Listed<'b>,
    pub(crate) accept_encoding: Listed<'b>,
    /// As it is only where several lines are refused: it must never be taken as absent.
    pub(crate) if_match: Listed<'b>,
}

/// A list field.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Listed<'b> {
    #[default]
    Absent,
    Once(&'b str),
    Unusable,
}

impl<'b> Listed<'b> {
    pub(crate) fn text(self) -> Option<&'b str> {
        match self {
            Self::Once(text) => Some(text),
            Self::Absent | Self::Unusable => None,
        }
    }

    pub(crate) fn is_absent(self) -> bool {
        matches!(self, Self::Absent)
    }

    fn take(&mut self, value: &'b [u8]) {
        *self = match (&self, std::str::from_utf8(value)) {
            (Self::Absent, Ok(text)) => Self::Once(text),
            _ => Self::Unusable,
        };
    }
}

/// The text of a value. Most appends have one of three content types: to compare is cheaper than to look at each byte.
#[inline]
fn text_of(value: &[u8]) -> Result<&str, Utf8Error> {
    match value {
        b"application/json" => Ok("application/json"),
        b"application/octet-stream" => Ok("application/octet-stream"),
        b"text/plain" => Ok("text/plain"),
        _ => std::str::from_utf8(value),
    }
}

impl<'b> Fields<'b> {
    /// Takes them in. They are many, so the caller keeps the room for them.
    pub(crate) fn find(&mut self, fields: &[httparse::Header<'b>]) -> Result<(), Problem> {
        fields.iter().try_for_each(|item| self.take(item))
    }

    fn take(&mut self, item: &httparse::Header<'b>) -> Result<(), Problem> {
        let Some((name, slot)) = self.slot(item.name) else {
            self.take_list(item);
            return Ok(());
        };
        let text = text_of(item.value).map_err(|_| {
            Problem::with_detail(
                Code::InvalidHeader,
                format!("{name} is not UTF-8; send ASCII or UTF-8."),
            )
        })?;
        if slot.replace(text).is_some() {
            return Err(Problem::with_detail(Code::InvalidHeader, format!("{name} comes twice.")));
        }
        Ok(())
    }

    fn take_list(&mut self, item: &httparse::Header<'b>) {
        if field::is(item.name, IF_NONE_MATCH) {
            self.if_none_match.take(item.value);
        } else if field::is(item.name, ACCEPT_ENCODING) {
            self.accept_encoding.take(item.value);
        } else if field::is(item.name, IF_MATCH) {
            self.if_match.take(item.value);
        }
    }

    /// The slot of a single-valued field. The length is compared first: it tells most fields apart.
    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<&'b str>)> {
        let is = |known: &'static str| field::is(name, known);
        Some(match name.len() {
            10 if is(STREAM_TTL) => (STREAM_TTL, &mut self.stream_ttl),
            10 if is(STREAM_SEQ) => (STREAM_SEQ, &mut self.stream_seq),
            11 if is(PRODUCER_ID) => (PRODUCER_ID, &mut self.producer_id),
            12 if is(CONTENT_TYPE) => (CONTENT_TYPE, &mut self.content_type),
            12 if is(PRODUCER_SEQ) => (PRODUCER_SEQ, &mut self.producer_seq),
            13 if is(LAST_EVENT_ID) => (LAST_EVENT_ID, &mut self.last_event_id),
            13 if is(STREAM_CLOSED) => (STREAM_CLOSED, &mut self.stream_closed),
            14 if is(PRODUCER_EPOCH) => (PRODUCER_EPOCH, &mut self.producer_epoch),
            16 if is(CONTENT_ENCODING) => (CONTENT_ENCODING, &mut self.content_encoding),
            17 if is(STREAM_EXPIRES_AT) => (STREAM_EXPIRES_AT, &mut self.stream_expires_at),
            18 if is(STREAM_FORKED_FROM) => (STREAM_FORKED_FROM, &mut self.forked_from),
            18 if is(STREAM_TRIM_BEFORE) => (STREAM_TRIM_BEFORE, &mut self.trim_before),
            18 if is(STREAM_RECORD_TIME) => (STREAM_RECORD_TIME, &mut self.record_time),
            19 if is(STREAM_RECORD_MATCH) => (STREAM_RECORD_MATCH, &mut self.record_match),
            21 if is(STREAM_RECORD_NUMBERS) => (STREAM_RECORD_NUMBERS, &mut self.record_numbers),
            20 if is(STREAM_RETENTION_AGE) => (STREAM_RETENTION_AGE, &mut self.retention_age),
            18 if is(STREAM_FORK_OFFSET) => (STREAM_FORK_OFFSET, &mut self.fork_offset),
            22 if is(STREAM_FORK_SUB_OFFSET) => (STREAM_FORK_SUB_OFFSET, &mut self.fork_sub_offset),
            22 if is(STREAM_RETENTION_BYTES) => (STREAM_RETENTION_BYTES, &mut self.retention_bytes),
            24 if is(STREAM_RETENTION_RECORDS) => {
                (STREAM_RETENTION_RECORDS, &mut self.retention_records)
            }
            25 if is(STREAM_TRIM_BEFORE_RECORD) => {
                (STREAM_TRIM_BEFORE_RECORD, &mut self.trim_before_record)
            }
            24 if is(STREAM_SSE_DATA_ENCODING) => {
                (STREAM_SSE_DATA_ENCODING, &mut self.sse_data_encoding)
            }
            _ => return None,
        })
    }
}

/// Refuses a creation or a deletion that is to take place only if the stream has a certain tag: only appends are
/// judged by it. One with `If-Match` must never be applied to another state than its own (RFC 9110 §13.1.1).
pub(super) fn refuse_precondition(has_if_match: bool) -> Result<(), Problem> {
    if has_if_match { Err(Problem::new(Code::PreconditionUnsupported)) } else { Ok(()) }
}

/// PROTOCOL §4.1: only exactly `true`, in any case, counts; everything else is as if absent.
pub(super) fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// A decimal number without sign, leading zero, point or exponent, at most `max`.
pub(super) fn parse_number(text: &str, max: u64) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if !is_plain || has_leading_zero {
        return None;
    }
    text.parse().ok().filter(|value| *value <= max)
}
