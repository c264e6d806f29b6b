//! `POST`. PROTOCOL §5.2 and §5.2.1.

use super::{fields::Fields, is_true, number};
use crate::face::durable::{
    body::{self, ContentTypeField, Purpose},
    problem::{Code, Problem, detail::quote},
};
use model::{StreamPath, limits};
use std::borrow::Cow;
use stream::{Append, Producer};

/// An append whose body has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendRequest {
    /// The stream.
    pub path: StreamPath,
    stream_seq: Option<Box<str>>,
    producer: Option<Producer>,
    close: bool,
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
}

impl AppendRequest {
    pub(super) fn parse(path: StreamPath, fields: &Fields<'_>) -> Result<Self, Problem> {
        body::check_encoding(fields.content_encoding)?;
        Ok(Self {
            path,
            stream_seq: stream_seq(fields)?,
            producer: producer(fields)?,
            close: is_true(fields.stream_closed),
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
            ContentTypeField::Valid(content_type) => Some(content_type.clone()),
            ContentTypeField::Absent | ContentTypeField::Malformed(_) => None,
        };
        Append {
            content_type,
            stream_seq: self.stream_seq.clone(),
            producer: self.producer.clone(),
            close: self.close,
            record_count: 1,
        }
    }

    /// Joins the body.
    ///
    /// # Errors
    /// The [`Problem`] to answer: an empty body that does not close, a missing or malformed content
    /// type, or JSON that is none.
    pub fn finish(self, body: &[u8]) -> Result<ReadyAppend<'_>, Problem> {
        let Self { path, stream_seq, producer, close, content_type } = self;
        if body.is_empty() {
            // PROTOCOL §5.2: an empty body is valid only to close, and its content type is ignored.
            if !close {
                return Err(Problem::new(Code::EmptyAppend));
            }
            let append =
                Append { content_type: None, stream_seq, producer, close, record_count: 0 };
            return Ok(ReadyAppend { path, append, data: Cow::Borrowed(body) });
        }
        let content_type = content_type.require()?;
        let prepared = body::prepare(&content_type, body, Purpose::Append)?;
        let (content_type, record_count) = (Some(content_type), prepared.record_count);
        let append = Append { content_type, stream_seq, producer, close, record_count };
        Ok(ReadyAppend { path, append, data: prepared.data })
    }
}

// PROTOCOL §5.2 wants the scope documented: one sequence per stream, for all writers.
fn stream_seq(fields: &Fields<'_>) -> Result<Option<Box<str>>, Problem> {
    let Some(seq) = fields.stream_seq else { return Ok(None) };
    if seq.is_empty() || seq.len() > limits::STREAM_SEQ_BYTES_MAX {
        let detail = format!(
            "Stream-Seq must have 1 to {} bytes, not {}.",
            limits::STREAM_SEQ_BYTES_MAX,
            seq.len()
        );
        return Err(Problem::with_detail(Code::InvalidHeader, detail));
    }
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
    if id.is_empty() || id.len() > limits::PRODUCER_ID_BYTES_MAX {
        let detail = format!(
            "Producer-Id must have 1 to {} bytes, not {}.",
            limits::PRODUCER_ID_BYTES_MAX,
            id.len()
        );
        return Err(Problem::with_detail(Code::InvalidProducer, detail));
    }
    let epoch = producer_number("Producer-Epoch", epoch)?;
    let seq = producer_number("Producer-Seq", seq)?;
    Ok(Some(Producer { id: id.into(), epoch, seq }))
}

fn producer_number(name: &str, text: &str) -> Result<u64, Problem> {
    number::parse(text, limits::PRODUCER_NUMBER_MAX).ok_or_else(|| {
        let detail =
            format!("{name} is {}, not a decimal number from 0 to 2^53-1.", quote(text.as_bytes()));
        Problem::with_detail(Code::InvalidProducer, detail)
    })
}
