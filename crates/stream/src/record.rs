//! One stream: its configuration and its state.

use crate::{
    ForkPoint, Lifetime, Lineage, PinToken, expiries::Noted, lifetime::CompactLifetime,
    producer::Producers,
};
use model::{ByteOffset, StreamId, StreamPath, Timestamp};
use std::{collections::BTreeMap, sync::Arc};

/// What most streams hold. A content type that is written like this is neither allocated nor parsed
/// with each append.
const KNOWN: [&str; 4] =
    ["application/json", "application/octet-stream", "text/plain", "text/plain; charset=utf-8"];

/// The place of JSON in [`KNOWN`].
const JSON: u8 = 0;

/// A content type as the client first wrote it, compared by its media type alone.
#[derive(Debug, Clone)]
pub struct ContentType(Text);

/// As large as the pointer alone: each stream has one.
#[derive(Debug, Clone)]
enum Text {
    /// Its place in [`KNOWN`].
    Known(u8),
    Other(Arc<str>),
}

impl ContentType {
    /// Wraps a header value that has been checked to be printable.
    #[must_use]
    pub fn new(value: &str) -> Self {
        Self::known(value).unwrap_or_else(|| Self(Text::Other(value.into())))
    }

    /// One of those that need no check.
    #[must_use]
    #[inline]
    pub fn known(value: &str) -> Option<Self> {
        let place = KNOWN.into_iter().position(|known| known == value)?;
        Some(Self(Text::Known(place as u8)))
    }

    /// As it was written, parameters included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Known(place) => KNOWN[usize::from(*place)],
            Text::Other(text) => text,
        }
    }

    /// `type/subtype` without parameters and outer blanks, in the case as written.
    #[must_use]
    pub fn media_type(&self) -> &str {
        media_type(self.as_str())
    }

    /// Whether streams of this type hold JSON messages. PROTOCOL §7.1.
    #[must_use]
    pub fn is_json(&self) -> bool {
        match &self.0 {
            Text::Known(place) => *place == JSON,
            Text::Other(text) => media_type(text).eq_ignore_ascii_case(KNOWN[usize::from(JSON)]),
        }
    }

    /// Whether streams of this type hold text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        let media_type = self.media_type().as_bytes();
        media_type.len() > 5 && media_type[..5].eq_ignore_ascii_case(b"text/")
    }
}

impl PartialEq for ContentType {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Text::Known(place), Text::Known(other)) if place == other => true,
            _ => has_same_media_type(self, other),
        }
    }
}

impl Eq for ContentType {}

fn has_same_media_type(one: &ContentType, other: &ContentType) -> bool {
    one.media_type().eq_ignore_ascii_case(other.media_type())
}

fn media_type(text: &str) -> &str {
    let end = text.bytes().position(|byte| byte == b';').unwrap_or(text.len());
    text[..end].trim()
}

/// What a reader needs to know of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its id in its group; never used again, so also a generation of its path.
    pub stream: StreamId,
    /// What it holds.
    pub content_type: ContentType,
    /// When it goes away by itself.
    pub lifetime: Lifetime,
    /// First retained byte.
    pub head: ByteOffset,
    /// After the last byte.
    pub tail: ByteOffset,
    /// No more bytes will come.
    pub closed: bool,
    /// The streams that store its inherited bytes.
    pub lineage: Lineage,
}

/// The whole state of one stream: 120 bytes, its path and what few have.
#[derive(Debug, Clone)]
pub(crate) struct StreamRecord {
    pub id: StreamId,
    pub path: StreamPath,
    pub content_type: ContentType,
    pub lifetime: CompactLifetime,
    pub head: ByteOffset,
    pub tail: ByteOffset,
    /// Records accepted over the stream's own life (inherited ones are not counted).
    pub record_count: u64,
    /// Last read or write; moves by itself between entries for sliding lifetimes.
    pub used_at: Timestamp,
    /// `used_at` as the log last recorded it: what a crash would fall back to.
    pub logged_used_at: Timestamp,
    pub closed: bool,
    pub deleted: bool,
    /// When it comes up to be expired.
    pub noted: Noted,
    /// The number of the last copy of all rows that has it, or that began before it was made.
    pub copied_in: u32,
    /// What few streams have, so that the others do not pay for it.
    pub extra: Option<Box<Extra>>,
}

/// State that most streams never get.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
    pub stream_seq: Option<Box<str>>,
    pub producers: Producers,
    pub fork: Option<Box<ForkPoint>>,
    /// The path of each fork that holds a reference. A stream may have very many: one is found by its token.
    pub pins: BTreeMap<PinToken, StreamPath>,
}

/// What a stream without any has.
pub(crate) static NO_EXTRA: Extra =
    Extra { stream_seq: None, producers: Producers::new(), fork: None, pins: BTreeMap::new() };

impl StreamRecord {
    pub(crate) fn info(&self) -> StreamInfo {
        StreamInfo {
            stream: self.id,
            content_type: self.content_type.clone(),
            lifetime: self.lifetime.get(),
            head: self.head,
            tail: self.tail,
            closed: self.closed,
            lineage: self.lineage(),
        }
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn fork(&self) -> Option<&ForkPoint> {
        self.extra.as_ref().and_then(|extra| extra.fork.as_deref())
    }

    pub(crate) fn lineage(&self) -> Lineage {
        self.fork().map(|fork| fork.lineage.clone()).unwrap_or_default()
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| !extra.pins.is_empty())
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.lifetime.get().deadline(self.used_at)
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_content_types_cost_no_room_and_keep_their_text() {
        assert_eq!(size_of::<ContentType>(), size_of::<Arc<str>>());
        assert!(KNOWN.iter().all(|text| ContentType::new(text).as_str() == *text));
        assert!(ContentType::known("Text/Plain").is_none());
        assert_eq!(ContentType::new("Text/Plain").as_str(), "Text/Plain");
    }

    /// The allocator gives a multiple of 16 bytes and keeps 8 of them. Every stream has a record.
    #[test]
    fn a_record_takes_no_more_than_120_bytes() {
        assert!(size_of::<StreamRecord>() <= 120, "{}", size_of::<StreamRecord>());
    }

    #[test]
    fn content_types_compare_by_media_type_in_any_case() {
        let plain = ContentType::new("Text/Plain");
        assert_eq!(plain, ContentType::new("text/plain; charset=utf-8"));
        assert_ne!(plain, ContentType::new("text/plainer"));
        assert!(ContentType::new("APPLICATION/JSON; charset=utf-8").is_json());
        assert!(plain.is_text() && !plain.is_json());
        let known = KNOWN.map(|text| ContentType::new(text).is_json());
        assert_eq!(known, [true, false, false, false]);
        assert!(ContentType::new("TEXT/x").is_text() && !ContentType::new("text/").is_text());
    }
}
