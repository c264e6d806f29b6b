//! What is written besides answers' heads: chunks, events, and the requests of a client.

use crate::page::Page;
use model::{ByteOffset, ReadFrom};
use stream::Producer;
use thalweg_protocol::{
    client::{self, Target},
    events::{Control, Mode, SseEncoder, put_control, put_with_cursor},
    http1::{CONTINUE, LAST_CHUNK, put_chunk, put_chunk_head},
    request::Live,
    sse::HEARTBEAT,
};

pub(crate) fn page() -> String {
    let mut page = Page::default();
    page.bytes("continue", CONTINUE);
    page.bytes("heartbeat", HEARTBEAT);
    chunks(&mut page);
    controls(&mut page);
    events(&mut page);
    requests(&mut page);
    page.text()
}

fn chunks(page: &mut Page) {
    let mut out = vec![];
    put_chunk(&mut out, b"");
    put_chunk(&mut out, b"0123456789abcdef0");
    put_chunk_head(&mut out, u64::MAX);
    out.extend_from_slice(LAST_CHUNK);
    page.bytes("chunks", &out);
}

fn controls(page: &mut Page) {
    for (up_to_date, closed) in [(false, false), (true, false), (true, true), (false, true)] {
        let mut out = vec![];
        let control = Control { cursor: 77, up_to_date, closed, next_record: None };
        put_control(ByteOffset::new(1234), control, &mut out);
        page.bytes(&format!("control, up to date {up_to_date}, closed {closed}"), &out);
        let mut other = vec![];
        put_with_cursor(&out, 1_000_000, &mut other);
        page.bytes("the same with another cursor", &other);
    }
    let numbered = Control { cursor: 77, up_to_date: true, closed: false, next_record: Some(12) };
    let mut out = vec![];
    put_control(ByteOffset::new(1234), numbered, &mut out);
    page.bytes("control with a number", &out);
}

fn events(page: &mut Page) {
    let cases: [(Mode, &[u8]); 6] = [
        (Mode::Text, b"one line"),
        (Mode::Text, b" two\r\nlines\rand\n"),
        (Mode::Text, b"no UTF-8 \xff, and a part \xc3"),
        (Mode::Json, b"{\"a\":\n1},2,"),
        (Mode::Base64, b"\x00\x01\x02\x03"),
        (Mode::Text, b""),
    ];
    for (mode, bytes) in cases {
        for closed in [false, true] {
            let mut out = vec![];
            let mut encoder = SseEncoder::new(mode, ByteOffset::new(1000));
            encoder.begin_event(77);
            encoder.push(bytes, &mut out);
            let control = Control { cursor: 77, up_to_date: true, closed, next_record: None };
            encoder.end_event(control, &mut out);
            page.bytes(&format!("{mode:?} {}, closed {closed}", bytes.escape_ascii()), &out);
        }
    }
}

fn requests(page: &mut Page) {
    let target = Target { host: "example.com:4437", path: "a b/ü%" };
    let producer = Producer { id: "p\n".into(), epoch: 1, seq: 2 };
    let mut add = |title: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = vec![];
        write(&mut out);
        page.bytes(title, &out);
    };
    add("client: create", &|out| client::put_create(out, target, "text/plain", b"first"));
    add("client: append", &|out| client::put_append(out, target, "text/plain", None, b"body"));
    add("client: append by a producer", &|out| {
        client::put_append(out, target, "text/plain", Some(&producer), b"body");
    });
    add("client: close", &|out| client::put_close(out, target));
    add("client: head", &|out| client::put_head(out, target));
    add("client: delete", &|out| client::put_delete(out, target));
    let at = ReadFrom::At(ByteOffset::new(1234));
    for (from, live, cursor) in [
        (ReadFrom::Begin, Live::CatchUp, None),
        (ReadFrom::Now, Live::Sse, None),
        (at, Live::LongPoll, Some(77)),
    ] {
        add(&format!("client: read {from:?} {live:?}"), &|out| {
            client::put_read(out, target, from, live, cursor);
        });
    }
}
