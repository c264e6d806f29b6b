//! Where an answer ends, found with as little work as can be.

use memchr::{memchr, memmem};

/// One answer at the start of a connection's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) status: u16,
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: usize,
}

/// Bytes that are no answer whose length is known from its head.
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
        let has_body = !matches!(status, 204 | 304);
        let body_bytes = if has_body { length(&input[..end]).ok_or(NoAnswer)? } else { 0 };
        Ok(Some(Self { status, head_bytes: end + 4, body_bytes }))
    }

    pub(crate) fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// `Content-Length` of a head.
fn length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let mut rest = head;
    while let Some(end) = memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        if rest.len() > NAME.len() && rest[..NAME.len()].eq_ignore_ascii_case(NAME) {
            let line = rest.split(|byte| *byte == b'\r').next()?;
            return std::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok();
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
        let outline = Outline { status: 200, head_bytes: text.len(), body_bytes: 12 };
        assert_eq!(find(text), Ok(Some(outline)));
        assert_eq!(find(&text[..text.len() - 1]), Ok(None));
    }

    #[test]
    fn an_answer_without_content_has_no_body() {
        let text = "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(find(text).unwrap().unwrap().body_bytes, 0);
    }

    #[test]
    fn what_has_no_known_length_is_refused() {
        assert_eq!(find("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(NoAnswer));
        assert_eq!(find("HTTP/1.1 2\r\n\r\n"), Err(NoAnswer));
        assert_eq!(find("SSH-2.0-x\r\n\r\n"), Err(NoAnswer));
    }
}
