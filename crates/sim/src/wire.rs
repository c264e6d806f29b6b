//! The client's side of HTTP/1.1: requests as bytes, answers from bytes.
//!
//! Written against the RFC and the protocol text alone, so that a defect of the server's own
//! rendering cannot hide behind shared code.

use crate::dice::Dice;
use flate2::read::GzDecoder;
use std::io::Read;

/// A request as a client means it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The answer is a stream of events, heard piece by piece.
    pub(crate) live: bool,
    /// It shows no token but its own, if it has one.
    pub(crate) is_anonymous: bool,
}

impl Ask {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        Self { method, path: path.to_owned(), ..Self::default() }
    }

    #[must_use]
    pub(crate) fn anonymous(mut self) -> Self {
        self.is_anonymous = true;
        self
    }

    #[must_use]
    pub(crate) fn query(mut self, query: String) -> Self {
        self.query = query;
        self
    }

    #[must_use]
    pub(crate) fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// What HTTP/2 is asked: fields, some with those that its client may leave out.
    pub(crate) fn fields_of_frames(&self, dice: &mut Dice) -> Vec<(&'static str, String)> {
        let mut fields = self.fields.clone();
        if self.method == "GET" && dice.percent(20) {
            fields.push(("accept-encoding", "gzip".into()));
        }
        if !self.body.is_empty() && dice.percent(85) {
            fields.push(("content-length", self.body.len().to_string()));
        }
        fields
    }

    /// The bytes on the wire; some bodies go in chunks.
    pub(crate) fn render(&self, dice: &mut Dice) -> Vec<u8> {
        let mut head = format!("{} /v1/stream/{}", self.method, self.path);
        if !self.query.is_empty() {
            head.push('?');
            head.push_str(&self.query);
        }
        head.push_str(" HTTP/1.1\r\nHost: sim\r\n");
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method == "GET" && dice.percent(20) {
            head.push_str("Accept-Encoding: gzip\r\n");
        }
        let chunked = !self.body.is_empty() && dice.percent(15);
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            let mut bytes = head.into_bytes();
            let mut rest = &self.body[..];
            while !rest.is_empty() {
                let count = usize::try_from(dice.between(1, rest.len() as u64)).expect("an index");
                bytes.extend_from_slice(format!("{count:x}\r\n").as_bytes());
                bytes.extend_from_slice(&rest[..count]);
                bytes.extend_from_slice(b"\r\n");
                rest = &rest[count..];
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            return bytes;
        }
        if self.method != "GET" && self.method != "HEAD" {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// An answer as it is heard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.field(name) == Some("true")
    }

    /// `Stream-Next-Offset` as a byte offset.
    pub(crate) fn next_offset(&self) -> Option<u64> {
        parse_offset(self.field("stream-next-offset")?)
    }

    /// The machine-readable name of a problem.
    pub(crate) fn problem(&self) -> Option<String> {
        let value: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(value.get("code")?.as_str()?.to_owned())
    }

    /// What a problem says of the write: `Some(false)` if surely not applied.
    pub(crate) fn applied(&self) -> Option<bool> {
        let value: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        value.get("applied")?.as_bool()
    }
}

/// The number in an offset.
pub(crate) fn parse_offset(text: &str) -> Option<u64> {
    let (position, rest) = text.split_once('_')?;
    if position.len() != 16 || rest != "0000000000000000" {
        return None;
    }
    position.parse().ok()
}

/// An offset as text.
pub(crate) fn offset_text(offset: u64) -> String {
    format!("{offset:016}_0000000000000000")
}

/// How the body of an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Head,
    Bytes(usize),
    Chunks,
    Done,
}

/// Reads one answer as its bytes come.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    input: Vec<u8>,
    rest: Rest,
    is_head: bool,
    pub(crate) answer: Answer,
}

impl AnswerReader {
    pub(crate) fn new(is_head: bool) -> Self {
        Self { input: Vec::new(), rest: Rest::Head, is_head, answer: Answer::default() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rest == Rest::Done
    }

    /// Takes bytes and gives back those behind the end of the answer. The error says what no HTTP client could
    /// have read.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        self.input.extend_from_slice(bytes);
        loop {
            let before = (self.rest, self.input.len());
            match self.rest {
                Rest::Head => self.head()?,
                Rest::Bytes(left) => {
                    let count = left.min(self.input.len());
                    self.answer.body.extend(self.input.drain(..count));
                    let left = left - count;
                    self.rest = if left == 0 { Rest::Done } else { Rest::Bytes(left) };
                }
                Rest::Chunks => self.chunk()?,
                Rest::Done => {}
            }
            if self.rest == Rest::Done {
                self.unpack()?;
                return Ok(std::mem::take(&mut self.input));
            }
            if before == (self.rest, self.input.len()) {
                return Ok(Vec::new());
            }
        }
    }

    /// Takes a head that came in frames.
    pub(crate) fn take_head(
        &mut self,
        status: u16,
        fields: Vec<(String, String)>,
    ) -> Result<(), String> {
        (self.answer.status, self.answer.fields) = (status, fields);
        self.check_head()
    }

    /// Takes part of a body that came in frames.
    pub(crate) fn take_body(&mut self, bytes: &[u8]) {
        self.answer.body.extend_from_slice(bytes);
    }

    /// All frames of an answer have come.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.rest = Rest::Done;
        self.unpack()
    }

    fn check_head(&self) -> Result<(), String> {
        if self.answer.field("x-content-type-options") != Some("nosniff") {
            return Err("an answer without nosniff".into());
        }
        Ok(())
    }

    /// Undoes the compression of a whole answer.
    fn unpack(&mut self) -> Result<(), String> {
        if self.answer.field("content-encoding") != Some("gzip") {
            return Ok(());
        }
        let mut plain = Vec::new();
        let read = GzDecoder::new(&self.answer.body[..]).read_to_end(&mut plain);
        read.map_err(|error| format!("a compressed answer that is broken: {error}"))?;
        self.answer.body = plain;
        Ok(())
    }

    fn head(&mut self) -> Result<(), String> {
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(());
        };
        let head: Vec<u8> = self.input.drain(..end + 4).collect();
        let text = std::str::from_utf8(&head).map_err(|_| "a head that is no text".to_owned())?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status = status.and_then(|line| line.get(..3)).and_then(|code| code.parse().ok());
        self.answer.status = status.ok_or("a status line that does not parse")?;
        for line in lines {
            let (name, value) = line.split_once(": ").ok_or(format!("field {line:?}"))?;
            self.answer.fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        self.check_head()?;
        self.rest = self.body_rest()?;
        Ok(())
    }

    fn body_rest(&self) -> Result<Rest, String> {
        let no_body = self.is_head || matches!(self.answer.status, 204 | 304);
        let length = self.answer.field("content-length");
        let chunked = self.answer.field("transfer-encoding") == Some("chunked");
        match (no_body, length, chunked) {
            (_, Some(_), true) => Err("both a length and chunks".into()),
            (true, _, _) | (_, Some("0"), _) => Ok(Rest::Done),
            (_, Some(length), _) => {
                length.parse().map(Rest::Bytes).map_err(|_| format!("length {length:?}"))
            }
            (_, None, true) => Ok(Rest::Chunks),
            (_, None, false) => Err("a body without an end".into()),
        }
    }

    fn chunk(&mut self) -> Result<(), String> {
        let Some(line) = self.input.windows(2).position(|two| two == b"\r\n") else {
            return Ok(());
        };
        let size = std::str::from_utf8(&self.input[..line]).ok();
        let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.ok_or("a chunk size that does not parse")?;
        let end = line + 2 + size;
        if self.input.len() < end + 2 {
            return Ok(());
        }
        if &self.input[end..end + 2] != b"\r\n" {
            return Err("a chunk without its end".into());
        }
        self.answer.body.extend_from_slice(&self.input[line + 2..end]);
        self.input.drain(..end + 2);
        if size == 0 {
            self.rest = Rest::Done;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_byte_by_byte() {
        let text = b"HTTP/1.1 200 OK\r\nX-Content-Type-Options: nosniff\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let mut reader = AnswerReader::new(false);
        for byte in text {
            reader.feed(&[*byte]).unwrap();
        }
        assert!(reader.is_done());
        assert_eq!(reader.answer.body, b"abc");
    }

    #[test]
    fn offsets_are_read_as_they_are_written() {
        assert_eq!(parse_offset(&offset_text(77)), Some(77));
        assert_eq!(parse_offset("7"), None);
    }
}
