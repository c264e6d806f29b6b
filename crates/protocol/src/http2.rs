//! Heads of requests that came over HTTP/2: what a [`RequestHead`] needs of their fields.
//!
//! Frames, compression and streams are the library's, which the crate `http2` names. It has refused malformed pseudo-fields,
//! fields of a connection, and bodies of another length than announced.
//!
//! Source: RFC 9113 §8.

use crate::{
    head::{Authority, Method, RequestHead},
    http1::{CommonFields, Framing, HeadError, HeadLimits, Target, length_of, method_of},
    limits::TARGET_BYTES_MAX,
};

/// The status that invites a body which the client has announced by `Expect`.
pub const CONTINUE: u16 = 100;

/// A head as it came.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'h, 'b> {
    /// `:method`
    pub method: &'b str,
    /// `:path`
    pub target: &'b str,
    /// `:authority`
    pub authority: Option<&'b str>,
    /// All other fields, in lower case.
    pub fields: &'h [httparse::Header<'b>],
    /// The head was the last of the request.
    pub is_end: bool,
}

/// A request head. Borrows its parts.
#[derive(Debug)]
pub struct Head<'h, 'b> {
    /// What a face reads of it.
    pub request: RequestHead<'h, 'b>,
    /// How long the body is; `None` if only its end says so.
    pub body_bytes: Option<u64>,
    /// The client waits for an invitation before it sends the body.
    pub expect_continue: bool,
    /// The origin of the web page that sends it, as it says. One that comes twice is `null`, which no list has.
    pub origin: Option<&'b [u8]>,
}

/// RFC 9113 §8.3.1: `Host` stands for `:authority`, and never names another one.
fn authority_of<'b>(
    authority: Option<&'b str>,
    host: Option<&'b [u8]>,
) -> Result<Option<Authority<'b>>, HeadError> {
    let named = match (authority.map(str::as_bytes), host) {
        (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other) => {
            return Err(HeadError::HostInvalid);
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => return Err(HeadError::HostMissing),
    };
    let named = Authority::new(named).ok_or(HeadError::HostInvalid)?;
    Ok(Some(named).filter(|name| !name.is_empty()))
}

/// Reads a head.
///
/// # Errors
/// [`HeadError`]: answer it. The connection can be used for other requests.
pub fn read<'h, 'b>(parts: &Parts<'h, 'b>, limits: &HeadLimits) -> Result<Head<'h, 'b>, HeadError> {
    let method = method_of(parts.method);
    if parts.method == "CONNECT" {
        return Err(HeadError::Connect);
    }
    if parts.target.len() > TARGET_BYTES_MAX {
        return Err(HeadError::TargetTooLong);
    }
    let is_star = parts.target == "*" && method == Method::Options;
    if !is_star && !parts.target.starts_with('/') {
        return Err(HeadError::Target);
    }
    let target = Target::parse(parts.target, method)?;
    let mut seen = CommonFields::default();
    for item in parts.fields {
        seen.take(item)?;
    }
    let body_bytes = match seen.length.map(|value| length_of(value, limits.body_bytes_max)) {
        _ if parts.is_end => Some(0),
        None => None,
        Some(framing) => match framing? {
            Framing::Length(bytes) => Some(bytes),
            Framing::None | Framing::Chunked => Some(0),
        },
    };
    let request = RequestHead {
        method,
        method_text: parts.method,
        path: target.path,
        query: target.query,
        authority: authority_of(parts.authority, seen.host)?,
        fields: parts.fields,
    };
    Ok(Head { request, body_bytes, expect_continue: seen.expects, origin: seen.origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(target: &str, authority: Option<&str>, fields: &[(&str, &str)]) -> String {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| httparse::Header { name, value: value.as_bytes() })
            .collect();
        let parts = Parts { method: "POST", target, authority, fields: &fields, is_end: false };
        match read(&parts, &HeadLimits::default()) {
            Ok(head) => format!(
                "{} {:?} at {:?}, {:?} bytes{}{}",
                head.request.path,
                head.request.query,
                head.request.authority.map(Authority::text),
                head.body_bytes,
                if head.expect_continue { ", expects" } else { "" },
                head.origin.map_or_else(String::new, |origin| format!(
                    ", from {}",
                    String::from_utf8_lossy(origin)
                )),
            ),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn a_head_is_read() {
        let fields = [("content-length", "3"), ("expect", "100-continue"), ("origin", "null")];
        assert_eq!(
            outcome("/v1/stream/a?offset=-1", Some("h:1"), &fields),
            "/v1/stream/a Some(\"offset=-1\") at Some(\"h:1\"), Some(3) bytes, expects, from null"
        );
        assert_eq!(outcome("/a", None, &[("host", "h")]), "/a None at Some(\"h\"), None bytes");
        let twice = [("origin", "http://a"), ("origin", "http://a")];
        assert!(outcome("/a", Some("h"), &twice).ends_with("from null"));
    }

    #[test]
    fn what_two_parsers_could_take_for_different_requests_is_refused() {
        for (target, authority, fields, error) in [
            ("/a", Some("h"), &[("host", "i")][..], "HostInvalid"),
            ("/a", None, &[("host", "h"), ("host", "h")], "HostInvalid"),
            ("/a", Some("user@h"), &[], "HostInvalid"),
            ("/a", None, &[], "HostMissing"),
            ("/a", Some("h"), &[("content-length", "1"), ("content-length", "1")], "ContentLength"),
            ("/a", Some("h"), &[("content-length", "+1")], "ContentLength"),
            ("/a", Some("h"), &[("expect", "200-ok")], "Expect"),
            ("/\u{e9}", Some("h"), &[], "Target"),
            ("/a#b", Some("h"), &[], "Target"),
            ("http://h/a", Some("h"), &[], "Target"),
            ("*", Some("h"), &[], "Target"),
            ("", Some("h"), &[], "Target"),
        ] {
            assert_eq!(outcome(target, authority, fields), error, "{target} {fields:?}");
        }
        let long = "/".repeat(TARGET_BYTES_MAX + 1);
        assert_eq!(outcome(&long, Some("h"), &[]), "TargetTooLong");
        let huge = outcome("/a", Some("h"), &[("content-length", "99999999999999999999")]);
        assert!(huge.starts_with("BodyTooLong"), "{huge}");
    }
}
