use super::*;
use crate::{
    limits::TEXT_EVENT_BYTES_MAX,
    sse::parser::{Event, parse},
};
use ::base64::prelude::{BASE64_STANDARD, Engine};
use model::ByteOffset;
use proptest::prelude::*;

const OPEN: Control = Control { cursor: 7, up_to_date: true, closed: false, next_record: None };
const CLOSED: Control = Control { cursor: 7, up_to_date: true, closed: true, next_record: None };

/// Encodes appends, each given in pieces, and closes the stream after the last.
fn encode(mode: Mode, appends: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut encoder = SseEncoder::new(mode, ByteOffset::ZERO);
    let mut out = vec![];
    let mut pushed = 0;
    for pieces in appends {
        encoder.begin_event(7);
        for piece in pieces {
            encoder.push(piece, &mut out);
            pushed += piece.len();
            assert_eq!(encoder.position().get() as usize + held(&encoder, mode), pushed);
        }
        let next = encoder.end_event(OPEN, &mut out);
        assert_eq!(next.get() as usize + encoder.held_bytes(), pushed);
    }
    encoder.begin_event(7);
    assert_eq!(encoder.end_event(CLOSED, &mut out).get() as usize, pushed);
    out
}

fn held(encoder: &SseEncoder, mode: Mode) -> usize {
    if mode == Mode::Text { encoder.held_bytes() } else { 0 }
}

/// What a client that knows our extension gets, with every rule about order checked.
fn decode(mode: Mode, frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    let mut data: Option<Event> = None;
    for event in parse(frame) {
        if event.kind == "data" {
            assert_eq!(data.replace(event), None, "every data event has its control event");
            continue;
        }
        assert_eq!(event.kind, "control");
        let control: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(control["streamNextOffset"], event.id.as_str());
        let exact = control.get("streamDataBase64").map(|text| decoded(text.as_str().unwrap()));
        if let Some(event) = data.take() {
            assert_eq!(
                control["streamNextOffset"],
                event.id.as_str(),
                "the id is the offset after it"
            );
            bytes.extend(exact.unwrap_or_else(|| payload(mode, &event.data)));
        }
        let next = crate::offset::parse(control["streamNextOffset"].as_str().unwrap().as_bytes());
        if mode != Mode::Json {
            assert_eq!(next, Ok(ByteOffset::new(bytes.len() as u64)));
        }
    }
    assert_eq!(data, None);
    bytes
}

/// The bytes behind base64, whose lines may be broken.
fn decoded(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text.replace(['\r', '\n'], "")).unwrap()
}

fn payload(mode: Mode, data: &str) -> Vec<u8> {
    match mode {
        Mode::Base64 => decoded(data),
        Mode::Text | Mode::Json => data.as_bytes().to_vec(),
    }
}

fn one(mode: Mode, append: &[u8]) -> String {
    String::from_utf8(encode(mode, &[vec![append.to_vec()]])).unwrap()
}

/// Bytes in which line ends, blanks, NUL and cut characters are frequent.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'\r'),
        Just(b'\n'),
        Just(b' '),
        Just(b':'),
        Just(0),
        Just(b'a'),
        Just(0xe2),
        Just(0x82),
        Just(0xac),
        Just(0xf0),
        Just(0x9f),
        any::<u8>(),
    ];
    prop::collection::vec(byte, 0..24)
}

fn appends() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    prop::collection::vec(prop::collection::vec(bytes(), 0..4), 0..5)
}

proptest! {
    #[test]
    fn every_byte_comes_back_as_text(appends in appends()) {
        prop_assert_eq!(decode(Mode::Text, &encode(Mode::Text, &appends)), appends.concat().concat());
    }

    #[test]
    fn every_byte_comes_back_in_base64(appends in appends()) {
        prop_assert_eq!(decode(Mode::Base64, &encode(Mode::Base64, &appends)), appends.concat().concat());
    }

    #[test]
    fn characters_cut_anywhere_come_back_without_replacement(text in "[a-z €\u{1f600}ü\n]{0,40}", cuts in prop::collection::vec(0usize..80, 0..6)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<Vec<Vec<u8>>> =
            cuts.windows(2).map(|pair| vec![text.as_bytes()[pair[0]..pair[1]].to_vec()]).collect();
        let frame = encode(Mode::Text, &pieces);
        prop_assert!(!String::from_utf8_lossy(&frame).contains("streamDataBase64"));
        prop_assert_eq!(decode(Mode::Text, &frame), text.into_bytes());
    }

    #[test]
    fn json_messages_come_back_equal(messages in prop::collection::vec(message(), 1..5), size in 1usize..9) {
        let mut stored = vec![];
        for message in &messages {
            stored.extend_from_slice(message.as_bytes());
            stored.push(b',');
        }
        let pieces = stored.chunks(size).map(<[u8]>::to_vec).collect();
        let events = parse(&encode(Mode::Json, &[pieces]));
        let got: Vec<serde_json::Value> = serde_json::from_str(&events[0].data).unwrap();
        let sent: Vec<serde_json::Value> = messages.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn another_cursor_changes_nothing_else(appends in appends(), mode in prop_oneof![Just(Mode::Text), Just(Mode::Base64)]) {
        let frame = encode(mode, &appends);
        let (mut other, mut back) = (vec![], vec![]);
        put_with_cursor(&frame, 123_456, &mut other);
        put_with_cursor(&other, 7, &mut back);
        prop_assert_eq!(&back, &frame);
        let open = parse(&other).into_iter().filter(|e| e.kind == "control" && !e.data.contains("streamClosed"));
        for event in open {
            prop_assert!(event.data.contains("\"streamCursor\":\"123456\""));
        }
    }
}

/// JSON texts with line ends and blanks between tokens, and commas in strings.
fn message() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1".to_owned()),
        Just("\"a,b\\n\"".to_owned()),
        Just("{\r\n \"k\" :\r [1,\n  2]\n}".to_owned()),
        Just("[[],\r{}]".to_owned()),
        Just("\"\u{1f600}€\"".to_owned()),
    ]
}

#[test]
fn a_frame_reads_like_this() {
    assert_eq!(
        one(Mode::Text, b"one\n two"),
        "event: data\ndata:one\ndata:  two\nid:0000000000000008_0000000000000000\n\n\
         event: control\ndata:{\"streamNextOffset\":\"0000000000000008_0000000000000000\",\"streamCursor\":\"7\",\"upToDate\":true}\nid:0000000000000008_0000000000000000\n\n\
         event: control\ndata:{\"streamNextOffset\":\"0000000000000008_0000000000000000\",\"upToDate\":true,\"streamClosed\":true}\nid:0000000000000008_0000000000000000\n\n"
    );
    assert!(one(Mode::Json, b"{\"a\":1},2,").starts_with("event: data\ndata:[{\"a\":1},2]\nid:"));
    assert!(one(Mode::Base64, b"\x01\x02\x03\x04").starts_with("event: data\ndata:AQIDBA==\nid:"));
}

// PROTOCOL §12.3
#[test]
fn no_line_end_can_begin_an_event_of_its_own() {
    for attack in [
        "a\r\n\r\nevent: control\r\ndata: {\"injected\":true}\r\n\r\n",
        "a\n\nevent: control\ndata: {\"injected\":true}\n\n",
        "a\r\revent: control\rdata: {\"injected\":true}\r\r",
    ] {
        let frame = encode(Mode::Text, &[vec![attack.as_bytes().to_vec()]]);
        let events = parse(&frame);
        assert_eq!(events.iter().filter(|event| event.kind == "data").count(), 1);
        assert!(
            events.iter().all(|event| event.kind != "control" || !event.data.contains("injected"))
        );
        assert_eq!(decode(Mode::Text, &frame), attack.as_bytes());
    }
}

#[test]
fn the_beginning_of_a_character_waits_for_its_rest() {
    let mut encoder = SseEncoder::new(Mode::Text, ByteOffset::new(10));
    let mut out = vec![];
    encoder.begin_event(7);
    encoder.push(b"\xe2\x82", &mut out);
    assert_eq!(encoder.end_event(OPEN, &mut out), ByteOffset::new(10));
    assert!(parse(&out).iter().all(|event| event.kind == "control"), "nothing to show yet");
    out.clear();
    encoder.begin_event(7);
    encoder.push(b"\xac!", &mut out);
    assert_eq!(encoder.end_event(OPEN, &mut out), ByteOffset::new(14));
    assert_eq!(parse(&out)[0].data, "€!");
}

#[test]
fn an_ordinary_frame_has_room() {
    for (mode, bytes) in [(Mode::Text, "one line"), (Mode::Json, "{\"a\":1},"), (Mode::Base64, "x")]
    {
        let mut encoder = SseEncoder::new(mode, ByteOffset::ZERO);
        let room = encoder.frame_bytes(bytes.len());
        let mut frame = Vec::with_capacity(room);
        encoder.begin_event(u64::MAX);
        encoder.push(bytes.as_bytes(), &mut frame);
        encoder.end_event(Control { cursor: u64::MAX, ..OPEN }, &mut frame);
        assert!(frame.len() <= room, "{} of {room}", frame.len());
    }
}

#[test]
fn a_long_text_becomes_several_events_of_bounded_size() {
    let text = "€".repeat(TEXT_EVENT_BYTES_MAX);
    let frame = encode(Mode::Text, &[vec![text.clone().into_bytes()]]);
    let events = parse(&frame);
    assert!(events.iter().all(|event| event.data.len() <= TEXT_EVENT_BYTES_MAX));
    assert_eq!(decode(Mode::Text, &frame), text.into_bytes());
    assert_eq!(events.iter().filter(|event| event.data.contains("upToDate")).count(), 2);
}

#[test]
fn a_large_json_append_is_one_event() {
    let message = format!("\"{}\",", "x".repeat(300_000));
    let pieces = message.as_bytes().chunks(65_536).map(<[u8]>::to_vec).collect();
    let events = parse(&encode(Mode::Json, &[pieces]));
    assert_eq!(events.iter().filter(|event| event.kind == "data").count(), 1);
    assert_eq!(events[0].data.len(), message.len() + 1);
}

#[test]
fn the_mode_follows_the_content_type() {
    let of = |text: &str, asked| {
        let content_type = ContentType::new(text);
        Mode::of(content_type.layout(), &content_type, asked)
    };
    let mode = |text: &str| of(text, false);
    assert_eq!(mode("text/plain; charset=utf-8"), Mode::Text);
    assert_eq!(mode("Application/JSON"), Mode::Json);
    assert_eq!(mode("application/ndjson"), Mode::Base64);
    assert_eq!(of("text/plain", true), Mode::Base64);
}
