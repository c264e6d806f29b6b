//! Request targets: stream paths and query parameters.

use super::problem::{Code, Problem, detail::quote};
use memchr::memchr;
use model::{PathError, StreamPath};
use std::borrow::Cow;

/// Where streams are mounted.
pub(crate) const MOUNT: &str = "/v1/stream/";

/// First segment of paths that no stream may have. PROTOCOL §6.
pub(crate) const RESERVED: &str = "__ds";

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
    let after = decoded.strip_prefix(RESERVED);
    if after.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return Err(Problem::new(Code::Reserved));
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
    if memchr(b'%', text.as_bytes()).is_none() {
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

/// The parameters of a query that the protocol defines. Others are ignored. PROTOCOL §5.6–5.8.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query<'q> {
    pub(crate) offset: Option<Cow<'q, str>>,
    pub(crate) live: Option<Cow<'q, str>>,
    pub(crate) cursor: Option<Cow<'q, str>>,
    pub(crate) encoding: Option<Cow<'q, str>>,
}

impl<'q> Query<'q> {
    pub(crate) fn parse(query: &'q str) -> Result<Self, Problem> {
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
