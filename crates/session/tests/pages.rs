//! Web pages of listed origins see answers, those of others do not: on each wire, in each kind of answer.

use crate::support::{Shard, put, request};
use http2::testing::Client;
use thalweg_session::{Names, Options, Pages, Sharing};

const LISTED: &str = "https://app.example";

/// What a browser learns of an answer: the origin that may see it, and whether with credentials.
type Learnt = (Option<String>, bool);

fn shard(credentials: bool) -> Shard {
    let pages = Pages {
        hosts: Names::Any,
        origins: Names::Local([LISTED.into(), "https://b.example".into()].into()),
        sharing: Sharing::Listed { credentials },
    };
    let mut shard = Shard::with(Options { pages: pages.into(), ..Options::default() });
    shard.once(&put("a", b"some"));
    shard
}

fn learnt(answer: &str) -> Learnt {
    let head = answer.split("\r\n\r\n").next().unwrap();
    let fields = |name: &str| -> Vec<String> {
        let begin = format!("{name}: ");
        head.lines().filter_map(|line| line.strip_prefix(&begin)).map(str::to_owned).collect()
    };
    assert!(fields("Vary").contains(&"Origin".to_owned()), "caches tell pages apart: {answer}");
    let mut origins = fields("Access-Control-Allow-Origin");
    assert!(origins.len() <= 1, "{answer}");
    (origins.pop(), !fields("Access-Control-Allow-Credentials").is_empty())
}

fn from(origin: &str) -> String {
    format!("Origin: {origin}\r\n")
}

/// Pages, and what each is learnt.
fn pages(credentials: bool) -> Vec<(String, Learnt)> {
    let to = |origin: &str, credentials| (Some(origin.to_owned()), credentials);
    vec![
        (from(LISTED), to(LISTED, credentials)),
        (from("https://b.example"), to("https://b.example", credentials)),
        (from("http://localhost:3000"), to("*", false)),
        (from("https://evil.example"), (None, false)),
        (from("null"), (None, false)),
        (from(LISTED) + &from(LISTED), (None, false)),
        (String::new(), (None, false)),
    ]
}

#[test]
fn each_kind_of_answer_tells_the_page_that_asked() {
    for credentials in [false, true] {
        let mut shard = shard(credentials);
        for (fields, expected) in pages(credentials) {
            let asks = [
                ("GET", "a", 200),
                ("HEAD", "a", 200),
                ("GET", "nothing", 404),
                ("OPTIONS", "a", 204),
                ("GET", "a?offset=x", 400),
            ];
            for (method, path, status) in asks {
                let answer = shard.once(&request(method, path, &fields, b""));
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
                assert_eq!(learnt(&answer), expected, "{method} {path} {fields}");
            }
            let events = shard.once(&request("GET", "a?offset=-1&live=sse", &fields, b""));
            assert_eq!(learnt(&events), expected, "{events}");
        }
    }
}

#[test]
fn writes_of_other_pages_are_refused_and_show_nothing() {
    let mut shard = shard(true);
    let text = "Content-Type: text/plain\r\n";
    for (fields, expected) in pages(true) {
        let answer = shard.once(&request("POST", "a", &(fields.clone() + text), b"x"));
        assert_eq!(learnt(&answer), expected, "{fields}");
        let is_page = !fields.is_empty();
        let is_refused = is_page && expected.0.is_none();
        assert_eq!(answer.starts_with("HTTP/1.1 403 "), is_refused, "{answer}");
    }
}

#[test]
fn answers_of_one_connection_are_each_for_their_own_page() {
    let mut shard = shard(true);
    let conn = shard.connect();
    let all: Vec<u8> =
        pages(true).iter().flat_map(|(fields, _)| request("GET", "a", fields, b"")).collect();
    shard.send(conn, &all);
    let got = shard.got(conn);
    let answers: Vec<&str> = got.split("HTTP/1.1 ").skip(1).collect();
    let expected = pages(true);
    assert_eq!(answers.len(), expected.len());
    for (answer, (fields, expected)) in answers.iter().zip(expected) {
        assert_eq!(learnt(answer), expected, "{fields}");
    }
}

#[test]
fn readers_that_one_append_wakes_are_each_told_their_own() {
    let mut shard = shard(true);
    let target = "a?offset=0000000000000004_0000000000000000&live=long-poll";
    let polls: Vec<_> = pages(true)
        .into_iter()
        .map(|(fields, expected)| {
            let conn = shard.connect();
            shard.send(conn, &request("GET", target, &fields, b""));
            (conn, expected)
        })
        .collect();
    shard.once(&request("POST", "a", "Content-Type: text/plain\r\n", b"more"));
    for (conn, expected) in polls {
        let answer = shard.got(conn);
        assert!(answer.ends_with("more"), "{answer}");
        assert_eq!(learnt(&answer), expected);
    }
}

#[test]
fn streams_of_http2_are_each_for_their_own_page() {
    let mut shard = shard(true);
    let conn = shard.connect();
    let mut client = Client::new(30_000);
    let asked = [Some(LISTED), Some("https://evil.example"), Some("http://localhost:1"), None];
    let places = asked.map(|origin| {
        let fields: Vec<(&str, &str)> = origin.map(|text| ("origin", text)).into_iter().collect();
        client.ask("GET", "http://localhost/v1/stream/a", &fields, Vec::new())
    });
    shard.carry(conn, &mut client);
    let learnt = places.map(|place| {
        let exchange = &client.exchanges[place];
        assert!(exchange.fields.contains(&("vary".to_owned(), "Origin".to_owned())));
        let origin = exchange.field("access-control-allow-origin").map(str::to_owned);
        (origin, exchange.field("access-control-allow-credentials").is_some())
    });
    let to = |origin: &str, credentials| (Some(origin.to_owned()), credentials);
    assert_eq!(learnt, [to(LISTED, true), (None, false), to("*", false), (None, false)]);
}

#[test]
fn appends_of_programs_are_answered_without_the_fields_of_pages() {
    let mut shard = Shard::with(Options::default());
    shard.once(&put("a", b"some"));
    let text = "Content-Type: text/plain\r\n";
    let by_program = shard.once(&request("POST", "a", text, b"x"));
    assert!(!by_program.contains("Access-Control-"), "{by_program}");
    let by_page = shard.once(&request("POST", "a", &(text.to_owned() + &from("null")), b"x"));
    assert!(by_page.contains("\r\nAccess-Control-Allow-Origin: *\r\n"), "{by_page}");
    assert!(by_page.contains("\r\nAccess-Control-Expose-Headers: Producer-Epoch, "), "{by_page}");
    let read = shard.once(&request("GET", "a", "", b""));
    assert!(read.contains("\r\nAccess-Control-Allow-Origin: *\r\n"), "a cache may keep it: {read}");

    let conn = shard.connect();
    let mut client = Client::new(30_000);
    let fields = [("content-type", "text/plain"), ("origin", "https://a.example")];
    let places = [&fields[..1], &fields]
        .map(|fields| client.ask("POST", "http://localhost/v1/stream/a", fields, b"x".to_vec()));
    shard.carry(conn, &mut client);
    let allowed = places.map(|place| {
        let exchange = &client.exchanges[place];
        exchange.field("access-control-allow-origin").map(str::to_owned)
    });
    assert_eq!(allowed, [None, Some("*".to_owned())]);
}
