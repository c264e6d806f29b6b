//! Details: what was wrong, with the offending value, escaped and cut.

use crate::limits::ECHO_BYTES_MAX;

/// A client's value for showing it again: at most [`ECHO_BYTES_MAX`] bytes, in quotation marks,
/// with everything but printable ASCII escaped.
pub(crate) fn quote(value: &[u8]) -> String {
    let mut text = String::with_capacity(ECHO_BYTES_MAX + 8);
    text.push('`');
    for byte in &value[..value.len().min(ECHO_BYTES_MAX)] {
        match byte {
            b'\\' | b'`' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.extend(std::ascii::escape_default(*byte).map(char::from)),
        }
    }
    text.push_str(if value.len() > ECHO_BYTES_MAX { "…`" } else { "`" });
    text
}

/// Appends `text` as the inside of a JSON string.
pub(crate) fn escape_into(body: &mut String, text: &str) {
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

/// The beginning of `text`, at most so many bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_cut_and_escaped() {
        assert_eq!(quote(b"a\"b`\\\r\n\xff"), "`a\"b\\`\\\\\\r\\n\\xff`");
        let long = quote(&[b'x'; 500]);
        assert!(long.len() < ECHO_BYTES_MAX + 8 && long.ends_with("…`"));
    }

    #[test]
    fn a_detail_is_valid_inside_json() {
        let mut text = String::from("\"");
        escape_into(&mut text, "a\"\\\u{1}\u{7f}ü");
        text.push('"');
        let back: String = serde_json::from_str(&text).unwrap();
        assert_eq!(back, "a\"\\\u{1}\u{7f}ü");
    }
}
