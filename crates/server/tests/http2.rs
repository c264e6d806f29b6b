//! HTTP/2 over a real socket, in frames that are written by hand.

mod harness;

use harness::frames::{DATA, GOAWAY, PREFACE, SETTINGS, frame, frames, request};
use harness::{Start, TEXT, new_dir};

#[test]
fn requests_and_live_readers_share_a_socket_until_the_server_stops() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    server.connect().put("/s", TEXT).is(201);
    server.connect().post("/s", TEXT, b"the past").is(204);
    let mut client = server.connect();
    client.send(PREFACE);
    client.send(&frame(SETTINGS, 0, 0, &[]));
    client.send(&request(1, "GET", "s"));
    client.send(&request(3, "GET", "s?offset=-1&live=sse"));
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
