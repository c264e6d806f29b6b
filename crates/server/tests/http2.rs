//! HTTP/2 over a real socket, in frames that are written by hand.

mod harness;

use harness::{Start, TEXT, new_dir};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET http://localhost/v1/stream/s?…` in HPACK, without tables.
fn get(query: &str) -> Vec<u8> {
    let path = format!("/v1/stream/s{query}");
    let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(&[0x01, 9]);
    block.extend_from_slice(b"localhost");
    block
}

/// The frames that are whole in `bytes`: kind, flags, stream, payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = bytes.get(..9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let Some(payload) = bytes.get(9..9 + length) else { break };
        frames.push((head[3], head[4], stream, payload.to_vec()));
        bytes = &bytes[9 + length..];
    }
    frames
}

#[test]
fn requests_and_live_readers_share_a_socket_until_the_server_stops() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    server.connect().put("/s", TEXT).is(201);
    server.connect().post("/s", TEXT, b"the past").is(204);
    let mut client = server.connect();
    client.send(PREFACE);
    client.send(&frame(SETTINGS, 0, 0, &[]));
    client.send(&frame(HEADERS, 5, 1, &get("")));
    client.send(&frame(HEADERS, 5, 3, &get("?offset=-1&live=sse")));
    server.connect().post("/s", TEXT, b"the news").is(204);
    while !client.received().windows(8).any(|part| part == b"the news") {
        client.wait_for_bytes();
    }
    server.stop();
    let frames = frames(&client.rest());
    let data = |stream| {
        let of = frames.iter().filter(|frame| frame.0 == DATA && frame.2 == stream);
        String::from_utf8(of.flat_map(|frame| frame.3.clone()).collect()).unwrap()
    };
    assert!(data(1).starts_with("the past"));
    assert!(data(3).contains("the news"), "{frames:?}");
    assert!(frames.iter().any(|frame| frame.0 == GOAWAY), "{frames:?}");
    let ends = frames.iter().filter(|frame| frame.0 == DATA && frame.1 & 1 == 1);
    assert_eq!(ends.count(), 2, "both answers have an end: {frames:?}");
}
