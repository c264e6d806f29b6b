//! One connection: what the library is given, and what it makes of that.

use crate::{Head, Ready, Stream, limits, pipe::Io, ready::Knock, stream::Unsent};
use bytes::Bytes;
use h2::{Ping, PingPong, Reason, server};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a server allows its clients.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Streams that a client may have open at a time.
    pub streams_max: u32,
    /// Longest list of fields of one head, as HPACK counts it.
    pub head_bytes_max: u32,
}

/// A connection. It begins with what the client has sent first, preface included.
#[derive(Debug)]
pub struct Connection {
    link: Link,
    io: Io,
    knock: Arc<Knock>,
    waker: Waker,
    unsent: Arc<Unsent>,
    resets: Resets,
    is_ending: bool,
    /// There since the handshake.
    pings: Option<PingPong>,
}

enum Link {
    Handshake(Box<server::Handshake<Io, Bytes>>),
    Open(Box<server::Connection<Io, Bytes>>),
    Over,
}

/// What a poll has brought.
#[derive(Debug)]
pub enum Polled {
    /// A request. Poll again: there may be more.
    Request(Box<Head>, Box<Stream>),
    /// Nothing until something happens.
    Waits,
    /// The connection is over. Send what is left of its output, and end it.
    Over,
}

/// How many resets a client may still send.
#[derive(Debug)]
struct Resets {
    left: u32,
    /// When some were given back last.
    at_ms: u64,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Handshake(_) => "Handshake",
            Self::Open(_) => "Open",
            Self::Over => "Over",
        })
    }
}

impl Connection {
    /// A connection that writes `key` down when it wants to be polled.
    #[must_use]
    pub fn new(options: &Options, key: u64, ready: &Arc<Ready>) -> Self {
        let io = Io::default();
        let mut builder = server::Builder::new();
        builder
            .initial_window_size(limits::STREAM_WINDOW_BYTES)
            .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(options.streams_max)
            .max_header_list_size(options.head_bytes_max)
            .max_send_buffer_size(limits::STREAM_UNSENT_BYTES_MAX)
            .max_concurrent_reset_streams(limits::OWN_RESETS_MAX)
            .max_pending_accept_reset_streams(limits::UNSEEN_RESETS_MAX)
            .max_local_error_reset_streams(Some(limits::ERROR_RESETS_MAX))
            .reset_stream_duration(Duration::from_secs(1));
        let knock = Knock::new(key, ready);
        let waker = Waker::from(Arc::clone(&knock));
        Self {
            link: Link::Handshake(Box::new(builder.handshake(io.clone()))),
            io,
            unsent: Arc::new(Unsent::new(waker.clone())),
            waker,
            knock,
            resets: Resets { left: limits::RESETS_MAX, at_ms: 0 },
            is_ending: false,
            pings: None,
        }
    }

    /// Takes bytes that have come.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.io.pipe().input.extend_from_slice(bytes);
    }

    /// The client sends no more.
    pub fn end_input(&mut self) {
        self.io.pipe().has_ended = true;
    }

    /// Bytes that have come and no poll has taken yet.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        self.io.pipe().input.len()
    }

    /// Lets the next poll take input.
    pub fn allow_input(&mut self) {
        self.io.pipe().allowed_bytes = limits::INPUT_BYTES_PER_POLL;
    }

    /// Continues as far as input and output allow. A request is taken only if it `may_accept`; otherwise those that came
    /// stay where they are.
    pub fn poll(&mut self, may_accept: bool) -> Polled {
        self.knock.answer();
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        if let Link::Handshake(handshake) = &mut self.link {
            match Pin::new(&mut **handshake).poll(&mut context) {
                Poll::Pending => return Polled::Waits,
                Poll::Ready(Ok(mut open)) => {
                    self.pings = open.ping_pong();
                    self.link = Link::Open(Box::new(open));
                }
                Poll::Ready(Err(_)) => return self.end(),
            }
            if self.is_ending {
                self.shut_down();
            }
        }
        let Link::Open(open) = &mut self.link else { return Polled::Over };
        if !may_accept {
            return match open.poll_closed(&mut context) {
                Poll::Pending => Polled::Waits,
                Poll::Ready(_) => self.end(),
            };
        }
        match open.poll_accept(&mut context) {
            Poll::Pending => Polled::Waits,
            Poll::Ready(None | Some(Err(_))) => self.end(),
            Poll::Ready(Some(Ok((request, respond)))) => {
                let (parts, body) = request.into_parts();
                let head = Head::new(parts, body.is_end_stream());
                let stream = Stream::new(respond, body, Arc::clone(&self.unsent));
                Polled::Request(Box::new(head), Box::new(stream))
            }
        }
    }

    fn end(&mut self) -> Polled {
        self.link = Link::Over;
        Polled::Over
    }

    /// Bytes of bodies that were read since this was asked last.
    #[must_use]
    pub fn take_read_bytes(&self) -> usize {
        self.unsent.take_read_bytes()
    }

    /// Lends it a buffer for what is to be sent: many connections may take turns with one that the processor has at hand.
    pub fn lend(&mut self, mut buffer: Vec<u8>) {
        let mut pipe = self.io.pipe();
        if pipe.output.is_empty() {
            buffer.clear();
            pipe.output = buffer;
        }
    }

    /// What is to be sent to the client, in the buffer that was lent. What was left of a poll for want of room comes with the next one.
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut pipe = self.io.pipe();
        let was_full = pipe.is_full;
        let output = pipe.take_output();
        drop(pipe);
        if was_full {
            self.knock();
        } else {
            self.unsent.clear();
        }
        output
    }

    /// It is looked at, polled or not: from now on its key is written down again.
    pub fn look(&self) {
        self.knock.answer();
    }

    /// Wants to be polled.
    pub fn knock(&self) {
        self.waker.wake_by_ref();
    }

    /// Asks the client for a sign of life, unless it was asked and has given none.
    pub fn ask_for_life(&mut self) {
        let Some(pings) = &mut self.pings else { return };
        // The sign that it gave last time makes room for another question.
        let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
        // An error says that it has not answered yet, or that the connection is over.
        let _ = pings.send_ping(Ping::opaque());
        self.knock();
    }

    /// Tells the client to begin nothing more. Streams that are there may end.
    pub fn shut_down(&mut self) {
        self.is_ending = true;
        if let Link::Open(open) = &mut self.link {
            open.graceful_shutdown();
        }
        self.knock();
    }

    /// Whether that was done.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// A client has reset a stream; `false` if it has done that too often. Then the connection ends.
    pub fn note_reset(&mut self, now_ms: u64) -> bool {
        if self.resets.take(now_ms) {
            return true;
        }
        if let Link::Open(open) = &mut self.link {
            open.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        self.is_ending = true;
        self.knock();
        false
    }
}

impl Resets {
    fn take(&mut self, now_ms: u64) -> bool {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let back = passed_ms.saturating_mul(u64::from(limits::RESETS_PER_SECOND)) / 1000;
        if back > 0 {
            let left = u64::from(self.left).saturating_add(back);
            self.left = left.min(u64::from(limits::RESETS_MAX)) as u32;
            self.at_ms = now_ms;
        }
        let is_allowed = self.left > 0;
        self.left -= u32::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_given_back_with_time() {
        let mut resets = Resets { left: limits::RESETS_MAX, at_ms: 0 };
        assert!((0..limits::RESETS_MAX).all(|_| resets.take(5)));
        assert!(!resets.take(6));
        assert!(!resets.take(29), "a thirtieth of a second has not passed");
        assert_eq!((0..100).filter(|_| resets.take(1_000)).count(), 33);
        assert!((0..limits::RESETS_MAX).all(|_| resets.take(1 << 40)));
        assert!(!resets.take(1 << 40), "no more than the bucket holds");
    }
}
