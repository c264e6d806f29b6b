//! Heads mean the same however they arrive, and two parsers cannot cut them at different places.

use crate::input::Input;
use protocol::Authority;
use protocol::http1::{Framing, Head, HeadLimits, HeadReader, HeaderSlots};

const HEADS_MAX: usize = 4;

/// Input: head limit (2), body limit (2), bytes of a connection.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limits = HeadLimits {
        head_bytes_max: 16 + usize::from(input.short()),
        body_bytes_max: input.short().into(),
    };
    let bytes = input.rest();
    let whole = read(bytes, &limits, bytes.len().max(1));
    for step in [1, 7] {
        assert_eq!(whole, read(bytes, &limits, step), "in pieces of {step}");
    }
}

/// What a connection's heads say when its bytes come in pieces of `step` bytes.
fn read(bytes: &[u8], limits: &HeadLimits, step: usize) -> Vec<String> {
    let mut reader = HeadReader::default();
    let (mut said, mut start, mut end) = (Vec::new(), 0, 0);
    while said.len() < HEADS_MAX {
        let mut slots = HeaderSlots::new();
        match reader.read(&bytes[start..end], &mut slots, limits) {
            Ok(None) if end == bytes.len() => break,
            Ok(None) => end = (end + step).min(bytes.len()),
            Ok(Some(head)) => {
                check(&bytes[start..], &head, limits);
                said.push(format!("{head:?}"));
                start += head.head_bytes;
                if head.framing != Framing::None {
                    break;
                }
            }
            Err(error) => {
                said.push(format!("{error:?}"));
                break;
            }
        }
    }
    said
}

fn check(bytes: &[u8], head: &Head<'_, '_>, limits: &HeadLimits) {
    assert!(head.head_bytes <= limits.head_bytes_max, "a head keeps its limit");
    let text = &bytes[..head.head_bytes];
    assert!(text.ends_with(b"\r\n\r\n"), "a head ends with an empty line");
    let lone = |pair: &[u8]| pair[1] == b'\n' && pair[0] != b'\r';
    assert!(!text.windows(2).any(lone), "no line ends with a lone LF");
    let count = |name: &str| {
        head.request.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count()
    };
    let (lengths, codings) = (count("content-length"), count("transfer-encoding"));
    match head.framing {
        Framing::None => assert!(lengths <= 1 && codings == 0),
        Framing::Length(bytes) => {
            assert!(lengths == 1 && codings == 0 && bytes <= limits.body_bytes_max);
        }
        Framing::Chunked => assert!(lengths == 0 && codings == 1),
    }
    let authority = head.request.authority.map(Authority::text);
    for text in authority.into_iter().chain([head.request.path]).chain(head.request.query) {
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "it can stand in a head again");
    }
}

/// Real heads, and the tricks that smuggle requests.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let connections: &[&[u8]] = &[
        b"GET /v1/stream/a?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody",
        b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\r\n\r\nGET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD * HTTP/1.1\r\nHost:\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\nGET http://h:1/x?y HTTP/1.1\r\nHost: z\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\nHost: h\n\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    connections.iter().map(|bytes| [&[0xff, 0x0f, 0xff, 0xff], *bytes].concat()).collect()
}
