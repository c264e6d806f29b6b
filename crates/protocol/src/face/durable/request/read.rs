//! `GET`. PROTOCOL §5.6–5.8 and §8.

use super::fields::{Fields, percent_decode};
use crate::{
    encoding,
    face::durable::{
        cursor,
        offset::{self, OffsetError},
        problem::{Code, Problem, detail::quote},
    },
    limits::IF_NONE_MATCH_BYTES_MAX,
};
use model::{ReadFrom, StreamPath};
use std::borrow::Cow;

/// A read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stream.
    pub path: StreamPath,
    /// Where to begin: `offset`, which is `-1` (or left out) for the head, and `now` for the tail.
    pub offset: ReadFrom,
    /// How to continue at the tail.
    pub live: Live,
    /// The cursor that the client echoes.
    pub cursor: Option<u64>,
    /// `If-None-Match` as it came; see [`crate::etag::ETag::matches`].
    pub if_none_match: Option<Box<str>>,
    /// The client takes gzip.
    pub accepts_gzip: bool,
    /// The client wants all SSE data in base64: `encoding=base64`, or the request field
    /// `Stream-SSE-Data-Encoding: base64`.
    pub base64: bool,
}

/// How a read continues at the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// It ends. PROTOCOL §5.6.
    CatchUp,
    /// It waits for the next append. PROTOCOL §5.7.
    LongPoll,
    /// It follows all appends. PROTOCOL §5.8.
    Sse,
}

impl ReadRequest {
    pub(super) fn parse(
        path: StreamPath,
        query: &str,
        fields: &Fields<'_>,
    ) -> Result<Self, Problem> {
        let query = Query::parse(query)?;
        let live = live(query.live.as_deref())?;
        let if_none_match = fields.if_none_match.text();
        let asks_base64 =
            |value: Option<&str>| value.is_some_and(|value| value.eq_ignore_ascii_case("base64"));
        Ok(Self {
            path,
            offset: read_offset(query.offset.as_deref(), live)?,
            live,
            cursor: query.cursor.as_deref().and_then(cursor::parse),
            if_none_match: if_none_match
                .filter(|list| list.len() <= IF_NONE_MATCH_BYTES_MAX)
                .map(Into::into),
            accepts_gzip: fields.accept_encoding.text().is_some_and(encoding::accepts_gzip),
            base64: asks_base64(query.encoding.as_deref()) || asks_base64(fields.sse_data_encoding),
        })
    }
}

fn live(value: Option<&str>) -> Result<Live, Problem> {
    match value {
        None => Ok(Live::CatchUp),
        Some("long-poll") => Ok(Live::LongPoll),
        Some("sse") => Ok(Live::Sse),
        Some(other) => {
            let detail = format!("live is {}, neither long-poll nor sse.", quote(other.as_bytes()));
            Err(Problem::with_detail(Code::InvalidQuery, detail))
        }
    }
}

fn read_offset(value: Option<&str>, live: Live) -> Result<ReadFrom, Problem> {
    match value {
        // PROTOCOL §5.7, §5.8: live reads must name an offset.
        None if live != Live::CatchUp => Err(Problem::new(Code::OffsetMissing)),
        None | Some("-1") => Ok(ReadFrom::Begin),
        Some("now") => Ok(ReadFrom::Now),
        Some(text) => offset::parse(text.as_bytes()).map(ReadFrom::At).map_err(|error| {
            let quoted = quote(text.as_bytes());
            Problem::with_detail(Code::InvalidOffset, no_offset(&quoted, error))
        }),
    }
}

fn no_offset(quoted: &str, error: OffsetError) -> String {
    match error {
        OffsetError::Malformed => format!(
            "The offset {quoted} is none; use -1, now, or a value of Stream-Next-Offset as it came."
        ),
        OffsetError::Reserved => format!(
            "The offset {quoted} is reserved: no second part of 10^15 or more has a meaning yet; use a value of Stream-Next-Offset as it came."
        ),
    }
}

/// The parameters of a query that the protocol defines. Others are ignored. PROTOCOL §5.6–5.8.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query<'q> {
    offset: Option<Cow<'q, str>>,
    live: Option<Cow<'q, str>>,
    cursor: Option<Cow<'q, str>>,
    encoding: Option<Cow<'q, str>>,
}

impl<'q> Query<'q> {
    fn parse(query: &'q str) -> Result<Self, Problem> {
        let mut found = Self::default();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match key {
                "offset" => &mut found.offset,
                "live" => &mut found.live,
                "cursor" => &mut found.cursor,
                "encoding" => &mut found.encoding,
                _ => continue,
            };
            let code = if key == "offset" { Code::InvalidOffset } else { Code::InvalidQuery };
            let invalid =
                |why: &str| Problem::with_detail(code, format!("The query parameter {key} {why}."));
            let value = percent_decode(value).ok_or_else(|| invalid("has a bad percent escape"))?;
            if slot.replace(value).is_some() {
                return Err(invalid("comes twice"));
            }
        }
        Ok(found)
    }
}
