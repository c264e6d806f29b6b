//! Heads of answers, read.

use crate::face::durable::offset;
use crate::field;
use crate::limits::{HEAD_BYTES_MAX, HEADER_COUNT_MAX};
use model::ByteOffset;
use std::mem::MaybeUninit;

/// How the body of an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerBody {
    /// After this many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What a client needs to know of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    /// The status.
    pub status: u16,
    /// Length of the head: the body begins there.
    pub head_bytes: usize,
    /// How the body ends.
    pub body: AnswerBody,
    /// Whether the connection takes another request after this.
    pub keep_alive: bool,
    /// `Stream-Next-Offset`.
    pub next: Option<ByteOffset>,
    /// `Stream-Up-To-Date`: nothing followed at that moment.
    pub up_to_date: bool,
    /// `Stream-Closed`: nothing will follow.
    pub closed: bool,
    /// `Stream-Cursor`, to be sent with the next live read.
    pub cursor: Option<u64>,
    /// `Retry-After` in seconds.
    pub retry_after_seconds: Option<u32>,
    /// `Content-Type`.
    pub media_type: Option<Box<str>>,
    /// Whether the data of events comes in base64.
    pub base64: bool,
}

/// Bytes that are no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerError {
    /// Not HTTP/1.
    Malformed,
    /// The head is longer than [`HEAD_BYTES_MAX`] or has more than [`HEADER_COUNT_MAX`] fields.
    TooLong,
    /// The length is no number, or there are two that differ.
    Length,
}

impl std::fmt::Display for AnswerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the answer is not HTTP/1",
            Self::TooLong => "the head of the answer is too long",
            Self::Length => "the length of the answer is no number",
        })
    }
}

impl std::error::Error for AnswerError {}

/// Reads the head of an answer at the start of `input`; `None` while it is incomplete. `is_head`
/// says that the request was a HEAD, whose answer has no body.
///
/// # Errors
/// [`AnswerError`]: the connection cannot be used any more.
pub fn parse_answer(input: &[u8], is_head: bool) -> Result<Option<AnswerHead>, AnswerError> {
    let mut slots = [const { MaybeUninit::uninit() }; HEADER_COUNT_MAX];
    let mut answer = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut answer,
        input,
        &mut slots,
    );
    let head_bytes = match parsed {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) if input.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(AnswerError::TooLong);
        }
        Err(_) => return Err(AnswerError::Malformed),
    };
    let status = answer.code.ok_or(AnswerError::Malformed)?;
    let mut head = AnswerHead {
        status,
        head_bytes,
        body: AnswerBody::UntilClose,
        keep_alive: answer.version == Some(1),
        next: None,
        up_to_date: false,
        closed: false,
        cursor: None,
        retry_after_seconds: None,
        media_type: None,
        base64: false,
    };
    for item in answer.headers.iter() {
        head.take(item)?;
    }
    if is_head || matches!(status, 100..=199 | 204 | 304) {
        head.body = AnswerBody::Length(0);
    }
    if head.body == AnswerBody::UntilClose {
        head.keep_alive = false;
    }
    Ok(Some(head))
}

impl AnswerHead {
    /// Whether the request was done.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn take(&mut self, item: &httparse::Header<'_>) -> Result<(), AnswerError> {
        let is = |ours: &'static str| field::is(item.name, ours);
        let Ok(text) = std::str::from_utf8(item.value) else { return Ok(()) };
        if is(field::CONTENT_LENGTH) {
            let length = text.parse().map_err(|_| AnswerError::Length)?;
            let before = std::mem::replace(&mut self.body, AnswerBody::Length(length));
            if matches!(before, AnswerBody::Length(other) if other != length) {
                return Err(AnswerError::Length);
            }
        } else if is(field::TRANSFER_ENCODING) {
            self.body = AnswerBody::Chunked;
        } else if is(field::CONNECTION) {
            self.keep_alive &= !text.eq_ignore_ascii_case("close");
        } else if is(field::STREAM_NEXT_OFFSET) {
            self.next = offset::parse(item.value).ok();
        } else if is(field::STREAM_UP_TO_DATE) {
            self.up_to_date = text.eq_ignore_ascii_case("true");
        } else if is(field::STREAM_CLOSED) {
            self.closed = text.eq_ignore_ascii_case("true");
        } else if is(field::STREAM_CURSOR) {
            self.cursor = text.parse().ok();
        } else if is(field::RETRY_AFTER) {
            self.retry_after_seconds = text.parse().ok();
        } else if is(field::CONTENT_TYPE) {
            self.media_type = Some(text.into());
        } else if is(field::STREAM_SSE_DATA_ENCODING) {
            self.base64 = text.eq_ignore_ascii_case("base64");
        }
        Ok(())
    }
}
