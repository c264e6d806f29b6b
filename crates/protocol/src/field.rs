//! The names of all header fields.

pub(crate) const ACCEPT_ENCODING: &str = "Accept-Encoding";
pub(crate) const AUTHORIZATION: &str = "Authorization";
pub(crate) const CONNECTION: &str = "Connection";
pub(crate) const CONTENT_ENCODING: &str = Field::ContentEncoding.name();
pub(crate) const CONTENT_LENGTH: &str = "Content-Length";
pub(crate) const CONTENT_TYPE: &str = Field::ContentType.name();
pub(crate) const EXPECT: &str = "Expect";
pub(crate) const HOST: &str = "Host";
pub(crate) const ORIGIN: &str = "Origin";
pub(crate) const IF_MATCH: &str = "If-Match";
pub(crate) const IF_NONE_MATCH: &str = "If-None-Match";
pub(crate) const REQUESTED_FIELDS: &str = "Access-Control-Request-Headers";
pub(crate) const LAST_EVENT_ID: &str = "Last-Event-ID";
pub(crate) const PRODUCER_EPOCH: &str = Field::ProducerEpoch.name();
pub(crate) const PRODUCER_ID: &str = "Producer-Id";
pub(crate) const PRODUCER_SEQ: &str = Field::ProducerSeq.name();
pub(crate) const RETRY_AFTER: &str = Field::RetryAfter.name();
pub(crate) const STREAM_CLOSED: &str = Field::StreamClosed.name();
pub(crate) const STREAM_CURSOR: &str = Field::StreamCursor.name();
pub(crate) const STREAM_EXPIRES_AT: &str = Field::StreamExpiresAt.name();
pub(crate) const STREAM_FORKED_FROM: &str = "Stream-Forked-From";
pub(crate) const STREAM_FORK_OFFSET: &str = "Stream-Fork-Offset";
pub(crate) const STREAM_FORK_SUB_OFFSET: &str = "Stream-Fork-Sub-Offset";
pub(crate) const STREAM_NEXT_OFFSET: &str = Field::StreamNextOffset.name();
pub(crate) const STREAM_RECORD_MATCH: &str = "Stream-Record-Match";
pub(crate) const STREAM_RECORD_NUMBERS: &str = "Stream-Record-Numbers";
pub(crate) const STREAM_RECORD_TIME: &str = "Stream-Record-Time";
pub(crate) const STREAM_RETENTION_AGE: &str = Field::StreamRetentionAge.name();
pub(crate) const STREAM_RETENTION_BYTES: &str = Field::StreamRetentionBytes.name();
pub(crate) const STREAM_RETENTION_RECORDS: &str = Field::StreamRetentionRecords.name();
pub(crate) const STREAM_SEQ: &str = "Stream-Seq";
pub(crate) const STREAM_SSE_DATA_ENCODING: &str = Field::StreamSseDataEncoding.name();
pub(crate) const STREAM_TRIM_BEFORE: &str = "Stream-Trim-Before";
pub(crate) const STREAM_TRIM_BEFORE_RECORD: &str = "Stream-Trim-Before-Record";
pub(crate) const STREAM_TTL: &str = Field::StreamTtl.name();
pub(crate) const STREAM_UP_TO_DATE: &str = Field::StreamUpToDate.name();
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRANSFER_ENCODING: &str = "Transfer-Encoding";

/// Defines [`Field`] with both spellings of each name.
macro_rules! fields {
    ($($field:ident = $name:literal / $lower:literal),* $(,)?) => {
        /// A field of an answer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "`")] $field,)*
        }

        impl Field {
            /// The name as HTTP/1.1 shows it.
            #[inline]
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$field => $name,)* }
            }

            /// The name as HTTP/2 has it.
            #[must_use]
            pub const fn header_name(self) -> http::HeaderName {
                match self { $(Self::$field => const { http::HeaderName::from_static($lower) },)* }
            }
        }
    };
}

fields! {
    AccessControlAllowCredentials =
        "Access-Control-Allow-Credentials" / "access-control-allow-credentials",
    AccessControlAllowHeaders = "Access-Control-Allow-Headers" / "access-control-allow-headers",
    AccessControlAllowMethods = "Access-Control-Allow-Methods" / "access-control-allow-methods",
    AccessControlAllowOrigin = "Access-Control-Allow-Origin" / "access-control-allow-origin",
    AccessControlExposeHeaders = "Access-Control-Expose-Headers" / "access-control-expose-headers",
    AccessControlMaxAge = "Access-Control-Max-Age" / "access-control-max-age",
    Allow = "Allow" / "allow",
    CacheControl = "Cache-Control" / "cache-control",
    ContentEncoding = "Content-Encoding" / "content-encoding",
    ContentType = "Content-Type" / "content-type",
    ETag = "ETag" / "etag",
    Location = "Location" / "location",
    ProducerEpoch = "Producer-Epoch" / "producer-epoch",
    ProducerExpectedSeq = "Producer-Expected-Seq" / "producer-expected-seq",
    ProducerReceivedSeq = "Producer-Received-Seq" / "producer-received-seq",
    ProducerSeq = "Producer-Seq" / "producer-seq",
    RetryAfter = "Retry-After" / "retry-after",
    StreamClosed = "Stream-Closed" / "stream-closed",
    StreamCursor = "Stream-Cursor" / "stream-cursor",
    StreamExpiresAt = "Stream-Expires-At" / "stream-expires-at",
    StreamHead = "Stream-Head" / "stream-head",
    StreamNextOffset = "Stream-Next-Offset" / "stream-next-offset",
    StreamOffset = "Stream-Offset" / "stream-offset",
    StreamRecordFirst = "Stream-Record-First" / "stream-record-first",
    StreamRecordNext = "Stream-Record-Next" / "stream-record-next",
    StreamRecordStart = "Stream-Record-Start" / "stream-record-start",
    StreamRetentionAge = "Stream-Retention-Age" / "stream-retention-age",
    StreamRetentionBytes = "Stream-Retention-Bytes" / "stream-retention-bytes",
    StreamRetentionRecords = "Stream-Retention-Records" / "stream-retention-records",
    StreamSseDataEncoding = "Stream-SSE-Data-Encoding" / "stream-sse-data-encoding",
    StreamTime = "Stream-Time" / "stream-time",
    StreamTtl = "Stream-TTL" / "stream-ttl",
    StreamUpToDate = "Stream-Up-To-Date" / "stream-up-to-date",
    Vary = "Vary" / "vary",
    WwwAuthenticate = "WWW-Authenticate" / "www-authenticate",
    XAccelBuffering = "X-Accel-Buffering" / "x-accel-buffering",
}

/// Whether a field of this name is among `fields`.
pub(crate) fn is_named(fields: &[httparse::Header<'_>], name: &'static str) -> bool {
    fields.iter().any(|item| is(item.name, name))
}

/// Whether a field's name is one of ours, in any case. Several letters are compared at a time.
///
/// Our names consist of letters and hyphens. Of the characters of names, only letters of one kind differ from these
/// in nothing but the bit of their case.
#[inline]
pub(crate) fn is(name: &str, ours: &'static str) -> bool {
    let (name, ours) = (name.as_bytes(), ours.as_bytes());
    let length = ours.len();
    if name.len() != length {
        return false;
    }
    if length < 8 {
        return name.eq_ignore_ascii_case(ours);
    }
    let (words, _) = ours.as_chunks::<8>();
    let (named, _) = name.as_chunks::<8>();
    let words_equal =
        named.iter().zip(words).fold(true, |equal, (one, other)| equal & (low(one) == low(other)));
    let ends = (name.last_chunk::<8>(), ours.last_chunk::<8>());
    words_equal && matches!(ends, (Some(one), Some(other)) if low(one) == low(other))
}

const fn low(letters: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*letters) | 0x2020_2020_2020_2020
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_equal_in_any_case_and_no_other_ones_are() {
        for ours in [HOST, IF_MATCH, CONTENT_TYPE, CONTENT_LENGTH, STREAM_RETENTION_RECORDS] {
            assert!(
                is(ours, ours) && is(&ours.to_uppercase(), ours) && is(&ours.to_lowercase(), ours)
            );
            for at in 0..ours.len() {
                for other in
                    (b'!'..=b'~').filter(|byte| !byte.eq_ignore_ascii_case(&ours.as_bytes()[at]))
                {
                    let mut name = ours.as_bytes().to_vec();
                    name[at] = other;
                    assert!(
                        !is(std::str::from_utf8(&name).unwrap(), ours),
                        "{}",
                        name.escape_ascii()
                    );
                }
            }
            assert!(!is(&ours[1..], ours) && !is(&format!("{ours}s"), ours));
        }
    }
}
