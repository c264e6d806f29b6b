//! Heads of answers, written straight into the send buffer.

use super::head::Version;
use crate::{HttpDate, etag::ETag, field, offset};
use model::ByteOffset;

/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

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
}

/// How the body of an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The status or method allows no body, and no length is shown.
    None,
    /// After this many bytes.
    Known(u64),
    /// In chunks; to an HTTP/1.0 client with the end of the connection, see [`Answer::end`].
    Unknown,
}

/// An answer's head under construction.
///
/// The fields that every answer carries are written by [`Answer::start`], the empty line by
/// [`Answer::end`].
#[derive(Debug)]
pub struct Answer<'o, 'a> {
    out: &'o mut Vec<u8>,
    exchange: &'a Exchange<'a>,
}

/// What every answer carries, errors and `304` too, and the fields of it that scripts may see.
// PROTOCOL §12.7
pub(crate) const EVERY_ANSWER: &str = "X-Content-Type-Options: nosniff\r\n\
    Cross-Origin-Resource-Policy: cross-origin\r\n\
    Access-Control-Allow-Origin: *\r\n\
    Access-Control-Expose-Headers: Content-Encoding, ETag, Location, Producer-Epoch, \
    Producer-Expected-Seq, Producer-Received-Seq, Producer-Seq, Retry-After, Stream-Closed, \
    Stream-Cursor, Stream-Expires-At, Stream-Next-Offset, Stream-SSE-Data-Encoding, Stream-TTL, \
    Stream-Up-To-Date\r\nDate: ";

/// [`EVERY_ANSWER`] for accepted appends, which are many and carry few fields: 250 bytes less.
pub(crate) const EVERY_APPEND: &str = "X-Content-Type-Options: nosniff\r\n\
    Cross-Origin-Resource-Policy: cross-origin\r\n\
    Access-Control-Allow-Origin: *\r\n\
    Access-Control-Expose-Headers: Producer-Epoch, Producer-Seq, Stream-Closed, Stream-Next-Offset\r\nDate: ";

impl<'o, 'a> Answer<'o, 'a> {
    /// Writes the status line and what every answer carries.
    pub fn start(out: &'o mut Vec<u8>, exchange: &'a Exchange<'a>, status: u16) -> Self {
        Self::start_with(out, exchange, status, EVERY_ANSWER)
    }

    /// As [`Self::start`], with one of the blocks of common fields above.
    pub(crate) fn start_with(
        out: &'o mut Vec<u8>,
        exchange: &'a Exchange<'a>,
        status: u16,
        common: &str,
    ) -> Self {
        out.reserve(768);
        out.extend_from_slice(status_line(status).as_bytes());
        out.extend_from_slice(common.as_bytes());
        out.extend_from_slice(exchange.date.as_bytes());
        out.extend_from_slice(b"\r\n");
        Self { out, exchange }
    }

    /// Writes one field. Control characters in `value` become blanks, so that nothing that a
    /// client or a disk holds can end the line.
    pub fn field(&mut self, name: &str, value: &str) {
        self.name(name);
        let from = self.out.len();
        self.out.extend_from_slice(value.as_bytes());
        for byte in &mut self.out[from..] {
            if *byte < 0x20 || *byte == 0x7f {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a field with a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        put_number(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a field with an offset.
    pub fn offset(&mut self, name: &str, value: ByteOffset) {
        self.name(name);
        offset::put(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes an entity tag.
    pub(crate) fn tag(&mut self, tag: &ETag, weak: bool) {
        self.name(field::ETAG);
        tag.put(self.out, weak);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes the fields of the connection and the empty line. Returns how the body must be framed.
    pub fn end(mut self, length: Length) -> BodyFraming {
        let framing = match length {
            Length::None => BodyFraming::Plain,
            Length::Known(bytes) => {
                self.number(field::CONTENT_LENGTH, bytes);
                BodyFraming::Plain
            }
            Length::Unknown if self.exchange.version == Version::Http11 => {
                self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                BodyFraming::Chunked
            }
            Length::Unknown => BodyFraming::UntilClose,
        };
        let keep_alive = self.exchange.keep_alive && framing != BodyFraming::UntilClose;
        self.out.extend_from_slice(match (keep_alive, self.exchange.version) {
            (true, Version::Http11) => b"\r\n",
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        });
        framing
    }

    fn name(&mut self, name: &str) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
    }
}

/// How to write the bytes of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// As they are.
    Plain,
    /// With [`put_chunk`] and [`LAST_CHUNK`].
    Chunked,
    /// As they are, then close the connection.
    UntilClose,
}

/// Writes one chunk; nothing if `data` is empty, since an empty chunk would end the body.
pub fn put_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    put_chunk_head(out, data.len() as u64);
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Writes the line before a chunk of `data_bytes`, which `data_bytes` bytes and CR LF must follow.
///
/// # Panics
/// If `data_bytes` is 0: that would end the body.
pub fn put_chunk_head(out: &mut Vec<u8>, data_bytes: u64) {
    assert!(data_bytes > 0, "an empty chunk ends the body");
    let digits = (16 - data_bytes.leading_zeros() / 4).max(1);
    for place in (0..digits).rev() {
        let nibble = (data_bytes >> (place * 4)) & 0xf;
        out.push(b"0123456789abcdef"[nibble as usize]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a decimal number.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

fn status_line(status: u16) -> &'static str {
    match status {
        200 => "HTTP/1.1 200 OK\r\n",
        201 => "HTTP/1.1 201 Created\r\n",
        204 => "HTTP/1.1 204 No Content\r\n",
        304 => "HTTP/1.1 304 Not Modified\r\n",
        400 => "HTTP/1.1 400 Bad Request\r\n",
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
        417 => "HTTP/1.1 417 Expectation Failed\r\n",
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
