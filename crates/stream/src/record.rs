//! One stream: its configuration and its state.

use crate::{
    ForkPoint, Layout, Lifetime, Lineage, RecordTime, Retention, expiries::Noted,
    lifetime::CompactLifetime, pins::Pins, producer::Producers, times::CompactTime,
};
use model::{ByteOffset, StreamId, StreamPath, TimeMarks, Timestamp};
use std::sync::Arc;

/// What most streams hold. A content type that is written like this is neither allocated nor parsed
/// with each append. Its place is its number on disk, and never changes.
const KNOWN: [&str; 4] =
    ["application/json", "application/octet-stream", "text/plain", "text/plain; charset=utf-8"];

/// The place of JSON in [`KNOWN`].
const JSON: u8 = 0;

/// From this place of [`KNOWN`] on there is text.
const FIRST_TEXT: u8 = 2;

/// A content type as the client first wrote it, compared by its media type alone.
#[derive(Debug, Clone)]
pub struct ContentType(Text);

/// As small as can be: each message of a node that names a stream has one.
#[derive(Debug, Clone)]
enum Text {
    /// Its place in [`KNOWN`].
    Known(u8),
    Other(OtherText),
}

/// Another text, behind one word: a record has room for no more.
pub(crate) type OtherText = Arc<Box<str>>;

impl ContentType {
    /// Wraps a header value that has been checked to be printable.
    #[must_use]
    pub fn new(value: &str) -> Self {
        Self::known(value).unwrap_or_else(|| Self(Text::Other(Arc::new(value.into()))))
    }

    /// One of those that need no check.
    #[must_use]
    #[inline]
    pub fn known(value: &str) -> Option<Self> {
        let place = KNOWN.into_iter().position(|known| known == value)?;
        Some(Self(Text::Known(place as u8)))
    }

    /// Its number on disk, if it has one.
    pub(crate) fn known_number(&self) -> Option<u8> {
        match self.0 {
            Text::Known(place) => Some(place),
            Text::Other(_) => None,
        }
    }

    /// For a record: the number on disk, and the text of one that has no number.
    pub(crate) fn into_parts(self) -> (u8, Option<OtherText>) {
        match self.0 {
            Text::Known(place) => (place, None),
            Text::Other(text) => (u8::MAX, Some(text)),
        }
    }

    /// The one with this number on disk.
    pub(crate) fn of_known_number(number: u8) -> Option<Self> {
        (usize::from(number) < KNOWN.len()).then_some(Self(Text::Known(number)))
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

    /// The layout of a stream that is made with this type.
    #[must_use]
    pub fn layout(&self) -> Layout {
        if self.is_json() { Layout::Json } else { Layout::Bytes }
    }

    /// Whether streams of this type hold text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        match &self.0 {
            Text::Known(place) => *place >= FIRST_TEXT,
            Text::Other(text) => is_text(text),
        }
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

fn is_text(text: &str) -> bool {
    let media_type = media_type(text).as_bytes();
    media_type.len() > 5 && media_type[..5].eq_ignore_ascii_case(b"text/")
}

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
    /// How its bytes are made of records.
    pub layout: Layout,
    /// When it goes away by itself.
    pub lifetime: Lifetime,
    /// First retained byte.
    pub head: ByteOffset,
    /// After the last byte.
    pub tail: ByteOffset,
    /// Number of the record at the head.
    pub first_record: u64,
    /// Number of the record that comes next.
    pub next_record: u64,
    /// The largest record time so far, if the stream has record times.
    pub mark: Option<u64>,
    /// What is kept of it, as far as it says so itself.
    pub retention: Retention,
    /// No more bytes will come.
    pub closed: bool,
    /// When the entry that made it was logged.
    pub created_at: Timestamp,
    /// When the last append to it was logged, or the entry that made it.
    pub written_at: Timestamp,
    /// The streams that store its inherited bytes.
    pub lineage: Lineage,
}

/// The whole state of one stream: 120 bytes, its path and what few have.
#[derive(Debug, Clone)]
pub(crate) struct StreamRecord {
    pub id: StreamId,
    pub path: StreamPath,
    /// The number of its content type on disk.
    pub known_type: u8,
    /// The text of a content type that has no number.
    pub other_type: Option<OtherText>,
    pub layout: Layout,
    pub lifetime: CompactLifetime,
    pub head: ByteOffset,
    pub tail: ByteOffset,
    /// Number of the record that comes next. Those of a fork continue where it branches off.
    pub next_record: u64,
    /// When the entry that made it was logged.
    pub created_at: CompactTime,
    /// When the last append to it was logged, or the entry that made it.
    pub written_at: CompactTime,
    pub closed: bool,
    pub deleted: bool,
    /// When it comes up to be expired.
    pub noted: Noted,
    /// The number of the last copy of all rows that has it, or that began before it was made.
    pub copied_in: u8,
    /// What few streams have, so that the others do not pay for it.
    pub extra: Option<Box<Extra>>,
}

/// State that most streams never get.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
    pub stream_seq: Option<Box<str>>,
    pub producers: Producers,
    pub fork: Option<Box<ForkPoint>>,
    /// The forks that hold a reference.
    pub pins: Pins,
    /// Uses of a stream with a sliding lifetime that are no appends.
    pub uses: Uses,
    /// How much is kept, where it is not left to the server.
    pub retention: Retention,
    /// Number of the record at the head.
    pub head_record: u64,
    /// The largest record time so far, if the stream has record times.
    pub mark: Option<u64>,
}

/// When a stream with a sliding lifetime was last used; 0 if it was not, but by appends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Uses {
    /// Moves by itself between entries.
    pub used_at: Timestamp,
    /// `used_at` as the log last recorded it: what a crash would fall back to.
    pub logged_at: Timestamp,
}

/// What a stream without any has.
pub(crate) static NO_EXTRA: Extra = Extra {
    stream_seq: None,
    producers: Producers::new(),
    fork: None,
    pins: Pins::new(),
    uses: Uses { used_at: Timestamp::new(0), logged_at: Timestamp::new(0) },
    retention: Retention::DEFAULT,
    head_record: 0,
    mark: None,
};

impl StreamRecord {
    pub(crate) fn info(&self) -> StreamInfo {
        StreamInfo {
            stream: self.id,
            content_type: self.content_type(),
            layout: self.layout,
            lifetime: self.lifetime.get(),
            head: self.head,
            tail: self.tail,
            first_record: self.first_record(),
            next_record: self.next_record,
            mark: self.mark(),
            retention: self.retention(),
            closed: self.closed,
            created_at: self.created_at.get(),
            written_at: self.written_at.get(),
            lineage: self.lineage(),
        }
    }

    /// Whether its content type has the same media type.
    #[inline(always)]
    pub(crate) fn has_type(&self, sent: &ContentType) -> bool {
        let is_same = matches!(sent.0, Text::Known(place) if place == self.known_type);
        is_same || *sent == self.content_type()
    }

    pub(crate) fn content_type(&self) -> ContentType {
        let other = self.other_type.clone();
        ContentType(other.map_or(Text::Known(self.known_type), Text::Other))
    }

    /// The largest record time so far, if the stream has record times.
    pub(crate) fn mark(&self) -> Option<u64> {
        self.extra.as_ref().and_then(|extra| extra.mark)
    }

    pub(crate) fn retention(&self) -> Retention {
        self.extra.as_ref().map_or(Retention::DEFAULT, |extra| extra.retention)
    }

    /// Where the stream's own bytes begin, and the number of the first record in them.
    pub(crate) fn begin(&self) -> (ByteOffset, u64) {
        self.fork().map_or((ByteOffset::ZERO, 0), |fork| (fork.at, fork.records))
    }

    /// What an append that arrives at `at` does to the record times: to be called before its bytes are added. A record
    /// without a time has that of its arrival.
    #[inline]
    pub(crate) fn mark_times(
        &mut self,
        given: Option<RecordTime>,
        at: Timestamp,
    ) -> Option<TimeMarks> {
        if given.is_none() && self.mark().is_none() {
            return None;
        }
        Some(self.raise_mark(given, at))
    }

    #[cold]
    fn raise_mark(&mut self, given: Option<RecordTime>, at: Timestamp) -> TimeMarks {
        // Until now the records had the times of their arrivals.
        let has_records = self.tail > ByteOffset::ZERO;
        let arrivals = if has_records { self.written_at.get().get() } else { 0 };
        let before = self.mark().unwrap_or(arrivals);
        let time = given.map_or(at.get(), |given| given.at(at));
        let upto = before.max(time);
        self.extra_mut().mark = Some(upto);
        TimeMarks { before, upto }
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

    fn uses(&self) -> Uses {
        self.extra.as_ref().map(|extra| extra.uses).unwrap_or_default()
    }

    /// The last read or write, if the lifetime slides.
    pub(crate) fn used_at(&self) -> Timestamp {
        self.written_at.get().max(self.uses().used_at)
    }

    /// The last use that the log has recorded.
    pub(crate) fn logged_used_at(&self) -> Timestamp {
        self.written_at.get().max(self.uses().logged_at)
    }

    /// Moves the last use.
    pub(crate) fn use_at(&mut self, at: Timestamp) {
        if at > self.used_at() {
            self.extra_mut().uses.used_at = at;
        }
    }

    /// Records a use that the log has.
    pub(crate) fn note_logged_use(&mut self, at: Timestamp) {
        self.use_at(at);
        if at > self.logged_used_at() {
            self.extra_mut().uses.logged_at = at;
        }
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        match self.lifetime.get() {
            // Most streams: nothing is looked up.
            Lifetime::Forever => None,
            lifetime => lifetime.deadline(self.used_at()),
        }
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
        assert_eq!(size_of::<ContentType>(), size_of::<(usize, OtherText)>());
        assert!(KNOWN.iter().all(|text| ContentType::new(text).as_str() == *text));
        assert!(ContentType::known("Text/Plain").is_none());
        assert_eq!(ContentType::new("Text/Plain").as_str(), "Text/Plain");
    }

    /// The allocator gives a multiple of 16 bytes and keeps 8 of them. Every stream has a record.
    #[test]
    fn a_record_takes_no_more_than_104_bytes() {
        assert!(size_of::<StreamRecord>() <= 104, "{}", size_of::<StreamRecord>());
    }

    #[test]
    fn content_types_compare_by_media_type_in_any_case() {
        let plain = ContentType::new("Text/Plain");
        assert_eq!(plain, ContentType::new("text/plain; charset=utf-8"));
        assert_ne!(plain, ContentType::new("text/plainer"));
        assert!(ContentType::new("APPLICATION/JSON; charset=utf-8").is_json());
        assert!(plain.is_text() && !plain.is_json());
        assert_eq!(ContentType::new("application/json; charset=utf-8").layout(), Layout::Json);
        assert_eq!(ContentType::new("application/ndjson").layout(), Layout::Bytes);
        let known = KNOWN.map(|text| ContentType::new(text).is_json());
        assert_eq!(known, [true, false, false, false]);
        let known = KNOWN.map(|text| ContentType::new(text).is_text());
        assert_eq!(known, KNOWN.map(is_text));
        assert!(ContentType::new("TEXT/x").is_text() && !ContentType::new("text/").is_text());
    }
}
