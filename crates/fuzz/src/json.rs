//! JSON bodies: taken exactly if they are JSON, and every message comes back.
//!
//! # Other side
//! Two of them. A checker of RFC 8259 in this file says what is JSON and how deep it is. The second is
//! `serde_json::Value`: what it accepts must be accepted. Of what it refuses, only a number or a lone
//! surrogate may be accepted, because JSON allows it and Rust's types cannot hold it.

mod grammar;

use serde_json::Value;
use stream::messages::{Flattened, JSON_DEPTH_MAX, JsonError, MessageScanner, flatten};

/// Input: a body.
pub fn run(data: &[u8]) {
    let judged = grammar::depth(data);
    let value = serde_json::from_slice::<Value>(data);
    match flatten(data) {
        Ok(flattened) => {
            assert!(judged.is_some_and(|depth| depth <= JSON_DEPTH_MAX), "taken though no JSON");
            check_messages(&flattened, value.as_ref().ok());
            if let Err(error) = value {
                assert!(is_about_types(&error.to_string()), "Value refuses it: {error}");
            }
        }
        Err(JsonError::TooDeep) => {
            assert!(judged.is_none_or(|depth| depth > JSON_DEPTH_MAX), "refused though flat");
        }
        Err(JsonError::Invalid { .. }) => {
            assert!(value.is_err() && judged.is_none(), "refused though JSON");
        }
    }
}

/// Whether an error of `Value` is about what it can hold and not about JSON. The last: it counts
/// its levels from 127 down.
fn is_about_types(error: &str) -> bool {
    ["number out of range", "surrogate", "unexpected end of hex escape", "recursion limit"]
        .iter()
        .any(|known| error.contains(known))
}

/// Joined as an answer joins them, the messages are the body's value, one level down.
fn check_messages(flattened: &Flattened, value: Option<&Value>) {
    let Flattened { stored, count } = flattened;
    let ends = ends(stored);
    assert_eq!(ends.len(), *count as usize, "the scanner finds every message");
    assert_eq!(ends.last().copied().unwrap_or(0), stored.len(), "nothing follows the last one");
    let mut start = 0;
    for end in &ends {
        let message = &stored[start..end - 1];
        assert!(grammar::depth(message).is_some(), "a message is JSON");
        assert_eq!(message, message.trim_ascii(), "a message has no outer blanks");
        start = *end;
    }
    let Some(value) = value else { return };
    let joined = [b"[", stored.strip_suffix(b",").unwrap_or(stored), b"]"].concat();
    let joined: Value = serde_json::from_slice(&joined).unwrap_or_else(|error| {
        assert!(is_about_types(&error.to_string()), "an answer is JSON: {error}");
        Value::Null
    });
    let wanted = if value.is_array() { value.clone() } else { Value::Array(vec![value.clone()]) };
    assert!(joined == wanted || joined.is_null(), "{joined} instead of {wanted}");
}

/// Where messages end; the same, however the bytes are cut.
fn ends(stored: &[u8]) -> Vec<usize> {
    let (mut scanner, mut found, mut start) = (MessageScanner::default(), Vec::new(), 0);
    while let Some(length) = scanner.next_end(&stored[start..]) {
        start += length;
        found.push(start);
    }
    let mut scanner = MessageScanner::default();
    let one_by_one: Vec<usize> = (0..stored.len())
        .filter(|at| scanner.next_end(&stored[*at..=*at]).is_some())
        .map(|at| at + 1)
        .collect();
    assert_eq!(found, one_by_one);
    found
}

/// Values of every kind, and what is nearly JSON.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let texts = [
        " [ {\"a\":[1,-2.5e+3,true]} , \"x,\\\",y\\u20ac\" , null,[[]] ] ".to_owned(),
        "{\"a\":{\"b\":[{},[],\"]}\"]},\"a\":1}".to_owned(),
        "\"\\ud83d\\ude00\\ud800\"".to_owned(),
        "[1e999,-0,0.1E-7,123456789012345678901234567890]".to_owned(),
        "[1,]".to_owned(),
        "[01]".to_owned(),
        "\u{feff}1".to_owned(),
        "[]".to_owned(),
        "\t\r\n 5 \x0c".to_owned(),
        nested(127),
        nested(128),
        nested(129),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}
