//! Server-sent events as a client hears them. Source: WHATWG HTML §9.2.6.

use base64::prelude::{BASE64_STANDARD, Engine};

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) data: String,
    /// Where a reader that got it continues.
    pub(crate) id: String,
}

/// Takes complete events off the front of `input`. Lines here end with LF alone: a CR would be a
/// defect of the encoder and shows as one.
pub(crate) fn take_events(input: &mut Vec<u8>) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    while let Some(end) = input.windows(2).position(|two| two == b"\n\n") {
        let block: Vec<u8> = input.drain(..end + 2).collect();
        let text = String::from_utf8(block).map_err(|_| "an event that is no UTF-8".to_owned())?;
        if let Some(event) = parse(&text)? {
            events.push(event);
        }
    }
    Ok(events)
}

fn parse(block: &str) -> Result<Option<Event>, String> {
    let mut kind = String::new();
    let mut data: Vec<&str> = Vec::new();
    let mut id = String::new();
    for line in block.trim_end_matches('\n').split('\n') {
        if line.contains('\r') {
            return Err("an event line with a CR".into());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => kind = value.to_owned(),
            "data" => data.push(value),
            "id" => id = value.to_owned(),
            "" | "retry" => {}
            other => return Err(format!("an event line that begins with {other:?}")),
        }
    }
    Ok((!kind.is_empty()).then(|| Event { kind, data: data.join("\n"), id }))
}

/// Decodes base64, padded; `None` if it is none.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text.replace('\n', "")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_when_they_are_complete() {
        let mut input = b"event: data\ndata:  a\ndata:b\nid:7\n\nevent: control\nda".to_vec();
        let events = take_events(&mut input).unwrap();
        assert_eq!(events, [Event { kind: "data".into(), data: " a\nb".into(), id: "7".into() }]);
        assert_eq!(input, b"event: control\nda");
    }

    #[test]
    fn base64_is_decoded() {
        assert_eq!(decode_base64("YWJjZA=="), Some(b"abcd".to_vec()));
        assert_eq!(decode_base64("a"), None);
    }
}
