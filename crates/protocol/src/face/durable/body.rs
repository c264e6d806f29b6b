//! Bodies of writes, and the frame around bodies of reads.

use super::problem::{Code, Problem, detail::quote};
use model::limits::CONTENT_TYPE_BYTES_MAX;
use std::borrow::Cow;
use stream::{ContentType, messages};

/// What a body becomes in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared<'b> {
    /// The bytes to store: the body itself, or its messages in stored form.
    pub data: Cow<'b, [u8]>,
    /// Records in it: JSON messages; else 1 if there is data and 0 if not.
    pub record_count: u32,
}

/// No data.
const EMPTY: Prepared<'static> = Prepared { data: Cow::Borrowed(&[]), record_count: 0 };

/// Why a body is there; the rules for empty arrays differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// First content of a new stream: may be empty.
    Create,
    /// Content to add.
    Append,
}

/// Turns a body into what is stored.
///
/// # Errors
/// The [`Problem`] to answer if the stream holds JSON and this is none, or an append brings no
/// message.
pub fn prepare<'b>(
    content_type: &ContentType,
    body: &'b [u8],
    purpose: Purpose,
) -> Result<Prepared<'b>, Problem> {
    if body.is_empty() {
        return Ok(EMPTY);
    }
    if !content_type.is_json() {
        return Ok(Prepared { data: Cow::Borrowed(body), record_count: 1 });
    }
    // PROTOCOL §9.1.2 flattening, §9.1.4 validation
    let flattened = messages::flatten(body).map_err(|error| invalid_json(&error))?;
    if flattened.count == 0 && purpose == Purpose::Append {
        // PROTOCOL §9.1.3
        let detail = "An empty array appends nothing; send at least one message.";
        return Err(Problem::with_detail(Code::InvalidJson, detail));
    }
    Ok(Prepared { data: Cow::Owned(flattened.stored), record_count: flattened.count })
}

/// What to answer to a body that is not the JSON it should be.
#[must_use]
pub fn invalid_json(error: &messages::JsonError) -> Problem {
    let detail = match error {
        messages::JsonError::TooDeep => {
            format!("The body is nested deeper than {} levels.", messages::JSON_DEPTH_MAX)
        }
        messages::JsonError::Invalid { line, column } => {
            format!("The body is not one JSON value (line {line}, column {column}).")
        }
    };
    Problem::with_detail(Code::InvalidJson, detail)
}

/// Refuses a compressed body. It would be stored as it is, and readers would not know.
pub(crate) fn check_encoding(value: Option<&str>) -> Result<(), Problem> {
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
pub(crate) enum ContentTypeField {
    Absent,
    Valid(ContentType),
    Malformed(Box<str>),
}

impl ContentTypeField {
    pub(crate) fn new(value: Option<&str>) -> Self {
        if let Some(known) = value.and_then(ContentType::known) {
            return Self::Valid(known);
        }
        match value {
            None | Some("") => Self::Absent,
            Some(value) if is_content_type(value) => Self::Valid(ContentType::new(value)),
            Some(value) => Self::Malformed(quote(value.as_bytes()).into()),
        }
    }

    pub(crate) fn optional(self) -> Result<Option<ContentType>, Problem> {
        match self {
            Self::Absent => Ok(None),
            Self::Valid(content_type) => Ok(Some(content_type)),
            Self::Malformed(quoted) => {
                let detail = format!(
                    "The content type {quoted} is not type/subtype with parameters, at most {CONTENT_TYPE_BYTES_MAX} bytes."
                );
                Err(Problem::with_detail(Code::InvalidContentType, detail))
            }
        }
    }

    /// PROTOCOL §5.2: data needs a content type.
    pub(crate) fn require(self) -> Result<ContentType, Problem> {
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
    is_media_type && is_printable && value.len() <= CONTENT_TYPE_BYTES_MAX
}

/// The text around the stored bytes of a range in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Before the stored bytes.
    pub prefix: &'static [u8],
    /// How many of the range's last bytes are left out: 1 for the last message's comma.
    pub omitted_bytes: u64,
    /// After the stored bytes.
    pub suffix: &'static [u8],
}

impl Frame {
    /// The frame of a range of `range_bytes` stored bytes.
    // PROTOCOL §9.1.5: a JSON array, `[]` if the range is empty
    #[must_use]
    pub fn of(content_type: &ContentType, range_bytes: u64) -> Self {
        if content_type.is_json() {
            Self { prefix: b"[", omitted_bytes: range_bytes.min(1), suffix: b"]" }
        } else {
            Self { prefix: b"", omitted_bytes: 0, suffix: b"" }
        }
    }

    /// Length of the body of a range of `range_bytes` stored bytes.
    #[must_use]
    pub fn body_bytes(&self, range_bytes: u64) -> u64 {
        range_bytes - self.omitted_bytes + (self.prefix.len() + self.suffix.len()) as u64
    }
}
