//! The client's side: answers to read, and requests that the server must understand as meant.

use crate::input::Input;
use model::{ByteOffset, ReadFrom};
use protocol::client::{Target, parse_answer, put_append, put_create, put_read};
use protocol::http1::{Framing, HeadLimits, HeadReader, HeaderSlots};
use protocol::offset::RENDERED_MAX;
use protocol::request::{self, Live, Request, Way};
use stream::Producer;

/// Input: path, producer id and media type (a length byte each), numbers (12), an answer.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (path, id, media_type) = (input.text(), input.text(), input.text());
    let (epoch, seq, at) = (input.int(), input.int(), input.int());
    let answer = input.rest();
    check_answer(answer);
    check_create(&path, &media_type);
    check_append(&path, &id, &media_type, (epoch.into(), seq.into()));
    check_read(&path, u64::from(at) * u64::from(seq));
}

/// A head that is whole says the same whatever follows it, and no piece of it says anything.
fn check_answer(answer: &[u8]) {
    for is_head in [false, true] {
        let whole = parse_answer(answer, is_head);
        let Ok(Some(head)) = &whole else { continue };
        assert!(head.head_bytes <= answer.len());
        assert_eq!(parse_answer(&answer[..head.head_bytes], is_head), whole);
        for end in 0..head.head_bytes {
            assert_eq!(parse_answer(&answer[..end], is_head), Ok(None), "{end} bytes of a head");
        }
    }
}

/// What the server makes of one written request; `None` if it answers a problem.
fn understood(bytes: &[u8], body_bytes: usize) -> Option<Request> {
    let mut slots = HeaderSlots::new();
    let head = HeadReader::default().read(bytes, &mut slots, &HeadLimits::default());
    let head = head.expect("a head that the server takes").expect("a whole head");
    let framed = if let Framing::Length(bytes) = head.framing { bytes } else { 0 };
    assert_eq!(framed, body_bytes as u64);
    assert_eq!(bytes.len(), head.head_bytes + body_bytes, "exactly one request was written");
    request::parse(&head.request, &Way::LOCAL).ok()
}

fn target(path: &str) -> Target<'_> {
    Target { host: "localhost:4437", path }
}

fn check_create(path: &str, media_type: &str) {
    let mut out = Vec::new();
    put_create(&mut out, target(path), media_type, b"");
    let Some(request) = understood(&out, 0) else { return };
    let Request::Create(create) = request else { panic!("a create was written: {request:?}") };
    assert_eq!(create.asked.path.as_str(), path);
}

fn check_append(path: &str, id: &str, media_type: &str, (epoch, seq): (u64, u64)) {
    let mut out = Vec::new();
    let producer = Producer { id: id.into(), epoch, seq };
    put_append(&mut out, target(path), media_type, Some(&producer), b"body");
    let Some(request) = understood(&out, 4) else { return };
    let Request::Append(append) = request else { panic!("an append was written: {request:?}") };
    assert_eq!(append.path.as_str(), path);
    let Ok(ready) = append.finish(b"body") else { return };
    let found = ready.append.producer.expect("a producer was written");
    assert_eq!((found.epoch, found.seq), (epoch, seq));
    let is_plain = !id.chars().any(|c| c.is_ascii_control()) && id.trim_ascii() == id;
    assert!(!is_plain || *found.id == *id, "{id:?} became {:?}", found.id);
}

fn check_read(path: &str, at: u64) {
    let mut out = Vec::new();
    let from = ReadFrom::At(ByteOffset::new(at % (RENDERED_MAX + 1)));
    put_read(&mut out, target(path), from, Live::LongPoll, Some(at % 1_000_000));
    let Some(request) = understood(&out, 0) else { return };
    let Request::Read(read) = request else { panic!("a read was written: {request:?}") };
    assert_eq!(read.path.as_str(), path);
    assert_eq!((read.offset, read.live), (from, Live::LongPoll));
    assert_eq!(read.cursor, Some(at % 1_000_000));
}

/// Answers as servers and proxies write them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let offset = "Stream-Next-Offset: 0000000000000042_0000000000000000\r\n";
    let answers = [
        format!(
            "HTTP/1.1 200 OK\r\n{offset}Content-Length: 3\r\nStream-Up-To-Date: true\r\n\r\nabc"
        ),
        format!("HTTP/1.1 204 \r\n{offset}Stream-Closed: true\r\nStream-Cursor: 7\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\
         Stream-SSE-Data-Encoding: base64\r\n\r\n"
            .to_owned(),
        "HTTP/1.0 503 Later\r\nRetry-After: 5\r\nConnection: close\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n".to_owned(),
    ];
    let front = b"\x05a b/c\x01p\x0atext/plain\x01\0\0\0\x02\0\0\0\x03\0\0\0";
    answers.iter().map(|answer| [front, answer.as_bytes()].concat()).collect()
}
