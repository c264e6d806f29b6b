//! Control events. PROTOCOL §5.8, "Events".

use crate::{
    base64, decimal,
    face::durable::offset::{self, OFFSET_BYTES},
    sse::{DATA, EventName, event_name},
};
use memchr::memchr;
use model::ByteOffset;

/// What a control event says beside the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The cursor; left out when `closed`.
    pub cursor: u64,
    /// The reader has all that there is at the moment.
    pub up_to_date: bool,
    /// Nothing will ever follow.
    pub closed: bool,
    /// Number of the record at the offset, for a reader who asked by record or by time.
    pub next_record: Option<u64>,
}

const CONTROL: EventName = event_name!("control");
const OFFSET_KEY: &[u8] = b"{\"streamNextOffset\":\"";
const CURSOR_KEY: &[u8] = b"\",\"streamCursor\":\"";

/// Writes a control event without data before it: the first one of a connection, the last one
/// before it ends, or the end of the stream.
pub fn put_control(next: ByteOffset, control: Control, out: &mut Vec<u8>) {
    put(next, control, None, out);
}

/// Writes a control event, with the exact bytes of the data event before it if its text could not
/// carry them.
pub(super) fn put(next: ByteOffset, control: Control, exact: Option<&[u8]>, out: &mut Vec<u8>) {
    CONTROL.put_line(
        out,
        |out| put_fields(next, control, exact, out),
        |out| offset::put(out, next),
    );
}

fn put_fields(next: ByteOffset, control: Control, exact: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(OFFSET_KEY);
    offset::put(out, next);
    // PROTOCOL §5.8: the cursor is needed exactly while the stream is open.
    if control.closed {
        out.push(b'"');
    } else {
        out.extend_from_slice(CURSOR_KEY);
        decimal::put(out, control.cursor);
        out.push(b'"');
    }
    if control.up_to_date {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    if let Some(number) = control.next_record {
        out.extend_from_slice(b",\"streamNextRecord\":");
        decimal::put(out, number);
    }
    if let Some(exact) = exact {
        out.extend_from_slice(b",\"streamDataBase64\":\"");
        base64::put(out, exact);
        out.push(b'"');
    }
    out.push(b'}');
}

/// Copies a frame of [`super::SseEncoder`] with another cursor: for a reader whose own cursor is
/// ahead of the interval, since cursors must never go backwards.
// PROTOCOL §10.1, "Monotonic Progression"
pub fn put_with_cursor(frame: &[u8], cursor: u64, out: &mut Vec<u8>) {
    let mut rest = frame;
    let mut in_control = false;
    while let Some(newline) = memchr(b'\n', rest) {
        let (line, after) = rest.split_at(newline + 1);
        match digits_of_cursor(line).filter(|_| in_control) {
            Some((before, after_digits)) => {
                out.extend_from_slice(before);
                decimal::put(out, cursor);
                out.extend_from_slice(after_digits);
            }
            None => out.extend_from_slice(line),
        }
        // Lines of data begin with `data:`, so this one can only be ours.
        in_control = line == CONTROL.line().as_bytes();
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// The text before and after the digits of the cursor in a line that [`put`] wrote.
fn digits_of_cursor(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let key = DATA.len() + OFFSET_KEY.len() + OFFSET_BYTES;
    let rest = line.get(key..)?.strip_prefix(CURSOR_KEY)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let before = &line[..key + CURSOR_KEY.len()];
    Some((before, &rest[digits..]))
}
