//! One TLS connection between its socket and its session.
//!
//! # Manner
//! A socket is read into the loop's buffer, from which rustls takes slices. Given the socket itself, it would read 4 KiB
//! at a time. Records to send wait in rustls, at most [`UNSENT_BYTES_MAX`] of them, until the socket takes them.
//!
//! # Invariants
//! - What a write says was sent is sent or waits in order. While anything waits, nothing more is taken.
//! - All that was read from the socket is given to rustls before the socket is read again.

use super::config::Tls;
use mio::net::TcpStream;
use rustls::ServerConnection;
use session::{Piece, Read, Sent};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;

/// Records that wait for room on the socket: one window of stored bytes.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a handshake that one client may send: its certificates are the most of them.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// What one step of a handshake reads at most.
const STEP_BYTES_MAX: usize = 16 << 10;

/// The first byte of every TLS connection: a record of the handshake.
const FIRST_BYTE: u8 = 0x16;

/// A connection whose handshake is done.
#[derive(Debug)]
pub(crate) struct TlsStream {
    tls: Box<ServerConnection>,
    /// Records from the socket that found no room for what is in them.
    unread: Vec<u8>,
    /// The client has said that it sends no more.
    is_ended: bool,
    /// The writing half is closed as soon as everything is sent.
    is_closing: bool,
}

/// A connection in its handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    tls: Box<ServerConnection>,
    received_bytes: usize,
}

/// What a step of a handshake brought.
#[derive(Debug)]
pub(crate) enum Step {
    /// It needs more from the client.
    Pending,
    /// There may be more to do at once.
    Again,
    /// It is done.
    Done,
    /// The client does not speak TLS but something like HTTP.
    Plain,
    /// It cannot be done.
    Failed,
}

/// The connection is broken.
struct Broken;

impl Handshake {
    /// `None` if rustls refuses its own configuration, which none has done.
    pub(crate) fn new(tls: &Tls) -> Option<Self> {
        let mut connection = ServerConnection::new(Arc::clone(&tls.config)).ok()?;
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Some(Self { tls: Box::new(connection), received_bytes: 0 })
    }

    /// Whether the client has sent nothing yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.received_bytes == 0
    }

    /// Continues with what has arrived, as far as one flight of the client reaches.
    pub(crate) fn step(&mut self, socket: &mut TcpStream, buffer: &mut [u8]) -> Step {
        let count = match socket.read(&mut buffer[..STEP_BYTES_MAX]) {
            Ok(0) => return Step::Failed,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Something may wait to be sent.
                let is_sent = send(&mut self.tls, socket).is_ok();
                return if is_sent { Step::Pending } else { Step::Failed };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Step::Again,
            Err(_) => return Step::Failed,
        };
        if self.is_silent() && buffer[0] != FIRST_BYTE {
            let is_text = buffer[0].is_ascii_alphabetic();
            return if is_text { Step::Plain } else { Step::Failed };
        }
        self.received_bytes += count;
        let mut bytes = &buffer[..count];
        while !bytes.is_empty() {
            let is_taken = self.tls.read_tls(&mut bytes).is_ok_and(|taken| taken > 0);
            if !is_taken || self.tls.process_new_packets().is_err() {
                // This says why, if the client listens.
                let _ = send(&mut self.tls, socket);
                return Step::Failed;
            }
        }
        if send(&mut self.tls, socket).is_err() || self.received_bytes > HANDSHAKE_BYTES_MAX {
            return Step::Failed;
        }
        match (self.tls.is_handshaking(), count == STEP_BYTES_MAX) {
            (false, _) => Step::Done,
            (true, true) => Step::Again,
            (true, false) => Step::Pending,
        }
    }

    /// The connection after its handshake.
    pub(crate) fn into_stream(self) -> TlsStream {
        TlsStream { tls: self.tls, unread: Vec::new(), is_ended: false, is_closing: false }
    }
}

impl TlsStream {
    /// The names in the certificate of the client, which was verified; none if it has none.
    pub(crate) fn client_names(&self) -> Vec<String> {
        let chain = self.tls.peer_certificates().unwrap_or_default();
        chain.first().map(super::certificates::names_of).unwrap_or_default()
    }

    /// Reads what has arrived into `buffer`; `records` is room for as much of the socket's own bytes.
    pub(crate) fn read(
        &mut self,
        socket: &mut TcpStream,
        records: &mut [u8],
        buffer: &mut [u8],
    ) -> Read {
        let mut filled = 0;
        loop {
            match self.take_plaintext(&mut buffer[filled..]) {
                Ok(Some(count)) => filled += count,
                Ok(None) if filled == 0 => return Read::End,
                Ok(None) => return Read::Bytes(filled),
                Err(Broken) => return Read::Broken,
            }
            if filled == buffer.len() {
                return Read::Bytes(filled);
            }
            if !self.unread.is_empty() {
                let unread = std::mem::take(&mut self.unread);
                if self.take_records(socket, &unread, &mut buffer[filled..], &mut filled).is_err() {
                    return Read::Broken;
                }
                continue;
            }
            if filled > 0 {
                return Read::Bytes(filled);
            }
            let room = records.len().min(buffer.len());
            match socket.read(&mut records[..room]) {
                Ok(0) => return Read::End,
                Ok(count) => {
                    let taken = self.take_records(socket, &records[..count], buffer, &mut filled);
                    if taken.is_err() {
                        return Read::Broken;
                    }
                    let is_all = count < room && self.unread.is_empty() && filled < buffer.len();
                    if filled > 0 && is_all && !self.is_ended {
                        return Read::Last(filled);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Read::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Read::Broken,
            }
        }
    }

    /// Gives records to rustls, and what is in them to `buffer`, whose first free byte moves on. What finds no room is
    /// kept.
    fn take_records(
        &mut self,
        socket: &mut TcpStream,
        mut records: &[u8],
        buffer: &mut [u8],
        filled: &mut usize,
    ) -> Result<(), Broken> {
        let mut at = 0;
        while !records.is_empty() {
            let has_room = at < buffer.len();
            if !has_room {
                self.unread.extend_from_slice(records);
                break;
            }
            if self.tls.read_tls(&mut records).map_err(|_| Broken)? == 0 {
                // Nothing counts behind the client's last record (RFC 8446 §6.1).
                break;
            }
            let Ok(state) = self.tls.process_new_packets() else {
                // This says why, if the client listens.
                let _ = send(&mut self.tls, socket);
                return Err(Broken);
            };
            self.is_ended = state.peer_has_closed();
            at += self.take_plaintext(&mut buffer[at..])?.unwrap_or(0);
        }
        *filled += at;
        // Answers to updates of keys.
        send(&mut self.tls, socket).map(drop)
    }

    /// What rustls has decrypted; `None` at the end of the client's half.
    fn take_plaintext(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Broken> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.tls.reader().read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(Broken),
            }
        }
        Ok(Some(filled))
    }

    /// Encrypts and sends `pieces` as far as there is room. There are no file ranges among them.
    pub(crate) fn write(&mut self, socket: &mut TcpStream, pieces: &[Piece<'_>]) -> Sent {
        match send(&mut self.tls, socket) {
            Ok(true) => {}
            Ok(false) => return Sent::Bytes(0),
            Err(Broken) => return Sent::Broken,
        }
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => slices.push(IoSlice::new(bytes)),
                Piece::File { .. } => unreachable!("a connection with TLS takes no files"),
            }
        }
        let mut left = slices.as_mut_slice();
        let total: u64 = pieces.iter().map(Piece::bytes).sum();
        let mut sent = 0;
        while sent < total {
            let Ok(count) = self.tls.writer().write_vectored(left) else { return Sent::Broken };
            sent += count as u64;
            IoSlice::advance_slices(&mut left, count);
            match send(&mut self.tls, socket) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Broken) => return Sent::Broken,
            }
        }
        Sent::Bytes(sent)
    }

    /// Sends what waits; whether everything is sent. A broken connection has nothing to send.
    pub(crate) fn flush(&mut self, socket: &mut TcpStream) -> bool {
        let is_sent = send(&mut self.tls, socket).unwrap_or(true);
        if is_sent && self.is_closing {
            self.is_closing = false;
            let _ = socket.shutdown(Shutdown::Write);
        }
        is_sent
    }

    /// Whether records wait for room on the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    /// Says that nothing follows, as soon as everything before that is sent.
    pub(crate) fn close_writes(&mut self, socket: &mut TcpStream) {
        self.tls.send_close_notify();
        self.is_closing = true;
        self.flush(socket);
    }
}

/// Sends the records that wait; whether all of them are sent.
fn send(tls: &mut ServerConnection, socket: &mut TcpStream) -> Result<bool, Broken> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(0) => return Err(Broken),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Broken),
        }
    }
    Ok(true)
}
