//! One connection: bytes that wait to go out, bytes that have come in.

use mio::net::TcpStream;
use socket2::{Domain, Socket as System, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

/// Bytes in and out of one connection, without waiting.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(super) stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of `input` that were used.
    used: usize,
    /// What is to be sent: fill it, then [`Socket::flush`].
    pub(crate) output: Vec<u8>,
    sent: usize,
    /// The other side will send nothing more.
    pub(crate) is_ended: bool,
}

impl Socket {
    /// Opens a connection, and waits for that. A small receive buffer makes a reader slow from its
    /// first byte.
    pub(crate) fn open(address: SocketAddr, receive_bytes: Option<usize>) -> io::Result<Self> {
        let system = System::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(bytes) = receive_bytes {
            system.set_recv_buffer_size(bytes)?;
        }
        system.connect(&address.into())?;
        system.set_tcp_nodelay(true)?;
        system.set_nonblocking(true)?;
        let stream = TcpStream::from_std(system.into());
        let (input, output) = (Vec::new(), Vec::new());
        Ok(Self { stream, input, used: 0, output, sent: 0, is_ended: false })
    }

    /// What has come and was not used.
    pub(crate) fn input(&self) -> &[u8] {
        &self.input[self.used..]
    }

    /// Marks the first `count` bytes of the input as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.used += count;
        assert!(self.used <= self.input.len(), "only what has come can be used");
        if self.used == self.input.len() {
            self.input.clear();
            self.used = 0;
        }
    }

    /// Takes all that has come, or at most `limit` bytes. A broken connection counts as ended.
    pub(crate) fn fill(&mut self, scratch: &mut [u8], limit: usize) -> usize {
        let mut taken = 0;
        while taken < limit && !self.is_ended {
            let room = scratch.len().min(limit - taken);
            match self.stream.read(&mut scratch[..room]) {
                Ok(0) => self.is_ended = true,
                Ok(count) => {
                    self.keep(&scratch[..count]);
                    taken += count;
                    // A short read emptied the socket; what comes later is a new event.
                    if count < room {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_ended = true,
            }
        }
        taken
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.used > 0 && self.used * 2 > self.input.len() {
            self.input.drain(..self.used);
            self.used = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// Ends the connection from this side too.
    pub(crate) fn close(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.is_ended = true;
    }

    /// Sends what the system takes now; the rest goes when the socket is writable again.
    pub(crate) fn flush(&mut self) {
        while self.sent < self.output.len() && !self.is_ended {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_ended = true,
            }
        }
        self.output.clear();
        self.sent = 0;
    }
}

#[cfg(test)]
impl Socket {
    /// A connection on which nothing comes by itself.
    pub(crate) fn silent() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        Self::open(listener.local_addr()?, None)
    }

    /// Takes bytes as if they had come.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.keep(bytes);
    }
}
