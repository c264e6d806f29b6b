//! Attacks by few connections that want much.

use super::harness::client::request;
use super::harness::siege::{Attack, Siege};
use super::harness::{Client, JSON, TEXT, pause, vectors};

const MIB: u64 = 1 << 20;

/// Connections of a flood.
const FLOODS_COUNT: usize = 12;

/// Requests one behind the other as fast as they are taken: of what is missing, of what is there,
/// preflights, refusals, appends and deletes.
pub(crate) const FLOODS: Attack = Attack {
    name: "pipelined floods",
    prepare: |client| {
        client.put("/flood", TEXT).is(201);
        client.post("/flood", TEXT, &[b'x'; 500]).is(204);
    },
    run: |siege| {
        let mut floods: Vec<Flood> = (0..FLOODS_COUNT).map(|n| Flood::new(siege, n)).collect();
        siege.set_ready();
        while siege.is_running() {
            let moved = floods.iter_mut().map(Flood::go_on).sum::<usize>();
            if moved == 0 {
                pause(1);
            }
        }
        assert!(floods.iter().all(|flood| flood.sent > 0), "the server takes something of each");
    },
    flags: &[],
    under: &[],
    // Appends of the flood are WAL and state too.
    growth_bytes_max: 96 * MIB,
};

struct Flood {
    client: Client,
    block: Vec<u8>,
    at: usize,
    sent: usize,
}

impl Flood {
    fn new(siege: &Siege<'_>, number: usize) -> Self {
        let one = match number % 6 {
            0 => request("GET", "/none", &[], b""),
            1 => request("GET", "/flood", &[], b""),
            2 => request("OPTIONS", "/flood", &[], b""),
            3 => request("GET", "/flood?offset=nonsense", &[], b""),
            4 => request("POST", "/flood", &[("Content-Type", TEXT)], b"more"),
            _ => request("DELETE", "/none", &[], b""),
        };
        let mut client = siege.server.connect();
        client.begin_churning();
        Self { client, block: one.repeat(1000), at: 0, sent: 0 }
    }

    fn go_on(&mut self) -> usize {
        let sent =
            self.client.churn(&self.block[self.at..]).expect("a flood is no reason to close");
        self.at = (self.at + sent) % self.block.len();
        self.sent += sent;
        sent
    }
}

/// Requests that could be smuggled past another reader, over and over.
pub(crate) const SMUGGLING: Attack = Attack {
    name: "smuggling",
    prepare: |client| drop(client.put("/victim", TEXT).is(201)),
    run: |siege| {
        let vectors = vectors::all();
        siege.set_ready();
        for (name, bytes) in vectors.iter().cycle() {
            let mut client = siege.server.connect();
            client.try_send(bytes);
            let answer = client.answer();
            assert!([400, 413, 501].contains(&answer.status) && answer.closes(), "{name}");
            assert!(client.is_over(), "{name}: nothing after it was answered");
            if !siege.is_running() {
                break;
            }
        }
        let victim = siege.server.connect().get("/victim").is(200);
        assert_eq!(victim.text(), "", "nothing was stored and nothing deleted");
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB,
};

/// Heads with too many fields, too long fields, too long targets, and no end.
pub(crate) const HEAD_BOMBS: Attack = Attack {
    name: "head bombs",
    prepare: |_| {},
    run: |siege| {
        let begin = b"GET /v1/stream/x HTTP/1.1\r\nHost: localhost\r\n".as_slice();
        let bombs = [
            [begin, &b"X: y\r\n".repeat(10_000), b"\r\n"].concat(),
            [begin, &b"X: y\r\n".repeat(200), b"\r\n"].concat(),
            [begin, b"X: ", &vec![b'a'; MIB as usize], b"\r\n\r\n"].concat(),
            [begin, b"Cookie: ".as_slice(), &b"a=b; ".repeat(200_000), b"\r\n\r\n"].concat(),
            [b"GET /v1/stream/".as_slice(), &vec![b'a'; MIB as usize], b" HTTP/1.1\r\n"].concat(),
            vec![b'G'; MIB as usize],
            b"\r\n".repeat(500_000),
        ];
        siege.set_ready();
        for bomb in bombs.iter().cycle().take_while(|_| siege.is_running()) {
            let mut client = siege.server.connect();
            client.try_send(bomb);
            let answer = client.answer();
            assert!([400, 414, 431].contains(&answer.status) && answer.closes(), "{}", answer.head);
        }
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 16 * MIB,
};

/// Levels of nesting.
const LEVELS: usize = 100_000;

/// JSON as deep as its body is long, whole and cut off, of arrays and of objects.
pub(crate) const DEEP_JSON: Attack = Attack {
    name: "deep JSON",
    prepare: |client| drop(client.put("/deep", JSON).is(201)),
    run: |siege| {
        let (arrays, objects) = (b"[".repeat(LEVELS), br#"{"a":"#.repeat(LEVELS));
        let bodies = [
            [arrays.as_slice(), &b"]".repeat(LEVELS)].concat(),
            arrays.clone(),
            [objects.as_slice(), b"1", &b"}".repeat(LEVELS)].concat(),
            objects.clone(),
            [br#"{"a":["#.repeat(LEVELS / 2), b"]}".repeat(LEVELS / 2)].concat(),
        ];
        let mut clients: Vec<Client> = (0..4).map(|_| siege.server.connect()).collect();
        siege.set_ready();
        for (number, body) in bodies.iter().cycle().enumerate().take_while(|_| siege.is_running()) {
            let answer = clients[number % 4].post("/deep", JSON, body);
            assert!([204, 400].contains(&answer.status), "{}", answer.head);
        }
        clients[0].post("/deep", JSON, br#"{"still":"here"}"#).is(204);
    },
    flags: &[],
    under: &[],
    growth_bytes_max: 64 * MIB,
};
