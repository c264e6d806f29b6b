//! The lines of the logs: one for each exchange, on each wire, and never more than there is room for.

use crate::support::rules::{bearer, rules, table};
use crate::support::{Shard, get, post, put, request};
use http2::testing::Client;
use serde_json::Value;
use thalweg_session::{Input, Lines, Logs, Options};

const ALL: Logs = Logs { access: true, audit: true };
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn shard(logs: Logs) -> Shard {
    Shard::with(Options { logs, ..Options::default() })
}

fn parse(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn access(shard: &mut Shard) -> Vec<Value> {
    parse(&shard.sessions.take_log().access)
}

/// Target, status and code of each line.
fn said(lines: &[Value]) -> Vec<(String, u64, String)> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let one =
        |line: &Value| (text(line, "target"), line["status"].as_u64().unwrap(), text(line, "code"));
    lines.iter().map(one).collect()
}

#[test]
fn each_exchange_has_one_line_with_what_came_of_it() {
    let mut shard = shard(ALL);
    let created = shard.once(&put("a", b"some"));
    shard.once(&post("a", b"more"));
    shard.once(&get("a"));
    shard.once(&get("nothing?signature=secret"));
    shard.once(&request("GET", "a?offset=x", "", b""));
    shard.once(&request(
        "GET",
        "a",
        &format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n"),
        b"",
    ));
    let lines = access(&mut shard);
    let expected = [
        ("/v1/stream/a", 201, ""),
        ("/v1/stream/a", 204, ""),
        ("/v1/stream/a", 200, ""),
        ("/v1/stream/nothing?signature=...", 404, "stream-not-found"),
        ("/v1/stream/a?offset=x", 400, "invalid-offset"),
        ("/v1/stream/a", 200, ""),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(a, b, c)| ((*a).to_owned(), *b, (*c).to_owned())).collect();
    assert_eq!(said(&lines), expected);
    assert_eq!(
        (&lines[0]["in"], &lines[1]["in"], &lines[2]["in"]),
        (&4.into(), &4.into(), &0.into())
    );
    assert_eq!(lines[0]["out"], created.len());
    assert_eq!(lines[5]["trace"], TRACE);
    assert_eq!(lines[0]["proto"], "h1");
    assert!(lines.iter().all(|line| line["cut"].is_null()), "{lines:?}");
    assert_eq!(shard.sessions.take_log(), Lines::default(), "they are taken once");
}

#[test]
fn without_logs_nothing_is_kept() {
    let mut shard = shard(Logs::default());
    shard.once(&put("a", b"some"));
    shard.once(&request("DELETE", "a", "", b""));
    assert_eq!(shard.sessions.take_log(), Lines::default());
}

#[test]
fn pipelined_requests_have_their_own_lines_in_order() {
    let mut shard = shard(ALL);
    shard.once(&put("a", b""));
    access(&mut shard);
    let conn = shard.connect();
    let all: Vec<u8> = (0..5).flat_map(|n| post("a", &vec![b'x'; n + 1])).collect();
    shard.send(conn, &all);
    let lines = access(&mut shard);
    let bodies: Vec<u64> = lines.iter().map(|line| line["in"].as_u64().unwrap()).collect();
    assert_eq!(bodies, [1, 2, 3, 4, 5]);
    assert!(lines.iter().all(|line| line["status"] == 204 && line["out"].as_u64() > Some(100)));
}

#[test]
fn live_readers_have_a_line_when_they_end_and_lost_clients_a_line_that_says_so() {
    let mut shard = shard(ALL);
    shard.once(&put("a", b"some"));
    access(&mut shard);
    let polls = [(); 2].map(|()| {
        let conn = shard.connect();
        shard.send(conn, &get("a?offset=0000000000000004_0000000000000000&live=long-poll"));
        conn
    });
    let reader = shard.connect();
    shard.send(reader, &get("a?offset=-1&live=sse"));
    assert_eq!(access(&mut shard).len(), 0, "they last");
    shard.pass_ms(3_000);
    shard.once(&post("a", b"more"));
    let lines = access(&mut shard);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[..2].iter().all(|line| line["status"] == 200 || line["status"] == 204));
    let waited = lines.iter().filter(|line| line["us"].as_u64() >= Some(3_000_000));
    assert_eq!(waited.count(), polls.len());
    shard.handle(Input::Broken(reader));
    let lines = access(&mut shard);
    assert_eq!((lines.len(), &lines[0]["cut"]), (1, &true.into()), "{lines:?}");
    assert!(lines[0]["out"].as_u64() > Some(300), "{lines:?}");
}

#[test]
fn streams_of_http2_have_lines_and_a_reset_one_says_so() {
    let mut shard = shard(ALL);
    shard.once(&put("a", b"some"));
    access(&mut shard);
    let conn = shard.connect();
    let mut client = Client::new(30_000);
    for path in ["a", "nothing"] {
        client.ask("GET", &format!("http://localhost/v1/stream/{path}"), &[], Vec::new());
    }
    shard.carry(conn, &mut client);
    let mut lines = said(&access(&mut shard));
    lines.sort();
    assert_eq!(lines[0], ("/v1/stream/a".to_owned(), 200, String::new()));
    assert_eq!(lines[1], ("/v1/stream/nothing".to_owned(), 404, "stream-not-found".to_owned()));
    let live = "http://localhost/v1/stream/a?live=sse&offset=-1";
    client.ask("GET", live, &[], Vec::new());
    client.poll();
    shard.send(conn, &client.take_output());
    assert_eq!(access(&mut shard).len(), 0);
    shard.handle(Input::Broken(conn));
    let lines = access(&mut shard);
    assert_eq!(
        (lines.len(), &lines[0]["proto"], &lines[0]["cut"]),
        (1, &"h2".into(), &true.into())
    );
}

#[test]
fn lines_that_find_no_room_are_lost_and_counted_and_no_request_fails() {
    let mut shard = shard(ALL);
    shard.once(&put("a", b""));
    for _ in 0..2_000 {
        assert!(shard.once(&post("a", b"x")).starts_with("HTTP/1.1 204 "));
    }
    let lost = shard.sessions.counts().log_lines_lost;
    let lines = shard.sessions.take_log();
    assert!(lines.bytes() <= 256 << 10, "{}", lines.bytes());
    assert!(lost > 0);
    assert_eq!(lines.access.lines().count() as u64 + lost, 2_001);
    shard.once(&post("a", b"x"));
    assert_eq!(access(&mut shard).len(), 1, "there is room again");
}

#[test]
fn an_audit_has_removals_and_one_denial_of_an_address_in_a_second_with_a_count_of_the_others() {
    let file = table("r", r#"["read **"]"#, "") + &table("w", r#"["* **"]"#, "");
    let mut shard = shard(ALL);
    shard.handle(Input::Access(rules(&file, None)));
    let with = |method: &str, id: &str| {
        request(method, "a", &(bearer(id) + "Content-Type: text/plain\r\n"), b"")
    };
    assert!(shard.once(&with("PUT", "w")).starts_with("HTTP/1.1 201 "));
    for _ in 0..5 {
        assert!(shard.once(&with("PUT", "r")).starts_with("HTTP/1.1 403 "));
    }
    shard.once(&get("a"));
    shard.once(&with("DELETE", "w"));
    let audit = parse(&shard.sessions.take_log().audit);
    let events: Vec<_> = audit.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["denied", "removal"], "{audit:?}");
    assert_eq!((&audit[0]["who"], &audit[1]["who"]), (&"r".into(), &"w".into()));
    assert_eq!(audit[0]["code"], "access-denied");
    shard.pass_ms(1_000);
    let audit = parse(&shard.sessions.take_log().audit);
    assert_eq!((audit.len(), &audit[0]["more"]), (1, &5.into()), "{audit:?}");
    shard.once(&get("a"));
    let audit = parse(&shard.sessions.take_log().audit);
    assert_eq!((audit.len(), &audit[0]["code"]), (1, &"token-missing".into()));
}
