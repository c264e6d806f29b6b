//! Details: what was wrong, with the offending value, escaped and cut.

use crate::limits::ECHO_BYTES_MAX;

/// A client's value for showing it again: at most [`ECHO_BYTES_MAX`] bytes, in quotation marks,
/// with everything but printable ASCII escaped.
pub(crate) fn quote(value: &[u8]) -> String {
    let mut text = String::with_capacity(ECHO_BYTES_MAX + 8);
    text.push('`');
    for byte in &value[..value.len().min(ECHO_BYTES_MAX)] {
        for escaped in std::ascii::escape_default(*byte) {
            text.push(char::from(escaped));
        }
    }
    text.push_str(if value.len() > ECHO_BYTES_MAX { "…`" } else { "`" });
    text
}

/// Appends `text` as the inside of a JSON string.
pub(super) fn escape_into(body: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' => body.push_str("\\\""),
            '\\' => body.push_str("\\\\"),
            control if control < ' ' || control == '\u{7f}' => {
                body.push_str("\\u00");
                let code = control as u32;
                for nibble in [code >> 4, code & 0xf] {
                    body.push(char::from_digit(nibble, 16).expect("a nibble is below 16"));
                }
            }
            other => body.push(other),
        }
    }
}
