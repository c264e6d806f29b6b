//! A reader of events, written from the standard and from nothing else. Source: WHATWG HTML §9.2.6.

use base64::prelude::{BASE64_STANDARD, Engine};

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
    BASE64_STANDARD.decode(text.replace(['\r', '\n'], "")).expect("padded base64")
}
