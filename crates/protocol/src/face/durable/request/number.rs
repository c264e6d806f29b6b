//! Numbers in header fields.

/// A decimal number without sign, leading zero, point or exponent, at most `max`.
pub(super) fn parse(text: &str, max: u64) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if !is_plain || has_leading_zero {
        return None;
    }
    text.parse().ok().filter(|value| *value <= max)
}
