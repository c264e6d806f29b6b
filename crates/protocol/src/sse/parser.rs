//! A reader of events as the standard wants it, for tests. Source: WHATWG HTML §9.2.6.

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) data: String,
}

/// Parses a whole stream.
pub(super) fn parse(stream: &[u8]) -> Vec<Event> {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut events = vec![];
    let (mut kind, mut data) = (String::new(), String::new());
    for line in lines(text) {
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                events.push(Event {
                    kind: std::mem::take(&mut kind),
                    data: std::mem::take(&mut data),
                });
            }
            (kind, data) = (String::new(), String::new());
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => kind = value.to_owned(),
            "data" => {
                data.push_str(value);
                data.push('\n');
            }
            _ => {}
        }
    }
    events
}

/// Complete lines, however they end.
fn lines(text: &str) -> Vec<&str> {
    let mut lines = vec![];
    let mut rest = text;
    while let Some(end) = rest.find(['\r', '\n']) {
        lines.push(&rest[..end]);
        let is_crlf = rest[end..].starts_with("\r\n");
        rest = &rest[end + if is_crlf { 2 } else { 1 }..];
    }
    lines
}

/// Decodes base64, padded.
pub(super) fn decode_base64(text: &str) -> Vec<u8> {
    let text: Vec<u8> = text.bytes().filter(|byte| !b"\r\n".contains(byte)).collect();
    assert_eq!(text.len() % 4, 0, "base64 comes in fours");
    let value = |symbol: u8| match symbol {
        b'A'..=b'Z' => u32::from(symbol - b'A'),
        b'a'..=b'z' => u32::from(symbol - b'a') + 26,
        b'0'..=b'9' => u32::from(symbol - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let mut bytes = vec![];
    for four in text.chunks(4) {
        let bits = four.iter().fold(0, |bits, symbol| bits << 6 | value(*symbol));
        let padding = four.iter().filter(|symbol| **symbol == b'=').count();
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    bytes
}
