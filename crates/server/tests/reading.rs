//! The same bytes for everybody, however they are asked for and however they came.

mod harness;

use flate2::read::GzDecoder;
use harness::client::{offset, request};
use harness::events::Events;
use harness::{BINARY, Client, JSON, Numbers, Server, TEXT};
use serde_json::{Value, json};
use std::io::Read;

const MIB: usize = 1 << 20;

/// Appends `bytes` in pieces of random size.
fn append_split(client: &mut Client, path: &str, kind: &str, bytes: &[u8], numbers: &mut Numbers) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = if numbers.below(4) == 0 { 200_000 } else { 300 };
        let (now, later) = rest.split_at((1 + numbers.below(most)).min(rest.len()));
        client.post(path, kind, now).is(204);
        rest = later;
    }
}

/// All bytes by long-polls, each from where the one before ended.
fn long_poll_all(client: &mut Client, path: &str) -> Vec<u8> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let answer =
            client.call("GET", &format!("{path}?offset={offset}&live=long-poll"), &[], b"");
        if answer.status == 204 {
            return all;
        }
        let answer = answer.is(200);
        answer.next().clone_into(&mut offset);
        all.extend(answer.body);
    }
}

/// Writes while one reader follows, closes, and compares every way to read.
fn every_way_gives_the_same(kind: &str, bytes: &[u8], seed: u64) {
    let (server, _dir) = Server::start(&["--long-poll-timeout-ms", "100"]);
    let mut client = server.connect();
    client.put("/s", kind).is(201);
    let mut live = Events::follow(server.connect(), "/s", "offset=-1");
    let mut numbers = Numbers::new(seed);
    append_split(&mut client, "/s", kind, bytes, &mut numbers);
    client.call("POST", "/s", &[("Stream-Closed", "true")], b"").is(204);
    assert!(client.read_all("/s") == bytes, "catch-up");
    assert!(long_poll_all(&mut client, "/s") == bytes, "long-poll");
    let mut late = Events::follow(server.connect(), "/s", "offset=-1");
    assert!(until_closed(&mut late) == bytes, "events from the beginning");
    assert!(until_closed(&mut live) == bytes, "events as they came");
    let mut exact = Events::follow(server.connect(), "/s", "offset=-1&encoding=base64");
    assert!(until_closed(&mut exact) == bytes, "events in base64");
}

fn until_closed(events: &mut Events) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (bytes, control) = events.up_to_date();
        all.extend(bytes);
        if control.get("streamClosed") == Some(&Value::Bool(true)) {
            assert_eq!(events.next(), None);
            return all;
        }
    }
}

#[test]
fn binary_is_the_same_by_every_way() {
    every_way_gives_the_same(BINARY, &Numbers::new(21).bytes(MIB), 1);
}

#[test]
fn plain_text_is_the_same_by_every_way() {
    let text =
        "one line\nand another\n\n with blanks  \ndata: no field\n: no comment\n".repeat(3000);
    every_way_gives_the_same(TEXT, text.as_bytes(), 2);
}

#[test]
fn text_with_carriage_returns_and_cut_characters_is_the_same_by_every_way() {
    let text = "a\r\nb\rc\n\u{0}\u{feff}€𝄞é\u{2028}".repeat(2000);
    every_way_gives_the_same(TEXT, text.as_bytes(), 3);
}

#[test]
fn text_that_is_not_utf8_is_the_same_by_every_way() {
    every_way_gives_the_same("text/plain; charset=latin-1", &Numbers::new(23).bytes(300_000), 4);
}

/// A value of random shape, with everything that JSON text is easily cut at.
fn random_value(numbers: &mut Numbers, depth: usize) -> Value {
    match numbers.below(if depth > 3 { 4 } else { 6 }) {
        0 => json!(numbers.next()),
        1 => json!(["a,b", "]", "{\"", "\\\\\"", "\r\n€"][numbers.below(5)]),
        2 => json!("x".repeat(numbers.below(3000))),
        3 => json!(null),
        4 => (0..numbers.below(4)).map(|_| random_value(numbers, depth + 1)).collect(),
        _ => json!({"a,": random_value(numbers, depth + 1), "[": random_value(numbers, depth + 1)}),
    }
}

#[test]
fn json_is_the_same_by_every_way() {
    let (server, _dir) = Server::start(&["--long-poll-timeout-ms", "100"]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let mut live = Events::follow(server.connect(), "/s", "offset=-1");
    let mut numbers = Numbers::new(31);
    let mut expected = Vec::new();
    for _ in 0..300 {
        let messages: Vec<Value> =
            (0..=numbers.below(4)).map(|_| random_value(&mut numbers, 0)).collect();
        client.post("/s", JSON, &serde_json::to_vec(&messages).unwrap()).is(204);
        expected.extend(messages);
    }
    client.call("POST", "/s", &[("Stream-Closed", "true")], b"").is(204);
    assert!(client.get("/s").is(200).json() == json!(expected), "catch-up");
    assert!(arrays(&long_poll_all(&mut client, "/s")) == expected, "long-poll");
    let mut late = Events::follow(server.connect(), "/s", "offset=-1");
    assert!(arrays(&until_closed(&mut late)) == expected, "events from the beginning");
    assert!(arrays(&until_closed(&mut live)) == expected, "events as they came");
}

/// The messages of arrays that follow one another.
fn arrays(bytes: &[u8]) -> Vec<Value> {
    let arrays = serde_json::Deserializer::from_slice(bytes).into_iter::<Vec<Value>>();
    arrays.flat_map(|array| array.expect("each piece is an array")).collect()
}

#[test]
fn an_offset_inside_a_json_message_means_its_start() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    client.post("/s", JSON, br#"[{"first":[1,2]},{"second":",]"},3]"#).is(204);
    let all = client.get("/s").is(200).json();
    let tail: u64 = client.get("/s").next()[..16].parse().unwrap();
    let mut last = 3;
    for at in 0..=tail {
        let answer = client.get(&format!("/s?offset={}", offset(at))).is(200);
        let messages = answer.json();
        let messages = messages.as_array().unwrap();
        assert_eq!(messages[..], all.as_array().unwrap()[3 - messages.len()..], "at {at}");
        assert!(messages.len() <= last, "at {at}");
        last = messages.len();
    }
    assert_eq!(last, 0);
}

#[test]
fn a_sub_offset_counts_messages_and_not_commas() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    client.post("/s", JSON, br#"[{"a":[1,2,{"b":"],["}]},"x,y",[[1,2],[3,4]],7]"#).is(204);
    let all = client.get("/s").is(200).json();
    for count in 0..=4 {
        let path = format!("/fork/{count}");
        let sub = count.to_string();
        let zero = offset(0);
        let fields = [
            ("Content-Type", JSON),
            ("Stream-Forked-From", "/v1/stream/s"),
            ("Stream-Fork-Offset", zero.as_str()),
            ("Stream-Fork-Sub-Offset", sub.as_str()),
        ];
        client.call("PUT", &path, &fields, b"").is(201);
        assert_eq!(client.get(&path).is(200).json(), json!(all.as_array().unwrap()[..count]));
    }
}

#[test]
fn a_long_history_comes_in_stable_pieces_that_caches_may_keep() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    let mut numbers = Numbers::new(41);
    let mut expected = Vec::new();
    for _ in 0..20 {
        let body = numbers.bytes(700_001);
        client.post("/s", BINARY, &body).is(204);
        expected.extend(body);
    }
    let first = client.get("/s").is(200);
    assert_eq!(first.body.len(), 4 * MIB);
    let brief = "public, max-age=60, stale-while-revalidate=300";
    assert_eq!(first.field("Cache-Control"), Some(brief), "it may be trimmed");
    assert_eq!(first.field("Stream-Up-To-Date"), None);
    let from_start = client.get(&format!("/s?offset={}", offset(0))).is(200);
    let for_ever = "public, max-age=31536000, immutable";
    assert_eq!(from_start.field("Cache-Control"), Some(for_ever));
    let from_inside = client.get(&format!("/s?offset={}", offset(12_345))).is(200);
    assert_eq!(from_inside.next(), first.next(), "all readers meet at the same boundary");
    assert!(client.read_all("/s") == expected);
    client.post("/s", BINARY, b"more").is(204);
    let again = client.get("/s").is(200);
    assert_eq!(again.field("ETag"), first.field("ETag"), "what follows changes nothing");
    assert!(again.body == first.body);
}

#[test]
fn a_long_history_of_json_comes_in_whole_arrays() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let filler = "x".repeat(3000);
    for batch in 0..60 {
        let messages: Vec<Value> = (0..50).map(|n| json!([batch * 50 + n, filler])).collect();
        client.post("/s", JSON, &serde_json::to_vec(&messages).unwrap()).is(204);
    }
    let mut answer = client.get("/s").is(200);
    let mut pieces = 0;
    let mut next = 0;
    loop {
        pieces += 1;
        for message in answer.json().as_array().unwrap() {
            assert_eq!(message[0], next);
            next += 1;
        }
        if answer.field("Stream-Up-To-Date").is_some() {
            break;
        }
        let is_first = pieces == 1;
        assert_eq!(!is_first, answer.field("Cache-Control").unwrap().ends_with("immutable"));
        answer = client.get(&format!("/s?offset={}", answer.next())).is(200);
    }
    assert_eq!((pieces, next), (3, 3000));
}

#[test]
fn entity_tags_match_alone_in_lists_and_weakly() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.call("PUT", "/s", &[("Content-Type", TEXT)], b"data").is(201);
    let tag = client.get("/s").is(200).field("ETag").unwrap().to_owned();
    let lists =
        [tag.clone(), format!("W/{tag}"), format!("\"other\", W/\"b,c\", {tag}"), "*".to_owned()];
    for list in &lists {
        let answer = client.call("GET", "/s", &[("If-None-Match", list)], b"").is(304);
        assert_eq!(answer.field("ETag"), Some(tag.as_str()), "{list}");
    }
    client.call("GET", "/s", &[("If-None-Match", "\"other\"")], b"").is(200);
    client.call("POST", "/s", &[("Stream-Closed", "true")], b"").is(204);
    let closed = client.call("GET", "/s", &[("If-None-Match", &tag)], b"").is(200);
    assert_ne!(closed.field("ETag"), Some(tag.as_str()), "the end changes the tag");
}

#[test]
fn compressed_answers_decode_to_the_same_bytes() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let text = "a line that repeats itself\n".repeat(150_000);
    client.call("PUT", "/s", &[("Content-Type", TEXT)], text.as_bytes()).is(201);
    client.call("PUT", "/b", &[("Content-Type", BINARY)], text.as_bytes()).is(201);
    let answer = client.call("GET", "/s", &[("Accept-Encoding", "br, gzip;q=0.8")], b"").is(200);
    assert_eq!(answer.field("Content-Encoding"), Some("gzip"));
    assert!(answer.field("Vary").unwrap().contains("Accept-Encoding"));
    assert!(answer.field("ETag").unwrap().starts_with("W/"));
    let mut decoded = String::new();
    GzDecoder::new(&answer.body[..]).read_to_string(&mut decoded).unwrap();
    assert!(decoded == text);
    assert!(answer.body.len() < text.len() / 10);
    for list in ["gzip;q=0", "identity", "br"] {
        let plain = client.call("GET", "/s", &[("Accept-Encoding", list)], b"").is(200);
        assert_eq!(plain.field("Content-Encoding"), None, "{list}");
    }
    let binary = client.call("GET", "/b", &[("Accept-Encoding", "gzip")], b"").is(200);
    assert_eq!(binary.field("Content-Encoding"), None, "what may not shrink is left alone");
}

#[test]
fn forks_read_what_they_inherit_from_streams_of_other_shards() {
    let (server, _dir) = Server::start(&["--shards", "3"]);
    let mut client = server.connect();
    let mut expected = Numbers::new(51).bytes(200_000);
    client.call("PUT", "/0", &[("Content-Type", BINARY)], &expected).is(201);
    for level in 1..8 {
        let source = format!("/v1/stream/{}", level - 1);
        let path = format!("/{level}");
        let fields = [("Content-Type", BINARY), ("Stream-Forked-From", source.as_str())];
        client.call("PUT", &path, &fields, b"").is(201);
        let own = Numbers::new(level).bytes(100_000);
        client.post(&path, BINARY, &own).is(204);
        client.post(&source["/v1/stream".len()..], BINARY, b"not inherited").is(204);
        expected.extend(own);
        assert!(client.read_all(&path) == expected, "level {level}");
        let mut events = Events::follow(server.connect(), &path, "offset=-1");
        assert!(events.up_to_date().0 == expected, "events of level {level}");
    }
}

// The official Yjs server adds 1 to the second part of an offset after it has compacted.
#[test]
fn a_client_may_count_in_the_second_part_of_an_offset() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let next = client.post("/s", TEXT, b"snapshot").is(204).next().to_owned();
    assert_eq!(next, "0000000000000008_0000000000000000");
    client.post("/s", TEXT, b"update").is(204);
    let (first, second) = next.split_once('_').unwrap();
    let second: u64 = second.parse().unwrap();
    for added in [0, 1, 2, 999_999_999_999_999] {
        let counted = format!("{first}_{:016}", second + added);
        assert_eq!(client.get(&format!("/s?offset={counted}")).is(200).text(), "update");
        let poll = client.get(&format!("/s?offset={counted}&live=long-poll")).is(200);
        assert_eq!(poll.text(), "update");
        let fields =
            [("Stream-Forked-From", "/v1/stream/s"), ("Stream-Fork-Offset", counted.as_str())];
        let path = format!("/fork/{added}");
        client.call("PUT", &path, &fields, b"").is(201);
        assert_eq!(client.get(&path).is(200).text(), "snapshot");
    }
}

#[test]
fn a_large_second_part_of_an_offset_is_reserved() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    for reserved in ["0000000000000000_1000000000000000", "0000000000000008_9999999999999999"] {
        for live in ["", "&live=long-poll", "&live=sse"] {
            let answer = client.get(&format!("/s?offset={reserved}{live}"));
            let problem = answer.fails(400, "invalid-offset");
            assert!(problem.text().contains("reserved"), "{}", problem.text());
        }
        let fields = [("Stream-Forked-From", "/v1/stream/s"), ("Stream-Fork-Offset", reserved)];
        let problem = client.call("PUT", "/fork", &fields, b"").fails(400, "invalid-fork");
        assert!(problem.text().contains("reserved"), "{}", problem.text());
    }
}

/// An array of one long message and a short one behind it.
fn one_long_message(bytes: usize) -> Vec<u8> {
    let mut body = b"[[".to_vec();
    body.extend(b"1,".repeat(bytes / 2));
    body.extend(b"1],7]");
    body
}

#[test]
fn others_are_served_while_a_read_looks_for_its_message() {
    let (server, _dir) = Server::start(&["--shards", "1"]);
    let (mut reader, mut other) = (server.connect(), server.connect());
    reader.put("/s", JSON).is(201);
    let body = one_long_message(31 * MIB);
    reader.post("/s", JSON, &body).is(204);
    // Stored without the brackets, and with a comma behind each message.
    let inside_last = offset(body.len() as u64 - 2);
    let ask = request("GET", &format!("/s?offset={inside_last}"), &[], b"");
    // A loop that looks through it itself answers one request of another client, or two, on any machine.
    let mut most_served = 0;
    for _ in 0..3 {
        reader.send(&ask);
        let mut served = 0;
        while !reader.has_answer() {
            other.call("HEAD", "/none", &[], b"").is(404);
            served += 1;
        }
        assert_eq!(reader.answer().is(200).text(), "[7]");
        most_served = most_served.max(served);
    }
    assert!(most_served >= 20, "{most_served} answers to others while 31 MiB were looked through");
}

#[test]
fn what_ends_at_the_tail_is_kept_as_long_as_the_setting_says() {
    let brief = "public, max-age=2, stale-while-revalidate=10";
    for (seconds, expected) in [("0", "no-cache"), ("2", brief)] {
        let (server, _dir) = Server::start(&["--tail-max-age-s", seconds]);
        let mut client = server.connect();
        client.put("/s", TEXT).is(201);
        client.post("/s", TEXT, b"a").is(204);
        let answer = client.get("/s").is(200);
        assert_eq!(answer.field("Cache-Control"), Some(expected));
        let tag = answer.field("ETag").unwrap();
        let known = client.call("GET", "/s", &[("If-None-Match", tag)], b"").is(304);
        assert_eq!(known.field("Cache-Control"), Some(expected), "304 says it, too");
    }
}
