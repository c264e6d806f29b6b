//! One shard of the server with its clients, in one thread: the loop that ships, over loopback sockets.
//!
//! The clock is still, and jobs run in place on real files, so two runs do the same. The clients cost a
//! few dozen instructions for each request: one `write`, one `read`, and a look at the status.

use access::Access;
use env::{Clock, RealDisk, SeededRandom};
use log::{LogOptions, LogStats};
use model::{Monotonic, Timestamp};
use protocol::client::parse_answer;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::{path::Path, sync::Arc};
use thalweg_counts::{loopback::connect, requests::Template};
use thalweg_server::{descriptors, plane::Driver, settings};

/// The time of everything: 2026-01-01.
const NOW_MS: u64 = 1_767_225_600_000;

/// Turns that an answer may take; more mean that it never comes.
const TURNS_MAX: usize = 10_000;

/// Longest answer of a workload.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A clock that does not move.
#[derive(Debug)]
struct StillClock;

impl Clock for StillClock {
    fn now_wall(&self) -> Timestamp {
        Timestamp::new(NOW_MS)
    }

    fn now_monotonic(&self) -> Monotonic {
        Monotonic::new(0)
    }
}

/// A loop and its clients.
pub(crate) struct Plane {
    driver: Driver,
    clients: Vec<Client>,
    /// Live readers, by the number of their stream.
    readers: Vec<TcpStream>,
    buffer: Vec<u8>,
    answer_count: u64,
    answer_bytes: u64,
}

struct Client {
    socket: TcpStream,
    waits: bool,
}

impl Plane {
    /// Opens an empty directory under the rules of `access`, and connects `client_count` clients.
    pub(crate) fn open(dir: &Path, client_count: usize, access: Access) -> Self {
        descriptors::make_room(4 * client_count + 4096);
        let driver = start_driver(dir, Arc::new(access));
        let mut plane = Self {
            driver,
            clients: Vec::new(),
            readers: Vec::new(),
            buffer: vec![0; ANSWER_BYTES_MAX],
            answer_count: 0,
            answer_bytes: 0,
        };
        for _ in 0..client_count {
            let socket = plane.connect();
            plane.clients.push(Client { socket, waits: false });
        }
        plane
    }

    fn connect(&mut self) -> TcpStream {
        let socket = connect(&self.driver);
        self.turn();
        socket
    }

    fn turn(&mut self) {
        self.driver.turn().expect("the loop turns");
    }

    /// Sends a request of the client in `slot`.
    pub(crate) fn send(&mut self, slot: usize, bytes: &[u8]) {
        let client = &mut self.clients[slot];
        assert!(!client.waits, "one request at a time");
        client.socket.write_all(bytes).expect("a request fits a socket");
        client.waits = true;
    }

    /// Turns the loop until every request is answered.
    pub(crate) fn finish(&mut self) {
        for _ in 0..TURNS_MAX {
            self.turn();
            self.take_answers();
            if self.clients.iter().all(|client| !client.waits) {
                return;
            }
        }
        panic!("no answer within {TURNS_MAX} turns");
    }

    fn take_answers(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.waits) {
            let Some(count) = read(&mut client.socket, &mut self.buffer) else { continue };
            // A short answer is one `send` of the loop and one `read` here.
            assert!(self.buffer[..count].starts_with(b"HTTP/1.1 2"), "a request was refused");
            client.waits = false;
            self.answer_count += 1;
            self.answer_bytes += count as u64;
        }
    }

    /// Follows the streams `0..count`, one live reader each.
    pub(crate) fn follow(&mut self, count: u64) {
        let mut follow = Template::follow();
        for stream in 0..count {
            let mut socket = self.connect();
            socket.write_all(follow.of(stream)).expect("a request fits a socket");
            self.turn();
            // The head and the control event at the tail.
            for _ in 0..TURNS_MAX {
                let Some(count) = read(&mut socket, &mut self.buffer) else {
                    self.turn();
                    continue;
                };
                let text = &self.buffer[..count];
                let control = b"upToDate";
                if text.windows(control.len()).any(|window| window == control) {
                    break;
                }
            }
            self.readers.push(socket);
        }
        self.turn();
    }

    /// Takes the frame that the live reader of `stream` was sent.
    pub(crate) fn take_frame(&mut self, stream: u64) {
        let index = usize::try_from(stream).expect("few streams");
        let socket = &mut self.readers[index];
        let count = read(socket, &mut self.buffer).expect("a frame for a live reader");
        self.answer_bytes += count as u64;
    }

    pub(crate) fn log_stats(&self) -> LogStats {
        self.driver.log_stats()
    }

    pub(crate) const fn answer_count(&self) -> u64 {
        self.answer_count
    }

    /// Bytes of answers, and of frames for live readers.
    pub(crate) const fn answer_bytes(&self) -> u64 {
        self.answer_bytes
    }

    /// Whether an answer that was read to its end is whole: checked once for each workload.
    pub(crate) fn check_answer(&mut self, request: &[u8]) {
        self.clients[0].socket.write_all(request).expect("a request fits a socket");
        for _ in 0..TURNS_MAX {
            self.turn();
            let Some(count) = read(&mut self.clients[0].socket, &mut self.buffer) else { continue };
            let head = parse_answer(&self.buffer[..count], false).expect("an answer");
            let head = head.expect("a whole head");
            let body_bytes = match head.body {
                protocol::client::AnswerBody::Length(length) => length,
                other => panic!("an answer without a length: {other:?}"),
            };
            assert_eq!(count as u64, head.head_bytes as u64 + body_bytes, "one read, one answer");
            return;
        }
        panic!("no answer within {TURNS_MAX} turns");
    }
}

fn start_driver(dir: &Path, access: Arc<Access>) -> Driver {
    let flags = settings::Flags::default();
    let environment = settings::Environment::default();
    let effective = settings::load(&flags, &environment, &|_| Err(ErrorKind::NotFound.into()));
    let mut settings = effective.expect("the defaults fit each other").settings;
    settings.listen_on((std::net::Ipv4Addr::LOCALHOST, 0).into());
    let mut random = SeededRandom::new(1);
    let options = LogOptions::default();
    let opened = node::open(Arc::new(RealDisk), &mut random, dir, options, 1);
    let mut opened = opened.expect("an empty directory opens");
    let core = opened.shards.pop().expect("one shard has one core");
    Driver::start(&settings, core, Arc::new(StillClock), access).expect("a loop on a free port")
}

#[inline]
fn read(socket: &mut TcpStream, buffer: &mut [u8]) -> Option<usize> {
    match socket.read(buffer) {
        Ok(0) => panic!("the loop closed a connection"),
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("a client's socket failed: {error}"),
    }
}
