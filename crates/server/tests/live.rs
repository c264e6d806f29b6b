//! Waiting readers: what wakes them, what they learn, and how they are released.

mod harness;

use harness::events::Events;
use harness::{BINARY, Client, JSON, Server, Start, TEXT, Watch, new_dir, pause, thread, until};
use serde_json::Value;
use std::time::Duration;

const WITH_ADMIN: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];

/// A long-poll at the tail of `path` that the server has begun to wait for.
fn poll_now(server: &Server, path: &str) -> Client {
    let before = server.metric("thalweg_live_readers");
    let mut client = server.connect();
    client.ask("GET", &format!("{path}?offset=now&live=long-poll"), &[], b"");
    until("it waits", || server.metric("thalweg_live_readers") == before + 1);
    client
}

/// A reader of events at the tail of `path`, and its first control event.
fn follow_now(server: &Server, path: &str) -> (Events, Value) {
    let mut events = Events::follow(server.connect(), path, "offset=now");
    let (bytes, control) = events.up_to_date();
    assert_eq!(bytes, b"");
    (events, control)
}

#[test]
fn an_append_wakes_every_kind_of_reader() {
    let (server, _dir) = Server::start(&WITH_ADMIN);
    let mut client = server.connect();
    client.call("PUT", "/s", &[("Content-Type", TEXT)], b"old").is(201);
    let mut polls: Vec<Client> = (0..10).map(|_| poll_now(&server, "/s")).collect();
    let mut followers: Vec<Events> = (0..10).map(|_| follow_now(&server, "/s").0).collect();
    let next = client.post("/s", TEXT, b"new").is(204).next().to_owned();
    for poll in &mut polls {
        let answer = poll.answer().is(200);
        assert_eq!((answer.text().as_str(), answer.next()), ("new", next.as_str()));
        assert!(answer.field("Stream-Cursor").is_some());
    }
    for follower in &mut followers {
        let (bytes, control) = follower.up_to_date();
        assert_eq!(bytes, b"new");
        assert_eq!(control["streamNextOffset"], next.as_str());
    }
}

#[test]
fn a_delete_wakes_readers_and_ends_what_they_follow() {
    let (server, _dir) = Server::start(&WITH_ADMIN);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let mut poll = poll_now(&server, "/s");
    let (mut events, _) = follow_now(&server, "/s");
    client.delete("/s").is(204);
    poll.answer().fails(404, "stream-not-found");
    assert_eq!(events.next(), None);
}

#[test]
fn an_expiry_wakes_readers_and_ends_what_they_follow() {
    let (server, _dir) = Server::start(&WITH_ADMIN);
    let mut client = server.connect();
    client.call("PUT", "/s", &[("Content-Type", TEXT), ("Stream-TTL", "1")], b"").is(201);
    let mut poll = poll_now(&server, "/s");
    let (mut events, _) = follow_now(&server, "/s");
    let start = Watch::start();
    poll.answer().fails(404, "stream-not-found");
    assert_eq!(events.next(), None);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    client.get("/s").fails(404, "stream-not-found");
    until("it is gone without anybody asking for it", || server.metric("thalweg_streams") == 0);
}

#[test]
fn a_close_wakes_readers_with_the_end() {
    let (server, _dir) = Server::start(&WITH_ADMIN);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let mut poll = poll_now(&server, "/s");
    let (mut events, _) = follow_now(&server, "/s");
    client.call("POST", "/s", &[("Stream-Closed", "true")], b"").is(204);
    let answer = poll.answer().is(204);
    assert_eq!(answer.field("Stream-Closed"), Some("true"));
    let (_, control) = events.up_to_date();
    assert_eq!(control["streamClosed"], true);
    assert_eq!(events.next(), None);
}

#[test]
fn a_long_poll_in_vain_is_answered_in_time() {
    let (server, _dir) = Server::start(&["--long-poll-timeout-ms", "200"]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let answer = client.call("GET", "/s?offset=-1&live=long-poll", &[], b"").is(204);
    assert_eq!(answer.field("Stream-Up-To-Date"), Some("true"));
    assert_eq!(client.get("/s").is(200).text(), "", "the connection continues");
}

#[test]
fn a_quiet_answer_of_events_beats() {
    let (server, _dir) = Server::start(&["--sse-heartbeat-ms", "200"]);
    server.connect().put("/s", TEXT).is(201);
    let (mut events, _) = follow_now(&server, "/s");
    while events.comments < 2 {
        events.pull();
    }
    server.connect().post("/s", TEXT, b"after the beats").is(204);
    assert_eq!(events.up_to_date().0, b"after the beats");
}

#[test]
fn an_answer_of_events_ends_after_a_while_and_says_where_to_continue() {
    let (server, _dir) = Server::start(&["--sse-max-duration-ms", "300"]);
    let mut client = server.connect();
    let next =
        client.call("PUT", "/s", &[("Content-Type", TEXT)], b"data").is(201).next().to_owned();
    let (mut events, _) = follow_now(&server, "/s");
    let (_, control) = events.up_to_date();
    assert_eq!(control["streamNextOffset"], next.as_str());
    assert_eq!(events.next(), None);
}

#[test]
fn sigterm_ends_idle_connections_and_live_readers_within_two_seconds() {
    let (server, _dir) = Server::start(&WITH_ADMIN);
    let mut client = server.connect();
    let created = client.call("PUT", "/s", &[("Content-Type", TEXT)], b"data").is(201);
    let mut idle: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let mut poll = poll_now(&server, "/s");
    let (mut events, _) = follow_now(&server, "/s");
    let start = Watch::start();
    server.terminate();
    let (bytes, control) = events.up_to_date();
    assert_eq!(bytes, b"");
    assert_eq!(control["streamNextOffset"], created.next());
    assert_eq!(events.next(), None, "the answer ends as it should");
    poll.answer().is(204);
    assert!(idle.iter_mut().all(Client::is_over));
    assert!(server.wait().success());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn sigterm_does_not_wait_for_readers_that_stall() {
    let (server, _dir) = Server::start(&["--shutdown-timeout-ms", "500"]);
    let mut client = server.connect();
    client.put("/big", BINARY).is(201);
    for _ in 0..8 {
        client.post("/big", BINARY, &vec![1; 1 << 20]).is(204);
    }
    let mut stalled: Vec<Client> =
        (0..4).map(|_| Client::connect_narrow(server.address())).collect();
    for (number, reader) in stalled.iter_mut().enumerate() {
        let query = if number % 2 == 0 { "" } else { "?offset=-1&live=sse" };
        reader.ask("GET", &format!("/big{query}"), &[], b"");
        reader.answer_to_head().is(200);
    }
    let start = Watch::start();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn requests_on_their_way_are_answered_before_the_end() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    server.connect().put("/s", BINARY).is(201);
    let body = vec![9; 4 << 20];
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("POST", "/s", &[("Content-Type", BINARY)], &body);
    }
    server.terminate();
    let mut acknowledged = 0;
    for client in &mut clients {
        if client.is_answered() {
            let answer = client.try_answer();
            acknowledged += usize::from(answer.is_some_and(|answer| answer.status == 204));
        }
    }
    assert!(server.wait().success());
    let server = Start::with(&[]).serve(dir.path());
    let stored = server.connect().read_all("/s").len();
    assert!(stored >= acknowledged * body.len(), "{acknowledged} acknowledged, {stored} bytes");
    assert_eq!(stored % body.len(), 0, "each append is whole");
}

#[test]
fn sigterm_leaves_no_request_of_a_kept_connection_without_an_answer() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    server.connect().put("/s", BINARY).is(201);
    let writers: Vec<_> = (0..8)
        .map(|number| {
            let mut client = server.connect();
            thread("writer", move || {
                for count in 1.. {
                    let answer = client.post("/s", BINARY, &[number; 10]).is(204);
                    if answer.closes() {
                        return count;
                    }
                    pause(u64::from(number) * 10);
                }
                unreachable!("the server ends")
            })
        })
        .collect();
    pause(300);
    let start = Watch::start();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let acknowledged: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    let server = Start::with(&[]).serve(dir.path());
    assert_eq!(server.connect().read_all("/s").len(), acknowledged * 10);
}

#[test]
fn reads_of_a_stream_with_a_ttl_cost_no_sync_each() {
    let (server, _dir) = Server::start(&WITH_ADMIN);
    let mut client = server.connect();
    client.call("PUT", "/s", &[("Content-Type", TEXT), ("Stream-TTL", "1000")], b"x").is(201);
    until("the server rests", || {
        let before = server.metric("thalweg_batches_total");
        pause(1200);
        server.metric("thalweg_batches_total") == before
    });
    let before = server.metric("thalweg_batches_total");
    for _ in 0..500 {
        client.get("/s").is(200);
    }
    let batches = server.metric("thalweg_batches_total") - before;
    assert!(batches <= 5, "{batches} commits for 500 reads");
}

#[test]
fn reads_keep_a_sliding_lifetime_going_and_a_head_does_not() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    for path in ["/read", "/headed"] {
        client.call("PUT", path, &[("Content-Type", TEXT), ("Stream-TTL", "2")], b"x").is(201);
    }
    let start = Watch::start();
    until("the stream that is only looked at expires", || {
        client.get("/read").is(200);
        client.call("HEAD", "/headed", &[], b"").status == 404
    });
    assert!(start.elapsed() >= Duration::from_millis(1900), "{:?}", start.elapsed());
    client.get("/read").is(200);
}

#[test]
fn the_longest_ttl_does_not_overflow() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let ttl = ("Stream-TTL", "18446744073709551615");
    let status = client.call("PUT", "/s", &[("Content-Type", TEXT), ttl], b"x").status;
    assert!([201, 400].contains(&status), "{status}");
    if status == 201 {
        assert_eq!(client.get("/s").is(200).text(), "x");
        let head = client.call("HEAD", "/s", &[], b"").is(200);
        assert_eq!(head.field("Stream-TTL"), Some(ttl.1));
    }
    let far = ("Stream-Expires-At", "9999-12-31T23:59:59Z");
    client.call("PUT", "/far", &[("Content-Type", TEXT), far], b"x").is(201);
    assert_eq!(client.get("/far").is(200).text(), "x");
}

#[test]
fn a_reader_that_fell_behind_catches_up_without_a_gap() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let mut events = Events::follow(Client::connect_narrow(server.address()), "/s", "offset=-1");
    events.up_to_date();
    let filler = "x".repeat(20_000);
    for number in 0..400 {
        client
            .post("/s", JSON, format!("{{\"n\":{number},\"f\":\"{filler}\"}}").as_bytes())
            .is(204);
    }
    let mut expected = 0;
    while expected < 400 {
        let event = events.next().expect("the answer continues");
        if event.kind == "data" {
            for message in serde_json::from_str::<Vec<Value>>(&event.data).unwrap() {
                assert_eq!(message["n"], expected);
                expected += 1;
            }
        }
    }
}
