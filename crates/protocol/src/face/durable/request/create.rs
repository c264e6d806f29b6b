//! `PUT`. PROTOCOL §5.1, forks §4.2.

use super::{
    Way,
    append::{ContentTypeField, check_encoding, prepare},
    fields::{Fields, MOUNT, is_true, parse_number, parse_time},
    settings::{record_time, retention},
    stream_path_by,
};
use crate::face::durable::{
    offset::{self, OffsetError},
    problem::{Code, Problem, detail::quote},
};
use model::StreamPath;
use std::borrow::Cow;
use stream::{ContentType, ForkRequest, Lifetime};

/// What a stream holds if its creator does not say. PROTOCOL §5.1.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// A creation whose body has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRequest {
    /// What is asked for. Its records are counted when the body is there.
    pub asked: Box<stream::CreateRequest>,
    /// For the `Location` of the answer.
    pub location: Box<[u8]>,
}

/// A creation that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyCreate<'b> {
    /// What is asked for.
    pub asked: Box<stream::CreateRequest>,
    /// For the `Location` of the answer.
    pub location: Box<[u8]>,
    /// The first data: in stored form, or as it came for a fork that inherits its content type.
    pub data: Cow<'b, [u8]>,
}

impl CreateRequest {
    pub(super) fn parse(
        path: StreamPath,
        location: Box<[u8]>,
        fields: &Fields<'_>,
        way: &Way<'_>,
    ) -> Result<Self, Problem> {
        check_encoding(fields.content_encoding)?;
        let fork = fork(fields, way)?;
        let mut content_type = ContentTypeField::new(fields.content_type).optional()?;
        if fork.is_none() {
            content_type = content_type.or_else(|| Some(ContentType::new(CONTENT_TYPE_DEFAULT)));
        }
        let asked = stream::CreateRequest {
            path,
            content_type,
            lifetime: lifetime(fields)?,
            close: is_true(fields.stream_closed),
            fork,
            retention: retention(fields)?,
            record_time: record_time(fields)?,
            record_count: 0,
        };
        Ok(Self { asked: Box::new(asked), location })
    }

    /// Joins the body.
    ///
    /// # Errors
    /// The [`Problem`] to answer: JSON that is none.
    pub fn finish(self, body: &[u8]) -> Result<ReadyCreate<'_>, Problem> {
        let Self { mut asked, location } = self;
        let data = match &asked.content_type {
            None => {
                asked.record_count = u32::from(!body.is_empty());
                Cow::Borrowed(body)
            }
            Some(content_type) => {
                let prepared = prepare(content_type, body)?;
                asked.record_count = prepared.record_count;
                prepared.data
            }
        };
        Ok(ReadyCreate { asked, location, data })
    }
}

fn lifetime(fields: &Fields<'_>) -> Result<Lifetime, Problem> {
    let invalid = |detail: String| Problem::with_detail(Code::InvalidLifetime, detail);
    match (fields.stream_ttl, fields.stream_expires_at) {
        (None, None) => Ok(Lifetime::Forever),
        (Some(_), Some(_)) => {
            Err(invalid("Stream-TTL and Stream-Expires-At exclude each other.".into()))
        }
        (Some(ttl), None) => match parse_number(ttl, u64::MAX) {
            Some(seconds) => Ok(Lifetime::Ttl { seconds }),
            None => Err(invalid(format!(
                "Stream-TTL is {}, not a whole number of seconds up to {} without leading zeros.",
                quote(ttl.as_bytes()),
                u64::MAX
            ))),
        },
        (None, Some(at)) => match parse_time(at) {
            Some(at) => Ok(Lifetime::ExpiresAt(at)),
            None => Err(invalid(format!(
                "Stream-Expires-At is {}, not an RFC 3339 time.",
                quote(at.as_bytes())
            ))),
        },
    }
}

fn fork(fields: &Fields<'_>, way: &Way<'_>) -> Result<Option<ForkRequest>, Problem> {
    let invalid = |detail: String| Problem::with_detail(Code::InvalidFork, detail);
    let Some(source) = fields.forked_from else {
        // PROTOCOL §5.1: both fields require `Stream-Forked-From`.
        return match (fields.fork_offset, fields.fork_sub_offset) {
            (None, None) => Ok(None),
            _ => Err(invalid(
                "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From.".into(),
            )),
        };
    };
    let not_a_path = || {
        invalid(format!(
            "Stream-Forked-From is {}, not {}{{path}}.",
            quote(source.as_bytes()),
            MOUNT
        ))
    };
    if source.contains(['?', '#']) {
        return Err(not_a_path());
    }
    let source = stream_path_by(way, source)
        .ok_or_else(not_a_path)?
        .map_err(|problem| invalid(format!("Stream-Forked-From: {}", problem.detail())))?;
    let offset = match fields.fork_offset {
        None => None,
        Some(text) => {
            let parsed = offset::parse(text.as_bytes());
            Some(parsed.map_err(|error| invalid(no_fork_offset(text, error)))?)
        }
    };
    let sub_offset = match fields.fork_sub_offset {
        None => 0,
        Some(text) => parse_number(text, u64::MAX).ok_or_else(|| {
            invalid(format!(
                "Stream-Fork-Sub-Offset is {}, not a decimal number without leading zeros.",
                quote(text.as_bytes())
            ))
        })?,
    };
    Ok(Some(ForkRequest { source, offset, sub_offset }))
}

fn no_fork_offset(text: &str, error: OffsetError) -> String {
    let quoted = quote(text.as_bytes());
    match error {
        OffsetError::Malformed => {
            format!("Stream-Fork-Offset is {quoted}, not a value of Stream-Next-Offset.")
        }
        OffsetError::Reserved => format!(
            "Stream-Fork-Offset is {quoted}, which is reserved: no second part of 10^15 or more has a meaning yet."
        ),
    }
}
