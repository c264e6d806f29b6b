//! The payloads of one append, and the body that carries them.

use super::{ApiStyle, Holds};
use memchr::{memchr, memchr_iter};

/// Payloads of one length that are appended together, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) bytes: &'a [u8],
    /// Length of each payload.
    pub(crate) each: usize,
}

impl<'a> Batch<'a> {
    /// A payload alone.
    pub(crate) fn one(payload: &'a [u8]) -> Self {
        Self { bytes: payload, each: payload.len() }
    }

    pub(crate) fn payloads(self) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.chunks(self.each.max(1))
    }
}

/// The form of a body: what it begins with, what separates two payloads, and what it ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    begin: &'static [u8],
    between: &'static [u8],
    end: &'static [u8],
    /// A payload is inside a JSON text, so its quotes are escaped. Ours have nothing else to escape.
    escapes: bool,
}

impl Frame {
    pub(super) fn of(style: ApiStyle, holds: Holds) -> Self {
        let [begin, between, end]: [&[u8]; 3] = match (style, holds) {
            (ApiStyle::S2, _) => [b"{\"records\":[{\"body\":\"", b"\"},{\"body\":\"", b"\"}]}"],
            (_, Holds::Messages) => [b"[", b",", b"]"],
            (_, Holds::Bytes) => [b"", b"", b""],
        };
        let escapes = style == ApiStyle::S2 && holds == Holds::Messages;
        Self { begin, between, end, escapes }
    }

    /// The length of what [`Self::put`] writes.
    pub(super) fn length(self, batch: Batch<'_>) -> usize {
        let between = self.between.len() * batch.payloads().count().saturating_sub(1);
        let escapes = if self.escapes { memchr_iter(b'"', batch.bytes).count() } else { 0 };
        self.begin.len() + batch.bytes.len() + escapes + between + self.end.len()
    }

    pub(super) fn put(self, batch: Batch<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.begin);
        for (at, payload) in batch.payloads().enumerate() {
            if at > 0 {
                out.extend_from_slice(self.between);
            }
            self.put_payload(payload, out);
        }
        out.extend_from_slice(self.end);
    }

    fn put_payload(self, payload: &[u8], out: &mut Vec<u8>) {
        let mut rest = payload;
        while let Some(quote) = memchr(b'"', rest).filter(|_| self.escapes) {
            out.extend_from_slice(&rest[..quote]);
            out.extend_from_slice(b"\\\"");
            rest = &rest[quote + 1..];
        }
        out.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(style: ApiStyle, holds: Holds, bytes: &[u8], each: usize) -> String {
        let (batch, frame) = (Batch { bytes, each }, Frame::of(style, holds));
        let mut out = Vec::new();
        frame.put(batch, &mut out);
        assert_eq!(out.len(), frame.length(batch));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_batch_is_one_body() {
        let bytes = |holds, each| body(ApiStyle::Durable, holds, b"112233", each);
        assert_eq!(bytes(Holds::Bytes, 2), "112233");
        assert_eq!(bytes(Holds::Messages, 2), "[11,22,33]");
        assert_eq!(bytes(Holds::Messages, 6), "[112233]");
        let records = body(ApiStyle::S2, Holds::Bytes, b"aabb", 2);
        assert_eq!(records, "{\"records\":[{\"body\":\"aa\"},{\"body\":\"bb\"}]}");
    }

    #[test]
    fn quotes_are_escaped_within_a_text() {
        let records = body(ApiStyle::S2, Holds::Messages, b"{\"a\"}{\"b\"}", 5);
        let wanted = "{\"records\":[{\"body\":\"{\\\"a\\\"}\"},{\"body\":\"{\\\"b\\\"}\"}]}";
        assert_eq!(records, wanted);
    }
}
