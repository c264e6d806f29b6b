//! Entity tags: `"{group}-{stream}:{start}:{end}"`, and `:c` once the stream is closed at `end`.
//! PROTOCOL §5.6 and §10.1.
//!
//! A stream id is never used again, so a recreated stream has other tags. A range that ends before
//! the tail keeps its tag when the stream is closed later: its bytes and its meaning stay.

use crate::decimal::Decimal;
use model::{ByteOffset, GroupId, StreamId, StreamKey, limits::POSITION_MAX};

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

/// Room for the longest tag: four numbers of 20 digits and the marks around them.
const TAG_BYTES_MAX: usize = 4 * 20 + 9;

/// The text of an [`ETag`].
#[derive(Debug, Clone, Copy)]
pub struct TagText {
    bytes: [u8; TAG_BYTES_MAX],
    length: usize,
}

impl TagText {
    /// The text, quotation marks included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, piece: &[u8]) {
        let end = self.length + piece.len();
        self.bytes[self.length..end].copy_from_slice(piece);
        self.length = end;
    }
}

impl ETag {
    /// The tag as text; weak if a content coding was applied.
    #[must_use]
    pub fn render(&self, weak: bool) -> TagText {
        let mut text = TagText { bytes: [0; TAG_BYTES_MAX], length: 0 };
        text.push(if weak { b"W/\"" } else { b"\"" });
        text.push(Decimal::new(u64::from(self.stream.group.get())).as_bytes());
        text.push(b"-");
        text.push(Decimal::new(self.stream.stream.get()).as_bytes());
        text.push(b":");
        text.push(Decimal::new(self.start.get()).as_bytes());
        text.push(b":");
        text.push(Decimal::new(self.end.get()).as_bytes());
        text.push(if self.closed { b":c\"" } else { b"\"" });
        text
    }

    /// Whether an `If-None-Match` list names this tag. Weak comparison, RFC 9110 §13.1.2.
    #[must_use]
    pub fn matches(&self, if_none_match: &str) -> bool {
        if if_none_match.trim_ascii() == "*" {
            return true;
        }
        let own = self.render(false);
        let mut rest = if_none_match;
        while let Some((tag, after)) = next_tag(rest) {
            if tag.as_bytes() == own.as_bytes() {
                return true;
            }
            rest = after;
        }
        false
    }
}

impl ETag {
    /// The strong tags of an `If-Match` list that a server of this kind gives. Source: RFC 9110 §13.1.1.
    pub(crate) fn strong_tags(list: &str) -> impl Iterator<Item = Self> + '_ {
        let mut rest = list.trim_start_matches(SEPARATORS);
        std::iter::from_fn(move || {
            let is_weak = rest.starts_with("W/");
            let (tag, after) = next_tag(rest)?;
            rest = after.trim_start_matches(SEPARATORS);
            Some(if is_weak { None } else { Self::parse(tag) })
        })
        .flatten()
    }

    /// Reads what [`Self::render`] writes.
    fn parse(tag: &str) -> Option<Self> {
        let text = tag.strip_prefix('"')?.strip_suffix('"')?;
        let mut parts = text.split(':');
        let (group, stream) = parts.next()?.split_once('-')?;
        let number = |text: &str| text.parse::<u64>().ok();
        let group = GroupId::new(u16::try_from(number(group)?).ok()?);
        let stream = StreamKey { group, stream: StreamId::new(number(stream)?) };
        let start = ByteOffset::new(number(parts.next()?)?);
        let end = ByteOffset::new(number(parts.next()?).filter(|end| *end <= POSITION_MAX)?);
        let closed = match (parts.next(), parts.next()) {
            (None, _) => false,
            (Some("c"), None) => true,
            _ => return None,
        };
        let parsed = Self { stream, start, end, closed };
        // What is written otherwise, with a sign or zeroes, is no tag of ours.
        (parsed.render(false).as_bytes() == tag.as_bytes()).then_some(parsed)
    }
}

/// What is between the tags of a list.
const SEPARATORS: [char; 3] = [' ', '\t', ','];

/// The next quoted tag of a list, quotation marks included, and what follows it.
fn next_tag(list: &str) -> Option<(&str, &str)> {
    let list = list.trim_start_matches(SEPARATORS);
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
        String::from_utf8(tag.render(weak).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_longest_tag_has_room() {
        let stream = StreamKey { group: GroupId::new(u16::MAX), stream: StreamId::new(u64::MAX) };
        let end = ByteOffset::new(u64::MAX);
        let longest = text(ETag { stream, start: end, end, closed: true }, true);
        let most = u64::MAX;
        assert_eq!(longest, format!("W/\"65535-{most}:{most}:{most}:c\""));
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
