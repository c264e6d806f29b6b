//! Nothing that clients do makes the server hang, grow without bound, or fail others.

mod harness;

use harness::client::{offset, request};
use harness::{BINARY, Client, Numbers, PATIENCE, Server, Start, TEXT, Watch, new_dir, until};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A stream of `count` MiB that no buffer of a socket holds.
fn fill(client: &mut Client, path: &str, count: usize) {
    client.put(path, BINARY).is(201);
    let body = Numbers::new(3).bytes(MIB);
    for _ in 0..count {
        client.post(path, BINARY, &body).is(204);
    }
}

#[test]
fn readers_that_stall_hold_nobody_up() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    fill(&mut client, "/big", 4);
    let mut stalled = Vec::new();
    for _ in 0..520 {
        let mut reader = Client::connect_narrow(server.address());
        reader.ask("GET", "/big", &[], b"");
        stalled.push(reader);
    }
    let start = Watch::start();
    for number in 0..50 {
        let path = format!("/{number}");
        client.put(&path, TEXT).is(201);
        client.post(&path, TEXT, b"data").is(204);
        assert_eq!(client.get(&path).is(200).body, b"data");
        client.delete(&path).is(204);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let last = stalled.pop().unwrap().answer();
    assert_eq!(last.is(200).body.len(), 4 * MIB, "who reads on gets everything");
}

#[test]
fn live_readers_that_stall_are_not_buffered_for() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    fill(&mut client, "/big", 100);
    let before = server.resident_bytes();
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut reader = Client::connect_narrow(server.address());
        reader.ask("GET", "/big?offset=-1&live=sse", &[], b"");
        reader.answer_to_head().is(200);
        stalled.push(reader);
    }
    for _ in 0..20 {
        client.post("/big", BINARY, b"and on").is(204);
        client.get("/big?offset=now").is(200);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{} MiB for four readers", grown >> 20);
}

#[test]
fn pipelined_reads_that_nobody_takes_are_not_buffered() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    let body = Numbers::new(9).bytes(60_000);
    client.post("/s", BINARY, &body).is(204);
    let before = server.resident_bytes();
    let mut greedy = Client::connect_narrow(server.address());
    let all = request("GET", "/s", &[], b"").repeat(3000);
    let mut reader = Client::connect_narrow(server.address());
    // Another connection keeps the loop turning while the first one takes nothing.
    greedy.set_sending_patience(Duration::from_secs(2));
    greedy.try_send(&all);
    for _ in 0..20 {
        assert_eq!(reader.get("/s").is(200).body, body);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{} MiB for one reader", grown >> 20);
}

#[test]
fn a_head_that_does_not_end_is_refused_in_time() {
    let (server, _dir) = Server::start(&["--head-timeout-ms", "300"]);
    let mut client = server.connect();
    client.send(b"GET /v1/stream/a HTTP/1.1\r\nHost:");
    let answer = client.answer().fails(408, "request-timeout");
    assert!(answer.closes());
    assert!(client.is_over());
}

#[test]
fn a_head_that_trickles_is_refused_in_time() {
    let (server, _dir) = Server::start(&["--head-timeout-ms", "500"]);
    let mut client = server.connect();
    let start = Watch::start();
    client.send(b"GET /v1/stream/a HTTP/1.1\r\nX: ");
    client.set_patience(Duration::from_millis(100));
    while !client.is_answered() {
        assert!(start.elapsed() < Duration::from_secs(5), "a byte now and then holds it for ever");
        client.try_send(b"x");
    }
    client.set_patience(PATIENCE);
    client.answer().fails(408, "request-timeout");
}

#[test]
fn a_body_that_trickles_is_refused_in_time() {
    let flags = ["--body-grace-ms", "300", "--body-bytes-per-second-min", "1000"];
    let (server, _dir) = Server::start(&flags);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    client.send(b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 9000\r\n\r\nabc");
    client.answer().fails(408, "request-timeout");
    assert!(client.is_over());
    assert_eq!(server.connect().get("/s").is(200).body, b"", "nothing of it is stored");
}

#[test]
fn a_connection_that_idles_is_closed() {
    let (server, _dir) = Server::start(&["--idle-timeout-ms", "300"]);
    let mut fresh = server.connect();
    let mut used = server.connect();
    used.put("/s", TEXT).is(201);
    assert!(fresh.is_over());
    assert!(used.is_over());
}

#[test]
fn a_reader_that_stalls_too_long_is_dropped() {
    let flags = ["--write-stall-timeout-ms", "300", "--admin-listen", "127.0.0.1:0"];
    let (server, _dir) = Server::start(&flags);
    fill(&mut server.connect(), "/big", 4);
    let mut stalled = Client::connect_narrow(server.address());
    stalled.ask("GET", "/big", &[], b"");
    until("only the reader is left", || server.metric("thalweg_connections") == 1);
    until("the reader is dropped", || server.metric("thalweg_connections") == 0);
}

#[test]
fn a_body_over_the_limit_is_413_however_it_comes() {
    let (server, _dir) = Server::start(&["--append-bytes-max", "1MiB"]);
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    client.post("/s", BINARY, &vec![1; MIB]).is(204);
    let mut announced = server.connect();
    announced.send(b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: 1048577\r\n\r\n");
    let answer = announced.answer().fails(413, "body-too-large");
    assert!(answer.closes());
    let mut chunked = server.connect();
    chunked.send(b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"10000\r\n".as_slice(), &[2; 0x10000], b"\r\n"].concat();
    for _ in 0..17 {
        chunked.try_send(&chunk);
    }
    chunked.answer().fails(413, "body-too-large");
    assert_eq!(client.read_all("/s").len(), MIB, "nothing of them is stored");
}

#[test]
fn a_body_of_64_mib_is_one_append() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    let body = Numbers::new(5).bytes(64 * MIB);
    let answer = client.post("/s", BINARY, &body).is(204);
    assert_eq!(answer.next(), offset(64 * MIB as u64));
    assert!(client.read_all("/s") == body, "the bytes are the same");
}

#[test]
fn an_announced_length_allocates_nothing() {
    let (server, _dir) =
        Server::start(&["--append-bytes-max", "1GiB", "--body-bytes-in-flight-max", "1GiB"]);
    let before = server.resident_bytes();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut client = server.connect();
        client.send(b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1073741824\r\n\r\nabc");
        waiting.push(client);
    }
    server.connect().get("/s").is(404);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{} MiB for bodies that have not come", grown >> 20);
    let mut absurd = server.connect();
    absurd.send(b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 18446744073709551615\r\n\r\n");
    absurd.answer().fails(413, "body-too-large");
}

#[test]
fn one_connection_too_many_is_told_to_retry() {
    let (server, _dir) = Server::start(&["--connections-max", "5"]);
    let mut known: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    for client in &mut known {
        client.get("/none").is(404);
    }
    let mut surplus = server.connect();
    let answer = surplus.answer().fails(503, "overloaded");
    assert!(answer.field("Retry-After").is_some() && answer.closes());
    assert!(surplus.is_over());
    for client in &mut known {
        client.get("/none").is(404);
    }
    drop(known);
    until("there is room again", || {
        let mut client = server.connect();
        client.try_send(&request("GET", "/none", &[], b""));
        client.answer().status == 404
    });
}

#[test]
fn more_body_bytes_than_memory_allows_are_told_to_retry() {
    let bounds = ["--append-bytes-max", "1MiB", "--body-bytes-in-flight-max", "1MiB"];
    let (server, _dir) = Server::start(&[&bounds[..], &["--admin-listen", "127.0.0.1:0"]].concat());
    let mut first = server.connect();
    first.put("/s", BINARY).is(201);
    let whole = request("POST", "/s", &[("Content-Type", BINARY)], &vec![7; MIB]);
    let (begin, end) = whole.split_at(whole.len() - 200_000);
    first.send(begin);
    until("what arrived is counted", || {
        server.metric("thalweg_body_bytes_in_flight") == MIB as u64 - 200_000
    });
    let mut second = server.connect();
    second.try_send(&whole[..whole.len() - 1]);
    let answer = second.answer().fails(503, "overloaded");
    assert!(answer.field("Retry-After").is_some());
    first.send(end);
    first.answer().is(204);
    let mut third = server.connect();
    third.send(&whole);
    third.answer().is(204);
    assert_eq!(third.read_all("/s").len(), 2 * MIB);
}

/// A shell that sets the limit of descriptors and becomes the server.
const FEW_DESCRIPTORS: [&str; 4] = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];

#[test]
fn existing_connections_are_served_without_free_descriptors() {
    let dir = new_dir();
    let server = Start::with(&[]).under(&FEW_DESCRIPTORS).serve(dir.path());
    let mut client = server.connect();
    client.put("/early", TEXT).is(201);
    let _crowd: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    server.awaited_lines("cannot accept");
    for number in 0..20 {
        let path = format!("/late/{number}");
        client.put(&path, TEXT).is(201);
        client.post(&path, TEXT, b"data").is(204);
        assert_eq!(client.get(&path).is(200).body, b"data");
    }
    assert!(server.logged("cannot accept").len() < 100, "the log is not flooded");
    drop(_crowd);
    until("others get in again", || {
        let mut client = server.connect();
        client.get("/early").status == 200
    });
}

/// A shell that lets the server have 5,000 descriptors and gives it 100.
const DESCRIPTORS_IF_ASKED: [&str; 4] = ["sh", "-c", "ulimit -Hn 5000 -Sn 100; exec \"$@\"", "sh"];

#[test]
fn room_for_all_connections_is_made_at_the_start() {
    for (connections_max, least) in [("3000", 4024), ("9000", 5000)] {
        let dir = new_dir();
        let flags = ["--connections-max", connections_max];
        let server = Start::with(&flags).under(&DESCRIPTORS_IF_ASKED).serve(dir.path());
        let room = server.status("FDSize:");
        assert!(room >= least, "{room} for {connections_max}");
        let mut crowd: Vec<Client> = (0..150).map(|_| server.connect()).collect();
        for client in &mut crowd {
            client.get("/none").is(404);
        }
    }
}

#[test]
fn a_crowd_that_comes_at_once_is_answered_whole() {
    const CROWD: usize = 120;
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/long", BINARY).is(201);
    let long = Numbers::new(5).bytes(300_000);
    client.post("/long", BINARY, &long).is(204);
    client.put("/short", TEXT).is(201);
    client.post("/short", TEXT, b"short").is(204);
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| server.connect()).collect();
    for (number, reader) in crowd.iter_mut().enumerate() {
        // A short answer behind the long one, and a few who say that it was their last request.
        reader.send(
            &[request("GET", "/long", &[], b""), request("GET", "/short", &[], b"")].concat(),
        );
        if number % 3 == 0 {
            reader.end_sending();
        }
    }
    for reader in &mut crowd {
        assert_eq!(reader.answer().is(200).body, long);
        assert_eq!(reader.answer().is(200).body, b"short");
    }
}

#[test]
fn many_streams_open_again_with_few_descriptors_and_soon() {
    const COUNT: usize = 5000;
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    for first in (0..COUNT).step_by(500) {
        for number in first..first + 500 {
            client.ask("PUT", &format!("/n/{number}"), &[("Content-Type", TEXT)], b"x");
        }
        for _ in 0..500 {
            client.answer().is(201);
        }
    }
    server.kill();
    let start = Watch::start();
    let server = Start::with(&[]).under(&FEW_DESCRIPTORS).serve(dir.path());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let mut client = server.connect();
    for number in [0, 1, COUNT / 2, COUNT - 1] {
        assert_eq!(client.get(&format!("/n/{number}")).is(200).body, b"x");
    }
    client.put("/n/new", TEXT).is(201);
}
