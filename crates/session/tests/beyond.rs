//! Readers at an offset beyond the tail: they have seen more than the server has. PROTOCOL §5.6–5.8.
//!
//! Such a reader is never sent back to a lower offset, and no answer says that it has everything.

use crate::support::{Shard, get, post, put, request};

/// Where the readers are: byte 9 of streams that end before.
const AHEAD: &str = "0000000000000009_0000000000000000";

/// The value of a field of the last answer in `text`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let last = &text[text.rfind("HTTP/1.1 ")?..];
    let line = last.lines().find(|line| line.to_lowercase().starts_with(&name.to_lowercase()))?;
    line.split_once(": ").map(|(_, value)| value)
}

fn next(text: &str) -> Option<&str> {
    field(text, "stream-next-offset")
}

fn is_up_to_date(text: &str) -> bool {
    field(text, "stream-up-to-date").is_some()
}

fn close(path: &str) -> Vec<u8> {
    request("POST", path, "Stream-Closed: true\r\n", b"")
}

#[test]
fn a_read_beyond_the_tail_is_empty_and_keeps_its_offset() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    let got = shard.once(&get(&format!("one?offset={AHEAD}")));
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("\r\n\r\n"), "{got}");
    assert_eq!((next(&got), is_up_to_date(&got)), (Some(AHEAD), false), "{got}");
    shard.once(&post("one", b"6789"));
    let got = shard.once(&get(&format!("one?offset={AHEAD}")));
    assert_eq!((next(&got), is_up_to_date(&got)), (Some(AHEAD), true), "at the tail: {got}");
}

#[test]
fn json_beyond_the_tail_is_an_empty_array() {
    let mut shard = Shard::open();
    shard.once(&request("PUT", "j", "Content-Type: application/json\r\n", b"1"));
    let got = shard.once(&get(&format!("j?offset={AHEAD}")));
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("\r\n\r\n[]"), "{got}");
    assert_eq!((next(&got), is_up_to_date(&got)), (Some(AHEAD), false), "{got}");
}

#[test]
fn beyond_the_tail_of_a_closed_stream_the_end_is_told() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    shard.once(&close("one"));
    for live in ["", "&live=long-poll"] {
        let got = shard.once(&get(&format!("one?offset={AHEAD}{live}")));
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        assert_eq!((next(&got), is_up_to_date(&got)), (Some(AHEAD), false), "{got}");
        assert_eq!(field(&got, "stream-closed"), Some("true"), "{got}");
    }
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=sse")));
    let got = shard.got(conn);
    assert!(got.contains(AHEAD) && got.contains("\"streamClosed\":true"), "{got}");
    assert!(!got.contains("upToDate"), "{got}");
    assert!(got.ends_with("0\r\n\r\n"), "it has ended: {got}");
}

#[test]
fn a_long_poll_beyond_the_tail_waits_and_keeps_its_offset() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=long-poll")));
    shard.once(&post("one", b"67"));
    assert_eq!(shard.got(conn), "", "there is nothing to tell");
    shard.pass_ms(20_000);
    let got = shard.got(conn);
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    assert_eq!((next(&got), is_up_to_date(&got)), (Some(AHEAD), false), "{got}");
    assert!(field(&got, "stream-cursor").is_some(), "{got}");
}

#[test]
fn a_long_poll_that_the_tail_reaches_is_up_to_date() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=long-poll")));
    shard.once(&post("one", b"6789"));
    shard.pass_ms(20_000);
    let got = shard.got(conn);
    assert!(got.starts_with("HTTP/1.1 204"), "{got}");
    assert_eq!((next(&got), is_up_to_date(&got)), (Some(AHEAD), true), "{got}");
}

#[test]
fn a_long_poll_beyond_the_tail_gets_what_lies_behind_its_offset() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=long-poll")));
    shard.once(&post("one", b"6789new"));
    let got = shard.got(conn);
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("\r\n\r\nnew"), "{got}");
}

#[test]
fn events_beyond_the_tail_begin_when_the_stream_gets_there() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=sse")));
    let first = shard.got(conn);
    assert!(first.contains(AHEAD) && !first.contains("upToDate"), "{first}");
    shard.once(&post("one", b"67"));
    assert_eq!(shard.got(conn), "", "its offset is not reached");
    shard.once(&post("one", b"89"));
    let reached = shard.got(conn);
    assert!(reached.contains(AHEAD) && reached.contains("\"upToDate\":true"), "{reached}");
    shard.once(&post("one", b"new"));
    let new = shard.got(conn);
    assert!(new.contains("data:new") && new.contains("\"upToDate\":true"), "{new}");
}

#[test]
fn events_beyond_the_tail_end_without_a_lower_offset() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"12345"));
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=sse")));
    shard.got(conn);
    shard.pass_ms(60_000);
    let got = shard.got(conn);
    assert!(got.contains(AHEAD) && !got.contains("upToDate"), "{got}");
    let conn = shard.connect();
    shard.send(conn, &get(&format!("one?offset={AHEAD}&live=sse")));
    shard.got(conn);
    shard.once(&close("one"));
    let got = shard.got(conn);
    assert!(got.contains(AHEAD) && got.contains("\"streamClosed\":true"), "{got}");
    assert!(!got.contains("upToDate"), "{got}");
}
