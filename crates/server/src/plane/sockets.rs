//! The sockets of one shard, as its session sees them.

use crate::tls::TlsStream;
use env::Clock;
use mio::{Interest, Registry, Token, net::TcpStream};
use model::{Monotonic, ShardId};
use rustix::net::SendFlags;
use session::{Close, ConnId, Piece, Read, Sent, Transport};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;

/// What a file without a descriptor is copied by.
const COPY_BYTES: usize = 64 << 10;

/// What one read of a socket with TLS takes at most.
const RECORDS_BYTES: usize = 64 << 10;

/// Sockets by the slot of their connection.
#[derive(Debug)]
pub(super) struct Sockets {
    shard: ShardId,
    registry: Registry,
    sockets: Vec<Option<Socket>>,
    /// Records as they come from a socket; empty until the first connection with TLS.
    records: Vec<u8>,
    clock: Arc<dyn Clock>,
    turn_began: Monotonic,
}

#[derive(Debug)]
struct Socket {
    tcp: TcpStream,
    tls: Option<Box<TlsStream>>,
}

impl Sockets {
    pub(super) fn new(
        shard: ShardId,
        registry: &Registry,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let turn_began = clock.now_monotonic();
        let (registry, sockets) = (registry.try_clone()?, Vec::new());
        Ok(Self { shard, registry, sockets, records: Vec::new(), clock, turn_began })
    }

    /// A turn began at `now`.
    pub(super) fn begin_turn(&mut self, now: Monotonic) {
        self.turn_began = now;
    }

    /// Takes the socket of a connection that was just named.
    ///
    /// # Errors
    /// If the readiness interface refuses it.
    pub(super) fn add(
        &mut self,
        conn: ConnId,
        mut tcp: TcpStream,
        tls: Option<TlsStream>,
    ) -> io::Result<()> {
        let slot = conn.slot as usize;
        if self.sockets.len() <= slot {
            self.sockets.resize_with(slot + 1, || None);
        }
        let _ = tcp.set_nodelay(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.registry.register(&mut tcp, Token(slot), interest);
        self.sockets[slot] = Some(Socket { tcp, tls: tls.map(Box::new) });
        registered
    }

    /// Room for records of handshakes; and the readiness interface.
    pub(super) fn for_handshakes(&mut self) -> (&mut [u8], &Registry) {
        if self.records.is_empty() {
            self.records = vec![0; RECORDS_BYTES];
        }
        (&mut self.records, &self.registry)
    }

    /// The readiness interface.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A socket takes bytes again: records that wait go first. Whether the session may send more.
    pub(super) fn flush(&mut self, conn: ConnId) -> bool {
        match self.of(conn) {
            Some(Socket { tcp, tls: Some(tls) }) => tls.flush(tcp),
            _ => true,
        }
    }

    #[inline]
    fn of(&mut self, conn: ConnId) -> Option<&mut Socket> {
        self.sockets.get_mut(conn.slot as usize)?.as_mut()
    }
}

impl Transport for Sockets {
    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Read {
        let Some(socket) = self.sockets.get_mut(conn.slot as usize).and_then(Option::as_mut) else {
            return Read::Broken;
        };
        if let Some(tls) = &mut socket.tls {
            return tls.read(&mut socket.tcp, &mut self.records, buffer);
        }
        loop {
            match socket.tcp.read(buffer) {
                Ok(0) => return Read::End,
                // A read that does not fill its buffer has emptied the socket. What comes then is a new event.
                Ok(count) if count < buffer.len() => return Read::Last(count),
                Ok(count) => return Read::Bytes(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Read::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Read::Broken,
            }
        }
    }

    fn write(&mut self, conn: ConnId, pieces: &[Piece<'_>]) -> Sent {
        let Some(Socket { tcp: socket, tls }) = self.of(conn) else { return Sent::Broken };
        if let Some(tls) = tls {
            return tls.write(socket, pieces);
        }
        match pieces {
            // A frame of a live reader: `send` costs the kernel less than `writev`.
            [Piece::Bytes(bytes)] => {
                write_all_it_takes(bytes.len() as u64, |sent| socket.write(&bytes[sent as usize..]))
            }
            [Piece::File { file, position, bytes }] => write_all_it_takes(*bytes, |sent| {
                send_file(socket, *file, position + sent, bytes - sent)
            }),
            [Piece::Bytes(head), Piece::File { file, position, bytes }] => {
                let head_bytes = head.len() as u64;
                write_all_it_takes(head_bytes + bytes, |sent| match sent.checked_sub(head_bytes) {
                    // The client is not woken for a head alone.
                    None => send_more(socket, &head[sent as usize..]),
                    Some(sent) => send_file(socket, *file, position + sent, bytes - sent),
                })
            }
            several => write_several(socket, several),
        }
    }

    fn takes_files(&self, conn: ConnId) -> bool {
        let socket = self.sockets.get(conn.slot as usize).and_then(Option::as_ref);
        socket.is_some_and(|socket| socket.tls.is_none())
    }

    fn has_unsent(&self, conn: ConnId) -> bool {
        let socket = self.sockets.get(conn.slot as usize).and_then(Option::as_ref);
        socket.and_then(|socket| socket.tls.as_ref()).is_some_and(|tls| tls.has_unsent())
    }

    fn close(&mut self, conn: ConnId, how: Close) {
        if how == Close::Writes {
            match self.of(conn) {
                Some(Socket { tcp, tls: Some(tls) }) => tls.close_writes(tcp),
                Some(Socket { tcp, tls: None }) => drop(tcp.shutdown(Shutdown::Write)),
                None => {}
            }
            return;
        }
        if let Close::Cut(failure) = &how {
            tracing::warn!(shard = self.shard.get(), ?failure, "an answer was cut short");
        }
        let socket = self.sockets.get_mut(conn.slot as usize).and_then(Option::take);
        if let Some(mut socket) = socket {
            // An answer that is cut short must not end as if it were whole.
            if let (Some(tls), Close::Whole) = (&mut socket.tls, &how) {
                tls.close_writes(&mut socket.tcp);
            }
            let _ = self.registry.deregister(&mut socket.tcp);
        }
    }

    fn turn_ns(&self) -> u64 {
        self.clock.now_monotonic().get() - self.turn_began.get()
    }
}

/// Writes pieces of memory, and perhaps a last one in a file, with as few calls as can be.
fn write_several(socket: &mut TcpStream, pieces: &[Piece<'_>]) -> Sent {
    let mut slices = Vec::with_capacity(pieces.len());
    slices.extend(pieces.iter().filter_map(|piece| match piece {
        Piece::Bytes(bytes) => Some(IoSlice::new(bytes)),
        Piece::File { .. } => None,
    }));
    let memory_bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
    let total = pieces.iter().map(Piece::bytes).sum();
    let mut left = slices.as_mut_slice();
    let mut gone = 0;
    write_all_it_takes(total, |sent| {
        if let (Some(sent), Some(Piece::File { file, position, bytes })) =
            (sent.checked_sub(memory_bytes), pieces.last())
        {
            return send_file(socket, *file, position + sent, bytes - sent);
        }
        let step = usize::try_from(sent - gone).expect("pieces fit memory");
        IoSlice::advance_slices(&mut left, step);
        gone = sent;
        socket.write_vectored(left)
    })
}

/// Sends bytes that others follow at once.
fn send_more(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?)
}

/// Calls `write` with what was sent so far until `total` is, or no more is taken.
fn write_all_it_takes(total: u64, mut write: impl FnMut(u64) -> io::Result<usize>) -> Sent {
    let mut sent = 0;
    while sent < total {
        match write(sent) {
            Ok(0) => return Sent::Broken,
            Ok(count) => sent += count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Sent::Broken,
        }
    }
    Sent::Bytes(sent)
}

fn send_file(
    socket: &mut TcpStream,
    file: &dyn env::File,
    mut position: u64,
    bytes: u64,
) -> io::Result<usize> {
    let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
    if let Some(source) = file.as_fd() {
        let sent = rustix::fs::sendfile(&*socket, source, Some(&mut position), wanted);
        let sent = sent.map_err(io::Error::from);
        if sent.as_ref().is_err_and(env::is_unreadable) {
            // The file learns that it has lost these bytes.
            let _ = file.read_at(&mut [0], position);
        }
        return sent;
    }
    let mut buffer = vec![0; wanted.min(COPY_BYTES)];
    let count = file.read_at(&mut buffer, position)?;
    socket.write(&buffer[..count])
}
