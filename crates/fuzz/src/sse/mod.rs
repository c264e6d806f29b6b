//! Server-sent events: what a reader gets back is what was stored, however it was cut.

mod parser;

use crate::input::Input;
use model::ByteOffset;
use parser::{Event, decode_base64, parse};
use protocol::events::{Control, Mode, SseEncoder, put_control, put_with_cursor};
use serde_json::Value;
use stream::messages::{MessageScanner, flatten};

const START: u64 = 1000;
const CURSOR: u64 = 123;
/// Long enough for two text events.
const LONG_BYTES: usize = 70_000;

/// How the bytes are pushed.
#[derive(Debug, Clone, Copy)]
struct Cut {
    bytes: usize,
    ends_event: bool,
}

/// Input: mode and flags (1), cuts (a length byte and as many bytes), the stored bytes. Flags with
/// all high bits repeat the stored bytes.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let cuts: Vec<Cut> = input.piece().iter().map(|byte| cut(*byte)).collect();
    let closed = flags & 4 != 0;
    let mut stored = input.rest().to_vec();
    if flags >> 4 == 15 && !stored.is_empty() {
        stored = stored.repeat(LONG_BYTES.div_ceil(stored.len()));
    }
    match flags & 3 {
        0 => check_bytes(Mode::Text, &stored, &cuts, closed),
        1 => check_bytes(Mode::Base64, &stored, &cuts, closed),
        _ => check_json(&stored, &cuts, closed),
    }
}

fn cut(byte: u8) -> Cut {
    let length = usize::from(byte & 0x3f);
    let bytes = if byte & 0x80 != 0 { length * 1024 } else { length };
    Cut { bytes, ends_event: byte & 0x40 != 0 }
}

fn control(closed: bool) -> Control {
    Control { cursor: CURSOR, up_to_date: true, closed, next_record: None }
}

/// The frames of `stored`, and what the encoder holds back.
fn encode(mode: Mode, stored: &[u8], cuts: &[Cut], closed: bool) -> (Vec<u8>, usize) {
    let mut encoder = SseEncoder::new(mode, ByteOffset::new(START));
    let (mut out, mut rest) = (Vec::new(), stored);
    let whole = [Cut { bytes: usize::MAX, ends_event: true }];
    let ends = if mode == Mode::Json { message_ends(stored) } else { Vec::new() };
    encoder.begin_event(CURSOR);
    for cut in cuts.iter().chain(&whole) {
        let (piece, after) = rest.split_at(cut.bytes.min(rest.len()));
        encoder.push(piece, &mut out);
        rest = after;
        let upto = stored.len() - rest.len();
        // A message must not be cut by the end of an event.
        let at_end = mode != Mode::Json || ends.binary_search(&upto).is_ok();
        if cut.ends_event && at_end {
            let control = control(closed && rest.is_empty());
            let position = encoder.end_event(control, &mut out);
            assert_eq!(position, encoder.position());
            assert_eq!(position.get() + encoder.held_bytes() as u64, START + upto as u64);
            encoder.begin_event(CURSOR);
        }
    }
    put_control(encoder.position(), control(closed), &mut out);
    (out, encoder.held_bytes())
}

/// Where an event may end: before the first message and behind each.
fn message_ends(stored: &[u8]) -> Vec<usize> {
    let (mut scanner, mut ends) = (MessageScanner::default(), vec![0]);
    let mut start = 0;
    while let Some(length) = scanner.next_end(&stored[start..]) {
        start += length;
        ends.push(start);
    }
    ends
}

fn check_bytes(mode: Mode, stored: &[u8], cuts: &[Cut], closed: bool) {
    let (frames, held) = encode(mode, stored, cuts, closed);
    assert!(held < 4 && (!closed || held == 0), "a closed stream holds nothing back");
    let wanted = &stored[..stored.len() - held];
    let cursors = check_frames(mode, &frames, wanted, closed);
    let mut other = Vec::new();
    put_with_cursor(&frames, 77_777, &mut other);
    let others = check_frames(mode, &other, wanted, closed);
    assert_eq!(cursors.len(), others.len());
    assert!(cursors.iter().all(|cursor| cursor == "123"));
    assert!(others.iter().all(|cursor| cursor == "77777"));
}

/// Reads frames as a client does; the cursors that were in them.
fn check_frames(mode: Mode, frames: &[u8], wanted: &[u8], closed: bool) -> Vec<String> {
    let (mut found, mut pending) = (Vec::new(), None);
    let (mut cursors, mut was_closed) = (Vec::new(), false);
    for Event { kind, data } in parse(frames) {
        if kind == "data" {
            assert!(pending.replace(data).is_none(), "each data event has its control event");
            continue;
        }
        assert_eq!(kind, "control");
        let control: Value = serde_json::from_str(&data).expect("control events are JSON");
        let exact = control["streamDataBase64"].as_str().map(decode_base64);
        match (pending.take(), exact) {
            (None, exact) => assert!(exact.is_none()),
            (Some(_), Some(exact)) => found.extend_from_slice(&exact),
            (Some(text), None) if mode == Mode::Base64 => found.extend(decode_base64(&text)),
            (Some(text), None) => found.extend_from_slice(text.as_bytes()),
        }
        let next = control["streamNextOffset"].as_str().expect("every control event has it");
        let next = protocol::offset::parse(next.as_bytes()).expect("an offset");
        assert_eq!(next.get(), START + found.len() as u64, "offset and bytes go together");
        was_closed = control["streamClosed"].as_bool().unwrap_or(false);
        match control["streamCursor"].as_str() {
            Some(cursor) => cursors.push(cursor.to_owned()),
            None => assert!(was_closed, "open streams have a cursor"),
        }
    }
    assert!(pending.is_none());
    assert_eq!(was_closed, closed);
    assert!(found == wanted, "{} bytes came back of {}", found.len(), wanted.len());
    cursors
}

/// JSON comes back as JSON: the messages of all events are those that are stored.
fn check_json(body: &[u8], cuts: &[Cut], closed: bool) {
    let Ok(flattened) = flatten(body) else { return };
    let stored = flattened.stored;
    let parse_array = |text: &[u8]| serde_json::from_slice::<Vec<Value>>(text).ok();
    let wanted = [b"[", stored.strip_suffix(b",").unwrap_or(&stored), b"]"].concat();
    let Some(wanted) = parse_array(&wanted) else { return };
    let (frames, held) = encode(Mode::Json, &stored, cuts, closed);
    assert_eq!(held, 0);
    let mut found = Vec::new();
    for Event { kind, data } in parse(&frames) {
        match kind.as_str() {
            "data" => found.extend(parse_array(data.as_bytes()).expect("an event is an array")),
            _ => assert!(serde_json::from_str::<Value>(&data).is_ok(), "{kind}"),
        }
    }
    assert_eq!(found, wanted);
}

/// Texts with every line end and broken characters, bytes, and JSON.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let text = "a\r\nb\rc\n\n  two blanks\nevent: control\ndata: {}\n\u{feff}\u{2028}€ü\0:x\r";
    let broken = b"\xe2\x82\xac\xe2\x82!\xf0\x9f\x98\x80\xed\xa0\x80\xff\xc0\xaf\xf0\x9f";
    let json = " [ {\"a\":\r\n1} , \"x,\\n\" ,[ ],\"€\" ] ";
    let cuts: &[u8] = &[5, 0x41, 0x42, 3, 0x47, 1];
    let inputs: &[(u8, &[u8])] = &[
        (0, text.as_bytes()),
        (4, text.as_bytes()),
        (0xf0, text.as_bytes()),
        (0, broken),
        (4, broken),
        (0xf4, broken),
        (1, broken),
        (5, text.as_bytes()),
        (2, json.as_bytes()),
        (6, b"{\"streamCursor\":\"1\"}"),
    ];
    inputs.iter().map(|(flags, bytes)| [&[*flags], cuts, *bytes].concat()).collect()
}
