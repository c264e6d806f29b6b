//! Offsets on the wire: `%016d_0000000000000000`. PROTOCOL §8.
//!
//! The first number is the byte offset in the stream as it is stored. Both numbers are fixed in
//! width, so offsets sort as text. The second number is 0 in every offset of ours.
//!
//! # Why the position comes first
//! Some clients take an offset apart and add a small number to its second part: they rely on
//! servers that ignore it. So a second part below [`RESERVED_FROM`] is ignored on input. A larger
//! one is refused, so that it can get a meaning later without changing that of any old offset.

use model::ByteOffset;

/// Length of every offset in bytes.
pub const OFFSET_BYTES: usize = 33;

/// Largest byte offset that can be rendered: 16 digits. Streams end far below, see the log.
pub const RENDERED_MAX: u64 = 9_999_999_999_999_999;

/// Second parts from here on are reserved.
pub const RESERVED_FROM: u64 = 1_000_000_000_000_000;

/// Digits of the position, which the separator follows.
const POSITION_DIGITS: usize = 16;

/// Why a text is not an offset of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetError {
    /// It is not two numbers of 16 digits with `_` in between.
    Malformed,
    /// Its second part is [`RESERVED_FROM`] or larger.
    Reserved,
}

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
#[inline(always)]
#[must_use]
pub fn render(offset: ByteOffset) -> [u8; OFFSET_BYTES] {
    let mut rest = offset.get();
    assert!(rest <= RENDERED_MAX, "a stream offset has more than 16 digits");
    let mut text = [b'0'; OFFSET_BYTES];
    text[POSITION_DIGITS] = b'_';
    let mut place = POSITION_DIGITS;
    while rest > 0 {
        place -= 1;
        text[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Reads an offset.
///
/// # Errors
/// [`OffsetError`]: the client must send a value of `Stream-Next-Offset` as it came.
pub fn parse(text: &[u8]) -> Result<ByteOffset, OffsetError> {
    let text: &[u8; OFFSET_BYTES] = text.try_into().map_err(|_| OffsetError::Malformed)?;
    let (position, rest) = text.split_at(POSITION_DIGITS);
    let second = rest.strip_prefix(b"_").ok_or(OffsetError::Malformed)?;
    let (position, second) = (digits(position)?, digits(second)?);
    if second >= RESERVED_FROM {
        return Err(OffsetError::Reserved);
    }
    Ok(ByteOffset::new(position))
}

fn digits(text: &[u8]) -> Result<u64, OffsetError> {
    let add =
        |sum: u64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'));
    text.iter().try_fold(0, add).ok_or(OffsetError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_comes_back_from_its_text() {
        for value in [0, 1, 42, RENDERED_MAX] {
            let offset = ByteOffset::new(value);
            assert_eq!(parse(&render(offset)), Ok(offset));
        }
        assert_eq!(&render(ByteOffset::new(42)), b"0000000000000042_0000000000000000");
    }

    #[test]
    fn a_small_second_part_is_ignored_and_a_large_one_is_reserved() {
        let at = Ok(ByteOffset::new(42));
        assert_eq!(parse(b"0000000000000042_0000000000000001"), at);
        assert_eq!(parse(b"0000000000000042_0999999999999999"), at);
        assert_eq!(parse(b"0000000000000042_1000000000000000"), Err(OffsetError::Reserved));
        assert_eq!(parse(b"0000000000000042_9999999999999999"), Err(OffsetError::Reserved));
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
            "0000000000000000_999999999999999x",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(OffsetError::Malformed), "{text}");
        }
    }
}
