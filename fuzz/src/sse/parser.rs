//! A reader of events, written from the standard and from nothing else. Source: WHATWG HTML §9.2.6.

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) data: String,
}

/// All events of a whole stream; what is not ended by an empty line is no event.
pub(super) fn parse(stream: &[u8]) -> Vec<Event> {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let (mut events, mut kind, mut data) = (Vec::new(), String::new(), String::new());
    let mut rest = text;
    while let Some(end) = rest.find(['\r', '\n']) {
        let line = &rest[..end];
        let width = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + width..];
        if line.is_empty() {
            let (kind, data) = (std::mem::take(&mut kind), std::mem::take(&mut data));
            if let Some(data) = data.strip_suffix('\n') {
                let kind = if kind.is_empty() { "message".to_owned() } else { kind };
                events.push(Event { kind, data: data.to_owned() });
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => kind = value.to_owned(),
            "data" => data.extend([value, "\n"]),
            _ => {}
        }
    }
    events
}

/// Decodes padded base64 and skips line ends. RFC 4648 §4.
pub(super) fn decode_base64(text: &str) -> Vec<u8> {
    let symbols: Vec<u8> = text.bytes().filter(|byte| !b"\r\n".contains(byte)).collect();
    assert!(symbols.len().is_multiple_of(4), "base64 comes in fours");
    let padding = symbols.iter().rev().take_while(|symbol| **symbol == b'=').count();
    assert!(padding <= 2);
    let mut bytes = Vec::with_capacity(symbols.len() / 4 * 3);
    for four in symbols.chunks_exact(4) {
        let bits = four.iter().fold(0, |bits, symbol| bits << 6 | value(*symbol));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    bytes.truncate(bytes.len() - padding);
    bytes
}

fn value(symbol: u8) -> u32 {
    match symbol {
        b'A'..=b'Z' => u32::from(symbol - b'A'),
        b'a'..=b'z' => u32::from(symbol - b'a') + 26,
        b'0'..=b'9' => u32::from(symbol - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        other => panic!("{other:#x} is no base64"),
    }
}
