//! One client's request on its way, as the server's connection holds it.

use log::Slice;
use model::{ByteOffset, StreamKey};
use node::ReadReply;
use protocol::{
    http1::Version,
    request::ReadRequest,
    sse::{Mode, SseEncoder},
};
use stream::StreamInfo;

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) is_head: bool,
    pub(super) version: Version,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Waiting(Pending),
    Poll(Box<Poll>),
    Sending(Box<Sending>),
    Sse(Box<SseReader>),
}

#[derive(Debug)]
pub(super) enum Pending {
    Create { location: Box<str> },
    Write,
    Head,
    Read(Box<ReadRequest>),
}

#[derive(Debug)]
pub(super) struct Poll {
    pub(super) request: ReadRequest,
    pub(super) key: StreamKey,
    pub(super) offset: ByteOffset,
    pub(super) info: StreamInfo,
}

/// A body that is fetched window by window.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) reply: ReadReply,
    pub(super) next: ByteOffset,
    pub(super) end: ByteOffset,
    pub(super) suffix: &'static [u8],
}

#[derive(Debug)]
pub(super) struct SseReader {
    pub(super) key: StreamKey,
    pub(super) request: ReadRequest,
    pub(super) mode: Mode,
    pub(super) phase: Phase,
    pub(super) told_up_to_date: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// A read was asked for.
    Asked(SseEncoder),
    /// An event is under way.
    Event(Box<EventUnderWay>),
    /// At the tail.
    Live(SseEncoder, ByteOffset),
    /// Between two phases.
    Moving,
}

#[derive(Debug)]
pub(super) struct EventUnderWay {
    pub(super) encoder: SseEncoder,
    pub(super) reply: ReadReply,
    pub(super) next: ByteOffset,
}

/// The bytes of a slice that belong to `next..end`.
pub(super) fn wanted(slice: &Slice, next: ByteOffset, end: ByteOffset) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(slice.len().min(end.since(next))).expect("a window fits memory");
    Ok(slice.to_bytes()?[..length].to_vec())
}
