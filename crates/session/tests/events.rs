//! A browser's `EventSource`, whose connection breaks anywhere.

use crate::support::{Shard, TEXT, get, post, request};

/// What a browser keeps over its connections. WHATWG HTML §9.2.6.
#[derive(Debug, Default, Clone, PartialEq)]
struct Browser {
    /// The data of all data events, joined.
    text: String,
    last_id: String,
    retry_ms: Option<u32>,
}

impl Browser {
    /// Takes what came over one connection: the bytes of the events, perhaps cut anywhere.
    fn take(&mut self, events: &str) {
        // What follows the last empty line was no event yet.
        let whole = events.rfind("\n\n").map_or("", |end| &events[..end]);
        for block in whole.split("\n\n").filter(|block| !block.is_empty()) {
            let (mut kind, mut data) = ("message", Vec::new());
            for line in block.split('\n') {
                match line.split_once(':').unwrap() {
                    ("event", name) => kind = name.trim_start(),
                    ("data", text) => data.push(text.strip_prefix(' ').unwrap_or(text)),
                    ("id", id) => self.last_id = id.to_owned(),
                    ("retry", ms) => self.retry_ms = Some(ms.trim_start().parse().unwrap()),
                    ("", _) => {}
                    other => panic!("{other:?}"),
                }
            }
            if kind == "data" {
                self.text.push_str(&data.join("\n"));
            }
        }
    }

    /// The request of its next connection.
    fn request(&self) -> Vec<u8> {
        let fields = match self.last_id.as_str() {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        request("GET", "one?offset=-1&live=sse", &fields, b"")
    }
}

/// A stream of three appends, and what a browser that has been there all the time got over the wire.
fn followed() -> (Shard, String) {
    let mut shard = Shard::open();
    shard.once(&request("PUT", "one", TEXT, "first, \n".as_bytes()));
    let reader = shard.connect();
    shard.send(reader, &Browser::default().request());
    shard.once(&post("one", "z\u{fc}rich, ".as_bytes()));
    shard.once(&post("one", b"third"));
    let got = shard.got(reader);
    shard.hang_up(reader);
    (shard, body(&got))
}

/// The body without the framing of HTTP/1.1.
fn body(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("chunked"), "{head}");
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    body
}

#[test]
fn a_browser_that_is_cut_off_after_any_byte_misses_nothing_and_gets_nothing_twice() {
    let (mut shard, events) = followed();
    let all = "first, \nz\u{fc}rich, third";
    let mut uncut = Browser::default();
    uncut.take(&events);
    assert_eq!((uncut.text.as_str(), uncut.retry_ms), (all, Some(1000)));
    for cut in (0..=events.len()).filter(|cut| events.is_char_boundary(*cut)) {
        let mut browser = Browser::default();
        browser.take(&events[..cut]);
        let again = shard.connect();
        shard.send(again, &browser.request());
        browser.take(&body(&shard.got(again)));
        shard.hang_up(again);
        assert_eq!(browser.text, all, "cut after {cut} bytes of {events:?}");
    }
}

#[test]
fn a_browser_that_has_all_of_a_closed_stream_is_told_to_come_no_more() {
    let (mut shard, events) = followed();
    shard.once(&request("POST", "one", "Stream-Closed: true\r\n", b""));
    let mut browser = Browser::default();
    let answer = shard.once(&browser.request());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    browser.take(&body(&answer));
    let end = shard.once(&browser.request());
    assert!(end.starts_with("HTTP/1.1 204") && end.contains("Stream-Closed: true"), "{end}");
    // A browser that lacks the end gets it, and a reader that names the offset by itself, too.
    let mut early = Browser::default();
    early.take(&events[..events.len() / 2]);
    assert!(shard.once(&early.request()).contains("streamClosed"));
    let by_offset = shard.once(&get(&format!("one?offset={}&live=sse", browser.last_id)));
    assert!(by_offset.starts_with("HTTP/1.1 200"), "{by_offset}");
}

#[test]
fn an_id_that_no_event_had_is_refused() {
    let (mut shard, _) = followed();
    let answer =
        shard.once(&request("GET", "one?offset=-1&live=sse", "Last-Event-ID: 12\r\n", b""));
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("Last-Event-ID"), "{answer}");
}
