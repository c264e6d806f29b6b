//! The yardstick for readers: the same sockets, heads and frames as a server of the protocol, on one thread, and nothing else.
//!
//! Appends go behind each other into a file in memory, without a log, a sync or a check. A read is `sendfile` of that file, a
//! long-poll a write when the next append comes, and an append one write to each reader of events. No server here can do
//! the same with less, unless by other means. With `--sync-dir` an append is acknowledged when its bytes were written to a file there,
//! and synced. All appends that one look at the sockets finds are written and synced together. That is what a server needs beside that
//! acknowledges only what is durable.

use super::bare::lengths;
use crate::disk::WrittenFile;
use crate::failure::Outcome;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

const LISTENER: Token = Token(usize::MAX);
const EVENTS: usize = 1 << 10;
const SCRATCH_BYTES: usize = 64 << 10;
const HEADERS_MAX: usize = 32;

/// Most bytes that are written and synced at once, but for a body that is longer.
const SYNC_BYTES_MAX: usize = 8 << 20;

/// What one write of a long answer takes at most.
const FILE_BYTES_MAX: usize = 128 << 10;

const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
const APPENDED: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const EVENTS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";

/// One connection.
struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// What of a stream's file follows the output: stream, position and length.
    file: Option<(usize, u64, usize)>,
}

/// One stream.
#[derive(Default)]
struct Stream {
    file: Option<OwnedFd>,
    bytes: u64,
    followers: Vec<usize>,
    polls: Vec<usize>,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Create,
    Append,
    Read(u64),
    Poll(u64),
    Follow,
}

struct Plain {
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    streams: Vec<Stream>,
    names: HashMap<String, usize>,
    scratch: Vec<u8>,
    /// What appends are written to, and synced.
    disk: Option<WrittenFile>,
    /// Appends that are not acknowledged.
    waiting: Vec<Waiting>,
}

/// An append of a stream, from a connection.
struct Waiting {
    at: usize,
    stream: usize,
    body: Vec<u8>,
}

/// Prints the address and answers until the process is killed. Appends are synced in `sync_dir`, if there is one.
pub(super) fn serve(address: SocketAddr, sync_dir: Option<&Path>) -> Outcome<()> {
    let disk = sync_dir.map(|dir| WrittenFile::make(dir, SYNC_BYTES_MAX)).transpose()?;
    let (poll, mut listener) = (Poll::new()?, TcpListener::bind(address)?);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    println!("{}", listener.local_addr()?);
    let mut plain = Plain {
        poll,
        listener,
        connections: Vec::new(),
        streams: Vec::new(),
        names: HashMap::new(),
        scratch: vec![0; SCRATCH_BYTES],
        disk,
        waiting: Vec::new(),
    };
    let mut events = Events::with_capacity(EVENTS);
    loop {
        match plain.poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            match event.token() {
                LISTENER => plain.accept(),
                Token(at) => plain.serve_one(at, (event.is_readable(), event.is_writable())),
            }
        }
        plain.acknowledge()?;
    }
}

impl Plain {
    fn accept(&mut self) {
        while let Ok((mut socket, _)) = self.listener.accept() {
            let at = self.connections.iter().position(Option::is_none);
            let at = at.unwrap_or(self.connections.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registered = self.poll.registry().register(&mut socket, Token(at), interest);
            if registered.is_err() || socket.set_nodelay(true).is_err() {
                continue;
            }
            let (input, output) = (Vec::new(), Vec::new());
            let connection = Connection { socket, input, output, file: None };
            if at == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[at] = Some(connection);
        }
    }

    fn serve_one(&mut self, at: usize, (is_readable, is_writable): (bool, bool)) {
        if is_writable {
            self.flush(at);
        }
        if is_readable && self.receive(at).is_err() {
            self.connections[at] = None;
        }
    }

    fn receive(&mut self, at: usize) -> io::Result<()> {
        loop {
            let Some(connection) = &mut self.connections[at] else { return Ok(()) };
            match connection.socket.read(&mut self.scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    connection.input.extend_from_slice(&self.scratch[..count]);
                    self.answer_all(at)?;
                    if count < SCRATCH_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn answer_all(&mut self, at: usize) -> io::Result<()> {
        while let Some(connection) = &mut self.connections[at] {
            let Some((asked, name, head, length)) = request(&connection.input) else { break };
            let body = connection.input[head..length].to_vec();
            connection.input.drain(..length);
            let stream = self.stream(&name);
            self.answer(at, stream, (asked, body))?;
        }
        Ok(())
    }

    fn stream(&mut self, name: &str) -> usize {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        self.streams.push(Stream::default());
        self.names.insert(name.to_owned(), self.streams.len() - 1);
        self.streams.len() - 1
    }

    fn answer(
        &mut self,
        at: usize,
        number: usize,
        (asked, body): (Asked, Vec<u8>),
    ) -> io::Result<()> {
        if asked != Asked::Append && self.waiting.iter().any(|waiting| waiting.at == at) {
            // Answers come in the order of requests.
            self.acknowledge()?;
        }
        let stream = &mut self.streams[number];
        match asked {
            Asked::Create => self.put(at, CREATED),
            Asked::Append => {
                self.waiting.push(Waiting { at, stream: number, body });
                return Ok(());
            }
            Asked::Read(from) => self.put_read(at, number, from),
            Asked::Poll(from) if from < stream.bytes => self.put_read(at, number, from),
            Asked::Poll(_) => stream.polls.push(at),
            Asked::Follow => {
                stream.followers.push(at);
                let control = control_event(stream.bytes);
                self.put(at, EVENTS_HEAD);
                self.put(at, &chunk(&control));
            }
        }
        self.flush(at);
        Ok(())
    }

    /// Syncs the appends of this turn, answers them, and gives them to the readers that wait for them.
    fn acknowledge(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if let Some(disk) = self.disk.as_mut().filter(|_| !waiting.is_empty()) {
            let mut bytes = Vec::new();
            for one in &waiting {
                if bytes.len() + one.body.len() > SYNC_BYTES_MAX {
                    disk.write_bytes(&mut bytes)?;
                    bytes.clear();
                }
                bytes.extend_from_slice(&one.body);
            }
            disk.write_bytes(&mut bytes)?;
        }
        waiting.iter().for_each(|one| self.put(one.at, APPENDED));
        waiting.iter().for_each(|one| self.flush(one.at));
        for one in &waiting {
            self.streams[one.stream].append(&one.body)?;
            self.tell(one.stream, &one.body);
        }
        Ok(())
    }

    /// Gives an append to the readers that wait for it.
    fn tell(&mut self, number: usize, body: &[u8]) {
        let tail = self.streams[number].bytes;
        for at in std::mem::take(&mut self.streams[number].polls) {
            self.put(at, &read_head(body.len(), tail));
            self.put(at, body);
            self.flush(at);
        }
        let followers = std::mem::take(&mut self.streams[number].followers);
        if !followers.is_empty() {
            let text = String::from_utf8_lossy(body);
            let frame = chunk(&format!("event: data\ndata:{text}\n\n{}", control_event(tail)));
            for at in &followers {
                self.put(*at, &frame);
                self.flush(*at);
            }
        }
        self.streams[number].followers = followers;
    }

    fn put_read(&mut self, at: usize, number: usize, from: u64) {
        let tail = self.streams[number].bytes;
        let length = usize::try_from(tail.saturating_sub(from)).unwrap_or(usize::MAX);
        self.put(at, &read_head(length, tail));
        if let Some(connection) = self.connections[at].as_mut().filter(|_| length > 0) {
            connection.file = Some((number, from, length));
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(connection) = &mut self.connections[at] {
            connection.output.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self, at: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        while !connection.output.is_empty() {
            match connection.socket.write(&connection.output) {
                Ok(count) => {
                    connection.output.drain(..count);
                }
                Err(_) => return,
            }
        }
        while let Some((number, position, left)) = connection.file {
            let Some(file) = &self.streams[number].file else { return };
            let (mut next, wanted) = (position, left.min(FILE_BYTES_MAX));
            match rustix::fs::sendfile(&connection.socket, file, Some(&mut next), wanted) {
                Ok(0) | Err(_) => return,
                Ok(sent) if sent == left => connection.file = None,
                Ok(sent) => connection.file = Some((number, position + sent as u64, left - sent)),
            }
        }
    }
}

impl Stream {
    fn append(&mut self, body: &[u8]) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let flags = rustix::fs::MemfdFlags::CLOEXEC;
                self.file.insert(rustix::fs::memfd_create("bare", flags)?)
            }
        };
        let written = rustix::io::pwrite(file, body, self.bytes)?;
        self.bytes += written as u64;
        Ok(())
    }
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn offset(position: u64) -> String {
    format!("{position:016}_{:016}", 0)
}

fn control_event(tail: u64) -> String {
    let next = offset(tail);
    format!(
        "event: control\ndata:{{\"streamNextOffset\":\"{next}\",\"streamCursor\":\"1\",\
         \"upToDate\":true}}\n\n"
    )
}

fn read_head(length: usize, tail: u64) -> Vec<u8> {
    let next = offset(tail);
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Stream-Next-Offset: {next}\r\nStream-Cursor: 1\r\nStream-Up-To-Date: true\r\n\r\n"
    )
    .into_bytes()
}

/// The request at the start of `input`: what it asks, its path, and the lengths of its head and of all of it.
fn request(input: &[u8]) -> Option<(Asked, String, usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let (head, length) = lengths(&mut request, input)?;
    let (path, query) = request.path?.split_once('?').unwrap_or((request.path?, ""));
    let asked = match request.method {
        Some("PUT") => Asked::Create,
        Some("GET") if query.contains("live=sse") => Asked::Follow,
        Some("GET") if query.contains("live=long-poll") => Asked::Poll(position(query)),
        Some("GET") => Asked::Read(position(query)),
        _ => Asked::Append,
    };
    Some((asked, path.to_owned(), head, length))
}

/// The position that a query's offset names; 0 if it is the beginning.
fn position(query: &str) -> u64 {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("offset="));
    let digits = value.and_then(|value| value.split('_').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        let text = format!("{text} HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
        request(text.as_bytes()).expect("it is whole").0
    }

    #[test]
    fn requests_are_told_apart() {
        assert_eq!(asked("PUT /v1/stream/a"), Asked::Create);
        assert_eq!(asked("POST /v1/stream/a"), Asked::Append);
        assert_eq!(asked("GET /v1/stream/a?offset=-1"), Asked::Read(0));
        let at = "GET /v1/stream/a?offset=0000000000000256_0000000000000000&live=long-poll";
        assert_eq!(asked(at), Asked::Poll(256));
        assert_eq!(asked("GET /v1/stream/a?offset=now&live=sse"), Asked::Follow);
    }
}
