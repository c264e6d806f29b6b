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
use bytes::Bytes;
use http2::{Answer, AnswerWriter, Gone, Why};
use model::{Monotonic, Timestamp};
use protocol::{
    BodyFraming, HeadSink, HttpDate, Method,
    http1::{
        CONTINUE, ChunkedDecoder, Exchange, Framing, Head, HeadError, HeadLimits, HeadReader,
        HeadWriter, HeaderSlots, LAST_CHUNK, Version, put_chunk,
    },
    problem::Problem,
    request::{self, Asked, Page, Pages, Request, Sender, Shown, Way},
};
use std::hash::{Hash, Hasher};

/// Names one request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExchangeId {
    pub conn: ConnId,
    /// Its number in the connection.
    pub stream: u32,
}

/// What one connection speaks, or one stream of it.
#[derive(Debug)]
pub(crate) enum Wire {
    Http1(HeadReader),
    /// One exchange of a [`Line`].
    Stream(StreamWire),
}

/// One exchange of a connection that carries many at once.
#[derive(Debug)]
pub(crate) struct StreamWire {
    stream: Box<http2::Stream>,
    /// What was not looked at yet.
    head: Option<StreamHead>,
    /// All of the answer was given, or is queued.
    is_whole: bool,
}

/// The head of such an exchange.
#[derive(Debug)]
pub(crate) struct StreamHead(Box<http2::Head>);

/// A connection that carries many exchanges at once: its frames.
#[derive(Debug)]
pub(crate) struct Line(Box<http2::Connection>);

/// What a line has brought.
pub(crate) enum Brought {
    Exchange(StreamWire),
    /// Nothing for now.
    Nothing,
    /// The line is over.
    End,
}

pub(crate) use http2::{Data, Ready};

/// What a request may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    head: HeadLimits,
    field_count_max: usize,
    /// What a connection that carries many exchanges may have; none carries many if that is `None`.
    line: Option<http2::Options>,
    /// Whether it matters what a head shows of its sender.
    pub reads_shown: bool,
    /// Whether a log is kept.
    logs: bool,
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
    /// What a log says of it, if one is kept.
    pub asked: Option<Box<Asked>>,
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
    /// The web page that it comes from, or a program.
    pub sender: Sender,
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
    /// Until the stream ends.
    Stream {
        left_bytes: u64,
        limit_bytes: u64,
    },
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
        let line = options.http2.then_some(http2::Options {
            streams_max: options.http2_streams_max,
            head_bytes_max: u32::try_from(options.head_bytes_max).unwrap_or(u32::MAX),
        });
        let field_count_max = options.head_count_max;
        let logs = options.logs.is_any();
        Self { head, field_count_max, line, reads_shown: logs, logs, reads_page }
    }
}

impl Wire {
    /// What a client that has said nothing yet will speak.
    pub(crate) fn new() -> Self {
        Self::Http1(HeadReader::default())
    }

    /// The request at the front of `bytes`, which came by `way`; `None` if its head is not complete.
    ///
    /// # Errors
    /// The answer to bytes that are no request. The connection cannot be used afterwards.
    #[inline]
    pub(crate) fn next_request<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
        way: &Way<'_>,
    ) -> Result<Option<Arrived<'b>>, HeadError> {
        let Self::Http1(reader) = self else { return Ok(None) };
        let mut slots = HeaderSlots::new();
        let Some(head) = reader.read(bytes, &mut slots, &limits.head)? else { return Ok(None) };
        let request = if head.request.fields.len() > limits.field_count_max {
            Err(Problem::from(HeadError::TooManyFields))
        } else {
            request::parse(&head.request, way)
        };
        Ok(Some(Arrived {
            request,
            meta: Meta::of(&head),
            shown: limits.reads_shown.then(|| Box::new(Shown::find(&head.request, way))),
            asked: limits.logs.then(|| Box::new(Asked::of(&head.request))),
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
        if let Self::Http1(reader) = self {
            *reader = HeadReader::default();
        }
    }

    #[inline]
    pub(crate) fn stream(&mut self) -> Option<&mut StreamWire> {
        match self {
            Self::Http1(_) => None,
            Self::Stream(stream) => Some(stream),
        }
    }

    /// Invites the body of a request that waits for that.
    pub(crate) const INVITATION: &[u8] = CONTINUE;
}

/// Whether an error says that the client speaks another version, which is spoken here.
pub(crate) fn begins_line(error: HeadError, bytes: &[u8], limits: &Limits) -> bool {
    let is_other = error == HeadError::Http2Preface && limits.line.is_some();
    is_other && bytes.starts_with(http2::PREFACE)
}

impl Line {
    /// A line that writes `key` down when it wants to be polled.
    ///
    /// # Panics
    /// If none is spoken.
    pub(crate) fn new(limits: &Limits, key: u64, ready: &std::sync::Arc<Ready>) -> Self {
        let options = limits.line.as_ref().expect("it is spoken here");
        Self(Box::new(http2::Connection::new(options, key, ready)))
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.0.receive(bytes);
        self.0.knock();
    }

    pub(crate) fn end_input(&mut self) {
        self.0.end_input();
        self.0.knock();
    }

    pub(crate) fn input_bytes(&self) -> usize {
        self.0.input_bytes()
    }

    pub(crate) fn take_read_bytes(&self) -> usize {
        self.0.take_read_bytes()
    }

    pub(crate) fn allow_input(&mut self) {
        self.0.allow_input();
    }

    pub(crate) fn poll(&mut self, may_accept: bool) -> Brought {
        match self.0.poll(may_accept) {
            http2::Polled::Request(head, stream) => Brought::Exchange(StreamWire {
                stream,
                head: Some(StreamHead(head)),
                is_whole: false,
            }),
            http2::Polled::Waits => Brought::Nothing,
            http2::Polled::Over => Brought::End,
        }
    }

    /// Lends it a buffer for what is to be sent.
    pub(crate) fn lend(&mut self, buffer: Vec<u8>) {
        self.0.lend(buffer);
    }

    /// What is to be sent, in the buffer that was lent.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.0.take_output()
    }

    /// It is looked at now.
    pub(crate) fn look(&self) {
        self.0.look();
    }

    pub(crate) fn knock(&self) {
        self.0.knock();
    }

    pub(crate) fn shut_down(&mut self) {
        self.0.shut_down();
    }

    pub(crate) fn ask_for_life(&mut self) {
        self.0.ask_for_life();
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.0.is_ending()
    }

    /// A client has reset an exchange; `false` if that ends the line.
    pub(crate) fn note_reset(&mut self, now: Monotonic) -> bool {
        self.0.note_reset(now.ms_since(Monotonic::new(0)))
    }
}

impl StreamWire {
    pub(crate) fn name(&mut self, key: u64, ready: &std::sync::Arc<Ready>) {
        self.stream.name(key, ready);
    }

    pub(crate) fn take_head(&mut self) -> Option<StreamHead> {
        self.head.take()
    }

    /// Keeps a head for a later turn.
    pub(crate) fn put_head(&mut self, head: StreamHead) {
        self.head = Some(head);
    }

    pub(crate) fn look(&mut self) -> Result<(), Gone> {
        self.stream.look()
    }

    pub(crate) fn read(&mut self) -> Data {
        self.stream.read()
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        self.stream.release(bytes);
    }

    pub(crate) fn invite(&mut self) -> Result<(), Gone> {
        self.stream.invite()
    }

    /// Sends a head; returns what was written, the status, and the body that was put behind the head.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits.
    pub(crate) fn answer<R>(
        &mut self,
        meta: &Meta,
        (date, pages): (&HttpDate, &Pages),
        write: impl FnOnce(&mut dyn HeadSink) -> R,
    ) -> Result<(R, u16, Vec<u8>), Gone> {
        let mut writer = AnswerWriter::new(date, meta.is_head, pages.viewers(meta.sender));
        let written = write(&mut writer);
        let mut answer: Answer = writer.finish();
        let (status, body) = (answer.status(), std::mem::take(&mut answer.body));
        self.is_whole = answer.is_whole;
        let is_end = self.is_whole && body.is_empty();
        self.stream.answer(answer, is_end)?;
        Ok((written, status, body))
    }

    /// Whether the client takes any more bytes now.
    pub(crate) fn has_room(&mut self) -> bool {
        self.stream.room(1) > 0
    }

    /// How many of `wanted` bytes may be sent now.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        if self.stream.takes(wanted) { wanted } else { self.stream.room(wanted) }
    }

    /// Sends bytes that there is room for; `is_last` if nothing is queued behind them.
    pub(crate) fn send(&mut self, bytes: Bytes, is_last: bool) -> Result<(), Gone> {
        self.stream.send(bytes, is_last && self.is_whole)
    }

    /// Sends as many of `wanted` bytes as there is room for, behind which nothing is queued yet; how many.
    pub(crate) fn give(
        &mut self,
        wanted: usize,
        bytes: impl FnOnce(usize) -> Bytes,
    ) -> Result<usize, Gone> {
        let room = self.room(wanted);
        if room > 0 {
            self.send(bytes(room), room == wanted)?;
        }
        Ok(room)
    }

    /// Ends the answer; whether all of the request was read. If not, the stream is looked at again.
    pub(crate) fn end(&mut self) -> bool {
        self.stream.end();
        let is_read = self.stream.is_read();
        if !is_read {
            self.stream.knock();
        }
        is_read
    }

    /// Resets it; `is_cut` if the answer cannot be whole.
    pub(crate) fn reset(&mut self, is_cut: bool) {
        self.stream.reset(if is_cut { Why::Failed } else { Why::Cancelled });
    }
}

impl StreamHead {
    /// What of it shapes the answer.
    pub(crate) fn meta(&self) -> Meta {
        // Nothing else follows on a stream.
        Meta { is_head: self.0.is_head(), ..Meta::CLOSE }
    }

    /// Gives `take` the request.
    pub(crate) fn read<R>(
        &self,
        limits: &Limits,
        way: &Way<'_>,
        take: impl FnOnce(Result<Arrived<'_>, HeadError>) -> R,
    ) -> R {
        let fields = self.0.fields();
        let head = match self.0.read(&fields, &limits.head) {
            Ok(_) if fields.len() > limits.field_count_max => {
                return take(Err(HeadError::TooManyFields));
            }
            Ok(head) => head,
            Err(error) => return take(Err(error)),
        };
        let page = Page { host: head.request.authority, origin: head.origin };
        take(Ok(Arrived {
            request: request::parse(&head.request, way),
            meta: Meta { sender: Sender::of(head.origin), ..self.meta() },
            shown: limits.reads_shown.then(|| Box::new(Shown::find(&head.request, way))),
            asked: limits.logs.then(|| Box::new(Asked::of(&head.request))),
            page: limits.reads_page.then_some(page),
            body: head.body_bytes.map_or(BodyLength::Unknown, BodyLength::Known),
            expects_invitation: head.expect_continue,
            head_bytes: 0,
        }))
    }
}

impl Meta {
    /// Of bytes that were no request.
    pub(crate) const CLOSE: Self = Self {
        version: Version::Http11,
        keep_alive: false,
        is_head: false,
        sender: Sender::Program,
    };

    #[inline]
    fn of(head: &Head<'_, '_>) -> Self {
        let is_head = head.request.method == Method::Head;
        let sender = Sender::of(head.origin);
        Self { version: head.version, keep_alive: head.keep_alive, is_head, sender }
    }

    /// Notes the page that sends the request, where that matters.
    #[inline]
    pub(crate) fn note_page(&mut self, page: Option<&Page<'_>>, pages: &Pages) {
        if let Some(page) = page.filter(|page| page.origin.is_some()) {
            self.sender = pages.sender(page);
        }
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
        (date, pages): (&HttpDate, &Pages),
        is_followed: bool,
        write: impl FnOnce(&mut dyn HeadSink) -> R,
    ) -> (R, u16) {
        let Self { version, keep_alive, is_head, sender } = *self;
        let viewers = pages.viewers(sender);
        let exchange = Exchange { version, keep_alive, is_head, date, viewers };
        let mut head = HeadWriter::new(out, &exchange);
        if is_followed {
            head.keep_open();
        }
        let written = write(&mut head);
        (written, head.status())
    }
}

impl BodyLength {
    pub(crate) fn reader(self, limits: &Limits, is_stream: bool) -> BodyReader {
        let limit_bytes = limits.head.body_bytes_max;
        match self {
            Self::Known(bytes) => BodyReader::Length(bytes),
            Self::Unknown if is_stream => {
                BodyReader::Stream { left_bytes: limit_bytes, limit_bytes }
            }
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
            Self::Stream { left_bytes, limit_bytes } => {
                let Some(left) = left_bytes.checked_sub(bytes.len() as u64) else {
                    return Err(Problem::body_too_large(*limit_bytes));
                };
                *left_bytes = left;
                body.extend_from_slice(bytes);
                Ok(Taken { bytes: bytes.len(), is_done: false })
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
    let pages = Pages::default();
    Meta::CLOSE.write_head(&mut out, (&date, &pages), false, |head| problem.render(head));
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
