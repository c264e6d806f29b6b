//! HTTP/1.1 on a socket: what is served, and what is refused before it can do harm.

mod harness;

use harness::client::request;
use harness::{BINARY, Client, JSON, Numbers, Server, TEXT, until, vectors};

#[test]
fn one_connection_serves_request_after_request() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    for number in 0..200 {
        client.post("/s", TEXT, b"x").is(204);
        assert_eq!(client.get("/s").is(200).body.len(), number + 1);
        client.get("/none").is(404);
        client.call("HEAD", "/s", &[], b"").is(200);
    }
}

#[test]
fn a_thousand_pipelined_appends_are_done_in_order() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for number in 0..1000 {
        let body = format!("{number},").into_bytes();
        all.extend(request("POST", "/s", &[("Content-Type", TEXT)], &body));
        expected.extend(body);
    }
    all.extend(request("GET", "/s", &[], b""));
    client.send(&all);
    let mut last = String::new();
    for _ in 0..1000 {
        let answer = client.answer().is(204);
        assert!(answer.next() > last.as_str(), "offsets rise");
        answer.next().clone_into(&mut last);
    }
    assert_eq!(client.answer().is(200).body, expected);
}

#[test]
fn a_pipelined_request_may_have_no_more_fields_than_any_other() {
    let (server, _dir) = Server::start(&["--head-count-max", "16"]);
    let mut client = server.connect();
    let many: Vec<(String, &str)> = (0..16).map(|number| (format!("X-{number}"), "1")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    let mut all = request("PUT", "/a", &[("Content-Type", TEXT)], b"");
    all.extend(request("HEAD", "/b", &many, b""));
    client.send(&all);
    client.answer().is(201);
    client.answer_to_head().is(431);
}

#[test]
fn pipelined_answers_come_in_the_order_of_the_requests() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let mut all = Vec::new();
    for number in 0..50 {
        let path = format!("/{number}");
        all.extend(request("PUT", &path, &[("Content-Type", TEXT)], path.as_bytes()));
        all.extend(request("GET", &path, &[], b""));
        all.extend(request("GET", "/none", &[], b""));
        all.extend(request("OPTIONS", &path, &[], b""));
    }
    client.send(&all);
    for number in 0..50 {
        client.answer().is(201);
        assert_eq!(client.answer().is(200).text(), format!("/{number}"));
        client.answer().fails(404, "stream-not-found");
        client.answer().is(204);
    }
}

#[test]
fn chunked_bodies_may_be_cut_anywhere() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    let mut numbers = Numbers::new(11);
    let mut expected = Vec::new();
    for _ in 0..40 {
        let mut bytes = b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..=numbers.below(6) {
            let length = 1 + numbers.below(3000);
            let chunk = numbers.bytes(length);
            bytes.extend(format!("{length:x};ext=\"1\"\r\n").bytes());
            bytes.extend_from_slice(&chunk);
            bytes.extend(b"\r\n");
            expected.extend(chunk);
        }
        bytes.extend(b"0\r\nTrailer: is ignored\r\n\r\n");
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at((1 + numbers.below(900)).min(rest.len()));
            client.send(now);
            rest = later;
        }
        client.answer().is(204);
    }
    assert_eq!(client.read_all("/s"), expected);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    for byte in request("POST", "/s", &[("Content-Type", TEXT)], b"slow but sure") {
        client.send(&[byte]);
    }
    client.answer().is(204);
    assert_eq!(client.get("/s").is(200).text(), "slow but sure");
}

#[test]
fn expect_100_continue_is_answered_before_the_body_comes() {
    let (server, _dir) = Server::start(&["--append-bytes-max", "1KiB"]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let head = |length: usize| {
        format!(
            "POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    client.send(head(5).as_bytes());
    client.answer().is(100);
    client.send(b"hello");
    client.answer().is(204);
    assert_eq!(client.get("/s").is(200).text(), "hello");
    client.send(head(5000).as_bytes());
    client.answer().fails(413, "body-too-large");
    assert!(client.is_over());
}

// RFC 9110 §10.1.1: a final status instead of 100 spares the client its body.
#[test]
fn the_body_of_an_append_that_must_fail_is_not_invited() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let expecting = |path: &str, fields: &str| {
        let mut client = server.connect();
        let head = format!(
            "POST /v1/stream{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n{fields}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        );
        client.send(head.as_bytes());
        client
    };
    let producer =
        |seq: u64| format!("Producer-Id: p\r\nProducer-Epoch: 1\r\nProducer-Seq: {seq}\r\n");
    for path in ["/a", "/b", "/closed"] {
        client.put(path, TEXT).is(201);
    }
    let mut open = expecting("/closed", &producer(0));
    open.answer().is(100);
    open.send(b"hello");
    open.answer().is(200);
    client.call("POST", "/closed", &[("Stream-Closed", "true")], b"").is(204);

    for path in ["/missing", "/missing/too"] {
        let mut waiting = expecting(path, "");
        waiting.answer().fails(404, "stream-not-found");
        assert!(waiting.is_over(), "a body that may come is no request");
    }
    let problem = expecting("/closed", "").answer().fails(409, "stream-closed");
    assert_eq!(problem.field("Stream-Closed"), Some("true"));
    expecting("/closed", &producer(1)).answer().fails(409, "stream-closed");
    let again = expecting("/closed", &producer(0)).answer().is(204);
    assert_eq!(again.field("Producer-Seq"), Some("0"), "it was accepted before");
    for path in ["/a", "/b"] {
        let mut waiting = expecting(path, "");
        waiting.answer().is(100);
        waiting.send(b"hello");
        waiting.answer().is(204);
        assert_eq!(waiting.get(path).is(200).text(), "hello", "the connection serves on");
    }
    // A client that does not wait is served, too.
    let mut hasty = expecting("/a", "");
    hasty.send(b"again");
    let first = hasty.answer();
    let last = if first.status == 100 { hasty.answer() } else { first };
    last.is(204);
    assert_eq!(client.get("/a").is(200).text(), "helloagain");
}

#[test]
fn head_tells_what_get_would_without_a_body() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.call("PUT", "/s", &[("Content-Type", TEXT)], b"12345").is(201);
    let head = client.call("HEAD", "/s", &[], b"").is(200);
    assert_eq!(head.next(), client.get("/s").is(200).next());
    assert_eq!(head.field("Content-Type"), Some(TEXT));
    client.call("HEAD", "/none", &[], b"").is(404);
    assert_eq!(client.get("/s").is(200).text(), "12345", "no body was left on the connection");
}

#[test]
fn nested_and_encoded_paths_name_what_they_decode_to() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let paths = ["/a/b/c", "/a%2Fb", "/%E2%82%AC/x%20y", "/a/b/c/d", "/q%3Fx", "/.hidden"];
    for path in paths {
        client.call("PUT", path, &[("Content-Type", TEXT)], path.as_bytes());
    }
    for path in paths {
        let text = client.get(path).is(200).text();
        assert!(text == path || path == "/a%2Fb", "{path} answers {text}");
    }
    assert_eq!(client.get("/%61/b/c").is(200).text(), "/a/b/c");
    for path in ["/a/../b", "/a/%2e%2E/b", "/%00", "/%ff", "/a%0d%0aX:%20y"] {
        client.put(path, TEXT).fails(400, "invalid-path");
    }
}

#[test]
fn a_client_of_http_1_0_gets_a_whole_answer_and_the_end() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let body = Numbers::new(2).bytes(300_000);
    client.call("PUT", "/s", &[("Content-Type", BINARY)], &body).is(201);
    let mut old = server.connect();
    old.send(b"GET /v1/stream/s HTTP/1.0\r\n\r\n");
    let answer = old.answer().is(200);
    assert_eq!(answer.field("Transfer-Encoding"), None);
    assert!(answer.body == body);
    assert!(old.is_over());
    let mut kept = server.connect();
    for _ in 0..3 {
        kept.send(b"GET /v1/stream/s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = kept.answer().is(200);
        assert_eq!(answer.field("Connection"), Some("keep-alive"));
    }
}

#[test]
fn a_client_that_stops_sending_still_gets_its_answers() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let body = Numbers::new(2).bytes(60_000);
    client.call("PUT", "/s", &[("Content-Type", BINARY)], &body).is(201);
    let mut half = Client::connect_narrow(server.address());
    half.send(&request("GET", "/s", &[], b"").repeat(100));
    half.end_sending();
    for _ in 0..100 {
        assert!(half.answer().is(200).body == body);
    }
    assert!(half.is_over());
    let mut large = server.connect();
    client.call("POST", "/s", &[("Content-Type", BINARY)], &vec![5; 3 << 20]).is(204);
    large.ask("GET", "/s", &[], b"");
    large.end_sending();
    assert_eq!(large.answer().is(200).body.len(), 60_000 + (3 << 20));
}

#[test]
fn requests_that_could_be_smuggled_are_refused_and_the_connection_ends() {
    let (server, _dir) = Server::start(&[]);
    server.connect().put("/victim", TEXT).is(201);
    for (name, bytes) in vectors::all() {
        let mut client = server.connect();
        client.try_send(&bytes);
        let answer = client.answer();
        assert!([400, 413, 501].contains(&answer.status), "{name}: {}", answer.head);
        assert!(answer.closes(), "{name}");
        assert!(client.is_over(), "{name}: nothing after it was answered");
    }
    let mut client = server.connect();
    assert_eq!(client.get("/victim").is(200).text(), "", "nothing was stored and nothing deleted");
}

#[test]
fn heads_without_measure_are_refused() {
    let (server, _dir) = Server::start(&[]);
    let mut endless = server.connect();
    endless.send(b"GET /v1/stream/s HTTP/1.1\r\nHost: localhost\r\n");
    for _ in 0..40 {
        endless.try_send(&[b"X-Filler: ".as_slice(), &[b'a'; 1000], b"\r\n"].concat());
    }
    endless.answer().fails(431, "head-too-long");
    assert!(endless.is_over());
    let mut many = server.connect();
    many.send(b"GET /v1/stream/s HTTP/1.1\r\nHost: localhost\r\n");
    many.try_send(&b"X: 1\r\n".repeat(1000));
    many.try_send(b"\r\n");
    many.answer().fails(431, "head-too-long");
    let mut long = server.connect();
    long.send(
        format!("GET /v1/stream/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(9000))
            .as_bytes(),
    );
    long.answer().fails(414, "target-too-long");
    let mut noise = server.connect();
    noise.try_send(&Numbers::new(4).bytes(50_000));
    noise.answer();
}

#[test]
fn json_may_be_deep_but_not_break_anything() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let deep = [vec![b'['; 1_000_000], vec![b']'; 1_000_000]].concat();
    let status = client.post("/s", JSON, &deep).status;
    assert!([204, 400].contains(&status), "{status}");
    client.post("/s", JSON, &vec![b'['; 1_000_000]).fails(400, "invalid-json");
    client.post("/s", JSON, br#"{"still":"here"}"#).is(204);
}

#[test]
fn a_preflight_names_what_browsers_may_do() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    let fields = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT")];
    let answer = client.call("OPTIONS", "/s", &fields, b"").is(204);
    assert_eq!(answer.field("Access-Control-Allow-Origin"), Some("*"));
    let methods = answer.field("Access-Control-Allow-Methods").unwrap();
    for method in ["GET", "POST", "PUT", "DELETE", "HEAD"] {
        assert!(methods.contains(method), "{methods}");
    }
    let allowed = answer.field("Access-Control-Allow-Headers").unwrap().to_lowercase();
    assert!(allowed.contains("if-none-match") && allowed.contains("producer-id"), "{allowed}");
}

#[test]
fn what_is_no_stream_says_so() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/__ds/subscriptions", TEXT).fails(501, "reserved-path");
    client.get("/__ds").fails(501, "reserved-path");
    client.call("TRACE", "/s", &[], b"").fails(405, "method-not-allowed");
    client.send(b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = client.answer().fails(404, "unknown-route");
    assert_eq!(answer.field("X-Content-Type-Options"), Some("nosniff"));
}

#[test]
fn what_the_admin_server_has_not_says_what_it_has() {
    let (server, _dir) = Server::start(&["--admin-listen", "127.0.0.1:0"]);
    assert!(server.admin("/health").is(404).text().contains("/healthz"));
    let mut client = server.connect_admin();
    client.send(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert!(client.answer().is(405).text().contains("use GET"));
}

#[test]
fn a_client_that_vanishes_inside_a_body_leaves_nothing() {
    let (server, _dir) = Server::start(&["--admin-listen", "127.0.0.1:0"]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let whole = request("POST", "/s", &[("Content-Type", TEXT)], &vec![b'x'; 100_000]);
    let mut vanishing = server.connect();
    vanishing.send(&whole[..50_000]);
    until("its bytes are counted", || server.metric("thalweg_body_bytes_in_flight") > 0);
    drop(vanishing);
    until("its bytes are given back", || server.metric("thalweg_body_bytes_in_flight") == 0);
    assert_eq!(client.get("/s").is(200).text(), "");
}

// PROTOCOL §10.1 gives tags to reads; RFC 9110 §13.1.1 lets a writer ask for one.
#[test]
fn a_creation_or_deletion_that_names_a_tag_is_refused_and_does_nothing() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    client.post("/s", TEXT, b"kept").is(204);
    let tag = client.get("/s").is(200).field("ETag").unwrap().to_owned();
    for wanted in [tag.as_str(), "\"other\"", "*", "", "W/\"x\", \"y\""] {
        let fields = [("Content-Type", TEXT), ("If-Match", wanted)];
        for (method, path) in
            [("PATCH", "/s"), ("PUT", "/s"), ("PUT", "/new"), ("DELETE", "/s"), ("DELETE", "/new")]
        {
            let body: &[u8] = if method == "DELETE" { b"" } else { b"lost" };
            let answer = client.call(method, path, &fields, body);
            let problem = answer.fails(412, "precondition-unsupported");
            assert_eq!(problem.json()["applied"], false);
            assert_eq!(problem.field("Access-Control-Allow-Origin"), Some("*"));
        }
        client.call("GET", "/s", &fields[1..], b"").is(200);
        client.call("HEAD", "/s", &fields[1..], b"").is(200);
    }
    assert_eq!(client.get("/s").is(200).text(), "kept");
    client.get("/new").fails(404, "stream-not-found");
    let preflight = client.call("OPTIONS", "/s", &[], b"").is(204);
    let allowed = preflight.field("Access-Control-Allow-Headers").unwrap();
    assert!(allowed.contains("If-Match"), "a script of a browser gets the answer: {allowed}");
}

// The test adapters of the TypeScript and Elixir clients look for the word.
#[test]
fn a_conflict_of_sequences_says_sequence() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let fields = [("Content-Type", TEXT), ("Stream-Seq", "b")];
    client.call("POST", "/s", &fields, b"1").is(204);
    let problem = client.call("POST", "/s", &fields, b"2").fails(409, "stream-seq-conflict");
    for field in ["title", "detail"] {
        let text = problem.json()[field].as_str().unwrap().to_owned();
        assert!(text.contains("sequence"), "{text}");
    }
}
