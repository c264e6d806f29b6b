//! `POST`, and the bodies of writes. PROTOCOL §5.2 and §5.2.1.

use super::{
    condition::condition,
    fields::{Fields, is_true, parse_number},
    settings::record_time,
};
use crate::face::durable::problem::{Code, Problem, detail::quote};
use model::{StreamPath, limits};
use std::borrow::Cow;
use stream::{Append, AppendType, Condition, ContentType, Producer, RecordTime, messages};

/// An append whose body has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendRequest {
    /// The stream.
    pub path: StreamPath,
    stream_seq: Option<Box<str>>,
    producer: Option<Producer>,
    close: bool,
    record_time: Option<RecordTime>,
    condition: Option<Box<Condition>>,
    shows_records: bool,
    content_type: ContentTypeField,
}

/// An append that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyAppend<'b> {
    /// The stream.
    pub path: StreamPath,
    /// The command.
    pub append: Append,
    /// The bytes to store: the body itself, or its messages in stored form.
    pub data: Cow<'b, [u8]>,
    /// The answer says which numbers its records got.
    pub shows_records: bool,
}

impl AppendRequest {
    pub(super) fn parse(path: StreamPath, fields: &Fields<'_>) -> Result<Self, Problem> {
        check_encoding(fields.content_encoding)?;
        Ok(Self {
            path,
            stream_seq: stream_seq(fields)?,
            producer: producer(fields)?,
            close: is_true(fields.stream_closed),
            record_time: record_time(fields)?,
            condition: condition(fields)?,
            shows_records: is_true(fields.record_numbers) || fields.record_match.is_some(),
            content_type: ContentTypeField::new(fields.content_type),
        })
    }

    pub(super) fn takes_json(&self) -> bool {
        matches!(&self.content_type, ContentTypeField::Valid(content_type) if content_type.is_json())
    }

    /// The append as far as its head has it. A body follows.
    #[must_use]
    pub fn announced(&self) -> Append {
        let content_type = match &self.content_type {
            ContentTypeField::Valid(content_type) => AppendType::Named(content_type.clone()),
            ContentTypeField::Absent | ContentTypeField::Malformed(_) => AppendType::Unnamed,
        };
        Append {
            content_type,
            stream_seq: self.stream_seq.clone(),
            producer: self.producer.clone(),
            close: self.close,
            record_count: 1,
            record_time: self.record_time,
            condition: self.condition.clone(),
        }
    }

    /// Joins the body.
    ///
    /// # Errors
    /// The [`Problem`] to answer: an empty body that does not close, a missing or malformed content
    /// type, or JSON that is none.
    pub fn finish(self, body: &[u8]) -> Result<ReadyAppend<'_>, Problem> {
        let Self { path, stream_seq, producer, close, record_time, condition, .. } = self;
        let Self { shows_records, content_type, .. } = self;
        let (content_type, Prepared { data, record_count }, record_time) = if body.is_empty() {
            // PROTOCOL §5.2: an empty body is valid only to close, and its content type is ignored.
            if !close {
                return Err(Problem::new(Code::EmptyAppend));
            }
            let nothing = Prepared { data: Cow::Borrowed(body), record_count: 0 };
            (AppendType::Unnamed, nothing, None)
        } else {
            let content_type = content_type.require()?;
            let prepared = prepare(&content_type, body)?;
            if prepared.record_count == 0 {
                // PROTOCOL §9.1.3
                let detail = "An empty array appends nothing; send at least one message.";
                return Err(Problem::with_detail(Code::InvalidJson, detail));
            }
            (AppendType::Named(content_type), prepared, record_time)
        };
        let append = Append {
            content_type,
            stream_seq,
            producer,
            close,
            record_count,
            record_time,
            condition,
        };
        Ok(ReadyAppend { path, append, data, shows_records })
    }
}

// PROTOCOL §5.2 wants the scope documented: one sequence per stream, for all writers.
fn stream_seq(fields: &Fields<'_>) -> Result<Option<Box<str>>, Problem> {
    let Some(seq) = fields.stream_seq else { return Ok(None) };
    check_length("Stream-Seq", seq, limits::STREAM_SEQ_BYTES_MAX, Code::InvalidHeader)?;
    Ok(Some(seq.into()))
}

// PROTOCOL §5.2.1, "Request Headers"
fn producer(fields: &Fields<'_>) -> Result<Option<Producer>, Problem> {
    let (id, epoch, seq) = match (fields.producer_id, fields.producer_epoch, fields.producer_seq) {
        (None, None, None) => return Ok(None),
        (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
        _ => {
            let detail =
                "Producer-Id, Producer-Epoch and Producer-Seq must come together or not at all.";
            return Err(Problem::with_detail(Code::InvalidProducer, detail));
        }
    };
    check_length("Producer-Id", id, limits::PRODUCER_ID_BYTES_MAX, Code::InvalidProducer)?;
    let epoch = producer_number("Producer-Epoch", epoch)?;
    let seq = producer_number("Producer-Seq", seq)?;
    Ok(Some(Producer { id: id.into(), epoch, seq }))
}

fn check_length(name: &str, value: &str, bytes_max: usize, code: Code) -> Result<(), Problem> {
    if (1..=bytes_max).contains(&value.len()) {
        return Ok(());
    }
    let detail = format!("{name} must have 1 to {bytes_max} bytes, not {}.", value.len());
    Err(Problem::with_detail(code, detail))
}

fn producer_number(name: &str, text: &str) -> Result<u64, Problem> {
    parse_number(text, limits::PRODUCER_NUMBER_MAX).ok_or_else(|| {
        let detail =
            format!("{name} is {}, not a decimal number from 0 to 2^53-1.", quote(text.as_bytes()));
        Problem::with_detail(Code::InvalidProducer, detail)
    })
}

/// What a body becomes in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prepared<'b> {
    /// The bytes to store: the body itself, or its messages in stored form.
    pub(super) data: Cow<'b, [u8]>,
    /// Records in it: JSON messages; else 1 if there is data and 0 if not.
    pub(super) record_count: u32,
}

/// Turns a body into what is stored.
///
/// # Errors
/// The [`Problem`] to answer if the stream holds JSON and this is none.
pub(super) fn prepare<'b>(
    content_type: &ContentType,
    body: &'b [u8],
) -> Result<Prepared<'b>, Problem> {
    if body.is_empty() || !content_type.is_json() {
        let record_count = u32::from(!body.is_empty());
        return Ok(Prepared { data: Cow::Borrowed(body), record_count });
    }
    // PROTOCOL §9.1.2 flattening, §9.1.4 validation
    let flattened = messages::flatten(body).map_err(|error| Problem::from(&error))?;
    Ok(Prepared { data: Cow::Owned(flattened.stored), record_count: flattened.count })
}

/// Refuses a compressed body. It would be stored as it is, and readers would not know.
pub(super) fn check_encoding(value: Option<&str>) -> Result<(), Problem> {
    match value {
        None | Some("") => Ok(()),
        Some(value) if value.eq_ignore_ascii_case("identity") => Ok(()),
        Some(value) => {
            let detail = format!("Content-Encoding is {}.", quote(value.as_bytes()));
            Err(Problem::with_detail(Code::ContentEncoding, detail))
        }
    }
}

/// A `Content-Type` whose validity matters only if there is data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentTypeField {
    Absent,
    Valid(ContentType),
    Malformed(Box<str>),
}

impl ContentTypeField {
    pub(super) fn new(value: Option<&str>) -> Self {
        if let Some(known) = value.and_then(ContentType::known) {
            return Self::Valid(known);
        }
        match value {
            None | Some("") => Self::Absent,
            Some(value) if is_content_type(value) => Self::Valid(ContentType::new(value)),
            Some(value) => Self::Malformed(quote(value.as_bytes()).into()),
        }
    }

    pub(super) fn optional(self) -> Result<Option<ContentType>, Problem> {
        match self {
            Self::Absent => Ok(None),
            Self::Valid(content_type) => Ok(Some(content_type)),
            Self::Malformed(quoted) => {
                let detail = format!(
                    "The content type {quoted} is not type/subtype with parameters, at most {} bytes.",
                    limits::CONTENT_TYPE_BYTES_MAX
                );
                Err(Problem::with_detail(Code::InvalidContentType, detail))
            }
        }
    }

    /// PROTOCOL §5.2: data needs a content type.
    pub(super) fn require(self) -> Result<ContentType, Problem> {
        self.optional()?.ok_or_else(|| Problem::new(Code::InvalidContentType))
    }
}

/// `token/token` and then whatever parameters, of printable ASCII. Source: RFC 9110 §8.3.1.
fn is_content_type(value: &str) -> bool {
    let media_type = value.split(';').next().unwrap_or_default().trim_matches([' ', '\t']);
    let is_token = |token: &str| {
        !token.is_empty()
            && token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let is_media_type = media_type
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    let is_printable = value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    is_media_type && is_printable && value.len() <= limits::CONTENT_TYPE_BYTES_MAX
}
