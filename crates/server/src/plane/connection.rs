//! One connection: its socket, what waits to be sent, and what it is in the middle of.
//!
//! An idle connection holds no buffer: requests are read into the loop's own buffer, and an answer
//! that the socket takes at once is never stored.

use super::{live::SseReader, pump::Sending};
use bytes::Bytes;
use env::File;
use mio::net::TcpStream;
use model::{ByteOffset, Monotonic, StreamKey};
use node::ReadReply;
use protocol::{
    http1::{ChunkedDecoder, Exchange, Head, HeadReader, Method, Version},
    request::{ReadRequest, Request},
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use stream::StreamInfo;

/// Answers to pipelined requests that may wait for their reader, besides the last one.
const ANSWERS_QUEUED_BYTES_MAX: usize = 64 << 10;

/// Most pieces that one system call sends.
const PIECES_MAX: usize = 16;

/// Bytes that one connection may send us in one turn of the loop before the others have theirs.
const TURN_BYTES_MAX: usize = 256 << 10;

/// What a request counts in that, besides its bytes: pipelined ones may be as short as 40 bytes, and
/// the work of one, its answer included, is about that of receiving so much.
pub(crate) const REQUEST_SHARE_BYTES: usize = 128 << 10;

#[derive(Debug)]
pub(crate) struct Connection {
    pub socket: TcpStream,
    pub state: State,
    /// What was received and not used yet: the start of a head, or pipelined requests.
    pub input: Vec<u8>,
    pub head_reader: HeadReader,
    /// The socket may have more to read.
    pub readable: bool,
    /// What shapes the answer to the present request.
    pub meta: Meta,
    queue: VecDeque<Piece>,
    /// Bytes in `queue`; those of files are not counted, they are not in memory.
    pub queued_bytes: usize,
    /// What this connection has sent us in the present turn of the loop.
    share: Share,
    /// It goes on with its input in a later turn.
    pub goes_on: bool,
    /// It waits for its turn to move stored bytes.
    pub is_in_line: bool,
    /// When a byte last moved in either direction that matters to the present state.
    pub progress: Monotonic,
}

/// Bytes received in one turn of the loop.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    turn: u64,
    bytes: usize,
}

/// What of the request shapes its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub version: Version,
    pub keep_alive: bool,
    pub is_head: bool,
}

impl Meta {
    pub(crate) const CLOSE: Self =
        Self { version: Version::Http11, keep_alive: false, is_head: false };

    pub(crate) fn of(head: &Head<'_, '_>) -> Self {
        let is_head = head.method == Method::Head;
        Self { version: head.version, keep_alive: head.keep_alive, is_head }
    }

    pub(crate) fn exchange<'a>(&self, date: &'a protocol::HttpDate) -> Exchange<'a> {
        Exchange { version: self.version, keep_alive: self.keep_alive, is_head: self.is_head, date }
    }
}

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
    Waiting(Box<Pending>),
    /// The answer is long, and waits for its turn to move stored bytes.
    InLine(Box<(ReadRequest, ReadReply)>),
    /// At the tail, until something comes.
    LongPoll(Box<Poll>),
    /// An answer with stored bytes is on its way.
    Sending(Box<Sending>),
    /// Following a stream.
    Sse(Box<SseReader>),
    /// The last answer is in the queue; when it is sent, the connection ends.
    Closing,
    /// Everything is sent and the end was announced; waits for the client to close.
    Lingering,
}

#[derive(Debug)]
pub(crate) struct Receiving {
    pub request: Request,
    pub body: Vec<u8>,
    pub left: BodyLeft,
    pub since: Monotonic,
    /// What admission was charged.
    pub charged_bytes: usize,
}

#[derive(Debug)]
pub(crate) enum BodyLeft {
    Length(u64),
    Chunks(ChunkedDecoder),
}

/// A request that the node has.
#[derive(Debug)]
pub(crate) enum Pending {
    Create {
        location: Box<str>,
    },
    /// An append or a delete.
    Write {
        data_bytes: u64,
    },
    Head,
    Read(Box<ReadRequest>),
    /// The first bytes of an answer whose ends are known; another shard stores them.
    First(Box<(ReadRequest, ReadReply)>),
    /// A body that is being checked; the node comes after that.
    Check,
}

/// A long-poll at the tail.
#[derive(Debug)]
pub(crate) struct Poll {
    pub request: ReadRequest,
    pub key: StreamKey,
    pub offset: ByteOffset,
    /// The stream as it stood when the poll began.
    pub info: StreamInfo,
    pub due: Monotonic,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    File { file: Arc<dyn File>, position: u64, left_bytes: u64 },
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, now: Monotonic) -> Self {
        Self {
            socket,
            state: State::Head,
            input: Vec::new(),
            head_reader: HeadReader::default(),
            readable: true,
            meta: Meta::CLOSE,
            queue: VecDeque::new(),
            queued_bytes: 0,
            share: Share::default(),
            goes_on: false,
            is_in_line: false,
            progress: now,
        }
    }

    /// Counts `bytes` received in turn number `turn`.
    pub(crate) fn take_share(&mut self, turn: u64, bytes: usize) {
        if self.share.turn != turn {
            self.share = Share { turn, bytes: 0 };
        }
        self.share.bytes += bytes;
    }

    /// Whether the others should have theirs first.
    pub(crate) fn has_had_share(&self, turn: u64) -> bool {
        self.share.turn == turn && self.share.bytes >= TURN_BYTES_MAX
    }

    /// Whether it has had a request carried out in turn number `turn`.
    pub(crate) fn has_had_request(&self, turn: u64) -> bool {
        self.share.turn == turn && self.share.bytes >= REQUEST_SHARE_BYTES
    }

    /// Whether so much of earlier answers waits that the next request must, too.
    pub(crate) fn is_clogged(&self) -> bool {
        self.queued_bytes > ANSWERS_QUEUED_BYTES_MAX
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Reads into `buffer`; `None` if there is nothing now.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.socket.read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends `bytes`, or as much as the socket takes; the rest is copied and queued.
    pub(crate) fn send(&mut self, bytes: &[u8], now: Monotonic) -> io::Result<()> {
        let sent = if self.is_drained() { self.send_now(bytes, now)? } else { 0 };
        if sent < bytes.len() {
            self.push(Piece::Bytes(Bytes::copy_from_slice(&bytes[sent..])), now);
        }
        Ok(())
    }

    /// As [`Self::send`], but what the socket does not take is shared, not copied.
    pub(crate) fn send_shared(&mut self, bytes: &Bytes, now: Monotonic) -> io::Result<()> {
        let sent = if self.is_drained() { self.send_now(bytes, now)? } else { 0 };
        if sent < bytes.len() {
            self.push(Piece::Bytes(bytes.slice(sent..)), now);
        }
        Ok(())
    }

    fn send_now(&mut self, bytes: &[u8], now: Monotonic) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.progress = now;
        Ok(sent)
    }

    /// Queues a piece behind what waits already.
    pub(crate) fn push(&mut self, piece: Piece, now: Monotonic) {
        if self.is_drained() {
            self.progress = now;
        }
        if let Piece::Bytes(bytes) = &piece {
            self.queued_bytes += bytes.len();
        }
        self.queue.push_back(piece);
    }

    /// Sends from the queue until it is empty (`true`) or the socket takes no more.
    pub(crate) fn flush(&mut self, now: Monotonic) -> io::Result<bool> {
        while let Some(first) = self.queue.front() {
            let sent = match first {
                Piece::Bytes(_) => self.flush_bytes(),
                Piece::File { .. } => self.flush_file(),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => self.progress = now,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn flush_bytes(&mut self) -> io::Result<usize> {
        let sent = match (self.queue.front(), self.queue.get(1)) {
            // The frame of a live reader: `send` costs the kernel less than `writev`.
            (Some(Piece::Bytes(bytes)), None) => self.socket.write(bytes)?,
            _ => self.send_several()?,
        };
        self.queued_bytes -= sent;
        self.drop_sent(sent);
        Ok(sent)
    }

    fn send_several(&mut self) -> io::Result<usize> {
        let mut pieces = Vec::with_capacity(PIECES_MAX);
        for piece in self.queue.iter().take(PIECES_MAX) {
            let Piece::Bytes(bytes) = piece else { break };
            pieces.push(IoSlice::new(bytes));
        }
        self.socket.write_vectored(&pieces)
    }

    fn drop_sent(&mut self, mut sent: usize) {
        while sent > 0 {
            let Some(Piece::Bytes(bytes)) = self.queue.front_mut() else { return };
            if sent < bytes.len() {
                let _ = bytes.split_to(sent);
                return;
            }
            sent -= bytes.len();
            self.queue.pop_front();
        }
    }

    fn flush_file(&mut self) -> io::Result<usize> {
        let Some(Piece::File { file, position, left_bytes }) = self.queue.front_mut() else {
            return Ok(0);
        };
        let wanted = usize::try_from(*left_bytes).unwrap_or(usize::MAX);
        let sent = match file.as_fd() {
            Some(file) => rustix::fs::sendfile(&self.socket, file, Some(position), wanted)?,
            None => {
                let mut buffer = vec![0; wanted.min(64 << 10)];
                let count = file.read_at(&mut buffer, *position)?;
                let sent = self.socket.write(&buffer[..count])?;
                *position += sent as u64;
                sent
            }
        };
        *left_bytes -= sent as u64;
        if *left_bytes == 0 {
            self.queue.pop_front();
        }
        Ok(sent)
    }
}
