//! Answers to reads. PROTOCOL §5.6–5.8, §8, §10.

use super::{EVERY_ANSWER, EXPOSED_NUMBERS};
use crate::{
    face::durable::{
        etag::ETag,
        events::Mode,
        offset,
        request::{Live, ReadRequest},
    },
    field::{self, Field},
    head::{BodyFraming, HeadSink, Length},
};
use model::{ByteOffset, GroupId, ReadFrom, StreamKey};
use std::borrow::Cow;
use stream::{Layout, Lifetime, StreamInfo};

/// What the node found for a catch-up read, or for a long-poll with news.
#[derive(Debug, Clone, Copy)]
pub struct ReadAnswer<'a> {
    /// The request.
    pub request: &'a ReadRequest,
    /// The group of the stream.
    pub group: GroupId,
    /// The stream as it was when the range was chosen. An empty range may lie beyond its tail, any other
    /// one does not.
    pub info: &'a StreamInfo,
    /// First byte of the range.
    pub start: ByteOffset,
    /// After the last byte of the range.
    pub end: ByteOffset,
    /// More follows, and everybody who begins at `start` gets exactly this range.
    pub is_stable: bool,
    /// For a long-poll: what [`crate::cursor::next`] gave.
    pub cursor: Option<u64>,
    /// Numbers of the records at both ends, if they were asked for.
    pub records: Option<(u64, u64)>,
    /// The body will be compressed; only if the request accepts it.
    pub gzip: bool,
    /// A client that shows no credential gets the same: a shared cache may give it to everybody.
    pub is_public: bool,
    /// How long caches keep an answer that ends at the tail.
    pub tail_age: TailAge,
}

/// How long caches may keep an answer that ends at the tail: data that has come since is missing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailAge {
    seconds: u32,
}

impl TailAge {
    /// What PROTOCOL §10.1 recommends.
    pub const RECOMMENDED: Self = Self::of_seconds(60);

    /// Longest time after its end for which a cache may still answer while it asks again, in seconds.
    const STALE_SECONDS_MAX: u32 = 300;

    /// So many seconds. With 0 a cache asks each time, which the entity tag makes cheap.
    #[must_use]
    pub const fn of_seconds(seconds: u32) -> Self {
        Self { seconds }
    }

    /// What caches learn where it is `scope`. A short time would be worth nothing with a long one behind it, so that one is
    /// at most five times as long, as in what is recommended.
    fn text(self, scope: &str) -> String {
        let Self { seconds } = self;
        let stale = seconds.saturating_mul(5).min(Self::STALE_SECONDS_MAX);
        format!("{scope}, max-age={seconds}, stale-while-revalidate={stale}")
    }
}

/// What must be sent after the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyPlan {
    /// Nothing: the client has it already, or there is no body.
    Nothing,
    /// `frame.prefix`, the stored bytes from `start` to `end` without the last
    /// `frame.omitted_bytes`, `frame.suffix`.
    Range {
        /// First stored byte.
        start: ByteOffset,
        /// After the last stored byte, omitted ones already taken off.
        end: ByteOffset,
        /// The text around them.
        frame: Frame,
        /// How to write it all; always plain unless compressed.
        framing: BodyFraming,
    },
}

/// Answers a catch-up read, or a long-poll with data or with the end of the stream.
///
/// # Panics
/// If the answer's offsets are out of order.
pub fn read<S: HeadSink + ?Sized>(head: &mut S, read: &ReadAnswer<'_>) -> BodyPlan {
    let range_bytes = read.end.since(read.start);
    assert!(
        range_bytes == 0 || read.end <= read.info.tail,
        "the range of an answer lies within its stream"
    );
    // PROTOCOL §5.7: a 204 names the tail and says that the client is up to date.
    let is_at_tail = range_bytes == 0 && read.is_up_to_date();
    if is_at_tail && read.request.live == Live::LongPoll {
        let numbers = read.records.is_some();
        long_poll_timeout(head, read.info, read.cursor.unwrap_or_default(), numbers);
        return BodyPlan::Nothing;
    }
    let is_now = read.request.offset == ReadFrom::Now;
    let tag = read.tag();
    // PROTOCOL §10.1, "ETag Usage"
    let matches = |list: &str| !is_now && read.request.live == Live::CatchUp && tag.matches(list);
    if read.request.if_none_match.as_deref().is_some_and(matches) {
        head.start(304, &EVERY_ANSWER);
        read.describe(head, &tag);
        head.end(Length::None);
        return BodyPlan::Nothing;
    }
    let frame = Frame::of(read.info.layout, range_bytes);
    head.start(200, &EVERY_ANSWER);
    head.field(Field::ContentType, read.info.content_type.as_str());
    read.describe(head, &tag);
    if read.gzip {
        head.field(Field::ContentEncoding, "gzip");
    }
    let length =
        if read.gzip { Length::Unknown } else { Length::Known(frame.body_bytes(range_bytes)) };
    let framing = head.end(length);
    let end = ByteOffset::new(read.end.get() - frame.omitted_bytes);
    BodyPlan::Range { start: read.start, end, frame, framing }
}

/// What caches learn of an answer that they must ask about, that never changes, and that ends at the tail.
type CacheRules = [&'static str; 3];

const PUBLIC: CacheRules = [
    "no-cache",
    "public, max-age=31536000, immutable",
    "public, max-age=60, stale-while-revalidate=300",
];

/// The same for the cache of one client alone. A signed URL is its own credential, so a cache does not see that the
/// answer is not for everybody.
const PRIVATE: CacheRules = [
    "private, no-cache",
    "private, max-age=31536000, immutable",
    "private, max-age=60, stale-while-revalidate=300",
];

impl ReadAnswer<'_> {
    fn is_up_to_date(&self) -> bool {
        self.end == self.info.tail
    }

    fn is_eof(&self) -> bool {
        // PROTOCOL §5.6: beyond the tail, too, nothing will follow.
        self.info.closed && self.end >= self.info.tail
    }

    fn tag(&self) -> ETag {
        let stream = StreamKey { group: self.group, stream: self.info.stream };
        ETag { stream, start: self.start, end: self.end, closed: self.is_eof() }
    }

    /// The fields that a 200 and its 304 share.
    fn describe<S: HeadSink + ?Sized>(&self, head: &mut S, tag: &ETag) {
        head.ascii(Field::StreamNextOffset, &offset::render(self.end));
        if let Some((start, next)) = self.records {
            put_numbers(head, start, next);
        }
        if self.is_up_to_date() {
            // PROTOCOL §5.6: only when nothing follows
            head.field(Field::StreamUpToDate, "true");
        }
        if self.is_eof() {
            head.field(Field::StreamClosed, "true");
        }
        if let Some(cursor) = self.cursor {
            head.number(Field::StreamCursor, cursor);
        }
        if self.request.offset != ReadFrom::Now {
            head.ascii(Field::ETag, tag.render(self.gzip).as_bytes());
        }
        head.field(Field::CacheControl, &self.cache_control());
        head.field(Field::Vary, field::ACCEPT_ENCODING);
    }

    /// Whether the beginning of the stream has been dropped, or will be by itself.
    fn has_moving_head(&self) -> bool {
        self.info.head > ByteOffset::ZERO || self.info.retention.is_bounded()
    }

    /// How long caches may keep the answer (docs/adr/0012).
    fn cache_control(&self) -> Cow<'static, str> {
        if self.request.offset == ReadFrom::Now {
            // PROTOCOL §8: "SHOULD return Cache-Control: no-store"
            return Cow::Borrowed("no-store");
        }
        // PROTOCOL §10.1: `private` where the answer is not for everybody (docs/adr/0079).
        let [asks, immutable, recent] = if self.is_public { PUBLIC } else { PRIVATE };
        if self.info.lifetime != Lifetime::Forever {
            // A cache that answers by itself neither slides the lifetime nor knows its end.
            return Cow::Borrowed(asks);
        }
        let begins_at_head = self.request.offset == ReadFrom::Begin;
        if self.request.records.is_some() || (begins_at_head && self.has_moving_head()) {
            return Cow::Borrowed(asks);
        }
        // The first piece may be trimmed one day. A reader that learns so begins again, and must not get it once more.
        if self.is_stable && !self.is_up_to_date() && !begins_at_head {
            return Cow::Borrowed(immutable);
        }
        if self.start == self.end && !self.info.closed {
            // "Nothing new" is true only now; the tag makes asking again cheap.
            return Cow::Borrowed(asks);
        }
        match self.tail_age {
            TailAge { seconds: 0 } => Cow::Borrowed(asks),
            TailAge::RECOMMENDED => Cow::Borrowed(recent),
            other => Cow::Owned(other.text(if self.is_public { "public" } else { "private" })),
        }
    }
}

/// Answers a long-poll that waited in vain, or that is at the end of a closed stream; with the number of the record that
/// comes next, if numbers are wanted.
// PROTOCOL §5.7, "Response Headers (on 204)"
pub fn long_poll_timeout<S: HeadSink + ?Sized>(
    head: &mut S,
    info: &StreamInfo,
    cursor: u64,
    numbers: bool,
) {
    head.start(204, &EVERY_ANSWER);
    head.ascii(Field::StreamNextOffset, &offset::render(info.tail));
    if numbers {
        put_numbers(head, info.next_record, info.next_record);
    }
    head.field(Field::StreamUpToDate, "true");
    if info.closed {
        head.field(Field::StreamClosed, "true");
    } else {
        head.number(Field::StreamCursor, cursor);
    }
    head.field(Field::CacheControl, "no-store");
    head.end(Length::None);
}

/// Numbers of the first record of an answer and of the one behind it.
fn put_numbers<S: HeadSink + ?Sized>(head: &mut S, start: u64, next: u64) {
    head.field(Field::AccessControlExposeHeaders, EXPOSED_NUMBERS);
    head.number(Field::StreamRecordStart, start);
    head.number(Field::StreamRecordNext, next);
}

/// Begins an answer of server-sent events. PROTOCOL §5.8.
pub fn sse<S: HeadSink + ?Sized>(head: &mut S, mode: Mode) -> BodyFraming {
    head.start(200, &EVERY_ANSWER);
    head.field(Field::ContentType, "text/event-stream");
    head.field(Field::CacheControl, "no-cache");
    if mode == Mode::Base64 {
        head.field(Field::StreamSseDataEncoding, "base64");
    }
    // nginx would otherwise hold events back until its buffer is full.
    head.field(Field::XAccelBuffering, "no");
    head.end(Length::Unknown)
}

/// The text around the stored bytes of a range in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Before the stored bytes.
    pub prefix: &'static [u8],
    /// How many of the range's last bytes are left out: 1 for the last message's comma.
    pub omitted_bytes: u64,
    /// After the stored bytes.
    pub suffix: &'static [u8],
}

impl Frame {
    /// The frame of a range of `range_bytes` stored bytes.
    // PROTOCOL §9.1.5: a JSON array, `[]` if the range is empty
    #[must_use]
    pub fn of(layout: Layout, range_bytes: u64) -> Self {
        if layout.is_json() {
            Self { prefix: b"[", omitted_bytes: range_bytes.min(1), suffix: b"]" }
        } else {
            Self { prefix: b"", omitted_bytes: 0, suffix: b"" }
        }
    }

    /// Length of the body of a range of `range_bytes` stored bytes.
    #[must_use]
    pub fn body_bytes(&self, range_bytes: u64) -> u64 {
        range_bytes - self.omitted_bytes + (self.prefix.len() + self.suffix.len()) as u64
    }
}
