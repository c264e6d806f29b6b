//! Requests are decided before their bodies, once, and whatever lasts ends with its credential.

use crate::support::rules::{bearer, reload, rules, table, token};
use crate::support::{Shard, TEXT, get, post, put, request};
use access::Access;
use std::sync::Arc;
use thalweg_session::{Close, ConnId};

/// A shard with the streams `a/1` and `b/1`, under the rules of a file.
fn shard(text: &str) -> (Shard, Arc<Access>) {
    let mut shard = Shard::open();
    for path in ["a/1", "b/1"] {
        shard.once(&put(path, b"first"));
    }
    let access = rules(text, None);
    reload(&mut shard, &access);
    shard.log.clear();
    (shard, access)
}

fn read(path: &str, id: &str) -> Vec<u8> {
    request("GET", path, &bearer(id), b"")
}

/// Follows a stream from its start.
fn follow(shard: &mut Shard, path: &str, live: &str, id: &str) -> ConnId {
    let conn = shard.connect();
    shard.send(conn, &request("GET", &format!("{path}?offset=now&live={live}"), &bearer(id), b""));
    conn
}

fn without_date(answer: &str) -> String {
    answer.lines().filter(|line| !line.starts_with("Date:")).collect()
}

const ALL: &str = r#"["* **"]"#;

#[test]
fn a_denied_request_asks_nothing_and_tells_nothing_of_what_exists() {
    let (mut shard, _) = shard(&table("x", r#"["read b/"]"#, ""));
    for fields in [String::new(), bearer("y"), bearer("x")] {
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let there = shard.once(&request(method, "a/1", &(fields.clone() + TEXT), b"data"));
            let gone = shard.once(&request(method, "a/2", &(fields.clone() + TEXT), b"data"));
            let status = if fields == bearer("x") { "403" } else { "401" };
            assert!(there.starts_with(&format!("HTTP/1.1 {status} ")), "{there}");
            assert!(there.contains("WWW-Authenticate: Bearer realm=\"thalweg\""), "{there}");
            assert!(there.contains("Cache-Control: no-store\r\n"), "{there}");
            assert_eq!(without_date(&there).replace("a/1", "a/2"), without_date(&gone));
        }
    }
    assert!(shard.log.is_empty(), "{:?}", shard.log);
    assert!(shard.once(&read("b/1", "x")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_denial_comes_before_the_body_and_before_the_invitation() {
    let (mut shard, _) = shard(&table("x", ALL, ""));
    let conn = shard.connect();
    let head =
        format!("POST /v1/stream/a/1 HTTP/1.1\r\nHost: x\r\n{TEXT}Content-Length: 50000000\r\n");
    shard.send(conn, format!("{head}\r\n").as_bytes());
    let answer = shard.got(conn);
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.contains("Connection: close"),
        "{answer}"
    );
    let conn = shard.connect();
    shard.send(conn, format!("{head}Expect: 100-continue\r\n\r\n").as_bytes());
    assert_eq!(shard.statuses(conn), [401]);
    let conn = shard.connect();
    shard.send(conn, format!("{head}{}Expect: 100-continue\r\n\r\n", bearer("x")).as_bytes());
    assert_eq!(shard.statuses(conn), [100]);
}

#[test]
fn a_producer_gets_401_and_others_403() {
    let (mut shard, _) = shard(&table("x", r#"["read **"]"#, ""));
    let producer = "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n";
    let answer = shard.once(&request("POST", "a/1", &(bearer("x") + TEXT + producer), b"data"));
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.contains("\"producer-denied\""),
        "{answer}"
    );
    assert!(answer.contains("error=\"insufficient_scope\", scope=\"append a/1\""), "{answer}");
    let answer = shard.once(&request("POST", "a/1", &(bearer("x") + TEXT), b"data"));
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("\"access-denied\""),
        "{answer}"
    );
    assert!(!answer.contains(&token("x")));
}

#[test]
fn three_bad_credentials_in_a_row_cost_the_connection() {
    let (mut shard, _) = shard(&table("x", ALL, ""));
    let conn = shard.connect();
    for good_after in [1, 2] {
        for _ in 0..good_after {
            shard.send(conn, &read("a/1", "y"));
        }
        shard.send(conn, &read("a/1", "x"));
    }
    assert_eq!(shard.statuses(conn), [401, 200, 401, 401, 200]);
    for _ in 0..3 {
        shard.send(conn, &read("a/1", "y"));
    }
    assert_eq!(shard.statuses(conn), [401, 401, 401]);
    assert_eq!(shard.wires.0[&conn].closed, Some(Close::Writes));
}

#[test]
fn no_credential_at_all_never_costs_the_connection() {
    let (mut shard, _) = shard(&table("x", ALL, ""));
    let conn = shard.connect();
    (0..5).for_each(|_| shard.send(conn, &get("a/1")));
    assert_eq!(shard.statuses(conn), [401; 5]);
    assert_eq!(shard.wires.0[&conn].closed, None);
}

#[test]
fn pipelined_requests_are_decided_one_by_one() {
    let (mut shard, _) = shard(&table("x", r#"["* a/"]"#, ""));
    let conn = shard.connect();
    let append = |path| request("POST", path, &(bearer("x") + TEXT), b"data");
    let many =
        [append("a/1"), append("b/1"), append("a/1"), post("a/1", b"data"), append("a/1")].concat();
    shard.send(conn, &many);
    assert_eq!(shard.statuses(conn), [204, 403, 204, 401, 204]);
    assert_eq!(shard.asked("Append"), 3);
}

#[test]
fn a_fork_needs_its_source() {
    let (mut shard, _) = shard(&table("x", r#"["create a/", "read b/1"]"#, ""));
    let fork = |shard: &mut Shard, source: &str| {
        let fields = format!("{}Stream-Forked-From: /v1/stream/{source}\r\n", bearer("x"));
        shard.once(&request("PUT", "a/fork", &fields, b""))[..13].to_owned()
    };
    assert_eq!(fork(&mut shard, "a/1"), "HTTP/1.1 403 ");
    assert_eq!(fork(&mut shard, "b/2"), "HTTP/1.1 403 ");
    assert_eq!(fork(&mut shard, "b/1"), "HTTP/1.1 201 ");
}

#[test]
fn a_preflight_needs_nothing() {
    let (mut shard, _) = shard(&table("x", ALL, ""));
    let answer = shard.once(&request("OPTIONS", "a/1", "Authorization: nonsense\r\n", b""));
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
}

/// Seconds of the test's clock, which begins at 1.
fn expiring(seconds: u64) -> String {
    table("x", r#"["read **"]"#, &format!("expires = 1970-01-01T00:00:{seconds:02}Z"))
        + &table("w", ALL, "")
}

#[test]
fn live_readers_end_with_their_token_and_say_where_to_continue() {
    let (mut shard, _) = shard(&expiring(20));
    let sse = follow(&mut shard, "a/1", "sse", "x");
    let poll = follow(&mut shard, "a/1", "long-poll", "x");
    let other = follow(&mut shard, "a/1", "sse", "w");
    shard.pass_ms(18_000);
    assert!(!shard.got(sse).ends_with("0\r\n\r\n"));
    (0..5).for_each(|_| shard.pass_ms(500));
    let end = shard.got(sse);
    assert!(end.contains("event: control") && end.contains("0000000000000005_"), "{end}");
    assert!(end.ends_with("0\r\n\r\n"), "{end}");
    assert_eq!(shard.statuses(poll), [204]);
    shard.got(other);
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), b"more"));
    assert!(shard.got(other).contains("data:more"), "others continue");
    shard.send(sse, &read("a/1", "x"));
    assert_eq!(shard.statuses(sse), [401], "on the connection that it had");
}

#[test]
fn nothing_is_delivered_after_the_end_of_a_token() {
    let (mut shard, _) = shard(&expiring(20));
    let sse = follow(&mut shard, "a/1", "sse", "x");
    let poll = follow(&mut shard, "a/1", "long-poll", "x");
    shard.got(sse);
    // The clock has passed the end, and no sweep has noticed.
    shard.now.wall = model::Timestamp::new(20_000);
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), b"secret"));
    let end = shard.got(sse);
    assert!(!end.contains("secret") && end.contains("0000000000000005_"), "{end}");
    assert!(end.ends_with("0\r\n\r\n"), "{end}");
    let answer = shard.got(poll);
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("secret"), "{answer}");
}

#[test]
fn a_reader_that_catches_up_ends_with_its_token_between_two_events() {
    let (mut shard, _) = shard(&expiring(20));
    for _ in 0..8 {
        shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), &[b'z'; 60_000]));
    }
    let conn = shard.connect_with_room(20_000);
    shard.send(conn, &request("GET", "a/1?offset=-1&live=sse", &bearer("x"), b""));
    shard.now.wall = model::Timestamp::new(20_000);
    (0..100).for_each(|_| shard.take(conn, 20_000));
    let got = shard.got(conn);
    let data = got.matches('z').count();
    assert!(data > 0 && data < 300_000, "{data}");
    assert!(got.contains("streamNextOffset") && got.ends_with("0\r\n\r\n"));
}

#[test]
fn new_rules_end_what_they_do_not_allow_and_nothing_else() {
    let file =
        table("x", r#"["read **"]"#, "") + &table("y", r#"["read **"]"#, "") + &table("w", ALL, "");
    let (mut shard, before) = shard(&file);
    let kept = follow(&mut shard, "a/1", "sse", "x");
    let lost = follow(&mut shard, "b/1", "sse", "x");
    let lost_poll = follow(&mut shard, "b/1", "long-poll", "x");
    let gone = follow(&mut shard, "a/1", "sse", "y");
    for conn in [kept, lost, lost_poll, gone] {
        shard.got(conn);
    }
    let after = rules(&(table("x", r#"["read a/"]"#, "") + &table("w", ALL, "")), Some(&before));
    reload(&mut shard, &after);
    for conn in [lost, gone] {
        let end = shard.got(conn);
        assert!(end.contains("event: control") && end.ends_with("0\r\n\r\n"), "{end}");
    }
    assert_eq!(shard.statuses(lost_poll), [204]);
    assert_eq!(shard.got(kept), "");
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), b"more"));
    assert!(shard.got(kept).contains("data:more"));
    assert!(shard.once(&read("a/1", "y")).contains("token-invalid"), "a connection forgets, too");
}

#[test]
fn a_reader_that_catches_up_while_the_rules_change_gets_nothing_afterwards() {
    let file = table("x", r#"["read **"]"#, "") + &table("w", ALL, "");
    let (mut shard, before) = shard(&file);
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), &[b'z'; 70_000]));
    // Its last read waits for the node.
    shard.holds = |request| matches!(request, node::Request::Read(read) if matches!(read.from, model::ReadFrom::At(at) if at.get() > 60_000));
    let conn = shard.connect();
    shard.send(conn, &request("GET", "a/1?offset=-1&live=sse", &bearer("x"), b""));
    assert_eq!(shard.held.len(), 1);
    let after = rules(&table("w", ALL, ""), Some(&before));
    reload(&mut shard, &after);
    shard.release();
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), b"secret"));
    let got = shard.got(conn);
    assert!(!got.contains("secret") && got.ends_with("0\r\n\r\n"), "it has ended");
    assert!(got.contains("0000000000070005_"), "and says where to continue");
}

#[test]
fn a_token_that_new_rules_end_earlier_ends_then() {
    let end = |seconds| {
        table("x", r#"["read **"]"#, &format!("expires = 1970-01-01T00:00:{seconds}Z"))
            + &table("w", ALL, "")
    };
    let (mut shard, before) = shard(&end(50));
    let conn = follow(&mut shard, "a/1", "sse", "x");
    shard.got(conn);
    reload(&mut shard, &rules(&end(20), Some(&before)));
    assert_eq!(shard.got(conn), "");
    shard.now.wall = model::Timestamp::new(20_000);
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), b"secret"));
    let got = shard.got(conn);
    assert!(!got.contains("secret") && got.ends_with("0\r\n\r\n"), "{got}");
}

#[test]
fn a_read_that_waits_for_the_node_is_judged_when_it_begins_to_last() {
    let (mut shard, before) = shard(&table("x", ALL, ""));
    shard.holds = |request| matches!(request, node::Request::Read(_));
    let sse = follow(&mut shard, "a/1", "sse", "x");
    let poll = follow(&mut shard, "a/1", "long-poll", "x");
    reload(&mut shard, &rules("", Some(&before)));
    shard.release();
    assert_eq!(shard.statuses(sse), [401]);
    assert_eq!(shard.statuses(poll), [401]);
}

#[test]
fn anonymous_readers_are_judged_by_new_rules_too() {
    let (mut shard, before) = shard("[anonymous]\ngrants = [\"read a/\"]\n");
    let conn = shard.connect();
    shard.send(conn, &get("a/1?offset=now&live=sse"));
    shard.got(conn);
    let same = rules("[anonymous]\ngrants = [\"read **\"]\n", Some(&before));
    reload(&mut shard, &same);
    assert_eq!(shard.got(conn), "");
    reload(&mut shard, &rules("", Some(&same)));
    assert!(shard.got(conn).ends_with("0\r\n\r\n"));
}

#[test]
fn a_limit_says_when_to_come_back() {
    let (mut shard, _) =
        shard(&table("x", ALL, "limits = { requests_per_s = 2, live_readers = 1 }"));
    let conn = shard.connect();
    (0..3).for_each(|_| shard.send(conn, &read("a/1", "x")));
    let answers = shard.got(conn);
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2);
    assert!(
        answers.contains("HTTP/1.1 429 ") && answers.contains("Retry-After: 1\r\n"),
        "{answers}"
    );
    shard.pass_ms(2_000);
    let live = follow(&mut shard, "a/1", "sse", "x");
    let second = follow(&mut shard, "a/1", "sse", "x");
    assert!(shard.got(live).starts_with("HTTP/1.1 200 "));
    assert_eq!(shard.statuses(second), [429]);
    shard.hang_up(live);
    shard.pass_ms(2_000);
    let third = follow(&mut shard, "a/1", "sse", "x");
    assert!(shard.got(third).starts_with("HTTP/1.1 200 "), "a seat comes back with its reader");
}

#[test]
fn bodies_are_charged_whether_their_length_is_known_or_not() {
    let (mut shard, _) = shard(&table("x", ALL, "limits = { append_bytes_per_s = 1000 }"));
    let chunked = format!(
        "POST /v1/stream/a/1 HTTP/1.1\r\nHost: x\r\n{TEXT}{}Transfer-Encoding: chunked\r\n\r\nbb8\r\n{}\r\n0\r\n\r\n",
        bearer("x"),
        "z".repeat(3_000)
    );
    let append = request("POST", "a/1", &(bearer("x") + TEXT), &[b'z'; 3_000]);
    for body in [chunked.as_bytes(), &append] {
        assert!(shard.once(body).starts_with("HTTP/1.1 204 "));
        let answer = shard.once(&append);
        assert!(answer.contains("Retry-After: 2\r\n"), "{answer}");
        shard.pass_ms(4_000);
    }
}

/// What caches learn of an answer.
fn cache_control(answer: &str) -> &str {
    answer
        .lines()
        .find_map(|line| line.strip_prefix("Cache-Control: "))
        .expect("a field for caches")
}

#[test]
fn only_what_everybody_may_read_is_kept_by_shared_caches() {
    let file = table("x", r#"["read **"]"#, "") + "[anonymous]\ngrants = [\"read a/\"]\n";
    let (mut shard, before) = shard(&file);
    for fields in [String::new(), bearer("x")] {
        let answer = shard.once(&request("GET", "a/1", &fields, b""));
        assert_eq!(cache_control(&answer), "public, max-age=60, stale-while-revalidate=300");
    }
    let answer = shard.once(&read("b/1", "x"));
    assert_eq!(cache_control(&answer), "private, max-age=60, stale-while-revalidate=300");
    let tag = answer.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
    let fields = format!("{}If-None-Match: {tag}\r\n", bearer("x"));
    let answer = shard.once(&request("GET", "b/1", &fields, b""));
    assert!(answer.starts_with("HTTP/1.1 304 "), "{answer}");
    assert_eq!(cache_control(&answer), "private, max-age=60, stale-while-revalidate=300");
    // New rules count for the next answer.
    let after = rules(&table("x", r#"["read **"]"#, ""), Some(&before));
    reload(&mut shard, &after);
    let answer = shard.once(&read("a/1", "x"));
    assert_eq!(cache_control(&answer), "private, max-age=60, stale-while-revalidate=300");
}

#[test]
fn what_a_long_poll_brings_is_not_for_everybody_either() {
    let (mut shard, _) = shard(&table("w", ALL, ""));
    let target = "a/1?offset=0000000000000005_0000000000000000&live=long-poll";
    let polls = [(); 3].map(|()| {
        let conn = shard.connect();
        shard.send(conn, &read(target, "w"));
        conn
    });
    shard.once(&request("POST", "a/1", &(bearer("w") + TEXT), b"more"));
    for poll in polls {
        let answer = shard.got(poll);
        assert!(answer.ends_with("more"), "{answer}");
        assert_eq!(cache_control(&answer), "private, max-age=60, stale-while-revalidate=300");
    }
}
