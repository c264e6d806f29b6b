//! A cluster of four real processes: each group is kept by three of them, and all answer for it.

mod harness;

use harness::cluster::{Node, grown};
use harness::events::Events;
use harness::{Client, JSON, SMALL_LOG, Server, TEXT, until};

const NODES: usize = 4;

const STREAMS: usize = 16;

/// Four nodes of which no group is on all, and a client of each.
fn four(flags: &[&str]) -> (Vec<Node>, Vec<Client>) {
    let nodes = grown(NODES, flags);
    let has_three = |server: &Server| {
        let status = server.cluster();
        let nodes = status["nodes"].as_array().unwrap().iter();
        let copies: u64 = nodes.map(|node| node["replicas"].as_u64().unwrap()).sum();
        // The cluster's own state is everywhere.
        let groups = status["groups"]["total"].as_u64().unwrap() - 1;
        server.has_three_voters() && copies == 3 * groups + NODES as u64
    };
    until("each group has three copies", || nodes.iter().all(|node| has_three(node.server())));
    let clients = nodes.iter().map(|node| node.server().connect()).collect();
    (nodes, clients)
}

fn offset(byte: u64) -> String {
    format!("{byte:016}_0000000000000000")
}

#[test]
fn each_node_answers_for_groups_that_it_does_not_keep() {
    let (_nodes, mut clients) = four(&["--groups", "8"]);
    for stream in 0..STREAMS {
        let path = format!("/s{stream}");
        for (number, client) in clients.iter_mut().enumerate() {
            client.put(&path, TEXT).is(if number == 0 { 201 } else { 200 });
            client.post(&path, TEXT, format!("{number};").as_bytes()).is(204);
        }
        for client in &mut clients {
            assert_eq!(client.read_all(&path), b"0;1;2;3;", "{path}");
            assert_eq!(client.call("HEAD", &path, &[], b"").is(200).next(), offset(8));
            assert_eq!(client.get(&format!("{path}?offset={}", offset(4))).is(200).text(), "2;3;");
            client.get(&format!("{path}-none")).is(404);
        }
        let (fork, source) = (format!("/fork{stream}"), format!("/v1/stream{path}"));
        let fields = [("Stream-Forked-From", &source[..])];
        clients[stream % NODES].call("PUT", &fork, &fields, b"").is(201);
        clients[(stream + 1) % NODES].post(&fork, TEXT, b"x;").is(204);
        for client in &mut clients {
            assert_eq!(client.read_all(&fork), b"0;1;2;3;x;", "{fork}");
        }
        clients[(stream + 2) % NODES].delete(&path).is(204);
        clients.iter_mut().for_each(|client| drop(client.get(&path).is(410)));
    }
}

#[test]
fn large_answers_come_from_elsewhere_too_and_begin_anywhere() {
    let (_nodes, mut clients) = four(&[&SMALL_LOG[..], &["--groups", "4"]].concat());
    let message = format!("{:?}", "m".repeat(30_000));
    for stream in 0..4 {
        let (text, json) = (format!("/text{stream}"), format!("/json{stream}"));
        clients[0].put(&text, TEXT).is(201);
        clients[1].put(&json, JSON).is(201);
        let mut all = Vec::new();
        for number in 0..40u8 {
            let data = vec![b'a' + number % 26; 20_000];
            clients[usize::from(number) % NODES].post(&text, TEXT, &data).is(204);
            clients[usize::from(number) % NODES].post(&json, JSON, message.as_bytes()).is(204);
            all.extend_from_slice(&data);
        }
        for client in &mut clients {
            assert!(client.read_all(&text) == all, "{text}");
            // In the middle of a message an answer begins with that message.
            let answer = client.get(&format!("{json}?offset={}", offset(600_123))).is(200);
            assert_eq!(answer.json()[0].as_str().map(str::len), Some(30_000), "{json}");
        }
    }
}

#[test]
fn live_readers_hear_of_streams_that_are_kept_elsewhere() {
    let (mut nodes, mut clients) = four(&["--groups", "4"]);
    let mut readers = Vec::new();
    for stream in 0..4 {
        let path = format!("/s{stream}");
        clients[0].put(&path, TEXT).is(201);
        clients[1].post(&path, TEXT, b"first;").is(204);
        for node in &nodes {
            let events = Events::follow(node.server().connect(), &path, "offset=-1");
            readers.push((stream, events));
        }
        for client in &mut clients {
            client.ask("GET", &format!("{path}?offset={}&live=long-poll", offset(6)), &[], b"");
        }
        nodes[stream].server().connect().post(&path, TEXT, b"second;").is(204);
        for client in &mut clients {
            assert_eq!(client.answer().is(200).text(), "second;");
        }
    }
    for (_, events) in &mut readers {
        until_text(events, "first;second;");
    }
    // A leader goes, perhaps that of all. Its own readers go with it.
    nodes[0].kill();
    for stream in 0..4 {
        clients[1].post(&format!("/s{stream}"), TEXT, b"third;").is(204);
    }
    for (at, (stream, events)) in readers.iter_mut().enumerate() {
        if at % NODES != 0 {
            until_text(events, "third;");
        }
        if *stream == 3 && at % NODES == 3 {
            clients[2].delete("/s3").is(204);
            while events.next().is_some() {}
        }
    }
}

/// Reads on until the data that came ends like this.
fn until_text(events: &mut Events, end: &str) {
    let mut text = String::new();
    while !text.ends_with(end) {
        let event = events.next().expect("the answer does not end");
        if event.kind == "data" {
            text.push_str(&event.data);
        }
    }
}
