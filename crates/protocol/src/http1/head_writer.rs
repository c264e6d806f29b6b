//! Heads of answers as text of HTTP/1.1, written straight into the send buffer.

use super::head::Version;
use crate::{
    HttpDate,
    decimal::Decimal,
    field,
    field::Field,
    head::{BodyFraming, CommonFields, HeadSink, Length, Viewers},
    scan,
};

/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Room that most heads need at most.
const HEAD_BYTES: usize = 768;

/// What of a request and its connection shapes every answer.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// The client's version.
    pub version: Version,
    /// The connection will be used again after this answer.
    pub keep_alive: bool,
    /// The request was `HEAD`: no body follows, whatever the head says.
    pub is_head: bool,
    /// The time to show.
    pub date: &'a HttpDate,
    /// Which web pages may see the answer.
    pub viewers: Viewers<'a>,
}

/// Writes one answer's head.
#[derive(Debug)]
pub struct HeadWriter<'o, 'a> {
    out: &'o mut Vec<u8>,
    exchange: &'a Exchange<'a>,
    keep_alive: bool,
    /// Answers to other requests follow on this connection, so this one may not end it.
    is_followed: bool,
    status: u16,
}

impl<'o, 'a> HeadWriter<'o, 'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, exchange: &'a Exchange<'a>) -> Self {
        Self { out, exchange, keep_alive: exchange.keep_alive, is_followed: false, status: 0 }
    }

    /// Answers to requests behind this one follow: [`HeadSink::close`] is left to the last of them.
    #[inline]
    pub fn keep_open(&mut self) {
        self.is_followed = true;
    }

    /// The status of the head; 0 before it is started.
    #[inline]
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    #[inline]
    fn name(&mut self, name: &str) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
    }

    fn put_number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.out.extend_from_slice(Decimal::new(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }
}

impl HeadSink for HeadWriter<'_, '_> {
    #[inline]
    fn viewers(&self) -> Viewers<'_> {
        self.exchange.viewers
    }

    #[inline]
    fn start(&mut self, status: u16, common: &CommonFields) {
        self.status = status;
        self.out.reserve(HEAD_BYTES);
        self.out.extend_from_slice(status_line(status).as_bytes());
        let are_listed = self.exchange.viewers.are_listed();
        let lines = if are_listed { common.listed_lines } else { common.lines };
        self.out.extend_from_slice(lines.as_bytes());
        self.out.extend_from_slice(self.exchange.date.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        if are_listed {
            common.put_viewer(self.exchange.viewers, self);
        }
    }

    fn field(&mut self, name: Field, value: &str) {
        self.name(name.name());
        let from = self.out.len();
        self.out.extend_from_slice(value.as_bytes());
        if scan::any(value.as_bytes(), is_control) {
            for byte in &mut self.out[from..] {
                if is_control(*byte) {
                    *byte = b' ';
                }
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn ascii(&mut self, name: Field, value: &[u8]) {
        debug_assert!(value.iter().all(|byte| matches!(byte, b' '..=b'~')), "{value:?}");
        self.name(name.name());
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, name: Field, value: u64) {
        self.put_number(name.name(), value);
    }

    fn close(&mut self) {
        self.keep_alive &= self.is_followed;
    }

    fn end(&mut self, length: Length) -> BodyFraming {
        let framing = match length {
            Length::None => BodyFraming::Plain,
            Length::Known(bytes) => {
                self.put_number(field::CONTENT_LENGTH, bytes);
                BodyFraming::Plain
            }
            Length::Unknown if self.exchange.version == Version::Http11 => {
                self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                BodyFraming::Chunked
            }
            Length::Unknown => BodyFraming::UntilClose,
        };
        let keep_alive = self.keep_alive && framing != BodyFraming::UntilClose;
        self.out.extend_from_slice(match (keep_alive, self.exchange.version) {
            (true, Version::Http11) => b"\r\n",
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        });
        framing
    }

    fn body(&mut self, bytes: &[u8]) {
        if !self.exchange.is_head {
            self.out.extend_from_slice(bytes);
        }
    }
}

const fn is_control(byte: u8) -> bool {
    (byte < 0x20) | (byte == 0x7f)
}

fn status_line(status: u16) -> &'static str {
    match status {
        200 => "HTTP/1.1 200 OK\r\n",
        201 => "HTTP/1.1 201 Created\r\n",
        204 => "HTTP/1.1 204 No Content\r\n",
        304 => "HTTP/1.1 304 Not Modified\r\n",
        400 => "HTTP/1.1 400 Bad Request\r\n",
        401 => "HTTP/1.1 401 Unauthorized\r\n",
        403 => "HTTP/1.1 403 Forbidden\r\n",
        404 => "HTTP/1.1 404 Not Found\r\n",
        405 => "HTTP/1.1 405 Method Not Allowed\r\n",
        408 => "HTTP/1.1 408 Request Timeout\r\n",
        409 => "HTTP/1.1 409 Conflict\r\n",
        410 => "HTTP/1.1 410 Gone\r\n",
        412 => "HTTP/1.1 412 Precondition Failed\r\n",
        413 => "HTTP/1.1 413 Content Too Large\r\n",
        414 => "HTTP/1.1 414 URI Too Long\r\n",
        415 => "HTTP/1.1 415 Unsupported Media Type\r\n",
        416 => "HTTP/1.1 416 Range Not Satisfiable\r\n",
        417 => "HTTP/1.1 417 Expectation Failed\r\n",
        421 => "HTTP/1.1 421 Misdirected Request\r\n",
        429 => "HTTP/1.1 429 Too Many Requests\r\n",
        431 => "HTTP/1.1 431 Request Header Fields Too Large\r\n",
        500 => "HTTP/1.1 500 Internal Server Error\r\n",
        501 => "HTTP/1.1 501 Not Implemented\r\n",
        503 => "HTTP/1.1 503 Service Unavailable\r\n",
        505 => "HTTP/1.1 505 HTTP Version Not Supported\r\n",
        507 => "HTTP/1.1 507 Insufficient Storage\r\n",
        _ => panic!("status {status} has no line in the table"),
    }
}
