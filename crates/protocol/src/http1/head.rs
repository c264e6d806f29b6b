//! Request heads: from bytes to method, target, fields and body framing.
//!
//! `httparse` reads the tokens, and the fields of the connection say where the body ends. A head that is not
//! whole when it comes is searched for its end first, and only in new bytes. So a client that sends one byte at a
//! time costs no more than one that sends all at once. Lone LFs are refused.

use super::head_error::HeadError;
use crate::{
    field,
    head::{Authority, Method, RequestHead},
    limits::{HEAD_BYTES_MAX, HEADER_COUNT_MAX, TARGET_BYTES_MAX},
    scan,
};
use httparse::Status;
use memchr::memchr;
use std::mem::MaybeUninit;

/// The version that the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `HTTP/1.0`: no chunks, and the connection closes unless the client asks otherwise.
    Http10,
    /// `HTTP/1.1`
    Http11,
}

/// How the body of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// After this many bytes.
    Length(u64),
    /// With its last chunk; feed a [`super::ChunkedDecoder`].
    Chunked,
}

/// What a server allows; never above the hard limits.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Longest head, at most [`HEAD_BYTES_MAX`].
    pub head_bytes_max: usize,
    /// Longest body that `Content-Length` may announce.
    pub body_bytes_max: u64,
}

impl Default for HeadLimits {
    fn default() -> Self {
        let body_bytes_max = model::limits::APPEND_BYTES_DEFAULT as u64;
        Self { head_bytes_max: HEAD_BYTES_MAX, body_bytes_max }
    }
}

/// Room for the fields of one head; lives on the caller's stack and is not even initialised.
pub struct HeaderSlots<'b>([MaybeUninit<httparse::Header<'b>>; HEADER_COUNT_MAX]);

impl HeaderSlots<'_> {
    /// Empty room.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a Default would promise initialised room")]
    pub const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; HEADER_COUNT_MAX])
    }
}

/// A request head. Borrows the receive buffer.
#[derive(Debug)]
pub struct Head<'h, 'b> {
    /// What a face reads of it.
    pub request: RequestHead<'h, 'b>,
    /// The version.
    pub version: Version,
    /// How the body ends.
    pub framing: Framing,
    /// The client lets the connection be used again.
    pub keep_alive: bool,
    /// The client waits for [`super::CONTINUE`] before it sends the body.
    pub expect_continue: bool,
    /// The origin of the web page that sends it, as it says. One that comes twice is `null`, which no list has.
    pub origin: Option<&'b [u8]>,
    /// Length of the head: the body begins after this many bytes.
    pub head_bytes: usize,
}

/// Reads one head after the other from one connection.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// Bytes searched so far.
    searched: usize,
    /// Where the line under search begins.
    line_start: usize,
    /// Where the request line begins (blank lines before it are allowed).
    start: usize,
}

impl HeadReader {
    /// Reads a head from `bytes`: everything that has come since the last request ended.
    ///
    /// `None` means that more bytes are needed; call again with the same bytes and more. After a
    /// head, the next call starts afresh: pass what follows that request's body.
    ///
    /// # Errors
    /// [`HeadError`]: answer it and close the connection.
    pub fn read<'h, 'b>(
        &mut self,
        bytes: &'b [u8],
        slots: &'h mut HeaderSlots<'b>,
        limits: &HeadLimits,
    ) -> Result<Option<Head<'h, 'b>>, HeadError> {
        let limit_bytes = limits.head_bytes_max.min(HEAD_BYTES_MAX);
        let window = &bytes[..bytes.len().min(limit_bytes)];
        let mut parsed = httparse::Request::new(&mut []);
        if self.searched > 0 {
            let Some(head_bytes) = self.end_of(window, limit_bytes)? else { return Ok(None) };
            let start = std::mem::take(self).start;
            parsed.parse_with_uninit_headers(&window[start..head_bytes], &mut slots.0)?;
            return head_of(parsed, head_bytes, limits).map(Some);
        }
        // Most heads are whole when they come: these are not searched for their end first.
        let read = parsed.parse_with_uninit_headers(window, &mut slots.0);
        if let Ok(Status::Complete(head_bytes)) = read
            && !has_lone_newline(&window[..head_bytes])
        {
            return head_of(parsed, head_bytes, limits).map(Some);
        }
        if self.end_of(window, limit_bytes)?.is_none() {
            return Ok(None);
        }
        *self = Self::default();
        Err(read.map_or_else(HeadError::from, |_| HeadError::RequestLine))
    }

    /// Position after the head; `None` if more bytes are needed. What is wrong is the same however the bytes arrive.
    fn end_of(&mut self, window: &[u8], limit_bytes: usize) -> Result<Option<usize>, HeadError> {
        let end = self.find_end(window);
        self.refuse_hopeless(window)?;
        match end? {
            Some(_) if window[self.start..].starts_with(b"PRI * HTTP/2.0\r\n") => {
                Err(HeadError::Http2Preface)
            }
            None if window.len() < limit_bytes => Ok(None),
            None if self.line_start == self.start => Err(HeadError::TargetTooLong),
            None => Err(HeadError::HeadTooLong { limit_bytes }),
            end => Ok(end),
        }
    }

    /// Position after the empty line that ends the head.
    fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadError> {
        while let Some(found) = bytes.get(self.searched..).and_then(|rest| memchr(b'\n', rest)) {
            let newline = self.searched + found;
            if newline == self.line_start || bytes[newline - 1] != b'\r' {
                return Err(HeadError::LineEnd);
            }
            let is_empty = newline == self.line_start + 1;
            let in_head = self.line_start > self.start;
            (self.searched, self.line_start) = (newline + 1, newline + 1);
            if is_empty && in_head {
                return Ok(Some(newline + 1));
            }
            if is_empty {
                // RFC 9112 §2.2: blank lines before a request line are ignored.
                self.start = newline + 1;
            }
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// Refuses at its first byte what can never become a request, instead of waiting for its end.
    fn refuse_hopeless(&self, bytes: &[u8]) -> Result<(), HeadError> {
        match bytes.get(self.start) {
            Some(byte)
                if !byte.is_ascii_alphanumeric() && !b"\r\n!#$%&'*+-.^_`|~".contains(byte) =>
            {
                Err(HeadError::NotHttp)
            }
            _ => Ok(()),
        }
    }
}

fn has_lone_newline(head: &[u8]) -> bool {
    head.first() == Some(&b'\n')
        || scan::any_pair(head, |before, byte| (byte == b'\n') & (before != b'\r'))
}

fn head_of<'h, 'b>(
    parsed: httparse::Request<'h, 'b>,
    head_bytes: usize,
    limits: &HeadLimits,
) -> Result<Head<'h, 'b>, HeadError> {
    let (Some(method_text), Some(target), Some(minor)) =
        (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::RequestLine);
    };
    let method = method_of(method_text);
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    if method_text == "CONNECT" {
        return Err(HeadError::Connect);
    }
    let target = Target::parse(target, method)?;
    let connection = decide(parsed.headers, version, limits)?;
    let request = RequestHead {
        method,
        method_text,
        path: target.path,
        query: target.query,
        authority: target.authority.or(connection.host),
        fields: parsed.headers,
    };
    Ok(Head {
        request,
        version,
        framing: connection.framing,
        keep_alive: connection.keep_alive,
        expect_continue: connection.expect_continue,
        origin: connection.origin,
        head_bytes,
    })
}

pub(crate) fn method_of(text: &str) -> Method {
    match text {
        "POST" => Method::Post,
        "GET" => Method::Get,
        "PUT" => Method::Put,
        "HEAD" => Method::Head,
        "DELETE" => Method::Delete,
        "PATCH" => Method::Patch,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    }
}

pub(crate) struct Target<'b> {
    pub(crate) path: &'b str,
    pub(crate) query: Option<&'b str>,
    authority: Option<Authority<'b>>,
}

impl<'b> Target<'b> {
    pub(crate) fn parse(text: &'b str, method: Method) -> Result<Self, HeadError> {
        if text.len() > TARGET_BYTES_MAX {
            return Err(HeadError::TargetTooLong);
        }
        let is_raw = |byte: u8| !byte.is_ascii_graphic() | (byte == b'#');
        if scan::any(text.as_bytes(), is_raw) {
            return Err(HeadError::Target);
        }
        if text.starts_with('/') {
            return Ok(Self::split(text, None));
        }
        if text == "*" && method == Method::Options {
            return Ok(Self { path: text, query: None, authority: None });
        }
        Self::absolute(text)
    }

    /// RFC 9112 §3.2.2: a server accepts the absolute form, and its authority replaces `Host`.
    fn absolute(text: &'b str) -> Result<Self, HeadError> {
        let (scheme, rest) = text.split_once("://").ok_or(HeadError::Target)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(HeadError::Target);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let authority = Authority::new(authority.as_bytes()).filter(|name| !name.is_empty());
        let mut target = Self::split(rest, Some(authority.ok_or(HeadError::Target)?));
        if target.path.is_empty() {
            target.path = "/";
        }
        Ok(target)
    }

    fn split(text: &'b str, authority: Option<Authority<'b>>) -> Self {
        match memchr(b'?', text.as_bytes()) {
            Some(at) => Self { path: &text[..at], query: Some(&text[at + 1..]), authority },
            None => Self { path: text, query: None, authority },
        }
    }
}

struct Connection<'b> {
    framing: Framing,
    keep_alive: bool,
    expect_continue: bool,
    host: Option<Authority<'b>>,
    origin: Option<&'b [u8]>,
}

/// The fields of a request that mean the same in each version of HTTP.
#[derive(Default)]
pub(crate) struct CommonFields<'b> {
    pub(crate) host: Option<&'b [u8]>,
    /// `null` if it comes twice.
    pub(crate) origin: Option<&'b [u8]>,
    pub(crate) length: Option<&'b [u8]>,
    pub(crate) expects: bool,
}

#[derive(Default)]
struct Seen<'b> {
    common: CommonFields<'b>,
    encoding: Option<&'b [u8]>,
    wants_close: bool,
    wants_keep_alive: bool,
}

/// Where the body of a request ends and what becomes of the connection.
///
/// Each rule refuses a request that two parsers could cut at different places. Source: RFC 9112 §6
/// and §11.2.
fn decide<'b>(
    fields: &[httparse::Header<'b>],
    version: Version,
    limits: &HeadLimits,
) -> Result<Connection<'b>, HeadError> {
    let mut seen = Seen::default();
    for item in fields {
        seen.take(item)?;
    }
    let keep_alive = !seen.wants_close && (version == Version::Http11 || seen.wants_keep_alive);
    Ok(Connection {
        framing: seen.framing(version, limits)?,
        keep_alive,
        // RFC 9110 §10.1.1: an expectation in an HTTP/1.0 request is ignored.
        expect_continue: seen.common.expects && version == Version::Http11,
        host: seen.host(version)?,
        origin: seen.common.origin,
    })
}

impl<'b> CommonFields<'b> {
    #[inline]
    pub(crate) fn take(&mut self, item: &httparse::Header<'b>) -> Result<(), HeadError> {
        match item.name.len() {
            4 if field::is(item.name, field::HOST) => {
                once(&mut self.host, item.value, HeadError::HostInvalid)
            }
            6 if field::is(item.name, field::EXPECT) => {
                self.expects = item.value.eq_ignore_ascii_case(b"100-continue");
                if self.expects { Ok(()) } else { Err(HeadError::Expect) }
            }
            6 if field::is(item.name, field::ORIGIN) => {
                let is_second = self.origin.is_some();
                self.origin = Some(if is_second { b"null" } else { item.value });
                Ok(())
            }
            14 if field::is(item.name, field::CONTENT_LENGTH) => {
                once(&mut self.length, item.value, HeadError::ContentLength)
            }
            _ => Ok(()),
        }
    }
}

impl<'b> Seen<'b> {
    fn take(&mut self, item: &httparse::Header<'b>) -> Result<(), HeadError> {
        match item.name.len() {
            10 if field::is(item.name, field::CONNECTION) => {
                self.take_options(item.value);
                Ok(())
            }
            17 if field::is(item.name, field::TRANSFER_ENCODING) => {
                once(&mut self.encoding, item.value, HeadError::TransferEncoding)
            }
            _ => self.common.take(item),
        }
    }

    fn take_options(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.wants_close |= option.eq_ignore_ascii_case(b"close");
            self.wants_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn framing(&self, version: Version, limits: &HeadLimits) -> Result<Framing, HeadError> {
        match (self.common.length, self.encoding) {
            (Some(_), Some(_)) => Err(HeadError::LengthAndEncoding),
            (None, None) => Ok(Framing::None),
            (Some(length), None) => length_of(length, limits.body_bytes_max),
            (None, Some(coding)) => {
                let is_chunked =
                    coding.eq_ignore_ascii_case(b"chunked") && version == Version::Http11;
                if is_chunked { Ok(Framing::Chunked) } else { Err(HeadError::TransferEncoding) }
            }
        }
    }

    fn host(&self, version: Version) -> Result<Option<Authority<'b>>, HeadError> {
        match self.common.host {
            None if version == Version::Http11 => Err(HeadError::HostMissing),
            None | Some([]) => Ok(None),
            Some(value) => Authority::new(value).map(Some).ok_or(HeadError::HostInvalid),
        }
    }
}

fn once<'b>(
    slot: &mut Option<&'b [u8]>,
    value: &'b [u8],
    error: HeadError,
) -> Result<(), HeadError> {
    if slot.replace(value).is_some() { Err(error) } else { Ok(()) }
}

pub(crate) fn length_of(value: &[u8], limit_bytes: u64) -> Result<Framing, HeadError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::ContentLength);
    }
    let length_bytes = value
        .iter()
        .fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    match length_bytes {
        0 => Ok(Framing::None),
        _ if length_bytes > limit_bytes => {
            Err(HeadError::BodyTooLong { length_bytes, limit_bytes })
        }
        _ => Ok(Framing::Length(length_bytes)),
    }
}
