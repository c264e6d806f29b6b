//! The sockets of one shard, as its session sees them.

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

/// Sockets by the slot of their connection.
#[derive(Debug)]
pub(super) struct Sockets {
    shard: ShardId,
    registry: Registry,
    sockets: Vec<Option<TcpStream>>,
    clock: Arc<dyn Clock>,
    turn_began: Monotonic,
}

impl Sockets {
    pub(super) fn new(
        shard: ShardId,
        registry: &Registry,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let turn_began = clock.now_monotonic();
        let (registry, sockets) = (registry.try_clone()?, Vec::new());
        Ok(Self { shard, registry, sockets, clock, turn_began })
    }

    /// A turn began at `now`.
    pub(super) fn begin_turn(&mut self, now: Monotonic) {
        self.turn_began = now;
    }

    /// Takes the socket of a connection that was just named.
    ///
    /// # Errors
    /// If the readiness interface refuses it.
    pub(super) fn add(&mut self, conn: ConnId, mut socket: TcpStream) -> io::Result<()> {
        let slot = conn.slot as usize;
        if self.sockets.len() <= slot {
            self.sockets.resize_with(slot + 1, || None);
        }
        let _ = socket.set_nodelay(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.registry.register(&mut socket, Token(slot), interest);
        self.sockets[slot] = Some(socket);
        registered
    }

    fn of(&mut self, conn: ConnId) -> Option<&mut TcpStream> {
        self.sockets.get_mut(conn.slot as usize)?.as_mut()
    }
}

impl Transport for Sockets {
    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Read {
        let Some(socket) = self.of(conn) else { return Read::Broken };
        loop {
            match socket.read(buffer) {
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
        let Some(socket) = self.of(conn) else { return Sent::Broken };
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

    fn takes_files(&self, _: ConnId) -> bool {
        true
    }

    fn close(&mut self, conn: ConnId, how: Close) {
        if how == Close::Writes {
            if let Some(socket) = self.of(conn) {
                let _ = socket.shutdown(Shutdown::Write);
            }
            return;
        }
        if let Close::Cut(failure) = how {
            tracing::warn!(shard = self.shard.get(), ?failure, "an answer was cut short");
        }
        let socket = self.sockets.get_mut(conn.slot as usize).and_then(Option::take);
        if let Some(mut socket) = socket {
            let _ = self.registry.deregister(&mut socket);
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
