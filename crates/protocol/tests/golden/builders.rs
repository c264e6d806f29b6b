//! What the pages show: a stream, an append, a read.

use model::{ByteOffset, GroupId, ReadFrom, StreamId, StreamPath, Timestamp};
use stream::{Accepted, ContentType, Lifetime, Lineage, Retention, StreamInfo};
use thalweg_protocol::{
    request::{Live, ReadRequest},
    response::{ReadAnswer, TailAge},
};

/// A stream as the pages show it.
pub(crate) fn info(content_type: &str, tail: u64) -> StreamInfo {
    StreamInfo {
        stream: StreamId::new(42),
        content_type: ContentType::new(content_type),
        layout: ContentType::new(content_type).layout(),
        created_at: Timestamp::new(0),
        written_at: Timestamp::new(0),
        lifetime: Lifetime::Forever,
        head: ByteOffset::ZERO,
        first_record: 0,
        tail: ByteOffset::new(tail),
        next_record: 3,
        mark: None,
        retention: Retention::default(),
        closed: false,
        lineage: Lineage::default(),
    }
}

/// An append without a producer, after which the stream ends at `tail`.
pub(crate) fn accepted(tail: u64) -> Accepted {
    Accepted {
        stream: StreamId::new(42),
        tail: ByteOffset::new(tail),
        records: Some((2, 3)),
        closed: false,
        producer: None,
        duplicate: false,
        close_only: false,
    }
}

/// A read that asks for nothing special.
pub(crate) fn request(offset: ReadFrom, live: Live) -> ReadRequest {
    ReadRequest {
        path: StreamPath::new("a").expect("a path"),
        offset,
        records: None,
        live,
        cursor: None,
        if_none_match: None,
        accepts_gzip: false,
        base64: false,
        resumes_events: false,
    }
}

/// The answer with the bytes from `start` to `end`.
pub(crate) fn answer<'a>(
    request: &'a ReadRequest,
    info: &'a StreamInfo,
    start: u64,
    end: u64,
) -> ReadAnswer<'a> {
    ReadAnswer {
        request,
        group: GroupId::new(7),
        info,
        start: ByteOffset::new(start),
        end: ByteOffset::new(end),
        is_stable: false,
        cursor: None,
        records: None,
        gzip: false,
        is_public: true,
        tail_age: TailAge::RECOMMENDED,
    }
}
