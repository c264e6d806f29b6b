//! Fields of requests and answers: whole numbers in network order, texts and bytes with their lengths.

use crate::failure::{Failure, Outcome};

/// Longest answer that is believed.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request in progress at the end of a buffer.
#[derive(Debug)]
pub(super) struct Request<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Request<'a> {
    /// Begins a request of `kind`, its key and version. Answers come in order, so that none needs a
    /// correlation of its own.
    pub(super) fn start(out: &'a mut Vec<u8>, kind: (i16, i16)) -> Self {
        let start = out.len();
        let mut request = Self { out, start };
        request.i32(0);
        request.i16(kind.0);
        request.i16(kind.1);
        request.i32(0);
        request.text("bench");
        request
    }

    pub(super) fn i8(&mut self, value: i8) {
        self.out.extend(value.to_be_bytes());
    }

    pub(super) fn i16(&mut self, value: i16) {
        self.out.extend(value.to_be_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.out.extend(value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.out.extend(value.to_be_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.i16(i16::try_from(text.len()).expect("names are short"));
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn null_text(&mut self) {
        self.i16(-1);
    }

    /// What `put` writes, with its length before it.
    pub(super) fn sized(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        self.i32(0);
        put(self.out);
        set_length(self.out, at);
    }

    pub(super) fn end(self) {
        set_length(self.out, self.start);
    }
}

/// Writes at `at` the number of bytes behind the four there.
pub(super) fn set_length(out: &mut [u8], at: usize) {
    let length = i32::try_from(out.len() - at - 4).expect("requests are short");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// The answer (or request) at the start of `input`, without its length, and where it ends; `None` until
/// it is whole.
pub(super) fn whole(input: &[u8]) -> Outcome<Option<(&[u8], usize)>> {
    let Some(length) = Fields(input).i32() else { return Ok(None) };
    let length = usize::try_from(length).ok().filter(|length| *length <= ANSWER_BYTES_MAX);
    let length = length.ok_or_else(|| Failure::new("this is not Kafka"))?;
    Ok(input.get(4..4 + length).map(|answer| (answer, 4 + length)))
}

/// What is left of an answer. Each method takes a field; `None` where it ends before.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A text; the absent one is empty.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.i16()?;
        let bytes = self.bytes(usize::try_from(length).unwrap_or_default())?;
        std::str::from_utf8(bytes).ok()
    }

    /// Bytes behind their length; absent ones are empty.
    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.i32()?;
        self.bytes(usize::try_from(length).unwrap_or_default())
    }

    /// A number in groups of seven bits, the least first, with its sign in the lowest bit.
    pub(super) fn varint(&mut self) -> Option<i64> {
        let (mut raw, mut shift) = (0_u64, 0);
        loop {
            let [byte] = self.array()?;
            raw |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
            }
            shift += 7;
        }
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while raw >= 0x80 {
        out.push((raw & 0x7f) as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_come_back() {
        for value in [0, -1, 1, 63, 64, -64, -65, 300, 1_000_000, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(Fields(&out).varint(), Some(value));
            assert_eq!(Fields(&out[..out.len() - 1]).varint(), None, "{value}");
        }
        assert_eq!(Fields(&[0xff; 12]).varint(), None);
    }

    #[test]
    fn an_answer_is_whole_or_not_there() {
        assert!(matches!(whole(&[0, 0, 0]), Ok(None)));
        assert!(matches!(whole(&[0, 0, 0, 2, 7]), Ok(None)));
        assert_eq!(whole(&[0, 0, 0, 2, 7, 8, 9]).unwrap(), Some(([7, 8].as_slice(), 6)));
        assert!(whole(b"HTTP/1.1").is_err());
    }

    #[test]
    fn fields_end_where_the_answer_does() {
        let mut fields = Fields(&[0, 2, b'a', b'b', 0xff, 0xff, 0, 0, 0, 1, 5, 1]);
        assert_eq!((fields.text(), fields.text()), (Some("ab"), Some("")));
        assert_eq!(fields.sized(), Some([5].as_slice()));
        assert_eq!((fields.i16(), fields.i8(), fields.i8()), (None, Some(1), None));
    }
}
