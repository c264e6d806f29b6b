//! Heads of answers to reads, and bodies taken as they come.

use super::socket::Socket;
use crate::failure::{Failure, Outcome};
use protocol::http1::ChunkedDecoder;

const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 32 << 10;

/// What a reader needs of an answer's head, of whichever system.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) head_bytes: usize,
    /// Length of the body; none if it comes in chunks.
    length: Option<u64>,
    /// Where the next read begins, as the system wrote it.
    pub(crate) next: Option<Box<str>>,
    /// To be given to the next long-poll.
    pub(crate) cursor: Option<Box<str>>,
    /// Nothing followed at that moment.
    pub(crate) up_to_date: bool,
}

impl Head {
    /// The head at the start of `input`; `None` until it is whole.
    pub(crate) fn parse(input: &[u8]) -> Outcome<Option<Self>> {
        let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut answer = httparse::Response::new(&mut slots);
        let parsed = answer.parse(input);
        let wrong = |what: &str| Failure::new(format!("{what}: {:.200}", text_of(input)));
        let head_bytes = match parsed.map_err(|_| wrong("not an answer"))? {
            httparse::Status::Complete(head_bytes) => head_bytes,
            httparse::Status::Partial if input.len() <= HEAD_BYTES_MAX => return Ok(None),
            httparse::Status::Partial => return Err(wrong("an endless head")),
        };
        let value = |name: &str| {
            let header = answer.headers.iter().find(|item| item.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok().map(str::trim)
        };
        let is_true =
            |name: &str| value(name).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let status = answer.code.unwrap_or_default();
        let is_chunked = value("Transfer-Encoding").is_some();
        let length = match value("Content-Length").map(str::parse) {
            _ if matches!(status, 204 | 304) => Some(0),
            _ if is_chunked => None,
            Some(Ok(length)) => Some(length),
            _ => return Err(wrong("an answer without its length")),
        };
        Ok(Some(Self {
            status,
            head_bytes,
            length,
            next: value("Stream-Next-Offset").map(Into::into),
            cursor: value("Stream-Cursor").map(Into::into),
            up_to_date: is_true("Stream-Up-To-Date") || is_true("Stream-Closed"),
        }))
    }

    pub(crate) fn body(&self) -> Body {
        let framing = match self.length {
            Some(left) => Framing::Length(left),
            None => Framing::Chunks(ChunkedDecoder::new(u64::MAX)),
        };
        Body { framing, decoded: Vec::new() }
    }
}

/// A body in progress.
#[derive(Debug)]
pub(crate) struct Body {
    framing: Framing,
    /// Bytes of chunks, before they are given on.
    decoded: Vec<u8>,
}

#[derive(Debug)]
enum Framing {
    /// Bytes that are missing.
    Length(u64),
    Chunks(ChunkedDecoder),
}

impl Body {
    /// Gives what has come to `sink`; whether the body has ended.
    pub(crate) fn take(&mut self, socket: &mut Socket, sink: impl FnOnce(&[u8])) -> Outcome<bool> {
        match &mut self.framing {
            Framing::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(socket.input().len());
                sink(&socket.input()[..count]);
                socket.consume(count);
                *left -= count as u64;
                Ok(*left == 0)
            }
            Framing::Chunks(decoder) => {
                self.decoded.clear();
                let step = decoder.decode(socket.input(), &mut self.decoded);
                let step =
                    step.map_err(|error| Failure::new(format!("broken chunks: {error:?}")))?;
                sink(&self.decoded);
                socket.consume(step.consumed);
                Ok(step.done)
            }
        }
    }
}

/// Bytes for people.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_where_to_read_on() {
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nstream-next-offset: 9\r\n\
            Stream-Cursor: 4\r\nStream-Up-To-Date: true\r\n\r\nabc";
        let head = Head::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((head.status, head.length, head.up_to_date), (200, Some(3), true));
        assert_eq!((head.next.as_deref(), head.cursor.as_deref()), (Some("9"), Some("4")));
        assert_eq!(&text[head.head_bytes..], "abc");
        assert_eq!(Head::parse(&text.as_bytes()[..40]).unwrap(), None);
    }

    #[test]
    fn the_length_follows_from_status_and_fields() {
        let length = |text: &str| Head::parse(text.as_bytes()).map(|head| head.unwrap().length);
        assert_eq!(length("HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some(0));
        assert_eq!(length("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap(), None);
        assert!(length("HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(Head::parse(b"SSH-2.0\r\n\r\n").is_err());
    }
}
