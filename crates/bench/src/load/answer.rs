//! Where an answer ends, found with as little work as can be.

use super::body::text_of;
use super::socket::Socket;
use crate::api::ApiStyle;
use crate::failure::{Failure, Outcome};
use crate::{kafka, nats};
use memchr::{memchr, memmem};
use protocol::http1::ChunkedDecoder;

/// One answer at the start of a connection's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) status: u16,
    head_bytes: usize,
    /// None if the body comes in chunks.
    body_bytes: Option<usize>,
}

/// One answer of whichever form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The system's own code, for what was refused.
    pub(crate) status: u16,
    pub(crate) is_success: bool,
}

impl Answer {
    /// Takes the next whole answer of `socket`, if there is one.
    pub(crate) fn take(style: ApiStyle, socket: &mut Socket) -> Outcome<Option<Self>> {
        match style {
            ApiStyle::Nats => nats::take_answer(socket),
            ApiStyle::Kafka => kafka::take_answer(socket),
            ApiStyle::Durable | ApiStyle::Ursula | ApiStyle::S2 => {
                let outline = Outline::take(socket)?;
                Ok(outline.map(|o| Self { status: o.status, is_success: o.is_success() }))
            }
        }
    }
}

/// Bytes that are no answer with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoAnswer;

impl Outline {
    /// The answer at the start of `input`; `None` while its head is incomplete.
    pub(crate) fn find(input: &[u8]) -> Result<Option<Self>, NoAnswer> {
        let Some(end) = memmem::find(input, b"\r\n\r\n") else { return Ok(None) };
        if !input.starts_with(b"HTTP/1.1 ") {
            return Err(NoAnswer);
        }
        let digit = |at: usize| input[at].is_ascii_digit().then(|| u16::from(input[at] - b'0'));
        let hundreds = |at| Some(digit(at)? * 100 + digit(at + 1)? * 10 + digit(at + 2)?);
        let status = (end >= 12).then(|| hundreds(9)).flatten().ok_or(NoAnswer)?;
        let head = &input[..end];
        let body_bytes = if matches!(status, 204 | 304) { Some(0) } else { length(head) };
        if body_bytes.is_none() && value(head, b"transfer-encoding:") != Some(b"chunked") {
            return Err(NoAnswer);
        }
        Ok(Some(Self { status, head_bytes: end + 4, body_bytes }))
    }

    /// Where it ends in `input`; `None` until it is whole.
    fn end(self, input: &[u8]) -> Result<Option<usize>, NoAnswer> {
        let end = match self.body_bytes {
            Some(body_bytes) => self.head_bytes + body_bytes,
            None => {
                let (mut decoder, mut body) = (ChunkedDecoder::new(u64::MAX), Vec::new());
                let step = decoder.decode(&input[self.head_bytes..], &mut body);
                let step = step.map_err(|_| NoAnswer)?;
                if !step.done {
                    return Ok(None);
                }
                self.head_bytes + step.consumed
            }
        };
        Ok((input.len() >= end).then_some(end))
    }

    /// Takes the next whole answer of `socket`, if there is one.
    pub(crate) fn take(socket: &mut Socket) -> Outcome<Option<Self>> {
        let wrong = |socket: &Socket| {
            Failure::new(format!("not an answer: {:.300}", text_of(socket.input())))
        };
        let found = Self::find(socket.input()).map_err(|_| wrong(socket))?;
        let Some(outline) = found else { return Ok(None) };
        let end = outline.end(socket.input()).map_err(|_| wrong(socket))?;
        let Some(end) = end else { return Ok(None) };
        socket.consume(end);
        Ok(Some(outline))
    }

    pub(crate) fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// `Content-Length` of a head.
fn length(head: &[u8]) -> Option<usize> {
    std::str::from_utf8(value(head, b"content-length:")?).ok()?.parse().ok()
}

/// The value of the field whose name, in small letters and with its colon, is `name`.
fn value<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = head;
    while let Some(end) = memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        if rest.len() > name.len() && rest[..name.len()].eq_ignore_ascii_case(name) {
            let line = rest.split(|byte| *byte == b'\r').next()?;
            return Some(line[name.len()..].trim_ascii());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Result<Option<Outline>, NoAnswer> {
        Outline::find(text.as_bytes())
    }

    #[test]
    fn an_answer_ends_where_its_head_says() {
        let text = "HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 12\r\n\r\n";
        let outline = Outline { status: 200, head_bytes: text.len(), body_bytes: Some(12) };
        assert_eq!(find(text), Ok(Some(outline)));
        assert_eq!(find(&text[..text.len() - 1]), Ok(None));
        let whole = format!("{text}123456789012rest");
        assert_eq!(outline.end(whole.as_bytes()), Ok(Some(text.len() + 12)));
        assert_eq!(outline.end(&whole.as_bytes()[..text.len() + 11]), Ok(None));
    }

    #[test]
    fn an_answer_without_content_has_no_body() {
        let text = "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(find(text).unwrap().unwrap().body_bytes, Some(0));
    }

    #[test]
    fn an_answer_in_chunks_ends_with_the_last_one() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        let outline = find(text).unwrap().unwrap();
        assert_eq!(outline.end(text.as_bytes()), Ok(Some(text.len())));
        assert_eq!(outline.end(&text.as_bytes()[..text.len() - 1]), Ok(None));
    }

    #[test]
    fn what_has_no_known_length_is_refused() {
        assert_eq!(find("HTTP/1.1 200 OK\r\nA: b\r\n\r\n"), Err(NoAnswer));
        assert_eq!(find("HTTP/1.1 2\r\n\r\n"), Err(NoAnswer));
        assert_eq!(find("SSH-2.0-x\r\n\r\n"), Err(NoAnswer));
    }
}
