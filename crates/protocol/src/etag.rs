//! Entity tags: `"{group}-{stream}:{start}:{end}"`, and `:c` once the stream is closed at `end`.
//! PROTOCOL §5.6 and §10.1.
//!
//! A stream id is never used again, so a recreated stream has other tags. A range that ends before
//! the tail keeps its tag when the stream is closed later: its bytes and its meaning stay.

use crate::http1::put_number;
use model::{ByteOffset, StreamKey};

/// A strong entity tag of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ETag {
    /// The stream.
    pub stream: StreamKey,
    /// First byte of the range.
    pub start: ByteOffset,
    /// After its last byte.
    pub end: ByteOffset,
    /// The stream is closed and ends here.
    pub closed: bool,
}

impl ETag {
    /// Appends the tag as text; weak if a content coding was applied.
    pub fn put(&self, out: &mut Vec<u8>, weak: bool) {
        if weak {
            out.extend_from_slice(b"W/");
        }
        out.push(b'"');
        put_number(out, u64::from(self.stream.group.get()));
        out.push(b'-');
        put_number(out, self.stream.stream.get());
        out.push(b':');
        put_number(out, self.start.get());
        out.push(b':');
        put_number(out, self.end.get());
        out.extend_from_slice(if self.closed { b":c\"" } else { b"\"" });
    }

    /// Whether an `If-None-Match` list names this tag. Weak comparison, RFC 9110 §13.1.2.
    #[must_use]
    pub fn matches(&self, if_none_match: &str) -> bool {
        if if_none_match.trim_ascii() == "*" {
            return true;
        }
        let mut own = Vec::with_capacity(64);
        self.put(&mut own, false);
        let mut rest = if_none_match;
        while let Some((tag, after)) = next_tag(rest) {
            if tag.as_bytes() == own {
                return true;
            }
            rest = after;
        }
        false
    }
}

/// The next quoted tag of a list, quotation marks included, and what follows it.
fn next_tag(list: &str) -> Option<(&str, &str)> {
    let list = list.trim_start_matches([' ', '\t', ',']);
    let tag = list.strip_prefix("W/").unwrap_or(list);
    let length = tag.strip_prefix('"')?.find('"')? + 2;
    Some(tag.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{GroupId, StreamId};

    fn tag(closed: bool) -> ETag {
        let stream = StreamKey { group: GroupId::new(7), stream: StreamId::new(42) };
        ETag { stream, start: ByteOffset::new(0), end: ByteOffset::new(9), closed }
    }

    fn text(tag: ETag, weak: bool) -> String {
        let mut out = vec![];
        tag.put(&mut out, weak);
        String::from_utf8(out).unwrap()
    }

    // PROTOCOL §10.1, "ETag and Stream Closure"
    #[test]
    fn a_close_changes_the_tag() {
        assert_eq!(text(tag(false), false), "\"7-42:0:9\"");
        assert_eq!(text(tag(true), true), "W/\"7-42:0:9:c\"");
        assert!(!tag(true).matches("\"7-42:0:9\""));
    }

    #[test]
    fn lists_weak_tags_and_the_star_match() {
        for list in [
            "*",
            " * ",
            "\"7-42:0:9\"",
            "W/\"7-42:0:9\"",
            "\"a,b\", W/\"x\",\"7-42:0:9\"",
            ",, \"7-42:0:9\" ,",
        ] {
            assert!(tag(false).matches(list), "{list}");
        }
        for list in ["", "7-42:0:9", "\"7-42:0:9", "\"x\", *", "w/\"7-42:0:9\"", "\"7-42:0:9:c\""] {
            assert!(!tag(false).matches(list), "{list}");
        }
    }
}
