//! HTTP/2 from the bytes of a client to the node and back: frames of any kind, in any order.

use crate::input::Input;
use env::{MemoryDisk, SeededRandom};
use log::LogOptions;
use model::{Monotonic, ShardId, Timestamp};
use node::{Event, Output, Request, ShardCore, Stamp, Ticket};
use session::{
    Admission, Ask, Close, ConnId, Options, Peer, Piece, Read, Sent, Sessions, Transport,
};
use std::collections::BTreeSet;
use std::{path::Path, sync::Arc};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_BYTES_MAX: usize = 16 << 10;
const STREAMS_MAX: u32 = 8;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const END_STREAM: u8 = 1;

/// Rounds until everything has come to rest.
const TURNS_MAX: usize = 10_000;

/// One connection.
#[derive(Debug, Default)]
struct Wire {
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes that the client takes for now.
    room: usize,
    is_closed: bool,
}

impl Transport for Wire {
    fn read(&mut self, _: ConnId, buffer: &mut [u8]) -> Read {
        let count = self.input.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.input[..count]);
        self.input.drain(..count);
        match count {
            0 => Read::Nothing,
            _ if self.input.is_empty() => Read::Last(count),
            _ => Read::Bytes(count),
        }
    }

    fn write(&mut self, _: ConnId, pieces: &[Piece<'_>]) -> Sent {
        let mut sent = 0;
        for piece in pieces {
            let Piece::Bytes(bytes) = piece else { panic!("files are not taken") };
            let count = bytes.len().min(self.room);
            self.output.extend_from_slice(&bytes[..count]);
            self.room -= count;
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

    fn close(&mut self, _: ConnId, how: Close) {
        self.is_closed |= !matches!(how, Close::Writes);
    }

    fn turn_ns(&self) -> u64 {
        0
    }
}

struct Shard {
    sessions: Sessions,
    core: ShardCore,
    wire: Wire,
    admission: Arc<Admission>,
    now: Stamp,
}

type Asked = (Ticket, Request, Vec<u8>);

fn asked(ask: Ask<'_>) -> Asked {
    let Ask { ticket, request, data } = ask;
    (ticket, request, data.into_owned())
}

impl Shard {
    fn new() -> Self {
        let disk = Arc::new(MemoryDisk::new());
        let log = LogOptions {
            group_count: 1,
            segment_bytes: 64 << 10,
            wal_bytes_max: 256 << 10,
            batch_bytes_max: 32 << 10,
            recent_bytes_max: 64 << 10,
            read_cache_bytes_max: 64 << 10,
            ..LogOptions::default()
        };
        let random = &mut SeededRandom::new(1);
        let opened = node::open(disk, random, Path::new("/data"), log, 1).expect("a new disk");
        let core = opened.shards.into_iter().next().expect("one shard");
        let now = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };
        let admission = Arc::new(Admission::default());
        let options = Options { http2_streams_max: STREAMS_MAX, ..Options::default() };
        let own = Arc::clone(&admission);
        let sessions = Sessions::new(ShardId::new(0), options, own, (now, 1));
        Self { sessions, core, wire: Wire::default(), admission, now }
    }

    fn handle(&mut self, input: session::Input) {
        let mut asks = Vec::new();
        self.sessions.handle(self.now, input, &mut self.wire, &mut |ask| asks.push(asked(ask)));
        self.give(asks);
    }

    fn give(&mut self, asks: Vec<Asked>) {
        for (ticket, request, data) in asks {
            self.core.handle(self.now, Event::Request { ticket, request, data: &data });
        }
    }

    /// Turns until nothing moves.
    fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            let moved = self.turn();
            self.sessions.check();
            if !moved && !self.sessions.is_behind() && !self.core.is_behind() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn turn(&mut self) -> bool {
        let mut asks = Vec::new();
        self.sessions.begin_turn(self.now, &mut self.wire, &mut |ask| asks.push(asked(ask)));
        self.give(asks);
        let mut moved = false;
        while let Some(job) = self.sessions.poll_check() {
            self.handle(session::Input::Checked(job.run()));
            moved = true;
        }
        if self.core.is_behind() {
            self.core.handle(self.now, Event::Continue);
        }
        moved |= self.drain();
        let mut asks = Vec::new();
        self.sessions.send_answers(self.now, &mut self.wire, &mut |ask| asks.push(asked(ask)));
        self.give(asks);
        moved | self.drain()
    }

    fn drain(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.core.poll_output() {
            moved = true;
            match output {
                Output::Reply { ticket, reply } => {
                    self.handle(session::Input::Reply(ticket, reply));
                }
                Output::Changed { change, .. } => self.handle(session::Input::Changed(change)),
                Output::Sync(job) => self.core.handle(self.now, Event::Synced(job.run())),
                Output::Work(job) => self.core.handle(self.now, Event::Worked(job.run())),
                Output::Read(job) => {
                    self.core.handle(self.now, Event::ReadDone(Box::new(job.run())))
                }
                Output::Shard { .. } => panic!("one shard has no others"),
                Output::Peer(_) | Output::Fetch(_) | Output::Transfer(_) => {
                    panic!("one node has no others")
                }
            }
        }
        moved
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now.monotonic = self.now.monotonic.plus_ms(ms);
        self.now.wall = self.now.wall.plus_ms(ms);
        self.handle(session::Input::Tick);
        self.run();
    }
}

/// Input: how long pieces are (1), how much the client takes after each (2), then what it sends behind the preface.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let piece_bytes = usize::from(input.byte()) * 8 + 1;
    let room = usize::from(input.short());
    let sent = [PREFACE, input.rest()].concat();
    let mut shard = Shard::new();
    let conn = shard.sessions.open(Peer::default());
    shard.handle(session::Input::Opened(conn));
    for piece in sent.chunks(piece_bytes) {
        if shard.wire.is_closed {
            break;
        }
        shard.wire.input.extend_from_slice(piece);
        shard.wire.room += room;
        shard.handle(session::Input::Readable { conn, ended: false });
        if !shard.wire.is_closed {
            shard.handle(session::Input::Writable(conn));
        }
        shard.run();
        let count = shard.sessions.connection_count();
        assert!(count <= 1 + STREAMS_MAX as usize, "{count} connections and requests");
    }
    // Everything that lasts comes to its end, and then the client goes.
    for _ in 0..20 {
        shard.wire.room = usize::MAX;
        if !shard.wire.is_closed {
            shard.handle(session::Input::Writable(conn));
        }
        shard.pass_ms(5_000);
    }
    check_output(&shard.wire.output);
    if !shard.wire.is_closed {
        shard.handle(session::Input::Broken(conn));
        shard.run();
    }
    assert_eq!(shard.sessions.connection_count(), 0);
    assert_eq!((shard.admission.connections(), shard.admission.body_bytes()), (0, 0));
}

/// Frames are whole and short; a stream has a head before its body and nothing behind its end.
fn check_output(mut bytes: &[u8]) {
    if bytes.starts_with(b"HTTP/1.1 ") {
        return;
    }
    let (mut begun, mut over) = (BTreeSet::new(), BTreeSet::new());
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let Some((_, after)) = rest.split_at_checked(length) else { break };
        bytes = after;
        match head[3] {
            HEADERS => {
                assert!(!over.contains(&id), "a head behind the end of stream {id}");
                assert!(id % 2 == 1, "nothing is pushed");
                begun.insert(id);
            }
            DATA => assert!(begun.contains(&id) && !over.contains(&id), "data of stream {id}"),
            RESET => drop(over.insert(id)),
            _ => {}
        }
        if head[3] <= HEADERS && head[4] & END_STREAM != 0 {
            over.insert(id);
        }
    }
    assert!(bytes.len() < 9 + FRAME_BYTES_MAX, "what is left is a part of a frame");
}

fn frame(kind: u8, flags: u8, id: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, id], payload].concat()
}

/// A head without tables: the indexed method, then path, authority and fields as they are.
fn head(method: &[u8], path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.push(u8::try_from(text.len()).expect("a short text"));
        out.extend_from_slice(text.as_bytes());
    };
    let mut block = [method, &[0x86, 0x04]].concat();
    text(&mut block, &format!("/v1/stream/{path}"));
    block.push(0x01);
    text(&mut block, "localhost");
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

/// Conversations of clients, and what they may do wrong.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let (get, put, post): (&[u8], &[u8], &[u8]) = (&[0x82], b"\x02\x03PUT", &[0x83]);
    let text = [("content-type", "text/plain")];
    let settings = frame(4, 0, 0, &[]);
    let create = frame(1, 5, 1, &head(put, "a", &text));
    let append = [frame(1, 4, 3, &head(post, "a", &text)), frame(0, 1, 3, b"some bytes")].concat();
    let read = frame(1, 5, 5, &head(get, "a", &[]));
    let zipped = frame(1, 5, 15, &head(get, "a", &[("accept-encoding", "gzip")]));
    let live = frame(1, 5, 7, &head(get, "a?offset=-1&live=sse", &[]));
    let poll = frame(1, 5, 9, &head(get, "a?offset=now&live=long-poll", &[]));
    let window = frame(8, 0, 0, &[0, 0, 0x10, 0]);
    let small = frame(4, 0, 0, &[0, 4, 0, 0, 0, 2]);
    let long = head(get, "a", &[("x", &"y".repeat(120))]);
    let (begin, middle) = long.split_at(40);
    let continued = [frame(1, 1, 11, begin), frame(9, 4, 11, middle)].concat();
    let expect = frame(1, 4, 13, &head(post, "a", &[text[0], ("expect", "100-continue")]));
    let reset = frame(3, 0, 7, &[0, 0, 0, 8]);
    let ping = frame(6, 0, 0, &[0; 8]);
    let goodbye = frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0]);
    let conversations = [
        vec![&settings, &create, &append, &read],
        vec![&settings, &create, &live, &append, &reset, &poll],
        vec![&small, &create, &append, &read, &window, &live],
        vec![&settings, &create, &continued, &ping, &goodbye],
        vec![&settings, &create, &expect, &reset, &reset],
        vec![&create, &create, &append],
        vec![&settings, &create, &append, &live, &poll, &zipped, &continued, &window, &window],
    ];
    let pieces = [[31, 255, 255], [0, 3, 0], [2, 20, 0]];
    let mut seeds = Vec::new();
    for (number, conversation) in conversations.iter().enumerate() {
        let begin = pieces[number % pieces.len()].to_vec();
        let frames = conversation.iter().map(|frame| frame.to_vec());
        seeds.push(std::iter::once(begin).chain(frames).collect::<Vec<_>>().concat());
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_answered() {
        let mut shard = Shard::new();
        let conn = shard.sessions.open(Peer::default());
        shard.handle(session::Input::Opened(conn));
        shard.wire.room = usize::MAX;
        // One after the other: what comes together is under way together.
        for piece in [PREFACE, &seeds()[0][3..]].concat().chunks(40) {
            shard.wire.input.extend_from_slice(piece);
            shard.handle(session::Input::Readable { conn, ended: false });
            shard.run();
        }
        let output = String::from_utf8_lossy(&shard.wire.output);
        assert!(output.contains("some bytes"), "{output}");
    }
}
