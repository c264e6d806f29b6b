//! One connection: what waits to be sent, and what it is in the middle of.
//!
//! An idle connection holds no buffer: requests are read into the loop's own buffer, and an answer
//! that the transport takes at once is never stored.

use crate::{
    body::Sending,
    carried::Streams,
    journal::{Came, Entry},
    live::SseReader,
    pipeline::{Ahead, Touch},
    slab::ConnId,
    transport::{self, Peer, Read, Sent, Transport},
    wire::{BodyReader, Meta, StreamWire, Wire},
};
use access::{Authorized, Principal};
use bytes::Bytes;
use env::File;
use model::{ByteOffset, Monotonic, StreamKey};
use node::ReadReply;
use protocol::request::{Asked, ReadRequest, Request, Shown};
use std::collections::VecDeque;
use std::sync::Arc;
use stream::StreamInfo;

/// Answers to pipelined requests that may wait for their reader, besides the last one.
const ANSWERS_QUEUED_BYTES_MAX: usize = 64 << 10;

/// Most pieces that one system call sends.
const PIECES_MAX: usize = 16;

/// Bytes that one connection may send us in one turn of the loop before the others have theirs.
const TURN_BYTES_MAX: usize = 256 << 10;

/// The part of that budget that a request takes, besides its bytes. Pipelined requests may be as short as 40
/// bytes. The work of one, with its answer, is about that of receiving so much.
pub(crate) const REQUEST_BUDGET_BYTES: usize = 128 << 10;

#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnId,
    /// The connection whose stream it is; `None` if it has a transport of its own.
    pub parent: Option<ConnId>,
    /// The client of a stream has gone; the node still has its request.
    pub is_abandoned: bool,
    pub peer: Peer,
    /// What its client was known by last.
    pub known: Option<Arc<Principal>>,
    /// Credentials in a row that were not valid.
    pub bad_credentials: u8,
    pub state: State,
    /// What was received and not used yet: the start of a head, or pipelined requests.
    pub input: Vec<u8>,
    pub wire: Wire,
    /// The transport may have more to read.
    pub readable: bool,
    /// What shapes the answer to the present request.
    pub meta: Meta,
    /// What a log says of it.
    pub entry: Option<Box<Entry>>,
    queue: VecDeque<Piece>,
    /// Bytes in `queue`; those of files are not counted, they are not in memory.
    pub queued_bytes: usize,
    /// What this connection has sent us in the present turn of the loop.
    budget: Budget,
    /// Its input is read on in a later turn.
    pub yielded: bool,
    /// It is in the queue of those that move stored bytes.
    pub is_queued: bool,
    /// Windows that it moved since it was last at the end of that queue.
    pub windows_in_a_row: u8,
    /// When a byte last moved in either direction that matters to the present state.
    pub progress: Monotonic,
    /// The number of the present exchange, and what it touches.
    pub stream: u32,
    pub touch: Touch,
    /// The number that the last exchange got.
    pub stream_next: u32,
    /// Requests behind the present one that were asked already, in order.
    pub ahead: VecDeque<Ahead>,
    /// Bytes of their bodies.
    pub ahead_bytes: usize,
    /// The request at the front of the input may not be asked yet.
    pub is_blocked: bool,
    /// Kept replies are being answered.
    pub is_advancing: bool,
    /// The client has closed its half; what it sent before that may not be read yet.
    pub is_half_closed: bool,
    /// The client sends no more, which is taken up when its requests are answered.
    pub has_ended: bool,
}

/// Bytes received in one turn of the loop.
#[derive(Debug, Clone, Copy, Default)]
struct Budget {
    turn: u64,
    bytes: usize,
}

/// The connection is broken: its client has gone.
#[derive(Debug)]
pub(crate) struct Broken;

/// What a connection is in the middle of.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing, or receiving a head.
    Head,
    /// Receiving the body of a request.
    Body(Box<Receiving>),
    /// Reading past a body that nobody wants.
    Discard { left_bytes: u64 },
    /// The node has the request.
    Waiting(Pending),
    /// The answer is long, and waits for its turn to move stored bytes.
    Queued(Box<(Authorized<ReadRequest>, ReadReply)>),
    /// At the tail, until something comes.
    LongPoll(Box<Poll>),
    /// An answer with stored bytes is on its way.
    Sending(Box<Sending>),
    /// Following a stream.
    Sse(Box<SseReader>),
    /// Carrying many exchanges at once, each a connection of its own in here.
    Streams(Box<Streams>),
    /// The last answer is in the queue; when it is sent, the connection ends.
    Closing,
    /// Everything is sent and the end was announced; waits for the client to close.
    Lingering,
}

#[derive(Debug)]
pub(crate) struct Receiving {
    pub request: Authorized<Request>,
    pub body: Vec<u8>,
    pub left: BodyReader,
    pub since: Monotonic,
    /// What admission was charged.
    pub charged_bytes: usize,
}

/// A request that the node has.
#[derive(Debug)]
pub(crate) enum Pending {
    Create {
        location: Box<[u8]>,
    },
    Append {
        data_bytes: u64,
        /// The answer says which numbers the records got.
        shows_records: bool,
    },
    /// A delete, a trim, or a change of settings.
    Write,
    Head,
    /// Whether the client shall send the body of an append.
    Announced(Box<Receiving>),
    Read(Box<Authorized<ReadRequest>>),
    /// The first bytes of an answer whose ends are known; another shard stores them.
    First(Box<(Authorized<ReadRequest>, ReadReply)>),
    /// A body that is being checked; the node comes after that.
    Check,
}

/// A long-poll at the tail.
#[derive(Debug)]
pub(crate) struct Poll {
    pub request: Authorized<ReadRequest>,
    /// The rules allow it no more.
    pub is_revoked: bool,
    pub key: StreamKey,
    pub offset: ByteOffset,
    /// The stream as it stood when the poll began.
    pub info: StreamInfo,
    pub due: Monotonic,
    /// Names it among the polls of its stream.
    pub number: u64,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    File { file: Arc<dyn File>, position: u64, left_bytes: u64 },
}

impl Piece {
    fn offered(&self) -> transport::Piece<'_> {
        match self {
            Self::Bytes(bytes) => transport::Piece::Bytes(bytes),
            Self::File { file, position, left_bytes } => transport::Piece::File {
                file: file.as_ref(),
                position: *position,
                bytes: *left_bytes,
            },
        }
    }
}

impl Connection {
    pub(crate) fn new(id: ConnId, peer: Peer, now: Monotonic) -> Self {
        Self {
            id,
            parent: None,
            is_abandoned: false,
            peer,
            known: None,
            bad_credentials: 0,
            state: State::Head,
            input: Vec::new(),
            wire: Wire::new(),
            readable: true,
            meta: Meta::CLOSE,
            entry: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            budget: Budget::default(),
            yielded: false,
            is_queued: false,
            windows_in_a_row: 0,
            progress: now,
            stream: 0,
            touch: Touch::ALONE,
            stream_next: 0,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            is_blocked: false,
            is_advancing: false,
            is_half_closed: false,
            has_ended: false,
        }
    }

    /// A stream of a connection.
    pub(crate) fn of_stream(id: ConnId, parent: &Self, wire: Wire, now: Monotonic) -> Self {
        Self {
            parent: Some(parent.id),
            known: parent.known.clone(),
            wire,
            ..Self::new(id, parent.peer.clone(), now)
        }
    }

    /// This connection under its own name.
    pub(crate) fn named(self, id: ConnId) -> Self {
        Self { id, ..self }
    }

    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// Whether it is a stream of another connection.
    #[inline]
    pub(crate) fn is_stream(&self) -> bool {
        self.parent.is_some()
    }

    /// How its exchanges come.
    pub(crate) fn came(&self, is_cut: bool) -> Came {
        let wire = if self.is_stream() { "h2" } else { "h1" };
        Came { wire, is_tls: self.peer.is_tls, is_cut }
    }

    /// What a log will say of a request that begins now, if one is kept.
    #[inline]
    pub(crate) fn entry_of(
        &self,
        asked: Option<Box<Asked>>,
        shown: Option<&Shown<'_>>,
        now: Monotonic,
    ) -> Option<Box<Entry>> {
        let asked = asked?;
        let address = shown.and_then(|shown| shown.client).unwrap_or(self.peer.address);
        let trace = shown.and_then(|shown| shown.trace);
        Some(Box::new(Entry::new(asked, address, trace, now)))
    }

    /// The head of the present answer is written.
    #[inline]
    pub(crate) fn note_head(&mut self, status: u16, now: Monotonic) {
        if let Some(entry) = &mut self.entry {
            entry.note_head(status, now);
        }
    }

    /// Counts bytes of an answer.
    #[inline]
    fn note_sent(&mut self, bytes: usize) {
        if let Some(entry) = &mut self.entry {
            entry.answer_bytes += bytes as u64;
        }
    }

    /// Whether the client takes any more bytes now. If not, a stream is looked at when it does.
    pub(crate) fn has_room(&mut self) -> bool {
        self.wire.stream().is_none_or(StreamWire::has_room)
    }

    /// Invites the body of a request that waits for that.
    pub(crate) fn invite(&mut self, io: &mut impl Transport, now: Monotonic) -> Result<(), Broken> {
        match self.wire.stream() {
            Some(stream) => stream.invite().map_err(|_| Broken),
            None => self.send(io, Wire::INVITATION, now),
        }
    }

    /// Asserts what must hold between two inputs.
    pub(crate) fn check(&self) {
        let bytes = self.queue.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::File { .. } => 0,
        });
        assert_eq!(bytes.sum::<usize>(), self.queued_bytes, "queued bytes are counted");
        let is_between = matches!(self.state, State::Head) && self.is_drained();
        assert!(!is_between || self.ahead.is_empty(), "kept requests have their turn");
        let is_over = matches!(self.state, State::Closing | State::Lingering | State::Streams(_));
        assert!(!is_over || self.entry.is_none(), "an exchange that is over has its line");
    }

    pub(crate) fn is_compressing(&self) -> bool {
        matches!(&self.state, State::Sending(sending) if sending.is_gzip())
    }

    /// The stream whose changes it waits for.
    pub(crate) fn follows(&self) -> Option<StreamKey> {
        match &self.state {
            State::LongPoll(poll) => Some(poll.key),
            State::Sse(reader) if reader.is_live() => Some(reader.key),
            _ => None,
        }
    }

    /// Counts `bytes` received in turn number `turn`.
    pub(crate) fn spend(&mut self, turn: u64, bytes: usize) {
        if self.budget.turn != turn {
            self.budget = Budget { turn, bytes: 0 };
        }
        self.budget.bytes += bytes;
    }

    /// Whether the others should have theirs first.
    pub(crate) fn is_spent(&self, turn: u64) -> bool {
        self.budget.turn == turn && self.budget.bytes >= TURN_BYTES_MAX
    }

    /// Whether it has had a request carried out in turn number `turn`.
    pub(crate) fn has_had_request(&self, turn: u64) -> bool {
        self.budget.turn == turn && self.budget.bytes >= REQUEST_BUDGET_BYTES
    }

    /// Whether so much of earlier answers waits that the next request must, too.
    pub(crate) fn is_clogged(&self) -> bool {
        self.queued_bytes > ANSWERS_QUEUED_BYTES_MAX
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Reads into `buffer`.
    pub(crate) fn read(&mut self, io: &mut impl Transport, buffer: &mut [u8]) -> Read {
        if self.has_ended {
            return Read::End;
        }
        let read = io.read(self.id, buffer);
        match read {
            Read::Nothing => self.readable = false,
            // The end was announced already: no event follows with it.
            Read::Last(_) => self.readable = self.is_half_closed,
            _ => {}
        }
        read
    }

    /// Sends `bytes`, or as much as is taken; the rest is copied and queued.
    ///
    /// # Errors
    /// [`Broken`] if the connection is.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        io: &mut impl Transport,
        bytes: &[u8],
        now: Monotonic,
    ) -> Result<(), Broken> {
        self.note_sent(bytes.len());
        let copy = |room| Bytes::copy_from_slice(&bytes[..room]);
        let sent = if self.is_drained() { self.send_now(io, (bytes, copy), now)? } else { 0 };
        if sent < bytes.len() {
            self.enqueue(Piece::Bytes(Bytes::copy_from_slice(&bytes[sent..])), now);
        }
        Ok(())
    }

    /// As [`Self::send`], but what is not taken is shared, not copied.
    pub(crate) fn send_shared(
        &mut self,
        io: &mut impl Transport,
        bytes: &Bytes,
        now: Monotonic,
    ) -> Result<(), Broken> {
        self.note_sent(bytes.len());
        let share = |room| bytes.slice(..room);
        let sent = if self.is_drained() { self.send_now(io, (bytes, share), now)? } else { 0 };
        if sent < bytes.len() {
            self.enqueue(Piece::Bytes(bytes.slice(sent..)), now);
        }
        Ok(())
    }

    /// Sends as many of `bytes` as are taken; a stream takes them as `part` makes them.
    #[inline(always)]
    fn send_now(
        &mut self,
        io: &mut impl Transport,
        (bytes, part): (&[u8], impl FnOnce(usize) -> Bytes),
        now: Monotonic,
    ) -> Result<usize, Broken> {
        self.progress = now;
        if let Some(stream) = self.wire.stream() {
            return stream.give(bytes.len(), part).map_err(|_| Broken);
        }
        match io.write(self.id, &[transport::Piece::Bytes(bytes)]) {
            Sent::Bytes(sent) => Ok(usize::try_from(sent).expect("no more than there was")),
            Sent::Broken => Err(Broken),
        }
    }

    /// Queues a piece behind what waits already.
    pub(crate) fn push(&mut self, piece: Piece, now: Monotonic) {
        self.note_sent(usize::try_from(piece.offered().bytes()).unwrap_or(usize::MAX));
        self.enqueue(piece, now);
    }

    fn enqueue(&mut self, piece: Piece, now: Monotonic) {
        if self.is_drained() {
            self.progress = now;
        }
        if let Piece::Bytes(bytes) = &piece {
            self.queued_bytes += bytes.len();
        }
        self.queue.push_back(piece);
    }

    /// Sends from the queue until it is empty (`true`) or no more is taken.
    ///
    /// # Errors
    /// [`Broken`] if the connection is.
    pub(crate) fn flush(
        &mut self,
        io: &mut impl Transport,
        now: Monotonic,
    ) -> Result<bool, Broken> {
        if self.is_stream() {
            return self.flush_stream(now);
        }
        while let Some(first) = self.queue.front() {
            let (sent, offered) = match first {
                Piece::Bytes(_) if self.queue.len() > 1 => self.offer_several(io),
                one => (io.write(self.id, &[one.offered()]), one.offered().bytes()),
            };
            let Sent::Bytes(sent) = sent else { return Err(Broken) };
            if sent > 0 {
                self.progress = now;
                self.drop_sent(sent);
            }
            if sent < offered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn flush_stream(&mut self, now: Monotonic) -> Result<bool, Broken> {
        let Self { wire: Wire::Stream(stream), queue, queued_bytes, progress, .. } = self else {
            return Ok(true);
        };
        while let Some(Piece::Bytes(bytes)) = queue.front_mut() {
            let room = stream.room(bytes.len());
            if room == 0 && !bytes.is_empty() {
                return Ok(false);
            }
            let given = bytes.split_to(room);
            *queued_bytes -= given.len();
            *progress = now;
            let is_taken = bytes.is_empty();
            if is_taken {
                queue.pop_front();
            }
            stream.send(given, queue.is_empty()).map_err(|_| Broken)?;
        }
        assert!(queue.is_empty(), "a stream takes no files");
        Ok(true)
    }

    /// Offers the pieces at the front of the queue, up to the first that is in a file; how long they are together, too.
    fn offer_several(&self, io: &mut impl Transport) -> (Sent, u64) {
        let mut pieces = Vec::with_capacity(PIECES_MAX);
        for piece in self.queue.iter().take(PIECES_MAX) {
            pieces.push(piece.offered());
            if matches!(piece, Piece::File { .. }) {
                break;
            }
        }
        let offered = pieces.iter().map(transport::Piece::bytes).sum();
        (io.write(self.id, &pieces), offered)
    }

    fn drop_sent(&mut self, mut sent: u64) {
        while sent > 0 {
            match self.queue.front_mut() {
                None => unreachable!("more was sent than there was"),
                Some(Piece::File { position, left_bytes, .. }) => {
                    (*position, *left_bytes) = (*position + sent, *left_bytes - sent);
                    if *left_bytes > 0 {
                        return;
                    }
                    sent = 0;
                }
                Some(Piece::Bytes(bytes)) => {
                    let count = usize::try_from(sent).unwrap_or(usize::MAX).min(bytes.len());
                    self.queued_bytes -= count;
                    if count < bytes.len() {
                        let _ = bytes.split_to(count);
                        return;
                    }
                    sent -= count as u64;
                }
            }
            self.queue.pop_front();
        }
    }
}
