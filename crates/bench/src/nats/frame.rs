//! What a NATS server sends, frame by frame.

use crate::failure::{Failure, Outcome};
use memchr::memmem;

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Ping,
    /// `INFO`, `PONG`, `+OK`: nothing that matters here.
    Other,
    Error(&'a str),
    Message {
        subject: &'a str,
        /// Lines of headers, the status line first; empty without headers.
        headers: &'a str,
        payload: &'a [u8],
    },
}

impl<'a> Frame<'a> {
    /// The frame at the start of `input` and its length; `None` until it is whole.
    pub(super) fn parse(input: &'a [u8]) -> Outcome<Option<(Self, usize)>> {
        let Some(end) = memmem::find(input, b"\r\n") else { return Ok(None) };
        let wrong = || Failure::new(format!("not NATS: {}", input[..end].escape_ascii()));
        let line = std::str::from_utf8(&input[..end]).map_err(|_| wrong())?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let frame = match words.as_slice() {
            ["PING"] => Self::Ping,
            ["PONG" | "+OK", ..] | ["INFO", ..] => Self::Other,
            ["-ERR", ..] => Self::Error(line),
            ["MSG", subject, _, .., bytes] => {
                let parts = (0, bytes.parse().map_err(|_| wrong())?);
                return Ok(Self::message(subject, parts, &input[end + 2..], end + 2));
            }
            ["HMSG", subject, _, .., head, bytes] => {
                let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
                let parts = (number(head)?, number(bytes)?);
                return Ok(Self::message(subject, parts, &input[end + 2..], end + 2));
            }
            _ => return Err(wrong()),
        };
        Ok(Some((frame, end + 2)))
    }

    /// A message of `parts.1` bytes, headers included, that begins after a line of `line_bytes`.
    fn message(
        subject: &'a str,
        parts: (usize, usize),
        rest: &'a [u8],
        line_bytes: usize,
    ) -> Option<(Self, usize)> {
        let (head_bytes, bytes) = parts;
        if rest.len() < bytes + 2 || head_bytes > bytes {
            return None;
        }
        let headers = std::str::from_utf8(&rest[..head_bytes]).unwrap_or_default();
        let payload = &rest[head_bytes..bytes];
        Some((Self::Message { subject, headers, payload }, line_bytes + bytes + 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_when_it_is_whole() {
        let text = b"MSG a.b 1 3\r\nxyz\r\nPING\r\n";
        for cut in 0..18 {
            assert_eq!(Frame::parse(&text[..cut]).unwrap(), None, "{cut}");
        }
        let message = Frame::Message { subject: "a.b", headers: "", payload: b"xyz" };
        assert_eq!(Frame::parse(text).unwrap(), Some((message, 18)));
        assert_eq!(Frame::parse(&text[18..]).unwrap(), Some((Frame::Ping, 6)));
    }

    #[test]
    fn headers_come_before_the_payload() {
        let text = b"HMSG a 1 reply 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        let message = Frame::Message { subject: "a", headers: "NATS/1.0\r\n\r\n", payload: b"hi" };
        assert_eq!(Frame::parse(text).unwrap(), Some((message, text.len())));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert!(Frame::parse(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(Frame::parse(b"MSG a 1 x\r\n").is_err());
        let error = Frame::parse(b"-ERR 'no'\r\n").unwrap();
        assert_eq!(error, Some((Frame::Error("-ERR 'no'"), 11)));
    }
}
