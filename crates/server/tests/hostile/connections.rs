//! Attacks by many connections that want little.

use super::harness::siege::{Attack, Siege};
use super::harness::{BINARY, Client, Numbers, pause};

const MIB: u64 = 1 << 20;

/// What a connection that stalls inside an answer may cost: a window of the answer, or the frames
/// that wait for a live reader.
const STALLED_BYTES_MAX: u64 = 64 << 10;

/// Largest crowd of any scale.
const CROWD_MAX: u64 = 2_000;

/// A connection holds the head that it is receiving, at most 32 KiB.
pub(crate) const SLOW_HEADS: Attack = Attack {
    name: "slow heads",
    prepare: |_| {},
    run: |siege| {
        trickle(
            siege,
            &|_| b"GET /v1/stream/x HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec(),
            &|_| b"x",
        );
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB,
};

/// Half of the bodies have a length, the others come in chunks of a byte.
pub(crate) const SLOW_BODIES: Attack = Attack {
    name: "slow bodies",
    prepare: |_| {},
    run: |siege| {
        trickle(siege, &slow_body_head, &|n| if n.is_multiple_of(2) { b"x" } else { b"1\r\nx\r\n" })
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB,
};

fn slow_body_head(number: usize) -> Vec<u8> {
    let framing = if number.is_multiple_of(2) {
        "Content-Length: 60000000"
    } else {
        "Transfer-Encoding: chunked"
    };
    let head =
        "POST /v1/stream/healthy/0 HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    format!("{head}{framing}\r\n\r\n").into_bytes()
}

/// A crowd sends its beginning and then a piece now and then; who is thrown out comes back.
fn trickle(
    siege: &Siege<'_>,
    begin: &dyn Fn(usize) -> Vec<u8>,
    piece: &dyn Fn(usize) -> &'static [u8],
) {
    let open = |number: usize| {
        let mut client = siege.server.connect();
        client.try_send(&begin(number));
        client
    };
    let mut crowd: Vec<Client> = (0..siege.crowd).map(open).collect();
    siege.set_ready();
    while siege.is_running() {
        for (number, client) in crowd.iter_mut().enumerate() {
            if !client.try_send(piece(number)) {
                *client = open(number);
            }
        }
        pause(200);
    }
}

/// Bytes of the stream that nobody reads to its end: no socket's buffers hold it.
const BIG_BYTES: usize = 32 << 20;

fn fill(client: &mut Client) {
    client.put("/big", BINARY).is(201);
    client.put("/live", BINARY).is(201);
    let body = Numbers::new(3).bytes(1 << 20);
    for _ in 0..BIG_BYTES >> 20 {
        client.post("/big", BINARY, &body).is(204);
    }
}

/// A third stalls in a catch-up answer, a third in the backlog of server-sent events, a third at the
/// tail of a stream that still grows.
pub(crate) const STALLED_READERS: Attack = Attack {
    name: "stalled readers",
    prepare: fill,
    run: |siege| {
        let crowd: Vec<Client> = (0..siege.crowd).map(|number| stalled(siege, number)).collect();
        siege.set_ready();
        let mut writer = siege.server.connect();
        let body = Numbers::new(4).bytes(16 << 10);
        while siege.is_running() {
            writer.post("/live", BINARY, &body).is(204);
            pause(50);
        }
        assert_eq!(crowd.len(), siege.crowd);
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB + CROWD_MAX * STALLED_BYTES_MAX,
};

fn stalled(siege: &Siege<'_>, number: usize) -> Client {
    let target = ["/big", "/big?offset=-1&live=sse", "/live?offset=-1&live=sse"][number % 3];
    let mut client = Client::connect_far(siege.server.address());
    client.ask("GET", target, &[], b"");
    client
}

/// Readers begin a long answer or a long backlog all at once, and the server's kernel takes megabytes
/// for each. That is work for seconds. Healthy clients must not wait for more than their part of it.
pub(crate) const RUSH: Attack = Attack {
    name: "rush of readers",
    prepare: fill,
    run: |siege| {
        siege.set_ready();
        while siege.is_running() {
            let crowd: Vec<Client> = (0..RUSH_COUNT).map(|number| rushing(siege, number)).collect();
            pause(500);
            assert_eq!(crowd.len(), RUSH_COUNT);
        }
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB + RUSH_COUNT as u64 * STALLED_BYTES_MAX,
};

const RUSH_COUNT: usize = 60;

fn rushing(siege: &Siege<'_>, number: usize) -> Client {
    let mut client = siege.server.connect();
    client.ask("GET", ["/big", "/big?offset=-1&live=sse"][number % 2], &[], b"");
    client
}

/// Connections that send no more before a request, inside its head, inside its body, or behind it.
pub(crate) const HALF_CLOSED: Attack = Attack {
    name: "half-closed",
    prepare: fill,
    run: |siege| {
        let mut crowd: Vec<Client> = (0..siege.crowd).map(|number| half(siege, number)).collect();
        siege.set_ready();
        let mut number = 0;
        while siege.is_running() {
            for _ in 0..20 {
                let place = number % siege.crowd;
                crowd[place] = half(siege, number);
                number += 1;
            }
            pause(20);
        }
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB + CROWD_MAX * STALLED_BYTES_MAX,
};

fn half(siege: &Siege<'_>, number: usize) -> Client {
    let mut client = Client::connect_far(siege.server.address());
    match number % 4 {
        0 => {}
        1 => client.send(b"GET /v1/stream/big HT"),
        2 => client.send(
            b"POST /v1/stream/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab",
        ),
        _ => client.ask("GET", "/big", &[], b""),
    }
    client.end_sending();
    client
}

/// More connections than the process has descriptors, again and again. Those that were there are
/// served on, and when the crowd leaves, others get in.
pub(crate) const NO_DESCRIPTORS: Attack = Attack {
    name: "no descriptors",
    prepare: |_| {},
    run: |siege| {
        while siege.is_running() {
            let crowd: Vec<Client> = (0..100).map(|_| siege.server.connect()).collect();
            siege.server.awaited_lines("cannot accept");
            siege.set_ready();
            pause(400);
            drop(crowd);
            let answer = siege.server.connect().get("/none");
            assert_eq!(answer.status, 404, "others get in again");
        }
    },
    flags: &[],
    under: &["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"],
    growth_bytes_max: 8 * MIB,
};
