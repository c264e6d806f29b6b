//! Attacks by frames of HTTP/2, in plain and over TLS.

use super::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, PING, PREFACE, PRIORITY, RESET, SETTINGS,
    WINDOW_UPDATE, frame, head, request,
};
use super::harness::siege::{Attack, Siege};
use super::harness::tls::connect_trusting;
use super::harness::{BINARY, Client, Numbers, TEXT, pause};

const MIB: u64 = 1 << 20;

/// Connections of a flood.
const FLOODS_COUNT: usize = 12;

/// Frames of one block of a flood: as many as one write should carry.
const BLOCK_FRAMES: u32 = 400;

fn prepare(client: &mut Client) {
    client.put("/flood", TEXT).is(201);
    client.post("/flood", TEXT, &[b'x'; 500]).is(204);
}

/// What one connection floods with: what it sends first, and then each block, by its number.
type Block = fn(u32) -> Vec<u8>;

/// Requests that are given up as soon as they are asked, of what is there and what is not.
fn resets(block: u32) -> Vec<u8> {
    let first = block * BLOCK_FRAMES;
    let one = |number: u32| {
        let path = if number.is_multiple_of(2) { "flood" } else { "none" };
        let id = number * 2 + 1;
        [request(id, "GET", path), frame(RESET, 0, id, &[0, 0, 0, 8])].concat()
    };
    (first..first + BLOCK_FRAMES).flat_map(one).collect()
}

/// A head that never ends.
fn continuations(block: u32) -> Vec<u8> {
    let begin = frame(HEADERS, 0, 1, &head("GET", "flood"));
    let more = frame(CONTINUATION, 0, 1, b"\x00\x01x\x01y").repeat(BLOCK_FRAMES as usize);
    if block == 0 { [begin, more].concat() } else { more }
}

/// Frames that ask for an answer each.
fn questions(_: u32) -> Vec<u8> {
    let one = [frame(PING, 0, 0, b"question"), frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9])];
    one.concat().repeat(BLOCK_FRAMES as usize)
}

/// Frames that say nothing: empty parts of a body, windows, priorities, and kinds that nobody knows.
fn noise(block: u32) -> Vec<u8> {
    let begin = frame(HEADERS, END_HEADERS, 1, &head("POST", "flood"));
    let one = [
        frame(DATA, 0, 1, b""),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 7]),
        frame(0xbe, 0, 0, b"?"),
    ];
    let more = one.concat().repeat(BLOCK_FRAMES as usize);
    if block == 0 { [begin, more].concat() } else { more }
}

/// Requests as fast as they are taken, more at a time than are allowed; the answers are thrown away.
fn requests(block: u32) -> Vec<u8> {
    let first = block * BLOCK_FRAMES;
    (first..first + BLOCK_FRAMES)
        .flat_map(|number| request(number * 2 + 1, "GET", "flood"))
        .collect()
}

const BLOCKS: [Block; 5] = [resets, continuations, questions, noise, requests];

/// All of these at once, each on connections of its own. One that the server ends comes back.
pub(crate) const FRAME_FLOODS: Attack = Attack {
    name: "floods of frames",
    prepare,
    run: |siege| {
        let mut floods: Vec<Flood> = (0..FLOODS_COUNT).map(|n| Flood::new(siege, n)).collect();
        siege.set_ready();
        while siege.is_running() {
            let moved = floods.iter_mut().map(|flood| flood.go_on(siege)).sum::<usize>();
            if moved == 0 {
                pause(1);
            }
        }
        assert!(floods.iter().all(|flood| flood.sent > 0), "the server takes something of each");
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 64 * MIB,
};

struct Flood {
    client: Client,
    number: usize,
    /// Blocks that were begun on this connection.
    block: u32,
    left: Vec<u8>,
    sent: usize,
}

impl Flood {
    fn new(siege: &Siege<'_>, number: usize) -> Self {
        let mut client = siege.server.connect();
        client.begin_churning();
        let left = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        Self { client, number, block: 0, left, sent: 0 }
    }

    fn go_on(&mut self, siege: &Siege<'_>) -> usize {
        if self.left.is_empty() {
            self.left = BLOCKS[self.number % BLOCKS.len()](self.block);
            self.block += 1;
        }
        let Some(sent) = self.client.churn(&self.left) else {
            *self = Self { sent: self.sent, ..Self::new(siege, self.number) };
            return 1;
        };
        self.left.drain(..sent);
        self.sent += sent;
        sent
    }
}

/// The same over TLS: handshakes are made again whenever the server has had enough.
pub(crate) const SECURE_FRAME_FLOODS: Attack = Attack {
    name: "floods of frames, TLS",
    prepare,
    run: |siege| {
        siege.set_ready();
        siege.repeat_all(&BLOCKS, |block| flood_over_tls(siege, block));
    },
    flags: super::handshakes::FLAGS,
    under: &[],
    growth_bytes_max: 64 * MIB,
};

/// One connection, until the server has had enough of it or takes nothing.
fn flood_over_tls(siege: &Siege<'_>, block: Block) {
    let certificate = siege.dir.join("tls/self-signed.crt");
    let mut client = connect_trusting(&certificate, siege.server.secure_address(), &["h2"]);
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut number = 0;
    while siege.is_running() && client.try_send(&bytes) {
        bytes = block(number);
        number += 1;
    }
}

/// Streams that one connection may have.
const STREAMS: u32 = 256;

/// Bytes of the stream that nobody reads to its end.
const BIG_BYTES: usize = 8 << 20;

/// Connections that stall with all of their streams in the middle of an answer, or live.
const STALLED_COUNT: u64 = 2;

/// What one of them may cost.
const STALLED_BYTES_MAX: u64 = 16 * MIB;

pub(crate) const STALLED_STREAMS: Attack = Attack {
    name: "stalled streams",
    prepare: |client| {
        client.put("/big", BINARY).is(201);
        client.put("/live", BINARY).is(201);
        let body = Numbers::new(3).bytes(1 << 20);
        for _ in 0..BIG_BYTES >> 20 {
            client.post("/big", BINARY, &body).is(204);
        }
    },
    run: |siege| {
        let crowd: Vec<Client> = (0..STALLED_COUNT).map(|_| stalled(siege)).collect();
        siege.set_ready();
        let mut writer = siege.server.connect();
        let body = Numbers::new(4).bytes(16 << 10);
        while siege.is_running() {
            writer.post("/live", BINARY, &body).is(204);
            pause(50);
        }
        assert_eq!(crowd.len() as u64, STALLED_COUNT);
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB + STALLED_COUNT * STALLED_BYTES_MAX,
};

/// It opens all windows and takes nothing.
fn stalled(siege: &Siege<'_>) -> Client {
    let mut client = Client::connect_far(siege.server.address());
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let targets = ["big", "big?offset=-1&live=sse", "live?offset=-1&live=sse"];
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &window)].concat();
    bytes.extend(frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]));
    for number in 0..STREAMS {
        bytes.extend(request(number * 2 + 1, "GET", targets[number as usize % targets.len()]));
    }
    client.send(&bytes);
    client
}
