use super::*;
use crate::face::durable::request::{self, Live, Request, Way};
use crate::http1::{Framing, HeadLimits, HeadReader, HeaderSlots};
use model::{ByteOffset, ReadFrom};
use stream::Producer;

fn target(path: &str) -> Target<'_> {
    Target { host: "localhost:4437", path }
}

/// What the server's own parser makes of a request, and how long its body is.
fn understood(bytes: &[u8]) -> (Request, u64) {
    let mut slots = HeaderSlots::new();
    let mut reader = HeadReader::default();
    let head = reader.read(bytes, &mut slots, &HeadLimits::default()).unwrap().unwrap();
    let body_bytes = match head.framing {
        Framing::Length(length) => length,
        _ => 0,
    };
    assert_eq!(bytes.len() as u64, head.head_bytes as u64 + body_bytes, "one whole request");
    (request::parse(&head.request, &Way::LOCAL).unwrap(), body_bytes)
}

#[test]
fn the_server_understands_every_request() {
    let mut out = Vec::new();
    put_create(&mut out, target("a b/ü%"), "text/plain", b"");
    let Request::Create(create) = understood(&out).0 else { panic!("a create was written") };
    assert_eq!(create.asked.path.as_str(), "a b/ü%");

    out.clear();
    let producer = Producer { id: "p".into(), epoch: 3, seq: 9 };
    put_append(&mut out, target("s"), "text/plain", Some(&producer), b"body");
    let (Request::Append(append), 4) = understood(&out) else { panic!("an append was written") };
    let ready = append.finish(b"body").unwrap();
    assert_eq!(ready.append.producer, Some(producer));

    out.clear();
    let from = ReadFrom::At(ByteOffset::new(7));
    put_read(&mut out, target("s"), from, Live::LongPoll, Some(5));
    let Request::Read(read) = understood(&out).0 else { panic!("a read was written") };
    assert_eq!((read.offset, read.live, read.cursor), (from, Live::LongPoll, Some(5)));
}

#[test]
fn no_value_ends_its_line() {
    let mut out = Vec::new();
    put_create(&mut out, target("a\r\nX: y"), "text/plain\r\nX: y", b"");
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("\r\nX"), "{text}");
}

#[test]
fn an_answer_comes_back_with_what_the_client_needs() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nStream-Next-Offset: \
        0000000000000042_0000000000000000\r\nStream-Up-To-Date: true\r\nStream-Cursor: 8\r\n\r\nabc";
    for cut in 0..text.len() - 3 {
        assert_eq!(parse_answer(&text[..cut], false), Ok(None), "{cut}");
    }
    let head = parse_answer(text, false).unwrap().unwrap();
    assert_eq!(&text[head.head_bytes..], b"abc");
    assert_eq!((head.status, head.body), (200, AnswerBody::Length(3)));
    assert_eq!((head.next, head.cursor), (Some(ByteOffset::new(42)), Some(8)));
    assert!(head.up_to_date && head.keep_alive && !head.closed);
}

#[test]
fn where_a_body_ends_follows_from_status_and_fields() {
    let body =
        |text: &str, is_head| parse_answer(text.as_bytes(), is_head).map(|h| h.unwrap().body);
    assert_eq!(body("HTTP/1.1 204 No Content\r\n\r\n", false), Ok(AnswerBody::Length(0)));
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(body(length, true), Ok(AnswerBody::Length(0)));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(body(chunked, false), Ok(AnswerBody::Chunked));
    assert_eq!(body("HTTP/1.1 200 OK\r\n\r\n", false), Ok(AnswerBody::UntilClose));
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n";
    assert_eq!(body(two, false), Err(AnswerError::Length));
    assert_eq!(body("SSH-2.0\r\n\r\n", false), Err(AnswerError::Malformed));
}
