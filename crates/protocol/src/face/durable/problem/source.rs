//! From what went wrong inside to the problem that a client sees.

use super::{Code, Facts, Problem, detail::quote};
use crate::http1::{ChunkError, HeadError};
use model::ByteOffset;
use stream::{ConfigField, Refusal, messages};

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let code = code_of(refusal);
        match facts_of(refusal) {
            Facts::None => {}
            facts => return Self { facts, ..Self::new(code) },
        }
        match detail_of(refusal) {
            Some(detail) => Self::with_detail(code, detail),
            None => Self::new(code),
        }
    }
}

fn code_of(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NotFound => Code::NotFound,
        Refusal::Gone => Code::Gone,
        Refusal::PathBlocked => Code::PathBlocked,
        Refusal::Closed { .. } => Code::Closed,
        Refusal::ContentType { .. } | Refusal::ForkContentType { .. } => Code::ContentTypeMismatch,
        Refusal::StreamSeq { .. } => Code::StreamSeqConflict,
        Refusal::Precondition { .. } => Code::PreconditionFailed,
        Refusal::RecordMatch { .. } => Code::RecordMismatch,
        Refusal::StaleEpoch { .. } => Code::StaleEpoch,
        Refusal::EpochStart { .. } => Code::EpochStart,
        Refusal::SeqGap { .. } => Code::SeqGap,
        Refusal::Config { .. } => Code::ConfigMismatch,
        Refusal::ForkSourceNotFound => Code::ForkSourceNotFound,
        Refusal::ForkSourceGone => Code::ForkSourceGone,
        Refusal::ForkBeyondTail { .. }
        | Refusal::ForkSubOffset { .. }
        | Refusal::ForkTrimmed { .. } => Code::InvalidFork,
        Refusal::ForkDepth => Code::ForkDepth,
        Refusal::Damaged => Code::Damaged,
    }
}

fn facts_of(refusal: &Refusal) -> Facts {
    match *refusal {
        Refusal::Closed { tail } => Facts::Closed { tail },
        Refusal::Precondition { tail } => Facts::Tail { tail, next_record: None },
        Refusal::RecordMatch { next_record, tail } => {
            Facts::Tail { tail, next_record: Some(next_record) }
        }
        Refusal::StaleEpoch { current } => Facts::StaleEpoch { current },
        Refusal::SeqGap { expected, received } => Facts::SeqGap { expected, received },
        _ => Facts::None,
    }
}

fn detail_of(refusal: &Refusal) -> Option<String> {
    let detail = match refusal {
        Refusal::ContentType { expected } | Refusal::ForkContentType { expected } => {
            format!("The stream holds {}; send that.", quote(expected.as_str().as_bytes()))
        }
        Refusal::StreamSeq { last } => {
            format!(
                "The last accepted sequence is {}; send a Stream-Seq that sorts after it.",
                quote(last.as_bytes())
            )
        }
        Refusal::EpochStart { received } => {
            format!("A new Producer-Epoch begins at Producer-Seq 0, but {received} came.")
        }
        Refusal::Config { differs } => {
            format!(
                "{} differs from the existing stream's; repeat it or use another path.",
                field_of(*differs)
            )
        }
        Refusal::ForkBeyondTail { tail } => {
            format!("Stream-Fork-Offset lies beyond the source's tail, byte {tail}.")
        }
        Refusal::ForkSubOffset { available } => {
            format!(
                "Stream-Fork-Sub-Offset passes the next boundary: at most {available} is possible here."
            )
        }
        Refusal::ForkTrimmed { head } => {
            format!("Stream-Fork-Offset lies before the source's first retained byte, {head}.")
        }
        _ => return None,
    };
    Some(detail)
}

fn field_of(field: ConfigField) -> &'static str {
    match field {
        ConfigField::ContentType => "Content-Type",
        ConfigField::Lifetime => "Stream-TTL or Stream-Expires-At",
        ConfigField::Closed => "Stream-Closed",
        ConfigField::Fork => "Stream-Forked-From, Stream-Fork-Offset or Stream-Fork-Sub-Offset",
    }
}

impl From<&messages::JsonError> for Problem {
    fn from(error: &messages::JsonError) -> Self {
        let detail = match error {
            messages::JsonError::TooDeep => {
                format!("The body is nested deeper than {} levels.", messages::JSON_DEPTH_MAX)
            }
            messages::JsonError::Invalid { line, column } => {
                format!("The body is not one JSON value (line {line}, column {column}).")
            }
        };
        Self::with_detail(Code::InvalidJson, detail)
    }
}

impl From<HeadError> for Problem {
    fn from(error: HeadError) -> Self {
        let (code, detail) = match error {
            HeadError::NotHttp => (
                Code::MalformedRequest,
                "The connection does not begin with an HTTP request (TLS on a plain port?).",
            ),
            HeadError::PlainOnTls => {
                (Code::MalformedRequest, "This port speaks TLS; use https:// instead of http://.")
            }
            HeadError::Http2Preface => (
                Code::HttpVersion,
                "HTTP/2 with prior knowledge is not offered on this port; use HTTP/1.1.",
            ),
            HeadError::Version => {
                (Code::HttpVersion, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
            }
            HeadError::RequestLine => {
                (Code::MalformedRequest, "The request line is not `METHOD target HTTP/1.1`.")
            }
            HeadError::FieldName => (
                Code::MalformedRequest,
                "A field name is no token, is followed by a blank, or its line is folded.",
            ),
            HeadError::FieldValue => {
                (Code::MalformedRequest, "A field value holds a control character.")
            }
            HeadError::LineEnd => (Code::MalformedRequest, "A line does not end with CR LF."),
            HeadError::HeadTooLong { limit_bytes } => {
                return Self::with_detail(
                    Code::HeadTooLong,
                    format!("The head is longer than {limit_bytes} bytes."),
                );
            }
            HeadError::TooManyFields => {
                (Code::HeadTooLong, "The request has too many header fields.")
            }
            HeadError::TargetTooLong => return Self::new(Code::TargetTooLong),
            HeadError::Target => (
                Code::MalformedRequest,
                "The target must be an absolute path or http URL of ASCII characters, without a fragment.",
            ),
            HeadError::Connect => return Self::new(Code::Connect),
            HeadError::HostMissing => {
                (Code::MalformedRequest, "HTTP/1.1 requests must have a Host field.")
            }
            HeadError::HostInvalid => {
                (Code::MalformedRequest, "The Host field is malformed or comes twice.")
            }
            HeadError::ContentLength => {
                (Code::AmbiguousFraming, "Content-Length must be digits only and come once.")
            }
            HeadError::LengthAndEncoding => return Self::new(Code::AmbiguousFraming),
            HeadError::TransferEncoding => return Self::new(Code::TransferCoding),
            HeadError::BodyTooLong { length_bytes, limit_bytes } => {
                return too_large(Some(length_bytes), limit_bytes);
            }
            HeadError::Expect => return Self::new(Code::Expectation),
        };
        Self::with_detail(code, detail)
    }
}

impl From<ChunkError> for Problem {
    fn from(error: ChunkError) -> Self {
        let detail = match error {
            ChunkError::Size => "A chunk size must be 1 to 16 hexadecimal digits.",
            ChunkError::LineTooLong => "A chunk's size line is too long.",
            ChunkError::LineEnd => "A chunk or its size line does not end with CR LF.",
            ChunkError::TrailersTooLong => "The trailer fields are too long.",
            ChunkError::BodyTooLong { limit_bytes } => return too_large(None, limit_bytes),
        };
        Self::with_detail(Code::AmbiguousFraming, detail)
    }
}

fn too_large(length_bytes: Option<u64>, limit_bytes: u64) -> Problem {
    let length = length_bytes
        .map_or_else(|| "more came".to_owned(), |bytes| format!("the body has at least {bytes}"));
    let detail = format!(
        "At most {limit_bytes} bytes are taken at once, but {length}; split the data over several appends."
    );
    Problem::with_detail(Code::BodyTooLarge, detail)
}

impl Problem {
    /// Damage met by a read or found by recovery.
    #[must_use]
    pub fn damaged(file: &str, first_byte: u64, last_byte: u64) -> Self {
        let file = quote(file.as_bytes());
        let detail = format!(
            "Bytes {first_byte} to {last_byte} of {file} are damaged; see the server's log."
        );
        Self::with_detail(Code::Damaged, detail)
    }

    /// A read that begins before the first retained byte. PROTOCOL §5.6, 410.
    #[must_use]
    pub fn trimmed(head: ByteOffset) -> Self {
        let detail = format!("The first retained byte of the stream is at offset {head}.");
        Self { facts: Facts::Trimmed { head }, ..Self::with_detail(Code::OffsetTrimmed, detail) }
    }

    /// A read or a trim at a record, or a trim at a byte, that the stream does not have yet.
    #[must_use]
    pub fn beyond_tail(tail: ByteOffset, next_record: u64) -> Self {
        let facts = Facts::Tail { tail, next_record: Some(next_record) };
        Self { facts, ..Self::new(Code::BeyondTail) }
    }

    /// A body that grew beyond the limit while it came.
    #[must_use]
    pub fn body_too_large(limit_bytes: u64) -> Self {
        too_large(None, limit_bytes)
    }
}
