//! One shard in one thread: a session, its core on a disk in memory, and connections that are two buffers each.

pub(crate) mod rules;

use env::{MemoryDisk, SeededRandom};
use http2::testing::Client;
use log::LogOptions;
use model::{Monotonic, ShardId, Timestamp};
use node::{Event, Output, Request, ShardCore, Stamp, Ticket};
use std::collections::BTreeMap;
use std::{path::Path, sync::Arc};
use thalweg_session::{
    Admission, Ask, Close, ConnId, Input, Options, Peer, Piece, Read, Sent, Sessions, Transport,
};

const GROUPS: u16 = 4;

/// What both ends of a connection have.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// What the client has sent and the session has not read.
    input: Vec<u8>,
    /// What the client got.
    pub(crate) output: Vec<u8>,
    /// Bytes that it still takes.
    room: usize,
    /// The client sends no more.
    is_half_closed: bool,
    pub(crate) closed: Option<Close>,
    /// The next write finds it broken.
    pub(crate) is_broken: bool,
    /// System calls that have sent something.
    pub(crate) write_count: usize,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Wires(pub BTreeMap<ConnId, Wire>);

impl Transport for Wires {
    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Read {
        let wire = self.0.get_mut(&conn).expect("a connection that is open");
        let count = wire.input.len().min(buffer.len());
        buffer[..count].copy_from_slice(&wire.input[..count]);
        wire.input.drain(..count);
        match count {
            0 if wire.is_half_closed => Read::End,
            0 => Read::Nothing,
            _ if wire.input.is_empty() => Read::Last(count),
            _ => Read::Bytes(count),
        }
    }

    fn write(&mut self, conn: ConnId, pieces: &[Piece<'_>]) -> Sent {
        let wire = self.0.get_mut(&conn).expect("a connection that is open");
        if wire.is_broken {
            return Sent::Broken;
        }
        wire.write_count += 1;
        let mut sent = 0;
        for piece in pieces {
            let Piece::Bytes(bytes) = piece else { panic!("files are not taken") };
            let count = bytes.len().min(wire.room);
            wire.output.extend_from_slice(&bytes[..count]);
            wire.room -= count;
            sent += count as u64;
        }
        Sent::Bytes(sent)
    }

    fn takes_files(&self, _: ConnId) -> bool {
        false
    }

    fn has_unsent(&self, _: ConnId) -> bool {
        false
    }

    fn close(&mut self, conn: ConnId, how: Close) {
        self.0.get_mut(&conn).expect("a connection that is open").closed = Some(how);
    }

    fn turn_ns(&self) -> u64 {
        0
    }
}

/// A request on its way to the core.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    pub(crate) request: Request,
    pub(crate) data: Vec<u8>,
}

fn asked(ask: Ask<'_>) -> Asked {
    let Ask { ticket, request, data } = ask;
    Asked { ticket, request, data: data.into_owned() }
}

pub(crate) struct Shard {
    pub(crate) sessions: Sessions,
    pub(crate) core: ShardCore,
    pub(crate) wires: Wires,
    pub(crate) admission: Arc<Admission>,
    pub(crate) now: Stamp,
    /// What was asked, in order, as the debug form shows it.
    pub(crate) log: Vec<String>,
    /// Asks for which this is true do not reach the core yet.
    pub(crate) holds: fn(&Request) -> bool,
    pub(crate) held: Vec<Asked>,
    /// Syncs wait until [`Self::sync`].
    pub(crate) holds_syncs: bool,
    held_syncs: Vec<log::SyncJob>,
    pub(crate) sync_count: usize,
    /// Bodies wait to be checked until [`Self::check`].
    pub(crate) holds_checks: bool,
}

impl Shard {
    pub(crate) fn open() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let disk = Arc::new(MemoryDisk::new());
        let log = LogOptions { group_count: GROUPS, ..LogOptions::default() };
        let random = &mut SeededRandom::new(1);
        let opened = node::open(disk, random, Path::new("/data"), log, 1).unwrap();
        let core = opened.shards.into_iter().next().unwrap();
        let now = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };
        let admission = Arc::new(Admission::default());
        let id = ShardId::new(0);
        let sessions = Sessions::new(id, options, Arc::clone(&admission), (now, 1));
        Self {
            sessions,
            core,
            wires: Wires::default(),
            admission,
            now,
            log: Vec::new(),
            holds: |_| false,
            held: Vec::new(),
            holds_syncs: false,
            held_syncs: Vec::new(),
            sync_count: 0,
            holds_checks: false,
        }
    }

    pub(crate) fn connect(&mut self) -> ConnId {
        self.connect_with_room(usize::MAX)
    }

    /// A client that takes so many bytes for now.
    pub(crate) fn connect_with_room(&mut self, room: usize) -> ConnId {
        let conn = self.sessions.open(Peer::default());
        self.wires.0.insert(conn, Wire { room, ..Wire::default() });
        self.handle(Input::Opened(conn));
        conn
    }

    pub(crate) fn handle(&mut self, input: Input) {
        let mut asks = Vec::new();
        self.sessions.handle(self.now, input, &mut self.wires, &mut |ask| asks.push(asked(ask)));
        self.take_asks(asks);
    }

    fn take_asks(&mut self, asks: Vec<Asked>) {
        for asked in asks {
            self.log.push(format!("{:?}", asked.request));
            if (self.holds)(&asked.request) {
                self.held.push(asked);
            } else {
                self.give(asked);
            }
        }
    }

    fn give(&mut self, asked: Asked) {
        let Asked { ticket, request, data } = asked;
        self.core.handle(self.now, Event::Request { ticket, request, data: &data });
    }

    /// Sends what a client says, and turns until nothing moves.
    pub(crate) fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.wires.0.get_mut(&conn).unwrap().input.extend_from_slice(bytes);
        self.handle(Input::Readable { conn, ended: false });
        self.run();
    }

    /// Moves bytes between a client of HTTP/2 and its connection, until nothing moves.
    pub(crate) fn carry(&mut self, conn: ConnId, client: &mut Client) {
        for _ in 0..100_000 {
            client.poll();
            let sent = client.take_output();
            let Some(wire) = self.wires.0.get_mut(&conn) else { return };
            let got = std::mem::take(&mut wire.output);
            if wire.closed.is_some() {
                client.end_input();
            }
            if sent.is_empty() && got.is_empty() {
                return client.poll();
            }
            client.receive(&got);
            if !sent.is_empty() && !client.is_over {
                self.send(conn, &sent);
            }
        }
        panic!("it never comes to rest");
    }

    /// The client takes so many bytes more.
    pub(crate) fn take(&mut self, conn: ConnId, bytes: usize) {
        let wire = self.wires.0.get_mut(&conn).unwrap();
        wire.room = wire.room.saturating_add(bytes);
        self.handle(Input::Writable(conn));
        self.run();
    }

    /// The client has gone.
    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.handle(Input::Broken(conn));
        self.run();
    }

    /// The client sends no more, and still reads.
    pub(crate) fn half_close(&mut self, conn: ConnId) {
        self.wires.0.get_mut(&conn).unwrap().is_half_closed = true;
        self.handle(Input::Readable { conn, ended: true });
        self.run();
    }

    /// As [`Self::send`], and the client sends no more after that: the session learns of both at once.
    pub(crate) fn send_and_half_close(&mut self, conn: ConnId, bytes: &[u8]) {
        self.wires.0.get_mut(&conn).unwrap().input.extend_from_slice(bytes);
        self.half_close(conn);
    }

    /// Lets time pass.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.now.monotonic = self.now.monotonic.plus_ms(ms);
        self.now.wall = self.now.wall.plus_ms(ms);
        self.handle(Input::Tick);
        self.run();
    }

    /// Held requests continue.
    pub(crate) fn release(&mut self) {
        self.holds = |_| false;
        for asked in std::mem::take(&mut self.held) {
            self.give(asked);
        }
        self.run();
    }

    /// Syncs that were held are done.
    pub(crate) fn sync(&mut self) {
        for job in std::mem::take(&mut self.held_syncs) {
            self.core.handle(self.now, Event::Synced(job.run()));
        }
        self.run();
    }

    /// Bodies that were held are checked.
    pub(crate) fn check(&mut self) {
        self.holds_checks = false;
        self.run();
    }

    /// Turns until nothing moves.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            let moved = self.turn();
            self.sessions.check();
            if !moved && !self.sessions.is_behind() && !self.core.is_behind() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// One turn; `false` if the core wanted nothing done.
    pub(crate) fn turn(&mut self) -> bool {
        let mut asks = Vec::new();
        self.sessions.begin_turn(self.now, &mut self.wires, &mut |ask| asks.push(asked(ask)));
        self.take_asks(asks);
        let mut moved = false;
        while !self.holds_checks
            && let Some(job) = self.sessions.poll_check()
        {
            self.handle(Input::Checked(job.run()));
            moved = true;
        }
        if self.core.is_behind() {
            self.core.handle(self.now, Event::Continue);
        }
        moved |= self.take_outputs();
        let mut asks = Vec::new();
        self.sessions.send_answers(self.now, &mut self.wires, &mut |ask| asks.push(asked(ask)));
        self.take_asks(asks);
        moved | self.take_outputs()
    }

    fn take_outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.core.poll_output() {
            moved = true;
            self.take_output(output);
        }
        moved
    }

    /// As [`Self::send`], without a turn.
    pub(crate) fn put_in(&mut self, conn: ConnId, bytes: &[u8]) {
        self.wires.0.get_mut(&conn).unwrap().input.extend_from_slice(bytes);
        self.handle(Input::Readable { conn, ended: false });
    }

    fn take_output(&mut self, output: Output) {
        match output {
            Output::Reply { ticket, reply } => self.handle(Input::Reply(ticket, reply)),
            Output::Changed { change, .. } => self.handle(Input::Changed(change)),
            Output::Sync(job) => {
                self.sync_count += 1;
                if self.holds_syncs {
                    self.held_syncs.push(job);
                } else {
                    self.core.handle(self.now, Event::Synced(job.run()));
                }
            }
            Output::Peer(_) | Output::Fetch(_) | Output::Transfer(_) => {
                unreachable!("a node alone has no peers")
            }
            Output::Work(job) => self.core.handle(self.now, Event::Worked(job.run())),
            Output::Read(job) => self.core.handle(self.now, Event::ReadDone(Box::new(job.run()))),
            Output::Shard { .. } => panic!("one shard has no others"),
        }
    }

    /// What a client has got, taken out.
    pub(crate) fn got(&mut self, conn: ConnId) -> String {
        let wire = self.wires.0.get_mut(&conn).unwrap();
        String::from_utf8_lossy(&std::mem::take(&mut wire.output)).into_owned()
    }

    /// The status codes of what a client has got, in order, taken out.
    pub(crate) fn statuses(&mut self, conn: ConnId) -> Vec<u16> {
        let text = self.got(conn);
        let lines = text.split("HTTP/1.1 ").skip(1);
        lines.map(|rest| rest[..3].parse().unwrap()).collect()
    }

    /// Does one request on a connection of its own.
    pub(crate) fn once(&mut self, request: &[u8]) -> String {
        let conn = self.connect();
        self.send(conn, request);
        let got = self.got(conn);
        self.hang_up(conn);
        got
    }

    /// How many of the asks so far begin like this.
    pub(crate) fn asked(&self, begin: &str) -> usize {
        self.log.iter().filter(|ask| ask.starts_with(begin)).count()
    }
}

/// A request with a body of text.
pub(crate) fn request(method: &str, path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut out = format!(
        "{method} /v1/stream/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{fields}\r\n"
    )
    .into_bytes();
    out.extend_from_slice(body);
    out
}

pub(crate) const TEXT: &str = "Content-Type: text/plain\r\n";

pub(crate) fn put(path: &str, body: &[u8]) -> Vec<u8> {
    request("PUT", path, TEXT, body)
}

pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    request("POST", path, TEXT, body)
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET /v1/stream/{path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

pub(crate) fn delete(path: &str) -> Vec<u8> {
    format!("DELETE /v1/stream/{path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}
