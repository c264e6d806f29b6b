//! Offsets on the wire: `0000000000000000_%016d`. PROTOCOL §8.
//!
//! The second number is the byte offset in the stream as it is stored; both are fixed in width, so
//! that offsets sort as text. The first number is always 0 here. An offset with another one sorts
//! after every offset of ours, so it is read as [`RENDERED_MAX`], which lies beyond every tail.

use model::ByteOffset;

/// Length of every offset in bytes.
pub const OFFSET_BYTES: usize = 33;

/// Largest byte offset that can be rendered: 16 digits. Streams end far below, see the log.
pub const RENDERED_MAX: u64 = 9_999_999_999_999_999;

const PREFIX: &[u8] = b"0000000000000000_";

/// Appends `offset` as text.
///
/// # Panics
/// If the offset has more than 16 digits: no stream can hold that many bytes.
pub fn put(out: &mut Vec<u8>, offset: ByteOffset) {
    out.extend_from_slice(&render(offset));
}

/// The text of `offset`.
///
/// # Panics
/// As [`put`].
#[must_use]
pub fn render(offset: ByteOffset) -> [u8; OFFSET_BYTES] {
    let mut rest = offset.get();
    assert!(rest <= RENDERED_MAX, "a stream offset has more than 16 digits");
    let mut text = [b'0'; OFFSET_BYTES];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut place = OFFSET_BYTES;
    while rest > 0 {
        place -= 1;
        text[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Reads an offset; `None` if the text is not one.
#[must_use]
pub fn parse(text: &[u8]) -> Option<ByteOffset> {
    let (high, low) = (text.get(..16)?, text.get(17..)?);
    if low.len() != 16 || text[16] != b'_' {
        return None;
    }
    let (high, low) = (digits(high)?, digits(low)?);
    Some(ByteOffset::new(if high == 0 { low } else { RENDERED_MAX }))
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |sum: u64, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_comes_back_from_its_text() {
        for value in [0, 1, 42, RENDERED_MAX] {
            let offset = ByteOffset::new(value);
            assert_eq!(parse(&render(offset)), Some(offset));
        }
        assert_eq!(&render(ByteOffset::new(42)), b"0000000000000000_0000000000000042");
    }

    #[test]
    fn an_offset_of_another_kind_lies_beyond_every_tail() {
        assert_eq!(
            parse(b"0000000000000001_0000000000000000"),
            Some(ByteOffset::new(RENDERED_MAX))
        );
    }

    #[test]
    fn what_is_not_two_numbers_of_16_digits_is_no_offset() {
        for text in [
            "",
            "-1",
            "now",
            "0_0",
            "000000000000000 _0000000000000042",
            "0000000000000000,0000000000000042",
            "+000000000000000_0000000000000042",
            "0000000000000000_00000000000000420",
            "0000000000000000_000000000000004",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
