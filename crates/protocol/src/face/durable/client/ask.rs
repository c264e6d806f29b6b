//! Requests, written.

use crate::decimal;
use crate::face::durable::{
    offset,
    request::{Live, MOUNT},
};
use crate::field;
use model::ReadFrom;
use stream::Producer;

/// Whom a request is for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The server, as `name:port`.
    pub host: &'a str,
    /// The stream's path below the mount, not encoded.
    pub path: &'a str,
}

/// Writes a create of a stream of `media_type`, with its first bytes if `body` has any.
// PROTOCOL §5.1
pub fn put_create(out: &mut Vec<u8>, target: Target<'_>, media_type: &str, body: &[u8]) {
    start(out, "PUT", target, "");
    put_field(out, field::CONTENT_TYPE, media_type);
    end(out, body);
}

/// Writes the creation of an empty stream that goes away when nobody has used it for so long.
// PROTOCOL §5.1
pub fn put_create_for(out: &mut Vec<u8>, target: Target<'_>, media_type: &str, seconds: u64) {
    start(out, "PUT", target, "");
    put_field(out, field::CONTENT_TYPE, media_type);
    put_number_field(out, field::STREAM_TTL, seconds);
    end(out, b"");
}

/// Writes an append; with `producer` it may be repeated without harm.
// PROTOCOL §5.2, §5.2.1
pub fn put_append(
    out: &mut Vec<u8>,
    target: Target<'_>,
    media_type: &str,
    producer: Option<&Producer>,
    body: &[u8],
) {
    start(out, "POST", target, "");
    put_field(out, field::CONTENT_TYPE, media_type);
    if let Some(producer) = producer {
        put_field(out, field::PRODUCER_ID, &producer.id);
        put_number_field(out, field::PRODUCER_EPOCH, producer.epoch);
        put_number_field(out, field::PRODUCER_SEQ, producer.seq);
    }
    end(out, body);
}

/// Writes a close without bytes.
// PROTOCOL §5.2
pub fn put_close(out: &mut Vec<u8>, target: Target<'_>) {
    start(out, "POST", target, "");
    put_field(out, field::STREAM_CLOSED, "true");
    end(out, b"");
}

/// Writes a read; `cursor` is the one of the answer before, if it had one.
// PROTOCOL §5.6 to §5.8
pub fn put_read(
    out: &mut Vec<u8>,
    target: Target<'_>,
    from: ReadFrom,
    live: Live,
    cursor: Option<u64>,
) {
    let mut query = Vec::with_capacity(96);
    put_start(&mut query, from);
    query.extend_from_slice(match live {
        Live::CatchUp => b"",
        Live::LongPoll => b"&live=long-poll",
        Live::Sse => b"&live=sse",
    });
    if let Some(cursor) = cursor {
        query.extend_from_slice(b"&cursor=");
        decimal::put(&mut query, cursor);
    }
    let query = std::str::from_utf8(&query).expect("a query is written in ASCII");
    start(out, "GET", target, query);
    out.extend_from_slice(b"\r\n");
}

fn put_start(query: &mut Vec<u8>, from: ReadFrom) {
    let mut count = |key: &str, number| {
        query.extend_from_slice(key.as_bytes());
        decimal::put(query, number);
    };
    match from {
        ReadFrom::Record(number) => return count("?record=", number),
        ReadFrom::TailRecords(number) => return count("?tail_records=", number),
        ReadFrom::Time(ms) => return count("?time=", ms),
        ReadFrom::Begin | ReadFrom::Now | ReadFrom::At(_) => {}
    }
    query.extend_from_slice(b"?offset=");
    match from {
        ReadFrom::At(position) => offset::put(query, position),
        ReadFrom::Now => query.extend_from_slice(b"now"),
        _ => query.extend_from_slice(b"-1"),
    }
}

/// Writes a question for a stream's state.
// PROTOCOL §5.5
pub fn put_head(out: &mut Vec<u8>, target: Target<'_>) {
    start(out, "HEAD", target, "");
    out.extend_from_slice(b"\r\n");
}

/// Writes a delete.
// PROTOCOL §5.4
pub fn put_delete(out: &mut Vec<u8>, target: Target<'_>) {
    start(out, "DELETE", target, "");
    out.extend_from_slice(b"\r\n");
}

fn start(out: &mut Vec<u8>, method: &str, target: Target<'_>, query: &str) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(MOUNT.as_bytes());
    put_path(out, target.path);
    out.extend_from_slice(query.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    put_field(out, field::HOST, target.host);
}

fn end(out: &mut Vec<u8>, body: &[u8]) {
    put_number_field(out, field::CONTENT_LENGTH, body.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

/// Percent-encodes all but slashes and what RFC 3986 §2.3 calls unreserved.
fn put_path(out: &mut Vec<u8>, path: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

/// Writes one field; control characters in `value` become blanks.
fn put_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

fn put_number_field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    decimal::put(out, value);
    out.extend_from_slice(b"\r\n");
}
