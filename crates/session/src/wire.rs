//! How exchanges look on a connection: the only module that knows which version of HTTP is spoken.
//!
//! # Why
//! All other modules know exchanges: a request arrives, then a head and a body are sent. Another version of HTTP
//! becomes another variant of [`Wire`] and changes nothing else. `xtask tidy` checks that no other module
//! imports a version.
//!
//! # Invariants
//! - An [`ExchangeId`] names one request and its answer. No later exchange has the same.
//! - A request is read once: [`Wire::next_request`] starts again at the same head only after an error or
//!   [`Wire::restart`].

use crate::{options::Options, slab::ConnId};
use model::Timestamp;
use protocol::{
    BodyFraming, HeadSink, HttpDate, Method,
    http1::{
        CONTINUE, ChunkedDecoder, Exchange, Framing, Head, HeadError, HeadLimits, HeadReader,
        HeadWriter, HeaderSlots, LAST_CHUNK, Version, put_chunk,
    },
    problem::Problem,
    request::{self, Page, Request, Scheme, Shown},
};
use std::hash::{Hash, Hasher};

/// Names one request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExchangeId {
    pub conn: ConnId,
    /// Its number in the connection.
    pub stream: u32,
}

/// What one connection speaks.
#[derive(Debug)]
pub(crate) enum Wire {
    Http1(HeadReader),
}

/// What a request may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    head: HeadLimits,
    field_count_max: usize,
    /// Whether it matters what a head shows of its sender.
    pub reads_shown: bool,
    /// Whether it matters which web page sends it.
    reads_page: bool,
}

/// A request whose head is complete.
#[derive(Debug)]
pub(crate) struct Arrived<'b> {
    /// What is asked, or why it is refused.
    pub request: Result<Request, Problem>,
    pub meta: Meta,
    /// What the head shows of its sender, where that matters.
    pub shown: Option<Box<Shown<'b>>>,
    /// Which page sends it, where that matters.
    pub page: Option<Page<'b>>,
    pub body: BodyLength,
    /// The client sends the body when it is invited.
    pub expects_invitation: bool,
    /// Its body begins after this many bytes.
    pub head_bytes: usize,
}

/// What of a request shapes its answer on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    version: Version,
    pub keep_alive: bool,
    is_head: bool,
}

/// What a head says of the length of its request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    /// The body says itself where it ends.
    Unknown,
}

/// What is missing of a request's body.
#[derive(Debug)]
pub(crate) enum BodyReader {
    Length(u64),
    Chunks(ChunkedDecoder),
}

/// What a [`BodyReader`] took.
pub(crate) struct Taken {
    pub bytes: usize,
    pub is_done: bool,
}

/// In one piece, which costs less than its numbers one by one.
impl Hash for ExchangeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        <[u32; 3]>::from(*self).hash(state);
    }
}

impl From<ExchangeId> for [u32; 3] {
    #[inline]
    fn from(id: ExchangeId) -> Self {
        [id.conn.slot, id.conn.generation, id.stream]
    }
}

impl From<[u32; 3]> for ExchangeId {
    #[inline]
    fn from([slot, generation, stream]: [u32; 3]) -> Self {
        Self { conn: ConnId { slot, generation }, stream }
    }
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Self {
        let head = HeadLimits {
            head_bytes_max: options.head_bytes_max,
            body_bytes_max: options.append_bytes_max as u64,
        };
        let reads_page = !options.pages.is_open();
        Self { head, field_count_max: options.head_count_max, reads_shown: false, reads_page }
    }
}

impl Wire {
    /// What a client that has said nothing yet will speak.
    pub(crate) fn new() -> Self {
        Self::Http1(HeadReader::default())
    }

    /// The request at the front of `bytes`, which came by `scheme`; `None` if its head is not complete.
    ///
    /// # Errors
    /// The answer to bytes that are no request. The connection cannot be used afterwards.
    #[inline]
    pub(crate) fn next_request<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
        scheme: Scheme,
    ) -> Result<Option<Arrived<'b>>, HeadError> {
        let Self::Http1(reader) = self;
        let mut slots = HeaderSlots::new();
        let Some(head) = reader.read(bytes, &mut slots, &limits.head)? else { return Ok(None) };
        let request = if head.request.fields.len() > limits.field_count_max {
            Err(Problem::from(HeadError::TooManyFields))
        } else {
            request::parse(&head.request, scheme)
        };
        Ok(Some(Arrived {
            request,
            meta: Meta::of(&head),
            shown: limits.reads_shown.then(|| Box::new(Shown::find(&head.request))),
            page: limits
                .reads_page
                .then_some(Page { host: head.request.authority, origin: head.origin }),
            body: match head.framing {
                Framing::None => BodyLength::Known(0),
                Framing::Length(bytes) => BodyLength::Known(bytes),
                Framing::Chunked => BodyLength::Unknown,
            },
            expects_invitation: head.expect_continue,
            head_bytes: head.head_bytes,
        }))
    }

    /// The next request is read from its first byte again.
    pub(crate) fn restart(&mut self) {
        *self = Self::new();
    }

    /// Invites the body of a request that waits for that.
    pub(crate) const INVITATION: &[u8] = CONTINUE;
}

impl Meta {
    /// Of bytes that were no request.
    pub(crate) const CLOSE: Self =
        Self { version: Version::Http11, keep_alive: false, is_head: false };

    #[inline]
    fn of(head: &Head<'_, '_>) -> Self {
        let is_head = head.request.method == Method::Head;
        Self { version: head.version, keep_alive: head.keep_alive, is_head }
    }

    /// A body that only the end of the connection ends is the last on it.
    pub(crate) fn note_framing(&mut self, framing: BodyFraming) {
        self.keep_alive &= framing != BodyFraming::UntilClose;
    }

    /// Whether other answers may follow on the connection. One of HTTP/1.0 may end with it.
    pub(crate) fn may_be_followed(&self) -> bool {
        self.keep_alive && self.version == Version::Http11
    }

    /// Appends a head, and what `write` puts behind it, to `out`; returns its status, too. If it `is_followed`
    /// by other answers, it does not end the connection.
    #[inline]
    pub(crate) fn write_head<R>(
        &self,
        out: &mut Vec<u8>,
        date: &HttpDate,
        is_followed: bool,
        write: impl FnOnce(&mut dyn HeadSink) -> R,
    ) -> (R, u16) {
        let Self { version, keep_alive, is_head } = *self;
        let exchange = Exchange { version, keep_alive, is_head, date };
        let mut head = HeadWriter::new(out, &exchange);
        if is_followed {
            head.keep_open();
        }
        let written = write(&mut head);
        (written, head.status())
    }
}

impl BodyLength {
    pub(crate) fn reader(self, limits: &Limits) -> BodyReader {
        match self {
            Self::Known(bytes) => BodyReader::Length(bytes),
            Self::Unknown => BodyReader::Chunks(ChunkedDecoder::new(limits.head.body_bytes_max)),
        }
    }
}

impl BodyReader {
    /// Appends the bytes at the front of `bytes` that belong to the body to `body`.
    ///
    /// # Errors
    /// The answer to a body that is broken. The connection cannot be used afterwards.
    pub(crate) fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<Taken, Problem> {
        match self {
            Self::Length(left) => {
                let count = (*left).min(bytes.len() as u64);
                *left -= count;
                let count = count as usize;
                body.extend_from_slice(&bytes[..count]);
                Ok(Taken { bytes: count, is_done: *left == 0 })
            }
            Self::Chunks(decoder) => {
                let step = decoder.decode(bytes, body)?;
                Ok(Taken { bytes: step.consumed, is_done: step.done })
            }
        }
    }

    /// Whether its head has said how long the body is.
    pub(crate) fn is_length_known(&self) -> bool {
        matches!(self, Self::Length(_))
    }
}

/// The answer to a client that speaks plain HTTP where TLS is spoken.
#[must_use]
pub fn plain_on_tls(now: Timestamp) -> Vec<u8> {
    let (mut out, date) = (Vec::new(), HttpDate::new(now));
    let problem = Problem::from(HeadError::PlainOnTls);
    Meta::CLOSE.write_head(&mut out, &date, false, |head| problem.render(head));
    out
}

/// Appends bytes of an answer's body to `out` as its head has promised.
pub(crate) fn put_body(framing: BodyFraming, bytes: &[u8], out: &mut Vec<u8>) {
    match framing {
        BodyFraming::Chunked => put_chunk(out, bytes),
        BodyFraming::Plain | BodyFraming::UntilClose => out.extend_from_slice(bytes),
    }
}

/// What ends the body of an answer.
pub(crate) fn end_of_body(framing: BodyFraming) -> &'static [u8] {
    match framing {
        BodyFraming::Chunked => LAST_CHUNK,
        BodyFraming::Plain | BodyFraming::UntilClose => &[],
    }
}

/// Whether bytes of the body are sent as they are, so that a file range may be among them.
pub(crate) fn is_unframed(framing: BodyFraming) -> bool {
    framing != BodyFraming::Chunked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_is_known_by_its_ticket() {
        let id = ExchangeId { conn: ConnId { slot: 1, generation: 2 }, stream: 3 };
        assert_eq!(ExchangeId::from(<[u32; 3]>::from(id)), id);
    }
}
