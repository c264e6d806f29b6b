//! What was acknowledged is there after any end of the process.

mod harness;

use harness::{Answer, BINARY, Client, JSON, Server, Start, TEXT, new_dir};

fn produce(client: &mut Client, path: &str, seq: u64, body: &[u8]) -> Answer {
    let seq = seq.to_string();
    let fields = [
        ("Content-Type", TEXT),
        ("Producer-Id", "writer"),
        ("Producer-Epoch", "0"),
        ("Producer-Seq", seq.as_str()),
    ];
    client.call("POST", path, &fields, body)
}

/// Three appends of one producer, then its repeats after `end` and a new start.
fn producers_go_on_after(end: impl FnOnce(Server)) {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    client.put("/p", TEXT).is(201);
    for seq in 0..3 {
        produce(&mut client, "/p", seq, b"one,").is(200);
    }
    end(server);
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    let repeated = produce(&mut client, "/p", 1, b"one,").is(204);
    assert_eq!(repeated.field("Producer-Seq"), Some("2"), "the highest accepted number");
    produce(&mut client, "/p", 4, b"gap").fails(409, "producer-sequence-gap");
    produce(&mut client, "/p", 3, b"two").is(200);
    assert_eq!(client.read_all("/p"), b"one,one,one,two");
}

#[test]
fn producers_stay_exactly_once_over_kill_9() {
    producers_go_on_after(Server::kill);
}

#[test]
fn producers_stay_exactly_once_over_sigterm() {
    producers_go_on_after(Server::stop);
}

/// Sends a `Stream-Seq` before `end`, and lower and higher ones after it.
fn stream_seq_goes_on_after(end: impl FnOnce(Server)) {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let with = |seq: &'static str| [("Content-Type", TEXT), ("Stream-Seq", seq)];
    client.call("POST", "/s", &with("0005"), b"a").is(204);
    end(server);
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    client.call("POST", "/s", &with("0005"), b"x").fails(409, "stream-seq-conflict");
    client.call("POST", "/s", &with("0004"), b"x").fails(409, "stream-seq-conflict");
    client.call("POST", "/s", &with("0006"), b"b").is(204);
    assert_eq!(client.read_all("/s"), b"ab");
}

#[test]
fn stream_seq_survives_kill_9() {
    stream_seq_goes_on_after(Server::kill);
}

#[test]
fn stream_seq_survives_sigterm() {
    stream_seq_goes_on_after(Server::stop);
}

#[test]
fn a_create_with_body_and_close_is_one_record_over_kill_9() {
    let dir = new_dir();
    let body = vec![b'x'; 300_000];
    let close = [("Content-Type", TEXT), ("Stream-Closed", "true")];
    let server = Start::with(&[]).serve(dir.path());
    let mut acknowledged = server.connect();
    acknowledged.call("PUT", "/whole", &close, &body).is(201);
    // Others are on their way when the process dies: each is there as a whole or not at all.
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask("PUT", &format!("/{number}"), &close, &body);
    }
    server.kill();
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    for path in ["/whole", "/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7"] {
        let answer = client.get(path);
        if path == "/whole" || answer.status != 404 {
            let answer = answer.is(200);
            assert_eq!(answer.body.len(), body.len(), "{path}");
            assert_eq!(answer.field("Stream-Closed"), Some("true"), "{path}");
        }
    }
}

#[test]
fn every_kind_of_change_survives_kill_9() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    client.put("/kept", JSON).is(201);
    client.post("/kept", JSON, br#"[{"a":1},{"b":[2,3]}]"#).is(204);
    client.put("/closed", TEXT).is(201);
    client
        .call("POST", "/closed", &[("Stream-Closed", "true"), ("Content-Type", TEXT)], b"end")
        .is(204);
    client.put("/deleted", TEXT).is(201);
    client.delete("/deleted").is(204);
    client.put("/source", BINARY).is(201);
    client.post("/source", BINARY, b"inherited").is(204);
    let fork = [("Content-Type", BINARY), ("Stream-Forked-From", "/v1/stream/source")];
    client.call("PUT", "/fork", &fork, b"").is(201);
    client.post("/fork", BINARY, b" own").is(204);
    client.call("PUT", "/ttl", &[("Content-Type", TEXT), ("Stream-TTL", "3600")], b"t").is(201);
    server.kill();

    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    assert_eq!(client.get("/kept").is(200).json(), serde_json::json!([{"a":1},{"b":[2,3]}]));
    let closed = client.get("/closed").is(200);
    assert_eq!((closed.field("Stream-Closed"), closed.text()), (Some("true"), "end".to_owned()));
    client.post("/closed", TEXT, b"more").fails(409, "stream-closed");
    client.get("/deleted").fails(404, "stream-not-found");
    assert_eq!(client.read_all("/fork"), b"inherited own");
    let ttl = client.call("HEAD", "/ttl", &[], b"").is(200);
    assert_eq!(ttl.field("Stream-TTL"), Some("3600"));
}

#[test]
fn another_number_of_shards_keeps_everything() {
    let dir = new_dir();
    let mut expected = vec![Vec::new(); 40];
    for (round, shards) in ["1", "3", "2", "5"].into_iter().enumerate() {
        let server = Start::with(&["--shards", shards]).serve(dir.path());
        let mut client = server.connect();
        for (number, bytes) in expected.iter_mut().enumerate() {
            let path = format!("/many/{number}");
            if round == 0 {
                client.put(&path, TEXT).is(201);
            }
            let body = format!("{round}:{number};");
            produce(&mut client, &path, round as u64, body.as_bytes()).is(200);
            bytes.extend_from_slice(body.as_bytes());
            assert_eq!(&client.read_all(&path), bytes);
        }
        if round % 2 == 0 { server.kill() } else { server.stop() }
    }
    let server = Start::with(&["--shards", "2"]).serve(dir.path());
    let mut client = server.connect();
    for (number, bytes) in expected.iter().enumerate() {
        assert_eq!(&client.read_all(&format!("/many/{number}")), bytes);
    }
}

#[test]
fn a_history_in_chunks_and_checkpoints_is_whole_after_kill_9() {
    let small = ["--segment-bytes", "1MiB", "--wal-bytes-max", "4MiB", "--seal-bytes", "64KiB"];
    let dir = new_dir();
    let server = Start::with(&small).serve(dir.path());
    let mut client = server.connect();
    let mut numbers = harness::Numbers::new(7);
    let mut expected = vec![Vec::new(); 10];
    for (number, _) in expected.iter().enumerate() {
        client.put(&format!("/{number}"), BINARY).is(201);
    }
    for _ in 0..400 {
        let number = numbers.below(10);
        let body = numbers.bytes(30_000);
        let mut answer = client.post(&format!("/{number}"), BINARY, &body);
        while answer.status == 503 {
            assert!(answer.field("Retry-After").is_some());
            answer = client.post(&format!("/{number}"), BINARY, &body);
        }
        answer.is(204);
        expected[number].extend_from_slice(&body);
    }
    harness::until("the log is sealed into chunks", || {
        !harness::files(dir.path(), ".chunk").is_empty()
    });
    server.kill();
    let server = Start::with(&small).serve(dir.path());
    let mut client = server.connect();
    for (number, bytes) in expected.iter().enumerate() {
        assert!(client.read_all(&format!("/{number}")) == *bytes, "stream {number}");
    }
}
